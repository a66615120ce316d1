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

FLOWERS = ["daisy/1.jpg", "daisy/2.jpg", "rose/3.png", "tulip/4.jpg"]
OWN = ["cassava", "clouds", "flowers", "imagenet", "landmark-2021", "petals"]


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
    assert (images["problem"] == "").all()


CHOSEN = {"LABEL_COLUMN": "kind", "ID_COLUMN": "id", "LABELS_CSV": "a.csv"}
KINDS = many("k{}", 4)
# name: (the header and the columns of a CSV, parameters of the recipe)
DETECTED = {
    "no labels": ("", [], {"LABEL_COLUMN": []}),
    "names with commas": (
        'id;kind;"a, b, c"',
        [["leaf", "leaf, wet", "old, wet"], [""]],
        CHOSEN,
    ),
    "codes of few numbers": (
        "id,code",
        [[f"1 {n % 6} 9 {n // 6}" for n in range(24)]],
        {"LABEL_COLUMN": "code", "LABEL_KIND": "masks"},
    ),
    "a choice": ("id,kind,place", [KINDS, many("p{}", 3)], {"LABEL_COLUMN": ""}),
}


@pytest.mark.parametrize("name", DETECTED)
def test_what_names_and_first_rows_contain_is_in_the_recipe(capsys, name):
    """Doubts are comments in the recipe and on the screen, with the next command."""
    header, columns, wanted = DETECTED[name]
    put("in", many("i/{}.jpg", 24))
    if header:
        csv("in/a.csv", header, range(24), *columns)

    assert main(["init", "in", "-o", "r.yaml"]) == 0

    values = load_recipe("r.yaml")
    assert values.items() >= wanted.items()
    kinds = {"GROUP_COLUMN", "SPLIT_COLUMN", "LABEL_KIND", "LABEL_SEPARATOR"}
    assert kinds.intersection(values) <= set(wanted)
    printed = capsys.readouterr().out
    doubt = "01 will stop: LABEL_COLUMN is empty"
    assert (doubt in printed) == (wanted["LABEL_COLUMN"] == "")
    assert (f"# {doubt}" in Path("r.yaml").read_text()) == (doubt in printed)
    assert "kaggle-tfr run r.yaml" in printed


def test_csvs_that_name_no_image_are_listed_beside_class_folders():
    """They are not used, and neither is one that cannot be read."""
    put(".", FLOWERS, {"list.csv": "id,label\nq,x\n"})
    Path("broken.csv").write_bytes(b"id\n\0\xff\n")
    parameters, comments = layout.detect_layout(list_files("."))
    assert parameters == {"LABELS_CSV": "", "LABEL_COLUMN": "folder"}
    assert comments == ["broken.csv is not used", "list.csv is not used"]


def test_init_in_the_folder_itself_is_not_disturbed_by_its_products():
    """After a run has left work/ and a recipe, `init .` writes the same recipe."""
    put(".", FLOWERS)
    layout.write_recipe(".", "recipe.yaml")
    put("work/all", ["figures/a.png"], {"images.parquet": ""})
    layout.write_recipe(".", "again.yaml")
    assert load_recipe("recipe.yaml") == load_recipe("again.yaml")
    assert load_recipe("again.yaml")["INPUT_DIR"] == os.getcwd()


def test_init_replaces_no_file():
    """The error says what to do."""
    put("in", ["a.jpg"])
    put(".", [], {"old.yaml": "SEED: 1"})
    with pytest.raises(FileExistsError, match=r"'old.yaml' exists.*Name another file"):
        layout.write_recipe("in", "old.yaml")
    assert Path("old.yaml").read_text() == "SEED: 1"


INJECTION = "x\nOVERWRITE: true\nBACKEND: dask"
HOSTILE = [INJECTION, "a: b # c", "'\"", "{id.__class__}", "{", "%s", "&a", "*a", "<<"]
HOSTILE += ["!!python/object/apply:os.system", "- x", "? x", "\t", "a\rSEED: 1", "~"]
HOSTILE += ["a\x85SEED: 1", "a\u2028SEED: 1", "\ufeff", "\u202e", "\x1b[2J", "\\n", ""]
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


@pytest.mark.parametrize("files", [[], ["a.mp4", "b.csv"], ["b.\x1b[2J"]])
def test_an_error_shows_names_as_one_line(files):
    """A terminal would obey the control characters in the name of a folder or file."""
    folder = "a\x1b[2J\nb"
    os.mkdir(folder)
    put(folder, [], dict.fromkeys(files, ""))
    with pytest.raises(FileNotFoundError, match=r"a\\x1b\[2J\\nb' has") as error:
        layout.detect_layout(list_files(folder))
    assert str(error.value).isprintable()


def test_a_folder_whose_name_is_no_text_gets_no_recipe():
    """Notebooks could not be given such a parameter."""
    put("name\udce9", FLOWERS)
    with pytest.raises(ValueError, match=r"INPUT_DIR cannot be .*udce9"):
        layout.write_recipe("name\udce9", "r.yaml")
    assert os.listdir() == ["name\udce9"]
