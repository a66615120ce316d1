"""COMPARE_WITH: my images that are also in published datasets."""

import shutil

import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.fingerprints import make_fingerprints, publish_images, write_fingerprints
from support.kaggle_server import fixture_kaggle  # noqa: F401
from support.splits import make_codes, make_hashes

from kaggle_tfr import deduplicate, explore, find
from kaggle_tfr.deduplicate.compare import find_overlap, read_datasets
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings, load_clusters
from kaggle_tfr.earlier import encode_fingerprints
from kaggle_tfr.explore.table import load_images
from kaggle_tfr.notebook import read_findings
from kaggle_tfr.parameters import DEFAULTS

ONE_IMAGE = pd.DataFrame(index=range(1))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return the work folder of 01 for drawn images and smaller copies of them."""
    folder = tmp_path_factory.mktemp("photos")
    for number, picture in enumerate(draw_pictures(8, 120, 160)):
        name = f"{'ab'[number % 2]}/{number:02d}"
        save_picture(picture, folder / f"in/{name}.jpg")
        save_picture(picture.resize((80, 60)), folder / f"in/{name}-small.jpg")
    paths = {"INPUT_DIR": str(folder / "in"), "WORK_DIR": str(folder / "work")}
    explore.run({**DEFAULTS, **paths, "N_JOBS": 2})
    return folder / "work"


def test_each_image_has_the_nearest_copy_of_each_dataset():
    """Of a thousand equal pages on both sides, too."""
    mine = make_hashes(make_codes(100, 200, *[0] * 1000))
    theirs = make_hashes(make_codes(103, 100, *[0] * 1000, 103))
    others = make_fingerprints(theirs).assign(dataset=["x"] * 1002 + ["y"])

    overlap = find_overlap(mine, others, DuplicateSettings())

    columns = ["row", "image_id_a", "distance", "orientation", "dataset"]
    rows = overlap[columns].to_numpy().tolist()
    assert rows[:2] == [[0, "their-1", 0, 1, "x"], [0, "their-1002", 3, 1, "y"]]
    assert overlap["row"].tolist()[2:] == [*range(2, 1002)]


def test_names_of_parts_are_those_given(tmp_path, monkeypatch):
    """A folder may contain several parts, in the order of their numbers."""
    monkeypatch.chdir(tmp_path)
    fingerprints = make_fingerprints(ONE_IMAGE)
    for number in (1, 2, 10):
        part = write_fingerprints(tmp_path / f"work/part-{number}", fingerprints)
        (part / "shards.csv").touch()
    alone = str(write_fingerprints(tmp_path / "alone", fingerprints))

    others = read_datasets(["work/part-2/", alone, alone, "work"])

    names = ["work/part-2", "alone", "work/part-1", "work/part-2", "work/part-10"]
    assert others["dataset"].tolist() == names
    assert read_datasets([]).empty
    (part / "hashes.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="part-10/hashes.parquet'"):
        read_datasets(["work"])
    (part / "hashes.parquet").unlink()
    with pytest.raises(FileNotFoundError, match="PUBLISH_HASHES = True"):
        read_datasets(["work"])


def test_only_the_fingerprints_of_a_slug_are_downloaded(kaggle, tmp_path, monkeypatch):
    """Its shards may be 19 GB."""
    monkeypatch.setattr(find, "KAGGLE_INPUT", str(tmp_path / "no"))
    data = encode_fingerprints(make_fingerprints(ONE_IMAGE))
    kaggle.datasets["ada/leaves"] = {"hashes.parquet": data, "a-1.tfrec": b"1"}

    others = read_datasets(["ada/leaves"])

    assert others["dataset"].tolist() == ["ada/leaves"]
    assert kaggle.downloaded == ["hashes.parquet"]


@pytest.mark.parametrize("leaks", ["report", "drop"])
def test_a_run_finds_what_another_dataset_contains(photos, tmp_path, leaks):
    """The steps of 02, its files and its finding."""
    work = tmp_path / "work"
    shutil.copytree(photos, work)
    images, _ = load_images(str(work))
    is_small = images["image_id"].str.contains("small")
    theirs = images[is_small].head(6)
    part = publish_images(tmp_path / "leaves", theirs, photos, split="test")
    values = {**DEFAULTS, "COMPARE_WITH": [str(part)], "LEAKS": leaks, "N_JOBS": 2}

    deduplicate.run({**values, "WORK_DIR": str(work), "SECOND_LOOK": False})

    clusters, _ = load_clusters(str(work))
    rows = pd.read_csv(work / "leaks.csv")
    assert rows["image_id"].nunique() == len(rows) == 12
    assert set(rows["dataset"]) == {"leaves"}
    assert set(rows["test_split"]) == {"test"}
    assert set(rows["test_id"]) == set(theirs["image_id"])
    assert rows["keep"].any() == (leaks == "report")
    assert (clusters["reason"] == "leak").sum() == (12 if leaks == "drop" else 0)
    findings = {finding.subject: finding for finding in read_findings(str(work))}
    finding = findings["leaks: leaves"]
    assert finding.text == "leaves (6 images) contains 12 of 16 images."
    assert finding.mark == ("·" if leaks == "drop" else "!")
