"""The sample competition contains what its truth.json lists."""

import json
from pathlib import Path

import pytest

from kaggle_tfr.explore import load_hashes, load_images
from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr_sample import write_sample


@pytest.fixture(scope="module")
def truth(sample):
    return json.loads((sample / "in" / "truth.json").read_text())


def test_the_same_bytes_every_time():
    """On one core too; and a folder that is complete is left as it is."""
    first = Path("first")
    second = Path("second")

    truth = write_sample("first", scale=1 / 20)

    use_backend(n_jobs=1)
    assert truth == write_sample("second", scale=1 / 20)
    close_backend()
    assert truth == json.loads((first / "truth.json").read_text())
    for path in first.rglob("*.*"):
        copy = second / path.relative_to(first)
        assert copy.read_bytes() == path.read_bytes()
    table = first / "train.csv"
    table.write_text("mine")
    write_sample(str(first))
    assert table.read_text() == "mine"


def test_one_image_is_blurred_one_dark_and_one_empty(sample, truth):
    """By the limits of notebook 01; an empty image has no edges either."""
    work = str(sample / "work" / "sample")
    images, _ = load_images(work)
    hashes = load_hashes(images, work)
    good = images.assign(texture=hashes["texture"])[images["problem"] == ""]

    def find_below(column, limit):
        return set(good["image_id"][good[column] < limit])

    blurred, dark, empty = (truth[name] for name in ("blurred", "dark", "empty"))
    assert find_below("brightness", 25) == {dark}
    assert find_below("sharpness", 3) == {blurred, empty}
    assert find_below("texture", 4) == {empty}
