"""Check finished folds: their shares, classes that are missing, and leakage."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.plan.folds import join_groups, list_first_rows, mark_labels

CLASS_SIZES = {
    "1": 1, "2 to 5": 5, "6 to 25": 25, "26 to 100": 100, "over 100": np.inf
}  # fmt: skip
N_SAMPLED = 300


def compare_shares(
    rows: pd.DataFrame,
    folded: pd.DataFrame,
    validation_size: float = 0.0,
    label_columns: Sequence[str] = (),
    *,
    group_column: str = "",
    extra_in_validation: bool = False,
) -> pd.DataFrame:
    """Compare the folds with the shares that `assign_folds` was asked for.

    rows, folded: its input and its result with the same parameters.
    One row for each band of class sizes, and one for all classes. Columns: classes;
    images, those that may validate, counted once for each label; asked and validation
    (images); fold 0, fold 1, … (shares of the rest); in every fold (classes).
    """
    groups = join_groups(rows, group_column, extra_in_validation)
    counts = _count_by_fold(folded[groups.may_validate], label_columns)
    fold_names = list(counts.columns[1:])
    table = counts.assign(classes=1, images=counts.sum(axis=1))
    table["in every fold"] = (counts[fold_names] > 0).all(axis=1)
    band = pd.cut(table["images"], [0, *CLASS_SIZES.values()], labels=[*CLASS_SIZES])
    table = table.groupby(band.rename("class size"), observed=True).sum()
    table = table.rename(index=str)
    table.loc["all"] = table.sum()
    images_in_folds = table[fold_names].sum(axis=1)
    table[fold_names] = table[fold_names].div(images_in_folds, axis=0).round(4)
    table["asked"] = table["images"] * validation_size

    columns = ["classes", "images"]
    if validation_size:
        columns += ["asked", "validation"]
    if len(fold_names) > 1:
        columns += [*fold_names, "in every fold"]
    return table[columns]


def _count_by_fold(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Count the images of each class: columns validation, fold 0, and so on."""
    row, label = mark_labels(table, label_columns).nonzero()
    fold = table["fold"].to_numpy()[row]
    numbers = range(fold.max(initial=0) + 1)
    counts = pd.crosstab(label, fold).reindex(columns=[-1, *numbers], fill_value=0)
    names = ["validation", *(f"fold {number}" for number in numbers)]
    return counts.set_axis(names, axis=1)


def find_missing_classes(
    folded: pd.DataFrame, *, label_columns: Sequence[str] = ()
) -> pd.DataFrame:
    """List the classes without an image in train, a fold, or the validation split.

    folded: of `assign_folds`. Test images and images without a label are not counted.
    label_columns: of multi-label images; each column is a class.
    One row a class, the largest class first. Columns: class (its name), images (with
    this class), missing_from (such as "fold 0, validation"; "train" stands for all
    folds).
    """
    labelled = folded[folded["split"] != "test"]
    if not label_columns:
        labelled = labelled[labelled["label"] >= 0]
    row, label = mark_labels(labelled, label_columns).nonzero()
    place = labelled["split"].mask(
        labelled["fold"] >= 0, "fold " + labelled["fold"].astype(str)
    )
    counts = pd.crosstab(label, place.to_numpy()[row])

    n_folds = labelled["fold"].max() + 1 if len(labelled) else 0
    places = [f"fold {number}" for number in range(n_folds)] if n_folds > 1 else []
    if (labelled["split"] == "validation").any():
        places.append("validation")
    has_image = counts.reindex(columns=places, fill_value=0) > 0
    is_trained = counts.drop(columns="validation", errors="ignore").any(axis=1)
    # A class that is never trained lacks all folds: "train" stands for them.
    has_image[~is_trained] |= has_image.columns.str.startswith("fold")
    has_image.insert(0, "train", is_trained)

    missing = has_image[~has_image.all(axis=1)]
    names = _name_classes(labelled, label_columns)
    table = pd.DataFrame(
        {
            "class": [names[code] for code in missing.index],
            "images": counts.loc[missing.index].sum(axis=1).to_numpy(),
            "missing_from": [
                ", ".join(missing.columns[~row]) for row in missing.to_numpy()
            ],
        }
    )
    return table.sort_values(
        "images", ascending=False, kind="stable", ignore_index=True
    )


