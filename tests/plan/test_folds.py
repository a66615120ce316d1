import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from support.splits import make_codes, make_hashes

from kaggle_tfr.plan.folded import check_leakage, compare_sample, note_folds
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.plan import assign_shards
from kaggle_tfr.schema import Labels

LABELS = Labels(classes=tuple(f"class {number}" for number in range(4)))
QUICK = settings(max_examples=25, deadline=None)


def make_table(labels, clusters=-1, **columns):
    """Return a table of train images; columns may also replace split."""
    table = pd.DataFrame({"label": labels, "split": "train"})
    table["label_name"] = "class " + table["label"].astype(str)
    return table.assign(cluster=clusters, **columns)


def hold_out(table, share, seed=0, **parameters):
    """Return which images are held out for validation."""
    parameters |= {"n_folds": 1, "validation_size": share}
    folded = assign_folds(table, seed=seed, **parameters)
    return folded["split"] == "validation"


@st.composite
def tables(draw):
    """Draw a table with clusters, patients and test images."""
    n = draw(st.integers(8, 40))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    patients = rng.integers(0, draw(st.integers(6, 40)), n).astype(object)
    patients[rng.random(n) < 0.3] = draw(st.sampled_from([None, ""]))
    is_test = rng.random(n) < 0.1
    return make_table(
        rng.integers(0, draw(st.integers(1, 6)), n),
        rng.integers(-1, draw(st.integers(4, 40)), n),
        patient=patients,
        split=np.where(is_test, "test", "train"),
    )


def is_whole(table, column):
    """Return whether equal values of a column share a split and a fold."""
    has_value = ~table[column].isin([None, "", -1])
    rows = table[has_value & (table["split"] != "test")]
    places = rows.groupby(column)[["split", "fold"]].nunique()
    return (places == 1).all(axis=None)


@QUICK
@given(tables(), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.integers(0, 9))
def test_no_cluster_and_no_group_is_ever_split(table, n_folds, validation_size, seed):
    """No row is lost, whatever the labels, clusters, patients and folds are."""
    parameters = {
        "n_folds": n_folds,
        "seed": seed,
        "validation_size": validation_size,
        "group_column": "patient",
    }
    try:
        folded = assign_folds(table, **parameters)
    except ValueError:
        reject()  # too few clusters for so many folds

    assert is_whole(folded, "cluster")
    assert is_whole(folded, "patient")
    was_test = table["split"] == "test"
    assert was_test.equals(folded["split"] == "test")
    is_train = folded["split"] == "train"
    assert is_train.equals(folded["fold"].between(0, n_folds - 1))
    assert folded.equals(assign_folds(table, **parameters))


def draw_clusters(seed, n, largest):
    """Return a table of clusters of one class, and each class's largest cluster."""
    rng = np.random.default_rng(seed)
    n_classes = rng.integers(1, 30)
    labels = rng.integers(0, n_classes, n)
    sizes = rng.integers(1, largest + 1, n)
    clusters = np.repeat(np.arange(n), sizes)
    table = make_table(np.repeat(labels, sizes), clusters)
    largest_of_class = pd.Series(sizes).groupby(labels).max()
    return table, largest_of_class


@settings(max_examples=75, deadline=None)
@given(
    st.integers(6, 200),
    st.sampled_from([1, 1, 5]),
    st.integers(2, 6),
    st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.7]),
    st.integers(0, 99),
)
def test_a_class_has_its_share_of_the_folds_and_of_validation(
    n, largest, n_folds, share, seed
):
    """Folds differ by a class's largest cluster at most, validation by the largest.

    Without clusters, a class has its share of validation to within one image. So have
    all classes of equal size together, and the folds of all images.
    """
    table, largest_of_class = draw_clusters(seed, n, largest)

    try:
        folded = assign_folds(table, n_folds=n_folds, seed=seed, validation_size=share)
    except ValueError:
        reject()  # too few clusters are left for so many folds

    is_held_out = folded["split"] == "validation"
    excess = is_held_out - share
    assert abs(excess.sum()) <= largest + 1e-9
    train = folded[~is_held_out]
    counts = pd.crosstab(train["label"], train["fold"])
    counts = counts.reindex(columns=range(n_folds), fill_value=0)
    assert (np.ptp(counts, axis=1) <= largest_of_class[counts.index]).all()
    if largest == 1:
        assert np.ptp(counts.sum()) <= 1
        of_class = excess.groupby(table["label"]).sum()
        class_sizes = table["label"].value_counts()
        assert (of_class.abs() <= 1).all()
        assert (of_class.groupby(class_sizes).sum().abs() < 1 + 1e-9).all()


def test_a_large_cluster_is_held_out_with_the_requested_probability():
    """The largest cluster is the first that is placed; here, it has two labels, too.

    One that would fill most of the split is not held out.
    """
    table = make_table([0] * 4 + [*range(4)] * 50, [7] * 4 + [-1] * 200)
    table = table.assign(dog=1, cat=[1] * 4 + [0, 1] * 100)
    giant = make_table([0] * 30 + [*range(4)] * 50, [7] * 30 + [-1] * 200)

    for columns in ([], ["dog", "cat"]):
        held_out = [
            hold_out(table, 0.2, seed, label_columns=columns)[0] for seed in range(60)
        ]
        assert 3 <= sum(held_out) <= 21  # 12, with a deviation of 3
    assert not any(hold_out(giant, 0.2, seed)[0] for seed in range(20))


