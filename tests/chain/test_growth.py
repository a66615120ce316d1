"""A dataset that grows: old folds and bytes stay, new images find their place."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.growing import CLASSES, VALUES, write_images
from support.plans import digests

from kaggle_tfr import build_dataset, read
from kaggle_tfr.fingerprints import read_fingerprints
from kaggle_tfr.storage import read_parquet


@pytest.fixture(scope="module")
def pictures():
    """84 different pictures."""
    return draw_pictures(84, 120, 160)


def write_table(folder, pictures, names):
    """Write the images of train.csv; return its rows, the class by the position."""
    for picture, name in zip(pictures, names, strict=False):
        save_picture(picture, folder / "train_images" / name)
    labels = [CLASSES[number % 3] for number in range(len(names))]
    return pd.DataFrame({"image_id": names, "label": labels})


def build(folder, work, **changes):
    """Build the dataset of a folder of class folders; return folds.csv."""
    build_dataset(INPUT_DIR=str(folder), WORK_DIR=str(work), **VALUES | changes)
    return read_folds(work)


def read_folds(work):
    return pd.read_csv(Path(work, "folds.csv"), keep_default_na=False)


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


def key(folds):
    """The rows of folds.csv by the number of the image, such as "004"."""
    return folds.set_index(folds["image_id"].str[-7:-4].rename("number"))


def test_moved_and_rejected_images_keep_their_records(first, grown, pictures, tmp_path):
    """A broken file's copies are found by its hashes. Both parts are one dataset."""
    shutil.move(grown / "b/004.jpg", grown / "c/004.jpg")
    (grown / "c/005.jpg").write_bytes(b"no image")
    save_picture(pictures[5].resize((140, 105)), grown / "c/900.jpg")
    work = tmp_path / "work"
    values = {"FOLDS_FROM": str(first / "work"), "SECOND_LOOK": True}
    folds = key(build(grown, work, **values))
    assert folds.loc["004", ["label_name", "path"]].tolist() == ["b", "c/004.jpg"]
    assert folds.loc["005", "reason"] == "gone: its record stays in part 1"
    assert folds.loc["900", "reason"] == "duplicate of c/005.jpg"
    rejects = pd.read_csv(work / "rejects.csv")
    assert rejects["image_id"].tolist() == ["c/005.jpg"]
    folders = read.choose_folders([], "", str(work))
    assert folders == [f"{first}/work/part-1", str(work)]


def test_a_new_image_between_two_folds_is_dropped(first, grown, tmp_path):
    """Copies of images of two folds would leak in either, whatever KEEP is.

    With KEEP = all, other copies are written, in the fold of the old image.
    """
    old = key(read_folds(first / "work"))
    one = old.index[old["fold"] == 0][0]
    other = old.index[old["fold"] == 1][0]
    shutil.copy(grown / old.loc[one, "path"], grown / "a/900.jpg")
    (tmp_path / "overrides.csv").write_text(
        f"image_id,action,value\na/900.jpg,same,{old.loc[other, 'image_id']}\n"
        "a/900.jpg,keep,\n"
    )
    for number in (5, 14, 23):
        shutil.copy(grown / f"c/{number:03d}.jpg", grown / f"c/9{number:02d}.jpg")
    folds = build(
        grown,
        tmp_path / "work",
        FOLDS_FROM=str(first / "work"),
        OVERRIDES=str(tmp_path / "overrides.csv"),
        KEEP="all",
        CONFLICTS="keep",
    )
    folds = key(folds)
    copies = folds.loc[["905", "914", "923"]]
    assert copies["keep"].all()
    originals = folds.loc[["005", "014", "023"]]
    assert copies["fold"].tolist() == originals["fold"].tolist()
    reason = "between folds: copies in fold 0 and fold 1"
    effects = pd.read_csv(tmp_path / "work/decisions.csv", index_col="action")["effect"]
    assert effects["keep"] == f"not kept: {reason}"
    clusters = folds.loc[[one, other], "cluster"]
    assert clusters.nunique() == 2
    accounting = pd.read_csv(tmp_path / "work/accounting.csv", index_col="outcome")
    assert accounting["images"]["between folds dropped"] == 1


