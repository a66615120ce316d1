# Everything runs in .venv, which is created on first use and updated when the
# requirements change.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP := python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-all test-latest test-kaggle lock kernel docs executed bench pictures lint clean help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/$(PIP) --no-deps --requirement requirements.lock
	$(BIN)/$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

lock:  ## requirements.lock of the newest releases that fit
	$(BIN)/$(PIP) uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
		--no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		--output-file requirements.lock pyproject.toml

demo: $(READY)  ## the sample competition through the first five notebooks, into work/sample/
	$(BIN)/python -m kaggle_tfr run recipes/sample.yaml

test: $(READY)  ## lint, types, imports, then the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test-all: $(READY)  ## all tests, with the heavy ones
	$(BIN)/python -m pytest -m "heavy or not heavy"

bench: $(READY)  ## the benchmarks' tables
	$(BIN)/python -m benchmarks.write
	$(BIN)/python -m benchmarks.chain
	$(BIN)/python -m benchmarks.read
	$(BIN)/python -m benchmarks.bucket
	$(BIN)/python -m benchmarks.records
	$(BIN)/python -m benchmarks.duplicates
	$(BIN)/python -m benchmarks.copies
	$(BIN)/python -m benchmarks.folds
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.forecast
	$(BIN)/python -m benchmarks.dask_scale
	$(BIN)/python -m benchmarks.rehearsal --n 20000

docs: $(READY)  ## docs/parameters.md and docs/functions.md from the code
	PYTHONPATH=tests $(BIN)/python -m support.functions_page > docs/functions.md
	$(BIN)/python -c 'from kaggle_tfr.parameters import format_parameters; \
		print("# Parameters\n\n" + format_parameters())' > docs/parameters.md

kernel: $(READY)  ## notebooks/kernel.ipynb, which contains the package for Kaggle
	$(BIN)/kaggle-tfr kernel sample --out work/kernels
	cp work/kernels/sample-images-to-tfrecords/kernel.ipynb notebooks/

test-latest: .venv-latest/.ready  ## the tests with the newest releases
	.venv-latest/bin/python -m pytest

.venv-latest/.ready: requirements.txt pyproject.toml
	test -x .venv-latest/bin/python || $(PYTHON) -m venv .venv-latest
	.venv-latest/bin/$(PIP) --upgrade --editable '.[dev]'
	touch $@

test-kaggle: .venv-kaggle/.ready .venv-kaggle-tpu/.ready  ## the tests with Kaggle's versions
	TPU_PYTHON=.venv-kaggle-tpu/bin/python .venv-kaggle/bin/python -m pytest

.venv-kaggle/.ready: requirements.txt pyproject.toml tests/kaggle-image.txt
	test -x .venv-kaggle/bin/python || $(PYTHON) -m venv .venv-kaggle
	.venv-kaggle/bin/$(PIP) --constraint tests/kaggle-image.txt --editable '.[dev]'
	touch $@

.venv-kaggle-tpu/.ready: tests/kaggle-tpu-image.txt
	test -x .venv-kaggle-tpu/bin/python || $(PYTHON) -m venv .venv-kaggle-tpu
	.venv-kaggle-tpu/bin/$(PIP) --requirement tests/kaggle-tpu-image.txt
	touch $@

lint: $(READY)  ## format and check
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environments and the demo's output
	rm -rf .venv .venv-latest .venv-kaggle .venv-kaggle-tpu work

executed: $(READY)  ## docs/executed/, the seven notebooks with their outputs
	$(BIN)/python -m kaggle_tfr run recipes/sample.yaml -p WORK_DIR=work/executed --until leakage
	$(BIN)/python docs/copy_executed.py work/executed

pictures: $(READY)  ## docs/overview.png, from a run of the sample
	$(BIN)/python -m kaggle_tfr run recipes/sample.yaml -p WORK_DIR=work/pictures --until write
	$(BIN)/python docs/draw_overview.py work/pictures docs/overview.png
