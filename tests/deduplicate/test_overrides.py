"""The user's decisions: what a row of OVERRIDES changes, and which rows are wrong."""

import numpy as np
import pandas as pd
import pytest
from support.chain import write_small_sample
from support.plans import digests

from kaggle_tfr import deduplicate, explore, plan
from kaggle_tfr.deduplicate import (
    choose_rows,
    count_outcomes,
    find_clusters,
    list_cut_pairs,
)
from kaggle_tfr.deduplicate.corrections import apply_overrides
from kaggle_tfr.deduplicate.leaks import find_leaks
from kaggle_tfr.deduplicate.overrides import read_overrides
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.parameters import DEFAULTS, load_recipe
from kaggle_tfr.plan import assign_folds, check_leakage, read_plan
from kaggle_tfr.schema import Labels

CLASSES = ("lily", "rose", "tulip")
LABELS = Labels("single", CLASSES)
RULES = {"keep": "largest", "conflicts": "drop", "leaks": "report"}
# id, split, class, width, problem. The larger one of two copies is kept.
IMAGES = [
    ("a", "train", "rose", 30, ""),
    ("b", "train", "rose", 20, ""),
    ("c", "train", "rose", 10, ""),
    ("d", "train", "tulip", 30, ""),
    ("e", "train", "lily", 20, ""),
    ("f", "train", "lily", 10, ""),
    ("g", "train", "lily", 10, ""),
    ("h", "train", "lily", 10, "truncated"),
    ("t", "test", "", 10, ""),
    ("1", "train", "rose", 10, ""),
    ("1", "test", "", 10, ""),
]
# a, b and c are a chain; d and e a conflict; f and t a leak.
PAIRS = [(0, 1, 3), (1, 2, 4), (3, 4, 5), (5, 8, 6)]


@pytest.fixture
def images():
    columns = ["image_id", "split", "label_name", "width", "problem"]
    table = pd.DataFrame(IMAGES, columns=columns)
    label = table["label_name"].map({name: k for k, name in enumerate(CLASSES)})
    return table.assign(
        label=label.fillna(-1).astype(int),
        path=table["split"] + "/" + table["image_id"],
        height=10,
        n_bytes=100,
        source=0,
    )


@pytest.fixture
def pairs():
    return pd.DataFrame(PAIRS, columns=["a", "b", "distance"]).assign(orientation=1)


@pytest.fixture
def hashes(images):
    """All images differ in one hash, by the bits of their numbers."""
    columns = dict.fromkeys(HASHES, np.zeros(len(images), np.uint64))
    table = pd.DataFrame(columns).assign(path=images["path"], texture=FLAT + 1)
    return table.assign(average=np.arange(len(images), dtype=np.uint64))


@pytest.fixture
def decide(images, pairs, hashes, tmp_path):
    """Return a function that applies the rows of a CSV."""

    def decide(*rows, labels=LABELS):
        path = tmp_path / "mine.csv"
        path.write_text("\n".join(["image_id,action,value", *rows, ""]))
        overrides = read_overrides(str(path), images, labels)
        clusters = find_clusters(images, pairs, **RULES)
        found = (images, labels, pairs, clusters)
        corrected = apply_overrides(overrides, *found, hashes=hashes, **RULES)
        return corrected, overrides

    return decide


def list_dropped(corrected):
    clusters = corrected.clusters
    return "".join(sorted(clusters["image_id"][~clusters["keep"]]))


