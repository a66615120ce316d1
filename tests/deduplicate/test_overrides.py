"""The user's decisions: what a row of OVERRIDES changes, and which rows are wrong."""

import io

import pandas as pd
import pytest
from support.splits import make_codes, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings, choose_rows
from kaggle_tfr.deduplicate.overrides import (
    correct_images,
    correct_pairs,
    read_overrides,
)
from kaggle_tfr.plan import assign_folds, check_leakage
from kaggle_tfr.schema import Labels

CLASSES = ("lily", "rose", "tulip")
LABELS = Labels("single", CLASSES)
# The larger one of two copies is kept.
IMAGES = """image_id,split,label_name,label,width,problem
a,train,rose,1,30,
b,train,rose,1,20,
c,train,rose,1,10,
d,train,tulip,2,30,
e,train,lily,0,20,
f,train,lily,0,10,
g,train,lily,0,10,
h,train,lily,0,10,truncated
t,test,,-1,10,
1,train,rose,1,10,
1,test,,-1,10,
train/f,test,,-1,10,
"""
# a, b and c are a chain; d and e a conflict; f and t a leak.
PAIRS = make_pairs("01", "12", "34", "58")


@pytest.fixture
def images():
    table = pd.read_csv(io.StringIO(IMAGES)).fillna("")
    return table.assign(path="", height=10, n_bytes=100, source=0)


@pytest.fixture
def decide(images, tmp_path):
    """Return a function that applies the rows of a CSV: images and clusters."""

    def decide(*rows, labels=LABELS, images=images):
        path = tmp_path / "mine.csv"
        path.write_text("\n".join(["image_id,action,value", *rows, ""]))
        decisions = read_overrides(str(path), images, labels)
        codes = make_codes(*images.index)
        known = {"distance": 3, "orientation": 1, "inliers": -1}
        pairs = PAIRS.assign(**known, verdict="hash", accepted=True)
        pairs = correct_pairs(pairs, decisions, codes)
        images = correct_images(images, decisions, labels).assign(is_elsewhere=False)
        return images, find_clusters(
            images, pairs[pairs["accepted"]], codes, DuplicateSettings()
        )

    return decide


@pytest.mark.parametrize(
    ("row", "dropped"),
    [
        ("", "bcde"),
        ("b,keep,", "cde"),
        ("g,drop,", "bcdeg"),
        ("a,drop,", "acde"),
        ("d,drop,", "bcd"),
        ("d,keep,", "bce"),
        ("d,label,lily", "bce"),
        ("b,label,lily", "abcde"),
        ("f,same,g", "bcdeg"),
        ("f,same,a", "abcdef"),
        ("e,different,d", "bc"),
        ("a,different,g", "bcde"),
        ("test/1,same,train/1", "bcde"),
        ("f,group,site 1", "bcde"),
        ("g,drop,\ng,keep,", "bcde"),
        ("f,same,g\ng,different,f", "bcde"),
        ("t,drop,", "bcde"),
    ],
)
def test_each_action_has_its_effect(decide, row, dropped):
    """These images are dropped by the decision and by the rules."""
    _, clusters = decide(row)

    assert "".join(sorted(clusters["image_id"][~clusters["keep"]])) == dropped


def test_a_record_of_an_earlier_part_keeps_label_and_place(decide, images):
    """The same file of decisions can be used when the dataset grows."""
    images, clusters = decide("d,drop,", "b,label,lily", images=images.assign(part=1))
    assert images["label_name"][1] == "rose"
    assert clusters["keep"].all()


@pytest.mark.parametrize(
    "row", ["a,same,", "h,keep,", "1,keep,", "train/f,keep,", "a,kepe,", "a,label,ros"]
)
def test_all_wrong_rows_are_in_one_error(decide, row):
    """An unknown image, action or class, or a name of two images."""
    right_rows = ["b,keep,", "b,different,c", "d,label,lily", "f,group,x", "b,keep,"]

    with pytest.raises(ValueError, match="mine.csv' cannot be applied, 13 of") as error:
        decide(*right_rows, "", row, *[f"y{number},drop," for number in range(12)])

    assert f"\n{row}\ny0,drop,\n" in str(error.value)
    assert "y11,drop," in str(error.value)


def test_an_image_of_several_labels_has_no_class_to_correct(decide):
    """Its row is wrong, although the class exists."""
    with pytest.raises(ValueError, match="\na,label,rose\n"):
        decide("a,label,rose", labels=Labels("multi", CLASSES, CLASSES))


def test_a_number_can_be_a_label(decide):
    """Classes of a column of numbers are numbers, and a CSV is text."""
    images, _ = decide("d,label,2", labels=Labels("single", (1, 2, 3)))
    assert images.loc[3, ["label_name", "label"]].tolist() == ["2", 1]


@pytest.mark.parametrize("content", [b"image_id,action\na,keep\n", b"", b"\xff\xfe\0,"])
def test_a_file_that_is_no_such_csv_is_an_error(images, tmp_path, content):
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"must be image_id|CSV|columns|decode"):
        read_overrides(str(tmp_path / "mine.csv"), images, LABELS)
    with pytest.raises(FileNotFoundError):
        read_overrides(str(tmp_path / "none.csv"), images, LABELS)


def test_kept_copies_and_groups_stay_in_one_fold(decide):
    """A group joins images that no pair connects, with all kept copies of each."""
    groups = ["a,group,x", "f,group,x", "g,group,x"]
    rows = choose_rows(*decide("b,keep,", "c,keep,", *groups))

    for seed in range(5):
        folded = assign_folds(rows, n_folds=2, seed=seed)
        together = folded[folded["image_id"].isin([*"abcfg"])]
        assert len(together) == 5
        assert len(set(together["fold"])) == 1
        assert check_leakage(folded)["clusters_across_folds"] == 0
