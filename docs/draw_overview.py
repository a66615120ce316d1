"""Draw docs/overview.png, the first picture of the README, from a run of the sample.

Usage: python docs/draw_overview.py WORK_DIR PICTURE
"""

import sys
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from PIL import Image, ImageFile, ImageOps

WIDTH, HEIGHT = 6.8, 4.8  # inches
PIXELS = 1600  # of the width
BAR = 0.94  # width of a bar and of its panel; they are 1 apart
TILE = (370, 330)  # pixels of an example
DARK, GREY, RED, BLUE = "#3c4043", "#d5d8da", "#c0392b", "#31688e"
BROWN, PURPLE = "#b0561a", "#7d4e9e"


@dataclass
class Column:
    """A bar, and below it two examples, or one and a list of lines.

    count: of images, negative if the step removes them.
    examples: paths and captions. scale: of the second one's sides, beside the first.
    """

    count: int
    name: str
    color: str
    heading: str
    examples: list[tuple[str, str]]
    lines: tuple[str, ...] = ()
    scale: float = 1.0


def main(work_dir: str, picture: str) -> None:
    images = pd.read_parquet(f"{work_dir}/images.parquet").set_index("image_id")
    copies = pd.read_parquet(f"{work_dir}/duplicates.parquet").set_index("image_id")
    leaks = pd.read_csv(f"{work_dir}/leaks.csv")
    leaks = leaks[leaks["dataset"].isna()]  # the others are those of COMPARE_WITH
    counts = pd.read_csv(f"{work_dir}/accounting.csv", index_col="outcome")["images"]
    inputs = images["split"].value_counts()[["train", "test"]]
    records = counts[["labelled records", "test records"]]
    is_unique = (images["problem"] == "") & ~images.index.isin(copies.index)
    paths = images[is_unique].groupby("split")["path"].first()[["train", "test"]]
    columns = [
        show_end(inputs, "input\nimages", "files", paths),
        show_rejected(images, counts["rejected"], counts["dropped by overrides"]),
        show_duplicates(images, copies, counts["duplicates dropped"]),
        show_conflicts(copies, counts["conflicts dropped"]),
        show_leaks(images, leaks),
        show_end(records, "records\nwritten", "TFRecords", paths),
    ]
    draw(columns, picture)


def show_end(counts: pd.Series, name: str, heading: str, paths: pd.Series) -> Column:
    """Return the first or the last bar, with an example of each of its counts."""
    captions = [f"{n} {noun.removesuffix(' records')}" for noun, n in counts.items()]
    examples = list(zip(paths, captions, strict=True))
    return Column(counts.sum(), name, DARK, heading, examples)


def show_rejected(images: pd.DataFrame, count: int, n_decided: int) -> Column:
    """Return the largest truncated file, and the number of each problem.

    n_decided: images that the user has dropped.
    """
    rejected = images[images["problem"] != ""].sort_values("n_bytes")
    truncated = rejected[rejected["problem"] == "truncated"]
    examples = [(truncated["path"].iloc[-1], "its end is lost")]
    problems = rejected["problem"].replace("no row in train.csv", "no label")
    problems = problems.str.replace(r":.*", "", regex=True).value_counts()
    problems["your decision"] = n_decided
    lines = tuple(f"{n} {problem}" for problem, n in problems.items())
    count += n_decided
    return Column(-count, "images\nremoved", RED, "truncated", examples, lines)


def show_duplicates(images: pd.DataFrame, copies: pd.DataFrame, count: int) -> Column:
    """Return the copy that is smallest beside the image kept."""
    kept = copies[copies["keep"] & (copies["split"] != "test")]
    original_of = pd.Series(kept.index, kept["cluster"]).groupby(level=0).first()
    dropped = copies[copies["reason"] == "duplicate"]
    originals = dropped["cluster"].map(original_of).dropna()
    width = images["width"]
    scales = width[originals.index] / width[originals].to_numpy()
    copy = scales.idxmin()
    original = originals[copy]
    examples = [
        (images["path"][original], f"kept: {width[original]} px"),
        (images["path"][copy], f"copy: {width[copy]} px"),
    ]
    name = "duplicates\ndropped"
    return Column(-count, name, BLUE, "resized", examples, scale=scales[copy])


def show_conflicts(copies: pd.DataFrame, count: int) -> Column:
    """Return the last cluster with two labels."""
    conflicts = copies[copies["conflict"]]
    cluster = conflicts[conflicts["cluster"] == conflicts["cluster"].max()]
    examples = list(zip(cluster["path"], cluster["label_name"], strict=True))
    return Column(-count, "conflicts\ndropped", BROWN, "two labels", examples)


