"""The records of parts: hashes.parquet, which finds copies of images without them.

If a dataset grows, 01 reads the parts in FOLDS_FROM, and keeps their records in
WORK_DIR for later steps and the next growth. So the earlier folds stay the same even if
FOLDS_FROM changes after that.
"""

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.naming import RECORDS
from kaggle_tfr.storage import AnyPath, exists

FINGERPRINTS_FILE = "hashes.parquet"
# In the metadata of the file. Another number means other hashes or columns.
FORMAT = {b"kaggle_tfr.fingerprints": b"1"}
GROUP = "group"  # a digest of the value of GROUP_COLUMN; only if there are groups
TYPES = {
    **dict.fromkeys(["image_id", "split", "label_name", "digest"], pa.string()),
    **dict.fromkeys(["fold", "part", "cluster"], pa.int32()),
    "texture": pa.float32(),
    **dict.fromkeys(ALL_HASHES, pa.uint64()),
}
SCHEMAS = [
    pa.schema(TYPES, FORMAT),
    pa.schema(TYPES | {GROUP: pa.string()}, FORMAT),
]
NO_PART = "no part with hashes.parquet. Run 04_write with PUBLISH_HASHES = True."
# Begins the path of a record whose image is not there, such as
# "earlier:part-3/train/7.jpg". No file has this path.
GONE = "earlier:"


def encode_fingerprints(table: pd.DataFrame) -> bytes:
    """Return the content of a part's hashes.parquet; equal tables give equal bytes.

    table: one row per record, with the columns of `read_fingerprints`.
    """
    schema = SCHEMAS[GROUP in table]  # the second one has the column of groups
    # Not from a data frame: pandas' version would change the bytes.
    rows = pa.table({name: table[name] for name in schema.names}, schema)
    buffer = io.BytesIO()
    # The checksums of pages make a flipped bit an error, not another hash.
    pq.write_table(rows, buffer, write_page_checksum=True)
    return buffer.getvalue()


def read_fingerprints(folder: AnyPath) -> pd.DataFrame:
    """Return a part's fingerprints, one row per record, to find copies of its images.

    Columns: image_id, split, label_name, fold, part, cluster, digest (of the file),
    texture, the hashes, and group (a digest) where the file has it.
    Raises: FileNotFoundError: the folder has no hashes.parquet; ValueError: it is
    damaged, or is not that of a part.
    """
    path = f"{folder}/{FINGERPRINTS_FILE}"
    if not exists(path):
        raise FileNotFoundError(f"'{folder}' has {NO_PART}")
    data = pa.BufferReader(storage.read_bytes(path))
    try:
        rows = pq.read_table(data, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"'{path}' is damaged: {error}. Copy it again.") from None
    # FORMAT marks the fingerprints of a part, with the number of their format.
    if rows.schema.metadata != FORMAT or rows.schema not in SCHEMAS:
        # Such as the hashes.parquet that 01 writes to the work folder.
        raise ValueError(f"'{folder}' has {NO_PART}")
    return rows.to_pandas()


def select_fingerprints(table: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the columns of a part's hashes.parquet for rows of plan.parquet.

    group_column: the name of the column with groups, "" if there are none.
    """
    # TYPES has the names of all columns but that of groups.
    fingerprints = table[[*TYPES]].copy()
    if group_column:
        fingerprints[GROUP] = digest_groups(table[group_column])
    return fingerprints


def digest_groups(groups: pd.Series) -> pd.Series:
    """Return a digest of each group's name, "" for a row without a group.

    The digests are published in place of names, such as those of patients.
    """
    return groups.astype(str).map(lambda name: name and storage.digest(name.encode()))


def mark_recorded(images: pd.DataFrame) -> np.ndarray:
    """Return which images have a record in an earlier part: bool (n,).

    The column `part` of such an image has the number of the part, of others 0 or -1. It
    is missing if the dataset has no earlier folds.
    """
    # A missing column becomes NaN, which is not above 0.
    return images.reindex(columns=["part"])["part"].gt(0).to_numpy()


def load_earlier(work_dir: str) -> dict[str, Any]:
    """Return the newest plan.json of the parts that WORK_DIR continues, {} for none.

    `save_earlier` has kept its content as an attribute of the table of their records.
    """
    path = f"{work_dir}/{RECORDS}"
    return storage.read_parquet(path).attrs["plan"] if exists(path) else {}


def save_earlier(records: pd.DataFrame, work_dir: str) -> None:
    """Keep the records of earlier parts in WORK_DIR, in place of those kept before.

    Their file is earlier.parquet.
    records: of `read_records`; attrs["plan"] is the newest plan.json. Without attrs
    they are from a CSV, or there are none: then nothing is kept.
    """
    path = f"{work_dir}/{RECORDS}"
    storage.remove(path)
    if records.attrs:
        storage.write_parquet(records, path)
