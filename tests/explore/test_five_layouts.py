"""Five foreign layouts: with the unedited recipe of `init` the records are right."""

import os
import re
import subprocess
import sys
from collections import defaultdict

import pandas as pd
import pytest
from support.chain import run_chain
from support.inputs import draw_image
from support.plans import read_plainly

from kaggle_tfr.__main__ import main

COLOURS = ["cat", "dog", "newt"]
FLOWERS = ["$100^2$", "Löwenzahn; gelb", "玫瑰, 红"]  # sorted
FINDINGS = ["mass", "nodule", "effusion", "normal"]


def put_rows(path, header, rows, **options):
    pd.DataFrame(rows, columns=header).to_csv(path, index=False, **options)


# Each layout returns what its records must hold: {image id: (labels, split, group)}.
# Labels are the number of a class, or 0 or 1 for each class, none for a test image. All
# images of a group are in one fold.


def make_roboflow(folder):
    """Write train, valid and test with _classes.csv beside the images; one 1 a row."""
    truth = {}
    numbers_of = {"train": range(30), "valid": range(30, 39), "test": range(39, 45)}
    for split, numbers in numbers_of.items():
        rows = []
        for number in numbers:
            name = f"photo-{number}_jpg.rf.{number:08x}.jpg"
            draw_image(folder / split / name, number)
            rows.append([name, *(int(number % 3 == column) for column in range(3))])
            truth[name] = ([number % 3], split, "")
        header = ["filename", *(f" {name}" for name in COLOURS)]
        put_rows(folder / split / "_classes.csv", header, rows)
    return truth


def make_huggingface(folder):
    """Write metadata.csv whose paths begin with a split; PNG, GIF, a missing file."""
    truth = {}
    rows = [["train/9999.png", "cat"]]
    for number in range(40):
        split = "test" if number % 5 == 4 else "train"
        below = "more/" if number % 4 == 1 else ""
        name = f"{split}/{below}{number:04d}.{'gif' if number % 3 == 1 else 'png'}"
        draw_image(folder / name, 1000 + number)
        rows.append([name, COLOURS[number % 3]])
        truth[name] = ([number % 3], split, "")
    draw_image(folder / "train" / "unnamed.png", 2000)
    put_rows(folder / "metadata.csv", ["file_name", "label"], rows)
    return truth


def make_paths(folder):
    """Write ids that are paths; semicolons, a BOM, and separators in quoted names."""
    truth = {}
    rows = []
    for number in range(36):
        name = f"{'ab'[number % 2]}/{20 + number % 5}/Foto {number}.jpg"
        draw_image(folder / "bilder" / name, 3000 + number)
        rows.append([name, FLOWERS[number % 3], 'ja; "sehr", schön'])
        truth[name] = ([number % 3], "train", "")
    options = {"sep": ";", "encoding": "utf-8-sig"}
    put_rows(folder / "liste.csv", ["Datei", "Art", "Notiz"], rows, **options)
    return truth


def make_patients(folder):
    """Write several labels an image, an odd cell, patients, and images to predict."""
    truth = {}
    rows = []
    for number in range(60):
        name = f"scan{number:03d}"
        flags = [int(number % 4 == 0), int(number % 6 < 2), int(number % 5 == 0)]
        flags.append(int(not any(flags)))
        patient = f"P{number // 3:03d}"
        draw_image(folder / "train_images" / f"{name}.png", 4000 + number)
        truth[name] = (list(flags), "train", patient)
        if number == 31:
            flags[1] = 2
            del truth[name]
        rows.append([name, patient, 30 + number % 17, *flags])
    put_rows(folder / "train.csv", ["image_id", "patient_id", "age", *FINDINGS], rows)

    tests = [f"new{number:03d}" for number in range(8)]
    for number, name in enumerate(tests):
        draw_image(folder / "test_images" / f"{name}.png", 5000 + number)
        truth[name] = ([], "test", "")
    submission = [[name, 0, 0, 0, 0] for name in tests]
    put_rows(folder / "sample_submission.csv", ["Image", *FINDINGS], submission)
    return truth


def make_many_classes(folder):
    """1,000 class folders with one to three images each, and folders without images."""
    truth = {}
    for label in range(1000):
        for number in range({0: 2, 5: 3}.get(label % 10, 1)):
            name = f"c{label:04d}/{number}.jpg"
            draw_image(folder / name, 10_000 + 3 * label + number)
            truth[name] = ([label], "train", "")
    (folder / "c9999").mkdir()
    return truth


LAYOUTS = [
    make_roboflow,
    make_huggingface,
    make_paths,
    make_patients,
    make_many_classes,
]


@pytest.fixture(params=LAYOUTS, ids=lambda make: make.__name__.removeprefix("make_"))
def layout(request, tmp_path):
    """(truth, the recipe's path, WORK_DIR) of a layout."""
    truth = request.param(tmp_path / "in")
    return truth, tmp_path / "recipe.yaml", tmp_path / "work"


def read_records(work):
    """{image id: (labels, split, fold)} by the shards' names and TensorFlow alone."""
    import tensorflow as tf

    features = dict.fromkeys(
        ["image", "image_id"], tf.io.FixedLenFeature([], tf.string)
    )
    whole_numbers = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    features |= dict.fromkeys(["label", "labels"], whole_numbers)
    found = {}
    count = 0
    for file in sorted(work.glob("part-*/**/*.tfrec")):
        place = re.search(r"-(f\d|train|val\w*|test)-\d+-\d+\.tfrec$", file.name)[1]
        split = "train" if place.startswith("f") else place
        for record in read_plainly([file], features=features):
            assert tf.io.decode_image(record["image"]).shape == (32, 40, 3)
            labels = [*record["label"].tolist(), *record["labels"].tolist()]
            found[record["image_id"].decode()] = (labels, split, place)
            count += 1
    assert count == len(found)
    return found


def check_records(truth, work):
    """Compare labels, splits, the number of records and the folds of groups."""
    records = read_records(work)

    expected = {name: (row[0], row[1][:3]) for name, row in truth.items()}
    assert {name: (row[0], row[1][:3]) for name, row in records.items()} == expected
    folds_of = defaultdict(set)
    for image_id, (_, _, group) in truth.items():
        folds_of[group].add(records[image_id][2])
    folds_of.pop("", None)
    assert all(len(folds) == 1 for folds in folds_of.values())


def test_init_and_the_chain_give_the_truth(layout):
    """The recipe of `init` is enough: what it reads is what the layout means."""
    truth, recipe, work = layout
    assert main(["init", str(recipe.parent / "in"), "-o", str(recipe)]) == 0

    run_chain(recipe, str(work))

    check_records(truth, work)


@pytest.mark.heavy
def test_the_command_line_gives_the_truth(layout, root):
    """The same, by `init` and `run` as a person types them."""
    truth, recipe, work = layout
    command = [sys.executable, "-m", "kaggle_tfr"]
    run = {"cwd": recipe.parent, "env": {**os.environ, "PYTHONPATH": str(root)}}
    subprocess.run([*command, "init", "in"], check=True, **run)
    subprocess.run(
        [*command, "run", "recipe.yaml", "-p", "WORK_DIR", str(work)], check=True, **run
    )

    check_records(truth, work)
    assert (work / "report.html").is_file()
