"""Parameters: names, kinds, ranges, and recipes."""

import json

import pytest

from kaggle_tfr.parameters import (
    BY_NOTEBOOK,
    EVERYWHERE,
    check_parameters,
    load_recipe,
    parse_value,
)


def test_the_notebooks_show_the_defaults_of_the_package(root):
    """
    Each notebook's parameters cell sets exactly its parameters, to the defaults checked against.
    """
    for name, own in BY_NOTEBOOK.items():
        cells = json.loads((root / "notebooks" / f"{name}.ipynb").read_text())["cells"]
        (source,) = [c["source"] for c in cells if "parameters" in c["metadata"].get("tags", [])]
        values: dict = {}
        exec("".join(source), {}, values)  # a cell of literals
        assert values == EVERYWHERE | own, name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"QUALTY": 70}, 'QUALTY is no parameter. Did you mean "QUALITY"'),
        ({"QUALITY": "70"}, "QUALITY is '70', a str; it takes a int"),
        ({"QUALITY": True}, "QUALITY is True, a bool"),
        ({"QUALITY": 101}, "it takes from 1 to 100"),
        ({"RESIZE": "centre_crop"}, 'Did you mean "center_crop"'),
        ({"N_FOLDS": -1}, "it takes 0 or more"),
        ({"IMAGE_SIZE": [0, 256]}, "it takes 1 or more"),
        ({"SECOND_LOOK": "true"}, "SECOND_LOOK is 'true', a str; it takes a bool"),
        ({"SHARD_MB": "1e2"}, "quotes make a string"),
    ],
)
def test_a_wrong_parameter_is_named(values, message):
    """
    A misspelt name, a wrong kind and a value out of range are told apart, with the mend.
    """
    with pytest.raises(ValueError) as caught:
        check_parameters(values)

    assert message in str(caught.value)


def test_other_names_of_a_notebook_are_left_alone():
    """
    Imports, functions and variables that are not ALL-CAPS never count as parameters.
    """
    check_parameters({"images": 1, "_": 2, "In": [], "Out": {}, "QUALITY": 70})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("NAME", "007", "007"),
        ("QUALITY", "70", 70),
        ("SECOND_LOOK", "true", True),
        ("VALIDATION_SIZE", "0.3", 0.3),
        ("IMAGE_SIZE", "[192, 256]", [192, 256]),
        ("LABEL_COLUMN", "label", "label"),
        ("LABEL_COLUMN", "[a, b]", ["a", "b"]),
        ("TFREC_DIRS", "part-1", ["part-1"]),
        ("PART_LIMIT_GB", "0.5", 0.5),
    ],
)
def test_a_command_line_value_takes_the_kind_of_its_parameter(name, text, value):
    """
    Text becomes what the parameter needs, not what YAML would guess.
    """
    assert parse_value(name, text) == value


def test_every_recipe_in_the_folder_is_valid(root):
    """
    No bundled recipe has a misspelt or misplaced parameter.
    """
    recipes = sorted((root / "recipes").glob("*.yaml"))

    assert {path.stem for path in recipes} >= {"sample", "flowers"}
    for path in recipes:
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QUALTY: 70", 'Did you mean "QUALITY"'),
        ("- 1\n- 2", "not a list of 'NAME: value' lines"),
        ("A: [", "is not YAML"),
    ],
)
def test_a_bad_recipe_is_named_with_its_file(tmp_path, text, message):
    """
    The message names the recipe, then what is wrong in it.
    """
    path = tmp_path / "mine.yaml"
    path.write_text(text)

    with pytest.raises(ValueError, match="mine.yaml") as caught:
        load_recipe(str(path))
    assert message in str(caught.value)


def test_a_missing_recipe_says_where_recipes_lie():
    """
    A wrong path is a FileNotFoundError that points to recipes/.
    """
    with pytest.raises(FileNotFoundError, match="recipes/"):
        load_recipe("nowhere.yaml")
