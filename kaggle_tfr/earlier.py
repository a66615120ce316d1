"""The parts that a growing dataset continues, as 01 has kept them in WORK_DIR.

01 reads FOLDS_FROM, and keeps in WORK_DIR what later steps and the next growth need. So
the earlier folds stay the same even if FOLDS_FROM changes after that.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.find import output_dir
from kaggle_tfr.shards import list_parts, read_plan_id
from kaggle_tfr.storage import exists, join

# In WORK_DIR, if it continues parts: their records, and the content of their newest
# plan.json.
RECORDS = "earlier.parquet"
EARLIER = "earlier.json"
# Begins the path of a record whose image is not there, such as
# "earlier:part-3/train/7.jpg". No file has this path.
GONE = "earlier:"


def mark_recorded(images: pd.DataFrame) -> np.ndarray:
    """Return which images have a record in an earlier part: bool (n,)."""
    parts = images.get("part", pd.Series(0, images.index))
    return (parts > 0).to_numpy()


def load_earlier(work_dir: str) -> dict[str, Any]:
    """Return the newest plan.json of the parts that WORK_DIR continues, {} for none."""
    return json.loads(storage.read_text(join(work_dir, EARLIER)) or "{}")


def save_earlier(plan: dict[str, Any], records: pd.DataFrame, work_dir: str) -> None:
    """Keep in WORK_DIR what `read_records` returned, or remove what it kept before."""
    for name in (EARLIER, RECORDS):
        storage.remove(join(work_dir, name))
    if plan:
        storage.write_parquet(records, join(work_dir, RECORDS))
        storage.write_atomically(join(work_dir, EARLIER), json.dumps(plan).encode())


def choose_folders(tfrec_dirs: Sequence[str], out_dir: str, work_dir: str) -> list[str]:
    """Return the folders to read: TFREC_DIRS, or all parts of a dataset that are here.

    out_dir: OUT_DIR, where 04 writes parts; earlier parts may be elsewhere.
    """
    parts_dir = output_dir(out_dir or work_dir)
    if tfrec_dirs or not load_earlier(work_dir):
        return list(tfrec_dirs) or [parts_dir]
    records = storage.read_parquet(join(work_dir, RECORDS), columns=["folder"])
    parts = {
        storage.real_path(part): part
        for part in [*records["folder"].unique(), *list_parts(parts_dir)]
        if exists(join(part, "shards.csv"))  # of a slug, only hashes.parquet is here
    }
    n_missing = read_plan_id(work_dir).part_numbers.stop - 1 - len(parts)
    if n_missing > 0:
        print(
            f"WARNING: {n_missing} part(s) are not on this machine and are not read. "
            "Set TFREC_DIRS to all parts of the dataset."
        )
    return list(parts.values())
