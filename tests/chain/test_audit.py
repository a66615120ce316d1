"""`kaggle-tfr audit`: what a dataset with splits contains, found without a recipe."""

import json
import re
import shutil
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from PIL import ImageOps
from support.chain import draw_pictures, save_picture
from support.fingerprints import make_fingerprints, publish_images, write_fingerprints
from support.pages import HOSTILE, Elements
from support.plans import digests
from support.processes import call_python
from support.readers import make_example, write_shard
from support.scenes import saved

import kaggle_tfr
from kaggle_tfr import deduplicate
from kaggle_tfr.__main__ import main
from kaggle_tfr.explore.table import load_images

WRITTEN = {"audit.html", "audit.md", "audit.json", "copies.csv"}


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
    save_picture(pictures[33], folder / "train/a/01_mask.jpg")
    return folder


def plant(folder, source, target):
    shutil.copyfile(folder / source, folder / target)


def load(folder):
    """Return audit.json and copies.csv of an audit, without the names of columns."""
    copies = pd.read_csv(folder / "copies.csv", keep_default_na=False)
    return json.loads((folder / "audit.json").read_text()), copies


def test_an_audit_finds_all_that_is_planted(photos, capsys):
    """Leaks, mirrored copies, conflicts, rejects and files that were not read."""
    assert main(["audit", "photos"]) == 3

    content, copies = load(photos.parent / "audit-photos")
    assert {path.name for path in (photos.parent / "audit-photos").iterdir()} == {
        *WRITTEN,
        "cache",
    }
    found = copies[["file_a", "file_b", "match"]].to_numpy().tolist()
    assert sorted(found) == [
        ["test/a/equal.jpg", "train/a/00.jpg", "file"],
        ["test/a/small.jpg", "train/a/01.jpg", "hash"],
        ["train/a/02.jpg", "train/b/conflict.jpg", "file"],
        ["val/a/05.jpg", "train/a/mirrored.jpg", "mirrored"],
    ]
    assert copies["conflict"].tolist() == [False, False, False, True]
    counts = content["counts"]
    assert counts["splits"] == {"train": 22, "test": 10, "val": 4}
    assert counts["leaking_images"] == 6
    assert counts["reasons"] == {"truncated": 1}
    assert counts["conflicting_pairs"] == 1
    headline = "6 of 36 images leak at 25 bits or by details."
    assert content["headline"] == headline
    printed = capsys.readouterr().out.splitlines()
    lines = printed[printed.index(headline) :]
    marks = [line[0] for line in lines[1:-1]]
    assert marks == sorted(marks, key="✗!·✓".index)
    assert any("Copies in test and train: 2 of 10 and" in line for line in lines)
    assert any("such as 'train/a/01_mask.jpg'" in line for line in lines)
    assert lines[-1] == f"file://{photos.parent}/audit-photos/audit.html"


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


def test_a_clean_dataset_is_nothing_found(at, pictures, capsys):
    """The exit code is 0, and the badge counts the images."""
    for number, picture in enumerate(pictures[:12]):
        split = "test" if number % 4 == 0 else "train"
        save_picture(picture, at / f"clean/{split}/{'ab'[number % 2]}/{number}.jpg")

    assert main(["audit", "clean", "-p", "SECOND_LOOK=False"]) == 0

    content, copies = load(at / "audit-clean")
    assert content["headline"] == "0 of 12 images leak at 25 bits."
    assert content["command"] == "kaggle-tfr audit clean/ -p SECOND_LOOK=false"
    assert copies.empty
    assert "and copies with borders" in (at / "audit-clean/audit.md").read_text()


