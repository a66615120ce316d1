# Everything runs in .venv, which is made on first use and again when the requirements change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all bench pictures lint clean help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(READY)  ## the sample competition through the five notebooks, into work/
	$(BIN)/python -m kaggle_tfr run recipes/sample.yaml

test: $(READY)  ## lint, then the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest

test-all: $(READY)  ## the tests with the heavy ones
	$(BIN)/python -m pytest -m "heavy or not heavy"

bench: $(READY)  ## the benchmarks' tables
	$(BIN)/python -m benchmarks.write
	$(BIN)/python -m benchmarks.duplicates
	$(BIN)/python -m benchmarks.folds
	$(BIN)/python -m benchmarks.read

lint: $(READY)  ## format and check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## forget the environment and the demo's output
	rm -rf .venv work
