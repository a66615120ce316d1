"""Records beside their sources: the same picture, the right way up, in its own colours."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import tensorflow as tf
from PIL import Image, ImageOps

from kaggle_tfr import journal, progress, storage
from kaggle_tfr.images import ImageSettings, psnr
from kaggle_tfr.plan import Plan, read_plan, read_rows
from kaggle_tfr.schema import RecordSchema

MOST_SHARDS = 10  # of a part
COLUMNS = ["part", "file", "record", "image_id", "psnr", "psnr_swapped", "problem"]

# By so many decibels a wrong version must fit better before it counts: flat and symmetric pictures
# look alike whichever way they lie.
MARGIN_DB = 1.0
TURNS = {
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "turned by 180°": lambda pixels: pixels[::-1, ::-1],
    "turned by 90° anticlockwise": lambda pixels: pixels.swapaxes(0, 1)[::-1],
    "turned by 90° clockwise": lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    "transposed": lambda pixels: pixels.swapaxes(0, 1),
}


@dataclass(frozen=True)
class Task:
    """A shard to look into: its part, plan, row of shards.csv, and its records' ids and paths."""

    part_dir: str
    plan: Plan
    row: dict
    records: pd.DataFrame


def self_check(work_dir: str, folders: Sequence[str], *, sample: int = 50, seed: int = 0):
    """A sample of records beside their sources: part, file, record, image_id, psnr, psnr_swapped.

    psnr, psnr_swapped: in dB, against the source resized by Pillow; the second with red and blue
    swapped. Folders may be some of the plan's parts.

    Raises:
        RuntimeError: a picture fits its source better with red and blue swapped, or turned.
    """
    rng = np.random.default_rng(seed)
    tasks = [task for folder in map(str, folders) for task in _choose(work_dir, folder, rng)]
    share = max(1, -(-sample // max(1, len(tasks))))
    compare = partial(_compare_shard, share=share, seed=seed)
    found = [
        line
        for lines in progress.run(compare, tasks, label="Comparing with the sources")
        for line in lines
    ]
    table = pd.DataFrame(found, columns=COLUMNS).sort_values(
        ["part", "file", "record"], ignore_index=True
    )
    wrong = table[table.problem != ""]
    if len(wrong):
        first = wrong.iloc[0]
        raise RuntimeError(
            f"{len(wrong)} of {len(table)} records do not show their source as it is; the first, "
            f"record {first.record} of '{first.file}' ('{first.image_id}'): {first.problem}. "
            "Were files of another program put into the part? Write it anew with OVERWRITE = True."
        )
    return table


def _choose(work_dir: str, folder: str, rng: np.random.Generator) -> Iterator[Task]:
    """Some shards of a part, each with the plan's rows of its records."""
    plan = read_plan(folder)
    rows = {row["number"]: row for row in journal.planned_rows(folder, plan)}
    chosen = sorted(rng.permutation(sorted(rows))[:MOST_SHARDS])
    for shard, table in read_rows(work_dir, [plan.shards[number] for number in chosen]):
        row = rows[shard.number]
        kept = table[~table.image_id.isin({reject["image_id"] for reject in row["rejects"]})]
        yield Task(folder, replace(plan, shards=[]), row, kept[["image_id", "path"]])


def _compare_shard(task: Task, *, share: int, seed: int) -> list[dict]:
    rng, schema = np.random.default_rng(seed), RecordSchema.from_dict(task.plan.schema)
    at = set(rng.permutation(len(task.records))[:share].tolist())
    path, found = storage.join(task.part_dir, task.row["file"]), []
    data = tf.data.TFRecordDataset(path, task.plan.compression).take(max(at, default=-1) + 1)
    for record, serialized in enumerate(data.as_numpy_iterator()):
        if record not in at:
            continue
        image_id, source = task.records.iloc[record]
        feature = tf.train.Example.FromString(serialized).features.feature[schema.image_key]
        pixels = tf.io.decode_image(feature.bytes_list.value[0], 3, expand_animations=False)
        compared = compare_with_source(storage.read_bytes(source), pixels.numpy(), task.plan.image)
        place = {"part": task.part_dir, "file": task.row["file"], "record": record}
        found.append(place | {"image_id": image_id} | compared)
    return found


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> dict[str, float | str]:
    """PSNR in dB of the record's pixels (uint8, height × width × 3, RGB), and what fits better.

    psnr, psnr_swapped: as it is, and with red and blue swapped. problem: "" or what is wrong.
    The source is read in full and resized by Pillow, apart from the way the record was made.
    """
    height, width = pixels.shape[:2]
    wanted = read_like(source, height, width, settings)
    as_is, swapped = psnr(wanted, pixels), psnr(wanted, np.ascontiguousarray(pixels[..., ::-1]))
    problem = "red and blue are swapped" if swapped > as_is + MARGIN_DB else ""
    for name, turn in TURNS.items():
        turned = np.ascontiguousarray(turn(pixels))
        if turned.shape == wanted.shape and psnr(wanted, turned) > max(as_is, swapped) + MARGIN_DB:
            problem = f"the picture is {name}"
    return {"psnr": as_is, "psnr_swapped": swapped, "problem": problem}


def read_like(source: bytes, height: int, width: int, settings: ImageSettings) -> np.ndarray:
    """The source's pixels at the record's size, uint8 RGB, by Pillow alone."""
    with Image.open(io.BytesIO(source)) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I") or upright.mode == "F":
            deep = np.asarray(upright, float)
            upright = Image.fromarray((deep / 257).clip(0, 255).astype(np.uint8))
        if upright.has_transparency_data:
            layer = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
        upright = upright.convert("RGB")
    if settings.resize in ("center_crop", "fill"):
        rows, columns = settings.size
        if settings.resize == "center_crop":
            rows = columns = max(settings.size)
        scale = max(rows / upright.height, columns / upright.width)
        box = (width / scale, height / scale)
        left, top = (upright.width - box[0]) / 2, (upright.height - box[1]) / 2
        region = (left, top, left + box[0], top + box[1])
        return np.asarray(upright.resize((width, height), Image.Resampling.LANCZOS, region))
    return np.asarray(upright.resize((width, height), Image.Resampling.LANCZOS))
