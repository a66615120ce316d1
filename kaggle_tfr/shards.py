"""The shards that lie in folders, and what their tables, names and frames say of them."""

import io
import json
import os
import re
import struct
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import find_input
from kaggle_tfr.names import parse_name

COLUMNS = ["file", "split", "fold", "count", "bytes"]
COLUMNS += ["compression", "jpeg", "schema", "folder"]
_ENDING = re.compile(r"\.tfrec(ord)?s?(\.gz|-\d+-of-\d+)?$")
# Kaggle's habit: "Id_df03-1427.tfrec" holds 1427 records. Other endings end in other numbers.
_COUNT = re.compile(r"\d-(\d+)\.tfrec$")
_SPLIT = re.compile(r"(?:^|[/_.-])(train|validation|valid|val|test)(?=[/_.-])")
_LONG_SPLIT = {"valid": "validation", "val": "validation"}


def list_shards(dirs: str | Sequence[str], *, pattern="*.tfrec*", shard_name="") -> pd.DataFrame:
    """One row a shard: file, split, fold, count, bytes, compression, jpeg, schema, folder.

    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    pattern, shard_name: for files of others, which have no shards.csv: their glob, and the
        template of their names, such as "Id_df{i:02d}-{count}.tfrec".
    count, bytes: −1 where neither table nor name tells. fold: −1 outside cross-validation.
    compression: "", "GZIP", or "?" where no plan.json tells.
    jpeg: whether the plan has turned every picture into a JPEG.
    schema: the text of schema.json, "" without one. `attrs["classes"]`: those of labels.json.
    Raises: FileNotFoundError for a folder without shards; ValueError for a folder named twice, or
        for parts whose classes differ.
    """
    dirs = [dirs] if isinstance(dirs, str | os.PathLike) else list(dirs)
    folders = [part for folder in dirs for part in find_parts(find_input(folder))]
    if not folders:
        raise ValueError("There is no folder to read. Set TFREC_DIRS to the part folders.")
    rows = [row for folder in folders for row in _list_folder(folder, pattern, shard_name)]
    shards = pd.DataFrame(rows, columns=COLUMNS)
    twice = shards.loc[shards["file"].duplicated(), "file"]
    if len(twice):
        raise ValueError(
            f"{len(twice)} shards are listed twice, the first is '{twice.iloc[0]}'. "
            "Name every folder once in TFREC_DIRS, and not both a part and the folder around it."
        )
    shards.attrs["classes"] = _read_classes(folders)
    return shards


def find_parts(folder: str) -> list[str]:
    """The part folders in a folder: itself, or those below it with a shards.csv, or itself."""
    if storage.exists(storage.join(folder, "shards.csv")):
        return [folder]
    tables = storage.list_files("*/shards.csv", folder)
    return [table.rpartition("/")[0] for table in tables] or [folder]


def count_frames(file: str) -> int:
    """The records in an uncompressed local shard, by stepping over its frames.

    Raises: ValueError naming the file and the record where it ends too early.
    """
    count, offset, size = 0, 0, os.path.getsize(file)
    with open(file, "rb", buffering=0) as shard:
        while offset < size:
            head = shard.read(8)
            # A frame: length (8 bytes), its checksum (4), data, the data's checksum (4).
            after = offset + 16 + (struct.unpack("<Q", head)[0] if len(head) == 8 else size)
            if after > size:
                raise ValueError(
                    f"'{file}' is cut or no TFRecord file: record {count} at byte {offset:,} "
                    f"should end at byte {after:,}, the file ends at {size:,}. "
                    "Copy or write it again."
                )
            offset = shard.seek(after)
            count += 1
    return count


def _list_folder(folder: str, pattern: str, shard_name: str) -> list[tuple]:
    schema, plan = _read_text(folder, "schema.json"), _read_plan(folder)
    text = _read_text(folder, "shards.csv")
    if text:
        table = pd.read_csv(io.StringIO(text), dtype={"file": str, "split": str})
        if table.empty:
            raise FileNotFoundError(f"'{folder}/shards.csv' lists no shard. Write the part again.")
        columns = [table[name] for name in ("file", "split", "fold", "count", "bytes")]
        return [
            (storage.join(folder, file), split, fold, count, size, *plan, schema, folder)
            for file, split, fold, count, size in zip(*columns, strict=True)
        ]
    depths = [pattern, f"*/{pattern}"]
    files = [file for depth in depths for file in storage.list_files(depth, folder)]
    files = [file for file in files if _ENDING.search(file) or "*.tfrec" not in pattern]
    if not files:
        raise FileNotFoundError(
            f"No shards in '{folder}': no shards.csv, there or one folder down, and no file named "
            f"{pattern}. Set TFREC_DIRS to part folders, or give the `pattern` of the files."
        )
    found = []
    for file in files:
        split, fold, count = _read_name(file[len(folder) :].strip("/"), shard_name)
        found.append((file, split, fold, count, -1, *plan, schema, folder))
    return found


def _read_name(name: str, template: str) -> tuple[str, int, int]:
    """(split, fold, count) as the name tells them, ("train", −1, −1) where it does not."""
    if template:
        fields = parse_name(template, name)
        return fields.get("split", "train"), fields.get("fold", -1), fields.get("count", -1)
    splits, count = _SPLIT.findall(name), _COUNT.search(name)
    split = splits[-1] if splits else "train"
    return _LONG_SPLIT.get(split, split), -1, int(count[1]) if count else -1


def _read_text(folder: str, name: str) -> str:
    path = storage.join(folder, name)
    return storage.read_bytes(path).decode() if storage.exists(path) else ""


def _read_plan(folder: str) -> tuple[str, bool]:
    """(compression, jpeg) of a folder's plan.json."""
    text = _read_text(folder, "plan.json")
    if not text:
        return "?", False
    plan = json.loads(text)
    image = plan.get("image", {})
    # With nothing resized, originals of any kind may have kept their bytes.
    jpeg = image.get("format") == "JPEG" and image.get("resize", "none") != "none"
    return plan.get("compression", ""), jpeg


def _read_classes(folders: Sequence[str]) -> list:
    found = {folder: _read_text(folder, "labels.json") for folder in folders}
    named = {folder: json.loads(text)["classes"] for folder, text in found.items() if text}
    first = next(iter(named), "")
    for folder, classes in named.items():
        if classes != named[first]:
            raise ValueError(
                f"'{folder}' and '{first}' number their classes differently: {classes[:5]}… and "
                f"{named[first][:5]}…, so their labels do not mean the same. Read them apart."
            )
    return named.get(first, [])
