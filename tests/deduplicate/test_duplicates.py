"""Hashes, pairs, geometry and clusters together, on real photographs and on copies of pictures."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageEnhance, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.display import load_pairs, pairs_added
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.leaks import find_leaks
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.proposals import propose_copies
from kaggle_tfr.explore.table import load_hashes, measure
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.images.orientation import apply_orientation


def cropped(image):
    """5 % off the width and the height, half on each side."""
    x, y = image.width / 40, image.height / 40
    return image.crop(
        (round(x), round(y), round(image.width - x), round(image.height - y))
    )


# The ways a picture comes back into a dataset, each with the floors of its recall within 25 bits,
# and with geometric verification, which finds what a border has moved to where no hash looks.
COPIES = {
    "half size": (
        lambda i: i.resize((i.width // 2, i.height // 2), Image.LANCZOS),
        0.99,
        0.99,
    ),
    "low quality": (lambda i: i, 0.99, 0.99),
    "cropped": (cropped, 0.85, 0.97),
    "grey": (lambda i: i.convert("L"), 0.99, 0.99),
    "brighter": (lambda i: ImageEnhance.Brightness(i).enhance(1.2), 0.9, 0.95),
    "darker": (lambda i: ImageEnhance.Brightness(i).enhance(0.8), 0.98, 0.98),
    "framed": (
        lambda i: ImageOps.expand(i, round(0.03 * max(i.size)), "black"),
        0.0,
        0.9,
    ),
}


def hash_images(images, work):
    return load_hashes(measure(images, work_dir=work), work)


def images_of(paths):
    """The table of files, sized as they are, labelled by their folders."""
    table = pd.DataFrame(
        {"image_id": [p.name for p in paths], "path": [str(p) for p in paths]}
    )
    table["label_name"] = [p.parent.name for p in paths]
    table["label"] = pd.factorize(table["label_name"], sort=True)[0]
    table = table.assign(split="train", problem="", height=128, width=128)
    return table.assign(n_bytes=[p.stat().st_size for p in paths])


@pytest.fixture(scope="module")
def flowers(data_dir):
    return images_of(sorted((data_dir / "flowers").glob("*/*")))


@pytest.fixture(scope="module")
def flower_hashes(flowers, tmp_path_factory):
    return hash_images(flowers, str(tmp_path_factory.mktemp("flowers")))


def test_pairs_of_flowers_are_those_of_brute_force(flower_hashes):
    """All of 9,315,686 pairs compared one by one give the 32 within 25 bits, at their distances."""
    words, expected = flower_hashes[list(HASHES)].to_numpy(np.uint64), []
    for row in range(len(words)):
        apart = np.bitwise_count(words[row + 1 :] ^ words[row]).sum(axis=1)
        expected += [[row, row + 1 + k, apart[k]] for k in np.flatnonzero(apart <= 25)]
    pairs = find_pairs(flower_hashes, 25)
    assert pairs[["a", "b", "distance"]].to_numpy().tolist() == expected
    assert len(pairs) == 32
    assert (pairs[list(HASHES)].sum(axis=1) == pairs["distance"]).all()


def test_four_flowers_are_both_rose_and_tulip(flowers, flower_hashes):
    """The conflicts known to be in the data are found, and by default neither copy is kept."""
    clusters = find_clusters(flowers, find_pairs(flower_hashes, 25))
    conflicts = clusters[clusters["conflict"]]
    assert conflicts["cluster"].nunique() == 4
    assert set(conflicts["reason"]) == {"conflict: rose, tulip"}
    assert not conflicts["keep"].any()
    assert not clusters["chain"].any()


WIDE = pytest.param(70, (29_000, 29_500), (52, 58), marks=pytest.mark.heavy)  # 55


# Of 306 pairs 44, give or take what another OpenCV sees in a few.
@pytest.mark.parametrize(("bits", "n", "accepted"), [(45, (300, 312), (42, 46)), WIDE])
def test_geometry_confirms_near_pairs_and_finds_others(
    flowers, flower_hashes, bits, n, accepted
):
    """Of 306 or 29,276 it accepts the 32 near and others, all of one scene when seen by eye."""
    verified = verify_geometry(flowers, find_pairs(flower_hashes, bits))
    assert n[0] < len(verified) < n[1]
    assert (verified["inliers"][verified["distance"] <= 25] >= 12).all()
    assert accepted[0] <= verified["accepted"].sum() <= accepted[1]


def check_recall(originals, folder):
    """Writes every kind of copy of the pictures and asserts that they are found, and no others."""
    n_kinds, paths = 1 + len(COPIES), []
    for number, original in enumerate(originals):
        copies = {kind: change(original) for kind, (change, *_) in COPIES.items()}
        for kind, copy in {"": original, **copies}.items():
            paths.append(folder / f"{number:04d}-{kind}.jpg")
            paths[-1].write_bytes(
                saved(copy, quality=40 if kind == "low quality" else 95)
            )
    images = images_of(paths)
    pairs = find_pairs(hash_images(images, str(folder)), 70)
    same = pairs["a"] // n_kinds == pairs["b"] // n_kinds
    of_original, near = same & (pairs["a"] % n_kinds == 0), pairs["distance"] <= 25
    # Near pairs are accepted whatever their geometry.
    verified = verify_geometry(images, pairs[of_original & ~near])
    further = verified[verified["accepted"]]

    assert not (near & ~same).any()
    for number, (kind, (_, floor, floor_verified)) in enumerate(COPIES.items(), 1):
        n_near = (pairs["b"][of_original & near] % n_kinds == number).sum()
        n_further = (further["b"] % n_kinds == number).sum()
        assert n_near >= floor * len(originals), kind
        assert n_near + n_further >= floor_verified * len(originals), kind


def test_copies_of_scenes_are_found_and_nothing_else(tmp_path):
    """Of 20 made-up scenes each kind of copy is found as often as its floor says; none is mixed."""
    check_recall([scene(150, 200, seed=s) for s in range(20)], tmp_path)


@pytest.mark.heavy
def test_copies_of_a_thousand_photos_are_found_and_nothing_else(
    data_dir, tmp_path, flower_hashes
):
    """60 photographs and 940 flowers, seven copies each; flowers with near-duplicates stay out."""
    pairs = find_pairs(flower_hashes, 45)
    single = flower_hashes.drop(index=np.unique(pairs[["a", "b"]]))
    chosen = single["path"].iloc[:: len(single) // 940][:940]
    photos = sorted((data_dir / "photos").iterdir())
    check_recall(
        [Image.open(path).convert("RGB") for path in [*photos, *chosen]], tmp_path
    )


@pytest.mark.heavy
def test_leaks_planted_in_a_thousand_photos_are_found(data_dir, tmp_path):
    """200 of 60 photographs and 940 flowers are test images; labelled copies of 50 of them leak.

    By chance no two of these flowers that are one scene are in two splits: any other leak is false.
    """
    flowers = sorted((data_dir / "flowers").glob("*/*"))
    originals = [
        *sorted((data_dir / "photos").iterdir()),
        *flowers[:: len(flowers) // 940][:940],
    ]
    order, kinds = np.random.default_rng(14).permutation(1000), list(COPIES)
    planted = {int(row): kinds[k % len(kinds)] for k, row in enumerate(order[:50])}
    images = images_of(originals)
    images.loc[order[:200], ["split", "label", "label_name"]] = "test", -1, ""
    paths = []
    for row, kind in planted.items():
        copy = COPIES[kind][0](Image.open(originals[row]).convert("RGB"))
        paths.append(tmp_path / f"{row:04d}-{kind}.jpg")
        paths[-1].write_bytes(saved(copy, quality=40 if kind == "low quality" else 95))
    images = pd.concat([images, images_of(paths).assign(label=0)], ignore_index=True)
    pairs = find_pairs(hash_images(images, str(tmp_path)), 70)
    near = pairs[pairs["distance"] <= 25]
    table = pd.DataFrame({"planted": pd.Series(planted).value_counts().reindex(kinds)})
    for name, chosen in {
        "25 bits": near,
        "second look": verify_geometry(images, pairs),
    }.items():
        leaks = find_leaks(images, chosen, find_clusters(images, chosen))
        right = leaks["b"].map(dict(enumerate(planted, 1000))) == leaks["a"]
        table[name] = leaks["a"][right].map(planted).value_counts()
        table.loc["false", name] = (~right).sum()
    table = table.fillna(0).astype(int)
    print(f"\n{table}\nall found:\n{table.drop('false').sum().to_string()}")
    floors = pd.DataFrame(
        {kind: floor for kind, (_, *floor) in COPIES.items()}
    ).T.to_numpy()
    assert (table[["25 bits", "second look"]].loc["false"] == 0).all()
    assert (
        table.iloc[:-1, 1:] >= (floors - 0.15) * table.iloc[:-1, :1].to_numpy()
    ).all(axis=None)


def test_turned_copies_are_found_and_shown_as_their_originals(tmp_path):
    """Each of eight orientations is found by hashes, named and turned back; crops by details."""
    pictures = [scene(200, 260, seed=s) for s in range(3)]
    left = pictures[0].width // 5
    for number in range(1, 9):
        copy = Image.fromarray(
            apply_orientation(np.asarray(pictures[0]), number).copy()
        )
        pictures += [copy.resize((copy.width // 2, copy.height // 2))]
    crop = pictures[1].crop((left, 20, pictures[1].width, 180))
    pictures += [
        crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT).rotate(90, expand=True)
    ]
    for number, picture in enumerate(pictures):
        (tmp_path / f"{number:02d}.jpg").write_bytes(saved(picture))
    images = images_of(sorted(tmp_path.glob("*.jpg")))
    hashes = hash_images(images, str(tmp_path))
    pairs = find_pairs(hashes, 25, 20)
    assert pairs[pairs["a"] == 0][["b", "orientation"]].to_numpy().tolist() == [
        [3, 1], [4, 2], [5, 3], [6, 4], [7, 5], [8, 8], [9, 7], [10, 6]]  # fmt: skip
    assert set(pairs[["a", "b"]].to_numpy().ravel()) == {0, *range(3, 11)}
    shown, titles = load_pairs(images, pairs[pairs["a"] == 0])
    assert max(np.abs(a[:90, :120].mean() - b[:90, :120].mean()) for a, b in shown) < 40
    assert "mirrored" in titles[1][1]
    _, titles = load_pairs(images, pairs.head(2).assign(distance=[1, 2]))
    assert [title[1].split("\n")[0] for title in titles] == [
        "03.jpg: 1 bit", "04.jpg: 2 bits, mirrored"]  # fmt: skip
    proposed = propose_copies(images, hashes, pairs)
    verified = verify_geometry(images, proposed)
    found = verified[verified["accepted"] & (verified["b"] == 11)]
    assert found[["a", "orientation"]].to_numpy().tolist() == [[1, 5]]
    plain = find_pairs(hashes, 25).assign(plain=True)[["a", "b", "plain"]]
    for turned in (
        pairs,
        verified[verified["accepted"]],
    ):  # within 25 bits when turned, and not
        added = pairs_added(turned, hashes, 25)[["a", "b"]].to_numpy().tolist()
        rest = turned.merge(plain, how="left")
        assert added == rest[rest["plain"].isna()][["a", "b"]].to_numpy().tolist()
        assert len(added) > 6


def test_flat_pictures_pair_only_when_their_files_are_equal(tmp_path):
    """Blank pages of other shades have the same hash, and are no duplicates; a true copy is."""
    pages = [Image.new("L", (200, 150), shade) for shade in (40, 90, 140, 190, 90)]
    for page in pages:
        page.paste(
            scene(150, 200).convert("L").resize((12, 9)), (20, 30)
        )  # a printed mark
    pictures = list(map(saved, pages))
    for number, data in enumerate(
        [*pictures, saved(scene()), saved(scene(), quality=70)]
    ):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    images = images_of(sorted(tmp_path.glob("*.jpg")))
    hashes = hash_images(images, str(tmp_path))
    pairs = find_pairs(hashes, 25, 20)
    assert pairs[["a", "b"]].to_numpy().tolist() == [[1, 4], [5, 6]]
    assert propose_copies(images, hashes, pairs)[["a", "b"]].to_numpy().tolist() == [
        [1, 4],
        [5, 6],
    ]
