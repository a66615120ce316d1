"""The figures of folds: what is missing, and clusters in several folds."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from kaggle_tfr import figures


def make_folds(n_classes):
    """Four folds with one image of each class in each."""
    names = np.repeat([f"class {number:03d}" for number in range(n_classes)], 4)
    folds = np.tile(range(4), n_classes)
    return pd.DataFrame({"split": "train", "fold": folds, "label_name": names})


HELD_OUT = pd.DataFrame(
    {
        "split": ["train"] * 9 + ["validation"] * 5,
        "fold": [0] * 9 + [-1] * 5,
        "label_name": list("ab" + "a" * 12),
    }
)
NEVER_VALIDATES = pd.DataFrame(
    {
        "split": ["train", "train", "train", "test", "test"],
        "fold": [0, 1, -1, -1, -1],
        "label_name": ["rose", "rose", "rose", "rose", ""],
    }
)
LABELS = pd.DataFrame(
    {
        "split": "train",
        "fold": [0, 1, 0, 1],
        "label_name": ["cat", "cat|dog", "dog", "cat"],
        "cat": [1, 1, 0, 1],
        "dog": ["", "5 9", "1 2", ""],
    }
)
FOUR_FOLDS = [f"fold {number}" for number in range(4)]


@pytest.mark.parametrize(
    ("table", "labels", "title", "columns", "numbers"),
    [
        (make_folds(3), (), "3 classes, each in every fold", FOUR_FOLDS, "1" * 12),
        (
            make_folds(3).drop([5, 8, 9]),
            (),
            "3 classes; missing from a fold (red): class 001, class 002",
            FOUR_FOLDS,
            "110100111111",
        ),
        (
            HELD_OUT,
            (),
            "2 classes; missing from a split (red): b",
            ["train", "validation"],
            "8150",
        ),
        (
            NEVER_VALIDATES,
            (),
            "1 class, each in every fold",
            ["fold 0", "fold 1", "test", "train, never\nvalidates"],
            "1111",
        ),
        (
            LABELS,
            ["cat", "dog"],
            "2 labels in 3 combinations, each in every fold",
            ["fold 0", "fold 1"],
            "1121",
        ),
    ],
)
def test_a_figure_of_folds_counts_images_and_marks_missing_classes(
    table, labels, title, columns, numbers
):
    """Unlabelled test images are not drawn; red numbers are zeros only."""
    figure = figures.plot_folds(table, labels)

    assert figure.get_suptitle() == title
    assert [axis.get_title("left") for axis in figure.axes] == columns
    texts = [text for axis in figure.axes for text in axis.texts]
    assert "".join(text.get_text() for text in texts) == numbers
    red = {text.get_text() for text in texts if text.get_color() != "black"}
    assert red == ({"0"} if "red" in title else set())
    assert plt.get_fignums() == []


def test_of_many_classes_the_largest_and_the_smallest_are_drawn():
    """A class that folds lack is among the smallest."""
    figure = figures.plot_folds(make_folds(20_000).drop([4, 5]))

    assert "(red): class 001" in figure.get_suptitle()
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(names) == 20
    assert names[-1] == "class 001"


def test_images_in_one_fold_are_a_line(capsys):
    """Nothing can be compared then."""
    assert figures.plot_folds(make_folds(3).assign(fold=0)) is None
    assert "No folds: 12 images of 3 classes in one" in capsys.readouterr().out


def test_the_strip_marks_clusters_in_several_folds():
    """By a red frame; each image has its number, and each row its folds."""
    clusters = [0, 0, 1, 1, -2, -3, 2, 2, 3, 3, -4, -5]
    names = np.repeat(["a", "b"], 6)
    example = pd.DataFrame({"label_name": names, "cluster": clusters})
    halves = [[0, 2, 4, 5, 6, 7], [1, 3, 8, 9, 10, 11]]
    folds = {"halves": halves, "ours": [range(6), range(6, 12)]}

    pixels = [np.zeros((40, 60, 3), np.uint8)] * 12
    figure = figures.plot_fold_strip(pixels, example, folds)

    assert figure.get_suptitle() == (
        "halves splits 2 of 4 clusters of copies, the other splitters none"
    )
    frames = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    widths = [frame.get_linewidth() for frame in frames]
    assert widths.count(2.5) == 2
    assert len(widths) == 8
    texts = [text.get_text() for text in figure.axes[0].texts]
    digits = [text for text in texts if text.isdigit()]
    assert digits[:12] == [*map(str, range(12))]
    assert "".join(digits[12:]) == "010100001111" + "000000111111"
