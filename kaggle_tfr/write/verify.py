"""Parts read again in one pass: faults by file, record and byte, a source check, channel sums."""

import contextlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from google.protobuf.message import DecodeError
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.colour import RefusedImage, read_upright
from kaggle_tfr.images.convert import Converted, ImageSettings, psnr, read_pixels
from kaggle_tfr.images.header import Header, read_header
from kaggle_tfr.plan.plan import Plan, read_plan, read_rows
from kaggle_tfr.schema import encode_row
from kaggle_tfr.shards import FRAME_BYTES, read_frames
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import Row

FAULT_COLUMNS = ["part", "file", "record", "offset", "problem"]
SOURCE_COLUMNS = ["part", "file", "record", "image_id", "psnr", "psnr_swapped", "problem"]
NO_RECORD = -1
MAX_FAULTS = 20  # of one file: a file with more is to be written again anyway
MAX_COMPARED_SHARDS = 10  # of a part
# By so many decibels a wrong version must fit better before it counts: flat and symmetric pictures
# show the same whichever way they lie.
MARGIN_DB = 1.0
TURNS = {
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "turned by 180°": lambda pixels: pixels[::-1, ::-1],
    "turned by 90° anticlockwise": lambda pixels: pixels.swapaxes(0, 1)[::-1],
    "turned by 90° clockwise": lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    "transposed": lambda pixels: pixels.swapaxes(0, 1),
}
BLOCK = 32  # files a task

Sums = Counter[str]  # of pictures: images, pixels, R, G, B, and of their squares RR, GG, BB
Stats = dict[str, Sums]  # by split


@dataclass(frozen=True)
class Verification:
    """What the reading of part folders has shown.

    faults: one row each: part, file, record, offset, problem; none is good. record: from 0, −1 when
        the fault is the file's; offset: of the record in the (unpacked) file.
    sources: sampled records beside their sources: part, file, record, image_id, psnr, psnr_swapped,
        problem. In dB, against the source resized by Pillow; the second with red and blue swapped.
    stats: of each folder, the sums over each split's pictures; `save_stats` takes them.
    """

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: dict[str, Stats]


@dataclass(frozen=True)
class CheckTask:
    """A shard to read: its row of shards.csv and the plan's rows of its records, where known.

    sources: (image_id, path) of the records to hold against their source.
    """

    part_dir: str
    plan: Plan
    row: Row
    records: pd.DataFrame | None
    sources: Mapping[int, tuple[str, str]]


@dataclass
class CheckOutcome:
    """What the reading of a shard has shown so far."""

    part_dir: str
    row: Row
    faults: list[Row] = field(default_factory=list)
    sources: list[Row] = field(default_factory=list)
    sums: Sums = field(default_factory=Counter)

    def report(self, problem: str, record: int = NO_RECORD, offset: int = 0) -> None:
        """Notes a fault."""
        self.faults.append(_fault(self.part_dir, self.row["file"], problem, record, offset))


