"""Pairs prepared for tables and figures."""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.display import count_by_radius, examples_around


def test_the_table_of_radii_counts_pairs_and_agreement():
    """Three pairs have two labels, which differ in the second; one has a test image."""
    images = pd.DataFrame({"label": [0, 0, 1, 1, -1]})
    pairs = pd.DataFrame(
        {
            "a": [0, 1, 2, 2],
            "b": [1, 2, 3, 4],
            "distance": [0, 7, 9, 9],
        }
    )

    table = count_by_radius(images, pairs, [0, 5, 9])

    assert list(table) == ["radius", "pairs", "agree", "new", "new_agree"]
    assert table["radius"].tolist() == [0, 5, 9]
    assert table["pairs"].tolist() == [1, 1, 4]
    assert table["new"].tolist() == [1, 0, 3]
    np.testing.assert_allclose(
        table["agree"],
        [1, 1, 2 / 3],
    )
    np.testing.assert_allclose(
        table["new_agree"],
        [1, np.nan, 0.5],
    )


def test_examples_come_from_both_sides_of_the_radius():
    """The two nearest the radius within it, then the two nearest beyond it."""
    pairs = pd.DataFrame({"distance": [3, 25, 26, 10, 40, 24]})

    within, beyond = examples_around(pairs, 25, 2)

    assert within["distance"].tolist() == [25, 24]
    assert beyond["distance"].tolist() == [26, 40]
