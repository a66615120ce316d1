"""Figures: each function returns one closed Figure, so that a notebook shows it once."""

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
from matplotlib.image import AxesImage

from kaggle_tfr.images.header import squeeze
from kaggle_tfr.storage import write_atomically

BLUE, ORANGE, GREY, RED = "#31688e", "#e07b39", "#9aa0a6", "#c0392b"
NEVER = "train, never\nvalidates"
NO_LABEL = "(no label)"
MANY_CLASSES = 40  # more names than this do not fit beside bars
LONGEST_NAME = 40  # characters of a class beside bars
CHARACTER = 0.6  # of a font's size: its average width
# Fonts with the characters that Matplotlib's own lacks, in the order of preference.
OTHER_FONTS = (
    *(f"Noto Sans CJK {place}" for place in ("SC", "JP", "KR", "TC")),
    *("Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("Microsoft YaHei", "PingFang SC", "Hiragino Sans", "Arial Unicode MS"),
    *(
        "Noto Sans",
        "Noto Sans Devanagari",
        "Noto Sans Arabic",
        "Noto Sans Thai",
        "Unifont",
    ),
)
STYLE: Any = dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.grid"), False)
STYLE |= {
    "figure.dpi": 110,
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,
}
STYLE |= {
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}


def choose_fonts(installed: Collection[str]) -> list[str]:
    """Matplotlib's own font, and after it those of `OTHER_FONTS` that are installed.

    >>> choose_fonts({"Arial", "Noto Sans CJK JP"})
    ['sans-serif', 'Noto Sans CJK JP']
    """
    return ["sans-serif", *(name for name in OTHER_FONTS if name in installed)]


STYLE["font.family"] = choose_fonts(
    {font.name for font in font_manager.fontManager.ttflist}
)
HEAD: Any = {"x": 0.01, "ha": "left", "fontsize": 10, "fontweight": "bold"}
# A decorator: the function plots in this module's style.
styled: ContextDecorator = plt.rc_context(STYLE)  # type: ignore[assignment]  # its stub says less


class StyledFigure(Figure):
    """A figure in this module's style, also where ticks are made only when it is drawn."""

    def draw(self, renderer: Any) -> None:
        with plt.rc_context(STYLE):
            super().draw(renderer)

    def get_tightbbox(self, *arguments: Any, **options: Any) -> Any:
        with plt.rc_context(STYLE):
            return super().get_tightbbox(*arguments, **options)


def new_figure(
    rows: int,
    columns: int,
    width: float,
    height: float,
    *,
    whole: Any = "",
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """(Figure, axes of shape (rows, columns)), inches; closed, so a notebook shows it once.

    whole: "x" or "y", the axis with ticks at whole numbers only.
    """
    options |= {"figsize": (width, height), "layout": "constrained", "squeeze": False}
    options["FigureClass"] = StyledFigure
    figure, axes = plt.subplots(rows, columns, **options)
    for axis in axes.flat if whole else ():
        axis.locator_params(whole, integer=True)
    plt.close(figure)
    return figure, axes


def count_of(number: int, noun: str, ending: str = "s") -> str:
    """The number with its noun in the singular or plural.

    >>> count_of(1, "pair"), count_of(4317, "pair"), count_of(2, "class", "es")
    ('1 pair', '4,317 pairs', '2 classes')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def count_classes(label_names: pd.Series, label_columns: Sequence[str] = ()) -> str:
    """How many classes, or labels and combinations of them, the label_name of images holds.

    >>> count_classes(pd.Series(["cat", "dog", ""])), count_classes(pd.Series([""]))
    ('2 classes', 'no class')
    >>> count_classes(pd.Series(["cat|dog", "dog", ""]), ["cat", "dog"])
    '2 labels in 3 combinations'
    """
    if label_columns:
        combinations = count_of(label_names.nunique(), "combination")
        return f"{count_of(len(label_columns), 'label')} in {combinations}"
    named = label_names[label_names.astype(str) != ""]
    return count_of(named.nunique(), "class", "es") if len(named) else "no class"


def list_marks(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Which labels each image has: bool, a column a label. Codes of masks are empty for no."""
    marks = {}
    for name in label_columns:
        values = table[name]
        is_number = values.dtype.kind in "iufb"
        marks[name] = values > 0 if is_number else values.fillna("") != ""
    return pd.DataFrame(marks, index=table.index)


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    r"""The text as it can be drawn, cut in the middle; wide characters count twice.

    Control characters, and those that no font at hand has, become their codes.

    >>> shorten("a_photograph_of_the_garden.jpg", 16), shorten("two\nlines")
    ('a_photog…den.jpg', 'two\\nlines')
    """
    if not (text.isascii() and text.isprintable()):
        known = _known_characters()
        text = "".join(c if ord(c) in known else _write_code(c) for c in text)
    if _width(text) <= longest:
        return text
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    while _width(head) + 1 + _width(tail) > longest:
        longer_head = _width(head) > _width(tail)
        head, tail = (head[:-1], tail) if longer_head else (head, tail[1:])
    return f"{head}…{tail}"


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def _write_code(character: str) -> str:
    return character.encode("unicode_escape").decode()


@cache
def _known_characters() -> frozenset[int]:
    """The printable characters that the fonts of this module's style have."""
    known = set[int]()
    for family in STYLE["font.family"]:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        known.update(font_manager.get_font(path).get_charmap())
    return frozenset(code for code in known if chr(code).isprintable())


def _set_head(figure: Figure, title: str) -> None:
    """A title over the whole figure, in as many lines as it needs."""
    lines = []
    for line in title.splitlines():
        drawn = shorten(line, 1000)
        lines += textwrap.wrap(drawn, int(figure.get_figwidth() / 0.085)) or [""]
    figure.suptitle("\n".join(lines), **HEAD)


def _set_plain_ticks(axis: Axis, locator: ticker.Locator | None = None) -> None:
    """Ticks that are written as numbers: Matplotlib writes those of a logarithm as formulas."""
    if locator:
        axis.set_major_locator(locator)
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def save_figure(figure: Figure | None, folder: str, name: str) -> Figure | None:
    """The figure itself, after a copy went to `folder/figures/name.png` (local folders only).

    None, in whose place a line was printed, removes the copy of an earlier run.
    """
    if "://" not in str(folder):
        path = Path(folder) / "figures" / f"{name}.png"
        path.unlink(missing_ok=True)
        if figure:
            figure.savefig(picture := io.BytesIO(), format="png", dpi=110)
            write_atomically(path, picture.getvalue())
    return figure


@styled
def plot_class_balance(
    label_names: pd.Series, labels: pd.DataFrame | None = None
) -> Figure | None:
    """Bars of images per class, largest first; a curve over ranks when there are many classes.

    labels: the label columns of images that may have several; then a bar is a label's.
    """
    columns = [] if labels is None else [str(name) for name in labels]
    counts = label_names.replace("", NO_LABEL).value_counts()
    if labels is not None and columns:
        counts = list_marks(labels, columns).sum().sort_values(ascending=False)
    title = f"{count_of(len(label_names), 'image')} of {count_classes(label_names, columns)}"
    if label_names.empty:
        print(f"{title}: there is nothing to draw")
        return None
    title += (
        f", {counts.min():,} to {counts.max():,} each, median {counts.median():,.0f}"
    )
    if len(counts) <= MANY_CLASSES:
        return plot_counts(counts, title, "images")
    figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
    axis.loglog(np.arange(1, len(counts) + 1), counts.to_numpy(), color=BLUE)
    for one in (axis.xaxis, axis.yaxis):
        _set_plain_ticks(one, ticker.LogLocator(subs=(1, 2, 5)))
    axis.set(xlabel="label, by rank" if columns else "class, by rank", ylabel="images")
    _set_head(figure, title)
    return figure


@styled
def plot_sizes(images: pd.DataFrame) -> Figure | None:
    """Width against height of good images, and their aspect ratios; far outliers are counted."""
    good = images[images["problem"] == ""]
    if good.empty:
        print("There is no good image, so there are no sizes to draw")
        return None
    shown = good.sample(min(len(good), 20_000), random_state=0)
    figure, ((left, right),) = new_figure(1, 2, 9, 3.6, whole="y")
    left.scatter(
        shown["width"], shown["height"], s=8, alpha=0.35, color=BLUE, linewidths=0
    )
    longest, short = (
        good[["width", "height"]].max(axis=1),
        good[["width", "height"]].min(axis=1),
    )
    # A panorama must not squeeze all others into a corner.
    edge = min(longest.max(), 2 * longest.quantile(0.99)) * 1.05
    left.plot([0, edge], [0, edge], color=GREY, linewidth=0.8, linestyle=":")
    beyond = (
        f", {beyond:,} are beyond the edge"
        if (beyond := int((longest > edge).sum()))
        else ""
    )
    left.set(
        xlabel="width, pixels", ylabel="height, pixels", xlim=(0, edge), ylim=(0, edge)
    )
    left.set_title(
        f"Short sides of {short.min():,.0f} to {short.max():,.0f} pixels{beyond}"
    )
    ratio = (good["width"] / good["height"]).clip(1 / 4, 4)
    right.hist(ratio, bins=np.geomspace(1 / 4, 4, 41).tolist(), color=BLUE)
    right.set(xscale="log", xlabel="width : height", ylabel="images")
    right.set_xticks([1 / 4, 1 / 2, 1, 2, 4], ["≤ 1:4", "1:2", "1:1", "2:1", "≥ 4:1"])
    right.minorticks_off()
    right.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    right.set_title(
        f"{(ratio > 1).mean():.0%} are wide, {(ratio < 1).mean():.0%} are tall"
    )
    return figure


@styled
def plot_counts(
    counts: Mapping[str, int] | pd.Series, title: str, xlabel: str
) -> Figure:
    """Horizontal bars of named counts, in the order given."""
    counts = pd.Series(counts).round().astype("int64")
    figure, ((axis,),) = new_figure(
        1, 1, 7, 0.9 + 0.28 * max(len(counts), 2), whole="x"
    )
    bars = axis.barh(range(len(counts)), counts.to_numpy(), color=BLUE)
    axis.set_yticks(range(len(counts)), [shorten(str(name)) for name in counts.index])
    axis.bar_label(bars, fmt="{:,.0f}", padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set(xlabel=xlabel)
    _set_head(figure, title)
    return figure


@styled
def plot_distances(distances: pd.Series, max_bits: int) -> Figure | None:
    """A histogram of the bits of 256 in which pairs differ, with the radius drawn in."""
    inside, outside = distances[distances <= max_bits], distances[distances > max_bits]
    title = f"{count_of(len(inside), 'pair')} within {max_bits} bits, {len(outside):,} beyond"
    if not len(distances):
        print(title)
        return None
    figure, ((axis,),) = new_figure(1, 1, 7, 3, whole="y")
    edges = np.arange(-0.5, max(int(distances.max()), max_bits) + 1.5).tolist()
    axis.hist([inside, outside], bins=edges, stacked=True, color=[BLUE, GREY])
    axis.axvline(max_bits + 0.5, color=ORANGE, linewidth=1.2)
    if axis.get_ylim()[1] > 200:
        axis.set_yscale("symlog", linthresh=10)
        _set_plain_ticks(axis.yaxis)
    look: Any = {"color": ORANGE, "ha": "right", "va": "top"}
    axis.text(max_bits, axis.get_ylim()[1], f"MAX_BITS = {max_bits}", **look)
    axis.set(xlabel="differing bits of 256", ylabel="pairs", title=title)
    return figure


@styled
def plot_grid(
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
    gap: float = 0.0,
    side: float = 1.7,
    color: str = "black",
) -> Figure | None:
    """Pictures (uint8 or uint16 (h, w, 3)) in rows, each under its title; a line where none is.

    gap: after every second column, as a share of a column. side: inches for a picture. color: of
    the pictures' titles.
    """
    if not len(pictures):
        print(title)
        return None
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    ratios = [1.0, 1.0, gap] * max(1, columns // 2) if gap else [1.0] * columns
    # A title of some length needs its room beside few pictures too.
    width = max(side * sum(ratios), 0.085 * len(title))
    figure, axes = new_figure(
        rows, len(ratios), width, side * rows + 0.4, width_ratios=ratios
    )
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    cells = axes[:, np.equal(ratios, 1)].ravel()
    longest = int(side * 72 / (7.5 * CHARACTER))
    for axis, picture, text in zip(cells, pictures, titles, strict=False):
        axis.imshow(squeeze(np.asarray(picture)))
        axis.set_anchor("N")  # the titles of a row stand on one line
        axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)
        look: Any = {"fontsize": 7.5, "fontweight": "normal", "loc": "center", "y": 1.0}
        lines = list[str]()
        for line in str(text).splitlines():
            lines += textwrap.wrap(line, longest, break_long_words=False) or [""]
        lines = [shorten(line, longest) for line in lines]
        axis.set_title("\n".join(lines[:6]), color=color, **look)
    _set_head(figure, title)
    return figure


def plot_pairs(
    pictures: Sequence[tuple[np.ndarray, ...]],
    titles: Sequence[tuple[str, ...]],
    title: str = "",
) -> Figure | None:
    """Pairs of pictures (uint8 (h, w, 3)) side by side, each half under its own title."""
    return plot_grid([*chain(*pictures)], [*chain(*titles)], title=title, gap=0.12)


def plot_masks(picture: np.ndarray, masks: Mapping[str, np.ndarray]) -> Figure | None:
    """A picture, (h, w, 3), and again under each mask, uint8 (h, w), that is not all 0."""
    named = {name: mask[..., None] for name, mask in masks.items() if np.any(mask)}
    picture = squeeze(picture)
    lit = (picture // 2 + np.array([127, 60, 0])).astype(np.uint8)
    covered = [np.where(mask, lit, picture) for mask in named.values()]
    title = f"One record's picture, and {count_of(len(named), 'mask')} over it"
    return plot_grid(
        [picture, *covered], ["", *named], columns=5, side=2.6, title=title
    )


@styled
def plot_folds(table: pd.DataFrame, label_columns: Sequence[str] = ()) -> Figure | None:
    """Images per class and fold (rows with split, fold, label_name); a line where all are in one.

    Of more than 40 classes: how far each is from its share of each fold, in images.
    label_columns: of images that may have several labels; then a row is a label's.
    """
    table = table[(table["split"] != "test") | (table["label_name"].astype(str) != "")]
    outside = table["split"].replace("train", NEVER)
    columns = ("fold " + table["fold"].astype(str)).where(table["fold"] >= 0, outside)
    counts = pd.crosstab(table["label_name"].replace("", NO_LABEL), columns)
    if label_columns:
        counts = list_marks(table, label_columns).groupby(columns).sum().T
    counts = counts.loc[
        counts.sum(axis=1).sort_values(ascending=False, kind="stable").index
    ]
    classes = count_classes(table["label_name"], label_columns)
    if counts.shape[1] < 2:
        print(f"No folds: {count_of(len(table), 'image')} of {classes} in one")
        return None
    # Test images, and beside folds what never validates, have no share that they should have.
    noun, unfair = (
        ("fold", ["test", NEVER]) if (table["fold"] >= 0).any() else ("split", ["test"])
    )
    fair = counts.drop(columns=unfair, errors="ignore")
    own = fair.sum(axis=1).to_numpy()[:, None]
    off = fair.to_numpy() - own * fair.sum().to_numpy() / max(own.sum(), 1)
    result = (
        f"none is off its share by more than {np.abs(off).max(initial=0):.1f} images"
    )
    missing = fair.index[(fair == 0).any(axis=1) & (own[:, 0] > 0)].astype(str).tolist()
    if missing:
        result = f"missing from a {noun}: {list_names(missing)}"
    title = f"{classes} × {count_of(len(fair.columns), noun)}: {result}"
    if len(counts) > MANY_CLASSES:
        figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
        axis.hist(off.ravel(), bins=61, color=BLUE, log=True)
        _set_plain_ticks(axis.yaxis, ticker.LogLocator(subs=(1, 2, 5)))
        axis.set(xlabel="images more than its share", ylabel="classes × folds")
        _set_head(figure, title)
        return figure
    figure_size = (
        max(7.0, 2.2 + 0.65 * counts.shape[1]),
        1.1 + 0.3 * max(len(counts), 2),
    )
    figure, ((axis,),) = new_figure(1, 1, *figure_size)
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0).to_numpy()
    _draw_counts(axis, counts, shares, darkest=max(shares.max(initial=0) * 1.3, 0.01))
    axis.set(xlabel="images; the darker, the more of the class")
    _set_head(figure, title)
    return figure


def list_names(names: Sequence[Any], most: int = 3) -> str:
    """The first names, and how many more there are.

    >>> list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    shown = ", ".join(shorten(str(name), 30) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _draw_counts(
    axis: Axes, counts: pd.DataFrame, shares: np.ndarray, darkest: float
) -> AxesImage:
    """A table of numbers, coloured by their shares from 0 to `darkest`."""
    image = axis.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=darkest)
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        color = "white" if shares[row, column] > 0.65 * darkest else "black"
        axis.text(
            column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=color
        )
    axis.set_xticks(range(counts.shape[1]), counts.columns.astype(str))
    axis.set_yticks(range(len(counts)), [shorten(str(name)) for name in counts.index])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return image


@styled
def plot_limits(rows: pd.DataFrame, title: str) -> Figure | None:
    """Bars, each with its uncertainty, limit and text (columns value, low, high, limit, text).

    Where all would be near nothing the texts are printed instead.
    """
    share = rows[["value", "low", "high"]].div(rows["limit"], axis=0) * 100
    fits = rows["high"] <= rows["limit"]
    title += (
        ": all within"
        if fits.all()
        else f": too much for {', '.join(rows.index[~fits])}"
    )
    if share["high"].max() < 2:
        print(title, *(rows.index + ": " + rows["text"]), sep="\n")
        return None
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.42 * max(len(rows), 2))
    spread = share["value"] - share["low"], share["high"] - share["value"]
    look: Any = {
        "xerr": np.clip(spread, 0, None),
        "capsize": 3,
        "error_kw": {"linewidth": 0.9},
    }
    bars = axis.barh(
        rows.index, share["value"], color=np.where(fits, BLUE, RED), **look
    )
    axis.bar_label(bars, rows["text"], padding=5)
    axis.axvline(100, color=ORANGE, linewidth=1.2, label="limit")
    axis.set_xlim(0, max(130.0, float(share["high"].max()) * 1.4))
    axis.invert_yaxis()
    axis.set(xlabel="% of the limit")
    _set_head(figure, title)
    axis.legend(loc="lower right")
    return figure


@styled
def plot_source_check(sources: pd.DataFrame) -> Figure | None:
    """PSNR of records as they are against that with red and blue swapped, and where one fails.

    sources: columns psnr and psnr_swapped, in dB, and problem.
    """
    wrong, top = int((sources["problem"] != "").sum()), 60
    title = f"{count_of(len(sources), 'record')} beside their sources: {wrong} swapped or turned"
    if sources.empty:
        print(title)
        return None
    figure, ((axis,),) = new_figure(1, 1, 7, 3.4)
    psnr = sources[["psnr", "psnr_swapped"]].clip(upper=top).to_numpy()
    ends = psnr.min() - 2, top + 2
    axis.fill_between(
        ends, [end + 1 for end in ends], top + 3, color=RED, alpha=0.15, linewidth=0
    )
    axis.text(ends[0] + 1, top, "fails: swapped colours fit better by 1 dB", color=RED)
    equal = (
        f"{(psnr[:, 0] == top).sum()} of 60 dB or more:\nthe source's own pixels, kept"
    )
    axis.text(top - 1, ends[0] + 1, equal, ha="right")
    axis.scatter(*psnr.T, s=14, color=BLUE, alpha=0.6, linewidths=0)
    axis.set(xlim=ends, ylim=(ends[0], top + 3), title=title)
    axis.set(xlabel="PSNR as written, dB", ylabel="with red and blue swapped, dB")
    return figure


@styled
def plot_learning(history: Mapping[str, Sequence[float]]) -> Figure:
    """Each metric by epoch, training and validation, of the history of `model.fit`."""
    # Keras divides the loss of validation by the padding too.
    names = [
        name for name in history if name != "loss" and f"val_{name}" in history
    ] or ["loss"]
    figure, axes = new_figure(1, len(names), 3.9 * len(names), 2.9, whole="x")
    for axis, name in zip(axes.flat, names, strict=True):
        epochs = np.arange(1, len(history[name]) + 1)
        axis.plot(epochs, history[name], ".-", color=GREY, label="training")
        axis.plot(epochs, history[f"val_{name}"], ".-", color=BLUE, label="validation")
        last = f"{name.capitalize().replace('_', ' ')}: {history[f'val_{name}'][-1]:.3f} at the end"
        axis.set(
            title=last, xlabel="epoch", xlim=(0.5, len(epochs) + 0.5), ylim=(0, None)
        )
    axes.flat[0].legend()
    return figure


@styled
def plot_confusion(confusions: pd.DataFrame, classes: Sequence[Any]) -> Figure | None:
    """True class by predicted class: the share of each row as colour, images as numbers.

    confusions: columns true, predicted (indices of `classes`), images; one row a pair that occurs.
    Of more than 40 classes those of the most frequent wrong pairs are shown, or a line for none.
    """
    wrong = confusions[confusions["true"] != confusions["predicted"]]
    wrong = wrong.sort_values("images", ascending=False, kind="stable")
    worst = pd.unique(wrong[["true", "predicted"]].to_numpy().ravel())[:MANY_CLASSES]
    title = (
        f"{wrong['images'].sum():,} of {confusions['images'].sum():,} images mistaken"
    )
    several = len(classes) > MANY_CLASSES
    if several and wrong.empty:
        print(title)
        return None
    shown = sorted(worst.tolist()) if several else list(range(len(classes)))
    within = confusions[confusions[["true", "predicted"]].isin(shown).all(axis=1)]
    counts = within.pivot_table("images", "true", "predicted", aggfunc="sum")
    counts = counts.reindex(index=shown, columns=shown).fillna(0).astype("int64")
    all_of = (
        confusions.groupby("true")["images"]
        .sum()
        .reindex(shown)
        .fillna(0)
        .clip(lower=1)
    )
    shares = counts.div(all_of, axis=0).to_numpy()
    names = [shorten(str(classes[number]), 30) for number in shown]
    counts = counts.set_axis(names, axis=0).set_axis(names, axis=1)
    side = min(12, 2 + 0.55 * max(len(names), 6))
    figure, ((axis,),) = new_figure(1, 1, side + 1.2, side)
    image = _draw_counts(axis, counts, shares, darkest=1.0)
    figure.colorbar(image, ax=axis, label="share of the true class", shrink=0.8)
    is_crowded = len(names) > 8 or max(map(len, names), default=0) > 10
    axis.tick_params(axis="x", rotation=90 if is_crowded else 0)
    what = (
        f", the {len(names)} most confused of {len(classes):,} classes"
        if several
        else ""
    )
    axis.set(xlabel="predicted class", ylabel="true class")
    _set_head(figure, title + what)
    return figure


@styled
def plot_leakage(
    leaky: float, honest: float, low: float, high: float, title: str
) -> Figure:
    """The accuracy of both ways to make folds; the interval of what the leaky one adds."""
    figure, ((axis,),) = new_figure(1, 1, 7, 1.9)
    bars = axis.barh([0, 1], [leaky, honest], color=[ORANGE, BLUE])
    spread = [[leaky - honest - low], [high - leaky + honest]]
    axis.errorbar(leaky, 0, xerr=spread, color="black", capsize=4)
    axis.bar_label(bars, fmt="{:.1%}", label_type="center", color="white")
    axis.set_yticks(
        [0, 1], ["folds at random,\ncopies in both", "each cluster\nin one fold"]
    )
    axis.invert_yaxis()
    axis.set(
        xlim=(0, 1),
        xlabel="share of right answers; whiskers: 95 % interval of what is added",
    )
    _set_head(figure, title)
    return figure