def test_shards_of_plain_tensorflow_need_a_schema(at, pictures):
    """Without a label none is read; TensorFlow is not imported."""
    for split, numbers in {"train": range(8), "test": (3, 8, 9)}.items():
        records = [
            make_example(raw=saved(pictures[number]), label=number, target=number)
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
    content, copies = load(at / "audit-shards")
    assert content["counts"]["splits"]["test"] == 3
    assert "conflicts of labels, of which none were read" in done.stdout
    assert copies["file_a"].tolist() == ["test-00000-of-00001.tfrecord#0"]
    assert copies["file_b"].tolist() == ["train-00000-of-00001.tfrecord#3"]


def test_names_are_only_text(at, pictures):
    """Those of files, classes and other datasets, on the page and in Markdown.

    A line break would end a table there.
    """
    names = [name.replace("/", "|") for name in HOSTILE]
    for number, name in enumerate(names):
        for split in ("train", "test"):
            path = at / f"hostile/{split}/{name}/{number} `` \n{name}.jpg"
            save_picture(pictures[number], path)
    main(["audit", "hostile"])
    work = "audit-hostile/cache"
    part = publish_images(at / names[0], load_images(work)[0], work)

    assert main(["audit", "hostile", "--against", part.name]) == 3

    elements = Elements((at / "audit-hostile/audit.html").read_text())
    assert {tag for tag, _ in elements.found}.isdisjoint({"svg", "iframe"})
    attributes = {name for _, names in elements.found for name in names}
    assert not [name for name in attributes if name.startswith("on")]
    assert all(image.startswith("data:image/webp") for image in elements.images)
    content, _ = load(at / "audit-hostile")
    text = (at / "audit-hostile/audit.md").read_text()
    assert not re.search(r"(?<!\\)[<`|]", text.replace(content["command"], ""))


def test_nothing_is_replaced_but_an_audit_of_the_same_input(photos, capsys):
    (photos.parent / "copies.csv").write_text("mine")
    assert main(["audit", "photos", "--out", "."]) == 1
    assert "contains other files" in capsys.readouterr().err
    assert (photos.parent / "copies.csv").read_text() == "mine"

    assert main(["audit", "photos/val", "--out", "a"]) == 0
    assert main(["audit", "photos", "--out", "a"]) == 1
    assert "contains the audit of another input" in capsys.readouterr().err


def test_parameters_of_other_steps_are_refused(photos):
    for name, value in {"N_FOLDS": 3, "WORK_DIR": "x", "COMPARE_WITH": ["z"]}.items():
        with pytest.raises(ValueError, match=f"An audit does not use {name}"):
            kaggle_tfr.audit_dataset("photos", **{name: value})


@pytest.fixture
def leaves(photos, pictures, at):
    """Return a published part with copies of seven photos, and thirteen other images.

    Three copies are mirrored, one of them as one of the photos is.
    """
    folder = at / "theirs"
    for number in range(4):
        save_picture(pictures[number], folder / f"x/{number}.jpg", quality=60)
    for number in range(4, 7):
        save_picture(ImageOps.mirror(pictures[number]), folder / f"x/m{number}.jpg")
    for number, picture in enumerate(draw_pictures(53, 120, 160)[40:]):
        save_picture(picture, folder / f"y/other-{number}.jpg")
    main(["audit", "theirs"])
    work = "audit-theirs/cache"
    images, _ = load_images(work)
    splits = np.where(images["image_id"].str.contains("m"), "test", "train")
    part = publish_images(at / "leaves/part-1", images, work, split=splits)
    shutil.rmtree(folder)
    return part


def test_an_audit_compares_with_published_parts(leaves, at, capsys):
    """Of which there are no images here: a page, numbers, pairs, and the exit code.

    It is 3 for an overlap alone, as of the images of val.
    """
    nothing = write_fingerprints(
        at / "none", make_fingerprints(pd.DataFrame(index=range(1)))
    )
    options = ["--against", str(leaves), "--against", "none", "-p", "SECOND_LOOK=false"]
    assert main(["audit", "photos/val", *options[2:]]) == 0
    assert main(["audit", "photos/val", "--against", "missing"]) == 1
    capsys.readouterr()
    assert main(["audit", "photos/val", *options]) == 3
    printed = capsys.readouterr().out
    assert nothing.exists()
    assert "contains 1 of 4 images" in printed
    assert "contains 0 of 4 images" in printed

    assert main(["audit", "photos", *options]) == 3
    folder = at / "audit-photos"
    content, copies = load(folder)
    assert content["headline"].endswith("; 11 are also in other datasets.")
    against = "--against leaves/part-1 --against none"
    command = f"kaggle-tfr audit photos/ {against} -p SECOND_LOOK=false"
    assert content["command"] == command
    theirs = copies[copies["dataset_b"] == "leaves/part-1"]
    counts = theirs["match"].value_counts().to_dict()
    assert counts == {"hash": 7, "mirrored": 3, "file": 1}
    assert copies["dataset_b"].tolist()[-11:] == ["leaves/part-1"] * 11
    first = theirs.set_index("file_a").loc["train/a/00.jpg"]
    found = first[["file_b", "split_b", "label_name_b"]].tolist()
    assert found == ["x/0.jpg", "train", "x"]
    for name in WRITTEN:
        assert str(at) not in (folder / name).read_text()