def verify_parts(
    folders: Sequence[str] | str, work_dir: str = "", *, sample: int = 50, seed: int = 0
) -> Verification:
    """The faults of part folders, a source check and the channels' sums, after one reading.

    Every byte is read: sha256, the CRCs of every record, its fields against the plan's row, its
    image against height and width, the index; names, counts and files against plan and shards.csv.
    work_dir: the plan's, to hold `sample` records against their sources.

    Raises:
        FileNotFoundError: a folder is no part: it has no plan.json.
        RuntimeError: there is no fault, but a picture fits its source better with red and blue
            swapped, or turned. Where there are faults too, `sources` tells.
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else folders
    stats: dict[str, Stats] = {str(folder): {} for folder in listed}
    faults, sources, tasks, total = [], [], [], 0
    rng = np.random.default_rng(seed)
    for folder in stats:
        plan = read_plan(folder)
        try:
            rows = journal.read_rows_of_part(folder)
        except ValueError as error:
            faults.append(_fault(folder, "shards.csv", str(error)))
            continue
        faults += check_folder(folder, plan, rows)
        share = -(-sample // len(stats))
        chosen = choose_sources(work_dir, plan, rows, share, rng) if work_dir else {}
        tasks.append(list_tasks(folder, plan, rows, chosen))
        total += sum(row["count"] for row in rows)
    every = parallel.run(
        check_shard,
        chain.from_iterable(tasks),
        label="Verifying records",
        total=total,
        advance=_count_records,
    )
    for outcome in every:
        faults += outcome.faults
        sources += outcome.sources
        of_split = stats[outcome.part_dir].setdefault(outcome.row["split"], Counter())
        of_split.update(outcome.sums)
    found = Verification(
        _to_table(faults, FAULT_COLUMNS), _to_table(sources, SOURCE_COLUMNS), stats
    )
    _raise_for_sources(found)
    return found


def _count_records(outcome: CheckOutcome) -> int:
    return outcome.row["count"]


def _to_table(rows: list[Row], columns: list[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["part", "file", "record"], ignore_index=True)


def _raise_for_sources(found: Verification) -> None:
    wrong = found.sources[found.sources["problem"] != ""]
    if len(wrong) and found.faults.empty:
        first = wrong.iloc[0]
        raise RuntimeError(
            f"{len(wrong)} of {len(found.sources)} records do not show their source as it is; "
            f"the first, record {first.record} of '{first.file}' ('{first.image_id}'): "
            f"{first.problem}. "
            "Were files of another program put into the part? Write it anew with OVERWRITE = True."
        )


def check_folder(folder: str, plan: Plan, rows: Sequence[Row]) -> list[Row]:
    """Faults of the folder as a whole: files, names and counts against the plan."""
    faults: list[tuple[str, str]] = []
    if not journal.is_closed(folder):
        faults.append(("shards.csv", "the part is unfinished; run 04_write again"))
    known = {(row["split"], row["fold"], row["shard"]): row for row in rows}
    parts = {row["part"] for row in rows}
    for shard in plan.shards:
        row = known.pop((shard.split, shard.fold, shard.index), None)
        name = plan.file_name(shard, row["count"] if row else None)
        if row is None and shard.part in parts:
            faults.append((name, "in plan.json, but not in shards.csv"))
        elif row and row["count"] + row["refused"] != shard.count:
            there = f"{row['count']} written and {row['refused']} refused"
            faults.append((row["file"], f"the plan has {shard.count} images, shards.csv {there}"))
        elif row and row["file"] != name:
            faults.append((row["file"], f"by the plan its name is {name}"))
    faults += [(row["file"], "in shards.csv, but not in plan.json") for row in known.values()]
    listed = {storage.join(folder, row["file"]) for row in rows}
    pattern = re.sub(r"\{[^}]*\}", "*", plan.settings.shard_name)
    for path in sorted(set(storage.list_files(pattern, folder)) - listed):
        faults.append((path[len(folder) :].lstrip("/"), "not in shards.csv"))
    for name in [f"{split}.csv" for split in sorted({row["split"] for row in rows})]:
        if not sidecars.is_image_table(storage.join(folder, name)):
            faults.append((name, "missing or broken: labels cannot be compared with the plan"))
    texts = {"schema.json": plan.schema.to_json(), "labels.json": plan.labels.to_json()}
    for name, text in texts.items():
        path = storage.join(folder, name)
        if not storage.exists(path) or storage.read_bytes(path) != text.encode():
            faults.append((name, "missing, or different from plan.json"))
    return [_fault(folder, *fault) for fault in faults]


def _fault(folder: str, file: str, problem: str, record: int = NO_RECORD, offset: int = 0) -> Row:
    values = (storage.join(folder), file, record, offset, problem)
    return dict(zip(FAULT_COLUMNS, values, strict=True))


def choose_sources(
    work_dir: str, plan: Plan, rows: Sequence[Row], sample: int, rng: np.random.Generator
) -> dict[str, dict[int, tuple[str, str]]]:
    """(image_id, path) of some records of some shards, by file and record."""
    planned = {row["number"]: row for row in journal.match_plan(rows, plan)}
    numbers = sorted(rng.permutation(sorted(planned))[:MAX_COMPARED_SHARDS].tolist())
    chosen = {}
    for shard, table in read_rows(work_dir, [plan.shards[int(number)] for number in numbers]):
        kept = sidecars.leave_out_refused(table, planned[shard.number])
        records = rng.permutation(len(kept))[: -(-sample // len(numbers))].tolist()
        images = list(zip(kept["image_id"], kept["path"], strict=True))
        chosen[planned[shard.number]["file"]] = {record: images[record] for record in records}
    return chosen


def list_tasks(
    folder: str, plan: Plan, rows: Sequence[Row], sources: Mapping[str, Mapping]
) -> Iterator[CheckTask]:
    """A task a shard, each with its own rows only, read as they are asked for."""
    left = {row["file"]: row for row in rows}
    slim = plan.for_worker()
    text = [f.source for f in plan.schema.fields if f.type == "bytes" and isinstance(f.source, str)]
    splits = sorted({row["split"] for row in rows})
    for file, records in sidecars.read_image_tables(folder, splits, text):
        if file in left:
            yield CheckTask(folder, slim, left.pop(file), records, sources.get(file, {}))
    for file, row in left.items():
        yield CheckTask(folder, slim, row, None, sources.get(file, {}))


def check_shard(task: CheckTask) -> CheckOutcome:
    """What one shard holds, with all that is wrong with it."""
    outcome, row = CheckOutcome(task.part_dir, task.row), task.row
    path = storage.join(task.part_dir, row["file"])
    if not storage.exists(path):
        outcome.report("the file is missing")
        return outcome
    with storage.on_disk(path) as local, tempfile.TemporaryDirectory() as scratch:
        count = _check_records(task, outcome, str(local), scratch)
        if len(outcome.faults) == MAX_FAULTS:
            outcome.report(f"{MAX_FAULTS} faults; the rest of the file was not read")
            return outcome
        if task.records is not None and len(task.records) != row["count"]:
            outcome.report(f"{row['split']}.csv has {len(task.records)} rows of this file")
        if count != row["count"]:
            outcome.report(f"{count} records were found, shards.csv has {row['count']}")
        size = os.path.getsize(local)
        if size != row["bytes"]:
            outcome.report(f"{size:,} bytes, shards.csv has {row['bytes']:,}")
        elif storage.sha256_of(str(local)) != row["sha256"]:
            outcome.report("its sha256 is not that of shards.csv")
    return outcome


def _check_records(task: CheckTask, outcome: CheckOutcome, local: str, scratch: str) -> int:
    """How many records were found in the file; what they show is added to the outcome."""
    index, count = _read_index(task), 0
    planned = task.records.to_dict("records") if task.records is not None else []
    frames = read_frames(local, task.plan.settings.compression, index, scratch)
    for count, (offset, data, problem) in enumerate(frames, 1):
        if data is not None:
            wanted = planned[count - 1] if count <= len(planned) else None
            problem = _check_record(task, outcome, count - 1, data, wanted)  # noqa: PLW2901
            if index and index.get(offset) != len(data) + FRAME_BYTES:
                problem = problem or "the index has another offset or length"  # noqa: PLW2901
        if problem:
            outcome.report(problem, count - 1, offset)
        if len(outcome.faults) == MAX_FAULTS:
            break
    return count


def _read_index(task: CheckTask) -> dict[int, int]:
    """Length of each frame by its offset, from the index; {} where there is none."""
    path = storage.join(task.part_dir, "index", f"{task.row['file']}.idx")
    if not storage.exists(path):
        return {}
    try:
        lines = storage.read_bytes(path).decode().splitlines()
        return {int(offset): int(length) for offset, length in map(str.split, lines)}
    except ValueError:
        return {-1: 0}


def _check_record(
    task: CheckTask, outcome: CheckOutcome, number: int, data: bytes, wanted: Row | None
) -> str:
    """What is wrong with a record, "" when nothing is; its image is decoded once for all checks."""
    schema = task.plan.schema
    try:
        features = tf.train.Example.FromString(data).features.feature
    except DecodeError:
        return "it is no tf.train.Example"
    images = features[schema.image_key].bytes_list.value
    if len(images) != 1:
        return f"'{schema.image_key}' holds {len(images)} images"
    try:
        header, pixels = read_header(images[0]), read_upright(images[0])
    except RefusedImage as refusal:
        return f"its image is refused: {refusal}"
    outcome.sums.update(sum_channels(pixels))
    if number in task.sources:
        image_id, path = task.sources[number]
        place = {"part": task.part_dir, "file": task.row["file"], "record": number}
        compared = compare_with_source(storage.read_bytes(path), pixels, task.plan.image)
        outcome.sources.append(place | {"image_id": image_id} | compared)
    for key, length in ((schema.height_key, header.height), (schema.width_key, header.width)):
        said = list(features[key].int64_list.value) if key else [length]
        if said != [length]:
            return f"'{key}' says {said}, the image has {length} pixels"
    if header.orientation != 1:
        return f"its image lies turned (EXIF orientation {header.orientation})"
    return _find_difference(data, images[0], header, task.plan, wanted)


def _find_difference(
    data: bytes, image: bytes, header: Header, plan: Plan, wanted: Row | None
) -> str:
    """The first feature that is not what the plan's row, encoded with this image, gives."""
    if not wanted:
        return ""
    row = {"height": header.height, "width": header.width, **wanted}
    if "source_height" in row:
        row |= {"height": row["source_height"], "width": row["source_width"]}
    picture = Converted(image, header.height, header.width, header.format, touched=False)
    try:
        planned = encode_row(row, picture, plan.schema, plan.image)
    except ValueError as error:
        return f"the plan's row cannot be encoded: {error}"
    if planned == data:
        return ""
    found, right = (tf.train.Example.FromString(x).features.feature for x in (data, planned))
    for name in sorted(set(found) | set(right)):
        if name not in found or name not in right:
            return f"it {'lacks' if name in right else 'has'} the feature '{name}'"
        if found[name] != right[name]:
            return f"'{name}' is {_show(found[name])}, the plan says {_show(right[name])}"
    return "its features are not in the order that the schema writes"


