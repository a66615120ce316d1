"""`init` proposes a recipe, and no name in the data can change what the recipe means.

Its proposals for layouts that people have are in test_cases.py.
"""

import csv
import os
import re

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.chain import make_input
from support.inputs import put, put_csv

from kaggle_tfr import explore, mounts
from kaggle_tfr.__main__ import main
from kaggle_tfr.explore import layout, recipe
from kaggle_tfr.mounts import find_input
from kaggle_tfr.parameters import load_recipe, make_settings

FLOWERS = ["daisy/1.jpg", "daisy/2.jpg", "rose/3.png", "tulip/4.jpg"]
OWN = ["cassava", "clouds", "flowers", "imagenet", "landmark-2021", "petals"]


def read(recipe, **changes):
    """Return the images and labels of a recipe as it was written."""
    values = load_recipe(str(recipe)) | changes
    settings = make_settings(explore.InputSettings, values)
    return explore.read_table(values["INPUT_DIR"], settings)


@pytest.mark.parametrize("name", OWN)
def test_the_recipes_own_layouts_are_detected(tmp_path, name):
    """In the layout of a bundled recipe, init writes one that reads the same table."""
    make_input(name, tmp_path / "in")
    layout.write_recipe(str(tmp_path / "in"), str(tmp_path / "r.yaml"))
    images, labels = read(tmp_path / "r.yaml")

    expected, expected_labels = read(name, INPUT_DIR=str(tmp_path / "in"))
    columns = ["image_id", "path", "split", "label", "label_name"]
    assert images[columns].equals(expected[columns])
    assert labels.classes == expected_labels.classes
    assert (images["problem"] == "").all()


