"""Hashes, pairs and geometry together, on photographs and their copies."""

import pandas as pd
import pytest
from PIL import ImageOps
from support.brute_force import find_by_brute_force
from support.scenes import saved, scene

from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_candidates, find_first, find_pairs
from kaggle_tfr.explore.table import load_hashes, measure

# Of images of 200 × 150 pixels.
CHANGES = {
    "half size": lambda image: image.reduce(2),
    "cropped": lambda image: image.crop((5, 4, 195, 146)),
    "grey": lambda image: image.convert("L"),
    "framed": lambda image: ImageOps.expand(image, 6, "black"),
}


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


@pytest.mark.parametrize("rotated_bits", [-1, 20])
def test_pairs_of_flowers_are_those_of_brute_force(flower_hashes, rotated_bits):
    """Of 9,315,686 pairs compared one by one, 32 are within 25 bits."""
    pairs = find_pairs(flower_hashes, 25, rotated_bits)

    expected = find_by_brute_force(flower_hashes, 25, rotated_bits)
    assert pairs.to_numpy().tolist() == expected
    assert (pairs["orientation"] == 1).sum() == 32


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


def test_copies_of_scenes_are_found_and_nothing_else(tmp_path):
    """At least 18 of 20 copies of each type, by their hashes or their geometry."""
    n_files = 1 + len(CHANGES)  # of a scene
    for number in range(20):
        original = scene(150, 200, seed=number)
        copies = [change(original) for change in CHANGES.values()]
        for position, image in enumerate([original, *copies]):
            path = tmp_path / f"{number:02d}-{position}.jpg"
            path.write_bytes(saved(image, quality=90))
    images = make_table(sorted(tmp_path.glob("*.jpg")))

    hashes = hash_images(images, tmp_path)
    candidates, _ = find_candidates(hashes, DuplicateSettings())
    verified = verify_geometry(images, candidates, DuplicateSettings())

    pairs = verified.loc[verified["accepted"], ["a", "b"]]
    assert (pairs["a"] // n_files == pairs["b"] // n_files).all()
    found = pairs.to_numpy().tolist()
    # Only the first image with equal hashes is in other pairs.
    first = find_first(hashes).reshape(20, n_files)
    for position, name in enumerate(CHANGES, 1):
        ends = first[:, [0, position]].tolist()
        assert sum(a == b or [a, b] in found for a, b in ends) >= 18, name
