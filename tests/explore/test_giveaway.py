"""Facts of files that predict the label or the split are named, and chance is not."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr import explore, figures
from kaggle_tfr.explore.giveaway import ALL_FACTS, LABEL, TEST


def put_photos(folder, seed, quality):
    """Write 40 random photographs of about one size as JPEG."""
    os.mkdir(folder)
    rng = np.random.default_rng(seed)
    for number in range(40):
        height, width = rng.integers(60, 80, 2).tolist()
        photo = scene(height, width, seed=1000 * seed + number)
        Path(folder, f"{number}.jpg").write_bytes(saved(photo, quality=quality))


def make_table(n_images, seed):
    """Return a table of images whose facts depend on nothing."""
    rng = np.random.default_rng(seed)
    is_test = rng.random(n_images) < 0.2
    label = np.where(is_test, -1, rng.integers(3, size=n_images))
    hours = [f"2026-05-01 {hour:02d}:00:00" for hour in range(24)]
    return pd.DataFrame(
        {
            "problem": "",
            "split": np.where(is_test, "test", "train"),
            "label": label,
            "label_name": np.where(is_test, "", label.astype(str)),
            "source": 0,
            "n_bytes": rng.lognormal(10, 1, n_images).astype(int),
            "width": rng.choice(3, n_images),
            "height": rng.choice(3, n_images),
            "format": rng.choice(["JPEG", "PNG"], n_images, p=[0.9, 0.1]),
            "jpeg_quality": rng.choice(3, n_images),
            "exif_camera": rng.choice(["", "Canon", "Nikon"], n_images),
            "exif_time": rng.choice(["", *hours], n_images),
            "brightness": rng.normal(120, 30, n_images).astype(np.float32),
            "digest": np.arange(n_images).astype(str),
        }
    )


def name_alarms(scores):
    """Return the facts above chance by target, without that of all together."""
    is_above = scores["score"] > scores["chance_limit"]
    alarms = scores[is_above & (scores["fact"] != ALL_FACTS)]
    return alarms.groupby("target")["fact"].apply(list).to_dict()


def test_a_class_that_was_saved_at_another_quality_is_a_warning():
    """The JPEG quality is right for every image; the figure shows it."""
    put_photos("cat", seed=1, quality=70)
    put_photos("dog", seed=2, quality=90)
    images = explore.measure(*read())

    scores = explore.score_giveaways(images)

    [quality] = scores[scores["fact"] == "JPEG quality"].to_dict("records")
    assert (quality["score"], quality["chance"]) == (1, 0.5)
    assert "JPEG quality" in name_alarms(scores)[LABEL]
    text = explore.describe_giveaways(scores)
    assert text.startswith("WARNING: without its pixels, a file predicts the label.")
    assert "JPEG quality 100%" in text
    tables = explore.list_giveaways(images, scores)
    assert figures.plot_giveaways(tables).axes[0].get_title("left") == (
        "JPEG quality predicts the label: 100% right, by chance 50%"
    )


def test_larger_test_images_are_a_warning():
    """They differ from the images to train on, whatever the label."""
    images = make_table(300, seed=0)
    images["width"] += 3 * (images["split"] == "test")

    scores = explore.score_giveaways(images)

    alarms = name_alarms(scores)
    assert "width in pixels" in alarms[TEST]
    assert LABEL not in alarms
    assert "WARNING: without its pixels, a file separates test from train" in (
        explore.describe_giveaways(scores)
    )


def test_at_most_one_of_twenty_clean_sets_alarms():
    """Each has some twenty scores, one of which chance would often raise."""
    alarms = 0
    for seed in range(20):
        scores = explore.score_giveaways(make_table(300, seed))
        assert set(scores["target"]) == {LABEL, TEST}
        alarms += (scores["score"] > scores["chance_limit"]).any()
    assert alarms <= 1
    assert "No fact of the files predicts the label" in (
        explore.describe_giveaways(scores)
    )


def test_copies_of_a_file_do_not_predict_one_another():
    """Ten copies of each file would let a tree learn the label of each by heart."""
    files = make_table(60, seed=0)
    copies = pd.concat([files] * 10, ignore_index=True)
    assert not name_alarms(explore.score_giveaways(copies))
    distinct = copies.assign(digest=np.arange(len(copies)).astype(str))
    assert name_alarms(explore.score_giveaways(distinct))


@pytest.mark.parametrize(
    ("name", "values"), [("exif_camera", ["Canon", ""]), ("source", [1, 0])]
)
def test_texts_are_facts_too(name, values):
    """The camera or the source of a class are drawn as shares of it."""
    images = make_table(400, seed=0)
    images[name] = np.where(images["label"] == 0, *values)

    scores = explore.score_giveaways(images)

    figure = figures.plot_giveaways(explore.list_giveaways(images, scores))
    assert figure.axes[0].get_xlabel() == "% of the class"


def test_few_images_are_not_scored(capsys):
    """Nothing can be told from a few images, which is printed."""
    images = make_table(30, seed=0)
    scores = explore.score_giveaways(images)
    assert scores.empty
    assert "20 different images each" in explore.describe_giveaways(scores)
    assert figures.plot_giveaways(explore.list_giveaways(images, scores)) is None
    assert "nothing to draw" in capsys.readouterr().out
