"""The notebooks' form: thin, in order, clean.

`test_chain` counts the cells that show nothing, in the executed copies.
"""

import json
import re

import pytest

from kaggle_tfr.parameters import NOTEBOOKS


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


def test_a_notebook_is_short_and_in_order(notebook, name):
    """At most 14 code cells of 25 lines, parameters aside, and 900 words.

    The first one checks the parameters, so that a misspelt name stops it. Sections are
    numbered, between "Parameters" and "Next".
    """
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    code = [cell["source"] for cell in code if "parameters" not in tags(cell)]
    assert len(code) <= 14
    assert max(map(len, code)) <= 25
    assert f'work = notebook.start("{name}", globals()' in "".join(code[0])
    text = "\n".join(cells(notebook, "markdown"))
    assert len(text.split()) <= 900
    first, *numbers, last = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert (first, last) == ("Parameters", "Next")
    numbers = [heading for heading in numbers if heading[0].isdigit()]
    assert numbers == [f"{n}." for n in range(1, len(numbers) + 1)]
    assert numbers


def test_the_executed_copy_is_of_this_notebook(notebook, name, root):
    """It is small enough for GitHub, and names no folder of a machine."""
    text = (root / "docs/executed" / f"{name}.ipynb").read_text()
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
