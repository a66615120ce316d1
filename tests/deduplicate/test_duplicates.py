import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support import copies
from support.scenes import saved, scene

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.hashing import HASHES, hash_images
from kaggle_tfr.deduplicate.pairs import count_by_radius, examples_around, find_pairs


def images_of(paths, labels=None):
    """The table of files, sized as they are, labelled by their folders unless told."""
    table = pd.DataFrame({"image_id": [p.name for p in paths], "path": [str(p) for p in paths]})
    table["label_name"] = labels or [p.parent.name for p in paths]
    table["label"] = pd.factorize(table["label_name"], sort=True)[0]
    table["split"], table["problem"] = "train", ""
    table["height"] = table["width"] = 128
    return table.assign(n_bytes=[p.stat().st_size for p in paths])


def hashes_of(codes):
    words = np.asarray(codes, np.uint8).view(">u8").astype(np.uint64)
    return pd.DataFrame(dict(zip(HASHES, words.T, strict=True)))


@pytest.fixture(scope="module")
def flowers(data_dir):
    return images_of(sorted((data_dir / "flowers").glob("*/*")))


@pytest.fixture(scope="module")
def flower_work(tmp_path_factory):
    return str(tmp_path_factory.mktemp("flowers"))


@pytest.fixture(scope="module")
def flower_hashes(flowers, flower_work):
    return hash_images(flowers, flower_work)


def test_pairs_of_flowers_are_those_of_brute_force(flower_hashes):
    """
    All of 9,315,686 pairs compared one by one give the 32 within 25 bits, each at its distance.
    """
    words = flower_hashes[list(HASHES)].to_numpy(np.uint64)
    expected = {}
    for row in range(len(words)):
        apart = np.bitwise_count(words[row + 1 :] ^ words[row]).sum(axis=1)
        expected |= {(row, row + 1 + int(k)): int(apart[k]) for k in np.flatnonzero(apart <= 25)}

    pairs = find_pairs(flower_hashes, 25)

    assert (
        dict(zip(zip(pairs["a"], pairs["b"], strict=True), pairs["distance"], strict=True))
        == expected
    )
    assert len(pairs) == 32
    assert (pairs[list(HASHES)].sum(axis=1) == pairs["distance"]).all()


def test_four_flowers_are_both_rose_and_tulip(flowers, flower_hashes):
    """
    The conflicts known to be in the data are found, and by default neither copy is kept.
    """
    clusters = find_clusters(flowers, find_pairs(flower_hashes, 25))

    conflicts = clusters[clusters["conflict"]]
    assert conflicts["cluster"].nunique() == 4
    assert set(conflicts["reason"]) == {"conflict: rose, tulip"}
    assert not conflicts["keep"].any()
    assert not clusters["chain"].any()


def test_the_second_look_confirms_near_pairs_and_finds_further_ones(
    flowers, flower_hashes, flower_work
):
    """
    Of 306 candidates within 45 bits it accepts the 32 near ones and those looked through by eye.
    """
    pairs = find_pairs(flower_hashes, 45)

    looked = verify_geometry(flowers, pairs, flower_work)

    near = looked["distance"] <= 25
    assert (looked["inliers"][near] >= 12).all()
    # 44, give or take what another OpenCV sees in a pair at the threshold.
    assert 42 <= looked["accepted"].sum() <= 46


@pytest.mark.heavy
def test_the_second_look_finds_more_than_fifty_pairs_of_flowers(
    flowers, flower_hashes, flower_work
):
    """
    55 among 29,276 candidates within 70 bits; all were looked at, and show the same scene.
    """
    pairs = find_pairs(flower_hashes, 70)

    looked = verify_geometry(flowers, pairs, flower_work)

    assert 29000 < len(looked) < 29500
    assert 52 <= looked["accepted"].sum() <= 58


def recall_per_kind(originals, folder):
    """(recall within 25 bits, recall with a second look, false pairs) of copies of pictures."""
    paths = []
    for number, original in enumerate(originals):
        path = folder / f"{number:04d}-original.jpg"
        path.write_bytes(saved(original))
        paths.append(path)
        for kind in copies.KINDS:
            path = folder / f"{number:04d}-{kind.__name__}.jpg"
            path.write_bytes(kind(original))
            paths.append(path)
    images = images_of(paths)
    hashes = hash_images(images, str(folder))
    near = find_pairs(hashes, 25)
    family = np.arange(len(paths)) // (1 + len(copies.KINDS))
    of_original = images.index % (1 + len(copies.KINDS)) == 0
    candidates = find_pairs(hashes, 70)
    same = family[candidates["a"]] == family[candidates["b"]]
    looked = verify_geometry(images, candidates[same & of_original[candidates["a"]]])
    near_false = near[family[near["a"]] != family[near["b"]]]
    rows = []
    for number, (kind, floors) in enumerate(copies.KINDS.items(), 1):
        mine = looked[looked["b"] % (1 + len(copies.KINDS)) == number]
        found = (mine["distance"] <= 25).sum(), mine["accepted"].sum()
        rows.append((kind.__name__, *np.array(found) / len(originals), *floors))
    names = ["kind", "within", "looked", "floor", "floor_looked"]
    return pd.DataFrame(rows, columns=names), near_false


