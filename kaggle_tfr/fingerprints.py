"""hashes.parquet of a part: what finds copies of its images without the images."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.storage import AnyPath

FINGERPRINTS_FILE = "hashes.parquet"
PLANNED_FILE = "fingerprints.parquet"  # in WORK_DIR: those of all parts of a plan
# In the metadata of the file. Another number means other hashes or columns.
FORMAT_KEY = b"kaggle_tfr.fingerprints"
FORMAT = b"1"
TEXTS = ("image_id", "split", "label_name", "digest")
NUMBERS = ("fold", "part", "cluster")
GROUP = "group"  # a digest of the value of GROUP_COLUMN; only if there are groups
TYPES = {
    **dict.fromkeys(TEXTS, pa.string()),
    **dict.fromkeys(NUMBERS, pa.int32()),
    "texture": pa.float32(),
    **dict.fromkeys(ALL_HASHES, pa.uint64()),
}
DIGEST = r"[0-9a-f]{16}"


def encode_fingerprints(
    table: pd.DataFrame, sizes: Sequence[int] | None = None
) -> bytes:
    """Return the content of hashes.parquet.

    table: one row per record, with the columns `TYPES` and optionally `GROUP`.
    sizes: numbers of rows in each row group, with the sum of all rows; None: one group.
    """
    types = TYPES | ({GROUP: pa.string()} if GROUP in table else {})
    rows = pa.Table.from_pandas(
        table[[*types]], schema=pa.schema(types.items()), preserve_index=False
    )
    # Without pandas' metadata, whose version would change the bytes.
    rows = rows.replace_schema_metadata({FORMAT_KEY: FORMAT})
    buffer = io.BytesIO()
    start = 0
    # The checksums of pages make a flipped bit an error, not another hash.
    with pq.ParquetWriter(buffer, rows.schema, write_page_checksum=True) as writer:
        for size in sizes or [len(rows)]:
            writer.write_table(rows.slice(start, size), row_group_size=max(1, size))
            start += size
    return buffer.getvalue()


def read_fingerprints(folder: AnyPath) -> pd.DataFrame:
    """Return the fingerprints of a part, one row per record.

    folder: of the part. Columns: `TYPES`, and `GROUP` where the file has it.
    Raises: FileNotFoundError: the part has no such file. ValueError: it is not one of
        this version; the message names what is wrong.
    """
    path = storage.join(folder, FINGERPRINTS_FILE)
    try:
        data = storage.read_bytes(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no '{path}'. Only parts that 04_write wrote with PUBLISH_HASHES "
            "= True have one: write the part again, or leave it out."
        ) from None
    return decode_fingerprints(data, path)


def decode_fingerprints(data: bytes, path: AnyPath) -> pd.DataFrame:
    """Return the table in a hashes.parquet; path: for errors, as `read_fingerprints`.

    Numbers are int64, hashes uint64.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        rows = file.read()
        rows.validate(full=True)  # texts are UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(
            f"'{path}' is not a Parquet file, or is damaged: {error}. Copy or download "
            "it again."
        ) from None
    problem = _find_format_problem(rows) or _find_value_problem(rows)
    if problem:
        raise ValueError(
            f"'{path}' does not contain the fingerprints of a part: {problem}. Use the "
            "file that 04_write of this version wrote."
        )
    groups = [GROUP] if GROUP in rows.column_names else []
    table = rows.select([*TYPES, *groups]).to_pandas()
    return table.astype(dict.fromkeys(NUMBERS, "int64"))


def _find_format_problem(rows: pa.Table) -> str:
    """Return why the file is not of this format, "" if it is."""
    number = (rows.schema.metadata or {}).get(FORMAT_KEY)
    if number is None:
        return "it was not written as hashes.parquet of a part"
    if number != FORMAT:
        return (
            f"it has format {number.decode(errors='replace')}, this version reads "
            f"{FORMAT.decode()}"
        )
    groups = [GROUP] if GROUP in rows.column_names else []
    for name, expected in (TYPES | dict.fromkeys(groups, pa.string())).items():
        types = [field.type for field in rows.schema if field.name == name]
        if types != [expected]:
            found = ", ".join(map(str, types)) or "missing"
            return f"column '{name}' is {found}, not {expected}"
    return ""


def _find_value_problem(rows: pa.Table) -> str:
    """Return what is wrong with the values of the columns, "" for nothing."""
    for name in [*TYPES, GROUP]:
        if name in rows.column_names and rows[name].null_count:
            return f"column '{name}' has missing values"
    unknown = set(rows["split"].unique().to_pylist()) - set(SPLIT_NAMES)
    if unknown:
        return f"split {min(unknown)!r:.60} is not one of {', '.join(SPLIT_NAMES)}"
    if not _are_all(pc.greater_equal(rows["fold"], -1)):
        return "a fold is below -1"
    if not _are_all(pc.greater_equal(rows["part"], 1)):
        return "a part is below 1"
    if not _are_all(pc.greater_equal(rows["cluster"], -1)):
        return "a cluster is below -1"
    is_texture = pc.and_(
        pc.is_finite(rows["texture"]), pc.greater_equal(rows["texture"], 0)
    )
    if not _are_all(is_texture):
        return "a texture is not a number of 0 or more"
    if not _are_all(pc.match_substring_regex(rows["digest"], rf"\A{DIGEST}\z")):
        return "a digest is not of 16 hexadecimal digits"
    if GROUP in rows.column_names:
        is_digest = pc.match_substring_regex(rows[GROUP], rf"\A({DIGEST})?\z")
        if not _are_all(is_digest):
            return "a group is not a digest"
    return ""


def _are_all(values: pa.ChunkedArray) -> bool:
    """Return whether all values are true, also of none."""
    return pc.all(values, min_count=0).as_py()


def digest_groups(values: pd.Series) -> np.ndarray:
    """Return a digest of each group's name, "" for a row without a group: str (n,).

    Names such as those of patients are not published.
    """
    codes, names = pd.factorize(values.mask(values == ""))
    digests = [storage.digest(str(name).encode()) for name in names]
    return np.array([*digests, ""], object)[codes]  # the code of a missing value is -1
