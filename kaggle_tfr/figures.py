"""Every plot of the notebooks.

Each function returns one closed Figure, so that a notebook shows it once, or None after
it has printed a line where there is nothing to draw.
"""

import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from contextlib import ContextDecorator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import font_manager, ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from kaggle_tfr.storage import is_remote, write_atomically

BLUE = "#31688e"
ORANGE = "#e07b39"
GREY = "#9aa0a6"
RED = "#c0392b"

NEVER_VALIDATES = "train, never\nvalidates"
NO_LABEL = "(no label)"
MANY_CLASSES = 40  # more names than this do not fit beside bars
LONGEST_NAME = 40  # characters of a class name beside bars
CHARACTER_WIDTH = 0.6  # average width of a character, as a share of the font size
TITLE_INCHES = 0.085  # average width of a character of a figure's title
MAX_PSNR = 60  # dB; a larger one is drawn at the edge

# Fonts with the characters that Matplotlib's own font lacks, the preferred ones first.
OTHER_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans CJK TC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
    "Arial Unicode MS",
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "Noto Sans Thai",
    "Unifont",
)


INSTALLED_FONTS = {font.name for font in font_manager.fontManager.ttflist}

STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.dpi": 110,
    "font.family": [
        "sans-serif",  # Matplotlib's own font
        *(name for name in OTHER_FONTS if name in INSTALLED_FONTS),
    ],
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,
}
# A decorator: the function plots in this module's style. Its type stub is incomplete.
styled: ContextDecorator = plt.rc_context(STYLE)  # type: ignore[assignment]


class StyledFigure(Figure):
    """A figure that is in this module's style also when it is drawn later."""

    def draw(self, renderer: Any) -> None:
        # Matplotlib makes some ticks only now, in the style that is in force.
        with plt.rc_context(STYLE):
            super().draw(renderer)