def test_copies_of_scenes_are_found_and_nothing_else(tmp_path):
    """
    Of 20 made-up scenes every kind of copy is found as often as its floor says; no two are mixed.
    """
    recall, false = recall_per_kind([scene(150, 200, seed=s) for s in range(20)], tmp_path)

    print(recall.to_string())
    assert (recall["within"] >= recall["floor"]).all()
    assert (recall["looked"] >= recall["floor_looked"]).all()
    assert len(false) == 0


@pytest.mark.heavy
def test_copies_of_a_thousand_photos_are_found_and_nothing_else(data_dir, tmp_path, flower_hashes):
    """
    60 photographs and 940 flowers, seven copies each; pairs of flowers that are twins stay out.
    """
    pairs = find_pairs(flower_hashes, 70)
    lonely = flower_hashes.drop(index=np.unique(pairs[pairs["distance"] <= 45][["a", "b"]]))
    chosen = lonely["path"].iloc[:: len(lonely) // 940][:940]
    photos = [Image.open(file).convert("RGB") for file in sorted((data_dir / "photos").iterdir())]
    originals = photos + [Image.open(path).convert("RGB") for path in chosen]

    recall, false = recall_per_kind(originals, tmp_path)

    print(recall.to_string())
    assert (recall["within"] >= recall["floor"]).all()
    assert (recall["looked"] >= recall["floor_looked"]).all()
    assert len(false) == 0


def test_flat_pictures_pair_only_when_their_files_are_equal(tmp_path):
    """
    Blank pages of other shades have the same hash, and are no duplicates; a true copy is.
    """
    shades = [40, 90, 140, 190, 90]
    for number, shade in enumerate(shades):
        (tmp_path / f"{number}.jpg").write_bytes(saved(Image.new("RGB", (200, 150), (shade,) * 3)))
    for number in (5, 6):
        (tmp_path / f"{number}.jpg").write_bytes(saved(scene(), quality=100 - 30 * (number == 6)))
    images = images_of(sorted(tmp_path.glob("*.jpg")))

    pairs = find_pairs(hash_images(images, str(tmp_path)), 25)

    assert set(zip(pairs["a"], pairs["b"], strict=True)) == {(1, 4), (5, 6)}


def test_files_that_have_no_hash_pair_with_nothing():
    """
    Two unreadable files both have noughts for a hash.
    """
    hashes = hashes_of(np.zeros((3, 32))).assign(problem=["broken", "broken", ""])

    assert len(find_pairs(hashes, 25)) == 0


def test_a_hundred_thousand_equal_hashes_are_one_cluster_and_not_five_billion_pairs():
    """
    Each is paired with the first alone, the first with its neighbours; small groups in full.
    """
    rng = np.random.default_rng(0)
    many, few, near = rng.integers(0, 256, (3, 32), np.uint8)
    near = many.copy()
    near[0] ^= 7
    codes = np.concatenate([np.tile(many, (100_000, 1)), np.tile(few, (4, 1)), [near]])

    pairs = find_pairs(hashes_of(codes), 25)

    assert len(pairs) == 99_999 + 6 + 1
    assert (pairs["distance"] == 3).sum() == 1
    within = pairs[(pairs["a"] >= 100_000) & (pairs["distance"] == 0)]
    assert len(within) == 6


def test_the_table_of_radii_counts_pairs_and_agreement():
    """
    Worked by hand: three pairs, of which the second is between two labels.
    """
    images = pd.DataFrame({"label": [0, 0, 1, 1]})
    pairs = pd.DataFrame({"a": [0, 1, 2], "b": [1, 2, 3], "distance": [0, 7, 9]})

    table = count_by_radius(images, pairs, [0, 5, 10])

    assert table["pairs"].tolist() == [1, 1, 3]
    assert table["agree"].round(3).tolist() == [1, 1, 0.667]
    assert table["new"].tolist() == [1, 0, 2]
    assert table["new_agree"].fillna(-1).tolist() == [1, -1, 0.5]


def test_examples_come_from_both_sides_of_the_radius():
    """
    The two nearest the radius within it, then the two nearest beyond it.
    """
    pairs = pd.DataFrame({"a": range(6), "b": range(1, 7), "distance": [3, 25, 26, 10, 40, 24]})

    within, beyond = examples_around(pairs, 25, 2)

    assert within["distance"].tolist() == [25, 24]
    assert beyond["distance"].tolist() == [26, 40]
