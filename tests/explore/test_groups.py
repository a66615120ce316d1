"""Groups are columns or rules; names of patients and tiles propose rules."""

import uuid

import numpy as np
import pandas as pd
import pytest
from support.inputs import put_csv, read, rows_of

from kaggle_tfr.explore.groups import add_groups, describe_groups, propose_groups

HEX = list("0123456789abcdef")


def make_table(names, split="train"):
    """Return the rows of files of these names, of three classes."""
    return pd.DataFrame(
        {
            "image_id": names,
            "path": [f"/data/in/{name}" for name in names],
            "input_dir": "/data/in",
            "label_name": [f"class {number % 3}" for number in range(len(names))],
            "split": split,
        }
    )


def draw_hashes(rng, count, length=16):
    letters = rng.choice(HEX, (count, length))
    return ["".join(word) for word in letters]


def draw_names(rng, count):
    """Return sets of names that belong to no groups."""
    hashes = draw_hashes(rng, count)
    numbers = rng.integers(10**9, 10**10, count)
    cameras = rng.choice(["DSC", "IMG", "DSCN", "P", "PXL", "MVI"], count)
    yield [f"IMG_{n:04d}" for n in range(count)]
    yield hashes
    yield [f"{uuid.UUID(bytes=rng.bytes(16))}" for _ in range(count)]
    yield [f"{n}_{word[:10]}_n" for n, word in zip(numbers, hashes, strict=True)]
    yield [f"{camera}_{n:05d}" for n, camera in enumerate(cameras)]
    yield [f"part_{n // 50:03d}/{n:06d}" for n in range(count)]
    yield [f"{word[0]}/{word[1]}/{word}" for word in hashes]


# Names, and the first group.
PLANTED = {
    "patient": ([f"patient{p}_{s:02d}" for p in range(40) for s in range(6)], "patient0"),
    "tile": ([f"{p:x}_x{x}_y0" for p in range(9**7, 9**7 + 60) for x in range(4)], "48fb79"),
    "folder": ([f"cat/video_{v:02d}/{n}" for v in range(12) for n in range(20)], "video_00"),
    "copy": ([f"{n}{end}" for n in range(60) for end in ("", "_flip", "_rot90")], "0"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_names_are_proposed(kind):
    """Also among as many names without a group."""
    names, first_group = PLANTED[kind]
    hashes = draw_hashes(np.random.default_rng(0), len(names))
    for others in ([], hashes):
        images = make_table([f"{name}.png" for name in [*names, *others]])

        [proposal] = propose_groups(images).to_dict("records")

        rule = proposal["group_column"]
        assert proposal["images"] == len(names)
        assert add_groups(images, rule)[rule][0] == first_group


def test_random_names_have_no_proposal():
    """Whether they are counted, random, or in folders of a fixed size."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for names in draw_names(rng, int(rng.choice([60, 300, 1500]))):
            images = make_table([f"{name}.jpg" for name in names])
            assert propose_groups(images).empty, names[0]


def test_names_of_classes_are_not_groups():
    """Their folds would lack whole classes."""
    names = [f"patient{p}_{n:03d}.jpg" for p in range(7) for n in range(20)]
    images = make_table(names)
    assert len(propose_groups(images)) == 1
    assert propose_groups(images.assign(label_name=[n[:8] for n in names])).empty


def test_what_a_split_shares_is_counted():
    """Of given splits by their images; of random folds by the sizes of the groups."""
    names = [f"patient{p}_slice{s}.png" for p in range(10) for s in range(2)]
    images = make_table(names)
    sentence = describe_groups(images, "")
    # The other image of a patient is in one of 4 other folds of 5.
    assert "In random folds, 80% of the validation images share a group" in sentence
    [proposal] = propose_groups(images).to_dict("records")
    assert f'GROUP_COLUMN: "{proposal["group_column"]}"' in sentence

    images.loc[[0, 2, 4, 5], "split"] = "val"  # the last two are a whole group
    [proposal] = propose_groups(images).to_dict("records")
    assert proposal["given"]
    assert proposal["shared"] == 0.5


ROWS = "image_id,label,site\np1_0.jpg,x,NA\np1_1.jpg,y,NA\np2_0.jpg,x,\nx.jpg,y,EU\n"


@pytest.mark.parametrize(
    ("rule", "groups", "text"),
    [
        ("site", ["NA", "NA", "", "EU"], "3 of 4 .* 2 groups, the largest is 'NA' with 2"),
        ("names: (p[0-9]+)_", ["p1", "p1", "p2", ""], "3 of 4 images outside test .* 1 h"),
        ("folder", ["train_images"] * 4, "4 of 4 images .* in 1 groups"),
        ("label", ["x", "y", "x", "y"], "the largest is 'x' with 2"),
        ("image_id", None, "has no group of two or more of 4 images outside test"),
    ],
)
def test_a_column_or_a_rule_becomes_the_groups(tmp_path, rule, groups, text):
    """"NA" is a group like others; an empty cell, or what does not match, is none."""
    names = ["p1_0.jpg", "p1_1.jpg", "p2_0.jpg", "x.jpg"]
    images, _ = read(put_csv(tmp_path, ROWS, names), group_column=rule)
    assert list(rows_of(images, rule).values()) == (groups or names)
    assert pd.Series(describe_groups(images, rule)).str.contains(text).all()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("names: ([0-9]", "needs a regular expression with a parenthesis.*unterminated"),
        ("names: ^a", "needs a regular expression with a parenthesis"),
        ("names: (b)_", "matches none of the 3 names, such as 'a'"),
        ("seite", "GROUP_COLUMN is 'seite', which is not a column"),
    ],
)
def test_a_rule_that_does_not_fit_is_an_error(rule, message):
    """The message names the rule or the names."""
    with pytest.raises(ValueError, match=message):
        add_groups(make_table(["a.jpg", "aa.jpg", "aaa.jpg"]), rule)
