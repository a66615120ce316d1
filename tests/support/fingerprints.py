"""Parts of which only the fingerprints are there, as another person published them."""

from pathlib import Path

import numpy as np
import pandas as pd

from kaggle_tfr.explore import table as explore_table
from kaggle_tfr.fingerprints import FINGERPRINTS_FILE, TYPES, encode_fingerprints
from kaggle_tfr.images.hashing import ALL_HASHES, FLAT

DEFAULTS = {
    "label_name": "rose",
    "digest": "0" * 16,
    "fold": 0,
    "part": 1,
    "cluster": -1,
    "texture": FLAT,
}


def make_fingerprints(hashes, split="train", **columns):
    """Return the table in hashes.parquet for rows of `load_hashes`.

    split, columns: values of columns, one for all or one for each row.
    """
    table = pd.DataFrame(index=range(len(hashes)))
    for name in ALL_HASHES:
        table[name] = np.asarray(hashes.get(name, 0), np.uint64)
    table["image_id"] = [f"their-{row}" for row in range(len(hashes))]
    for name, default in DEFAULTS.items():
        table[name] = hashes[name].to_numpy() if name in hashes else default
    table = table.assign(split=split, **columns)
    is_missing = ~table["digest"].astype(str).str.fullmatch("[0-9a-f]{16}")
    table["digest"] = table["digest"].mask(is_missing, DEFAULTS["digest"])
    return table[[*TYPES]]


def write_fingerprints(folder, table):
    """Write a part's hashes.parquet; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FINGERPRINTS_FILE).write_bytes(encode_fingerprints(table))
    return folder


def publish_images(folder, images, work_dir, **columns):
    """Write the fingerprints of the images that 01 read; return the folder.

    columns: as in `make_fingerprints`.
    """
    good = images[images["problem"] == ""]
    hashes = explore_table.load_hashes(good, str(work_dir))
    known = {
        name: good[name].to_numpy() for name in ("image_id", "label_name", "split")
    }
    table = make_fingerprints(hashes, **(known | columns))
    return write_fingerprints(folder, table)
