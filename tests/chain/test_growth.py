"""A dataset that grows: old folds and bytes stay, new images find their place."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.growing import VALUES, write_images
from support.plans import digests

from kaggle_tfr import build_dataset, read
from kaggle_tfr.storage import read_parquet


@pytest.fixture(scope="module")
def pictures():
    """84 different pictures."""
    return draw_pictures(84, 120, 160)


def build(folder, work, **changes):
    """Build the dataset of a folder; return folds.csv, by the images' names."""
    build_dataset(INPUT_DIR=str(folder), WORK_DIR=str(work), **VALUES | changes)
    folds = pd.read_csv(Path(work, "folds.csv"), keep_default_na=False)
    return folds.set_index(folds["image_id"].str[-7:-4].rename("name"))


@pytest.fixture(scope="module")
def first(tmp_path_factory, pictures):
    """A dataset of 60 images: its input and work folder."""
    folder = tmp_path_factory.mktemp("growth")
    write_images(folder / "photos", pictures, range(60))
    build(folder / "photos", folder / "work")
    return folder


@pytest.fixture
def grown(first, tmp_path, pictures):
    """The input with a new image."""
    folder = shutil.copytree(first / "photos", tmp_path / "photos")
    write_images(folder, pictures, [82])
    return folder


def test_a_new_image_between_two_folds_is_dropped(first, grown, tmp_path):
    """Copies of images of two folds would leak in either, whatever KEEP is.

    With KEEP = all, other copies are written, in the fold of the old image.
    """
    old = read_parquet(first / "work/plan.parquet")
    one, other = old.drop_duplicates("fold")["image_id"][:2]
    shutil.copy(grown / one, grown / "a/900.jpg")
    (tmp_path / "overrides.csv").write_text(
        f"image_id,action,value\na/900.jpg,same,{other}\na/900.jpg,keep,\n"
    )
    shutil.copy(grown / "c/005.jpg", grown / "c/905.jpg")
    folds = build(
        grown,
        tmp_path / "work",
        FOLDS_FROM=str(first / "work"),
        OVERRIDES=str(tmp_path / "overrides.csv"),
        KEEP="all",
        CONFLICTS="keep",
    )
    assert folds.loc["900", ["keep", "reason"]].tolist() == [False, "between folds"]
    assert folds.loc["905", "keep"]
    assert folds.loc["905", "fold"] == folds.loc["005", "fold"]
    ids = folds["image_id"].isin([one, other])
    assert folds["cluster"][ids].tolist() == [-1, -1]
    accounting = pd.read_csv(tmp_path / "work/accounting.csv", index_col="outcome")
    assert accounting["images"]["between folds dropped"] == 1


def test_groups_follow_their_earlier_images(pictures, tmp_path):
    """A new image of an old patient joins the patient's fold, also from parts alone."""
    rows = pd.DataFrame({"image_id": [f"{k:03d}.jpg" for k in range(72)]})
    rows["label"] = rows.index % 3
    rows["patient"] = [f"p{k % 24 // 2}" for k in range(72)]
    for picture, name in zip(pictures, rows["image_id"], strict=False):
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


def test_folds_of_a_csv_stay_and_all_images_are_written(first, pictures, tmp_path):
    """A table of ids and folds, as competitors share them, has no parts."""
    write_images(tmp_path / "photos", pictures, range(72))
    shared = pd.read_csv(first / "work/folds.csv")[["image_id", "fold"]]
    shared["fold"] = (shared["fold"] + 1) % 3
    shared.to_csv(tmp_path / "folds.csv", index=False)
    values = {"FOLDS_FROM": str(tmp_path / "folds.csv")}
    folds = build(tmp_path / "photos", tmp_path / "work", **values)
    assert folds["keep"].all()
    merged = folds.merge(shared, on="image_id")
    assert len(merged) == 60
    assert (merged["fold_x"] == merged["fold_y"]).all()
    assert read.find_shards(tmp_path / "work/part-1")["count"].sum() == 72
    with pytest.raises(ValueError, match="N_FOLDS is 2, but .* images in fold 2"):
        build(tmp_path / "photos", tmp_path / "two", N_FOLDS=2, **values)
    with pytest.raises(ValueError, match="none of the input, such as '000.jpg'"):
        build(tmp_path / "photos/a", tmp_path / "a", LABEL_COLUMN=[], **values)


def test_parts_of_all_growths_can_share_a_folder(pictures, tmp_path, capsys):
    """FOLDS_FROM of each growth is OUT_DIR, or a list of all earlier parts.

    A growth can run again at any time.
    """
    out = tmp_path / "out"
    photos = tmp_path / "photos"
    expected = {}
    for number, n_images in enumerate((30, 42, 54), 1):
        write_images(photos, pictures, range(n_images))
        earlier = [str(out / f"part-{part}") for part in range(1, number)]
        work = tmp_path / f"work-{number}"
        for folds_from in (str(out), earlier) if earlier else ("", ""):
            build(photos, work, OUT_DIR=str(out), FOLDS_FROM=folds_from)
        parts = digests(out)
        assert {name: parts[name] for name in expected} == expected
        expected = parts

    capsys.readouterr()
    folders = read.choose_folders([], str(out), str(work))
    assert "WARNING" not in capsys.readouterr().out
    assert read.find_shards(folders)["count"].sum() == 54
    for wrong in (earlier[1:], [*earlier, str(out)]):
        with pytest.raises(ValueError, match="needs those of parts 1 to|both contain"):
            build(photos, tmp_path / "lost", FOLDS_FROM=wrong)
    shutil.rmtree(out / "part-1")
    read.choose_folders([], str(out), str(work))
    assert "WARNING: 1 part(s) are not on this machine" in capsys.readouterr().out


def test_what_cannot_be_continued_is_an_error(first, grown, pictures, tmp_path):
    """The work folder itself, other settings, a new class, and no new image."""
    values = {"FOLDS_FROM": str(first / "work")}
    for changes in ({"N_FOLDS": 4}, {"IMAGE_SIZE": 32}, {"SCHEMA": "petals"}):
        message = f"{min(changes)} is .*, but the parts of FOLDS_FROM have"
        with pytest.raises(ValueError, match=message):
            build(grown, tmp_path / "work", **values, **changes)
    with pytest.raises(ValueError, match="FOLDS_FROM is the WORK_DIR"):
        build(grown, first / "work", **values)
    with pytest.raises(ValueError, match="No image is new: all 60"):
        build(first / "photos", tmp_path / "same", **values)
    save_picture(pictures[83], grown / "d/990.jpg")
    with pytest.raises(ValueError, match="1 classes are new, such as 'd'"):
        build(grown, tmp_path / "class", **values)


def test_hashes_are_published_only_if_that_is_wanted(first, tmp_path):
    """PUBLISH_HASHES = False removes hashes.parquet from a part."""
    shutil.copytree(first / "work", tmp_path / "work")
    sums = tmp_path / "work/part-1/SHA256SUMS"
    assert "hashes.parquet" in sums.read_text()
    build(first / "photos", tmp_path / "work", PUBLISH_HASHES=False)
    assert not (tmp_path / "work/part-1/hashes.parquet").exists()
    assert "hashes.parquet" not in sums.read_text()
