"""The figures of folds: what is missing, and clusters in several folds."""

import matplotlib.pyplot as plt
import pandas as pd

from kaggle_tfr import figures
from kaggle_tfr.figures import style
from kaggle_tfr.plan import count_by_fold
from kaggle_tfr.schema import Labels


def test_a_figure_of_folds_counts_images_and_marks_missing_classes():
    """Unlabelled test images are not drawn; red numbers are zeros only."""
    columns = {
        "split": ["train", "train", "train", "test", "test"],
        "fold": [0, 1, -1, -1, -1],
        "label_name": ["a", "a", "", "a", ""],
    }
    counts = count_by_fold(pd.DataFrame(columns), Labels(classes=("a", "b")))

    with plt.rc_context(style.STYLE):  # as `notebook.start` sets it
        figure = figures.plot_folds(counts)

    assert figure.get_suptitle() == "Classes that a fold or a split lacks: 2 of 3"
    places = ["fold 0", "fold 1", "test", "train only"]
    assert [axis.get_title("left") for axis in figure.axes] == places
    texts = [text for axis in figure.axes for text in axis.texts]
    assert "".join(text.get_text() for text in texts) == "100100100010"
    red = [text.get_text() for text in texts if text.get_color() == figures.RED]
    assert red == ["0"] * 4


def test_of_many_classes_the_largest_and_the_smallest_are_drawn():
    """They are in the order of the table."""
    names = [f"class {number:05d}" for number in range(20_000)]
    figure = figures.plot_folds(pd.DataFrame(1, names, ["fold 0", "fold 1"]))

    labels = figure.axes[0].get_yticklabels()
    drawn = [label.get_text() for label in labels]
    assert drawn == names[:10] + names[-10:]
