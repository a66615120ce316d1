"""The notebooks' form: thin, in order, clean.

`test_chain` counts the cells that show nothing, in the executed copies.
"""

import json
import re

import pytest

from kaggle_tfr.parameters import NOTEBOOKS

TITLES = dict(
    zip(
        NOTEBOOKS,
        ["Explore", "Deduplicate", "Plan", "Write", "Read", "Train", "Leakage"],
        strict=True,
    )
)


@pytest.fixture(params=NOTEBOOKS)
def name(request):
    return request.param


@pytest.fixture
def notebook(name, root):
    return json.loads((root / "notebooks" / f"{name}.ipynb").read_text())


def tags(cell):
    return cell["metadata"].get("tags", [])


def cells(notebook, kind="code"):
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == kind]


def test_nothing_of_a_run_is_committed(notebook):
    """No outputs and counts; the kernel is python3, which any machine has."""
    assert not [cell for cell in notebook["cells"] if cell.get("outputs")]
    assert {cell.get("execution_count") for cell in notebook["cells"]} == {None}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_a_notebook_is_short(notebook):
    """At most 14 code cells of 25 lines, parameters aside, and 900 words."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code = [cell["source"] for cell in code if "parameters" not in tags(cell)]
    assert len(code) <= 14
    assert max(map(len, code)) <= 25
    assert len(" ".join(cells(notebook, "markdown")).split()) <= 900


def test_the_header_says_what_a_reader_gets(notebook, name):
    """The number and the title, a sentence, what one learns, files, and the time."""
    title, sentence, *others = cells(notebook, "markdown")[0].split("\n\n")
    assert re.match(rf"# {name[1]} (· )?{TITLES[name]}", title)
    assert sentence.endswith(".")
    assert not sentence.startswith("**")
    text = "\n\n".join(others)
    for part in ("**What you learn**: ", "**Reads** ", "**Writes** "):
        assert part in text
    assert re.search(r"\b(minutes?|seconds|\d+ s)\b", text)


def test_the_cell_after_the_parameters_checks_them(notebook, name):
    """It stops a misspelt name, wherever it was set."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    [index] = [n for n, cell in enumerate(code) if "parameters" in tags(cell)]
    after = cells(notebook)[index + 1]
    start = re.search(r"^\w+ = .*", after, re.MULTILINE)[0]
    assert start.startswith(f'work = notebook.start("{name}", globals()')


def test_the_story_has_its_order(notebook):
    """A title, "Parameters", numbered sections, and "Next"; text precedes code."""
    text = cells(notebook, "markdown")
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert text[0].startswith("# ")
    headings = re.findall(r"^## (\S+)", "\n".join(text), re.MULTILINE)
    assert headings[0] == "Parameters"
    assert headings[-1] == "Next"
    numbers = [heading for heading in headings if heading[0].isdigit()]
    assert numbers == [f"{n}." for n in range(1, len(numbers) + 1)]
    assert numbers


def test_the_executed_copy_is_of_this_notebook(notebook, name, root):
    """It is small enough for GitHub, and names no folder of a machine."""
    text = (root / "docs" / "executed" / f"{name}.ipynb").read_text()
    executed = json.loads(text)
    executed["cells"] = [
        cell for cell in executed["cells"] if "injected-parameters" not in tags(cell)
    ]

    header, *others = cells(executed, "markdown")
    assert cells(executed) == cells(notebook), "run: make executed"
    assert others == cells(notebook, "markdown")[1:]
    assert "](../docs" not in header
    assert len(text) < (1.7e6 if name == "02_deduplicate" else 1.2e6)
    assert str(root) not in text
