"""Plots of 06 and 07: learning, mistakes, leakage."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kaggle_tfr.figures.canvas import name_rows, new_figure, new_plot
from kaggle_tfr.figures.folds import draw_counts
from kaggle_tfr.figures.style import BLUE, GREEN, GREY, MANY_CLASSES, ORANGE, styled
from kaggle_tfr.figures.words import shorten

# Of Okabe and Ito, which people with a colour deficiency can tell apart, too.
FOLD_COLORS = (GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#8C564B")
FOLD_STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))


@styled
def plot_learning(
    histories: Mapping[int, Mapping[str, Sequence[float]]],
    labels: pd.Series,
    classes: Sequence[Any],
) -> Figure:
    """Plot cross-entropy and accuracy by epoch: a thin line per fold, and the means.

    Of a quantity, plot its mean absolute error. Dotted lines are what the shares of the
    classes, or the median, give without a look at an image.
    histories: of `model.fit`, with the metrics of 06, by fold. labels: of the
    validation images: indices of `classes`, which are () of a quantity.
    """
    baselines = _list_baselines(labels, classes)
    scores = []
    for name, (_, text, form) in baselines.items():
        curves = [history[f"val_{name}"] for history in histories.values()]
        reached = np.mean(curves, axis=0)[-1]
        scores.append(f"{name.replace('_', '-')} {reached:{form}} ({text})")
    title = f"After epoch {len(curves[0])}, the last: {', '.join(scores)}"
    figure, axes = new_figure(7.2, 3.8, title, columns=len(baselines))
    for axis, name in zip(axes.flat, baselines, strict=True):
        value, text, _ = baselines[name]
        _draw_metric(axis, histories, name)
        axis.axhline(value, color=ORANGE, linestyle=":")
        axis.annotate(
            text,
            (0.99, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
        )
        axis.set_ylim(0, max(1.2 * value, axis.get_ylim()[1]))
    lines, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower left", ncols=4)
    return figure


def _list_baselines(
    labels: pd.Series, classes: Sequence[Any]
) -> dict[str, tuple[float, str, str]]:
    """Return the score of a blind guess in each metric, its text and its format."""
    if not classes:
        median = labels.median()
        error = (labels - median).abs().mean()
        return {"error": (error, f"always {median:.3g}: {error:.3g}", ".3g")}
    shares = labels.value_counts(normalize=True)
    entropy = float(-(shares * np.log(shares)).sum())
    largest = shorten(str(classes[shares.index[0]]), 20)
    return {
        "cross_entropy": (entropy, f"class shares: {entropy:.2f}", ".2f"),
        "accuracy": (shares.max(), f"always {largest}: {shares.max():.1%}", ".1%"),
    }


def _draw_metric(
    axis: Axes, histories: Mapping[int, Mapping[str, Sequence[float]]], name: str
) -> None:
    """Draw a metric of training and validation by epoch, each fold and their mean."""
    training = np.array([history[name] for history in histories.values()])
    validation = np.array([history[f"val_{name}"] for history in histories.values()])
    epochs = np.arange(1, training.shape[1] + 1)
    if len(histories) > 1:
        looks = cycle(zip(FOLD_COLORS, FOLD_STYLES, strict=True))
        for fold, values, (color, style) in zip(
            histories, validation, looks, strict=False
        ):
            axis.plot(
                epochs,
                values,
                color=color,
                linewidth=1.4,
                linestyle=style,
                label=f"fold {fold}",
            )
    for values, color, text in (
        (training, GREY, "training, mean"),
        (validation, BLUE, "validation, mean"),
    ):
        mean = values.mean(axis=0)
        axis.plot(epochs, mean, ".-", color=color, linewidth=2.5, label=text)
    axis.set_xlabel("epoch")
    axis.set_ylabel(name.replace("_", "-"))
    axis.set_xlim(0.5, epochs[-1] + 0.5)
    axis.locator_params("x", integer=True)


@styled
def plot_predictions(oof: pd.DataFrame, classes: Sequence[Any]) -> Figure | None:
    """Plot images by true and predicted class; the right ones are framed.

    For more than 40 classes, those of the most frequent mistakes; without a mistake, a
    line is printed. Of a quantity, plot a point for each image.
    oof: columns label and predicted (indices of `classes`); of a quantity, whose
    classes are (), also error.
    """
    if not classes:
        return _plot_quantities(oof)
    mistakes = oof[oof["label"] != oof["predicted"]]
    title = f"{len(mistakes):,} of {len(oof):,} images misclassified"
    drawn = list(range(len(classes)))
    if len(classes) > MANY_CLASSES:
        if mistakes.empty:
            print(title)
            return None
        drawn = _find_most_confused(mistakes)
        title += f", the {len(drawn)} most confused of {len(classes):,} classes"

    names = [shorten(str(classes[number]), 30) for number in drawn]
    counts = _tabulate(oof, drawn)
    counts.index = counts.columns = pd.Index(names)
    side = min(12, 2 + 0.55 * max(len(names), 6))
    figure, axis = new_plot(side, side, title)
    draw_counts(axis, counts, by_row=False)
    for number in range(len(names)):
        corner = (number - 0.5, number - 0.5)
        frame = Rectangle(corner, 1, 1, fill=False, edgecolor=GREY, linewidth=1.5)
        axis.add_patch(frame)
    axis.tick_params(axis="x", rotation=90)
    axis.set(xlabel="predicted class (in frames: the true class)", ylabel="true class")
    return figure


def _plot_quantities(oof: pd.DataFrame) -> Figure:
    """Plot the predicted against the true quantities."""
    error = oof["error"].mean()
    title = f"The mean absolute error of {len(oof):,} images is {error:.4g}"
    figure, axis = new_plot(5.5, 5.5, title)
    axis.scatter(oof["label"], oof["predicted"], s=12, color=BLUE, alpha=0.5)
    mean = oof["label"].mean()
    axis.axline((mean, mean), slope=1, color=GREY)
    axis.axis("equal")
    axis.set(xlabel="true (on the line: predicted exactly)", ylabel="predicted")
    return figure


def _tabulate(oof: pd.DataFrame, drawn: list[int]) -> pd.DataFrame:
    """Return the images by true (rows) and predicted class, of the drawn classes."""
    is_drawn = oof[["label", "predicted"]].isin(drawn).all(axis=1)
    counts = pd.crosstab(oof["label"][is_drawn], oof["predicted"][is_drawn])
    return counts.reindex(index=drawn, columns=drawn, fill_value=0)


def _find_most_confused(mistakes: pd.DataFrame) -> list[int]:
    """Return the classes, sorted, of the most frequent mistakes."""
    pairs = mistakes.groupby(["label", "predicted"], as_index=False).size()
    pairs = pairs.sort_values("size", ascending=False, kind="stable")
    classes = pairs[["label", "predicted"]].to_numpy().ravel()
    return sorted(pd.unique(classes)[:MANY_CLASSES].tolist())


@styled
def plot_leakage(inflations: pd.DataFrame, title: str) -> Figure:
    """Plot the accuracy with cluster folds and with random folds as two points a row.

    inflations: of `measure_inflation`; the rows may have two names.
    """
    figure, axis = new_plot(7.2, 1.3 + 0.55 * len(inflations), title)
    rows = np.arange(len(inflations))
    scores = 100 * inflations[["cluster folds", "random folds"]]
    axis.hlines(rows, scores.min(axis=1), scores.max(axis=1), color=GREY, lw=3)
    for (name, values), color in zip(scores.items(), (BLUE, ORANGE), strict=True):
        axis.scatter(values, rows, s=70, color=color, label=name, zorder=2)
    points = (100 * inflations[["gain", "low", "high"]]).to_numpy()
    for row, (gain, low, high) in enumerate(points):
        # Beside the axis, which ends at 100 %.
        axis.annotate(
            f"{gain:+.1f} ({low:.1f} to {high:.1f})".replace("-", "−"),
            (1.02, row),
            xycoords=("axes fraction", "data"),
            va="center",
        )
    axis.annotate(
        "points gained (95 % interval)", (1.02, 1.0), xycoords="axes fraction"
    )
    names = [", ".join(np.atleast_1d(name)) for name in inflations.index]
    name_rows(axis, names)
    axis.invert_yaxis()
    axis.margins(x=0.1, y=0.2)
    left, right = axis.get_xlim()
    axis.set_xlim(max(0, left), min(102, right))
    axis.set_xlabel("accuracy, %")
    figure.legend(loc="outside lower left", ncols=2)
    return figure


@styled
def plot_inflation(
    curve: pd.DataFrame, measured: pd.DataFrame, measured_share: float, title: str
) -> Figure:
    """Plot the accuracy that random folds add against the share of copies, by model.

    curve: columns model, share (0 to 1), gain, low and high (95 % interval).
    measured: gain, low and high on the data themselves, a row per model.
    measured_share: of the images of the data that have a near-duplicate.
    """
    figure, axis = new_plot(7.2, 3.8, title)
    # The bars of the data cover each other: a wide one is below a narrow one.
    for (model, points), color, line_width in zip(
        curve.groupby("model", sort=False), (BLUE, ORANGE), (4, 1.5), strict=False
    ):
        percent = 100 * points[["share", "gain", "low", "high"]]
        axis.plot(percent["share"], percent["gain"], ".-", color=color, label=model)
        axis.fill_between(
            percent["share"],
            percent["low"],
            percent["high"],
            color=color,
            alpha=0.2,
            linewidth=0,
        )
        columns = ["gain", "low", "high"]
        gain, low, high = 100 * measured.loc[model, columns].to_numpy(float)
        axis.errorbar(
            [100 * measured_share],
            [gain],
            np.array([[gain - low], [high - gain]]),
            fmt="D",
            color=color,
            markeredgecolor="black",
            ecolor=color,
            elinewidth=line_width,
            capsize=2 + line_width,
            zorder=3,
        )
    axis.axhline(0, color=GREY, linewidth=0.8)
    name = f"this data, {100 * measured_share:.1f} %, 95 % interval"
    axis.plot([], [], "D", color="white", markeredgecolor="black", label=name)
    axis.legend(loc="upper left")
    axis.set_xlabel("images that have a copy, %; band: 95 % interval")
    axis.set_ylabel("points that random folds add")
    return figure