def test_groups_follow_their_earlier_images(pictures, tmp_path):
    """A new image of an old patient joins the patient's fold, also from parts alone."""
    names = [f"{k:03d}.jpg" for k in range(72)]
    rows = write_table(tmp_path / "images", pictures, names)
    rows["patient"] = [f"p{k % 24 // 2}" for k in range(72)]
    values = VALUES | {"GROUP_COLUMN": "patient"}
    values |= {"INPUT_DIR": str(tmp_path / "images")}

    rows[:48].to_csv(tmp_path / "images/train.csv", index=False)
    build_dataset(WORK_DIR=str(tmp_path / "first"), **values)
    part = tmp_path / "first/part-1"
    assert "p1" not in part.joinpath("hashes.parquet").read_bytes().decode("latin1")
    rows[48:].to_csv(tmp_path / "images/train.csv", index=False)
    work = tmp_path / "second"
    build_dataset(WORK_DIR=str(work), FOLDS_FROM=str(part), **values)

    patients = read_folds(work).merge(rows[["image_id", "patient"]], on="image_id")
    assert len(patients) == 72
    assert patients.groupby("patient")["fold"].nunique().eq(1).all()


def test_folds_of_a_csv_stay_and_all_images_are_written(first, pictures, tmp_path):
    """A table of ids and folds, as competitors share them, has no parts."""
    write_images(tmp_path / "photos", pictures, range(72))
    given = read_folds(first / "work")[["image_id", "fold"]]
    given["fold"] = (given["fold"] + 1) % 3
    given.to_csv(tmp_path / "folds.csv", index=False)
    path = str(tmp_path / "folds.csv")
    folds = build(tmp_path / "photos", tmp_path / "work", FOLDS_FROM=path)
    assert folds["keep"].all()
    merged = folds.merge(given, on="image_id")
    assert len(merged) == 60
    assert (merged["fold_x"] == merged["fold_y"]).all()
    assert read.find_shards(tmp_path / "work/part-1")["count"].sum() == 72
    with pytest.raises(ValueError, match="N_FOLDS is 2, but .* images in fold 2"):
        build(tmp_path / "photos", tmp_path / "two", FOLDS_FROM=path, N_FOLDS=2)


def test_parts_of_all_growths_can_share_a_folder(pictures, tmp_path, capsys):
    """FOLDS_FROM of each growth is OUT_DIR, or a list of all earlier parts.

    A growth can run again at any time.
    """
    out = tmp_path / "out"
    expected = {}
    for number, n_images in enumerate((30, 42, 54), 1):
        write_images(tmp_path / "photos", pictures, range(n_images))
        earlier = [str(out / f"part-{part}") for part in range(1, number)]
        work = tmp_path / f"work-{number}"
        for folds_from in (str(out), earlier) if earlier else ("", ""):
            values = {"OUT_DIR": str(out), "FOLDS_FROM": folds_from}
            build(tmp_path / "photos", work, **values)
        parts = digests(out)
        assert {name: parts[name] for name in expected} == expected
        expected = parts
        shutil.rmtree(out / f"part-{number}")
        build(tmp_path / "photos", work, **values)
        assert digests(out) == expected

    capsys.readouterr()
    folders = read.choose_folders([], str(out), str(work))
    assert "WARNING" not in capsys.readouterr().out
    assert folders == [str(out)]
    assert read.find_shards(folders)["count"].sum() == 54
    with pytest.raises(ValueError, match=r"FOLDS_FROM lacks part 1 of 2"):
        build(tmp_path / "photos", tmp_path / "lost", FOLDS_FROM=earlier[1:])


