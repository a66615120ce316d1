"""Figures: right numbers in them, readable, shown once."""

import importlib.util
import io
import tracemalloc
from base64 import b64decode
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from IPython.core.pylabtools import print_figure
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from kaggle_tfr import figures
from kaggle_tfr.figures import style, words

IMAGES = pd.DataFrame(
    {
        "label_name": ["rose"] * 5 + ["daisy"] * 3 + ["tulip"],
        "problem": [""] * 8 + ["empty file"],
        "width": [100, 200, 300, 400, 500, 100, 100, 100, 0],
        "height": [100] * 8 + [0],
    }
)
IMAGE = np.zeros((20, 30, 3), np.uint8)
EVEN_BITS = np.eye(8, dtype=bool)
COMPARED = pd.DataFrame(
    {"image_id": ["a.jpg", "b"], "psnr": [35.0, np.inf], "psnr_swapped": [22.0, 25.0]}
)
QUALITIES = pd.DataFrame(
    {"quality": [20, 90, 95], "bytes": [1000, 5000, 8000], "psnr": [25.0, 37.0, 40.0]}
)
TWELVE = pd.DataFrame({"label_name": ["rose"] * 12, "cluster": [0] * 3 + [1] * 9})
LIMITS = pd.DataFrame(
    {"value": 10.0, "low": 9.0, "high": 12.0, "limit": 19.0, "text": "10 of 19"},
    index=["part 1"],
)
PREDICTED = pd.DataFrame(
    {"label": [0] * 5 + [1] * 4, "predicted": [0] * 5 + [1] * 3 + [2]}
)
AGES = pd.DataFrame({"label": [1.5, 30, 12], "predicted": [4, 28, 12.5]})
AGES["error"] = (AGES["label"] - AGES["predicted"]).abs()
EXTRA_SOURCE = pd.DataFrame(
    {
        "split": ["train", "train", "test", "test"],
        "fold": [0, -1, -1, -1],
        "label_name": ["rose", "rose", "rose", ""],
    }
)
HELD_OUT = pd.DataFrame(
    {
        "split": ["train"] * 9 + ["validation"] * 5,
        "fold": -1,
        "label_name": list("ab" + "a" * 12),
    }
)


def make_folds(n_classes):
    """Four folds with one image of each class in each."""
    names = [f"class {n // 4:03d}" for n in range(4 * n_classes)]
    return pd.DataFrame(
        {"split": "train", "fold": list(range(4)) * n_classes, "label_name": names}
    )


# All counts are between two major ticks of a logarithmic axis: it labels minor ones.
EVEN_COUNTS = pd.Series([f"class {n}" for n in range(60) for _ in range(7 + n % 3)])
INCOMPLETE_FOLDS = make_folds(3).drop([5, 8, 9])
LABELS = pd.DataFrame({"cat": [1, 1, 0, 1], "dog": ["", "5 9", "1 2", ""]})
NAMES = pd.Series(["cat", "cat|dog", "dog", "cat"])
BY_LABEL = LABELS.assign(split="train", fold=[0, 1, 0, 1], label_name=NAMES)
LONG_NAMES = [
    f"photographs_of_the_garden_in_the_spring_of_2024_{ordinal}.jpg"
    for ordinal in ("1_(first)", "2_(second)", "3_(third)", "4_(fourth)")
]

METRICS = ["cross_entropy", "val_cross_entropy", "accuracy", "val_accuracy"]
AGE_HISTORY = {"error": [9, 5], "val_error": [8, 6]}
HISTORY = {name: [0.9, 0.4, 0.6] for name in METRICS}
INFLATIONS = pd.DataFrame(
    {
        "random folds": [0.8, 0.9],
        "cluster folds": 0.5,
        "gain": 0.3,
        "low": 0.2,
        "high": 0.4,
    },
    pd.MultiIndex.from_product([["remembers"], ["all images", "images with a copy"]]),
)
CURVE = pd.DataFrame(
    {"model": "remembers", "share": [0, 0.5], "gain": [0, 0.3], "low": 0, "high": 0.4}
)
SPEEDS = pd.DataFrame({"disk, alone": [1, 2], "bucket, alone": 3.0}, ["one", "two"])