def show_leaks(images: pd.DataFrame, leaks: pd.DataFrame) -> Column:
    """Return the nearest test image and labelled image. Leaks are kept by default."""
    pair = leaks.loc[leaks["distance"].idxmin()]
    examples = [
        (images["path"][pair["image_id"]], f"train: {pair['label_name']}"),
        (images["path"][pair["test_id"]], "test: no label"),
    ]
    count = leaks["test_id"].nunique()
    return Column(count, "leaks\nreported", PURPLE, "in two splits", examples)


def draw(columns: list[Column], picture: str) -> None:
    plt.rcParams.update({"font.size": 9, "text.color": DARK, "text.parse_math": False})
    figure = plt.figure(figsize=(WIDTH, HEIGHT), dpi=PIXELS / WIDTH)
    title = f"{columns[0].count} input images become {columns[-1].count} records"
    figure.text(0.0175, 0.932, title, fontsize=15, weight="bold")
    legend = "Coloured: removed by a step. Hatched: reported only. Grey: images left."
    figure.text(0.0175, 0.885, legend)
    grid = figure.add_gridspec(3, len(columns), height_ratios=(1.1, 1, 1))
    grid.update(left=0.0175, right=0.9825, bottom=0.069, top=0.722)
    grid.update(wspace=1 / BAR - 1, hspace=0.26)
    draw_bars(figure.add_subplot(grid[0, :]), columns)
    for number, column in enumerate(columns):
        cells = [figure.add_subplot(grid[row, number]) for row in (1, 2)]
        draw_examples(cells, column)
    figure.savefig(picture)
    small = Image.open(picture).convert("RGB").quantize(256, kmeans=1)
    small.save(picture, optimize=True)


def draw_bars(axis: Axes, columns: list[Column]) -> None:
    """Draw what each step found above what is left. The lower ends are cut off."""
    removed = np.array([max(0, -column.count) for column in columns])
    first, last = columns[0].count, columns[-1].count
    left = first - removed.cumsum()
    if left[-1] != last:
        sys.exit(f"{first} images - {removed.sum()} removed are not {last} records.")
    bottom = last - 0.66 * (first - last)
    axis.set(xlim=(-BAR / 2, len(columns) - 1 + BAR / 2), ylim=(bottom, first))
    axis.set_axis_off()
    for x, column in enumerate(columns):
        color = column.color
        rest_color = DARK if color == DARK else GREY
        axis.bar(x, removed[x], BAR, left[x], color=color)
        axis.bar(x, left[x] - bottom, BAR, bottom, color=rest_color)
        if color == PURPLE:  # leaks, which are kept
            style = {"edgecolor": color, "hatch": "////", "fill": False}
            axis.bar(x, -column.count, BAR, left[x], **style)
        if color != DARK:
            axis.text(x, bottom + 11, f"{left[x]} left", ha="center")
        style = {"color": color, "ha": "center"}
        number = f"{column.count}".replace("-", "−")
        axis.text(x, first + 33, number, fontsize=17, weight="bold", **style)
        axis.text(x, first + 6, column.name, **style)
        ends = (x - BAR / 2, x + BAR / 2)
        zigzag = bottom + 4 + np.arange(13) % 2 * 3
        axis.plot(np.linspace(*ends, 13), zigzag, color="white", linewidth=1.8)
        axis.axvspan(*ends, -2.5, -0.05, color=color, alpha=0.1, lw=0, clip_on=False)


def draw_examples(cells: list[Axes], column: Column) -> None:
    """Draw the middle of each image, in the shape of a tile."""
    style = {"color": column.color, "fontsize": 9, "weight": "bold"}
    cells[0].set_title(column.heading, pad=4, **style)
    ImageFile.LOAD_TRUNCATED_IMAGES = True  # grey at the end, as in most libraries
    scales = (1.0, column.scale)
    for cell, (path, caption), end in zip(cells, column.examples, scales, strict=False):
        with Image.open(path) as image:
            tile = ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), TILE)
        cell.imshow(tile, extent=(-end, end, -end, end), aspect="auto")
        cell.text(0, -1.1, caption, ha="center", va="top")
    for number, line in enumerate(column.lines):
        cells[1].text(-1, 0.7 - 0.35 * number, line)
    for cell in cells:
        cell.set_axis_off()
        cell.set(xlim=(-1.1, 1.1), ylim=(-1, 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
