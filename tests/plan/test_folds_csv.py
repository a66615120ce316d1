"""folds.csv: a row for each input image, which agrees with the shards."""

import csv
import io

import pandas as pd
import pytest

from kaggle_tfr import storage
from kaggle_tfr.explore import load_images
from kaggle_tfr.plan import read_plan
from kaggle_tfr.plan.folded import COLUMNS, list_folds

STRANGE = ["=1+1", "a,b", 'a"b', "a\nb", "a\rb", " a ", "", "NA", "007", "ä\u2028;\t'"]


@pytest.fixture(scope="module")
def work(sample):
    """The work folder of the sample, with its second source."""
    return sample / "work/sample"


@pytest.fixture(scope="module")
def folds(work):
    """Its folds.csv, as text."""
    return pd.read_csv(work / "folds.csv", dtype=str, keep_default_na=False)


def test_every_input_image_has_a_row(sample, work, folds):
    """A path is below the folder of its source, or empty.

    Each image counts once, by the first word of its reason.
    """
    images, _ = load_images(str(work))
    assert folds["image_id"].tolist() == images["image_id"].tolist()
    sources = {"0": sample / "in", "1": sample / "in/more"}
    for row, path in zip(folds.itertuples(), images["path"], strict=True):
        assert (str(sources[row.source] / row.path) if row.path else "") == path
    words = folds["reason"].str.extract(r"^(\w+)", expand=False)
    dropped = words[folds["keep"] == "False"].value_counts()
    outcomes = read_plan(str(work)).outcomes
    n_rejected = (images["problem"] != "").sum()
    assert dropped["rejected"] == outcomes["rejected"] == n_rejected > 0
    assert dropped["duplicate"] == outcomes["duplicates dropped"]
    assert len(folds) == sum(outcomes.values())


def test_it_says_the_same_as_the_shards(work, folds):
    """The kept rows are those of the CSV of each split: labels, split and fold."""
    kept = folds[folds["keep"] == "True"].set_index("image_id")

    for split, rows in kept.groupby("split"):
        table = pd.read_csv(
            work / f"part-1/{split}.csv",
            dtype=str,
            keep_default_na=False,
            index_col="image_id",
        )
        names = ["label", "label_name", "fold"] if split != "test" else []
        pd.testing.assert_frame_equal(table[names], rows.loc[table.index, names])
        assert len(table) == len(rows)


def test_copies_that_are_dropped_are_where_their_cluster_is(folds):
    """So all input images can be trained on, without a copy in two folds."""
    rows = folds[(folds["cluster"] != "-1") & (folds["split"] != "test")]
    assert (rows["keep"] == "False").sum() > 5
    places = rows.groupby("cluster")[["split", "fold"]].nunique()
    assert (places == 1).all(axis=None)


def test_strange_names_are_read_back():
    """By pandas, and by Python's csv module."""
    images = pd.DataFrame(
        {
            "image_id": [f"{number}{name}" for number, name in enumerate(STRANGE)],
            "path": [f"/in/{name}" for name in STRANGE],
            "label_name": STRANGE,
            "input_dir": "/in",
            "split": "train",
            "problem": ["no, \r\n image", *[""] * (len(STRANGE) - 1)],
            "label": range(len(STRANGE)),
            "source": 0,
            "dog": 1,
        }
    )
    columns = ["image_id", "cluster", "keep", "reason"]
    folded = images[1:].assign(fold=0)

    folds = list_folds(images, pd.DataFrame(columns=columns), folded, ("dog",))
    text = storage.format_csv(folds)

    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert [*table] == [*COLUMNS, "dog"]
    assert table["label_name"].tolist() == STRANGE
    assert table["path"].tolist() == STRANGE
    assert table["reason"][0] == "rejected: no, \r\n image"
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert rows == table.to_dict("records")