def new_figure(
    width: float,
    height: float,
    title: str = "",
    *,
    rows: int = 1,
    columns: int = 1,
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """Make a closed figure with a title, and its axes (rows, columns).

    width, height: in inches. options: of `plt.subplots`.
    """
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width, height),
        layout="constrained",
        squeeze=False,
        FigureClass=StyledFigure,
        **options,
    )
    plt.close(figure)
    text = _wrap(title, int(width / TITLE_INCHES))
    figure.suptitle(
        text,
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure, axes


def _new_plot(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Make a figure with one plot, of that size in inches."""
    figure, axes = new_figure(width, height, title)
    return figure, axes[0, 0]


def count_of(number: int, noun: str, ending: str = "s") -> str:
    """Format a number with its noun in the singular or plural.

    >>> count_of(1, "pair"), count_of(4317, "pair"), count_of(2, "class", "es")
    ('1 pair', '4,317 pairs', '2 classes')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def count_classes(label_names: pd.Series, label_columns: Sequence[str] = ()) -> str:
    """Count the classes of images, or their labels and the combinations of them.

    >>> count_classes(pd.Series(["cat", "dog", ""]))
    '2 classes'
    >>> count_classes(pd.Series(["cat|dog", "dog", ""]), ["cat", "dog"])
    '2 labels in 3 combinations'
    """
    if label_columns:
        combinations = count_of(label_names.nunique(), "combination")
        return f"{count_of(len(label_columns), 'label')} in {combinations}"

    named = label_names[label_names != ""]
    return count_of(named.nunique(), "class", "es")


def list_marks(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Return which labels each image has: bool, one column per label.

    A label column holds 0 and 1, or the code of a mask, which is empty for "no".
    """
    values = table[list(label_columns)]
    return values.notna() & ~values.isin([0, ""])


def list_names(names: Sequence[Any] | pd.Index) -> str:
    """List the first three names, and count the others.

    >>> list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    text = ", ".join(shorten(str(name)) for name in names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3:,} more"
    return text


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    r"""Cut the middle out of a long text; wide characters count twice.

    Control characters, and those that no installed font has, become their codes.

    >>> shorten("a_photograph_of_the_garden.jpg", 16), shorten("two\nlines")
    ('a_photog…den.jpg', 'two\\nlines')
    """
    text = "".join(map(_replace_undrawable, text))
    if _width(text) <= longest:
        return text

    while _width(text) >= longest:  # the ellipsis has a column, too
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1 :]
    return text[:middle] + "…" + text[middle:]


def _replace_undrawable(character: str) -> str:
    if ord(character) in _drawable_characters():
        return character
    return character.encode("unicode_escape").decode()


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


@cache
def _drawable_characters() -> frozenset[int]:
    """Return the printable characters that the fonts of this module's style have."""
    codes = set[int]()
    for family in STYLE["font.family"]:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        codes.update(font_manager.get_font(path).get_charmap())
    return frozenset(code for code in codes if chr(code).isprintable())


def _wrap(text: str, longest: int) -> str:
    """Break a text into at most six lines of at most `longest` columns."""
    lines = list[str]()
    for line in text.splitlines():
        lines += textwrap.wrap(line, longest, break_long_words=False)
    return "\n".join(shorten(line, longest) for line in lines[:6])


def _set_log_ticks(axis: Axis) -> None:
    """Label 1, 2, 5, 10, 20, 50 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def save_figure(figure: Figure | None, folder: str, name: str) -> Figure | None:
    """Save the figure as `folder/figures/name.png` in a local folder, and return it.

    figure: None, where a line was printed instead, removes the copy of an earlier run.
    """
    if is_remote(folder):
        return figure

    path = Path(folder) / "figures" / f"{name}.png"
    path.unlink(missing_ok=True)
    if figure:
        png = io.BytesIO()
        figure.savefig(png)
        write_atomically(path, png.getvalue())
    return figure


@styled
def plot_class_balance(label_names: pd.Series, labels: pd.DataFrame) -> Figure | None:
    """Plot images per class, largest first: bars, or a curve for many classes.

    labels: the label columns of images that may have several, and then a bar is a
    label; no column otherwise.
    """
    images = count_of(len(label_names), "image")
    columns = labels.columns.tolist()
    title = f"{images} of {count_classes(label_names, columns)}"
    if label_names.empty:
        print(f"{title}: there is nothing to draw")
        return None

    if columns:
        marks = list_marks(labels, columns)
        counts = marks.sum().sort_values(ascending=False)
    else:
        counts = label_names.replace("", NO_LABEL).value_counts()
    title += f", {counts.min():,} to {counts.max():,} each"
    title += f", median {counts.median():,.0f}"
    if len(counts) <= MANY_CLASSES:
        return plot_counts(counts, title, "images")

    figure, axis = _new_plot(7, 3.2, title)
    ranks = np.arange(1, len(counts) + 1)
    axis.loglog(ranks, counts.to_numpy(), color=BLUE)
    axis.set(xlabel="rank of the class", ylabel="images")
    _set_log_ticks(axis.xaxis)
    _set_log_ticks(axis.yaxis)
    return figure


@styled
def plot_sizes(images: pd.DataFrame) -> Figure | None:
    """Plot width against height of good images, and a histogram of aspect ratios."""
    good = images[images["problem"] == ""]
    if good.empty:
        print("There is no good image, so there are no sizes to draw")
        return None

    figure, axes = new_figure(9, 3.6, columns=2)
    _draw_widths_and_heights(axes[0, 0], good)
    _draw_aspect_ratios(axes[0, 1], good["width"] / good["height"])
    return figure


def _draw_widths_and_heights(axis: Axes, images: pd.DataFrame) -> None:
    sides = images[["width", "height"]]
    longest = sides.max(axis=1)
    shortest = sides.min(axis=1)
    # A panorama must not squeeze all others into a corner.
    edge = min(longest.max(), 2 * longest.quantile(0.99)) * 1.05
    title = f"Short sides of {shortest.min():,.0f} to {shortest.max():,.0f} pixels"
    n_beyond = (longest > edge).sum()
    if n_beyond:
        title += f", {n_beyond:,} are beyond the edge"

    sample = sides.sample(min(len(sides), 20_000), random_state=0)
    axis.scatter(
        sample["width"],
        sample["height"],
        s=4,
        alpha=0.35,
        color=BLUE,
    )
    axis.axline((0, 0), slope=1, color=GREY, linestyle=":")
    axis.set(xlim=(0, edge), ylim=(0, edge))
    axis.set_title(title)
    axis.set_xlabel("width, pixels")
    axis.set_ylabel("height, pixels")


def _draw_aspect_ratios(axis: Axes, ratios: pd.Series) -> None:
    """Draw a histogram of width divided by height, from 1:4 to 4:1."""
    bins = np.geomspace(1 / 4, 4, 41).tolist()
    axis.hist(ratios.clip(1 / 4, 4), bins=bins, color=BLUE)
    axis.axvline(1, color=GREY, linestyle=":")
    axis.set(xscale="log", xlabel="width : height", ylabel="images")
    axis.set_xticks(
        [1 / 4, 1 / 2, 1, 2, 4],
        ["≤ 1:4", "1:2", "1:1", "2:1", "≥ 4:1"],
    )
    axis.minorticks_off()
    axis.locator_params("y", integer=True)
    wide = (ratios > 1).mean()
    tall = (ratios < 1).mean()
    axis.set_title(f"{wide:.0%} are wide, {tall:.0%} are tall")


@styled
def plot_counts(
    counts: Mapping[str, int] | pd.Series, title: str, xlabel: str
) -> Figure:
    """Plot named counts as horizontal bars, in their order."""
    counts = pd.Series(counts, dtype=float)
    figure, axis = _new_plot(7, 0.9 + 0.28 * max(len(counts), 2), title)
    bars = axis.barh(range(len(counts)), counts.to_numpy(), color=BLUE)
    axis.bar_label(bars, fmt="{:,.0f}", padding=3)
    _name_rows(axis, counts.index)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.locator_params("x", integer=True)
    axis.set_xlabel(xlabel)
    return figure


def _name_rows(axis: Axes, names: Collection[Any]) -> None:
    labels = [shorten(str(name)) for name in names]
    axis.set_yticks(range(len(labels)), labels)


@styled
def plot_distances(distances: pd.Series, max_bits: int) -> Figure | None:
    """Plot a histogram of the bits of 256 in which pairs differ, with the radius."""
    inside = distances[distances <= max_bits]
    outside = distances[distances > max_bits]
    pairs = count_of(len(inside), "pair")
    title = f"{pairs} within {max_bits} bits, {len(outside):,} beyond"
    if distances.empty:
        print(title)
        return None

    figure, axis = _new_plot(7, 3, title)
    longest = max(distances.max(), max_bits)
    axis.hist(
        [inside, outside],
        bins=np.arange(-0.5, longest + 1.5).tolist(),
        stacked=True,
        color=[BLUE, GREY],
    )
    axis.locator_params("y", integer=True)
    if axis.get_ylim()[1] > 200:
        axis.set_yscale("symlog", linthresh=10)
        axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.axvline(max_bits + 0.5, color=ORANGE, label=f"MAX_BITS = {max_bits}")
    axis.legend()
    axis.set(xlabel="differing bits of 256", ylabel="pairs")
    return figure


@styled
def plot_grid(
    images: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
    gap: float = 0.0,
    side: float = 1.7,
    color: str = "black",
) -> Figure | None:
    """Plot images, uint8 (height, width, 3), in rows, each under its title.

    gap: after every second column, as a share of a column. side: inches of an image.
    color: of the images' titles.
    """
    if not len(images):
        print(title)
        return None

    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    widths = np.ones(columns)
    if gap:
        widths = np.insert(widths, range(2, columns, 2), gap)
    # A long title needs its space above few images, too.
    figure, axes = new_figure(
        max(side * widths.sum(), TITLE_INCHES * len(title)),
        side * rows + 0.4,
        title,
        rows=rows,
        columns=len(widths),
        width_ratios=widths,
        subplot_kw={"xticks": [], "yticks": [], "frame_on": False},
    )
    cells = axes[:, widths == 1].ravel()
    for axis, image, text in zip(cells, images, titles, strict=False):
        _draw_image(axis, image, text, side, color)
    return figure


def _draw_image(
    axis: Axes, image: np.ndarray, title: str, side: float, color: str
) -> None:
    """Draw an image that is `side` inches wide, under its title."""
    axis.imshow(image)
    axis.set_anchor("N")  # the titles of a row are on one line
    axis.set_frame_on(True)
    axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)

    font_size = 7.5
    longest = int(side * 72 / (font_size * CHARACTER_WIDTH))
    axis.set_title(
        _wrap(str(title), longest),
        color=color,
        fontsize=font_size,
        fontweight="normal",
        loc="center",
    )


def plot_pairs(
    images: Sequence[tuple[np.ndarray, ...]],
    titles: Sequence[tuple[str, ...]],
    title: str = "",
) -> Figure | None:
    """Plot pairs of images, uint8 (height, width, 3), each under its own title."""
    return plot_grid(
        list(chain(*images)),
        list(chain(*titles)),
        title=title,
        gap=0.12,
    )


def plot_masks(image: np.ndarray, masks: Mapping[str, np.ndarray]) -> Figure | None:
    """Plot an image, (height, width, 3), and again under each of its masks.

    masks: uint8 (height, width), by label; one that is all 0 is left out.
    """
    highlighted = (image // 2 + np.array([127, 60, 0])).astype(np.uint8)
    covered = {
        name: np.where(mask[..., None], highlighted, image)
        for name, mask in masks.items()
        if np.any(mask)
    }
    title = f"The image of one record, and {count_of(len(covered), 'mask')} over it"
    return plot_grid(
        [image, *covered.values()],
        ["", *covered],
        title=title,
        columns=5,
        side=2.6,
    )


@styled
def plot_folds(table: pd.DataFrame, label_columns: Sequence[str] = ()) -> Figure | None:
    """Plot images per class and fold, or print a line where all images are in one.

    For more than 40 classes: how far each is from its share of each fold, in images.
    table: rows with split, fold and label_name. label_columns: of images that may have
    several labels; one row of the figure is one label then.
    """
    has_label = table["label_name"] != ""
    table = table[has_label | (table["split"] != "test")]
    counts = _count_by_fold(table, label_columns)
    classes = count_classes(table["label_name"], label_columns)
    if counts.shape[1] < 2:
        print(f"No folds: {count_of(len(table), 'image')} of {classes} in one")
        return None

    # Test images, and training images that never validate beside folds, have no share
    # that they should have.
    has_folds = (table["fold"] >= 0).any()
    noun = "fold" if has_folds else "split"
    without_share = ["test", NEVER_VALIDATES] if has_folds else ["test"]
    compared = counts.drop(columns=without_share, errors="ignore")
    title = f"{classes} × {count_of(compared.shape[1], noun)}: "
    excess = _subtract_fair_shares(compared)
    incomplete = _find_incomplete(compared)
    if len(incomplete):
        title += f"missing from a {noun}: {list_names(incomplete)}"
    else:
        furthest = np.abs(excess).max()
        title += f"none is off its share by more than {furthest:.1f} images"

    if len(counts) > MANY_CLASSES:
        return _plot_excess(excess, title)
    return _plot_fold_counts(counts, title)


def _find_incomplete(counts: pd.DataFrame) -> pd.Index:
    """Return the classes (rows) that are missing from some folds, but not from all."""
    is_missing = counts.min(axis=1) == 0
    is_present = counts.max(axis=1) > 0
    return counts.index[is_missing & is_present]


def _count_by_fold(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Count images by class or label (rows, largest first) and fold (columns)."""
    split_names = table["split"].replace("train", NEVER_VALIDATES)
    fold_names = "fold " + table["fold"].astype(str)
    columns = fold_names.where(table["fold"] >= 0, split_names)
    if label_columns:
        counts = list_marks(table, label_columns).groupby(columns).sum().T
    else:
        names = table["label_name"].replace("", NO_LABEL)
        counts = pd.crosstab(names, columns)
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    return counts.iloc[order]


def _subtract_fair_shares(counts: pd.DataFrame) -> np.ndarray:
    """Return how many images each cell (class × fold) has more than its fair share."""
    images = counts.to_numpy()
    class_totals = images.sum(axis=1)
    fold_shares = images.sum(axis=0) / max(1, images.sum())
    return images - np.outer(class_totals, fold_shares)


def _plot_excess(excess: np.ndarray, title: str) -> Figure:
    figure, axis = _new_plot(7, 3.2, title)
    axis.hist(excess.ravel(), bins=61, color=BLUE, log=True)
    axis.set(xlabel="images more than its share", ylabel="classes × folds")
    _set_log_ticks(axis.yaxis)
    return figure


def _plot_fold_counts(counts: pd.DataFrame, title: str) -> Figure:
    width = max(7.0, 2.2 + 0.65 * counts.shape[1])
    height = 1.1 + 0.3 * max(len(counts), 2)
    figure, axis = _new_plot(width, height, title)
    _draw_counts(axis, counts)
    axis.set_xlabel("images; the darker, the more of the class")
    return figure


def _draw_counts(axis: Axes, counts: pd.DataFrame) -> None:
    """Draw a table of numbers; the darker a cell, the larger its share of the row."""
    totals = counts.sum(axis=1).clip(lower=1)
    shares = counts.div(totals, axis=0).to_numpy()
    axis.imshow(
        shares,
        aspect="auto",
        cmap="Blues",
        vmin=0,
        # A half of the colours, so that black numbers are readable on each of them.
        vmax=2 * shares.max(initial=0),
    )
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        axis.text(
            column,
            row,
            f"{count:,}",
            ha="center",
            va="center",
            fontsize=8,
        )
    axis.set_xticks(range(counts.shape[1]), counts.columns.astype(str))
    _name_rows(axis, counts.index)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


@styled
def plot_limits(rows: pd.DataFrame, title: str) -> Figure | None:
    """Plot bars as shares of their limits; pale: to the upper end of the uncertainty.

    Where all are below 2 % of the limit, the texts are printed instead.
    rows: columns value, high, limit (one unit) and text, the label of the bar.
    """
    percent = 100 * rows[["value", "high"]].div(rows["limit"], axis=0)
    fits = rows["high"] <= rows["limit"]
    too_large = ", ".join(rows.index[~fits])
    title += f": too much for {too_large}" if too_large else ": all within"
    if percent["high"].max() < 2:
        print(title, *(rows.index + ": " + rows["text"]), sep="\n")
        return None

    figure, axis = _new_plot(7, 0.9 + 0.42 * max(len(rows), 2), title)
    colors = np.where(fits, BLUE, RED)
    highest = percent.max(axis=1)
    bars = axis.barh(rows.index, highest, color=colors, alpha=0.4)
    axis.barh(rows.index, percent["value"], color=colors)
    axis.bar_label(bars, rows["text"], padding=5)
    axis.axvline(100, color=ORANGE, label="limit")
    axis.set_xlim(0, max(130, highest.max() * 1.4))
    axis.set_xlabel("% of the limit")
    axis.invert_yaxis()
    axis.legend()
    return figure


@styled
def plot_source_check(sources: pd.DataFrame) -> Figure | None:
    """Plot how well records fit their sources, as written and with colours swapped.

    sources: columns psnr and psnr_swapped, in dB, and problem.
    """
    n_wrong = (sources["problem"] != "").sum()
    records = count_of(len(sources), "record")
    title = f"{records} beside their sources: {n_wrong} swapped or rotated"
    if sources.empty:
        print(title)
        return None

    psnr = sources[["psnr", "psnr_swapped"]].clip(upper=MAX_PSNR)
    figure, axis = _new_plot(7, 3.4, title)
    axis.scatter(
        psnr["psnr"],
        psnr["psnr_swapped"],
        s=8,
        color=BLUE,
        label="record",
    )
    axis.axline(
        (MAX_PSNR, MAX_PSNR + 1),
        slope=1,
        color=RED,
        label="fails above: swapped colours fit better by 1 dB",
    )
    axis.legend()
    axis.set_xlabel(f"PSNR as written, dB; {MAX_PSNR} or more: equal pixels")
    axis.set_ylabel("with red and blue swapped, dB")
    return figure


@styled
def plot_learning(history: Mapping[str, Sequence[float]]) -> Figure:
    """Plot each metric by epoch, training and validation, of `model.fit`'s history."""
    # Keras divides the loss of validation by the padding too, so it is misleading.
    metrics = [name for name in history if f"val_{name}" in history and name != "loss"]
    names = metrics or ["loss"]
    figure, axes = new_figure(3.9 * len(names), 2.9, columns=len(names))
    for axis, name in zip(axes.flat, names, strict=True):
        validation = history[f"val_{name}"]
        epochs = np.arange(1, len(validation) + 1)
        axis.plot(epochs, history[name], ".-", color=GREY, label="training")
        axis.plot(epochs, validation, ".-", color=BLUE, label="validation")
        axis.set_title(f"{name}: {validation[-1]:.3f} at the end")
        axis.set_xlabel("epoch")
        axis.set_xlim(0.5, len(epochs) + 0.5)
        axis.set_ylim(0)
        axis.locator_params("x", integer=True)
    axes.flat[0].legend()
    return figure


@styled
def plot_confusion(confusions: pd.DataFrame, classes: Sequence[Any]) -> Figure | None:
    """Plot images by true and predicted class; the darker, the more of the row.

    For more than 40 classes, those of the most frequent mistakes; without a mistake, a
    line is printed.
    confusions: columns true and predicted (indices of `classes`) and images; one row
    for each pair that occurs.
    """
    mistakes = confusions[confusions["true"] != confusions["predicted"]]
    n_mistakes = mistakes["images"].sum()
    title = f"{n_mistakes:,} of {confusions['images'].sum():,} images mistaken"
    drawn = list(range(len(classes)))
    if len(classes) > MANY_CLASSES:
        if mistakes.empty:
            print(title)
            return None
        drawn = _find_most_confused(mistakes)
        title += f", the {len(drawn)} most confused of {len(classes):,} classes"

    names = [shorten(str(classes[number]), 30) for number in drawn]
    counts = _tabulate(confusions, drawn)
    counts.index = counts.columns = pd.Index(names)
    side = min(12, 2 + 0.55 * max(len(names), 6))
    figure, axis = _new_plot(side, side, title)
    _draw_counts(axis, counts)
    axis.tick_params(axis="x", rotation=90)
    axis.set(xlabel="predicted class", ylabel="true class; darker: more of the row")
    return figure


def _tabulate(confusions: pd.DataFrame, drawn: list[int]) -> pd.DataFrame:
    """Return the images by true (rows) and predicted class, of the drawn classes."""
    is_drawn = confusions[["true", "predicted"]].isin(drawn).all(axis=1)
    pairs = confusions[is_drawn]
    counts = pairs.pivot_table("images", "true", "predicted", aggfunc="sum")
    return counts.reindex(index=drawn, columns=drawn).fillna(0).astype("int64")


def _find_most_confused(mistakes: pd.DataFrame) -> list[int]:
    """Return the classes, sorted, of the most frequent mistakes."""
    most_frequent = mistakes.sort_values("images", ascending=False, kind="stable")
    pairs = most_frequent[["true", "predicted"]].to_numpy()
    return sorted(pd.unique(pairs.ravel())[:MANY_CLASSES].tolist())


@styled
def plot_leakage(
    leaky: float, honest: float, low: float, high: float, title: str
) -> Figure:
    """Plot the accuracy with random folds and with cluster folds, from 0 to 1.

    low, high: the 95 % interval of what random folds add.
    """
    figure, axis = _new_plot(7, 1.9, title)
    names = ["folds at random,\ncopies in both", "each cluster\nin one fold"]
    bars = axis.barh(names, [leaky, honest], color=[ORANGE, BLUE])
    axis.bar_label(bars, fmt="{:.1%}", label_type="center", color="white")
    axis.hlines(names[0], honest + low, honest + high, color="black")
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of right answers; line: 95 % interval of what is added")
    return figure
