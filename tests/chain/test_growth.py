"""A dataset that grows: old folds and bytes stay, new images find their place."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.notebooks import run_notebook
from support.plans import digests

from kaggle_tfr import build_dataset, read
from kaggle_tfr.earlier import read_fingerprints
from kaggle_tfr.explore.growth import read_records
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.notebook import read_findings
from kaggle_tfr.plan import read_plan
from kaggle_tfr.report import write_report

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
    """A dataset of 60 images of three classes, and 40 new ones beside it.

    Three of the new ones are copies.
    """
    folder = tmp_path_factory.mktemp("parent")
    pictures = draw_pictures(100, 120, 160)
    write_images(folder / "first", pictures, range(60))
    write_images(folder / "new", pictures, range(60, 100))
    for number in (5, 14, 23):
        copy = pictures[number].resize((140, 105))
        save_picture(copy, folder / f"new/c/9{number:02d}.jpg", quality=70)
    shutil.copytree(folder / "first", folder / "all")
    shutil.copytree(folder / "new", folder / "all", dirs_exist_ok=True)
    build(folder / "first", folder / "work")
    return folder


def test_no_earlier_image_moves_and_no_earlier_byte_changes(parent, tmp_path):
    """Also if one is gone and one is another file now; no copy crosses the folds."""
    before = digests(parent / "work")
    folder = shutil.copytree(parent / "all", tmp_path / "photos")
    (folder / "a/000.jpg").unlink()
    shutil.copy(folder / "a/003.jpg", folder / "b/001.jpg")

    work = str(tmp_path / "work")
    folds = build(folder, work, FOLDS_FROM=str(parent / "work"))

    assert digests(parent / "work") == before
    (finding,) = [row for row in read_findings(work) if row.subject == "earlier parts"]
    assert "1 are rejected or other files now" in finding.text
    assert (finding.mark, "Rename new" in finding.advice) == ("!", True)
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
    this machine, so there is no second look at them, and no notebook displays them or
    trains on them.
    """
    part = parent / "work/part-1"
    kaggle.datasets[f"{USER}/flowers"] = {
        name: (part / name).read_bytes() for name in digests(part)
    }
    for source in (str(parent / "work"), f"{USER}/flowers"):
        work = tmp_path / Path(source).name
        folds = build(parent / "new", work, FOLDS_FROM=source, SECOND_LOOK=True)
        outcomes = folds["reason"].str.extract(r"(\w+)")[0].value_counts()
        assert outcomes.to_dict() == {"earlier": 60, "kept": 40, "duplicate": 3}

    assert sorted(kaggle.downloaded) == ["hashes.parquet", "plan.json"]
    assert digests(tmp_path / "work/part-2") == digests(tmp_path / "flowers/part-2")
    values = {"WORK_DIR": str(work)}
    paths = run_notebook("02", values, until="02-03")["paths"].tolist()
    paths += run_notebook("07", values, until="07-03")["rows"]["path"].tolist()
    assert len(paths) == 2 + 43
    assert all(map(os.path.exists, paths))


def test_groups_follow_their_earlier_images(tmp_path):
    """A new image of an old patient joins the patient's fold, also from parts alone.

    The names of patients are not published.
    """
    for number, picture in enumerate(draw_pictures(72, 60, 80)):
        folder = tmp_path / ("first" if number < 48 else "new") / CLASSES[number % 3]
        save_picture(picture, folder / f"p{number % 24 // 2}-{number}.jpg")
    part = tmp_path / "work/part-1"
    groups = {"GROUP_COLUMN": r"names: (p\d+)"}
    build(tmp_path / "first", tmp_path / "work", **groups)
    assert not read_fingerprints(part)["group"].str.startswith("p").any()

    folds = build(tmp_path / "new", tmp_path / "next", FOLDS_FROM=str(part), **groups)

    patients = folds[folds["fold"] >= 0].groupby(folds["image_id"].str[2:5])
    assert (
        patients["fold"].agg(["size", "nunique"]).to_numpy().tolist() == [[6, 1]] * 12
    )


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


