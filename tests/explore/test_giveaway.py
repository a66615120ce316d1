"""Facts of files that predict the label or the split are named, and chance is not."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells


def make_table(n_images, seed):
    """Return a table of images whose facts depend on nothing."""
    rng = np.random.default_rng(seed)
    choices = {
        "split": ["test", *["train"] * 4],
        "label_name": list("abc"),
        "width": [640, 800, 1024],
        "height": [480, 600, 768],
        "n_bytes": range(10_000, 90_000),
        "brightness": range(80, 160),
        "format": ["PNG", *["JPEG"] * 9],
        "jpeg_quality": [70, 80, 90],
        "exif_camera": ["", "Canon", "Nikon"],
        "exif_time": ["", "2026-05-01 07:00:00", "2026-05-01 19:00:00"],
    }
    columns = {name: rng.choice(values, n_images) for name, values in choices.items()}
    return pd.DataFrame(columns).assign(source=0, label=0, digest=range(n_images))


def score(images):
    """Return the names after the cells of 01 about giveaways."""
    return run_cells("01-19", "01-21", "01-23", good=images, plt=plt)


@pytest.mark.parametrize(
    ("fact", "target", "values", "text"),
    [
        ("exif_camera", "label_name", ["Nikon", ""], "predicts the label"),
        ("brightness", "split", [90, 99], "separates test from train"),
    ],
)
def test_a_fact_that_predicts_the_label_or_the_split_is_a_warning(
    fact, target, values, text, capsys
):
    """The fact may be a text or a number."""
    images = make_table(400, seed=0)
    images[fact] = np.where(images[target].isin(["a", "train"]), *values)
    score(images)
    assert f"! Without its pixels, a file {text} ({fact}: " in capsys.readouterr().out


def test_at_most_one_of_ten_clean_sets_alarms():
    """Each has some twenty scores, one of which chance would often raise."""
    alarms = 0
    for seed in range(10):
        names = score(make_table(300, seed))
        assert len(names["targets"]) == 2
        alarms += not names["above"].empty
    assert alarms <= 1
