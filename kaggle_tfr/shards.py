"""What lies in part folders: shards, their tables, names, schemas, counts and records."""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import find_input
from kaggle_tfr.naming import is_shard_name, parse_shard_name
from kaggle_tfr.records import FRAME_BYTES, is_gzip, parse_record
from kaggle_tfr.schema import SOURCES, Labels, RecordSchema, feature_spec, load_schema
from kaggle_tfr.session import prepare

# All files of a finished part but Kaggle's metadata and report.html, for `sha256sum -c`.
SUMS = "SHA256SUMS"
LOOKUPS = 16  # questions to a bucket at a time
_COLUMNS = [
    "file",
    "split",
    "fold",
    "count",
    "bytes",
    "compression",
    "jpeg",
    "schema",
    "folder",
]
INTEGERS = {"fold", "count", "bytes", "part", "shard", "refused"}
READ_APART = (
    "If one is an older version, remove it, or run 04_write with OVERWRITE = True. Read two "
    "different datasets apart, and join their batches by tf.data's sample_from_datasets."
)
COPY_AGAIN = (
    "Copy the folder again, or run 04_write again; a file that is not ours, move away."
)
Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
GivenSchema = str | Mapping[str, Any] | RecordSchema


def find_shards(
    dirs: Folders, *, schema: GivenSchema = "", pattern: str = "*.tfrec*"
) -> pd.DataFrame:
    """One row a shard: file, split, fold, count, bytes, compression, jpeg, schema, labels, folder.

    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    schema: a preset's name, a mapping or a `RecordSchema`, for files without a schema.json.
    pattern: the glob of files without a shards.csv. A count that no name tells is counted.
    fold: −1 where nothing tells. jpeg: the plan makes every picture one. labels: shared by all.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what it lacks; parts
    of different plans are not read together.
    """
    prepare()
    given = [dirs] if isinstance(dirs, str | os.PathLike) else dirs
    parents = [find_input(folder) for folder in given]
    folders = [part for folder in parents for part in _find_parts(folder)]
    if not folders:
        raise ValueError(
            "There is no folder to read. Set TFREC_DIRS to the part folders."
        )
    list_folder = partial(_list_folder, given=schema, pattern=pattern)
    with ThreadPoolExecutor(LOOKUPS) as threads:
        listed = [row for rows in threads.map(list_folder, folders) for row in rows]
        shards = pd.DataFrame(listed, columns=[*_COLUMNS, "fingerprint"])
        if twice := shards["file"][shards["file"].duplicated()].tolist():
            what = f"{len(twice)} shards are listed twice, the first is '{twice[0]}'."
            mend = "Name every folder once in TFREC_DIRS, not both a part and the folder around it."
            raise ValueError(f"{what} {mend}")
        # A folder of parts may also contain the plan that its parts should be of.
        around = [folder for folder in parents if folder not in folders]
        plans = dict(zip(around, threads.map(read_fingerprint, around), strict=True))
        plans |= dict(zip(shards["folder"], shards.pop("fingerprint"), strict=True))
        check_one_plan(plans, advice=READ_APART)
        texts = threads.map(
            storage.read_text, [f"{one}/labels.json" for one in folders]
        )
        labels = share_labels(folders, texts)
        listed_bytes = shards["bytes"]
        answers = list(threads.map(_inspect, shards.itertuples()))
        shards["bytes"], shards["compression"], shards["count"] = zip(
            *answers, strict=True
        )
        shards = _leave_out_empty(shards)
        # One record of a folder is enough for its schema, where every look-up is a slow request.
        is_checked = ~shards[["folder", "schema"]].duplicated()
        is_checked |= (listed_bytes < 0)[shards.index] & ~shards["file"].map(
            storage.is_remote
        )
        list(threads.map(_check_schema, shards[is_checked].itertuples()))
    shards = shards.reset_index(drop=True)
    return shards.assign(labels=pd.Series([labels] * len(shards), dtype=object))


def _leave_out_empty(shards: pd.DataFrame) -> pd.DataFrame:
    """The shards that hold records; a printed line names the others. Raises ValueError for none."""
    empty = shards["file"][shards["count"] == 0]
    if len(empty) == len(shards):
        what = f"None of the {len(empty)} shards holds a record, such as '{empty.iloc[0]}'."
        raise ValueError(
            f"{what} See rejects.csv beside them; 04_write writes them again."
        )
    if len(empty):
        print(
            f"{len(empty)} of {len(shards)} shards hold no record, such as '{empty.iloc[0]}'."
        )
    return shards[shards["count"] > 0]


