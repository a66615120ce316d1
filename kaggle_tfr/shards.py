"""The contents of part folders: shards, tables, schemas, labels and checksums."""

import hashlib
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, compress
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.find import find_input, output_dir
from kaggle_tfr.naming import RECORDS
from kaggle_tfr.records import PER_IMAGE_ERRORS, is_gzip
from kaggle_tfr.schema import (
    SOURCES,
    JsonDataclass,
    Labels,
    RecordSchema,
    SchemaLike,
    load_schema,
)
from kaggle_tfr.storage import AnyPath

# The checksums of a finished part, for `sha256sum -c`: of all its files but Kaggle's
# metadata.
SUMS = "SHA256SUMS"
LOOKUPS = 16  # files that are read, or requests to a bucket, at a time
# The columns of shards.csv that readers need; the writer adds more.
SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]
INTEGERS = [
    "fold",
    "count",
    "bytes",
    "part",
    "shard",
    "refused",
    "label",
    "source_height",
    "source_width",
]
TYPES: Any = defaultdict(lambda: str, dict.fromkeys(INTEGERS, int))  # of columns
COPY_AGAIN = (
    "Copy the folder again, or run 04_write again; move away a file that is not ours."
)
Folders = AnyPath | Sequence[AnyPath]
Texts = dict[str, str]  # by the names of files or folders


@dataclass(frozen=True)
class PlanId(JsonDataclass):
    """What a folder's plan.json contains about the dataset and its parts.

    dataset_id: the fingerprint of the first plan of the dataset. fingerprint: of this
    plan; "" if it is unknown. first_part: the number of its first part, more than 1 if
    it continues earlier parts. part: the number of the part in the folder, 0 if it is
    unknown.
    """

    dataset_id: str = ""
    fingerprint: str = ""
    first_part: int = 1
    n_parts: int = 0
    part: int = 0

    @property
    def part_numbers(self) -> range:
        """The numbers of the plan's parts."""
        return range(self.first_part, self.first_part + self.n_parts)


def find_shards(dirs: Folders) -> pd.DataFrame:
    """Return one row per shard with records.

    Columns: file (its path), split, fold, count (records), bytes, folder (of the part),
    schema (`RecordSchema` of the split), compression ("" or "GZIP"), and labels
    (`Labels`, the same in every row).
    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    A folder that is named twice is read once.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what is
    wrong with it, such as parts of different datasets.
    """
    names = [dirs] if isinstance(dirs, str | os.PathLike) else dirs
    parents = list(map(find_input, names))
    parts: list[str] = []
    for parent in parents:
        parts += list_parts(parent) or [parent]  # without parts in it, it is a part
    folders = list(dict.fromkeys(map(storage.real_path, parts)))
    listed = pd.concat(map(_list_folder, folders))
    # `parents` too: a folder around parts may have a plan.json, to compare with theirs.
    check_one_dataset(
        [*parents, *folders],
        advice="If one is an older version or a copy, remove it, or run 04_write with "
        "OVERWRITE = True. Read two different datasets apart, and join their batches "
        "by tf.data's sample_from_datasets.",
    )
    shards = listed[listed["count"] > 0].reset_index(drop=True)
    with ThreadPoolExecutor(LOOKUPS) as threads:
        compression = list(threads.map(_detect_gzip, shards["file"], shards["bytes"]))
    labels: Any = share_labels(folders)
    return shards.assign(compression=compression, labels=labels)


def list_parts(parts_dir: str, table: str = "shards.csv") -> list[str]:
    """Return the paths of the part folders in a folder, in the order of their numbers.

    table: the file that makes a folder a part.
    """
    parts = []
    for name in storage.list_names(parts_dir):
        folder = os.path.join(parts_dir, name[:-1])
        # Names of folders end with "/".
        if name.endswith("/") and table in storage.list_names(folder):
            parts.append(folder)
    # They are sorted by name: part-1, part-10, part-2. `sorted` keeps this order among
    # names of equal length.
    return sorted(parts, key=len)


