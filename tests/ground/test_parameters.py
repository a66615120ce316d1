"""Parameters: names, types, ranges, and recipes."""

import json
import re

import pytest

from kaggle_tfr.parameters import (
    NOTEBOOKS,
    PARAMETERS,
    check_globals,
    check_parameters,
    load_recipe,
    select_parameters,
)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_shows_the_parameters_of_the_table(root, name):
    """Its parameters cell has the defaults and the help of the table."""
    cells = json.loads((root / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    (source,) = [
        c["source"] for c in cells if "parameters" in c["metadata"].get("tags", [])
    ]
    values: dict = {}
    exec("".join(source), {"__builtins__": {}}, values)  # a cell of literals

    parameters = select_parameters(name)
    assert values == {name: parameters[name].default for name in parameters}
    comments = re.findall(r"(\w+) = .*?  # (.*)", "".join(source))
    assert comments
    for parameter, comment in comments:
        assert comment == PARAMETERS[parameter].description


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"QUALITY": 101}, "QUALITY cannot be 101. Its default is 90: JPEG, 1 to 100"),
        ({"SECOND_LOOK": 1}, 'verify pairs by their geometry; "auto", True, False'),
        ({"IMAGE_SIZE": 0}, "IMAGE_SIZE cannot be 0. Its default is 256: pixels"),
        ({"IMAGE_SIZE": [-1, 256]}, "IMAGE_SIZE cannot be [-1, 256]"),
        ({"IMAGE_SIZE": [256]}, "IMAGE_SIZE cannot be [256]"),
        ({"MORE_INPUTS": [{"INPUT_DIRS": "a"}]}, 'Did you mean "INPUT_DIR"'),
        ({"MORE_INPUTS": [{"RLE_ORDER": "rows"}]}, "RLE_ORDER cannot be in MORE"),
    ],
)
def test_a_wrong_parameter_is_named(values, message):
    """So are its value and what is allowed."""
    with pytest.raises(ValueError, match=re.escape(message)):
        check_parameters(values)


def test_other_names_of_a_notebook_are_left_alone():
    """Other variables are allowed, unless one is spelt almost like a parameter."""
    check_globals({"images": 1, "In": [], "QUALITY": 70, "DEBUG": True})

    with pytest.raises(ValueError, match="MAX_BITZ is not a parameter.*MAX_BITS"):
        check_globals({"MAX_BITZ": 30, "MAX_BITS": 30})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QUALTY: 70", 'Did you mean "QUALITY"'),
        ("- 1", "'list' object"),
        ("NAME: café", "can't decode"),  # written in Latin-1 below
    ],
)
def test_a_bad_recipe_is_named_with_its_file(tmp_path, text, message):
    """So is what is wrong."""
    (tmp_path / "mine.yaml").write_text(text, encoding="latin-1")

    with pytest.raises(ValueError, match=f"mine.yaml.*{message}"):
        load_recipe(str(tmp_path / "mine.yaml"))
