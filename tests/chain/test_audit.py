"""`kaggle-tfr audit`: what a dataset with splits contains, found without a recipe."""

import json
import shutil
from unittest import mock

import pandas as pd
import pytest
from PIL import ImageOps
from support.chain import draw_pictures, save_picture
from support.plans import digests
from support.processes import call_python
from support.readers import make_example, write_shard
from support.scenes import saved

from kaggle_tfr import build_dataset, deduplicate, storage
from kaggle_tfr.__main__ import main

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
    save_picture(pictures[0], folder / "test/a/equal.jpg")
    save_picture(pictures[1].resize((80, 60)), folder / "test/a/small.jpg")
    save_picture(ImageOps.mirror(pictures[5]), folder / "train/a/mirrored.jpg")
    save_picture(pictures[2], folder / "train/b/conflict.jpg")
    truncated = saved(pictures[3])[:2000]
    (folder / "train/a/truncated.jpg").write_bytes(truncated)
    return folder


def load(folder):
    """Return audit.json and copies.csv of an audit."""
    copies = pd.read_csv(folder / "copies.csv", keep_default_na=False)
    return json.loads((folder / "audit.json").read_text()), copies


def test_an_audit_finds_all_that_is_planted(photos, capsys, monkeypatch):
    """Leaks, mirrored copies, conflicts and rejects; the exit code is 3.

    A second audit writes the same bytes, but not at the same time, and one that was
    stopped is continued. An audit is not an input, in any folder.
    """
    folder = photos / "audits/first"
    call = ["audit", "photos", "--out", str(folder)]
    with monkeypatch.context() as patch:
        patch.setattr(deduplicate, "run", mock.Mock(side_effect=KeyboardInterrupt))
        assert main(call) == 130
    assert main(call) == 3
    printed = capsys.readouterr().out.splitlines()

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
    _, *lines, last = printed[printed.index(headline) :]
    texts = [finding["text"] for finding in content["findings"]]
    assert any(text.startswith("Copies in test and train: 2 of 10") for text in texts)
    assert len(lines) == len(texts)
    assert last == f"file://{folder}/audit.html"
    before = digests(folder)
    with storage.lock_work_dir(f"{folder}/cache"):
        assert main(call) == 1
    assert main(call) == 3
    assert digests(folder) == before


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


def test_an_audit_compares_with_published_parts(photos, pictures, at, capsys):
    """Of which there are no images here: a page, numbers, pairs, and the exit code.

    It is 3 for an overlap alone, as of the images of val, and 0 without any. The part
    has copies of seven photos, three of them mirrored, and one of these as one of the
    photos is. Nothing is replaced but an audit.
    """
    for number in range(4):
        save_picture(pictures[number], at / f"theirs/x/{number}.jpg", quality=60)
    for number in range(4, 7):
        mirrored = ImageOps.mirror(pictures[number])
        save_picture(mirrored, at / f"theirs/x/m{number}.jpg")
    save_picture(pictures[39], at / "theirs/y/other.jpg")
    values = {"INPUT_DIR": "theirs", "IMAGE_SIZE": 32, "N_FOLDS": 0}
    build_dataset(**values, WORK_DIR="leaves")
    shutil.rmtree("theirs")

    options = ["-p", "SECOND_LOOK=false"]
    assert main(["audit", "photos/val", *options]) == 0
    content, copies = load(at / "audit-val")
    assert content["counts"]["copied_images"] == 0
    assert copies.empty
    options += ["--against", str(at / "leaves")]
    assert main(["audit", "photos/val", *options]) == 3

    assert main(["audit", "photos", *options]) == 3
    folder = at / "audit-photos"
    content, copies = load(folder)
    assert content["headline"].endswith("11 are in other datasets.")
    theirs = copies[copies["dataset"] == "leaves/part-1"]
    assert (theirs["orientation"] == 1).sum() == 8
    assert copies["dataset"].tolist()[-11:] == ["leaves/part-1"] * 11
    assert (theirs["bits"] <= 25).all()
    first = theirs.set_index("image_id_a").loc["train/a/00.jpg"]
    found = first[["image_id_b", "split_b", "label_name_b", "verdict"]].tolist()
    assert found == ["x/0.jpg", "train", "x", "hash"]
    for name in WRITTEN:
        assert str(at) not in (folder / name).read_text()
    assert main(["audit", "photos", "--out", "photos"]) == 1
    assert "its files may be replaced" in capsys.readouterr().err
