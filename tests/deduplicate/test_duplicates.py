"""Hashes, pairs and geometry together, on photographs and their copies."""

import pandas as pd
import pytest

from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.explore.table import load_hashes, measure


def hash_images(images, work):
    measured = measure(images, work_dir=str(work))
    return load_hashes(measured, str(work))


def make_table(paths):
    """Return the table of image files."""
    table = pd.DataFrame({"path": map(str, paths)})
    table["image_id"] = [path.name for path in paths]
    table["n_bytes"] = [path.stat().st_size for path in paths]
    return table.assign(problem="")


@pytest.fixture(scope="module")
def flowers(data_dir):
    return make_table(sorted((data_dir / "flowers").glob("*/*")))


@pytest.fixture(scope="module")
def flower_hashes(flowers, tmp_path_factory):
    return hash_images(flowers, tmp_path_factory.mktemp("flowers"))


def test_geometry_confirms_near_pairs_and_finds_further_ones(flowers, flower_hashes):
    """All 32 near pairs and about a dozen others are accepted, all of one scene.

    Ranges, because another version of OpenCV accepts a few pairs more or fewer.
    """
    pairs = find_pairs(flower_hashes, 45)

    verified = verify_geometry(flowers, pairs, DuplicateSettings(max_bits=-1))

    assert len(verified) in range(301, 312)
    is_near = verified["distance"] <= 25
    assert is_near.sum() == 32
    assert (verified["inliers"][is_near] >= 12).all()
    assert verified["accepted"].sum() in range(42, 47)
