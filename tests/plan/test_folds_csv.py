"""folds.csv: a row for each input image, which agrees with the shards."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import run_values, write_small_sample
from support.plans import digests

from kaggle_tfr import storage
from kaggle_tfr.parameters import load_recipe
from kaggle_tfr.plan import read_plan
from kaggle_tfr.plan.folded import COLUMNS, list_folds
from kaggle_tfr.write import write_parts

STRANGE = ["=1+1", "a,b", 'a"b', "a\nb", "a\rb", " a ", "", "NA", "007", "ä\u2028;\t'"]


def read_folds(folder):
    """Return folds.csv as text."""
    return pd.read_csv(Path(folder, "folds.csv"), dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The small sample, with its second source, after 01 to 04."""
    folder = tmp_path_factory.mktemp("folds")
    write_small_sample(folder / "in")
    changes = {"INPUT_DIR": str(folder / "in"), "VALIDATION_SIZE": 0.1, "N_FOLDS": 3}
    changes |= {"OVERRIDES": "", "COMPARE_WITH": []}
    images, _, _ = run_values(load_recipe("sample") | changes, str(folder / "work"))
    return folder, images


def test_every_input_image_has_a_row(sample):
    """Rejected images too; a path is below the folder of its source, or empty."""
    folder, images = sample
    folds = read_folds(folder / "work")

    assert folds["image_id"].tolist() == images["image_id"].tolist()
    sources = {"0": folder / "in", "1": folder / "in/more"}
    for row, path in zip(folds.itertuples(), images["path"], strict=True):
        assert (str(sources[row.source] / row.path) if row.path else "") == path
    rejected = folds[folds["reason"].str.startswith("rejected: ")]
    assert len(rejected) == (images["problem"] != "").sum() > 0
    assert set(rejected["keep"]) == {"False"}


def test_it_says_the_same_as_the_shards(sample):
    """The kept rows are those of the CSV of each split: labels, split and fold."""
    folder, _ = sample
    folds = read_folds(folder / "work")
    kept = folds[folds["keep"] == "True"].set_index("image_id")

    for split, rows in kept.groupby("split"):
        path = folder / f"work/part-1/{split}.csv"
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table = table.set_index("image_id")
        names = ["label", "label_name", "fold"] if split != "test" else []
        pd.testing.assert_frame_equal(table[names], rows.loc[table.index, names])
        assert len(table) == len(rows)


def test_the_reasons_are_the_outcomes_of_02(sample):
    """Each image counts once, by the first word of its reason."""
    folder, _ = sample
    folds = read_folds(folder / "work")
    outcomes = read_plan(str(folder / "work")).outcomes

    words = folds["reason"].str.extract(r"^(\w+)", expand=False)
    dropped = words[folds["keep"] == "False"].value_counts()
    assert dropped["rejected"] == outcomes["rejected"]
    assert dropped["duplicate"] == outcomes["duplicates dropped"]
    assert len(folds) == sum(outcomes.values())


def test_04_needs_the_folds_of_its_plan(sample, tmp_path):
    """A changed file stops it before a shard is written."""
    folder, _ = sample
    path = folder / "work/folds.csv"
    text = path.read_text()
    path.write_text(text.replace("True", "False", 1))
    with pytest.raises(ValueError, match="folds.csv' has changed since 03_plan"):
        write_parts(str(folder / "work"), str(tmp_path))
    path.write_text(text)
    assert digests(tmp_path) == {}


@pytest.fixture
def strange():
    """A kept image for each strange name, and a rejected one."""
    n_images = len(STRANGE)
    images = pd.DataFrame(
        {
            "image_id": [f"{number}{name}" for number, name in enumerate(STRANGE)],
            "path": [f"/in/{name}" for name in STRANGE],
            "label_name": STRANGE,
            "input_dir": "/in",
            "split": "train",
            "problem": ["no, \r\n image", *[""] * (n_images - 1)],
            "label": range(n_images),
            "source": 0,
            "dog": 1,
        }
    )
    clusters = pd.DataFrame(
        columns=["image_id", "split", "cluster", "keep", "reason", "label_name"]
    )
    folded = images[1:].assign(fold=np.arange(n_images - 1) % 2)
    return images, list_folds(images, clusters, folded, ("dog",))


def test_strange_names_are_read_back(strange):
    """By pandas, and by Python's csv module."""
    images, folds = strange
    text = storage.format_csv(folds)

    table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert [*table] == [*COLUMNS, "dog"]
    assert table["label_name"].tolist() == images["label_name"].tolist()
    assert table["path"].tolist() == STRANGE
    assert table["reason"][0] == "rejected: no, \r\n image"
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert rows == table.to_dict("records")
