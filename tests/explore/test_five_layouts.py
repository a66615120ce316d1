"""Five foreign layouts: with the unedited recipe of `init` the records are right."""

import os
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import run_chain
from support.layouts import csv, many, put
from support.plans import read_plainly

from kaggle_tfr.__main__ import main

SIZE = (40, 32)
COLOURS = ["cat", "dog", "newt"]
FLOWERS = ["$100^2$", "Löwenzahn; gelb", "玫瑰, 红"]  # sorted
FINDINGS = ["mass", "nodule", "effusion", "normal"]


# Each layout is written into the current folder, and returns what its records hold:
# {image id: (labels, split, group)}. Labels are the number of a class, or 0 or 1 for
# each class, none for a test image. All images of a group are in one fold.


def make_roboflow():
    """Write train, valid and test with _classes.csv beside the images; one 1 a row."""
    truth = {}
    numbers_of = {"train": range(30), "valid": range(30, 39), "test": range(39, 45)}
    for split, numbers in numbers_of.items():
        names = many("photo-{0}_jpg.rf.{0:08x}.jpg", numbers)
        flags = np.eye(3, dtype=int)[[number % 3 for number in numbers]]
        put(many(f"{split}/{{}}", names), SIZE)
        header = ", ".join(["filename", *COLOURS])
        csv(f"{split}/_classes.csv", header, names, *flags.T)
        for name, number in zip(names, numbers, strict=True):
            truth[name] = ([number % 3], split, "")
    return truth


def make_huggingface():
    """Write metadata.csv whose paths begin with a split; PNG, GIF, a missing file."""
    truth = {}
    for number in range(40):
        split = "test" if number % 5 == 4 else "train"
        below = "more/" if number % 4 == 1 else ""
        name = f"{split}/{below}{number:04d}.{'gif' if number % 3 == 1 else 'png'}"
        truth[name] = ([number % 3], split, "")
    put([*truth, "train/unnamed.png"], SIZE)
    names = ["train/9999.png", *truth]
    csv("metadata.csv", "file_name,label", names, ["newt", "cat", "dog"])
    return truth


def make_paths():
    """Write ids that are paths; semicolons, a BOM, and separators in quoted names."""
    truth = {}
    rows = []
    for number in range(36):
        name = f"{'ab'[number % 2]}/{20 + number % 5}/Foto {number}.jpg"
        truth[name] = ([number % 3], "train", "")
        rows.append([name, FLOWERS[number % 3], 'ja; "sehr", schön'])
    put(many("bilder/{}", truth), SIZE)
    table = pd.DataFrame(rows, columns=["Datei", "Art", "Notiz"])
    table.to_csv("liste.csv", sep=";", encoding="utf-8-sig", index=False)
    return truth


def make_patients():
    """Write 0, 1, True and a blank as labels, patients, and images to predict."""
    truth = {}
    rows = []
    for number in range(60):
        name = f"scan{number:03d}"
        flags = [int(number % 4 == 0), int(number % 6 < 2), number % 5 == 0]
        flags.append(int(not any(flags)))
        patient = f"P{number // 3:03d}"
        truth[name] = (flags, "train", patient)
        rows.append([name, patient, 30 + number % 17, *flags])
    put(many("train_images/{}.png", truth), SIZE)
    del truth["scan031"]
    rows[31][4] = ""
    header = ",".join(["image_id", "patient_id", "age", *FINDINGS])
    csv("train.csv", header, *zip(*rows, strict=True))

    tests = many("new{:03d}", 8)
    header = ",".join(["Image", *FINDINGS])
    put(many("test_images/{}.png", tests), SIZE)
    csv("sample_submission.csv", header, tests, *[[0]] * len(FINDINGS))
    return truth | dict.fromkeys(tests, ([], "test", ""))


def make_many_classes():
    """1,000 class folders with one to three images each, and folders without images."""
    truth = {}
    for label in range(1000):
        for number in range({0: 2, 5: 3}.get(label % 10, 1)):
            truth[f"c{label:04d}/{number}.jpg"] = ([label], "train", "")
    put(truth, SIZE)
    Path("c9999").mkdir()
    return truth


def check_records(truth):
    """Compare the labels and splits of all records, and the folds of groups.

    They are read by the shards' names and TensorFlow alone.
    """
    import tensorflow as tf

    text = tf.io.FixedLenFeature([], tf.string)
    numbers = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    features = {"image": text, "image_id": text, "label": numbers, "labels": numbers}
    found = []
    folds_of = defaultdict(set)
    for file in Path("../work").glob("part-*/**/*.tfrec"):
        place = re.search(r"-(f\d|train|val\w*|test)-\d+-\d+\.tfrec$", file.name)[1]
        split = "train" if place.startswith("f") else place
        for record in read_plainly([file], features=features):
            assert tf.io.decode_image(record["image"]).shape == (32, 40, 3)
            image_id = record["image_id"].decode()
            group = truth[image_id][2]
            labels = [*record["label"], *record["labels"]]
            found.append((image_id, (labels, split, group)))
            folds_of[group].add(place)
    assert sorted(found) == sorted(truth.items())
    folds_of.pop("", None)
    assert all(len(folds) == 1 for folds in folds_of.values())


@pytest.mark.parametrize(
    "make",
    [make_roboflow, make_huggingface, make_paths, make_patients, make_many_classes],
    ids=lambda make: make.__name__[5:],
)
def test_init_and_the_chain_give_the_truth(monkeypatch, make):
    """The recipe of `init` is enough: what it reads is what the layout means."""
    os.mkdir("in")
    monkeypatch.chdir("in")
    truth = make()
    assert main(["init", ".", "-o", "../recipe.yaml"]) == 0

    run_chain("../recipe.yaml", "../work")

    check_records(truth)
