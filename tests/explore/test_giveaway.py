"""Facts of files that predict the label or the split are named, and chance is not."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def make_table(n_images, seed):
    """Return a table of images whose facts depend on nothing."""
    rng = np.random.default_rng(seed)
    choices = {
        "split": ["test", *["train"] * 4],
        "label": range(3),
        "width": [640, 800, 1024],
        "height": [480, 600, 768],
        "format": ["PNG", *["JPEG"] * 9],
        "jpeg_quality": [70, 80, 90],
        "exif_camera": ["", "Canon", "Nikon"],
        "exif_time": ["", "2026-05-01 07:00:00", "2026-05-01 19:00:00"],
    }
    columns = {name: rng.choice(values, n_images) for name, values in choices.items()}
    columns["n_bytes"] = rng.lognormal(10, 1, n_images)
    columns["brightness"] = rng.normal(120, 30, n_images)
    images = pd.DataFrame(columns).assign(source=0)
    names = {"label_name": images["label"].astype(str)}
    return images.assign(digest=images.index.astype(str), **names)


def score(images):
    """Return the names after the cells of 01 about giveaways."""
    return run_cells("01-19", "01-21", "01-23", good=images, plt=plt)


FACTS = {
    "jpeg_quality": ("label", [70, 90], "a file predicts the label"),
    "exif_camera": ("label", ["Nikon", ""], "a file predicts the label"),
    "brightness": ("split", [90, 99], "a file separates test from train"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_that_predicts_the_label_or_the_split_is_a_warning(name, capsys):
    """The figure shows it, also one that is a text."""
    target, values, text = FACTS[name]
    images = make_table(400, seed=0)
    images[name] = np.where(images[target].isin([0, "train"]), *values)

    axis = score(images)["axis"]

    assert f"! Without its pixels, {text} ({name}: " in capsys.readouterr().out
    assert axis.get_xlabel() == name
    axis.figure.canvas.draw()
    ticks = {label.get_text() for label in axis.get_xticklabels()}
    assert name != "exif_camera" or ticks == set(values)


def test_at_most_one_of_twenty_clean_sets_alarms():
    """Each has some twenty scores, one of which chance would often raise."""
    alarms = 0
    for seed in range(20):
        names = score(make_table(300, seed))
        assert len(names["targets"]) == 2
        alarms += not names["above"].empty
    assert alarms <= 1
