"""A dataset that grows: old folds and bytes stay, new images find their place."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.plans import digests

from kaggle_tfr import build_dataset, read
from kaggle_tfr.earlier import read_fingerprints
from kaggle_tfr.images.hashing import HASHES

VALUES = {"N_FOLDS": 3, "IMAGE_SIZE": 64, "SECOND_LOOK": False}
CLASSES = "abc"
MAX_BITS = 25


def write_images(folder, pictures, numbers):
    """Write pictures as class folders, the class by the number."""
    for number in numbers:
        path = folder / CLASSES[number % 3] / f"{number:03d}.jpg"
        save_picture(pictures[number], path, quality=92)


def build(folder, work, **changes):
    """Build the dataset of a folder; return folds.csv."""
    build_dataset(INPUT_DIR=str(folder), WORK_DIR=str(work), **VALUES | changes)
    return pd.read_csv(Path(work, "folds.csv"), keep_default_na=False)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A dataset of 60 images of three classes, and 40 new ones beside it."""
    folder = tmp_path_factory.mktemp("parent")
    pictures = draw_pictures(100, 120, 160)
    write_images(folder / "first", pictures, range(60))
    write_images(folder / "new", pictures, range(60, 100))
    for number in (5, 14, 23):
        copy = pictures[number].resize((140, 105))
        save_picture(copy, folder / f"new/c/9{number:02d}.jpg", quality=70)
    shutil.copytree(folder / "first", folder / "all")
    shutil.copytree(folder / "new", folder / "all", dirs_exist_ok=True)
    values = VALUES | {"INPUT_DIR": str(folder / "first")}
    build_dataset(**values, WORK_DIR=str(folder / "work"))
    return folder


def test_no_earlier_image_moves_and_no_earlier_byte_changes(parent, tmp_path):
    """Also if one is gone and one is another file now; no copy crosses the folds."""
    before = digests(parent / "work")
    folder = shutil.copytree(parent / "all", tmp_path / "photos")
    (folder / "a/000.jpg").unlink()
    shutil.copy(folder / "a/003.jpg", folder / "b/001.jpg")

    folds = build(folder, tmp_path / "work", FOLDS_FROM=str(parent / "work"))

    assert digests(parent / "work") == before
    earlier = read_fingerprints(parent / "work/part-1")
    records = pd.concat([earlier, read_fingerprints(tmp_path / "work/part-2")])
    now = folds.set_index("image_id").loc[records["image_id"]]
    assert now["fold"].tolist() == records["fold"].tolist()
    assert now["label_name"].tolist() == records["label_name"].tolist()
    is_earlier = now["reason"] == "earlier: part 1"
    assert is_earlier.sum() == len(earlier) == 60
    assert set(now.index[is_earlier & ~now["keep"]]) == {"a/000.jpg", "b/001.jpg"}
    words = records[[*HASHES]].to_numpy(np.uint64)
    fold = records["fold"].to_numpy()
    for row in range(len(words)):
        distance = np.bitwise_count(words ^ words[row]).sum(axis=1)
        assert (fold[distance <= MAX_BITS] == fold[row]).all()


def test_a_dataset_grows_from_what_was_published(parent, kaggle, tmp_path):
    """Part 2 is the same from a work folder and a slug.

    Only fingerprints and plan are requested of a slug. The images of part 1 are not on
    this machine, so there is no second look at them.
    """
    part = parent / "work" / "part-1"
    kaggle.datasets[f"{USER}/flowers"] = {
        name: (part / name).read_bytes() for name in digests(part)
    }
    values = VALUES | {"INPUT_DIR": str(parent / "new"), "SECOND_LOOK": True}
    for number, source in enumerate((parent / "work", f"{USER}/flowers")):
        paths = {"FOLDS_FROM": str(source), "WORK_DIR": str(tmp_path / f"{number}")}
        build_dataset(**values, **paths)

    assert sorted(kaggle.downloaded) == ["hashes.parquet", "plan.json"]
    assert digests(tmp_path / "0/part-2") == digests(tmp_path / "1/part-2")
    outcome = pd.read_csv(tmp_path / "1/folds.csv")["reason"].str.extract(r"(\w+)")[0]
    counts = {"earlier": 60, "kept": 40, "duplicate": 3}
    assert outcome.value_counts().to_dict() == counts