def list_texts(figure):
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def list_row_names(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


FIGURES = {
    "class_balance": lambda: figures.plot_class_balance(
        IMAGES["label_name"], IMAGES[[]]
    ),
    "many_classes": lambda: figures.plot_class_balance(
        make_folds(100)["label_name"], pd.DataFrame()
    ),
    "even_classes": lambda: figures.plot_class_balance(EVEN_COUNTS, pd.DataFrame()),
    "sizes": lambda: figures.plot_sizes(IMAGES),
    "target_size": lambda: figures.plot_sizes(IMAGES, [700, 250]),
    "counts": lambda: figures.plot_counts({"empty file": 2}, "Rejected", "images"),
    "no_counts": lambda: figures.plot_counts({}, "Rejected", "images"),
    "distances": lambda: figures.plot_distances(pd.Series([0, 3, 40]), 25),
    "folds": lambda: figures.plot_folds(make_folds(3)),
    "more_folds": lambda: figures.plot_folds(EXTRA_SOURCE),
    "many_folds": lambda: figures.plot_folds(make_folds(100)),
    "limits": lambda: figures.plot_limits(LIMITS, "Forecast"),
    "source_check": lambda: figures.plot_source_check(
        [(IMAGE, IMAGE)] * 2, COMPARED, "2 records compared"
    ),
    "quality": lambda: figures.plot_quality(
        QUALITIES, 90, {"plain": 31.0, "good": 45.0}
    ),
    "fold_strip": lambda: figures.plot_fold_strip(
        [IMAGE] * 12, TWELVE, {"A": [[0, 1], range(2, 12)], "B": [range(12)]}
    ),
    "dollars": lambda: figures.plot_counts(
        {"$1 & $2": 1, r"$\frac{$": 2}, "Of $a^b$ and $", "$"
    ),
    "more_dollars": lambda: figures.plot_grid(
        [IMAGE] * 2, [r"$\frac{$", "$$"], title="$\\x$"
    ),
    "named_grid": lambda: figures.plot_grid(
        [IMAGE, None] * 3,
        list("abcdef"),
        columns=2,
        color=["red"] * 6,
        row_names=LONG_NAMES[:3],
        column_names=LONG_NAMES[:2],
    ),
    "bits": lambda: figures.plot_bits(
        {"one": IMAGE, "copy": IMAGE, "other": IMAGE},
        {"one": [EVEN_BITS], "copy": [EVEN_BITS], "other": [~EVEN_BITS]},
        ["average"],
    ),
    "wall": lambda: figures.plot_wall([IMAGE] * 10, [False, True] * 5, "Ten"),
    "confusion": lambda: figures.plot_predictions(
        PREDICTED, ["daisy", "rose", "tulip"]
    ),
    "many_confusions": lambda: figures.plot_predictions(PREDICTED, range(81_313)),
    "ages": lambda: figures.plot_predictions(AGES, ()),
    "held_out": lambda: figures.plot_folds(HELD_OUT),
    "most_classes": lambda: figures.plot_folds(make_folds(20_000)),
    "lacking": lambda: figures.plot_folds(INCOMPLETE_FOLDS),
    "several_labels": lambda: figures.plot_class_balance(NAMES, LABELS),
    "folds_of_labels": lambda: figures.plot_folds(BY_LABEL, ["cat", "dog"]),
    "many_steep": lambda: figures.plot_folds(make_folds(100).iloc[2:300]),
    "many_pairs": lambda: figures.plot_distances(pd.Series([3] * 3000 + [40]), 25),
    "long_names": lambda: figures.plot_pairs(
        [(IMAGE, IMAGE)] * 2, [LONG_NAMES[:2], LONG_NAMES[2:]], "x"
    ),
    "long_classes": lambda: figures.plot_counts(
        dict.fromkeys(LONG_NAMES, 1), "word " * 40, "images"
    ),
    "long_confusions": lambda: figures.plot_predictions(PREDICTED, LONG_NAMES),
    "leakage": lambda: figures.plot_leakage(INFLATIONS, "Copies add 30 points"),
    "inflation": lambda: figures.plot_inflation(
        CURVE, INFLATIONS.xs("all images", level=1), 0.1, "Copies add 30 points"
    ),
    "speeds": lambda: figures.plot_speeds(SPEEDS, "Parallel decoding brings most"),
    "windows": lambda: figures.plot_windows(
        [IMAGE], [[[0, 0, 20, 20], [0, 5, 20, 20]]], [[IMAGE, IMAGE]], ["a"], "Windows"
    ),
    "learning": lambda: figures.plot_learning(
        {0: HISTORY, 1: HISTORY}, pd.Series([0, 1, 2, 0]), ["cat", "cow", "dog"]
    ),
    "learning_ages": lambda: figures.plot_learning({0: AGE_HISTORY}, AGES["label"], ()),
    "masks": lambda: figures.plot_masks(
        IMAGE, {"fish": np.eye(20, 30, dtype=np.uint8)}
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_and_closed(name, tmp_path):
    """It can be saved, is not shown again by pyplot, and contains all its texts."""
    figure = FIGURES[name]()
    figure.savefig(tmp_path / "figure.png")
    box = figure.get_tightbbox()

    assert isinstance(figure, Figure)
    assert plt.get_fignums() == []
    assert (tmp_path / "figure.png").stat().st_size > 500
    assert min(box.x0, box.y0) > -0.05
    assert box.x1 < figure.get_figwidth() + 0.05
    assert box.y1 < figure.get_figheight() + 0.05
    for text in figure.findobj(Text):
        assert not text.get_parse_math()
        assert "mathdefault" not in text.get_text()


@pytest.mark.parametrize(
    ("name", "numbers", "names"),
    [
        ("class_balance", "5 3 1", "rose daisy tulip"),
        ("folds", " ".join("1" * 12), "class 000 class 001 class 002"),
        ("confusion", "5 0 0 0 3 1 0 0 0", "daisy rose tulip"),
        ("many_confusions", "3 1 0 0", "1 2"),
        ("several_labels", "3 2", "cat dog"),
        ("folds_of_labels", "1 2 1 1", "cat dog"),
    ],
)
def test_counts_are_beside_the_names_of_their_classes(name, numbers, names):
    """The largest class is first; of 81,313 classes, the confused ones are drawn."""
    figure = FIGURES[name]()
    assert " ".join(list_texts(figure)) == numbers
    assert " ".join(list_row_names(figure)) == names


def test_folds_show_what_never_validates_and_only_labelled_test_images():
    """Training rows without a fold have a column; unlabelled test images have none."""
    figure = FIGURES["more_folds"]()
    columns = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert columns == ["fold 0", "test", "train, never\nvalidates"]
    assert list_texts(figure) == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("draw", "line"),
    [
        (lambda: figures.plot_pairs([], [], title="0 pairs"), "0 pairs"),
        (
            lambda: figures.plot_distances(pd.Series([], dtype=int), 25),
            "0 pairs within 25 bits",
        ),
        (
            lambda: figures.plot_folds(make_folds(100).assign(fold=-1)),
            "No folds: 400 images of 100 classes",
        ),
        (
            lambda: figures.plot_source_check([], COMPARED.head(0), "0 records"),
            "0 records",
        ),
        (
            lambda: figures.plot_predictions(PREDICTED.head(8), range(81_313)),
            "0 of 8 images misclassified",
        ),
        (
            lambda: figures.plot_limits(LIMITS.assign(limit=9e9), "Parts"),
            "part 1: 10 of 19",
        ),
    ],
)
def test_an_empty_case_is_a_line(draw, line, tmp_path, capsys):
    """No empty frame is drawn, and the figure of an earlier run is removed."""
    figures.save_figure(FIGURES["counts"](), str(tmp_path), "drawn")
    assert figures.save_figure(draw(), str(tmp_path), "drawn") is None
    assert line in capsys.readouterr().out
    assert not (tmp_path / "figures" / "drawn.png").exists()


def test_confusions_of_many_classes_take_the_memory_of_those_drawn():
    """A table of all 4,000 mistaken classes would take 128 MB, of 81,313 over 50 GB."""
    classes = np.arange(4000)
    oof = pd.DataFrame({"label": classes, "predicted": classes[::-1]})
    tracemalloc.start()
    figure = figures.plot_predictions(oof, range(81_313))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert len(list_row_names(figure)) == 40


def test_titles_contain_the_finding():
    """Titles contain how many there are, how far off they are, and what is wrong."""
    expected_titles = {
        "class_balance": "9 images of 3 classes, 1 to 5 each, median 3",
        "distances": "2 pairs within 25 bits, 1 beyond",
        "folds": "3 classes × 4 folds: none is off its share by more than 0.0 images",
        "held_out": "2 classes × 2 splits: b is missing from validation",
        "lacking": "3 classes × 4 folds: class 001, class 002 are missing from a fold",
        "several_labels": (
            "4 images of 2 labels in 3 combinations, 2 to 3 each, median 2"
        ),
        "many_folds": (
            "100 classes × 4 folds: none is off its share by more than 0.0 images"
        ),
        "folds_of_labels": (
            "2 labels in 3 combinations × 2 folds: "
            "none is off its share by more than 0.2 images"
        ),
        "limits": "Forecast: all within",
        "quality": "Quality 90: 5.0 kB, 37.0 dB; quality 95: 1.6 × the bytes, +3.0 dB",
        "fold_strip": "A splits 1 of 2 clusters of copies, the other splitters none",
        "learning": (
            "After epoch 3, the last: cross-entropy 0.60 (class shares: 1.04), "
            "accuracy 60.0% (always cat: 50.0%)"
        ),
        "learning_ages": "After epoch 2, the last: error 6 (always 12: 9.5)",
        "ages": "The mean absolute error of 3 images is 1.667",
        "confusion": "1 of 9 images misclassified",
    }
    for name, expected in expected_titles.items():
        figure = FIGURES[name]()
        titles = [axis.get_title("left") for axis in figure.axes]
        titles.append(figure.get_suptitle())
        # A long title has two lines.
        assert expected in [title.replace("\n", " ") for title in titles]


def test_long_names_do_not_overlap_and_their_ends_are_visible():
    """Long file names are cut in the middle, so that adjacent ones do not overlap."""
    figure = FIGURES["long_names"]()
    figure.draw_without_rendering()
    cells = [
        axis.xaxis.label.get_window_extent() for axis in figure.axes if axis.images
    ]
    assert len(cells) == 4
    assert all(left.x1 < right.x0 for left, right in pairwise(cells))
    titles = [axis.get_xlabel() for axis in figure.axes if axis.images]
    assert all(title.startswith("photogra") for title in titles)
    assert all(title.endswith(").jpg") for title in titles)


def test_characters_without_a_font_become_codes(monkeypatch, tmp_path, recwarn):
    """A font that has them is used otherwise. Nothing is drawn as an empty box."""
    words._drawable_characters.cache_clear()
    monkeypatch.setitem(style.STYLE, "font.family", ["DejaVu Sans"])
    figure = figures.plot_counts({"花": 1, "żółw": 2, "a\nb": 3}, "花 1", "images")
    figure.savefig(tmp_path / "figure.png")
    assert list_row_names(figure) == [r"\u82b1", "żółw", r"a\nb"]
    assert figure.get_suptitle() == r"\u82b1 1"
    words._drawable_characters.cache_clear()
    monkeypatch.setitem(style.STYLE, "font.family", ["sans-serif", "STIXGeneral"])
    figure = figures.plot_counts({"⃝": 1}, "⃝", "images")  # not in DejaVu Sans
    figure.savefig(tmp_path / "figure.png")
    assert list_row_names(figure) == ["⃝"]
    assert [str(warning.message) for warning in recwarn] == []
    words._drawable_characters.cache_clear()


def test_installed_fonts_are_used(monkeypatch):
    """Matplotlib's own font is first, then the listed fonts that it found."""
    installed = [font_manager.FontEntry(name=name) for name in ("Arial", "Unifont")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", installed)
    spec = importlib.util.spec_from_file_location("figures_again", style.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.STYLE["font.family"] == ["sans-serif", "Unifont"]


def test_one_panorama_does_not_squeeze_the_others():
    """100 and 200 pixels stay an eighth of the frame apart beside 20,000 pixels."""
    table = pd.DataFrame(
        {"problem": "", "width": [100, 200] * 99 + [20_000], "height": 100}
    )
    axis = figures.plot_sizes(table).axes[0]
    places = axis.transData.transform([(100, 100), (200, 100), (20_000, 100)])
    left, middle, right = axis.transAxes.inverted().transform(places)[:, 0]
    assert 0 < left < middle - 1 / 8
    assert right < 1


def test_a_saved_figure_is_cut_as_in_a_notebook(tmp_path):
    """The captions below a high image are outside of the figure's own frame."""
    high = np.zeros((300, 200, 3), np.uint8)
    wide = np.zeros((100, 200, 3), np.uint8)
    captions = [("a\nrose", "b\nrust")] * 2
    pairs = [(high, high), (wide, wide)]

    figures.save_figure(figures.plot_pairs(pairs, captions), str(tmp_path), "pairs")

    saved = Image.open(tmp_path / "figures" / "pairs.png")
    png = print_figure(figures.plot_pairs(pairs, captions), base64=True)
    displayed = Image.open(io.BytesIO(b64decode(png)))
    assert saved.size == displayed.size


def test_a_size_plot_counts_the_images_that_are_too_small():
    """The frame contains the size to write, in height or in width.

    Rejected images have no size.
    """
    figure = FIGURES["target_size"]()
    title = "8 of 8 images have a side below IMAGE_SIZE = [700, 250]"
    assert figure.get_suptitle() == title
    axis = figure.axes[0]
    assert axis.get_ylim()[1] > 700
    assert len(axis.collections[0].get_offsets()) == 8


def test_captions_are_readable():
    """All texts of a grid have at least 9 points, and empty places have none."""
    figure = FIGURES["named_grid"]()
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 9
    assert [axis.get_xlabel() for axis in figure.axes] == ["a", "", "c", "", "e", ""]


def test_a_single_epoch_is_in_the_middle():
    """It is epoch 1, with half an epoch on either side."""
    history = {name: [0.5] for name in METRICS}
    figure = figures.plot_learning({0: history}, pd.Series([0]), ["cat"])
    assert figure.axes[0].get_xlim() == (0.5, 1.5)