def _show(feature: tf.train.Feature) -> str:
    values = getattr(feature, feature.WhichOneof("kind") or "bytes_list").value
    return journal.shorten(str(list(values) if len(values) != 1 else values[0]))


def compare_with_source(source: bytes, pixels: np.ndarray, settings: ImageSettings) -> Row:
    """PSNR in dB of the record's pixels (uint8, height × width × 3, RGB), and what fits better.

    psnr, psnr_swapped: as it is, and with red and blue swapped. problem: "" or what is wrong.
    The source is read in full and resized by Pillow, apart from the way the record was made.
    """
    wanted = read_reference(source, pixels.shape[0], pixels.shape[1], settings)
    as_is, swapped = psnr(wanted, pixels), psnr(wanted, pixels[..., ::-1])
    problem = "red and blue are swapped" if swapped > as_is + MARGIN_DB else ""
    for name, turn in TURNS.items():
        turned = turn(pixels)
        if turned.shape == wanted.shape and psnr(wanted, turned) > max(as_is, swapped) + MARGIN_DB:
            problem = f"the picture is {name}"
    return {"psnr": as_is, "psnr_swapped": swapped, "problem": problem}


def read_reference(source: bytes, height: int, width: int, settings: ImageSettings) -> np.ndarray:
    """The source's pixels at the record's size, uint8 RGB, by Pillow alone."""
    upright = Image.fromarray(read_upright(source))
    region = (0.0, 0.0, float(upright.width), float(upright.height))
    if settings.size is not None and settings.resize in ("center_crop", "fill"):
        rows, columns = settings.size
        if settings.resize == "center_crop":
            rows = columns = max(settings.size)
        scale = max(rows / upright.height, columns / upright.width)
        left, top = (upright.width - width / scale) / 2, (upright.height - height / scale) / 2
        region = (left, top, left + width / scale, top + height / scale)
    return np.asarray(upright.resize((width, height), Image.Resampling.LANCZOS, region))


