"""`kaggle-tfr audit`: what a dataset with splits contains, found without a recipe."""

import json
import shutil
from unittest import mock

import pandas as pd
import pytest
from PIL import ImageOps
from support.chain import draw_pictures, save_picture
from support.fingerprints import make_fingerprints, publish_images, write_fingerprints
from support.plans import digests
from support.processes import call_python
from support.readers import make_example, write_shard
from support.scenes import saved

from kaggle_tfr import deduplicate
from kaggle_tfr.__main__ import main
from kaggle_tfr.explore.table import load_images

WRITTEN = {"audit.html", "audit.json", "copies.csv"}


@pytest.fixture(scope="module")
def pictures():
    """Return 40 photographs that do not overlap."""
    return draw_pictures(40, 120, 160)


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Return an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def photos(at, pictures):
    """Return class folders in three splits, with everything that an audit can find."""
    folder = at / "photos"
    splits = ["train"] * 5 + ["val", "test", "test"]
    for number, picture in enumerate(pictures[:32]):
        name = f"{splits[number % 8]}/{'ab'[number // 8 % 2]}/{number:02d}.jpg"
        save_picture(picture, folder / name)
    plant(folder, "train/a/00.jpg", "test/a/equal.jpg")
    save_picture(pictures[1].resize((80, 60)), folder / "test/a/small.jpg")
    save_picture(ImageOps.mirror(pictures[5]), folder / "train/a/mirrored.jpg")
    plant(folder, "train/a/02.jpg", "train/b/conflict.jpg")
    truncated = (folder / "train/a/03.jpg").read_bytes()[:2000]
    (folder / "train/a/truncated.jpg").write_bytes(truncated)
    return folder


def plant(folder, source, target):
    shutil.copyfile(folder / source, folder / target)


def load(folder):
    """Return audit.json and copies.csv of an audit."""
    copies = pd.read_csv(folder / "copies.csv", keep_default_na=False)
    return json.loads((folder / "audit.json").read_text()), copies


def test_an_audit_finds_all_that_is_planted(photos, capsys):
    """Leaks, mirrored copies, conflicts and rejects; the exit code is 3."""
    assert main(["audit", "photos"]) == 3

    folder = photos.parent / "audit-photos"
    content, copies = load(folder)
    assert {path.name for path in folder.iterdir()} == {*WRITTEN, "cache"}
    found = copies[["image_id_a", "image_id_b", "orientation"]]
    assert sorted(found.to_numpy().tolist()) == [
        ["test/a/equal.jpg", "train/a/00.jpg", 1],
        ["test/a/small.jpg", "train/a/01.jpg", 1],
        ["train/a/02.jpg", "train/b/conflict.jpg", 1],
        ["train/a/mirrored.jpg", "val/a/05.jpg", 2],
    ]
    assert content["counts"]["rejected"] == 1
    headline = "6 of 36 images have a copy in another split, 8 have any copy, 0 are in "
    headline += "other datasets."
    assert content["headline"] == headline
    printed = capsys.readouterr().out.splitlines()
    lines = printed[printed.index(headline) :]
    marks = [line[0] for line in lines[1:-1]]
    assert marks == sorted(marks, key="✗!·✓".index)
    assert any("Copies in test and train: 2 of 10 and" in line for line in lines)
    assert lines[-1] == f"file://{folder}/audit.html"


def test_a_second_audit_writes_the_same_bytes(photos, monkeypatch):
    """Also after one that was stopped. An audit is not an input, in any folder."""
    out = photos / "audits" / "first"
    call = ["audit", "photos", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(deduplicate, "run", mock.Mock(side_effect=KeyboardInterrupt))
        assert main(call) == 130
    assert main(call) == 3
    before = digests(out)

    main(call)

    assert digests(out) == before


def test_shards_of_plain_tensorflow_are_read_without_tensorflow(at, pictures):
    """An image has the name of its shard and the number of its record."""
    for split, numbers in {"train": range(8), "test": (3, 8, 9)}.items():
        records = [
            make_example(raw=saved(pictures[number]), label=number)
            for number in numbers
        ]
        write_shard(at / f"shards/{split}-00000-of-00001.tfrecord", records)
    code = (
        "import sys; from kaggle_tfr.__main__ import main\n"
        "code = main(['audit', 'shards', '-p', 'INPUT_SCHEMA={raw: image}'])\n"
        "sys.exit(9 if 'tensorflow' in sys.modules else code)"
    )
    done = call_python("-c", code)

    assert done.returncode == 3, done.stderr
    _, copies = load(at / "audit-shards")
    assert copies["image_id_a"].tolist() == ["test-00000-of-00001.tfrecord#0"]
    assert copies["image_id_b"].tolist() == ["train-00000-of-00001.tfrecord#3"]


def test_nothing_is_replaced_but_an_audit(photos, capsys):
    (photos.parent / "copies.csv").write_text("mine")
    assert main(["audit", "photos", "--out", "."]) == 1
    assert "its files may be replaced" in capsys.readouterr().err
    assert (photos.parent / "copies.csv").read_text() == "mine"


@pytest.fixture
def leaves(photos, pictures, at):
    """Return a published part with copies of seven photos, and an other image.

    Three copies are mirrored, one of them as one of the photos is.
    """
    folder = at / "theirs"
    for number in range(4):
        save_picture(pictures[number], folder / f"x/{number}.jpg", quality=60)
    for number in range(4, 7):
        save_picture(ImageOps.mirror(pictures[number]), folder / f"x/m{number}.jpg")
    save_picture(pictures[39], folder / "y/other.jpg")
    main(["audit", "theirs"])
    images, _ = load_images("audit-theirs/cache")
    part = publish_images(at / "leaves/part-1", images, "audit-theirs/cache")
    shutil.rmtree(folder)
    return part


def test_an_audit_compares_with_published_parts(leaves, at):
    """Of which there are no images here: a page, numbers, pairs, and the exit code.

    It is 3 for an overlap alone, as of the images of val, and 0 without any.
    """
    write_fingerprints(at / "none", make_fingerprints(pd.DataFrame(index=range(1))))
    options = ["-p", "SECOND_LOOK=false", "-p"]
    assert main(["audit", "photos/val", *options, "COMPARE_WITH=[none]"]) == 0
    content, copies = load(at / "audit-val")
    assert content["counts"]["copied_images"] == 0
    assert copies.empty
    options.append(f"COMPARE_WITH=[none, {leaves}]")
    assert main(["audit", "photos/val", *options]) == 3

    assert main(["audit", "photos", *options]) == 3
    folder = at / "audit-photos"
    content, copies = load(folder)
    assert content["headline"].endswith("11 are in other datasets.")
    theirs = copies[copies["dataset"] == "leaves/part-1"]
    assert (theirs["orientation"] == 1).sum() == 8
    assert copies["dataset"].tolist()[-11:] == ["leaves/part-1"] * 11
    first = theirs.set_index("image_id_a").loc["train/a/00.jpg"]
    found = first[["image_id_b", "split_b", "label_name_b"]].tolist()
    assert found == ["x/0.jpg", "train", "x"]
    for name in WRITTEN:
        assert str(at) not in (folder / name).read_text()