def read_plan_id(folder: str) -> PlanId:
    """Return the id of the plan in a work or part folder, `PlanId()` if unknown.

    Raises: ValueError: plan.json is not a plan.
    """
    path = f"{folder}/plan.json"
    plan_id = PlanId.parse(storage.read_text(path) or "{}", path, COPY_AGAIN)
    # All rows have the number of the part. The part stays 0 without rows, since the
    # maximum is NaN, or if shards.csv is not ours: both raise a ValueError.
    with suppress(ValueError):
        part = read_part_table(folder, columns=["part"])["part"].max()
        plan_id = replace(plan_id, part=int(part))
    return plan_id


def choose_folders(tfrec_dirs: Sequence[str], out_dir: str, work_dir: str) -> list[str]:
    """Return the folders to read: TFREC_DIRS, or all parts of the dataset.

    All parts: the folder around the parts that 04 writes, and the folder of each
    earlier part that the dataset continues, which may be elsewhere. If FOLDS_FROM had
    the Kaggle slug of an earlier part, the folder may be a download without shards:
    `find_shards` then raises an error, and TFREC_DIRS must list all folders to read,
    that part by its slug.
    tfrec_dirs: TFREC_DIRS; it is returned unless it is empty.
    out_dir: OUT_DIR, where 04 writes parts; "" for `work_dir`.
    """
    if tfrec_dirs:
        return list(tfrec_dirs)

    folders = [output_dir(out_dir or work_dir)]
    # RECORDS: the table of the records of earlier parts, each with its part's folder.
    path = f"{work_dir}/{RECORDS}"
    if storage.exists(path):
        records = storage.read_parquet(path, columns=["folder"])
        folders += records["folder"].unique().tolist()
    return folders


def list_own_parts(out_dir: str, work_dir: str) -> list[str]:
    """Return the folders of the finished parts that the plan in `work_dir` has written.

    Parts of other plans, such as the earlier ones of a dataset that grew, are left out;
    a part without a plan.json is not.
    out_dir: OUT_DIR, "" for `work_dir`.
    """
    # "" is the fingerprint of an unknown plan.
    plans = {"", read_plan_id(work_dir).fingerprint}
    parts = list_parts(output_dir(out_dir or work_dir))
    return [part for part in parts if read_plan_id(part).fingerprint in plans]


def check_one_dataset(folders: Iterable[str], *, advice: str) -> None:
    """Raise a ValueError if two folders cannot be read together; it names them.

    All plans must be of one dataset, two different plans must not have the same part
    numbers, and no part may be there twice. A folder without a plan.json is not
    compared with those that have one.
    folders: parts, or folders around parts. advice: the end of the error: what to do.
    """
    plans = {folder: read_plan_id(folder) for folder in map(storage.real_path, folders)}
    for (folder, plan), (other, other_plan) in combinations(plans.items(), 2):
        # Two plans of a dataset have no number in common: the parts of a later plan are
        # numbered on.
        is_repeated = not {*plan.part_numbers}.isdisjoint(other_plan.part_numbers)
        if plan.fingerprint == other_plan.fingerprint:
            # Folders of the same plan must be different parts. The part is 0 if it is
            # unknown, as for a folder around parts.
            is_repeated = plan.part == other_plan.part > 0
        # Or they are of two datasets: both ids are known ("" is not), and they differ.
        if is_repeated or "" != plan.dataset_id != other_plan.dataset_id != "":
            raise ValueError(
                f"'{folder}' and '{other}' cannot be read as one dataset: they are of "
                "different datasets, or both have the same part. Images could be in "
                f"training and in validation. {advice}"
            )


def share_labels(folders: Iterable[str]) -> Labels:
    """Return the labels that part folders have in common, from their labels.json.

    `Labels()` if no folder has this file. The labels of a quantity have no classes.
    Raises: ValueError: two folders have different classes.
    """
    shared = Labels()
    for folder in folders:
        path = f"{folder}/labels.json"
        text = storage.read_text(path)
        if not text:
            continue
        labels = Labels.parse(text, path, COPY_AGAIN)
        if labels.kind == "number":  # its bins are for the folds only
            labels = replace(labels, classes=())
        if shared.classes and labels.classes != shared.classes:
            raise ValueError(
                f"'{path}' numbers the classes differently. Read it apart."
            )
        shared = labels
    return shared


