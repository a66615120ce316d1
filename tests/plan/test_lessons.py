"""The images with which 03 explains folds and resizing."""

import cv2
import numpy as np
import pandas as pd
from PIL import Image

from kaggle_tfr import figures
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.plan import assign_folds, choose_fold_example, load_textured

HALF = 128  # pixels: a third of the images


def make_images(label_names):
    ids = [f"{number}.jpg" for number in range(len(label_names))]
    return pd.DataFrame(
        {
            "image_id": ids,
            "path": ids,
            "label": pd.factorize(np.array(label_names), sort=True)[0],
            "label_name": label_names,
            "split": "train",
            "problem": "",
        }
    )


def make_clusters(images, clusters):
    """Return clusters of row numbers as 02 saves them; the first row is kept."""
    rows = []
    for number, members in enumerate(clusters):
        for row in members:
            image_id = images["image_id"][row]
            rows.append((image_id, "train", number, row == members[0]))
    return pd.DataFrame(rows, columns=["image_id", "split", "cluster", "keep"])


def test_the_example_has_the_clusters_of_the_data():
    """The two classes with most copies, their largest clusters, then single images."""
    images = make_images([*"aaaaaaaa", *"bbbbbbbb", *"cccc"])
    copies = [[0, 1, 2, 3], [5, 6], [8, 9, 10], [11, 12, 13], [16, 17]]
    clusters = make_clusters(images, copies)

    example = choose_fold_example(images, clusters)

    assert "".join(example["label_name"]) == "a" * 6 + "b" * 6
    paths = example["path"].str.removesuffix(".jpg").astype(int).tolist()
    assert paths == [0, 1, 2, 5, 6, 4, 8, 9, 10, 11, 12, 14]
    assert example["cluster"].tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5]


def test_the_example_repeats_images_where_the_data_has_too_few():
    """One image without a copy still gives twelve, which three folds can share."""
    images = make_images(["a"])

    example = choose_fold_example(images, make_clusters(images, []))

    assert len(example) == 12
    folded = assign_folds(example, n_folds=3, seed=0)
    assert folded.groupby("cluster")["fold"].nunique().max() == 1


def test_the_strip_marks_clusters_in_several_folds():
    """By a red frame; each image has its number, and each row its folds."""
    images = make_images([*"aaaaaa", *"bbbbbb"])
    clusters = make_clusters(images, [[0, 1], [2, 3], [6, 7], [8, 9]])
    example = choose_fold_example(images, clusters)
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


def save_stripes(path, period, size=384):
    """Save diagonal stripes as a JPEG."""
    rows, columns = np.mgrid[:size, :size]
    levels = 127 + 100 * np.sin(2 * np.pi * (rows + columns) / period)
    grey = levels.astype(np.uint8)
    Image.fromarray(grey).convert("RGB").save(path, quality=95)


def test_the_image_that_aliases_most_is_chosen(tmp_path):
    """Stripes narrower than a pixel of the small image become coarse by skipping."""
    periods = {"coarse.jpg": 96, "fine.jpg": 4.4, "medium.jpg": 24}
    for name, period in periods.items():
        save_stripes(tmp_path / name, period)
    paths = [str(tmp_path / name) for name in periods]
    n_bytes = [(tmp_path / name).stat().st_size for name in periods]
    rows = pd.DataFrame({"path": paths, "n_bytes": n_bytes, "format": "JPEG"})

    pixels, size = load_textured(rows, ImageSettings((HALF, HALF)))

    expected = np.asarray(Image.open(tmp_path / "fine.jpg"))
    assert np.abs(pixels.astype(int) - expected).max() <= 3
    assert size == (HALF, HALF)
    skipping = cv2.resize(pixels, size)
    averaged = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    assert skipping.std() > 2 * averaged.std()
