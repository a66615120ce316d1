"""The strip by which 03 explains folds."""

import numpy as np
import pandas as pd

from kaggle_tfr import figures


def test_the_strip_marks_clusters_in_several_folds():
    """By a red frame; each image has its number, and each row its folds."""
    clusters = [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 7]
    names = [*"aaaaaabbbbbb"]
    example = pd.DataFrame({"label_name": names, "cluster": clusters})
    halves = [[0, 2, 4, 5, 6, 7], [1, 3, 8, 9, 10, 11]]
    folds = {"halves": halves, "ours": [range(6), range(6, 12)]}

    pixels = [np.zeros((40, 60, 3), np.uint8)] * 12
    figure = figures.plot_fold_strip(pixels, example, folds)

    frames = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    widths = [frame.get_linewidth() for frame in frames]
    assert widths.count(2.5) == 2
    assert len(widths) == 8
    texts = [text.get_text() for text in figure.axes[0].texts]
    digits = [text for text in texts if text.isdigit()]
    assert digits[:12] == [*map(str, range(12))]
    assert "".join(digits[12:]) == "010100001111" + "000000111111"
