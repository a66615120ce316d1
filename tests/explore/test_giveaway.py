"""Facts of files that predict the label or the split are named, and chance is not."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr import explore


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def put_photos(folder, n_images, seed=0, **options):
    """Write random photographs of about one size as JPEG."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(n_images):
        height, width = rng.integers(60, 80, 2).tolist()
        photo = scene(height, width, seed=1000 * seed + number)
        (folder / f"{number}.jpg").write_bytes(saved(photo, **options))


def make_table(n_images, seed):
    """Return a table of images whose facts depend on nothing."""
    rng = np.random.default_rng(seed)
    label = rng.integers(3, size=n_images)
    times = ["", "2026-05-01 07:00:00", "2026-05-01 19:00:00"]
    return pd.DataFrame(
        {
            "split": rng.choice(["test", "train"], n_images, p=[0.2, 0.8]),
            "label": label,
            "label_name": label.astype(str),
            "source": 0,
            "n_bytes": rng.lognormal(10, 1, n_images).astype(int),
            "width": rng.choice([640, 800, 1024], n_images),
            "height": rng.choice([480, 600, 768], n_images),
            "format": rng.choice(["JPEG", "PNG"], n_images, p=[0.9, 0.1]),
            "jpeg_quality": rng.choice([70, 80, 90], n_images),
            "exif_camera": rng.choice(["", "Canon", "Nikon"], n_images),
            "exif_time": rng.choice(times, n_images),
            "brightness": rng.normal(120, 30, n_images).astype(np.float32),
            "digest": np.arange(n_images).astype(str),
        }
    )


def score(images):
    """Return the names after the cells of 01 about giveaways."""
    return run_cells("01-19", "01-21", "01-23", good=images, plt=plt)


def test_a_class_that_was_saved_at_another_quality_is_a_warning(tmp_path, capsys):
    """The JPEG quality is right for every image; the figure shows it."""
    put_photos(tmp_path / "in" / "cat", 40, seed=1, quality=70)
    put_photos(tmp_path / "in" / "dog", 40, seed=2, quality=90)
    images = explore.measure(*read(tmp_path / "in", source="folders"))

    axis = score(images)["axis"]

    shares = "100% right, by chance 50%"
    printed = capsys.readouterr().out
    text = f"! Without its pixels, a file predicts the label (jpeg_quality: {shares}, "
    assert text in printed
    (points,) = axis.collections
    assert axis.get_xlabel() == "jpeg_quality"
    assert set(points.get_offsets()[:, 0]) == {70, 90}


def test_larger_test_images_are_a_warning(tmp_path, capsys):
    """They differ from the images to train on, whatever the label."""
    for seed, name in enumerate(("cat", "dog")):
        put_photos(tmp_path / "in" / "train" / name, 30, seed=seed)
    put_photos(tmp_path / "in" / "test", 30, seed=3)
    for path in (tmp_path / "in" / "test").iterdir():
        number = int(path.stem)
        path.write_bytes(saved(scene(90 + number % 9, 90, seed=number)))
    images = explore.measure(*read(tmp_path / "in", source="folders"))

    score(images)

    printed = capsys.readouterr().out
    assert "! Without its pixels, a file separates test from train (width" in printed
    assert "\n✓ None of 10 properties of a file predicts the label.\n" in printed


def test_at_most_one_of_twenty_clean_sets_alarms():
    """Each has some twenty scores, one of which chance would often raise."""
    alarms = 0
    for seed in range(20):
        names = score(make_table(300, seed))
        assert len(names["targets"]) == 2
        alarms += not names["above"].empty
    assert alarms <= 1


def test_copies_of_a_file_do_not_predict_one_another():
    """Ten copies of each file would let a tree learn the label of each by heart."""
    copies = pd.concat([make_table(60, seed=0)] * 10, ignore_index=True)
    assert score(copies)["above"].empty
    distinct = copies.assign(digest=np.arange(len(copies)).astype(str))
    assert not score(distinct)["above"].empty


@pytest.mark.parametrize(
    ("name", "values"), [("exif_camera", ["Nikon", ""]), ("source", [1, 0])]
)
def test_texts_are_facts_too(name, values, capsys):
    """The camera or the source of a class are drawn as names on the axis."""
    images = make_table(400, seed=0)
    images[name] = np.where(images["label"] == 0, *values)

    axis = score(images)["axis"]

    assert f"a file predicts the label ({name}: " in capsys.readouterr().out
    axis.figure.canvas.draw()
    ticks = {label.get_text() for label in axis.get_xticklabels()}
    assert ticks == {str(value) for value in values}


def test_few_images_are_not_scored(capsys):
    """Nothing can be told from a few images, which is printed."""
    names = score(make_table(30, seed=0))
    assert names["scores"].empty
    assert "axis" not in names
    assert "· Not tested whether files predict the label" in capsys.readouterr().out
