"""What can still be read of a damaged part, in new whole shards, and a list of what cannot."""

import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain, pairwise
from operator import itemgetter

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.frames import FRAME_BYTES, checksum, list_frames
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.session import tf
from kaggle_tfr.shards import format_index, read_index
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import Row

LOST_COLUMNS = ["file", "record", "offset", "problem"]

Lost = tuple[str, int, int, str]  # of LOST_COLUMNS


@storage.naming("--out", storage.MENDS_OF_OUTPUT)
def salvage_part(part_dir: str, out_dir: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(shards, lost): what shards.csv and lost.csv in `out_dir` hold, beside the new shards.

    Kept is every record that its own checksum fits, in its order and, of GZIP, as far as the shard
    can be unpacked; also schema.json and labels.json. lost: record from 0, by the index where that
    fits, −1 for what has no number; offset in the (unpacked) file.
    Raises: FileExistsError: out_dir is no new folder. FileNotFoundError: there is no shard.
    """
    if storage.is_folder(out_dir) and storage.list_files("*", out_dir):
        raise FileExistsError(f"'{out_dir}' holds files. Give a new or empty folder.")
    ordered = sorted(chain(*journal.list_rows(part_dir)), key=itemgetter("file"))
    storage.make_folder(storage.scratch_folder(out_dir))
    copy = partial(_copy_shard, part_dir=part_dir, out_dir=out_dir)
    found = list(parallel.run(copy, ordered, label="Reading shards", ordered=True))
    shards = pd.DataFrame(
        [row for row, _ in found if row["count"]], columns=journal.COLUMNS
    )
    lost = pd.DataFrame(
        [one for _, losses in found for one in losses], columns=LOST_COLUMNS
    )
    texts = {"lost.csv": lost.to_csv(index=False, lineterminator="\n")}
    for name in ("schema.json", "labels.json"):
        if text := storage.read_text(storage.join(part_dir, name)):
            texts[name] = text
    with suppress(FileNotFoundError, IsADirectoryError, ValueError):
        plan = read_plan(part_dir)
        texts |= {
            "schema.json": plan.schema.to_json(),
            "labels.json": plan.labels.to_json(),
        }
    texts["shards.csv"] = shards.to_csv(index=False, lineterminator="\n")
    for name, text in texts.items():
        storage.write_atomically(storage.join(out_dir, name), text.encode())
    journal.remove_journal(out_dir)
    return shards, lost


def _copy_shard(row: Row, part_dir: str, out_dir: str) -> tuple[Row, list[Lost]]:
    """The row of the new shard, which is not there if its count is 0, and what was lost."""
    file, path = row["file"], storage.join(part_dir, row["file"])
    if not storage.exists(path) or storage.is_folder(path):
        return row | {"count": 0}, [
            (file, -1, 0, f"the file is missing: {row['count']} records")
        ]
    index = read_index(storage.join(part_dir, "index", f"{file}.idx"))
    with (
        storage.on_disk(path) as local,
        tempfile.TemporaryDirectory(dir=storage.scratch_folder(out_dir)) as scratch,
    ):
        packed = storage.looks_packed(local)
        plain = storage.unpack(local, f"{scratch}/plain") if packed else str(local)
        ways, whole = (
            [index] * (len(index) > 1) + [list_frames(plain)],
            f"{scratch}/whole",
        )
        kept, damaged = max(
            (_split(plain, way) for way in ways), key=lambda way: len(way[0])
        )
        options = tf.io.TFRecordOptions(compression_type="GZIP" * packed)
        with (
            open(plain, "rb") as source,
            tf.io.TFRecordWriter(whole, options) as writer,
        ):
            for offset, end in kept:
                source.seek(offset + 12)
                writer.write(source.read(end - offset - FRAME_BYTES))
        lost: list[Lost] = [(file, *place, "damaged, or cut off") for place in damaged]
        if (more := row["count"] - len(kept) - len(lost)) > 0:
            lost.append(
                (file, -1, os.path.getsize(plain), f"{more} more records are not there")
            )
        counted = re.search(r"(?<=\d-)\d+(?=\.tfrec$)", file)
        if counted and int(counted[0]) == row["count"]:
            file = f"{file[: counted.start()]}{len(kept)}.tfrec"
        row = row | {"file": file, "count": len(kept), "bytes": os.path.getsize(whole)}
        if kept:
            row["sha256"] = storage.sha256_of(whole)
            if not packed:
                bounds = [0, *accumulate(end - offset for offset, end in kept)]
                idx = storage.join(out_dir, "index", f"{file}.idx")
                storage.write_atomically(idx, format_index(bounds).encode())
            storage.publish_file(whole, storage.join(out_dir, file))
    return row, lost


def _split(
    plain: str, bounds: Sequence[int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(offset and end of each frame whose record fits its checksum, number and offset of others).

    The length before a record may be damaged: by its neighbours it is known.
    """
    kept, lost = list[tuple[int, int]](), list[tuple[int, int]]()
    size = os.path.getsize(plain)
    with open(plain, "rb") as source:
        for number, (offset, end) in enumerate(pairwise(bounds)):
            source.seek(offset)
            frame = source.read(max(0, min(end, size) - offset))
            if len(frame) == end - offset and checksum(frame[12:-4]) == frame[-4:]:
                kept.append((offset, end))
            else:
                lost.append((number, offset))
    return kept, lost