def test_images_of_a_cluster_or_group_leave_the_larger_split():
    """The smaller split stays whole; test images stay where they are.

    A given validation split does not count in VALIDATION_SIZE.
    """
    split = ["train"] * 6 + ["validation"] * 3 + ["test"] * 2
    table = make_table([0] * 11, [3, 3, -1, -1, 4, -1, 3, -1, 5, 4, 5], split=split)
    table["site"] = [*"abcdefgh", "d", "j", "k"]

    for size, n_moved in {0: [3], 0.5: [4, 5]}.items():
        is_held_out = hold_out(table, size, group_column="site")
        assert is_held_out.sum() - 3 in n_moved
        assert is_held_out[[0, 1, 3, 6, 7, 8]].all()
        assert not is_held_out[9:].any()


def test_other_sources_do_not_validate_by_default():
    """Their images and clusters train in every fold; shares are of the other images.

    With EXTRA_IN_VALIDATION, the shares are of all images. The empty text, which
    `exif_time` has where EXIF has no time, is no group.
    """
    table = make_table([0] * 40, source=np.repeat([0, 1], [30, 10]), exif_time="")
    table.loc[[0, 1, 30], "cluster"] = 7

    parameters = {"n_folds": 4, "seed": 0, "group_column": "exif_time"}
    folded = assign_folds(table, validation_size=0.25, **parameters)

    assert (folded["split"] == "validation").sum() == 7
    always_trained = folded.query("split == 'train' and fold == -1")
    assert always_trained.index.tolist() == [0, 1, *range(30, 40)]
    assert hold_out(table, 0.25, extra_in_validation=True).sum() == 10
    with pytest.raises(ValueError, match=r"0 clusters.*EXTRA_IN_VALIDATION"):
        assign_folds(table.assign(source=1), n_folds=4, seed=0)


def test_multi_label_images_are_spread_evenly():
    """Each fold has a quarter of every label, to within one image."""
    rng = np.random.default_rng(0)
    marks = pd.DataFrame(rng.random((800, 4)) < [0.5, 0.2, 0.1, 0.05])
    table = make_table([0] * 800).join(marks.astype(int))

    folded = assign_folds(table, n_folds=4, seed=0, label_columns=[*marks])
    held_out = hold_out(table, 0.3, label_columns=[*marks])

    excess = marks.groupby(folded["fold"]).sum() - marks.sum() / 4
    assert excess.abs().max(axis=None) <= 1
    assert (marks[held_out].sum() - 0.3 * marks.sum()).abs().max() <= 1


def test_images_without_a_label_may_be_as_many_as_further_labels():
    """Together, the images then have as many labels as images of one class would."""
    table = make_table([0] * 40).assign(dog=[1, 0] * 20, cat=[1, 0] * 20)
    is_held_out = hold_out(table, 0.25, label_columns=["dog", "cat"])
    assert is_held_out.sum() == 10
    assert table["dog"][is_held_out].sum() == 5


@pytest.fixture
def hashes():
    """Return hashes of a and b, two bits apart, of a far image, and of a flat image."""
    hashes = make_hashes(make_codes(0, 2, 200, 1))
    hashes.loc[3, "texture"] -= 1
    return hashes


def test_the_leakage_check_stops_at_clusters_and_pairs_across_folds(hashes):
    """Both images of the pair are sampled, so it is counted twice.

    A flat image is not compared, and no image that the user calls different.
    """
    table = make_table([0, 0, 1, 1], [5, 5, -1, -1], fold=[0, 1, 0, 1])

    with pytest.raises(ValueError, match="1 clusters or groups are in two"):
        check_leakage(table)
    with pytest.raises(ValueError, match="2 pairs of near-duplicates are in two"):
        compare_sample(table, hashes, 2, [])
    assert compare_sample(table, hashes, 1, [])["sampled_images"] == 3
    assert compare_sample(table, hashes, 2, [1, 0])["sampled_images"] == 1


def test_the_leakage_check_counts_test_images_separately(hashes, capsys):
    """Clusters and pairs over test and train are reported, and are not an error.

    No tick denies them: what it says of clusters is not about test images.
    """
    columns = {"split": ["train", "test"] * 2, "fold": [0, -1, 1, -1]}
    table = make_table([0, 0, 1, 1], [5, 5, -1, -1], **columns)

    checks = check_leakage(table) | compare_sample(table, hashes, 2, [])
    note_folds(table, LABELS, checks | {"max_bits": 2})

    text = capsys.readouterr().out
    assert text.startswith("✓ Images: 1 in fold 0, 1 in fold 1, 2 in test. Test")
    assert "Clusters that contain test images and others: 1." in text


@QUICK
@given(
    st.lists(st.integers(0, 4), min_size=12, max_size=60),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_shards_are_equal_to_within_one_image(labels, n_shards, n_parts):
    """So are their images of each class, and the number of shards in the parts."""
    table = make_table(labels, fold=np.arange(len(labels)) % 2)
    n_shards_of = pd.Series({("train", 0): n_shards, ("train", 1): n_shards})

    planned = assign_shards(table, n_shards_of, n_parts, seed=1)

    for _, rows in planned.groupby("fold"):
        counts = pd.crosstab(rows["label"], rows["shard"])
        assert list(counts) == list(range(n_shards))
        assert np.ptp(counts, axis=1).max() <= 1
        assert np.ptp(counts.sum()) <= 1
        assert rows["position"].equals(rows.groupby("shard").cumcount())
        shards = rows[["shard", "part"]].drop_duplicates()
        assert len(shards) == n_shards
        # Each part is a small copy of the whole.
        assert np.ptp(np.bincount(shards["part"], minlength=n_parts)) <= 1