@pytest.mark.parametrize(
    ("rows", "dropped", "effects"),
    [
        ([], "bcde", []),
        (["b,keep,"], "cde", ["kept; before: duplicate of a"]),
        (["a,keep,"], "bcde", ["nothing: it was kept"]),
        (["g,drop,"], "bcdeg", ["dropped; before: kept"]),
        (["a,drop,"], "acde", ["dropped; before: kept; now kept: b"]),
        (
            ["d,drop,"],
            "bcd",
            ["dropped; before: conflict: lily, tulip; now kept: e"],
        ),
        (["h,drop,"], "bcde", ["nothing: it is rejected (truncated)"]),
        (["d,keep,"], "bce", ["kept; before: conflict: lily, tulip"]),
        (
            ["d,label,lily"],
            "bce",
            ["before: tulip; the label conflict is resolved; now kept: d"],
        ),
        (
            ["b,label,lily"],
            "abcde",
            ["before: rose; this is a label conflict; now dropped: a"],
        ),
        (["a,label,rose"], "bcde", ["nothing: this was its class"]),
        (["f,same,g"], "bcdeg", ["one cluster of 3 images; now dropped: g"]),
        (
            ["f,same,a"],
            "abcdef",
            ["one cluster of 5 images; this is a label conflict; now dropped: a, f"],
        ),
        (["a,same,c"], "bcde", ["nothing: they were in one cluster of 3 images"]),
        (
            ["e,different,d"],
            "bc",
            ["separated; they are 5 bits apart; now kept: d, e"],
        ),
        (["a,different,g"], "bcde", ["nothing: they were not in one cluster"]),
        (
            ["f,group,site 1", "g,group,site 1"],
            "bcde",
            ["2 images of this group share a fold"] * 2,
        ),
    ],
)
def test_each_action_has_its_effect(decide, images, rows, dropped, effects):
    """The rows are listed with what they changed; each image is counted once."""
    corrected, _ = decide(*rows)

    assert list_dropped(corrected) == dropped
    assert corrected.effects["effect"].tolist() == effects
    counts = count_outcomes(corrected.images, corrected.clusters)
    assert sum(counts.values()) == len(images)
    is_override = corrected.clusters["reason"] == "override: dropped"
    assert counts.get("dropped by overrides", 0) == is_override.sum()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,keep,", "there is no image 'x'. Use an image_id of images.parquet."),
        ("a,same,x", "there is no image 'x'. Use"),
        ("a,same,", "there is no image ''. Use"),
        ("a,kepe,", "'kepe' is not an action. The actions are"),
        ("a,label,ros", "there is no class 'ros'. labels.json"),
        ("a,same,a", "'a' is named twice. The value of 'same' must be the image_id of"),
        ("a,different,a", "'a' is named twice"),
        ("a,group,", "the value is empty. Write the name of the group."),
        ("h,keep,", "'h' is rejected (truncated), so 'keep' is impossible. Fix the"),
        ("h,label,rose", "'h' is rejected (truncated), so 'label' is impossible"),
        ("a,same,h", "'h' is rejected (truncated), so 'same' is impossible"),
        ("t,drop,", "'t' is a test image, which is always kept. Delete this row."),
        ("t,group,x", "'t' is a test image, which is in no fold. Delete this row."),
        ("t,label,rose", "'t' has no label that could be corrected. Delete the row."),
        ("1,keep,", "'1' is the id of 2 images. Write 'train/1' or 'test/1'."),
        ("b,drop,", "'drop b' contradicts row 2, 'keep b'. Delete one of the two rows"),
        ("c,same,b", "'same c b' contradicts row 3, 'different b c'. Delete one of"),
        ("d,label,rose", "'label d rose' contradicts row 4, 'label d lily'. Delete"),
        ("f,group,y", "'group f y' contradicts row 5, 'group f x'. Delete one of"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_it(decide, tmp_path, row, message):
    """It has the file, the row's number, and what to do; row 1 is the header."""
    right_rows = ["b,keep,", "b,different,c", "d,label,lily", "f,group,x"]

    with pytest.raises(ValueError, match="cannot be applied") as error:
        decide(*right_rows, "", row)

    assert f"OVERRIDES '{tmp_path}/mine.csv'" in str(error.value)
    assert f"\n  row 7: {message}" in str(error.value)


def test_all_wrong_rows_are_named_at_once(decide):
    """The error is short even if the whole file is of other images."""
    with pytest.raises(ValueError) as error:
        decide(*[f"x{number},drop," for number in range(30)])

    lines = str(error.value).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 20 more rows"


def test_several_labels_are_not_overridden(decide):
    """An image of a multi-label dataset has no single class to correct."""
    with pytest.raises(ValueError, match="needs one class for each image"):
        decide("a,label,rose", labels=Labels("multi", CLASSES, CLASSES))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"image_id,action\na,keep\n", "has no column 'value', only image_id, action"),
        (b"", "is not a CSV file"),
        (b"\xff\xfe\x00,\n", "is not a CSV file in UTF-8"),
    ],
)
def test_a_file_without_the_columns_is_an_error(images, tmp_path, content, message):
    """The error contains the header that the file must have."""
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_overrides(str(tmp_path / "mine.csv"), images, LABELS)


