"""Parts of which only the fingerprints are there, as another person published them."""

from pathlib import Path

import numpy as np
import pandas as pd

from kaggle_tfr.earlier import FINGERPRINTS_FILE, TYPES, encode_fingerprints
from kaggle_tfr.explore import load_hashes
from kaggle_tfr.images.hashing import ALL_HASHES, FLAT

DEFAULTS = {
    "split": "train",
    "label_name": "rose",
    "digest": "0" * 16,
    "fold": 0,
    "part": 1,
    "cluster": -1,
    "texture": FLAT,
    **dict.fromkeys(ALL_HASHES, np.uint64(0)),
}


def make_fingerprints(hashes, **columns):
    """Return the table in hashes.parquet for rows of `load_hashes`.

    columns: values of other columns, one for all or one for each row.
    """
    table = pd.DataFrame(DEFAULTS, index=range(len(hashes)))
    table["image_id"] = [f"their-{row}" for row in range(len(hashes))]
    known = {name: hashes[name].to_numpy() for name in TYPES if name in hashes}
    known.pop("image_id", None)
    return table.assign(**known | columns)[[*TYPES]]


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
    names = ("image_id", "label_name", "split")
    known = {name: good[name].to_numpy() for name in names}
    hashes = load_hashes(good, str(work_dir))
    return write_fingerprints(folder, make_fingerprints(hashes, **(known | columns)))
