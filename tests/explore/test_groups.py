"""Names of recordings, patients and patches propose groups; random names do not."""

import uuid

import numpy as np
import pandas as pd
import pytest
from support.inputs import put_csv, read

from kaggle_tfr.explore.groups import (
    FROM_NAMES,
    add_groups,
    describe_group_column,
    describe_groups,
    propose_groups,
)

HEX = list("0123456789abcdef")


def make_table(names, label_names=None, split="train"):
    """Return the rows of files of these names."""
    classes = [f"class {number % 3}" for number in range(len(names))]
    return pd.DataFrame(
        {
            "image_id": names,
            "path": [f"/data/in/{name}" for name in names],
            "label_name": label_names or classes,
            "split": split,
        }
    )


def draw_letters(rng, letters, count):
    return "".join(rng.choice(letters, count))


def draw_names(kind, rng, count):
    """Return names that belong to no groups."""
    match kind:
        case "running numbers":
            return [f"IMG_{i:04d}.JPG" for i in range(count)]
        case "numbers only":
            return [f"{i}.png" for i in range(count)]
        case "hashes":
            return [f"{draw_letters(rng, HEX, 16)}.jpg" for _ in range(count)]
        case "uuids":
            return [f"{uuid.UUID(bytes=rng.bytes(16))}.jpg" for _ in range(count)]
        case "Flickr's":
            ids = rng.integers(10**9, 10**10, count)
            return [f"{number}_{draw_letters(rng, HEX, 10)}_n.jpg" for number in ids]
        case "short ids":
            numbers = rng.integers(100, size=count)
            return [f"{draw_letters(rng, HEX, 2)}_{n:02d}.jpg" for n in numbers]
        case "cameras":
            cameras = rng.choice(["DSC", "IMG", "DSCN", "P", "PXL", "MVI"], count)
            return [f"{camera}_{i:05d}.jpg" for i, camera in enumerate(cameras)]
        case "chunks":
            return [f"part_{i // 50:03d}/{i:06d}.jpg" for i in range(count)]
        case _:  # the folders are the first letters
            hashes = draw_names("hashes", rng, count)
            return [f"{name[0]}/{name[1]}/{name[2]}/{name}" for name in hashes]


