"""Parameters: names, types, ranges, and recipes."""

import json
import re

import pytest

from kaggle_tfr.parameters import (
    NOTEBOOKS,
    PARAMETERS,
    check_globals,
    check_parameters,
    choose_notebooks,
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

    assert values == {p.name: p.default for p in select_parameters(name)}
    for parameter, comment in re.findall(r"(\w+) = .*?  # (.*)", "\n".join(source)):
        assert comment == PARAMETERS[parameter].description


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"QUALTY": 70}, 'QUALTY is not a parameter. Did you mean "QUALITY"'),
        ({"QUALITY": True}, "QUALITY is True, of type bool"),
        ({"QUALITY": 101}, "QUALITY is 101; it must be from 1 to 100"),
        ({"RESIZE": "centre_crop"}, "It can be 'short_side', 'stretch', 'center_crop'"),
        ({"N_FOLDS": -1}, "it must be 0 or more"),
        ({"IMAGE_SIZE": [0, 256]}, "it must be 1 or more"),
        ({"IMAGE_SIZE": [True, 256]}, "a list must have two whole numbers"),
        ({"SECOND_LOOK": "true"}, "It can be 'auto', True, False."),
        ({"SHARD_MB": "1e2"}, "quotes make a string"),
    ],
)
def test_a_wrong_parameter_is_named(values, message):
    """A misspelt name, a wrong type and a wrong value have different messages."""
    with pytest.raises(ValueError, match=re.escape(message)):
        check_parameters(values)


def test_other_names_of_a_notebook_are_left_alone():
    """Other variables are allowed, unless one is spelt almost like a parameter.

    Its message also covers a name that was fixed but is still in the session.
    """
    names = {"images": 1, "_SEED": 3, "In": [], "QUALITY": 70, "DEBUG": True}
    check_globals(names)

    with pytest.raises(
        ValueError, match="MAX_BITZ is not a parameter.*MAX_BITS.*`del MAX_BITZ`"
    ):
        check_globals({**names, "MAX_BITZ": 30, "MAX_BITS": 30})
    with pytest.raises(ValueError, match="DEBUG is not a parameter"):
        check_parameters({"DEBUG": True})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("NAME", "007", "007"),
        ("QUALITY", "70", 70),
        ("IMAGE_SIZE", "[192, 256]", [192, 256]),
        ("LABEL_COLUMN", "[a, b]", ["a", "b"]),
        ("TFREC_DIRS", "part-1", ["part-1"]),
    ],
)
def test_a_command_line_value_gets_the_type_of_its_parameter(name, text, value):
    """Text becomes what the parameter needs, not what YAML would guess."""
    assert parse_value(name, text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QUALTY: 70", 'Did you mean "QUALITY"'),
        ("- 1\n- 2", "not a list of 'NAME: value' lines"),
        ("A: [", "cannot be used: while parsing a flow node"),
        ("[" * 500 + "]" * 500, "cannot be used: maximum recursion"),  # too deep
        ("NAME: café", "cannot be used: 'utf-8' codec"),  # written in Latin-1 below
        (
            "N_FOLDS: 5\nSEED: 1\nN_FOLDS: 3",
            "'N_FOLDS' is in line 1 and again in line 3",
        ),
        ("NAME: 2026-13-45", "cannot be used: month must be"),
    ],
)
def test_a_bad_recipe_is_named_with_its_file(tmp_path, text, message):
    """The message names the recipe and its error, or lists the existing recipes."""
    (tmp_path / "mine.yaml").write_text(text, encoding="latin-1")

    with pytest.raises(ValueError, match=f"mine.yaml.*{message}"):
        load_recipe(str(tmp_path / "mine.yaml"))
    with pytest.raises(
        FileNotFoundError, match="other.yaml.*Bundled recipes: cassava, clouds"
    ):
        load_recipe(str(tmp_path / "other.yaml"))
    with pytest.raises(IsADirectoryError, match=f"kaggle-tfr init {tmp_path}"):
        load_recipe(str(tmp_path))


@pytest.mark.parametrize(
    ("first", "last", "numbers"),
    [
        (None, None, "01 02 03 04 05"),
        ("03", None, "03 04 05"),
        ("3_plan", None, "'3_plan' is not a step. The steps are 01 explore, 02"),
        ("train", None, "06"),
        ("write", "plan", "03_plan comes before 04_write: no step is left to run."),
    ],
)
def test_steps_are_chosen_by_number_or_name(first, last, numbers):
    """Without a last step a run ends with 05: training is chosen by its name."""
    try:
        chosen = " ".join(name[:2] for name in choose_notebooks(first, last))
    except ValueError as error:
        chosen = str(error)
    assert chosen.startswith(numbers)
