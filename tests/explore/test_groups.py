"""Groups are columns or rules; names of patients and tiles propose rules."""

import uuid

import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells
from support.inputs import put_csv, read

from kaggle_tfr.explore.groups import add_groups, find_rule


def make_table(names):
    """Return the rows of files of these names, of three classes."""
    images = pd.DataFrame({"image_id": names, "input_dir": "/data/in"})
    images["path"] = "/data/in/" + images["image_id"]
    classes = np.resize(["class 0", "class 1", "class 2"], len(names))
    return images.assign(label_name=classes, split="train")


def propose(names, classes=("x", "y", "z")):
    """Return the rule for names, whose classes are repeated."""
    return find_rule(pd.Series(names), pd.Series(np.resize(classes, len(names))))


def draw_hashes(rng, count):
    return [
        "".join(letters) for letters in rng.choice([*"0123456789abcdef"], (count, 16))
    ]


def draw_names(rng, count):
    """Return sets of names that belong to no groups."""
    hashes = draw_hashes(rng, count)
    cameras = rng.choice(["DSC", "IMG", "DSCN", "P", "PXL", "MVI"], count)
    yield hashes
    yield [f"{uuid.UUID(bytes=rng.bytes(16))}" for _ in range(count)]
    yield [f"{camera}_{n:05d}" for n, camera in enumerate(cameras)]
    yield [f"{word[0]}/{word[1]}/{word}" for word in hashes]


# Names, and the first group.
PLANTED = {
    "tile": (
        [f"{p:x}_x{x}_y0" for p in range(9**7, 9**7 + 60) for x in range(4)],
        "48fb79",
    ),
    "folder": (
        [f"cat/video_{v:02d}/{n}" for v in range(12) for n in range(20)],
        "video_00",
    ),
    "copy": ([f"{n}{end}" for n in range(60) for end in ("", "_flip", "_rot90")], "0"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_names_are_proposed(kind):
    """Also among as many names without a group."""
    names, first_group = PLANTED[kind]
    hashes = draw_hashes(np.random.default_rng(0), len(names))
    for others in ([], hashes):
        rule = propose([*names, *others])
        assert add_groups(make_table(names), rule)[rule][0] == first_group


def test_random_names_have_no_proposal():
    """Whether they are counted, random, or in folders of a fixed size."""
    for seed in range(9):
        rng = np.random.default_rng(seed)
        for names in draw_names(rng, int(rng.choice([60, 300, 900]))):
            assert propose(names) == "", names[0]


def test_names_of_classes_are_not_groups():
    """Their folds would lack whole classes."""
    names = [f"patient{p}_{n:03d}" for p in range(7) for n in range(20)]
    assert propose(names)
    assert propose(names, [name[:8] for name in names]) == ""


def test_what_a_split_shares_is_counted(capsys):
    """Of given splits by their images; of random folds by the sizes of the groups."""
    names = [f"patient{p}_slice{s}.png" for p in range(10) for s in range(2)]
    images = make_table(names)
    run_cells("01-25", images=images, GROUP_COLUMN="")
    sentence = capsys.readouterr().out.splitlines()[-1]
    # The other image of a patient is in one of 4 other folds of 5.
    assert "! 20 of 20 images are in 10 groups; 80% of the val" in sentence
    rule = propose([name.removesuffix(".png") for name in names])
    assert f'GROUP_COLUMN: "{rule}"' in sentence

    images.loc[[0, 2, 4, 5], "split"] = "val"  # the last two are a whole group
    run_cells("01-25", images=images, GROUP_COLUMN=rule)
    text = (
        "· 20 of 20 images are in 10 groups; 50% of the validation images in the given"
    )
    assert text in capsys.readouterr().out


ROWS = "image_id,label,site\np1_0.jpg,x,NA\np1_1.jpg,y,NA\np2_0.jpg,x,\nx.jpg,y,EU\n"


@pytest.mark.parametrize(
    ("rule", "groups"),
    [
        ("site", ["NA", "NA", "", "EU"]),
        ("names: (p[0-9]+)_", ["p1", "p1", "p2", ""]),
        ("folder", ["train_images"] * 4),
        ("label", [0, 1, 0, 1]),
    ],
)
def test_a_column_or_a_rule_becomes_the_groups(rule, groups):
    """The cell "NA" is a group; an empty cell, or what does not match, is none."""
    names = ["p1_0.jpg", "p1_1.jpg", "p2_0.jpg", "x.jpg"]
    images, _ = read(put_csv(".", ROWS, names), group_column=rule)
    assert images[rule].tolist() == groups


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("names: ([0-9]", "needs a regular expression with a parenthesis.*untermin"),
        ("names: ^a", "needs a regular expression with a parenthesis"),
        ("names: (b)_", "matches none of the 3 names, such as 'a'"),
        ("seite", "GROUP_COLUMN is 'seite', which is not a column"),
    ],
)
def test_a_rule_that_does_not_fit_is_an_error(rule, message):
    """The message names the rule or the names."""
    with pytest.raises(ValueError, match=message):
        add_groups(make_table(["a.jpg", "aa.jpg", "aaa.jpg"]), rule)