def test_a_csv_that_names_no_image_is_an_error(first, tmp_path):
    """Ids of another form would silently give all images new folds."""
    (tmp_path / "folds.csv").write_text("image_id,fold\n001,0\n002,1\n")
    message = "folds of 2 images, such as '001', and none of the input, such as 'a/000"
    with pytest.raises(ValueError, match=message):
        build(
            first / "photos",
            tmp_path / "work",
            FOLDS_FROM=str(tmp_path / "folds.csv"),
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"N_FOLDS": 2}, "N_FOLDS is 2, but the parts of FOLDS_FROM have 3"),
        ({"N_FOLDS": 4}, "N_FOLDS is 4, but the parts of FOLDS_FROM have 3"),
        ({"SEED": 1}, "SEED is 1, but the parts of FOLDS_FROM have 0"),
        ({"IMAGE_SIZE": 32}, "IMAGE_SIZE is 32, but"),
        ({"SCHEMA": "petals"}, "SCHEMA does not give the features"),
    ],
)
def test_parameters_that_contradict_earlier_parts_are_errors(
    changes, message, first, grown, tmp_path
):
    """Folds and records are those of the earlier parts, or the run stops."""
    with pytest.raises(ValueError, match=message):
        build(grown, tmp_path / "work", FOLDS_FROM=str(first / "work"), **changes)


def test_what_cannot_be_continued_is_an_error(first, grown, pictures, tmp_path):
    """The work folder itself, a new class, and an input without a new image."""
    with pytest.raises(ValueError, match="FOLDS_FROM is the WORK_DIR"):
        build(grown, first / "work", FOLDS_FROM=str(first / "work"))
    with pytest.raises(ValueError, match="No image is new: all 60"):
        build(first / "photos", tmp_path / "same", FOLDS_FROM=str(first / "work"))
    save_picture(pictures[83], grown / "d/990.jpg")
    with pytest.raises(ValueError, match=r"1 class\(es\) that .* lack, such as 'd'"):
        build(grown, tmp_path / "class", FOLDS_FROM=str(first / "work"))


def test_a_labelled_image_may_have_the_id_of_an_earlier_test_image(pictures, tmp_path):
    """Both have an image 0.jpg, which are different images, and so are their rows."""
    photos = tmp_path / "photos"
    names = [f"{number}.jpg" for number in (*range(1, 31), 0)]
    rows = write_table(photos, pictures, names)
    save_picture(pictures[40], photos / "test_images/0.jpg")
    (photos / "sample_submission.csv").write_text("image_id,label\n0.jpg,c\n")
    rows[:30].to_csv(photos / "train.csv", index=False)
    build(photos, tmp_path / "first")
    rows.to_csv(photos / "train.csv", index=False)

    values = {"FOLDS_FROM": str(tmp_path / "first")}
    folds = build(photos, tmp_path / "second", **values)

    both = folds[folds["image_id"] == "0.jpg"].set_index("split")
    assert both["reason"].to_dict() == {
        "test": "earlier: its record is in part 1",
        "train": "kept: no copy found",
    }
    assert both.loc["train", "label_name"] == "a"


def test_a_row_that_repeats_an_image_has_no_fingerprint(pictures, tmp_path):
    """It is rejected, although its path is that of a good row."""
    names = [f"{number:03d}.jpg" for number in range(9)]
    rows = write_table(tmp_path / "photos", pictures, names)
    repeated = pd.concat([rows[:1].assign(label="b"), rows, rows[4:6]])
    repeated.to_csv(tmp_path / "photos/train.csv", index=False)
    build(tmp_path / "photos", tmp_path / "work")
    hashes = read_fingerprints(tmp_path / "work/part-1")
    images = read_parquet(tmp_path / "work/images.parquet")
    images = images[images["problem"] == ""].set_index("image_id")
    assert len(images) == len(hashes) < len(repeated)
    digests_of_files = images["digest"].loc[hashes["image_id"]].tolist()
    assert hashes["digest"].tolist() == digests_of_files


def test_hashes_are_published_only_if_that_is_wanted(first, tmp_path):
    """PUBLISH_HASHES = False removes hashes.parquet from a part."""
    shutil.copytree(first / "work", tmp_path / "work")
    sums = tmp_path / "work/part-1/SHA256SUMS"
    assert "hashes.parquet" in sums.read_text()
    build(first / "photos", tmp_path / "work", PUBLISH_HASHES=False)
    assert not (tmp_path / "work/part-1/hashes.parquet").exists()
    assert "hashes.parquet" not in sums.read_text()
