"""With the unedited recipe of `init` the records are right."""

import os
import re
from collections import defaultdict
from pathlib import Path

from support.chain import run_chain
from support.layouts import csv, many, put
from support.plans import read_plainly

from kaggle_tfr.__main__ import main

SIZE = (40, 32)
FINDINGS = ["mass", "nodule", "effusion", "normal"]


def make_patients():
    """Write 0, 1, True and a blank as labels, patients, and images to predict.

    Return what the records hold: {image id: (labels, split, group)}. All images of a
    group are in one fold. Test images have no labels.
    """
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


def check_records(truth):
    """Compare the labels and splits of all records, and the folds of groups.

    They are read by the shards' names and TensorFlow alone.
    """
    import tensorflow as tf

    text = tf.io.FixedLenFeature([], tf.string)
    numbers = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    features = {"image": text, "image_id": text, "label": numbers}
    found = []
    folds_of = defaultdict(set)
    for file in Path("../work").glob("part-*/**/*.tfrec"):
        place = re.search(r"-(f\d|test)-\d+-\d+\.tfrec$", file.name)[1]
        split = "train" if place.startswith("f") else place
        for record in read_plainly([file], features=features):
            assert tf.io.decode_image(record["image"]).shape == (32, 40, 3)
            image_id = record["image_id"].decode()
            group = truth[image_id][2]
            found.append((image_id, ([*record["label"]], split, group)))
            folds_of[group].add(place)
    assert sorted(found) == sorted(truth.items())
    folds_of.pop("", None)
    assert all(len(folds) == 1 for folds in folds_of.values())


def test_init_and_the_chain_give_the_truth(monkeypatch):
    """The recipe of `init` is enough: what it reads is what the layout means."""
    os.mkdir("in")
    monkeypatch.chdir("in")
    truth = make_patients()
    assert main(["init", ".", "-o", "../recipe.yaml"]) == 0

    run_chain("../recipe.yaml", "../work")

    check_records(truth)