KINDS = [
    "running numbers",
    "numbers only",
    "hashes",
    "uuids",
    "Flickr's",
    "short ids",
    "cameras",
    "chunks",
    "folders of an id",
]
FIELDS = "abcdefgh"
# Names, and the first group.
PLANTED = {
    "recording": (
        [
            f"cologne-2026-field-{name}_{37 * i:04d}"
            for name in FIELDS
            for i in range(30)
        ],
        "cologne-2026-field-a",
    ),
    "patient": (
        [f"patient{p}_slice{s:02d}" for p in range(40) for s in range(6)],
        "patient0",
    ),
    "patch": (
        [
            f"{p:x}_x{x}_y0"
            for p in range(10**6, 10**6 + 60)
            for x in range(0, 2048, 512)
        ],
        "f4240",
    ),
    "eyes": ([f"{p}_{eye}" for p in range(120) for eye in ("left", "right")], "0"),
    "video folder": (
        [f"{v:02d}ab/{i:04d}" for v in range(12) for i in range(20)],
        "00ab",
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("others", ["none", "hashes", "running numbers"])
def test_planted_names_are_proposed(kind, others):
    """Also among as many names without a group, which stay single."""
    planted, first_group = PLANTED[kind]
    names = [f"{name}.png" for name in planted]
    if others != "none":
        names += draw_names(others, np.random.default_rng(0), len(names))
    images = make_table(names)

    [proposal] = propose_groups(images).to_dict("records")

    assert proposal["images"] == len(planted)
    accepted = add_groups(images, FROM_NAMES)[FROM_NAMES]
    assert accepted[0] == first_group
    assert accepted[: len(planted)].notna().all()
    assert not (accepted[len(planted) :] == accepted[0]).any()
    pattern = proposal["group_column"]
    printed = add_groups(images, pattern)[pattern]
    assert printed.equals(accepted.rename(pattern))


def test_twenty_sets_of_random_names_have_no_proposal():
    """Whether they are counted, random, or in folders of a fixed size."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for kind in KINDS:
            count = int(rng.choice([60, 300, 1500]))
            names = sorted(set(draw_names(kind, rng, count)))
            assert propose_groups(make_table(names)).empty, kind


def test_what_a_split_shares_is_counted():
    """Of given splits by their images; of random folds by the sizes of the groups."""
    names = [f"patient{p}_slice{s}.png" for p in range(10) for s in range(2)]
    [proposal] = propose_groups(make_table(names)).to_dict("records")
    assert proposal["shared"] == pytest.approx(0.8)  # the other one, in 4 of 5 folds
    sentence = describe_groups(propose_groups(make_table(names)))
    assert "In random folds, 80% of the validation images would share a group" in (
        sentence
    )
    assert 'GROUP_COLUMN: "from names"' in sentence

    images = make_table(names)
    images.loc[[0, 2, 4, 5], "split"] = "val"  # the last two are a whole group
    [proposal] = propose_groups(images).to_dict("records")
    assert proposal["given"]
    assert proposal["shared"] == 0.5


def test_a_column_without_groups_is_named():
    """Then GROUP_COLUMN changes nothing, which is seldom meant."""
    images = make_table([f"{number}.jpg" for number in range(4)])
    sentence = describe_group_column(images, "image_id")
    assert sentence == (
        "GROUP_COLUMN 'image_id' has no group of two or more of 4 images outside test."
    )


@pytest.mark.parametrize("column", ["label_name", "split"])
def test_names_of_classes_and_splits_are_not_groups(column):
    """Their folds would lack whole classes."""
    names = [f"field-{letter}_{i:03d}.jpg" for letter in "abcdefg" for i in range(20)]
    images = make_table(names)
    assert len(propose_groups(images)) == 1
    images[column] = [name[:7] for name in names]
    assert propose_groups(images).empty


def test_images_of_the_same_second_are_proposed():
    """The column exif_time is there already; images without a time are single."""
    rng = np.random.default_rng(0)
    images = make_table(draw_names("hashes", rng, 60))
    times = [f"2026-05-01 10:00:{i // 3:02d}" for i in range(30)]
    images["exif_time"] = times + [""] * 30
    [proposal] = propose_groups(images).to_dict("records")
    assert proposal["group_column"] == "exif_time"
    assert (proposal["groups"], proposal["images"]) == (10, 30)


def test_a_rule_becomes_a_column_of_the_table(tmp_path, capsys):
    """It is matched below the folder of the images; what does not match has NA."""
    names = ["p1_0.jpg", "p1_1.jpg", "p2_0.jpg", "x.jpg"]
    rows = "".join(f"{name},{i % 2}\n" for i, name in enumerate(names))
    put_csv(tmp_path, f"image_id,label\n{rows}", names)
    rule = "names: ^(p[0-9]+)_"
    images, _ = read(tmp_path, group_column=rule)
    assert images[rule].tolist() == ["p1", "p1", "p2", None]
    assert "3 of 4 images in 2 groups, the largest is 'p1' with 2" in (
        capsys.readouterr().out
    )


def test_the_same_second_of_several_cameras_is_not_proposed():
    """Many photographers of one event take images in the same second by chance."""
    rng = np.random.default_rng(0)
    images = make_table(draw_names("hashes", rng, 60))
    images["exif_time"] = [f"2026-05-01 10:00:{i // 3:02d}" for i in range(60)]
    images["exif_camera"] = [f"camera {i % 3}" for i in range(60)]
    assert propose_groups(images).empty

    images["exif_camera"] = [f"camera {i // 3 % 2}" for i in range(60)]
    [proposal] = propose_groups(images).to_dict("records")
    assert proposal["groups"] == 20


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (FROM_NAMES, "no beginning repeats in the names of the 3 images"),
        ("names: ([0-9]", "cannot be read"),
        ("names: ^a", r"no parenthesis\. Put the group in one"),
        ("names: (b)_", "matches none of the 3 names; the first is 'a'"),
    ],
)
def test_a_rule_that_does_not_fit_is_an_error(rule, message):
    """The message names the rule or the names."""
    with pytest.raises(ValueError, match=message):
        add_groups(make_table(["a.jpg", "aa.jpg", "aaa.jpg"]), rule)
