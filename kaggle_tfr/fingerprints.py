"""hashes.parquet of a part: what finds copies of its images without the images."""

import io

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.storage import AnyPath

FINGERPRINTS_FILE = "hashes.parquet"
# In the metadata of the file. Another number means other hashes or columns.
FORMAT = {b"kaggle_tfr.fingerprints": b"1"}
FACTS = ("image_id", "split", "label_name", "digest", "fold", "part", "cluster")
NUMBERS = ("fold", "part", "cluster")
HASHED = ("texture", *ALL_HASHES)
PREFIX = "hash: "  # begins the names of these columns in plan.parquet
GROUP = "group"  # a digest of the value of GROUP_COLUMN; only if there are groups
TYPES = {
    **dict.fromkeys(FACTS, pa.string()),
    **dict.fromkeys(NUMBERS, pa.int32()),
    "texture": pa.float32(),
    **dict.fromkeys(ALL_HASHES, pa.uint64()),
}


def _make_schema(*, has_groups: bool) -> pa.Schema:
    groups = {GROUP: pa.string()} if has_groups else {}
    return pa.schema(TYPES | groups, FORMAT)


def encode_fingerprints(table: pd.DataFrame) -> bytes:
    """Return the content of hashes.parquet.

    table: one row per record, with the columns `TYPES` and optionally `GROUP`.
    """
    schema = _make_schema(has_groups=GROUP in table)
    # Not from a data frame: pandas' version would change the bytes.
    rows = pa.table({name: table[name] for name in schema.names}, schema)
    buffer = io.BytesIO()
    # The checksums of pages make a flipped bit an error, not another hash.
    pq.write_table(rows, buffer, write_page_checksum=True)
    return buffer.getvalue()


def read_fingerprints(folder: AnyPath) -> pd.DataFrame:
    """Return the fingerprints of a part, one row per record.

    Columns: `TYPES`, and `GROUP` where the file has it. Numbers are int64, hashes
    uint64.
    Raises: FileNotFoundError: the part has no such file. ValueError: it is not one of
        this version, or is damaged.
    """
    path = storage.join(folder, FINGERPRINTS_FILE)
    try:
        data = pa.BufferReader(storage.read_bytes(path))
        rows = pq.read_table(data, page_checksum_verification=True)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no '{path}'. Only parts that 04_write wrote with PUBLISH_HASHES "
            "= True have one: write the part again, or leave it out."
        ) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"'{path}' is damaged: {error}. Copy it again.") from None
    schema = _make_schema(has_groups=GROUP in rows.column_names)
    if not rows.schema.equals(schema, check_metadata=True):
        raise ValueError(f"'{path}' is not hashes.parquet of a part of this version.")
    return rows.to_pandas().astype(dict.fromkeys(NUMBERS, "int64"))


def add_fingerprints(table: pd.DataFrame, hashes: pd.DataFrame) -> pd.DataFrame:
    """Return the images to write with the columns `HASHED` under other names.

    table: of `make_plan`. hashes: of `load_hashes`, of all images.
    """
    # A row that repeats the path of a good one is rejected, and has no hashes.
    good = hashes[hashes["problem"] == ""].set_index("path")
    return table.join(good[[*HASHED]].add_prefix(PREFIX), on="path")


def select_fingerprints(table: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the columns of hashes.parquet for rows of plan.parquet.

    Raises: ValueError: an earlier version planned them.
    """
    if PREFIX + "texture" not in table:
        raise ValueError(
            "plan.parquet is of an earlier version. Run 03_plan again, or name the "
            "parts in FOLDS_FROM."
        )
    names = {PREFIX + name: name for name in HASHED}
    fingerprints = table[[*FACTS, *names]].rename(columns=names)
    if group_column:
        fingerprints[GROUP] = digest_groups(table[group_column])
    return fingerprints


def digest_groups(groups: pd.Series) -> pd.Series:
    """Return a digest of each group's name, "" for a row without a group.

    Names such as those of patients are not published.
    """
    names = groups.astype(object).fillna("").map(str)
    return names.map(lambda name: name and storage.digest(name.encode()))