def test_a_dropped_image_has_no_fold_to_keep(tmp_path):
    """If it is kept now, it is new, as if its fold were blank. Others stay in none."""
    path = tmp_path / "folds.csv"
    path.write_text("image_id,fold,keep\na,1,True\nb,-1,False\nc,,True\nd,-1,True")
    assert read_records(str(path), "")["image_id"].tolist() == ["a", "d"]


def test_earlier_images_need_no_values_and_parts_no_test_images(tmp_path):
    """Training images of all parts are read as one; test images keep their fields."""
    values = {
        "LABEL_COLUMN": ["rust", "scab"],
        "LABEL_KIND": "multi",
        "SCHEMA": {"image": "image", "label": "label", "site": {"type": "int64"}},
    }
    works = [str(tmp_path / f"work-{number}") for number in range(3)]
    pictures = draw_pictures(37, 60, 80)
    save_picture(pictures[36], tmp_path / "1/test/36.jpg")
    for number, work in enumerate(works):
        rows = ["image_id,rust,scab,site"]
        for image in range(12 * number, 12 * number + 12):
            save_picture(pictures[image], tmp_path / f"{number}/train/{image}.jpg")
            rows.append(f"{image}.jpg,{image % 2},1,{image}")
        (tmp_path / f"{number}/train.csv").write_text("\n".join(rows))
        build(tmp_path / f"{number}", work, FOLDS_FROM=works[:number][-1:], **values)

    test_fields = read_plan(works[2]).schema.test_fields
    assert [field.name for field in test_fields] == ["image", "id"]
    shards = read.find_shards(works).query("split == 'train'")
    assert len(read.Records(shards)) == 36
    write_report({"WORK_DIR": works[2]})
    text = Path(works[2], "report.html").read_text()
    assert [f"{work}/part-" in text for work in works] == [True, True, False]


def test_parts_of_all_growths_can_share_a_folder(tmp_path):
    """FOLDS_FROM of each growth lists all earlier parts, and it can run again."""
    out = tmp_path / "out"
    photos = tmp_path / "photos"
    pictures = draw_pictures(54, 60, 80)
    expected = {}
    for number, n_images in ((1, 30), (2, 42), (3, 54), (3, 54)):
        write_images(photos, pictures, range(n_images))
        earlier = [str(out / f"part-{part}") for part in range(1, number)]
        work = tmp_path / f"work-{number}"
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
    """Other settings, the work folder itself, a new class, and no new image.

    So are parts whose hashes are not published.
    """
    work = tmp_path / "work"
    values = {"FOLDS_FROM": str(parent / "work")}
    for name, value in {"N_FOLDS": 4, "SCHEMA": "petals"}.items():
        message = f"{name} is .*, but the parts of FOLDS_FROM have"
        with pytest.raises(ValueError, match=message):
            build(parent / "all", work, **values, **{name: value})
    with pytest.raises(ValueError, match="FOLDS_FROM is the WORK_DIR"):
        build(parent / "all", parent / "work", **values)
    with pytest.raises(ValueError, match="No image is new: all 60"):
        build(parent / "first", work, **values)
    shutil.copytree(parent / "new", tmp_path / "photos")
    (tmp_path / "photos/a").rename(tmp_path / "photos/d")
    with pytest.raises(ValueError, match=r"1 classes are new, such as \['d'\]"):
        build(tmp_path / "photos", work, **values)

    build(parent / "first", work)  # without earlier parts
    assert (work / "part-1").exists()
    hidden = shutil.copytree(parent / "work", tmp_path / "hidden")
    build(parent / "first", hidden, PUBLISH_HASHES=False)
    assert "hashes" not in (hidden / "part-1/SHA256SUMS").read_text()
    with pytest.raises(ValueError, match="PUBLISH_HASHES = True"):
        build(parent / "all", work, FOLDS_FROM=str(hidden))
