"""Groups are columns or rules; names of patients and tiles propose rules."""

import uuid

import numpy as np
import pandas as pd
import pytest
from support.cells import run_cells
from support.inputs import put_csv, read

from kaggle_tfr.explore.groups import add_groups, find_groups


def make_table(names, classes=("class 0", "class 1", "class 2")):
    """Return the rows of files of these names, whose classes are repeated."""
    images = pd.DataFrame({"image_id": names, "input_dir": "/data/in"})
    images["path"] = "/data/in/" + images["image_id"]
    return images.assign(label_name=np.resize(classes, len(names)), split="train")


def put_ends(stems, ends):
    """Return all names of stems and ends."""
    return [f"{stem}{end}" for stem in stems for end in ends]


RNG = np.random.default_rng(0)
HASHES = [RNG.bytes(16).hex() for _ in range(240)]
UUIDS = [f"{uuid.UUID(name)}___Scab {n}" for n, name in enumerate(HASHES)]
COPIES = ["", "_flipLR", "_0_7281", " (2)"]

# The names of three groups of four, and the first group.
PLANTED = {
    "uuids": (put_ends(UUIDS[:3], COPIES), UUIDS[0][:36]),
    "tiles": (put_ends(HASHES[:3], [f"_x{x}_y0" for x in range(4)]), HASHES[0]),
    "frames": (put_ends([f"clip{n}_frame_" for n in range(3)], range(4)), "clip0"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_names_are_proposed(kind):
    """Also among other names, if 5 % of the names are planted."""
    names, first_group = PLANTED[kind]
    for n_others in (0, 228):
        images = make_table([*names, *HASHES[:n_others]])
        rule = find_groups(images)
        groups = add_groups(images, rule)[rule][:12]
        assert groups[0] == first_group
        assert groups.value_counts().tolist() == [4, 4, 4]
    assert find_groups(make_table([*names, *HASHES])) == ""


def test_other_names_have_no_proposal():
    """Such as counted names in folders, and random names with counted ends."""
    birds = [f"{n // 20}.Tern/Tern_{n % 20:04}_{n}" for n in range(180)]
    for names in (birds, UUIDS):
        assert find_groups(make_table(names)) == ""


def test_names_of_classes_are_not_groups():
    """Two of a class are too few for folds."""
    names = put_ends([f"patient{n}_" for n in range(8)], range(20))
    classes = [f"c{n // 40}" for n in range(160)]
    assert find_groups(make_table(names))
    assert find_groups(make_table(names, classes)) == ""


def test_what_a_split_shares_is_counted(capsys):
    """In random folds, by the sizes of the groups."""
    names = [f"patient{p}_slice{s}.png" for p in range(10) for s in range(2)]
    images = make_table(names)
    run_cells("01-25", images=images, GROUP_COLUMN="")
    sentence = capsys.readouterr().out.splitlines()[-1]
    # The other image of a patient is in one of 4 other folds of 5.
    assert "! 20 of 20 images are in 10 groups; 80% of the val" in sentence


ROWS = """
image_id,label,folder,site,file

p1_0.jpg,x,1,NA,4
p1_1.jpg,y,1,NA,4
p2_0.jpg,x,2,,4
x.jpg,y,2,EU,4
"""


GROUPS = {
    "site": ["NA", "NA", "", "EU"],
    "names: (p[0-9]+)_": ["p1", "p1", "p2", ""],
    "folder": ["train_images"] * 4,
    "csv_file": ["4"] * 4,
}


def test_a_column_or_a_rule_becomes_the_groups():
    """The cell "NA" is a group; an empty cell, or what does not match, is none.

    The folder is that of the image, not a column. A column that is called like one of
    the steps has another name.
    """
    folder = put_csv(".", ROWS, ["p1_0.jpg", "p1_1.jpg", "p2_0.jpg", "x.jpg"])
    for rule, groups in GROUPS.items():
        images, _ = read(folder, group_column=rule)
        assert images[rule].tolist() == groups
    with pytest.raises(ValueError, match="set GROUP_COLUMN: csv_file"):
        read(folder, group_column="file")
