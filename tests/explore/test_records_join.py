"""Images joined to the records of earlier parts: rows of small tables."""

from dataclasses import asdict
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.explore.growth import join_records
from kaggle_tfr.schema import Labels

LABELS = Labels(classes=("ant", "bee", "cat"))


def read_table(text):
    """Return the table of a CSV with blanks around its cells."""
    return pd.read_csv(StringIO(text), sep=" *, *", engine="python").fillna("")


def list_images(text, **columns):
    """Images of a table without a header, with other columns."""
    images = read_table(f"image_id, split, label_name, digest, problem\n{text}")
    images["path"] = "/in/" + images["image_id"]
    return images.assign(input_dir="/in", label=0, width=9, **columns)


def list_records(text, labels):
    """Records of part 1 of a table without a header, and of a plan."""
    records = read_table(f"image_id, split, label_name, digest, fold\n{text}")
    records["path"] = "earlier:" + records["image_id"]
    plan = {"labels": asdict(labels), "settings": {"group_column": ""}}
    records.attrs["plan"] = plan
    return records.assign(part=1, problem="")


def test_a_row_is_new_placed_or_a_record_without_an_image(capsys):
    """The id decides, then the content; a test image may have the id of another."""
    images = list_images(
        """new       , train, bee, d0,
        same      , train, bee, d1,
        relabelled, train, bee, d2,
        changed   , train, bee, d9,
        broken    , train, bee,   , truncated
        same      , test ,    , d8,
        b/moved   , train, bee, d6,
        copy-1    , train, bee, d7,
        copy-2    , train, bee, d7,"""
    )
    records = list_records(
        """same      , train     , bee, d1, 0
        relabelled, train     , cat, d2, 1
        changed   , validation, bee, d3, -1
        broken    , train     , cat, d4, 2
        gone      , test      ,    , d5, -1
        a/moved   , train     , ant, d6, 2
        copy      , train     , bee, d7, 0""",
        LABELS,
    )
    labels = Labels(classes=("bee",), name="new")

    joined, labels = join_records(images, labels, records)

    assert labels == Labels(classes=LABELS.classes, name="new")
    expected = read_table(
        """image_id, path            , split     , label, part, fold, problem
        new       , /in/new         , train     ,     1,    0,   -1,
        same      , /in/same        , train     ,     1,    1,    0,
        relabelled, /in/relabelled  , train     ,     2,    1,    1,
        changed   , earlier:changed , validation,     1,    1,   -1,
        broken    , earlier:broken  , train     ,     2,    1,    2,
        same      , /in/same        , test      ,    -1,    0,   -1,
        a/moved   , /in/b/moved     , train     ,     0,    1,    2,
        copy      , /in/copy-1      , train     ,     1,    1,    0,
        copy-2    , /in/copy-2      , train     ,     1,    0,   -1,
        gone      , earlier:gone    , test      ,    -1,    1,   -1,"""
    )
    assert joined[[*expected]].to_numpy().tolist() == expected.to_numpy().tolist()
    assert joined["width"].dtype == np.int64
    text = "1 are not in the input, 2 are rejected or other files now, and 3 have"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "cells", "rows"),
    [
        ("multi", [1, 1], [[1, 0], [0, 1], [1, 1]]),
        ("masks", ["1 2", ""], [["1 2", ""], ["", ""], ["", ""]]),
    ],
)
def test_columns_of_labels_are_those_of_the_records(kind, cells, rows):
    """Also if no image of the input is of a class; flags follow from the names."""
    labels = Labels(kind, ("ant", "bee"), ("ant", "bee"))
    input_labels = Labels(kind, ("ant",), ("ant",))
    images = list_images(
        """same, train, ant, d1,
        relabelled, train, ant, d2,""",
        ant=cells,
    )
    records = list_records(
        """same, train, ant, d1, 0
        relabelled, train, bee, d2, 1
        gone, train, ant|bee, d3, 1""",
        labels,
    )

    joined, labels = join_records(images, input_labels, records)

    assert joined[[*labels.label_columns]].to_numpy().tolist() == rows
    assert joined["label"].tolist() == [0, 2, 1]
