"""Five foreign layouts: with the unedited recipe of `init` the records are right."""

import re
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


def check_records(truth, work):
    """Compare the labels and splits of all records, and the folds of groups.

    They are read by the shards' names and TensorFlow alone.
    """
    import tensorflow as tf

    text = tf.io.FixedLenFeature([], tf.string)
    numbers = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    features = {"image": text, "image_id": text, "label": numbers, "labels": numbers}
    found = []
    folds_of = defaultdict(set)
    for file in work.glob("part-*/**/*.tfrec"):
        place = re.search(r"-(f\d|train|val\w*|test)-\d+-\d+\.tfrec$", file.name)[1]
        split = "train" if place.startswith("f") else place
        for record in read_plainly([file], features=features):
            assert tf.io.decode_image(record["image"]).shape == (32, 40, 3)
            image_id = record["image_id"].decode()
            labels = [*record["label"], *record["labels"]]
            found.append((image_id, labels, split[:3]))
            folds_of[truth[image_id][2]].add(place)
    expected = [(name, row[0], row[1][:3]) for name, row in truth.items()]
    assert sorted(found) == sorted(expected)
    folds_of.pop("", None)
    assert all(len(folds) == 1 for folds in folds_of.values())


@pytest.mark.parametrize("make", LAYOUTS, ids=lambda make: make.__name__[5:])
def test_init_and_the_chain_give_the_truth(tmp_path, make):
    """The recipe of `init` is enough: what it reads is what the layout means."""
    truth = make(tmp_path / "in")
    recipe = tmp_path / "recipe.yaml"
    assert main(["init", str(tmp_path / "in"), "-o", str(recipe)]) == 0

    run_chain(recipe, str(tmp_path / "work"))

    check_records(truth, tmp_path / "work")
