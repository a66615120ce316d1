"""What happened to the images of a run, from the files of 01 to 04."""

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate import (
    count_outcomes,
    examples,
    load_clusters,
    load_corrected,
)
from kaggle_tfr.deduplicate.outcomes import REASONS, load_leaks
from kaggle_tfr.figures import count_of
from kaggle_tfr.notebook import read_accounting
from kaggle_tfr.waterfall import Overview, Step

DROPPED = tuple(REASONS.values())


def load_overview(work_dir: str) -> Overview:
    """Return how many images each step removed, with examples of what was found.

    Raises: FileNotFoundError: 04_write has not run. ValueError: its accounting is not
    that of the tables in `work_dir`.
    """
    images, _, _ = load_corrected(work_dir)
    clusters, _ = load_clusters(work_dir)
    counts = _read_counts(work_dir)
    _check_counts(counts, count_outcomes(images, clusters), len(images), work_dir)

    steps = [
        _describe_rejects(images, counts),
        Step(
            "copies",
            counts["duplicates dropped"],
            examples=examples.show_copies(images, clusters),
        ),
        Step(
            "label conflicts",
            counts["conflicts dropped"],
            examples=examples.show_conflict(images, clusters),
        ),
        _describe_leaks(images, counts, work_dir),
        Step("dropped by overrides", counts.get("dropped by overrides", 0)),
        Step("in other parts", counts.get("in other parts", 0)),
    ]
    n_records = counts.get("written", 0) + counts.get("test images", 0)
    return Overview(
        n_images=len(images),
        n_records=n_records,
        steps=[step for step in steps if step.count],
        inputs=_list_inputs(images),
        outputs=_list_outputs(n_records, work_dir),
    )


def _read_counts(work_dir: str) -> dict[str, int]:
    """Return the images of each outcome of accounting.csv."""
    table = read_accounting(work_dir)
    if table.empty:
        raise FileNotFoundError(
            f"There is no '{work_dir}/accounting.csv'. "
            "Run 04_write with this WORK_DIR first."
        )
    return dict(zip(table["outcome"], table["images"].astype(int), strict=True))


def _check_counts(
    counts: dict[str, int],
    outcomes: dict[str, int],
    n_images: int,
    work_dir: str,
) -> None:
    """Raise a ValueError if 01 or 02 ran again after the accounting."""
    expected = {name: outcomes.get(name, 0) for name in DROPPED}
    expected["total"] = n_images
    for name, count in expected.items():
        if counts.get(name, 0) != count:
            raise ValueError(
                f"'{work_dir}/accounting.csv' has {counts.get(name, 0):,} of "
                f"'{name}', but the tables beside it have {count:,}. Run 03_plan and "
                "04_write again."
            )


def _describe_rejects(images: pd.DataFrame, counts: dict[str, int]) -> Step:
    """Return the rejected images, with the number of each problem."""
    n_rejected = counts.get("rejected", 0) + counts.get("test images rejected", 0)
    rejected = images[images["problem"] != ""]
    problems = rejected["problem"].str.replace(r":.*", "", regex=True).value_counts()
    lines = [f"{count:,} {problem}" for problem, count in problems.items()]
    n_later = n_rejected - len(rejected)
    if n_later:
        lines.append(f"{n_later:,} unreadable in 04")
    return Step(
        "rejected files",
        n_rejected,
        examples=examples.show_truncated(rejected),
        lines=lines,
    )


def _describe_leaks(
    images: pd.DataFrame,
    counts: dict[str, int],
    work_dir: str,
) -> Step:
    """Return the images dropped as leaks, or the leaks that were only reported."""
    leaks = load_leaks(work_dir)
    leaks = leaks[leaks["dataset"] == ""]  # the others have no image here
    n_dropped = counts.get("leaks dropped", 0)
    n_reported = len(leaks.drop_duplicates(["test_id", "test_split"]))
    return Step(
        "leaks",
        n_dropped or n_reported,
        is_kept=not n_dropped,
        examples=examples.show_leak(images, leaks),
    )


def _list_inputs(images: pd.DataFrame) -> list[str]:
    """Return the number of images of each split."""
    counts = images["split"].value_counts()
    return [f"{count:,} {split}" for split, count in counts.items()]


def _list_outputs(n_records: int, work_dir: str) -> list[str]:
    """Return the records of the folds and of the other splits.

    The list is empty if not all images of the plan were written.
    """
    table = storage.read_parquet(
        storage.join(work_dir, "plan.parquet"),
        columns=["split", "fold"],
    )
    if len(table) != n_records:
        return []
    in_folds = table["fold"] >= 0
    lines = []
    if in_folds.any():
        n_folds = table["fold"][in_folds].nunique()
        lines.append(f"{in_folds.sum():,} in {count_of(n_folds, 'fold')}")
    other_splits = table["split"][~in_folds].replace("train", "train only")
    lines += [f"{n:,} {split}" for split, n in other_splits.value_counts().items()]
    return lines
