"""The page of a part on Kaggle: its code runs, and its words are those of readers."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.chain import run_chain, write_small_sample
from support.kaggle_machine import make_environment, run_python
from support.plans import make_images, plan_images

from kaggle_tfr.schema import Labels
from kaggle_tfr.write.metadata import DATASET_FILE
from kaggle_tfr.write.page import describe_classes
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import verify_parts


def read_page(part):
    return json.loads((part / DATASET_FILE).read_text())


def find_code(part):
    """Return the code that reads the records, the first of the page."""
    return list_code(part)[0]


def list_code(part):
    return re.findall(r"```python\n(.*?)```", read_page(part)["description"], re.DOTALL)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The first part of the sample, with test images and images outside the folds."""
    folder = tmp_path_factory.mktemp("sample")
    write_small_sample(folder / "in")
    values = {"INPUT_DIR": str(folder / "in"), "VALIDATION_SIZE": 0.1}
    run_chain("sample", str(folder / "work"), **values)
    return folder / "work" / "part-1"


def test_the_code_reads_the_sample_on_kaggle(sample, tmp_path):
    """Where Kaggle mounts the dataset, under its slug, without this package."""
    code = find_code(sample)
    python = make_environment(tmp_path / "environment")
    attached = {"datasets/ada/sample-tfrecords": sample}

    done = run_python(python, code, tmp_path / "out", attached)

    assert len([line for line in code.splitlines() if line]) == 6
    shapes = re.findall(r"\(\d+, \d+, 3\) \[(\d)\]", done.stdout)
    classes = json.loads((sample / "labels.json").read_text())["classes"]
    assert len(shapes) == 3, done.stderr[-3000:]
    assert all(int(label) < len(classes) for label in shapes)


def test_the_code_lists_the_original_images_of_a_fold(sample, tmp_path):
    """A user of PyTorch needs pandas only; the lists are those of the shards."""
    code = list_code(sample)[1].replace(
        "/kaggle/input/datasets/*/sample-tfrecords", str(sample)
    )
    names = {}
    exec(code, names)

    records = pd.read_csv(sample / "train.csv", dtype={"image_id": str})
    is_first_fold = records["fold"] == 0
    found = set(names["validation"]["image_id"])
    assert found == set(records["image_id"][is_first_fold])
    assert set(names["training"]["image_id"]) == set(
        records["image_id"][~is_first_fold]
    )
    assert len(list_code(sample)) == 2


@pytest.mark.parametrize(
    ("kind", "schema", "printed"),
    [
        ("single", "imagenet", r"\(\d+, \d+, 3\) \[\d\]"),
        ("multi", "default", r"\(\d+, \d+, 3\) \[[01], [01]\]"),
        ("masks", "default", r"\(\d+, \d+, 3\) \[b'[\d ]*'\] \[b''\]"),
    ],
)
def test_the_code_reads_every_kind_of_labels(tmp_path, kind, schema, printed):
    """Also compressed files in the folders of their splits."""
    table = make_images(tmp_path / "images", 12).assign(fold=-1)
    labels = Labels()
    if kind != "single":
        values = {"masks": ("1 7", ""), "multi": (np.int8(1), np.int8(0))}[kind]
        table = table.assign(Ash=values[0], Elm=values[1])
        labels = Labels(kind, ("Ash", "Elm"), ("Ash", "Elm"))
    else:
        labels = replace(labels, classes=tuple("abc"))
    changes = {"compression": "GZIP", "shard_name": "{split}/{split}-{i}.tfrecord"}
    changes |= {"n_folds": 0, "n_shards": 2}
    plan_images(table, tmp_path, schema=schema, labels=labels, **changes)
    write_parts(str(tmp_path))
    part = tmp_path / "part-1"
    assert verify_parts(str(part)).faults.empty

    code = find_code(part).replace(
        "/kaggle/input/datasets/*/trees-tfrecords", str(part)
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr[-2000:]
    assert all(re.fullmatch(printed, line) for line in lines), lines


def test_the_page_has_no_terms_of_this_package(sample):
    """No fold -1, no names of parameters or columns; the sums are those of the part."""
    text = read_page(sample)["description"]
    words = r"-1|−1|cluster|_across_|short_side|shard(?!s\.csv)|n_folds|\(256, 256\)"
    assert re.findall(words, text) == []
    shards = pd.read_csv(sample / "shards.csv")
    uses = dict(re.findall(r"^\| (.*?) \| \d+ \| (\d+) \|$", text, re.MULTILINE))
    assert sum(map(int, uses.values())) == shards["count"].sum()
    in_folds = [f"fold {number}" for number in range(5)]
    assert [*uses] == ["test, without labels", *in_folds, "validation"]


def test_the_histogram_is_that_of_the_records(sample):
    """Of all labelled images, as the CSVs of the part list them."""
    names = pd.concat(
        pd.read_csv(sample / f"{split}.csv") for split in ("train", "validation")
    )["label_name"]
    counts = names.value_counts()
    text = read_page(sample)["description"]
    smallest = counts[counts == counts.min()].index
    found = re.search(r"\*\*Classes\*\*: (\d), from (\d+) images \((\w+)\) to ", text)
    assert int(found[1]) == len(counts)
    assert int(found[2]) == counts.min()
    assert found[3] in smallest
    for name, count in counts.items():
        assert f"{name} {count}" in text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"a": 4, "b": 4}, "2, of 4 images each: a 4, b 4."),
        ({"a": 0, "b": 0}, "2, without labelled images in this part."),
        (
            {"a": 1, "b": 0, "c": 2000},
            "3, from 1 image (a) to 2,000 (c): c 2,000, a 1. Classes without an image",
        ),
        ({f"c{n}": n for n in range(1, 99)}, "98, from 1 image (c1) to 98 (c98): "),
    ],
)
def test_a_histogram_in_words(counts, text):
    """Equal classes, missing classes, and many classes."""
    assert describe_classes(counts).startswith(text)
    assert len(describe_classes(counts)) < 300


def test_the_code_follows_a_slug_that_the_user_has_chosen(tmp_path):
    """The next run of 04 writes the page again, with the user's id and title."""
    plan_images(make_images(tmp_path / "images", 12), tmp_path)
    write_parts(str(tmp_path))
    file = tmp_path / "part-1" / DATASET_FILE
    values = json.loads(file.read_text())
    assert "/trees-tfrecords/*.tfrec" in values["description"]
    file.write_text(json.dumps(values | {"id": "ada/leaves-of-my-garden"}))

    write_parts(str(tmp_path))

    assert "/leaves-of-my-garden/*.tfrec" in read_page(file.parent)["description"]