def _find_parts(folder: str) -> list[str]:
    """The part folders in a folder: itself, or those below it with a shards.csv, or itself."""
    is_part = storage.exists(storage.join(folder, "shards.csv"))
    tables = [] if is_part else storage.list_files("*/shards.csv", folder)
    return [table.rpartition("/")[0] for table in tables] or [folder]


def read_fingerprint(folder: str) -> str:
    """Return the fingerprint of the plan in a work or part folder, "" where plan.json has none."""
    with suppress(ValueError, RecursionError):
        return _get_fingerprint(json.loads(storage.read_text(f"{folder}/plan.json")))
    return ""


def _get_fingerprint(plan: Any) -> str:
    value = plan.get("fingerprint") if isinstance(plan, dict) else ""
    return str(value or "")


def is_of_plan(part_dir: str, work_dir: str) -> bool:
    """Whether a part was written by the plan of a work folder, or one of them has no plan."""
    fingerprints = {read_fingerprint(part_dir), read_fingerprint(work_dir)}
    return len(fingerprints - {""}) < 2


def check_one_plan(fingerprints: Mapping[str, str], *, advice: str) -> None:
    """Raise a ValueError that names two folders whose plans differ.

    fingerprints: by the folder, of `read_fingerprint`; "" (unknown) agrees with all.
    """
    known = [(folder, sha256) for folder, sha256 in fingerprints.items() if sha256]
    for folder, sha256 in known[1:]:
        first, expected = known[0]
        if sha256 != expected:
            raise ValueError(
                f"'{first}' and '{folder}' are of different plans, so images that one validates "
                f"on may be in the other's training. {advice}"
            )


def share_labels(folders: Sequence[str], texts: Iterable[str]) -> Labels:
    """The labels of the first labels.json. Raises ValueError when another has other classes."""
    named = list[tuple[str, Labels]]()
    for folder, text in zip(folders, texts, strict=True):
        # Other people's labels.json may be a list of names, which says nothing of the records.
        if text and not _is_json_list(text):
            named.append(
                (folder, Labels.parse(text, f"{folder}/labels.json", COPY_AGAIN))
            )
    first, shared = named[0] if named else ("", Labels())
    for folder, labels in named:
        if labels.classes != shared.classes:
            both = f"{list(labels.classes[:5])}… and {list(shared.classes[:5])}…"
            what = f"'{folder}' and '{first}' number their classes differently: {both}"
            raise ValueError(
                f"{what}, so their labels do not mean the same. Read them apart."
            )
    return shared


def _is_json_list(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), list)
    return False


def _list_folder(folder: str, given: GivenSchema, pattern: str) -> list[tuple]:
    """Rows of `find_shards`; −1, and "?" for the compression, where only the file can tell."""
    table = read_part_table(folder)
    if table.empty and storage.exists(f"{folder}/shards.csv"):
        raise FileNotFoundError(
            f"'{folder}/shards.csv' lists no shard. Write the part again."
        )
    table["file"] = [storage.join(folder, file) for file in table["file"]]
    rows = list(table[_COLUMNS[:5]].itertuples(index=False, name=None))
    rows = rows or list_names(folder, pattern)
    if not rows:
        what = "no shards.csv, there or one folder down, and no file named"
        mend = "Set TFREC_DIRS to part folders, or give the `pattern` of the files."
        raise FileNotFoundError(f"No shards in '{folder}': {what} {pattern}. {mend}")
    schema = choose_schema(folder, rows[0][0], given)
    path = f"{folder}/plan.json"
    plan = storage.parse_json(
        storage.read_text(path) or '{"compression": "?"}', path, COPY_AGAIN
    )
    settings = plan.get("settings", plan)
    image = plan.get("image", {})
    if not isinstance(settings, dict) or not isinstance(image, dict):
        raise ValueError(
            f"'{path}' is not a plan: its settings are no mappings. {COPY_AGAIN}"
        )
    compression = settings.get("compression", "")
    if compression not in ("", "GZIP", "?"):
        raise ValueError(
            f"'{path}' has the unknown compression {compression!r:.40}. {COPY_AGAIN}"
        )
    # With nothing resized, originals of any kind may have kept their bytes.
    jpeg = image.get("format") == "JPEG" and image.get("resize", "none") != "none"
    same = folder, _get_fingerprint(plan)
    return [(*row, compression, jpeg, schema.for_split(row[1]), *same) for row in rows]