def test_a_missing_file_is_an_error(images, tmp_path, monkeypatch):
    """A relative path starts at the current folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"no file '{tmp_path}/mine.csv'. Set"):
        read_overrides("mine.csv", images, LABELS)


def test_columns_may_be_in_any_order_and_separated_by_semicolons(images, tmp_path):
    """As spreadsheets save them, with other columns beside them."""
    (tmp_path / "mine.csv").write_text("note;value;action;image_id\nmy;;keep;b\n")

    overrides = read_overrides(str(tmp_path / "mine.csv"), images, LABELS)

    [row] = overrides.decisions
    assert (row.image_id, row.action, row.a) == ("b", "keep", 1)


def test_an_id_that_two_images_share_is_named_with_its_split(decide, images):
    """The test image "1" is a copy of the labelled one."""
    corrected, _ = decide("train/1,same,test/1")

    leaks = find_leaks(corrected.images, corrected.pairs, corrected.clusters)
    assert leaks["test_id"].tolist() == ["t", "1"]
    assert leaks["image_id"].tolist() == ["f", "1"]
    assert leaks["distance"].tolist() == [6, (9 ^ 10).bit_count()]


def test_a_pair_is_added_where_none_was_found(images, hashes, tmp_path):
    """An empty table of pairs has no integers."""
    (tmp_path / "mine.csv").write_text("image_id,action,value\nt,same,f\n")
    overrides = read_overrides(str(tmp_path / "mine.csv"), images, LABELS)
    pairs = pd.DataFrame(columns=["a", "b", "distance", "orientation"])
    found = (images, LABELS, pairs, find_clusters(images, pairs, **RULES))

    corrected = apply_overrides(overrides, *found, hashes=hashes, **RULES)

    leaks = find_leaks(corrected.images, corrected.pairs, corrected.clusters)
    assert leaks["image_id"].tolist() == ["f"]


def test_a_pair_that_stays_connected_is_a_warning_with_the_third(decide, pairs):
    """Images a and c are not a pair; a and b stay one if c is a copy of both."""
    with pytest.warns(UserWarning, match=r"row 3: 'a' and 'b' .* connected to 'c'"):
        corrected, _ = decide("a,same,c", "a,different,b")

    effect = corrected.effects["effect"].iloc[1]
    assert effect == "not separated: both are connected to 'c'"
    assert len(set(corrected.clusters["cluster"][:3])) == 1


def test_kept_copies_and_groups_stay_in_one_fold(decide):
    """A group joins images that no pair connects, with all kept copies of each."""
    groups = ["a,group,x", "f,group,x", "g,group,x"]
    corrected, _ = decide("b,keep,", "c,keep,", *groups)
    rows = choose_rows(corrected.images, corrected.clusters)

    for seed in range(5):
        folded = assign_folds(rows, n_folds=2, seed=seed)
        together = folded[folded["image_id"].isin([*"abcfg"])]
        assert len(together) == 5
        assert len(set(together["fold"])) == 1
        leakage = check_leakage(folded)
        assert leakage["clusters_across_folds"] == 0
        assert leakage["override_groups_across_folds"] == 0
    with pytest.raises(ValueError, match="override_groups_across_folds 1"):
        check_leakage(folded.assign(fold=range(len(folded))))


def test_the_leakage_check_does_not_count_a_pair_that_was_cut(decide, hashes):
    """The hashes of all images are near; only the pair that was cut may cross folds."""
    corrected, overrides = decide("d,different,e")
    cut_pairs = list_cut_pairs(corrected.images, overrides)
    images = corrected.images[corrected.images["image_id"].isin(["d", "e"])]
    folded = images.assign(cluster=-1, fold=[0, 1])

    checks = check_leakage(folded, hashes=hashes, cut_pairs=cut_pairs)

    assert checks["sampled_pairs_across_folds"] == 0
    with pytest.raises(ValueError, match="sampled_pairs_across_folds 1"):
        check_leakage(folded, hashes=hashes)


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """The small sample after 01 and 02; return its parameters and the work folder."""
    folder = tmp_path_factory.mktemp("overrides")
    write_small_sample(folder / "in")
    changes = {"INPUT_DIR": str(folder / "in"), "MORE_INPUTS": [], "N_FOLDS": 2}
    changes |= {"OVERRIDES": "", "COMPARE_WITH": []}
    values = {**DEFAULTS, **load_recipe("sample"), **changes}
    work = folder / "work"
    explore.run({**values, "WORK_DIR": str(work)})
    deduplicate.run({**values, "WORK_DIR": str(work)})
    return values, work


@pytest.fixture
def every_action(explored, tmp_path):
    """Write a file with every action; return it and its images by their actions."""
    _, work = explored
    clusters = pd.read_parquet(work / "duplicates.parquet")
    images = pd.read_parquet(work / "images.parquet")
    leaks = pd.read_csv(work / "leaks.csv", dtype=str)
    conflicting = clusters[clusters["conflict"]].groupby("cluster").first()
    other_class = clusters.groupby("cluster")["label_name"].last()
    is_copy = clusters["reason"].str.startswith("duplicate")
    is_single = ~images["image_id"].isin(clusters["image_id"])
    is_single &= (images["problem"] == "") & (images["split"] == "train")
    is_single &= images["label_name"] == images["label_name"][is_single].iloc[0]
    single = images["image_id"][is_single].tolist()  # of one class

    decided = {
        "keep": (clusters["image_id"][is_copy].iloc[0], ""),
        "drop": (single[0], ""),
        "label": (
            conflicting["image_id"].iloc[0],
            other_class[conflicting.index[0]],
        ),
        "different": (leaks["test_id"][0], leaks["image_id"][0]),
        "same": (single[1], single[2]),
        "group": (single[3], "site"),
    }
    rows = [f"{image},{action},{value}" for action, (image, value) in decided.items()]
    rows.append(f"{single[4]},group,site")
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(["image_id,action,value", *rows, ""]))
    return file, decided


def test_every_action_reaches_the_plan_and_the_accounting(explored, every_action):
    """03 uses the new labels, pairs and groups; a rerun gives equal bytes."""
    values, work = explored
    file, decided = every_action
    n_leaks = len(pd.read_csv(work / "leaks.csv"))
    before = read_counts(work, values)

    values = {**values, "OVERRIDES": str(file)}
    after = read_counts(work, values)

    assert after.pop("dropped by overrides") == 1
    assert after["conflicts dropped"] < before["conflicts dropped"]
    assert sum(after.values()) == sum(before.values()) - 1
    assert len(pd.read_csv(work / "leaks.csv")) == n_leaks - 1
    folds = pd.read_csv(work / "folds.csv", dtype=str).set_index("image_id")
    image, class_name = decided["label"]
    assert folds["label_name"][image] == class_name
    assert folds["reason"][decided["drop"][0]] == "override: dropped"
    assert folds["reason"][decided["keep"][0]] == "override: kept"
    joined = folds.loc[[*decided["same"]]]
    assert sorted(joined["keep"]) == ["False", "True"]
    assert len(set(joined["fold"])) == 1
    effects = pd.read_csv(work / "decisions.csv", keep_default_na=False)
    assert effects["action"].tolist() == [*decided, "group"]
    assert not effects["effect"].str.startswith("nothing").any()

    first_run = digests(work)
    assert read_counts(work, values) == {**after, "dropped by overrides": 1}
    assert digests(work) == first_run


def read_counts(work, values):
    """Run 02 and 03, and return the outcomes of the plan."""
    deduplicate.run({**values, "WORK_DIR": str(work)})
    plan.run({**values, "WORK_DIR": str(work)})
    return read_plan(str(work)).outcomes


def test_a_file_that_has_changed_since_02_stops_03(explored, every_action):
    """02 applies it again; without OVERRIDES it removes what the last run has left."""
    values, work = explored
    file, _ = every_action
    deduplicate.run({**values, "OVERRIDES": str(file), "WORK_DIR": str(work)})
    file.write_text("image_id,action,value\n")

    with pytest.raises(ValueError, match=f"'{file}' has changed .* Run 02_dedup"):
        plan.run({**values, "WORK_DIR": str(work)})

    deduplicate.run({**values, "WORK_DIR": str(work)})
    plan.run({**values, "WORK_DIR": str(work)})
    assert not list(work.glob("decisions.*"))