def _list_folder(folder: str) -> pd.DataFrame:
    """Return a row per shard of a part folder, with the columns of `find_shards`.

    The columns compression and labels are added later.
    Raises: FileNotFoundError: the folder has no shards; ValueError: a file is broken.
    """
    shards = read_part_table(folder)
    if shards.empty:
        raise FileNotFoundError(
            f"No shards in '{folder}': there is no shards.csv, in it or one folder "
            "down. Set TFREC_DIRS to part folders."
        )
    schema = choose_schema(folder, "")  # of schema.json
    return shards.assign(
        file=[storage.join(folder, name) for name in shards["file"]],
        folder=folder,
        schema=shards["split"].map(schema.for_split),
    )


def read_part_table(
    part_dir: str, name: str = "shards.csv", columns: list[str] = SHARD_COLUMNS
) -> pd.DataFrame:
    """Return these columns of a CSV of a part, no rows if there is no file.

    Values are int in columns such as count, fold and label. Otherwise they are text,
    also "" and "NA".
    Raises: ValueError: it is not a table, lacks one of `columns`, or has another type.
    """
    path = f"{part_dir}/{name}"
    text = storage.read_text(path) or ",".join(columns)
    try:
        table = pd.read_csv(
            io.StringIO(text), usecols=columns, dtype=TYPES, keep_default_na=False
        )
    except ValueError as error:
        raise ValueError(
            f"'{path}' is not a list of shards: {error}. {COPY_AGAIN}"
        ) from None
    return table[columns]  # `usecols` keeps the order of the file


def choose_schema(folder: str, schema: SchemaLike) -> RecordSchema:
    """Return `schema` as a RecordSchema; for "", that of the folder's schema.json.

    A `schema` without a field from a label is of masks if it has text columns of a
    table: each is the run-length codes of a class, as in the preset "clouds".
    Raises: ValueError: `schema` or schema.json cannot be used, or there is none.
    """
    if not schema:
        path = f"{folder}/schema.json"
        return RecordSchema.parse(storage.read_text(path), path, COPY_AGAIN)
    record_schema = load_schema(schema)
    # Fields from SOURCES, such as "image_id", are in each dataset; other sources are
    # columns of its table.
    masks = tuple(
        str(field.source)
        for field in record_schema.fields
        if field.type == "bytes" and field.source not in SOURCES
    )
    if masks and not record_schema.label_keys:
        return replace(record_schema, kind="masks", label_columns=masks)
    return record_schema


def _detect_gzip(file: str, n_bytes: int) -> str:
    """Return the compression of a shard, "" or "GZIP".

    n_bytes: its size in shards.csv. Raises: ValueError: the shard has another size.
    """
    size, _ = storage.size_and_time(file)
    if size != n_bytes:
        raise ValueError(
            f"'{file}' has {size:,} bytes, but {n_bytes:,} in shards.csv: it is "
            "truncated or of another run. Copy it again, or write the part again."
        )
    return "GZIP" if is_gzip(file) else ""


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a UTF-8 file with this text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> Texts:
    """Return the SHA-256 of each file of a part by name, as SHA256SUMS has them.

    {} if there is no SHA256SUMS or if it is damaged.
    """
    text = storage.read_text(f"{part_dir}/{SUMS}")
    lines = re.findall(r"(?m)^([0-9a-f]{64})  (.+)\n", text)
    sums = {name: sha256 for sha256, name in lines}
    # A line of another form is not in `sums`: the texts differ.
    return sums if text == format_sums(sums) else {}


def format_sums(sums: Texts) -> str:
    """Return the text of SHA256SUMS: a line for each file, sorted by name.

    sums: SHA-256 by name.
    """
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))


def find_changed_files(part_dir: str, sums: Texts) -> Texts:
    """Return, by name, what is wrong with each file that does not match `sums`.

    sums: SHA-256 by name. Other files of the part are not checked.
    """
    with ThreadPoolExecutor(LOOKUPS) as threads:
        is_changed = threads.map(partial(_is_changed, part_dir), sums, sums.values())
        changed = list(compress(sums, is_changed))  # the names whose flag is true
    return dict.fromkeys(changed, "it is missing, or has changed since it was written")


def _is_changed(part_dir: str, name: str, sha256: str) -> bool:
    """Return whether a file is not as expected.

    sha256: in hexadecimal; "" if there should be no such file.
    """
    # A missing file is one of these errors.
    with suppress(*PER_IMAGE_ERRORS):
        return storage.sha256_of(storage.join(part_dir, name)) != sha256
    return sha256 != ""