def test_groups_follow_their_earlier_images(tmp_path):
    """A new image of an old patient joins the patient's fold, also from parts alone."""
    rows = pd.DataFrame({"image_id": [f"{k:03d}.jpg" for k in range(72)]})
    patients = [f"p{k % 24 // 2}" for k in range(72)]
    rows = rows.assign(label=rows.index % 3, patient=patients)
    for picture, name in zip(draw_pictures(72, 60, 80), rows["image_id"], strict=True):
        save_picture(picture, tmp_path / "images" / name)
    rows[:48].to_csv(tmp_path / "train.csv", index=False)
    build(tmp_path, tmp_path / "first", GROUP_COLUMN="patient")
    part = tmp_path / "first/part-1"
    assert "p1" not in part.joinpath("hashes.parquet").read_bytes().decode("latin1")
    rows[48:].to_csv(tmp_path / "train.csv", index=False)
    values = {"FOLDS_FROM": str(part), "GROUP_COLUMN": "patient"}

    folds = build(tmp_path, tmp_path / "second", **values)

    patients = folds[folds["fold"] >= 0].merge(rows, on="image_id")
    assert len(patients) == 72
    assert patients.groupby("patient")["fold"].nunique().eq(1).all()


def test_folds_of_a_csv_stay_and_all_images_are_written(parent, tmp_path):
    """A table of ids and folds, as competitors share them, has no parts."""
    shared = pd.read_csv(parent / "work/folds.csv")[["image_id", "fold"]]
    shared["fold"] = (shared["fold"] + 1) % 3
    shared.to_csv(tmp_path / "folds.csv", index=False)
    values = {"FOLDS_FROM": str(tmp_path / "folds.csv")}
    folds = build(parent / "all", tmp_path / "work", **values)
    merged = folds.merge(shared, on="image_id")
    assert len(merged) == 60
    assert (merged["fold_x"] == merged["fold_y"]).all()
    assert read.find_shards(tmp_path / "work/part-1")["count"].sum() == 100
    with pytest.raises(ValueError, match="N_FOLDS is 2, but .* images in fold 2"):
        build(parent / "all", tmp_path / "two", N_FOLDS=2, **values)


def test_parts_of_all_growths_can_share_a_folder(tmp_path):
    """FOLDS_FROM of each growth lists all earlier parts, and it can run again."""
    out = tmp_path / "out"
    photos = tmp_path / "photos"
    pictures = draw_pictures(54, 60, 80)
    expected = {}
    for number, n_images in enumerate((30, 42, 54), 1):
        write_images(photos, pictures, range(n_images))
        earlier = [str(out / f"part-{part}") for part in range(1, number)]
        work = tmp_path / f"work-{number}"
        for _ in range(2):
            build(photos, work, OUT_DIR=str(out), FOLDS_FROM=earlier)
        assert expected.items() <= digests(out).items()
        expected = digests(out)

    folders = read.choose_folders([], str(out), str(work))
    assert read.find_shards(folders)["count"].sum() == 54
    with pytest.raises(ValueError, match="needs those of all parts"):
        build(photos, tmp_path / "lost", FOLDS_FROM=earlier[1:])
    (out / "part-1/shards.csv").unlink()
    with pytest.raises(FileNotFoundError, match="part-1': .* Set TFREC_DIRS"):
        read.find_shards(folders)


def test_what_cannot_be_continued_is_an_error(parent, tmp_path):
    """The work folder itself, other settings, a new class, and no new image."""
    values = {"FOLDS_FROM": str(parent / "work")}
    for name, value in {"N_FOLDS": 4, "SCHEMA": "petals"}.items():
        message = f"{name} is .*, but the parts of FOLDS_FROM have"
        with pytest.raises(ValueError, match=message):
            build(parent / "all", tmp_path / "work", **values, **{name: value})
    with pytest.raises(ValueError, match="FOLDS_FROM is the WORK_DIR"):
        build(parent / "all", parent / "work", **values)
    with pytest.raises(ValueError, match="No image is new: all 60"):
        build(parent / "first", tmp_path / "same", **values)
    shutil.copytree(parent / "new", tmp_path / "photos")
    (tmp_path / "photos/a").rename(tmp_path / "photos/d")
    with pytest.raises(ValueError, match=r"1 classes are new, such as \['d'\]"):
        build(tmp_path / "photos", tmp_path / "class", **values)


def test_hashes_are_published_only_if_that_is_wanted(parent, tmp_path):
    """PUBLISH_HASHES = False removes hashes.parquet from a part."""
    shutil.copytree(parent / "work", tmp_path / "work")
    build(parent / "first", tmp_path / "work", PUBLISH_HASHES=False)
    assert not (tmp_path / "work/part-1/hashes.parquet").exists()
    assert "hashes" not in (tmp_path / "work/part-1/SHA256SUMS").read_text()
