"""The picture of a run: its bars close, and its examples are what they are called."""

from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image, ImageOps
from support.chain import draw_pictures, run_chain, run_values, write_small_sample

from kaggle_tfr.overview import load_overview
from kaggle_tfr.waterfall import NARROW, ROW_HEIGHT, plot_overview, save_overview

LONG_NAME = "photographs_of_the_garden_in_the_spring_of_2024"


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return write_small_sample(tmp_path_factory.getbasetemp() / "overview" / "sample")


@pytest.fixture(scope="module")
def work(tmp_path_factory, truth):
    """A finished run of the small sample."""
    folder = tmp_path_factory.getbasetemp() / "overview"
    run_chain("sample", str(folder))
    return folder


@pytest.fixture(scope="module")
def overview(work):
    return load_overview(str(work))


def list_bars(figure):
    """Return the bars from left to right, without the panels behind the examples."""
    shapes = figure.axes[0].patches
    bars = [shape for shape in shapes if isinstance(shape, Rectangle)]
    bars = [bar for bar in bars if bar.get_alpha() is None]
    return sorted(bars, key=lambda bar: bar.get_x())


def test_the_bars_close_with_what_is_planted(overview, truth):
    """Each bar starts where the one before it ends; reported leaks end none."""
    planted = truth["counts"]
    counts = {step.name: step.count for step in overview.steps}
    assert counts == {
        "rejected files": planted["refused"] + planted["test_refused"],
        "copies": planted["duplicates"],
        "label conflicts": planted["conflicts"],
        "leaks": len(truth["leaks"]),
    }
    assert overview.n_images == planted["inputs"]
    assert overview.n_records == planted["written"] + planted["test"]

    first, *bars, leaks, last = list_bars(plot_overview(overview))
    tops = [first.get_bbox().y1]
    for bar, (name, count) in zip(bars, counts.items(), strict=False):
        box = bar.get_bbox()
        assert box.y1 == pytest.approx(tops[-1]), name
        tops.append(box.y0)
        inches_of_image = (tops[0] - tops[1]) / counts["rejected files"]
        assert box.height == pytest.approx(count * inches_of_image), name
    assert leaks.get_bbox().y1 == pytest.approx(tops[-1])
    assert leaks.get_linestyle() == "--"
    assert last.get_bbox().y1 == pytest.approx(tops[-1])
    for left, right in pairwise([first, *bars, leaks, last]):
        assert left.get_bbox().x1 < right.get_bbox().x0


def test_the_examples_are_what_they_are_called(overview):
    """A smaller copy, one without its edges, two labels, and a test image."""
    examples = {
        example.heading: example for step in overview.steps for example in step.examples
    }
    assert list(examples) == [
        "truncated file",
        "resized copy",
        "cropped copy",
        "two labels",
        "found in train",
    ]
    (truncated,) = examples["truncated file"].images
    assert truncated[-1].std(axis=0).max() == 0  # one grey

    resized = examples["resized copy"]
    kept, copy = resized.captions
    width, height = kept.removesuffix(" kept").split(" × ")
    assert copy == f"{(int(width) + 1) // 2} × {(int(height) + 1) // 2}"
    assert resized.scale == pytest.approx(0.5, abs=0.01)

    left, top, right, bottom = (*examples["cropped copy"].outline[[0, 2]].ravel(),)
    sides = [left, top, right, bottom]
    assert sides == pytest.approx([0.05, 0.05, 0.95, 0.95], abs=0.02)
    assert len(set(examples["two labels"].captions)) == 2
    assert examples["found in train"].captions[0] == "in test"


def test_the_picture_is_small_enough_for_a_readme(overview, tmp_path):
    """It is 1,600 pixels wide, and below 400 kB."""
    save_overview(plot_overview(overview), tmp_path / "overview.png")
    assert Image.open(tmp_path / "overview.png").width == 1600
    assert (tmp_path / "overview.png").stat().st_size < 400_000


def test_findings_that_a_run_has_not_are_left_out(tmp_path):
    """A mirrored copy is the only one; its class is not a formula, but a name.

    An image that the user drops has a bar, too.
    """
    pictures = draw_pictures(10, 160, 200)
    names = ["蒲公英", "$x^{2$", LONG_NAME]
    for number, picture in enumerate(pictures):
        folder = tmp_path / "input" / names[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{number}.png")
    ImageOps.mirror(pictures[0]).save(tmp_path / "input" / names[0] / "mirrored.png")
    decisions = tmp_path / "mine.csv"
    decisions.write_text(f"image_id,action,value\n{names[0]}/9.png,drop,\n")
    work = str(tmp_path / "work")
    values = {
        "INPUT_DIR": str(tmp_path / "input"),
        "OVERRIDES": str(decisions),
        "MIRRORED": True,
        "N_FOLDS": 2,
    }
    run_values(values, work)

    overview = load_overview(work)

    counts = [(step.name, step.count) for step in overview.steps]
    assert counts == [("copies", 1), ("dropped by overrides", 1)]
    examples = overview.steps[0].examples
    assert [example.heading for example in examples] == ["mirrored copy"]
    figure = plot_overview(overview)
    texts = {text.get_text() for text in figure.findobj(Text)}
    titles = {
        "11 images listed, 9 records out",
        "1 copy removed; 1 dropped by overrides",
    }
    assert titles | {"−1", "copy"} <= texts
    assert len(list_bars(figure)) == 4


def test_a_run_without_findings_is_a_line(overview, capsys):
    """No empty picture is drawn."""
    clean = replace(overview, steps=[], n_records=overview.n_images)
    assert plot_overview(clean) is None
    assert f"{overview.n_images:,} images listed" in capsys.readouterr().out


def test_a_narrow_picture_has_rows(overview):
    """A telephone gets the same bars in the same order, the first row above."""
    figure = plot_overview(overview, NARROW)
    assert figure.get_figwidth() <= NARROW
    bars = [bar.get_bbox() for bar in list_bars(figure)]
    rows = sorted({round(bar.y0 // ROW_HEIGHT) for bar in bars})
    assert rows == [0, 1]
    reading = sorted(bars, key=lambda bar: (-(bar.y0 // ROW_HEIGHT), bar.x0))
    wide = [bar.get_bbox() for bar in list_bars(plot_overview(overview))]
    assert [bar.height for bar in reading] == pytest.approx([b.height for b in wide])


def test_bars_that_do_not_close_are_an_error(overview):
    """A picture with wrong numbers is not drawn."""
    with pytest.raises(ValueError, match="do not close"):
        plot_overview(replace(overview, n_records=overview.n_records - 1))


def test_an_accounting_of_other_tables_is_an_error(work, tmp_path):
    """02 ran again after 04, so the records are not those of the table."""
    for name in ("images.parquet", "labels.json", "duplicates.json", "leaks.csv"):
        (tmp_path / name).write_bytes((work / name).read_bytes())
    with pytest.raises(FileNotFoundError, match="02_deduplicate"):
        load_overview(str(tmp_path))

    clusters = pd.read_parquet(work / "duplicates.parquet")
    clusters.assign(keep=True).to_parquet(tmp_path / "duplicates.parquet")
    with pytest.raises(FileNotFoundError, match="04_write"):
        load_overview(str(tmp_path))

    accounting = (work / "accounting.csv").read_text()
    (tmp_path / "accounting.csv").write_text(accounting)
    with pytest.raises(ValueError, match="'duplicates dropped'.*Run 03_plan"):
        load_overview(str(tmp_path))
