"""Labels are read in every form that CSVs have, and what is not a label is named."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from support.inputs import put_csv, read, read_cells, rows_of

from kaggle_tfr.explore.labels import number_labels, read_labels
from kaggle_tfr.parameters import DEFAULTS

NAMES = st.one_of(st.integers(0, 10**12).map(str), st.text("ab0", max_size=3))


@given(st.lists(NAMES, min_size=1))
def test_labels_are_contiguous_and_sorted(names):
    """Any cells become 0 … n−1 in the order of the classes; numbers sort as numbers."""
    text = pd.DataFrame({"label": names}, dtype=str)
    rows = pd.DataFrame({"image": text.index, "is_optional": False})

    table, labels = number_labels(*read_labels(text, rows, DEFAULTS))

    classes = labels.classes
    assert list(classes) == sorted(set(classes))
    assert sorted(set(table["label"]) - {-1}) == list(range(len(classes)))
    found = [str(classes[label]) if label >= 0 else "" for label in table["label"]]
    assert found == names


def test_columns_with_one_1_a_row_can_be_one_class():
    """So they are by default; with LABEL_KIND: single other rows are rejected."""
    changes = {"label_column": ["rust", "scab"]}
    _, labels = read_cells("rust,scab", ["1,0", "0,1"], **changes)
    assert labels.kind == "single"

    cells = ["1,0", "0,1", "1,1", "0,0"]
    images, labels = read_cells("rust,scab", cells, **changes, label_kind="single")

    assert labels.classes == ("rust", "scab")
    assert images["problem"].tolist() == ["", "", "no label", "no label"]
    assert images["label"].tolist() == [0, 1, -1, -1]


def test_a_quantity_is_a_float_column_and_ten_bins():
    """The bins have equal counts; a cell that is not a number rejects its row.

    The column must not replace one of the measured columns. LABEL_MAP replaces cells.
    A further input may call it otherwise.
    """
    cells = [*np.arange(100) ** 2 / 8, "about 3", ""]

    images, labels = read_cells("age", cells, label_column="age", label_kind="number")

    assert labels.label_columns == ("age",)
    assert images["age"].tolist()[:100] == cells[:100]
    assert images["label"].tolist() == [n // 10 for n in range(100)] + [-1, -1]
    assert labels.classes[0] == images["label_name"][0] == "(-0.001, 12.263]"
    assert images["problem"].tolist()[100:] == ["no label"] * 2
    put_csv("more", "image_id,years\nm.jpg,5\n", ["m.jpg"])
    images, labels = read_cells(
        "width",
        ["1", "none"],
        label_column="width",
        label_kind="number",
        label_map={"none": 0},
        more_inputs=[{"INPUT_DIR": "more", "LABEL_COLUMN": "years"}],
    )
    assert labels.label_columns == ("target",)
    target_of = rows_of(images, "target")
    assert [target_of[name] for name in ("0", "1", "m.jpg")] == [1, 0, 5]


def test_several_columns_may_have_several_labels_each():
    cells = ["rust;scab,wet", ",dry", "rust,", ","]
    changes = {"label_column": ["leaf", "soil"], "label_separator": ";"}

    images, labels = read_cells("leaf,soil", cells, **changes)

    assert labels.classes == ("dry", "rust", "scab", "wet")
    assert images["label_name"].tolist() == ["rust|scab|wet", "dry", "rust", ""]


def test_label_map_joins_classes_and_leaves_images_out(capsys):
    """A mapping to all numbers is the order of the classes instead.

    Keys that the data lacks are noted.
    """
    cells = ["Red Leaf", "red leaf", "rust"]
    label_map = {"red leaf": "Red Leaf", "rust": "", False: ""}

    images, labels = read_cells("label", cells, label_map=label_map)

    assert labels.classes == ("Red Leaf",)
    assert (
        "! LABEL_MAP has keys that are not in the data, such as ['False']. Quote"
        in (capsys.readouterr().out)
    )
    assert images["label"].tolist() == [0, 0, -1]
    assert images["problem"].tolist() == ["", "", "left out by LABEL_MAP"]
    _, labels = read(label_map={"rust": 0, "red leaf": 1, "Red Leaf": 2})
    assert labels.classes == ("rust", "red leaf", "Red Leaf")


def test_columns_with_other_cells_than_0_and_1_are_rejected():
    """LABEL_MAP gives the cells a meaning, or the columns an order."""
    changes = {"label_column": ["rust", "scab"]}
    images, _ = read_cells("rust,scab", ["1,0", "-1,1", "1,1", "0,-1"], **changes)
    problem = "a label is neither 0 nor 1"
    assert images["problem"].tolist() == ["", problem, "", problem]
    images, _ = read(**changes, label_map={"-1": 0})
    assert images["label_name"].tolist() == ["rust", "scab", "rust|scab", ""]
    _, labels = read(**changes, label_map={"scab": 0, "rust": 1})
    assert labels.classes == ("scab", "rust")


def test_plain_ids_have_one_mask_class():
    """Its codes are joined; a CSV with an empty code lists all images.

    A code may have more characters than Python's limit of a cell, 131,072.
    """
    code = " ".join(f"{2 * run + 1} 1" for run in range(20_000))
    text = f"id,code\ncar_0,40 3\ncar_0,1 2\ncar_0,41 5\ncar_1,\ncar_3,{code}\n"
    folder = put_csv(".", text, [f"car_{number}.jpg" for number in range(4)])

    table, labels = read(folder, label_kind="masks", label_column="code")

    assert labels.label_columns == labels.classes == ("code",)
    assert rows_of(table, "code", "problem") == {
        "car_0": ["1 2 40 6", ""],
        "car_1": ["", ""],
        "car_3": [code, ""],
        "train_images/car_2.jpg": ["", "no row in train.csv"],
    }