def sum_channels(pixels: np.ndarray) -> Sums:
    """Whole numbers that add up exactly, of one picture: uint8 (height, width, 3)."""
    flat = pixels.reshape(-1, 3)
    squares = np.square(flat, dtype=np.uint16).sum(axis=0, dtype=np.uint64)
    numbers = [1, len(flat), *flat.sum(axis=0, dtype=np.uint64).tolist(), *squares.tolist()]
    return Counter(dict(zip(("images", "pixels", *"RGB", "RR", "GG", "BB"), numbers, strict=True)))


def describe_sums(sums: Sums) -> dict[str, Any]:
    """{"mean": {"R", "G", "B"}, "std": {…}, "images", "pixels"}, in grey levels from 0 to 255.

    Raises:
        ValueError: there is no pixel.
    """
    n = sums["pixels"]
    if not n:
        raise ValueError("there is no pixel to average: no good image, or no record.")
    # Python's whole numbers do not round: (n·Σx² − (Σx)²) / n² keeps every digit.
    std = {name: ((n * sums[name * 2] - sums[name] ** 2) / n**2) ** 0.5 for name in "RGB"}
    mean = {name: sums[name] / n for name in "RGB"}
    return {"mean": mean, "std": std, "images": sums["images"], "pixels": n}


def channel_stats_of_files(images: pd.DataFrame) -> Stats:
    """The sums over every pixel of the good rows' files, by split.

    images: columns path, and where there are such split ("train" without it) and problem.
    """
    good = images[images["problem"] == ""] if "problem" in images else images
    splits = good["split"] if "split" in good else pd.Series("train", good.index)
    blocks = [
        (str(split), block)
        for split, paths in good["path"].groupby(splits)
        for block in parallel.blocks(paths.tolist(), BLOCK)
    ]
    label, total = "Pixels of files", len(good)
    return combine_stats(
        parallel.run(_sum_files, blocks, label=label, total=total, advance=_count_images)
    )


