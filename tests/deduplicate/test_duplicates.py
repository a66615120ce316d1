"""Hashes, pairs and geometry together, on photographs and their copies."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import pytest
from PIL import Image, ImageEnhance, ImageOps
from support.brute_force import find_by_brute_force
from support.scenes import saved, scene

from kaggle_tfr.deduplicate.candidates import find_candidates
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_first, find_pairs
from kaggle_tfr.explore.table import load_hashes, measure


def halve(image):
    return image.resize(
        (image.width // 2, image.height // 2),
        Image.LANCZOS,
    )


def keep(image):
    return image


def crop(image):
    """Cut 5 % off the width and the height, half on each side."""
    x = image.width / 40
    y = image.height / 40
    box = (x, y, image.width - x, image.height - y)
    return image.crop([round(side) for side in box])


def make_grey(image):
    return image.convert("L")


def brighten(image):
    return ImageEnhance.Brightness(image).enhance(1.2)


def darken(image):
    return ImageEnhance.Brightness(image).enhance(0.8)


def frame(image):
    border = round(0.03 * max(image.size))
    return ImageOps.expand(image, border, "black")


@dataclass(frozen=True)
class Copy:
    """A way in which an image comes back into a dataset, and how often it is found.

    recall: the least share found within 25 bits. verified_recall: by default, with
    geometric verification, which also finds a border that has moved the image.
    """

    change: Callable[[Image.Image], Image.Image]
    recall: float
    verified_recall: float
    quality: int = 95

    def save(self, image):
        return saved(self.change(image), quality=self.quality)


COPIES = {
    "half size": Copy(halve, 0.99, 0.99),
    "low quality": Copy(keep, 0.99, 0.99, quality=40),
    "cropped": Copy(crop, 0.85, 0.97),
    "grey": Copy(make_grey, 0.99, 0.99),
    "brighter": Copy(brighten, 0.9, 0.95),
    "darker": Copy(darken, 0.98, 0.98),
    "framed": Copy(frame, 0.0, 0.9),
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


def list_ends(pairs):
    return pairs[["a", "b"]].to_numpy().tolist()


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

    verified = verify_geometry(flowers, pairs, max_bits=-1)

    assert len(verified) in n_pairs
    is_near = verified["distance"] <= 25
    assert (verified["inliers"][is_near] >= 12).all()
    assert verified["accepted"].sum() in n_accepted


def test_copies_of_scenes_are_found_and_nothing_else(tmp_path):
    """Each copy of 20 scenes is found as often as expected, and no two scenes pair."""
    originals = [scene(150, 200, seed=seed) for seed in range(20)]
    n_files = 1 + len(COPIES)  # of an original
    for number, original in enumerate(originals):
        (tmp_path / f"{number:04d}-0.jpg").write_bytes(saved(original))
        for position, copy in enumerate(COPIES.values(), 1):
            path = tmp_path / f"{number:04d}-{position}.jpg"
            path.write_bytes(copy.save(original))
    images = make_table(sorted(tmp_path.glob("*.jpg")))

    hashes = hash_images(images, tmp_path)
    candidates, _ = find_candidates(hashes, DuplicateSettings())
    verified = verify_geometry(images, candidates)
    pairs = verified[verified["accepted"]]

    is_same = pairs["a"] // n_files == pairs["b"] // n_files
    assert is_same.all()
    near = pairs[pairs["distance"] <= 25]
    # Only the first image with equal hashes is in other pairs.
    first = find_first(hashes).reshape(len(originals), n_files)
    for position, (name, copy) in enumerate(COPIES.items(), 1):
        ends = first[:, [0, position]].tolist()
        for table, recall in ((near, copy.recall), (pairs, copy.verified_recall)):
            found = list_ends(table)
            n_found = sum(a == b or [a, b] in found for a, b in ends)
            assert n_found >= recall * len(originals), name
