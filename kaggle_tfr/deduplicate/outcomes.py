"""Save the clusters, and report which images are kept and dropped because of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.growth import mark_recorded
from kaggle_tfr.schema import JsonDataclass

LEAK_COLUMNS = [
    "test_id",
    "image_id",
    "label_name",
    "distance",
    "test_split",
    "split",
    "keep",
    "dataset",
]
# The first word of the reason why an image is not written, and its outcome.
REASONS = {
    "duplicate": "duplicates dropped",
    "conflict": "conflicts dropped",
    "leak": "leaks dropped",
    "override": "dropped by overrides",
    "between": "between folds dropped",
}
# The images with a record in an earlier part, by their state: see `join_earlier`.
STATES = {
    "same": "in earlier parts",
    "relabelled": "in earlier parts, relabelled",
    "changed": "in earlier parts, file changed",
    "gone": "in earlier parts, file gone",
}
# The outcomes that are listed without an image, too.
USUAL = ("labelled records", "duplicates dropped", "conflicts dropped", "rejected")


@dataclass(frozen=True)
class DuplicateSettings(JsonDataclass):
    """The parameters of 02, as saved in duplicates.json. Radii are in bits of 256.

    second_look: the parameter, or, in the file, what was done, as in `Candidates`.
    """

    max_bits: int = 25
    second_look: bool | str = "auto"
    leaks: str = "report"
    mirrored: bool = False

    @property
    def rotated_bits(self) -> int | None:
        """Return the radius of mirrored and rotated copies, None without a search."""
        return self.max_bits * 4 // 5 if self.mirrored else None


def save_clusters(
    clusters: pd.DataFrame,
    leaks: pd.DataFrame,
    settings: DuplicateSettings,
    work_dir: str,
    overlap: pd.DataFrame | None = None,
) -> None:
    """Write leaks.csv, duplicates.json, and last duplicates.parquet.

    leaks: of `find_leaks`. overlap: of `list_overlap`, to follow them in leaks.csv.
    """
    storage.remove_leftovers(work_dir)
    rows = leaks[LEAK_COLUMNS]
    if overlap is not None and len(overlap):
        found = overlap[LEAK_COLUMNS]
        rows = pd.concat([rows, found]) if len(rows) else found
    # Readers take a carriage return for the end of a line.
    rows = rows.replace("\r", r"\\r", regex=True)
    texts = {
        "leaks.csv": rows.to_csv(index=False),
        "duplicates.json": settings.to_json(),
    }
    for name, text in texts.items():
        storage.write_atomically(storage.join(work_dir, name), text.encode())
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """Read what `save_clusters` wrote.

    Raises: FileNotFoundError: 02_deduplicate has not run.
    """
    clusters_file = storage.join(work_dir, "duplicates.parquet")
    if not storage.exists(clusters_file):
        raise FileNotFoundError(
            f"There is no '{clusters_file}'. "
            "Run 02_deduplicate with this WORK_DIR first."
        )
    settings_file = storage.join(work_dir, "duplicates.json")
    settings = DuplicateSettings.parse(
        storage.read_bytes(settings_file),
        settings_file,
        "Run 02_deduplicate again.",
    )
    return storage.read_parquet(clusters_file), settings


def choose_rows(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
) -> pd.DataFrame:
    """Return the good rows that are kept, with their `cluster` (-1: none).

    Rows of one cluster must share a fold. Raises: ValueError: no row is left.
    """
    table = match_clusters(images, clusters)
    table = table.drop(columns="input_dir", errors="ignore")  # no column of records
    is_kept = (table["problem"] == "") & table.pop("keep")
    if not is_kept.any():
        raise ValueError(
            f"No image is left of {len(images):,}: "
            f"{_list_outcomes(images, clusters)}. "
            "Set CONFLICTS, LEAKS or MAX_BITS so that 02_deduplicate keeps images."
        )
    return table[is_kept].reset_index(drop=True)


def _list_outcomes(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
) -> str:
    """Return what happened to the images, such as "2 conflicts dropped, 1 rejected"."""
    counts = count_outcomes(images, clusters)
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def match_clusters(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the table with columns cluster (-1: none) and keep.

    columns: others of `clusters` to add; they are missing (NA) without a cluster.
    """
    # A test image may have the name of a labelled image.
    table = images.merge(
        clusters[["image_id", "split", "cluster", "keep", *columns]],
        how="left",
        on=["image_id", "split"],
    )
    table["cluster"] = table["cluster"].fillna(-1).astype("int64")
    table["keep"] = table["keep"].ne(False)
    return table


def count_outcomes(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
) -> dict[str, int]:
    """Count the images by outcome; each image is counted once.

    Keys: those of `USUAL`, of which rejected counts labelled and test images; and, only
    if there are any, test records, leaks dropped, dropped by overrides, between folds
    dropped, and those of `STATES`. Records are images to be written.
    """
    is_test = images["split"] == "test"
    is_good = images["problem"] == ""
    matched = match_clusters(images[["image_id", "split"]], clusters)
    is_kept = is_good & matched["keep"].to_numpy() & ~mark_recorded(images)
    n_dropped = _count_reasons(clusters)
    counts = {
        "labelled records": (is_kept & ~is_test).sum(),
        "test records": (is_kept & is_test).sum(),
        **{name: n_dropped[word] for word, name in REASONS.items()},
        "rejected": (~is_good).sum(),
        **_count_states(images),
    }
    return {
        name: int(count) for name, count in counts.items() if count or name in USUAL
    }


def _count_states(images: pd.DataFrame) -> dict[str, int]:
    """Count the images with a record in an earlier part, by outcome."""
    if "earlier" not in images:
        return {}
    counts = images["earlier"].value_counts()
    return {name: counts.get(state, 0) for state, name in STATES.items()}


def _count_reasons(clusters: pd.DataFrame) -> Counter[str]:
    """Count the images dropped by the first word of the reason."""
    # Without clusters the column is empty, and not of text.
    reason = clusters["reason"][~clusters["keep"]].astype(str)
    return Counter(reason.str.extract(r"^(\w+)", expand=False))
