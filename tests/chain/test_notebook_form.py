"""The notebooks' form: thin, in order, clean."""

import ast
import json
import types

import pytest

from kaggle_tfr.parameters import NOTEBOOKS

LIBRARIES = ("ImageOps", "imagehash", "cv2", "tf.train", "tf.data", "keras.ops")


@pytest.fixture(params=NOTEBOOKS)
def notebook(request, root):
    return json.loads((root / "notebooks" / f"{request.param}.ipynb").read_text())


def cells(notebook, kind="code"):
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == kind]


def test_nothing_of_a_run_is_committed(notebook):
    """No outputs and counts; the kernel is python3, which any machine has."""
    assert not [cell for cell in notebook["cells"] if cell.get("outputs")]
    assert {cell.get("execution_count") for cell in notebook["cells"]} == {None}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_cells_are_thin(notebook):
    """No cell has functions, classes or loops, or more than 15 lines of code."""
    forbidden = ast.FunctionDef | ast.ClassDef | ast.For | ast.While
    for source in cells(notebook):
        nodes = list(ast.walk(ast.parse(source)))
        assert not [node for node in nodes if isinstance(node, forbidden)]
        is_parameters_cell = source.startswith("WORK_DIR")
        assert is_parameters_cell or len(source.splitlines()) <= 15


def test_the_parameters_cell_holds_literals_only(notebook):
    """One cell is tagged; each of its lines assigns a literal to an ALL-CAPS name.

    The cell after it stops a misspelt one, wherever it was set.
    """
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (index,) = [
        n for n, c in enumerate(code) if "parameters" in c["metadata"].get("tags", [])
    ]
    source, after = cells(notebook)[index : index + 2]
    for node in ast.parse(source).body:
        assert isinstance(node, ast.Assign)
        assert node.targets[0].id.isupper()
        ast.literal_eval(node.value)
    for line in source.splitlines():
        assert line.split("#")[0].count("=") <= 1, line
    assert after.startswith("work = notebook.start(globals()")


def test_few_names_are_imported(notebook):
    """A notebook takes its steps whole, in at most four lines; what it calls exists."""
    sources = cells(notebook)
    lines = [
        line for line in sources[0].splitlines() if line.startswith("from kaggle_tfr")
    ]
    names = {}
    for line in lines:
        exec(line, names)
    assert 1 <= len(lines) <= 4
    for node in ast.walk(ast.parse("\n".join(sources))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = names.get(node.value.id)
            assert not isinstance(owner, types.ModuleType) or hasattr(
                owner, node.attr
            ), node.attr


def test_tables_are_shown_escaped(notebook):
    """No cell writes HTML or Markdown from names in the data, which are not escaped."""
    code = "\n".join(cells(notebook))
    assert [name for name in (".style", "HTML(", "Markdown(") if name in code] == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("02_deduplicate", 'load_pairs(images, dropped, outcomes=("kept", "dropped"))'),
        (
            "05_read_and_visualize",
            "print(read.describe_missing_classes(per_class, classes))",
        ),
        ("06_train", "print(read.describe_missing_classes(per_class, classes))"),
    ],
)
def test_figures_have_a_table_or_a_sentence(root, name, call):
    """The image that is kept, and the classes that a score does not cover."""
    notebook = json.loads((root / "notebooks" / f"{name}.ipynb").read_text())
    assert call in "\n".join(cells(notebook))


def test_each_technique_is_shown_on_one_picture(notebook):
    """Cells tagged `lesson` use the field's libraries; the report leaves them out."""
    lessons = [
        c for c in notebook["cells"] if "lesson" in c["metadata"].get("tags", [])
    ]
    code = "\n".join("".join(c["source"]) for c in lessons if c["cell_type"] == "code")
    if notebook["cells"][0]["source"][0][:3] < "# 7":
        assert [name for name in LIBRARIES if f"{name}." in code]


def test_the_story_has_its_order(notebook):
    """A title, "Parameters", numbered sections, and "Next"; text precedes code."""
    text = cells(notebook, "markdown")
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert text[0].startswith("# ")
    headings = [
        line for part in text for line in part.splitlines() if line.startswith("## ")
    ]
    assert headings[0] == "## Parameters"
    assert headings[-1] == "## Next"
    numbers = [
        line.split()[1] for line in headings if line.split()[1].rstrip(".").isdigit()
    ]
    assert numbers == [f"{n}." for n in range(1, len(numbers) + 1)]
    assert numbers
