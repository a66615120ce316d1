"""Hashes, pairs, geometry and clusters together, on photographs and their copies."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageEnhance, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate.candidates import find_candidates, verify_candidates
from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.proposals import propose_copies
from kaggle_tfr.explore.table import load_hashes, measure
from kaggle_tfr.images.orientation import apply_orientation


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
    """Return the table of image files, labelled by their folders."""
    table = pd.DataFrame({"path": map(str, paths)})
    table["image_id"] = [path.name for path in paths]
    table["n_bytes"] = [path.stat().st_size for path in paths]
    table["label_name"] = [path.parent.name for path in paths]
    table["label"] = pd.factorize(table["label_name"], sort=True)[0]
    return table.assign(
        split="train",
        problem="",
        height=128,
        width=128,
    )


def list_ends(pairs):
    return pairs[["a", "b"]].to_numpy().tolist()


@pytest.fixture(scope="module")
def flowers(data_dir):
    return make_table(sorted((data_dir / "flowers").glob("*/*")))


@pytest.fixture(scope="module")
def flower_hashes(flowers, tmp_path_factory):
    return hash_images(flowers, tmp_path_factory.mktemp("flowers"))


def test_four_flowers_are_both_rose_and_tulip(flowers, flower_hashes):
    """Of 9,315,686 pairs compared one by one, 32 are within 25 bits.

    The known conflicts of the data are found; by default neither copy is kept.
    """
    pairs = find_pairs(flower_hashes, 25)
    assert len(pairs) == 32

    clusters = find_clusters(flowers, pairs)

    conflicts = clusters[clusters["conflict"]]
    assert conflicts["cluster"].nunique() == 4
    assert set(conflicts["reason"]) == {"conflict: rose, tulip"}
    assert not conflicts["keep"].any()
    assert not clusters["chain"].any()


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


def check_recall(originals, folder):
    """Write all copies of the images, and check that they and no others are found."""
    n_files = 1 + len(COPIES)  # of an original
    for number, original in enumerate(originals):
        (folder / f"{number:04d}-0.jpg").write_bytes(saved(original))
        for position, copy in enumerate(COPIES.values(), 1):
            path = folder / f"{number:04d}-{position}.jpg"
            path.write_bytes(copy.save(original))
    images = make_table(sorted(folder.glob("*.jpg")))

    hashes = hash_images(images, folder)
    settings = DuplicateSettings()
    candidates = find_candidates(hashes, settings)
    verified = verify_candidates(images, hashes, candidates, settings)
    pairs = verified[verified["accepted"]]

    is_same = pairs["a"] // n_files == pairs["b"] // n_files
    assert is_same.mean() >= 0.999
    is_near = pairs["distance"] <= 25
    assert is_same[is_near].all()
    is_of_original = is_same & (pairs["a"] % n_files == 0)
    found = pairs["b"][is_of_original] % n_files
    near = found[is_near]
    for position, (name, copy) in enumerate(COPIES.items(), 1):
        n_near = (near == position).sum()
        n_found = (found == position).sum()
        assert n_near >= copy.recall * len(originals), name
        assert n_found >= copy.verified_recall * len(originals), name


def test_copies_of_scenes_are_found_and_nothing_else(tmp_path):
    """Each copy of 20 scenes is found as often as expected, and no two scenes pair."""
    scenes = [scene(150, 200, seed=seed) for seed in range(20)]

    check_recall(scenes, tmp_path)


@pytest.mark.heavy
def test_copies_of_a_thousand_photos_are_found_and_nothing_else(
    data_dir, tmp_path, flower_hashes
):
    """60 photographs and 940 flowers without near-duplicates have seven copies each."""
    pairs = find_pairs(flower_hashes, 45)
    single = flower_hashes.drop(index=np.unique(pairs[["a", "b"]]))
    flowers = single["path"].iloc[:: len(single) // 940][:940]
    photos = sorted((data_dir / "photos").iterdir())
    paths = [*photos, *flowers]

    check_recall(
        [Image.open(path).convert("RGB") for path in paths],
        tmp_path,
    )


@pytest.fixture
def oriented_images(tmp_path):
    """Three scenes, eight small oriented copies of the first, a crop of the second.

    The crop is mirrored and rotated.
    """
    scenes = [scene(200, 260, seed=seed) for seed in range(3)]
    pixels = np.asarray(scenes[0])
    copies = []
    for orientation in range(1, 9):
        copy = Image.fromarray(apply_orientation(pixels, orientation).copy())
        half = (copy.width // 2, copy.height // 2)
        copies.append(copy.resize(half))
    second = scenes[1].crop((52, 20, 260, 180))
    mirrored = second.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    rotated = mirrored.rotate(90, expand=True)
    for number, image in enumerate([*scenes, *copies, rotated]):
        (tmp_path / f"{number:02d}.jpg").write_bytes(saved(image))
    return make_table(sorted(tmp_path.glob("*.jpg")))


@pytest.fixture
def oriented_hashes(oriented_images, tmp_path):
    return hash_images(oriented_images, tmp_path)


def test_rotated_copies_are_found_by_their_hashes(oriented_hashes):
    """The orientation of each pair rotates the copy as its original is."""
    pairs = find_pairs(oriented_hashes, 25, 20)

    pairs_of_first = pairs[pairs["a"] == 0].set_index("b")
    inverse = [1, 2, 3, 4, 5, 8, 7, 6]
    expected = dict(enumerate(inverse, 3))
    assert pairs_of_first["orientation"].to_dict() == expected
    assert set(np.ravel(list_ends(pairs))) == {0, *range(3, 11)}


def test_a_rotated_crop_is_found_by_its_details(oriented_images, oriented_hashes):
    """The hashes miss the crop; its orientation is that of the transform."""
    pairs = find_pairs(oriented_hashes, 25, 20)

    proposed = propose_copies(oriented_images, oriented_hashes, pairs)
    verified = verify_geometry(oriented_images, proposed)
    accepted = verified[verified["accepted"]]

    of_crop = accepted[accepted["b"] == 11]
    assert list_ends(of_crop) == [[1, 11]]
    assert of_crop["orientation"].tolist() == [5]


def test_flat_images_pair_only_when_their_files_are_equal(tmp_path):
    """Blank pages of different shades have equal hashes, and are not duplicates."""
    files = []
    mark = scene(150, 200).convert("L").resize((12, 9))
    for shade in (40, 90, 140, 190, 90):
        page = Image.new("L", (200, 150), shade)
        page.paste(mark, (20, 30))
        files.append(saved(page))
    files += [saved(scene()), saved(scene(), quality=70)]
    for number, data in enumerate(files):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    images = make_table(sorted(tmp_path.glob("*.jpg")))
    hashes = hash_images(images, tmp_path)

    pairs = find_pairs(hashes, 25, 20)
    proposed = propose_copies(images, hashes, pairs)

    assert list_ends(pairs) == [[1, 4], [5, 6]]
    assert list_ends(proposed) == [[1, 4], [5, 6]]
