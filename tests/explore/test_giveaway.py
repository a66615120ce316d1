"""Facts of files that predict the label or the split are named, and chance is not."""

import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr import explore


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


def score(images, folder):
    """Return the names after the cells of 01 about giveaways."""
    cells = ["01-20-b", "01-20-f", "01-20-h"]
    return run_cells(*cells, good=images, work=str(folder))


def test_a_class_that_was_saved_at_another_quality_is_a_warning(tmp_path, capsys):
    """The JPEG quality is right for every image; the figure shows it."""
    put_photos(tmp_path / "in" / "cat", 40, seed=1, quality=70)
    put_photos(tmp_path / "in" / "dog", 40, seed=2, quality=90)
    images = explore.measure(*read(tmp_path / "in", source="folders"))

    figure = score(images, tmp_path)["figure"]

    shares = "100% right, by chance 50%"
    printed = capsys.readouterr().out
    text = f"! Without its pixels, a file predicts the label (jpeg_quality: {shares}, "
    assert text in printed
    title = figure.axes[0].get_title("left")
    assert title == f"By jpeg_quality, a file predicts the label: {shares}"


def test_larger_test_images_are_a_warning(tmp_path, capsys):
    """They differ from the images to train on, whatever the label."""
    for seed, name in enumerate(("cat", "dog")):
        put_photos(tmp_path / "in" / "train" / name, 30, seed=seed)
    put_photos(tmp_path / "in" / "test", 30, seed=3)
    for path in (tmp_path / "in" / "test").iterdir():
        number = int(path.stem)
        path.write_bytes(saved(scene(90 + number % 9, 90, seed=number)))
    images = explore.measure(*read(tmp_path / "in", source="folders"))

    score(images, tmp_path)

    printed = capsys.readouterr().out
    assert "\n! Without its pixels, a file separates test from train (width" in printed
    assert "\n✓ None of 10 facts of the files predicts the label.\n" in printed


def test_at_most_one_of_twenty_clean_sets_alarms(tmp_path):
    """Each has some twenty scores, one of which chance would often raise."""
    alarms = 0
    for seed in range(20):
        names = score(make_table(300, seed), tmp_path)
        assert len(names["targets"]) == 2
        alarms += not names["best"].empty
    assert alarms <= 1


def test_copies_of_a_file_do_not_predict_one_another(tmp_path):
    """Ten copies of each file would let a tree learn the label of each by heart."""
    copies = pd.concat([make_table(60, seed=0)] * 10, ignore_index=True)
    assert score(copies, tmp_path)["best"].empty
    distinct = copies.assign(digest=np.arange(len(copies)).astype(str))
    assert not score(distinct, tmp_path)["best"].empty


@pytest.mark.parametrize(
    ("name", "values"), [("exif_camera", ["Nikon", ""]), ("source", [1, 0])]
)
def test_texts_are_facts_too(name, values, tmp_path):
    """The camera or the source of a class are drawn as shares of it."""
    images = make_table(400, seed=0)
    images[name] = np.where(images["label"] == 0, *values)

    figure = score(images, tmp_path)["figure"]

    assert figure.axes[0].get_xlabel() == "% of the class"


def test_few_images_are_not_scored(tmp_path, capsys):
    """Nothing can be told from a few images, which is printed."""
    names = score(make_table(30, seed=0), tmp_path)
    assert names["giveaways"].empty
    assert names["figure"] is None
    assert "· Not tested whether files predict the label" in capsys.readouterr().out
