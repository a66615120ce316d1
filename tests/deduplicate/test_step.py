"""02 in one call: its tables."""

from pathlib import Path

import pytest
from support.chain import save_picture
from support.scenes import scene

from kaggle_tfr import deduplicate, explore, notebook
from kaggle_tfr.parameters import DEFAULTS

PATHS = ("path_a", "path_b")


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Parameters after 01: two labels of a scene, two crops, and other scenes.

    One crop is a training image and one, of another scene, is a test image.
    """
    folder = tmp_path_factory.mktemp("photos")
    a, b, c, d, e = (scene(240, 320, seed=seed) for seed in range(5))
    files = {
        "train/rose/a.jpg": a,
        "train/tulip/small.jpg": a.resize((160, 120)),
        "train/rose/b.jpg": b,
        "train/rose/crop.jpg": b.crop((40, 30, 320, 240)),
        "train/tulip/c.jpg": c,
        "test/part.jpg": c.crop((0, 30, 280, 240)),
        "train/rose/d.jpg": d,
        "train/tulip/e.jpg": e,
    }
    for name, image in files.items():
        save_picture(image, folder / "input" / name, quality=95)
    work = str(folder / "work")
    values = {**DEFAULTS, "INPUT_DIR": str(folder / "input"), "WORK_DIR": work}
    explore.run(values)
    yield {**values, "SECOND_LOOK": True}
    notebook.end()


@pytest.fixture(scope="module")
def found(values):
    return deduplicate.run(values)


def list_ids(pairs):
    """Return texts such as "a small", of the names of both files."""
    names = [pairs[column].map(lambda path: Path(path).stem) for column in PATHS]
    return (names[0] + " " + names[1]).tolist()


def test_each_pair_has_its_verdict(found):
    """Geometry is also a witness of the pair within MAX_BITS."""
    pairs = found.pairs
    accepted = list_ids(pairs[pairs["accepted"]])
    assert accepted[0] == "a small"
    assert sorted(accepted) == ["a small", "b crop", "part c"]
    by_verdict = pairs.groupby("verdict", observed=True)["matches"]
    assert by_verdict.size()[["hash", "geometry"]].tolist() == [1, 2]
    assert by_verdict.min()[["hash", "geometry"]].min() >= 12
    assert by_verdict.max()["rejected"] < 12
    assert pairs["bits"].is_monotonic_increasing