def _count_images(stats: Stats) -> int:
    return sum(sums["images"] for sums in stats.values())


def _sum_files(block: tuple[str, list[str]]) -> Stats:
    split, sums = block[0], Counter[str]()
    for path in block[1]:
        # An image that went bad since it was measured is the writer's to report.
        with contextlib.suppress(FileNotFoundError, RefusedImage):
            sums.update(sum_channels(read_pixels(storage.read_bytes(path))))
    return {split: sums}


def combine_stats(several: Iterable[Stats]) -> Stats:
    """The sums over the pictures of several parts, by split."""
    combined: Stats = {}
    for stats in several:
        for split, sums in stats.items():
            combined.setdefault(split, Counter()).update(sums)
    return combined


def save_stats(stats: Stats, path: str) -> None:
    """Writes JSON: mean, std, images and pixels of train, or of all splits where there is no train.

    "splits" holds the same of each split. All are in grey levels from 0 to 255.
    """
    splits = {split: describe_sums(sums) for split, sums in sorted(stats.items())}
    own = splits.get("train") or describe_sums(sum(stats.values(), Counter()))
    storage.write_atomically(path, (json.dumps(own | {"splits": splits}, indent=1) + "\n").encode())


def save_mean_rgb(files: Stats, records: Stats, work_dir: str) -> list[str]:
    """The paths of mean_rgb/{split}_files.json and {split}_records.json: {"R", "G", "B"} each.

    In this form ImageNet's pipelines take the mean that they subtract.
    """
    folder, paths = storage.make_folder(storage.join(work_dir, "mean_rgb")), []
    for kind, stats in (("files", files), ("records", records)):
        for split, sums in sorted(stats.items()):
            paths.append(storage.join(folder, f"{split}_{kind}.json"))
            text = json.dumps(describe_sums(sums)["mean"], indent=1) + "\n"
            storage.write_atomically(paths[-1], text.encode())
    return paths