def read_part_table(
    part_dir: str, name: str = "shards.csv", columns: Sequence[str] = _COLUMNS[:5]
) -> pd.DataFrame:
    """Return a CSV of a part with its columns typed, empty if there is no file.

    Raises: ValueError: it lacks one of `columns`, or is not a table.
    """
    path = f"{part_dir}/{name}"
    text = storage.read_text(path)
    if not text:
        return pd.DataFrame(columns=list(columns))
    types = {column: int if column in INTEGERS else str for column in columns}
    try:
        table = pd.read_csv(io.StringIO(text), dtype=types, keep_default_na=False)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"'{path}' is not a list of shards: {error}. {COPY_AGAIN}"
        ) from None
    if missing := [column for column in columns if column not in table]:
        raise ValueError(
            f"'{path}' lacks the column(s) {', '.join(missing)}. {COPY_AGAIN}"
        )
    if (table["file"] == "").any():
        raise ValueError(f"'{path}' has a row without a file. {COPY_AGAIN}")
    return table


def list_names(
    folder: str, pattern: str = "*.tfrec*", depths: Sequence[str] = ("", "*/")
) -> list[tuple]:
    """(file, split, −1, count, −1) by the files' names; "train" and −1 where they do not tell."""
    files = [
        file for depth in depths for file in storage.list_files(depth + pattern, folder)
    ]
    if "*.tfrec" in pattern:
        files = [file for file in files if is_shard_name(file)]
    rows = []
    for file in files:
        name = parse_shard_name(file[len(folder) :].strip("/"))
        rows.append((file, name.split, -1, name.count, -1))
    return rows


def list_inputs(folder: str, pattern: str = "") -> dict[str, str]:
    """The split of each shard below a folder, by its path, also of one that is listed and missing.

    pattern: "" or "*/*" for all that are called like shards, up to two folders down.
    Raises: FileNotFoundError: there is none. ValueError: parts of different plans.
    """
    anything = pattern in ("", "*/*")
    given = ("*.tfrec*", ("", "*/", "*/*/")) if anything else (pattern, ("",))
    splits = {file: split for file, split, *_ in list_names(folder, *given)}
    parts = list[str]()
    for part in _find_parts(folder):
        table = read_part_table(part, columns=["file", "split"])
        for file, split in zip(table["file"], table["split"], strict=True):
            path = storage.join(part, file)
            if anything or path in splits:
                splits[path] = split
                parts.append(part)
    fingerprints = {part: read_fingerprint(part) for part in dict.fromkeys(parts)}
    check_one_plan(
        fingerprints, advice="Set INPUT_DIR to one of them, MORE_INPUTS to the other."
    )
    if not splits:
        mend = "Set PATTERN to the shards' names below INPUT_DIR, such as '*/*.tfrec'."
        raise FileNotFoundError(
            f"no TFRecord shard matches '{pattern}' in {folder}. {mend}"
        )
    return dict(sorted(splits.items()))


def choose_schema(folder: str, file: str = "", given: GivenSchema = "") -> RecordSchema:
    """The schema given, else the one in the shard's folder."""
    if not given:
        if text := storage.read_text(f"{folder}/schema.json"):
            return RecordSchema.parse(text, f"{folder}/schema.json", COPY_AGAIN)
        what = f"'{folder}' has no schema.json, so nothing says how to read '{file}'."
        mend = (
            'Give a `schema`: a preset such as "cassava", or a mapping of its features.'
        )
        raise ValueError(f"{what} {mend}")
    schema = load_schema(given)
    if schema.kind != "single" or schema.label_keys:
        return schema
    # A preset knows its table's columns only by name: text columns in place of a label are masks.
    texts = (
        source for one in schema.fields if one.type == "bytes" for source in one.sources
    )
    codes = tuple(source for source in texts if source not in SOURCES)
    return replace(schema, kind="masks", label_columns=codes) if codes else schema