def _name_classes(table: pd.DataFrame, label_columns: Sequence[str]) -> list[str]:
    """Return the names of the classes in the order of `mark_labels`."""
    if label_columns:
        return list(label_columns)
    column = "label_name" if "label_name" in table else "label"
    by_label = table.sort_values("label", kind="stable").drop_duplicates("label")
    return by_label[column].tolist()


def check_leakage(
    table: pd.DataFrame,
    *,
    hashes: pd.DataFrame | None = None,
    max_bits: int = 25,
    group_column: str = "",
) -> pd.Series:
    """Count what crosses the folds of a finished table: a Series of numbers.

    clusters_across_folds, groups_across_folds: must be 0. A split counts as a fold;
        test does not.
    clusters_across_test: clusters with test rows and other rows.
    max_share_deviation: largest difference between a class's share of a fold and of
        train.
    sampled_…: only with `hashes` (of `load_hashes`). 300 sampled images are compared
        with all others: pairs within `max_bits` bits across_folds, which must be 0, and
        pairs with_test, of a test image and another image.
    Raises: ValueError: a number that must be 0 is not.
    """
    fold = table.groupby(["split", "fold"], dropna=False).ngroup().to_numpy()
    is_test = table["split"] == "test"
    test_clusters = set(table["cluster"][is_test].dropna())
    other_clusters = set(table["cluster"][~is_test].dropna())
    numbers: dict[str, float] = {
        "images": len(table),
        "clusters_across_folds": _count_crossing(table, "cluster", fold),
        "max_share_deviation": _measure_deviation(table[table["fold"] >= 0]),
        "clusters_across_test": len((test_clusters & other_clusters) - {-1}),
    }
    if group_column:
        numbers["groups_across_folds"] = _count_crossing(table, group_column, fold)
    if hashes is not None:
        numbers |= _count_near_pairs(table, fold, hashes, max_bits)

    across = {name: n for name, n in numbers.items() if name.endswith("_across_folds")}
    if any(across.values()):
        listed = ", ".join(f"{name} {number}" for name, number in across.items())
        raise ValueError(
            f"The folds leak into one another: {listed}. "
            "Run 02_deduplicate and 03_plan again."
        )
    return pd.Series(numbers, name="folds", dtype=object)


def _count_crossing(table: pd.DataFrame, column: str, fold: np.ndarray) -> int:
    """Count the values of a column that are in several folds."""
    first_row = list_first_rows(table, column)
    return len(np.unique(first_row[fold != fold[first_row]]))


def _measure_deviation(train: pd.DataFrame) -> float:
    """Return the largest difference between a class's share of a fold and of train."""
    shares = pd.crosstab(train["label"], train["fold"], normalize="columns")
    share_of_train = train["label"].value_counts(normalize=True)
    deviation = shares.sub(share_of_train, axis=0).abs().to_numpy()
    return float(deviation.max(initial=0.0))


def _count_near_pairs(
    table: pd.DataFrame, fold: np.ndarray, hashes: pd.DataFrame, max_bits: int
) -> dict[str, float]:
    """Compare sampled images with all others, except images of almost no texture."""
    hashes = hashes.drop_duplicates("path")
    position = pd.Index(hashes["path"]).get_indexer(table["path"])
    hashes = hashes.iloc[position]
    has_hash = (hashes["problem"] == "") & (hashes["texture"] >= FLAT)
    is_compared = has_hash.to_numpy() & (position >= 0)
    words = hashes[[*HASHES]].to_numpy(np.uint64).T
    is_test = (table["split"] == "test").to_numpy()
    sampled = np.random.default_rng(0).permutation(len(table))[:N_SAMPLED]
    n_across = 0
    n_with_test = 0
    for row in sampled[is_compared[sampled]]:
        differing = np.bitwise_count(words ^ words[:, [row]])
        is_near = differing.sum(axis=0, dtype=np.uint16) <= max_bits
        is_near &= is_compared & (fold != fold[row])
        n_near_test = int((is_near & (is_test | is_test[row])).sum())
        n_with_test += n_near_test
        n_across += int(is_near.sum()) - n_near_test
    return {
        "sampled_images": len(sampled),
        "sampled_pairs_across_folds": n_across,
        "sampled_pairs_with_test": n_with_test,
    }