def list_rows(header, template):
    """Return a CSV of 24 rows; {} in the template is a number, {0} that of the row."""
    rows = [template.format(n, n % 3, n // 2 % 4, n % 6) for n in range(24)]
    return "\n".join([header, *rows, ""])


COMMAS = "id;kind\n0;leaf\n1;leaf, wet\n2;old, wet\n3;leaf\n"
CHOSEN = {"LABEL_COLUMN": "kind", "ID_COLUMN": "id", "LABELS_CSV": "a.csv"}
# name: (a CSV, parameters of the recipe)
DETECTED = {
    "no labels": ("", {"LABEL_COLUMN": []}),
    "names with commas": (COMMAS, CHOSEN),
    "few groups": (
        list_rows("id,site,kind", "{0},s{1},k{2}"),
        CHOSEN | {"GROUP_COLUMN": "site", "N_FOLDS": 3},
    ),
    "groups within classes": (list_rows("id,group,kind", "{0},g{3},k{3}"), CHOSEN),
    "a choice": (list_rows("id,place,kind", "{0},p{1},k{2}"), {"LABEL_COLUMN": ""}),
}


@pytest.mark.parametrize("name", DETECTED)
def test_what_names_and_first_rows_contain_is_in_the_recipe(tmp_path, capsys, name):
    """Doubts are comments in the recipe and on the screen, with the next command."""
    text, wanted = DETECTED[name]
    folder = put(tmp_path / "in", [f"i/{number}.jpg" for number in range(24)])
    put(folder, [], {"a.csv": text} if text else {})
    recipe = tmp_path / "r.yaml"

    assert main(["init", str(folder), "-o", str(recipe)]) == 0

    values = load_recipe(str(recipe))
    assert values.items() >= wanted.items()
    kinds = {"GROUP_COLUMN", "SPLIT_COLUMN", "LABEL_KIND", "LABEL_SEPARATOR"}
    assert kinds.intersection(values) <= set(wanted)
    printed = capsys.readouterr().out
    for place, mark in ((printed, ""), (recipe.read_text(), "# ")):
        is_told = f"{mark}not sure: set LABEL_COLUMN" in place
        assert is_told == (wanted["LABEL_COLUMN"] == "")
    assert f"kaggle-tfr run {recipe}" in printed


def test_csvs_that_name_no_image_are_listed_beside_class_folders(tmp_path):
    """They are not used; one that cannot be read is a doubt."""
    put(tmp_path, FLOWERS, {"list.csv": "id,label\nq,x\n"})
    (tmp_path / "broken.csv").write_bytes(b"id\n\0\xff\n")
    proposed = layout.detect_layout(str(tmp_path))
    assert proposed.parameters == {"LABELS_CSV": "", "LABEL_COLUMN": "folder"}
    comments = "\n".join(proposed.comments)
    assert re.search("not sure: .*broken.csv' is not a CSV file in UTF-8", comments)
    assert "list.csv is not used" in comments


def test_what_is_no_layout_is_an_error(tmp_path, capsys):
    """The error lists the files of the folder."""
    call = ["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]
    (tmp_path / "in").mkdir()
    assert main(call) == 1
    assert "in' has no images" in capsys.readouterr().err
    put(tmp_path / "in", [], {"a.mp4": "", "b.mp4": ""})
    assert main(call) == 1
    assert "a.mp4, b.mp4" in capsys.readouterr().err
    assert not (tmp_path / "r.yaml").exists()


def test_the_slug_of_an_input_is_its_input_dir(tmp_path, monkeypatch):
    """It has the owner, so that `kernel` knows the dataset, if there is one."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "input"))
    monkeypatch.chdir(tmp_path)
    slugs = {"tf-flowers": "tf-flowers", "ada/tea": "datasets/ada/tea"}
    slugs["petals"] = "datasets/ada/petals"
    for source, mount in slugs.items():
        put(tmp_path / "input" / mount, FLOWERS)
        path, _ = layout.write_recipe(source)
        input_dir = load_recipe(path)["INPUT_DIR"]
        assert input_dir == mount.removeprefix("datasets/")
        assert find_input(input_dir) == str(tmp_path / "input" / mount)


def test_init_in_the_folder_itself_is_not_disturbed_by_its_products(
    tmp_path, monkeypatch
):
    """After a run has left work/ and a recipe, `init .` writes the same recipe."""
    folder = put(tmp_path / "photos", FLOWERS)
    monkeypatch.chdir(folder)
    layout.write_recipe(".", "recipe.yaml")
    put(folder, ["work/all/figures/a.png"], {"work/all/images.parquet": ""})
    layout.write_recipe(".", "again.yaml")
    assert load_recipe("recipe.yaml") == load_recipe("again.yaml")
    assert load_recipe("again.yaml")["INPUT_DIR"] == str(folder)


def test_parts_alone_are_shards(tmp_path):
    """A dataset of parts that kaggle-tfr wrote is an input of TFRecords."""
    for part in ("part-1", "part-2"):
        put(tmp_path / part, [], {"plan.json": "", "x-f0-000-1.tfrec": ""})
    assert layout.detect_layout(str(tmp_path)).parameters == {"INPUT_SCHEMA": "auto"}


EXISTS = "exists, and init replaces nothing. Name another file"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("missing -o r.yaml", "'missing' is neither a folder here nor a Kaggle input"),
        ("in -o old.yaml", f"'old.yaml' {EXISTS}"),
        ("in -o in", f"'in' {EXISTS}"),
    ],
)
def test_a_wrong_call_is_explained(tmp_path, monkeypatch, capsys, call, message):
    """The error says what happened, where, and what to do; nothing is written."""
    monkeypatch.chdir(tmp_path)
    put_csv(tmp_path / "in", "image_id,label\na.jpg,x\n", ["a.jpg"])
    put(tmp_path, [], {"old.yaml": "SEED: 1"})
    before = sorted(tmp_path.rglob("*"))

    assert main(["init", *call.split()]) != 0

    error = capsys.readouterr().err
    assert message in error
    assert "Errno" not in error
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "old.yaml").read_text() == "SEED: 1"


INJECTION = "x\nOVERWRITE: true\nBACKEND: dask"
HOSTILE = [INJECTION, "a: b # c", "'\"", "{id.__class__}", "{", "%s", "&a", "*a", "<<"]
HOSTILE += ["!!python/object/apply:os.system", "- x", "? x", "\t", "a\rSEED: 1", "~"]
HOSTILE += ["a\x85SEED: 1", "a\u2028SEED: 1", "\ufeff", "\u202e", "\x1b[2J", "\\n", ""]
CHARACTERS = st.one_of(
    st.characters(), st.sampled_from("\0\n\r\t\x85\u2028\ud83d#:{}[]'\"&*!%@`\\,-? ")
)
NO_TEXT = re.compile(r"[\0\ud800-\udfff]")  # which a recipe refuses, see `check_value`
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

    text = recipe.format_recipe(values, names)
    path.write_text(text, encoding="utf-8")

    if NO_TEXT.search("".join(names)):
        with pytest.raises(ValueError, match="has NUL or bytes that are not UTF-8"):
            load_recipe(str(path))
    else:
        assert load_recipe(str(path)) == values
    lines = text.splitlines()  # at all that Unicode takes for the end of a line
    assert [line[:2] for line in lines[: len(names)]] == ["# "] * len(names)
    assert len(lines) == len(names) + len(values)
    assert set(text) <= {"\n", *filter(str.isprintable, text)}


IN_FILE_NAMES = st.text(
    st.characters(exclude_characters="./\0", exclude_categories=["Cs"])
    | st.sampled_from("\n\x85\u2028#:{}[]'\"&*! "),
    min_size=1,
    max_size=20,
)


@hypothesis_settings(max_examples=10)
@example("{image_id.__class__}")
@example(INJECTION)
@given(IN_FILE_NAMES)
def test_a_folder_of_odd_names_gets_a_recipe(tmp_path_factory, name):
    """The folder, the folder of images, the CSV and its columns have that name."""
    name = f"name{name}"  # neither hidden nor a drive
    top = tmp_path_factory.mktemp("odd")
    folder = put(top / name, [f"{name}/1.jpg", f"{name}/2.jpg"])
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([[f"{name} id", name], ["1.jpg", "x"], ["2.jpg", "y"]])

    _, printed = layout.write_recipe(str(folder), str(top / "r.yaml"))

    values = load_recipe(str(top / "r.yaml"))
    usual = {"NAME", "IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS"}
    assert {key: values[key] for key in values.keys() - usual} == {
        "INPUT_DIR": str(folder),
        "LABELS_CSV": f"{name}.csv",
        "ID_COLUMN": f"{name} id",
        "LABEL_COLUMN": name.strip(),
    }
    assert all(line.isprintable() for line in printed)
    images, _ = read(top / "r.yaml")
    assert (images["problem"] == "").all()


@pytest.mark.parametrize("files", [["a.mp4", "b.csv"], ["b.\x1b[2J"]])
def test_an_error_shows_names_as_one_line(tmp_path, files):
    """A terminal would obey the control characters in the name of a folder or file."""
    folder = put(tmp_path / "a\x1b[2J\nb", [], dict.fromkeys(files, ""))
    with pytest.raises(FileNotFoundError, match=r"a\\x1b\[2J\\nb' has") as error:
        layout.detect_layout(str(folder))
    assert str(error.value).isprintable()


def test_a_folder_whose_name_is_no_text_gets_no_recipe(tmp_path):
    """Notebooks could not be given such a parameter."""
    folder = put(tmp_path / "name\udce9", FLOWERS)
    with pytest.raises(ValueError, match=r"INPUT_DIR is .* not UTF-8"):
        layout.write_recipe(str(folder), str(tmp_path / "r.yaml"))
    assert os.listdir(tmp_path) == [folder.name]