def _inspect(row: Any) -> tuple[int, str, int]:
    """(bytes, compression, count) of a shard, by quick look-ups."""
    from kaggle_tfr.session import tf

    size, remote = storage.size_and_time(row.file)[0], storage.is_remote(row.file)
    if row.bytes not in (-1, size):
        what = f"'{row.file}' has {size:,} bytes, its shards.csv says {row.bytes:,}: it is cut,"
        raise ValueError(
            f"{what} or of another run. Copy it again, or write the part again."
        )
    compression, count = row.compression, row.count
    if compression == "?":
        compression = "GZIP" if is_gzip(row.file) else ""
    try:
        # Size vouches for a shard with a row in shards.csv. Frames are quick to count on a disk.
        if count < 0 or (row.bytes < 0 and not (remote or compression)):
            count = count_records(row.file, compression)
    except tf.errors.DataLossError as error:
        raise _explain_loss(row.file, error) from None
    if row.count not in (-1, count):
        what = f"'{row.file}' holds {count:,} records, its name says {row.count:,}: it is cut or"
        raise ValueError(f"{what} misnamed. Copy it again, or give it another name.")
    return size, compression, count


def _explain_loss(file: str, error: Any) -> ValueError:
    problem = f"'{file}' is cut or no TFRecord file: {error.message}"
    return ValueError(f"{problem}. Copy or write it again.")


def _check_schema(row: Any) -> None:
    """Raises ValueError when a shard's first record is cut, or lacks what the schema reads."""
    from kaggle_tfr.session import tf

    file, schema = row.file, row.schema
    try:
        record = next(
            tf.data.TFRecordDataset(file, row.compression).as_numpy_iterator(), None
        )
    except tf.errors.DataLossError as error:
        raise _explain_loss(file, error) from None
    if record is None:
        what = f"'{file}' holds no record, its name or shards.csv says {row.count:,}: it is cut"
        raise ValueError(f"{what}. Copy or write it again.")
    try:
        tf.io.parse_single_example(record, feature_spec(schema))
    except tf.errors.OpError:
        found = sorted(parse_record(record).items())
        has = [
            f"{name}: {str(one.WhichOneof('kind')).removesuffix('_list')}"
            for name, one in found
        ]
        wants = [f"{field.name}: {field.type}" for field in schema.fields]
        both = f"records have {', '.join(has) or 'nothing'}; the schema wants {', '.join(wants)}"
        what = f"'{file}' is not of the schema it is read with: its {both}"
        raise ValueError(
            f"{what}. Set the `schema` of find_shards, or mend schema.json."
        ) from None


def count_records(file: str, compression: str = "") -> int:
    """The records in a shard, read as little as will do. Raises: DataLossError when it is cut."""
    from kaggle_tfr.session import tf

    if storage.is_remote(file) or compression:
        data = tf.data.TFRecordDataset(file, compression, buffer_size=16 << 20)
        return int(data.reduce(np.int64(0), lambda count, _: count + 1))
    count, end, size = 0, 0, os.path.getsize(file)
    with open(file, "rb", buffering=0) as shard:
        while end < size:
            shard.seek(offset := end)
            end += FRAME_BYTES + int.from_bytes(shard.read(8), "little")
            count += 1
    if end > size:
        where = f"record {count - 1} at byte {offset:,} should end at byte {end:,}"
        raise tf.errors.DataLossError(None, None, f"{where}, the file ends at {size:,}")
    return count


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each file by name from SHA256SUMS, {} if it is unreadable."""
    text = storage.read_text(storage.join(part_dir, SUMS))
    pairs = re.findall(r"^([0-9a-f]{64})  (.+)\n", text, re.MULTILINE)
    sums = {name: sha256 for sha256, name in pairs}
    return sums if text == format_sums(sums) else {}


def format_sums(sums: Mapping[str, str]) -> str:
    """Return the text of SHA256SUMS."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))


def find_changed_files(part_dir: str, sums: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each file that does not match `sums`, by name."""
    wrong = {}
    for name, sha256 in sums.items():
        try:
            if storage.sha256_of(storage.join(part_dir, name)) != sha256:
                wrong[name] = "it has changed since it was written"
        except FileNotFoundError:
            wrong[name] = "the file is missing"
        except IsADirectoryError:
            wrong[name] = "it is a folder, not a file"
        except storage.NotAFileError:
            wrong[name] = "it is a pipe or a device, not a file"
    return wrong
