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


# Ranges, because another version of OpenCV accepts a few pairs more or fewer.
NEAR = pytest.param(45, range(301, 312), range(42, 47))  # 44 of 306
WIDE = pytest.param(
    70,
    range(29_001, 29_500),
    range(52, 59),  # 55 of 29,276
    marks=pytest.mark.heavy,
)


@pytest.mark.parametrize(
    ("bits", "n_pairs", "n_accepted"),
    [NEAR, WIDE],
)
def test_geometry_confirms_near_pairs_and_finds_further_ones(
    flowers, flower_hashes, bits, n_pairs, n_accepted
):
    """All 32 near pairs and about a dozen others are accepted, all of one scene."""
    pairs = find_pairs(flower_hashes, bits)

    verified = verify_geometry(flowers, pairs, DuplicateSettings(max_bits=-1))

    assert len(verified) in n_pairs
    is_near = verified["distance"] <= 25
    assert (verified["inliers"][is_near] >= 12).all()
    assert verified["accepted"].sum() in n_accepted
