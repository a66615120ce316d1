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
    parse_value,
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
    for parameter, comment in re.findall(r"(\w+) = .*?  # (.*)", "".join(source)):
        assert comment == PARAMETERS[parameter].description


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"QUALTY": 70}, 'QUALTY is not a parameter. Did you mean "QUALITY"'),
        ({"QUALITY": True}, "QUALITY cannot be True. Its default is 90"),
        ({"QUALITY": 101}, "from 1 to 100"),
        ({"RESIZE": "centre_crop"}, '"short_side", "stretch", "center_crop"'),
        ({"SECOND_LOOK": "true"}, '"auto", True, False'),
        ({"OUT_DIR": "s3://bucket"}, "OUT_DIR cannot be 's3://bucket'"),
        ({"MORE_INPUTS": [{"INPUT_DIR": "a", "SEED": 1}]}, "must have INPUT_DIR"),
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
    ("name", "text", "value"),
    [
        ("NAME", "007", "007"),
        ("QUALITY", "70", 70),
        ("IMAGE_SIZE", "[192, 256]", [192, 256]),
        ("TFREC_DIRS", "[part-1]", ["part-1"]),
        ("SHARD_NAME", "{name}-{i}", "{name}-{i}"),
    ],
)
def test_a_command_line_value_gets_the_type_of_its_parameter(name, text, value):
    """Text becomes what the parameter needs, not what YAML would guess."""
    assert parse_value(name, text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QUALTY: 70", 'Did you mean "QUALITY"'),
        ("- 1", "'list' object"),
        ("NAME: café", "can't decode"),  # written in Latin-1 below
        ("N_FOLDS: 5\nSEED: 1\nN_FOLDS: 3", "has two lines of N_FOLDS"),
    ],
)
def test_a_bad_recipe_is_named_with_its_file(tmp_path, text, message):
    """So is what is wrong."""
    (tmp_path / "mine.yaml").write_text(text, encoding="latin-1")

    with pytest.raises(ValueError, match=f"mine.yaml.*{message}"):
        load_recipe(str(tmp_path / "mine.yaml"))
