"""What a growing dataset continues: the earlier parts, their plans and their folds.

02 reads FOLDS_FROM once and keeps what it found in WORK_DIR, for all later steps. So
the earlier folds stay the same even if FOLDS_FROM changes after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kaggle_tfr import storage
from kaggle_tfr.mounts import output_dir
from kaggle_tfr.schema import JsonDataclass, Labels
from kaggle_tfr.shards import EarlierPlan, list_parts, read_fingerprint
from kaggle_tfr.storage import exists, join

if TYPE_CHECKING:
    import pandas as pd

# In WORK_DIR.
EARLIER_TABLE = "earlier.parquet"
EARLIER_FILE = "earlier.json"
RUN_AGAIN = "Run 02_deduplicate again."


@dataclass(frozen=True)
class Earlier(JsonDataclass):
    """What FOLDS_FROM contains besides the table of its images.

    source: the parameter as a list. folders: of its parts that are on this machine.
    plans: that wrote its parts, the oldest first; () for a CSV, which has no parts.
    labels, settings, schema: of the newest plan, empty for a CSV.
    """

    source: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    plans: tuple[EarlierPlan, ...] = ()
    labels: Labels = field(default_factory=Labels)
    settings: dict = field(default_factory=dict)
    schema: dict = field(default_factory=dict)

    @property
    def n_parts(self) -> int:
        """Return the number of all earlier parts."""
        return sum(plan.n_parts for plan in self.plans)


def as_sources(folds_from: str | Sequence[str]) -> tuple[str, ...]:
    """Return FOLDS_FROM as a tuple of names, () if it is empty."""
    names = [folds_from] if isinstance(folds_from, str) else folds_from
    return tuple(name for name in names if name)


def load_earlier(work_dir: str) -> Earlier:
    """Return what `use_earlier` kept; without FOLDS_FROM, its source is ()."""
    path = join(work_dir, EARLIER_FILE)
    text = storage.read_text(path)
    return Earlier.parse(text, path, RUN_AGAIN) if text else Earlier()


def load_earlier_images(
    work_dir: str, columns: list[str] | None = None
) -> "pd.DataFrame":
    """Return the table that `use_earlier` kept, one row per image of FOLDS_FROM.

    columns: of hashes.parquet, by default all. part is 0 for the rows of a CSV.
    """
    return storage.read_parquet(join(work_dir, EARLIER_TABLE), columns=columns)


def list_parts_here(work_dir: str, out_dir: str = "") -> list[str]:
    """Return the folders of the earlier parts that are on this machine or in a bucket.

    Those of slugs, of which only fingerprints were downloaded, are left out.
    out_dir: OUT_DIR, which may contain them, too.
    """
    earlier = load_earlier(work_dir)
    plans = {plan.fingerprint for plan in earlier.plans}
    parts = list_parts(output_dir(out_dir or work_dir)) if plans else []
    parts = [part for part in parts if read_fingerprint(part) in plans]
    folders = {storage.real_path(part): part for part in [*parts, *earlier.folders]}
    return [part for part in folders.values() if exists(join(part, "shards.csv"))]


def choose_folders(tfrec_dirs: Sequence[str], out_dir: str, work_dir: str) -> list[str]:
    """Return the folders to read: TFREC_DIRS, or all parts of a dataset that are here.

    out_dir: OUT_DIR, where 04 writes parts; earlier parts may be elsewhere.
    """
    if tfrec_dirs:
        return list(tfrec_dirs)
    earlier_parts = list_parts_here(work_dir, out_dir)
    n_missing = load_earlier(work_dir).n_parts - len(earlier_parts)
    if n_missing:
        print(
            f"WARNING: {n_missing} earlier part(s) are not on this machine and are not "
            "read. Set TFREC_DIRS to all parts of the dataset."
        )
    parts_dir = output_dir(out_dir or work_dir)
    known = {storage.real_path(part) for part in list_parts(parts_dir)}
    elsewhere = [part for part in earlier_parts if storage.real_path(part) not in known]
    return [*elsewhere, parts_dir]


def mark_recorded(images: "pd.DataFrame") -> "np.ndarray":
    """Return whether an earlier part has each image: bool (n,)."""
    import numpy as np

    if "part" not in images:
        return np.zeros(len(images), bool)
    return (images["part"] > 0).to_numpy()
