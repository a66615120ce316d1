"""`init` proposes a recipe, and no name in the data can change what the recipe means.

Its proposals for layouts that people have are in test_cases.py.
"""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.chain import make_input
from support.inputs import put
from support.layouts import csv, many

from kaggle_tfr import explore
from kaggle_tfr.__main__ import main
from kaggle_tfr.explore import layout
from kaggle_tfr.explore.files import list_files
from kaggle_tfr.parameters import load_recipe

FLOWERS = ["daisy/1.jpg", "rose/2.png"]
OWN = ["clouds", "flowers", "imagenet", "landmark-2021"]


def read(recipe, **changes):
    """Return the images and labels of a recipe as it was written."""
    values = load_recipe(str(recipe)) | changes
    return explore.read_table(values["INPUT_DIR"], values)


@pytest.mark.parametrize("name", OWN)
def test_the_recipes_own_layouts_are_detected(name):
    """In the layout of a bundled recipe, init writes one that reads the same table."""
    make_input(name, Path("in"))
    layout.write_recipe("in", "r.yaml")
    images, labels = read("r.yaml")

    expected, expected_labels = read(name, INPUT_DIR="in")
    columns = ["image_id", "path", "split", "label", "label_name"]
    assert images[columns].equals(expected[columns])
    assert labels.classes == expected_labels.classes
    assert not any(images["problem"])


CSVS = {
    # The header and cells of a CSV, and parameters of the recipe.
    "chosen": (
        'id;kind;"a, b, c"',
        [many("{}", 24), ["leaf", "leaf, wet", "old, wet"], [""]],
        {"LABEL_COLUMN": "kind", "ID_COLUMN": "id", "LABELS_CSV": "a.csv"},
    ),
    "unsure": (
        "id,kind,place",
        [many("{}", 24), many("k{}", 4), many("p{}", 3)],
        {"LABEL_COLUMN": ""},
    ),
}


@pytest.mark.parametrize("name", CSVS)
def test_what_names_and_first_rows_contain_is_in_the_recipe(capsys, name):
    """Doubts are comments in the recipe and on the screen, with the next command.

    Names of classes may have commas.
    """
    header, columns, wanted = CSVS[name]
    put("in", many("i/{}.jpg", 24))
    csv("in/a.csv", header, *columns)

    assert main(["init", "in", "-o", "r.yaml"]) == 0

    values = load_recipe("r.yaml")
    assert values.items() >= wanted.items()
    unwanted = {"GROUP_COLUMN", "SPLIT_COLUMN", "LABEL_KIND", "LABEL_SEPARATOR"}
    assert unwanted.isdisjoint(values)
    printed = capsys.readouterr().out
    assert "kaggle-tfr run r.yaml" in printed
    doubt = "01 will stop: LABEL_COLUMN is empty"
    for text in (printed, Path("r.yaml").read_text()):
        assert (doubt in text) == (name == "unsure")


def test_csvs_that_name_no_image_are_listed_beside_class_folders():
    """They are not used, and neither is one that cannot be read."""
    put(".", FLOWERS, {"list.csv": "id,label\nq,x\n"})
    Path("broken.csv").write_bytes(b"id\n\0\xff\n")
    parameters, comments = layout.detect_layout(list_files("."))
    assert parameters == {"LABELS_CSV": "", "LABEL_COLUMN": "folder"}
    assert comments == ["broken.csv is not used", "list.csv is not used"]


def test_init_in_the_folder_itself_is_not_disturbed_by_its_products():
    """After a run has left work/ and a recipe, `init .` writes the same recipe.

    It replaces no file.
    """
    put(".", FLOWERS)
    layout.write_recipe(".", "recipe.yaml")
    put("work/all", ["figures/a.png"], {"images.parquet": ""})
    layout.write_recipe(".", "again.yaml")
    with pytest.raises(FileExistsError, match="'again.yaml' exists"):
        layout.write_recipe("work", "again.yaml")
    assert load_recipe("recipe.yaml") == load_recipe("again.yaml")
    assert load_recipe("again.yaml")["INPUT_DIR"] == os.getcwd()


HOSTILE = ["x\nOVERWRITE: true\nBACKEND: dask", "a: b # c", "'\"", "{id.__class__}"]
HOSTILE += ["!!python/object/apply:os.system", "&a", "*a", "<<", "a\rSEED: 1"]
HOSTILE += ["a\x85SEED: 1", "a\u2028SEED: 1", "\u202e", "\x1b[2J", ""]
CHARACTERS = st.one_of(
    st.characters(), st.sampled_from("\0\n\r\t\x85\u2028\ud83d#:{}[]'\"&*!%@`\\,-? ")
)
NO_TEXT = re.compile(r"[\0\ud800-\udfff]|\\u0000")
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(CHARACTERS, max_size=40))


@hypothesis_settings(max_examples=200)
@given(st.lists(NAMES, min_size=3, max_size=3))
def test_names_from_the_data_stay_values(tmp_path_factory, names):
    """The recipe is read as the values that were written, whatever columns are called.

    A name with NUL or with bytes that are no UTF-8 is refused.
    """
    folder, table, column = names
    values = {"INPUT_DIR": folder, "LABELS_CSV": table, "QUALITY": 90}
    values |= {"LABEL_COLUMN": [column, table], "PATH_TEMPLATE": f"{folder}/{{id}}"}
    path = tmp_path_factory.getbasetemp() / "hostile.yaml"

    if NO_TEXT.search("".join(names)):
        with pytest.raises(ValueError, match="cannot be"):
            layout.format_recipe(values, names)
        return

    text = layout.format_recipe(values, names)
    path.write_text(text, encoding="utf-8")

    assert load_recipe(str(path)) == values
    lines = text.splitlines()  # at all that Unicode takes for the end of a line
    assert [line[:2] for line in lines[: len(names)]] == ["# "] * len(names)
    assert len(lines) == len(names) + len(values)
    assert set(text) <= {"\n", *filter(str.isprintable, text)}


def test_an_error_shows_names_as_one_line():
    """A terminal would obey the control characters in the name of a folder or file."""
    folder = put("a\x1b[2J\nb", [], {"b.\x1b[2J": ""})
    with pytest.raises(FileNotFoundError, match=r"a\\x1b\[2J\\nb' has") as error:
        layout.detect_layout(list_files(str(folder)))
    assert str(error.value).isprintable()
