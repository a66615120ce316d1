"""A table that cannot be right stops the run, or is a doubt with what to do."""

import numpy as np
import pandas as pd
import pytest
from support.inputs import put_image, read

from kaggle_tfr.explore.inputs import check_table, note_doubts
from kaggle_tfr.schema import Labels


def make_table(problems, label_names=("x", "y")):
    """Return rows with these problems; the labels of good ones are repeated."""
    n_images = len(problems)
    names = [f"{number}.jpg" for number in range(n_images)]
    images = pd.DataFrame({"image_id": names, "path": names, "problem": problems})
    label = np.arange(n_images) % len(label_names)
    return images.assign(split="train", label=label), Labels("single", (*label_names,))


def test_most_images_that_are_unusable_for_one_reason_stop_the_run():
    """Half of them do not, and neither do files that a CSV does not list."""
    check_table(make_table(["missing file", "no label", "", "missing file"] * 5)[0])
    check_table(make_table(["no row in train.csv"] * 9 + [""])[0])

    damaged = [f"unreadable: {n}" for n in range(11)]
    with pytest.raises(ValueError, match=r"11 of the images, 55%, .*0.jpg': unread"):
        check_table(make_table([*damaged, *[""] * 9])[0])


@pytest.mark.parametrize(
    ("n_images", "names", "label_column", "doubt"),
    [
        (4, "x", "folder", "✗ All images are of one class, 'x'"),
        (21, "abcdefghijk", "folder", "✗ 21 images are of 11 classes"),
        (20, "abcdefghijklmnopqrst", "folder", ""),
        (4, ["x", "images"], "", "✗ A class is called 'images', like a split or a"),
        (4, ["x", "images"], "folder", ""),
    ],
)
def test_what_is_probably_wrong_is_a_doubt(
    n_images, names, label_column, doubt, capsys
):
    """A class that LABEL_COLUMN chooses by its name is not doubted."""
    note_doubts(*make_table([""] * n_images, names), label_column)
    output = capsys.readouterr().out
    assert output.startswith(doubt)
    assert bool(output) == bool(doubt)


def test_a_table_of_test_images_only_is_an_error():
    """The sentence says how to train on them."""
    put_image("test/cat/1.jpg")
    advice = "none of the 1 images is left .* SPLIT_COLUMN"
    with pytest.raises(ValueError, match=advice):
        read()
    assert len(read(split_column="none")[0]) == 1
