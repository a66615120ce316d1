"""Read parts again in one pass: faults by record, a comparison with sources, sums."""

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, pairwise
from math import nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import notebook, parallel, storage
from kaggle_tfr.images.convert import EncodedImage, ImageSettings, psnr, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_header, read_upright
from kaggle_tfr.images.orientation import INVERSE, ORIENTATIONS, apply_orientation
from kaggle_tfr.plan.plan import Plan, read_plan
from kaggle_tfr.records import (
    PER_IMAGE_ERRORS,
    is_gzip,
    list_frames,
    list_values,
    parse_record,
    plain_file,
    read_frame,
    read_image_bytes,
)
from kaggle_tfr.schema import Row, encode
from kaggle_tfr.shards import (
    SUMS,
    check_one_dataset,
    find_changed_files,
    list_parts,
    list_shard_files,
    read_sums,
)
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.metadata import DATASET_FILE, renew_metadata
from kaggle_tfr.write.stats import Stats, Sums, sum_channels

METHOD = Image.Resampling.HAMMING
BLOCK = 16  # records of one task
MAX_FAULTS = 20  # of a file
MARGIN_DB = 1.0  # some images look the same rotated: a fault must fit better by this
SWAPPED = "red and blue are swapped"
REPAIR = "Run 04_write again; if the fault stays, with OVERWRITE = True."
# Columns of a split's table that `encode` takes as numbers, and the names of these.
NUMBERS = {"label": "label", "source_height": "height", "source_width": "width"}

KEYS = ["split", "image_id"]


class Finding(NamedTuple):
    """A fault of a file or a record, or a comparison of a record with its source.

    record: from 0, -1 for the whole file; offset: in the decompressed file. problem: ""
    for a source that fits. psnr, psnr_swapped: in dB, against the source, as it is and
    with red and blue swapped. path: of the source. advice: how to repair a fault.
    """

    part: str
    file: str
    record: int = -1
    offset: int = 0
    problem: str = ""
    advice: str = REPAIR
    psnr: float = nan
    psnr_swapped: float = nan
    split: str = ""
    image_id: str = ""
    path: str = ""


class Verification(NamedTuple):
    """faults, sources: columns of `Finding`; stats: by part folder."""

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: dict[str, Stats]


# A record: its shard, a plain local file, number, (offset, end) and [row of its table].
Record = tuple[Any, ...]
Checked = tuple[list[Finding], Sums]


def verify_parts(
    folders: Sequence[str] | str, work_dir: str = "", *, sample: int = 0
) -> Verification:
    """Read parts again and return their faults, a source comparison and pixel sums.

    Every byte is read: sha256, CRCs, each record's image, and its features against the
    row of the image; names, counts and files against plan and shards.csv.
    folders: parts, or folders of parts such as WORK_DIR.
    work_dir: the plan's; "" to compare no sources.
    sample: the least number of records of each part to compare with their sources; 0:
        one in a hundred, from 6 to 50.
    """
    part_dirs = list[str]()
    for folder in [folders] if isinstance(folders, str) else folders:
        parts = {*list_parts(folder), *list_parts(folder, "plan.json")}
        part_dirs += sorted(parts) or [folder.rstrip("/")]
    findings = list[Finding]()
    # Readers take all parts of a folder for one dataset.
    for folder, siblings in groupby(part_dirs, os.path.dirname):
        try:
            check_one_dataset(list(siblings), advice="Remove one of them.")
        except ValueError as error:
            findings.append(Finding(folder, "plan.json", problem=str(error)))

    stats: dict[str, Stats] = {}
    for part_dir in part_dirs:
        stats[part_dir] = defaultdict(Counter)
        findings += _verify_part(part_dir, work_dir, sample, stats[part_dir])
    columns = [*Finding._fields[:6]]  # of faults
    table = pd.DataFrame(findings, columns=Finding._fields).sort_values(columns)
    faults = table.loc[table["problem"] != "", columns]
    faults = faults.groupby(["part", "file"]).head(MAX_FAULTS)
    return Verification(faults, table.dropna(), stats)


def verify_written(shards: pd.DataFrame, parts_dir: str, work_dir: str) -> Verification:
    """Read what `write_parts` wrote again, and note that all of it is as planned.

    shards: of `write_parts`.
    Raises: RuntimeError: a record or a file is not as planned.
    """
    numbers = shards["part"].unique()
    part_dirs = [storage.join(parts_dir, f"part-{number}") for number in numbers]
    checked = verify_parts(part_dirs, work_dir)
    if len(checked.faults):
        table = checked.faults.head(20).to_string()
        raise RuntimeError(f"the parts are not what was planned:\n{table}")
    text = f"0 faults in {shards['count'].sum():,} records, all read again."
    notebook.note("✓", text, "verification")
    return checked


def _verify_part(
    part_dir: str, work_dir: str, sample: int, stats: Stats
) -> list[Finding]:
    """Return what is found in a part, and add the sums of its pixels to `stats`."""
    plan, rows, problems = _open_part(part_dir)
    findings = [Finding(part_dir, file, problem=problems[file]) for file in problems]
    if not rows:
        return findings
    sources = _choose_sources(work_dir, rows[0].part, sample) if work_dir else {}
    tables = _read_images(part_dir, {row.split for row in rows})
    with tempfile.TemporaryDirectory() as scratch:
        results = parallel.run_groups(
            partial(open_shard, part_dir, scratch),
            partial(check_records, part_dir, plan.for_worker(), sources),
            partial(close_shard, scratch),
            [(row, tables.get(row.file, pd.DataFrame())) for row in rows],
            label=f"Verifying {part_dir}",
            total=sum(row.count for row in rows),
            advance=lambda blocks: sum(sums["images"] for _, sums in blocks),
        )
        for row, blocks in zip(rows, results, strict=True):
            for found, sums in blocks:
                findings += found
                stats[row.split].update(sums)
    return findings


def _open_part(part_dir: str) -> tuple[Any, list[ShardRow], dict[str, str]]:
    """Return a part's plan, the rows of shards that agree with it, and problems.

    The problems are those of all files but these shards, by name.
    """
    plan = None
    rows = list[ShardRow]()
    error = "the part is unfinished, or this file is broken"
    try:
        plan = read_plan(part_dir)
        rows = journal.match_plan(journal.read_rows_of_part(part_dir), plan)
    except (*PER_IMAGE_ERRORS, ValueError) as raised:
        error = str(raised)
    sums = read_sums(part_dir)
    shards = {row.file: row.sha256 for row in rows}
    others = {name: sums[name] for name in sums.keys() - shards.keys()}
    problems = find_changed_files(part_dir, others)
    if not shards.items() <= sums.items():
        problems[SUMS] = "it is missing or broken, or lacks a shard"
    if plan is None:
        return plan, rows, {"plan.json": error} | problems

    n_planned = sum(shard.part in {row.part for row in rows} for shard in plan.shards)
    if len(rows) < max(1, n_planned) or not journal.is_closed(part_dir):
        problems["shards.csv"] = error
    for path in list_shard_files(part_dir):
        file = os.path.relpath(path, part_dir)
        if rows and file not in shards:
            problems[file] = "not planned, or not in shards.csv"
    if not problems and renew_metadata(part_dir, plan, rows):
        problems[DATASET_FILE] = "it is missing, or does not describe this part"
    return plan, rows, problems


def _choose_sources(work_dir: str, part: int, sample: int) -> dict[Any, str]:
    """Return a sample of a part's images."""
    path = storage.join(work_dir, "plan.parquet")
    table = storage.read_parquet(path, ["part", "path", *KEYS])
    table = table[table["part"] == part]
    n_images = sample or min(50, max(6, len(table) // 100))
    chosen = table[:: max(1, len(table) // n_images)]
    return chosen.set_index(KEYS)["path"].to_dict()


def _read_images(part_dir: str, splits: Iterable[str]) -> dict[Any, pd.DataFrame]:
    """Return the rows of each shard in the tables of these splits.

    SHA256SUMS shows which table is damaged; its shards have no rows.
    """
    types: Any = defaultdict(lambda: str, dict.fromkeys(NUMBERS, int))
    tables = dict[Any, pd.DataFrame]()
    for split in splits:
        with (
            suppress(*PER_IMAGE_ERRORS, ValueError, KeyError),
            storage.local_copy(f"{part_dir}/{split}.csv") as local,
        ):
            table = pd.read_csv(local, dtype=types, keep_default_na=False)
            table = table.rename(columns=NUMBERS).assign(split=split)
            tables.update(iter(table.groupby("file")))
    return tables


def open_shard(
    part_dir: str, scratch: str, shard: tuple[ShardRow, pd.DataFrame]
) -> list[list[Finding | Record]]:
    """Return a fault of the whole shard, if it has one, and its records, in blocks."""
    row, images = shard
    path = f"{part_dir}/{row.file}"
    file: storage.AnyPath = path
    problem = ""
    bounds = [0]
    storage.make_folder(scratch)  # on another machine of a cluster
    try:
        with storage.local_copy(path) as local:
            if storage.sha256_of(local) != row.sha256:
                problem = "its sha256 is not that of shards.csv"
            if storage.is_remote(path) or is_gzip(local):
                with plain_file(local) as plain:
                    file = shutil.copyfile(plain, f"{scratch}/{row.number}")
        bounds = list(list_frames(file))
        counts = {row.count, len(bounds) - 1, len(images) or row.count}
        if len(counts) > 1 and not problem:
            problem = f"it, shards.csv and {row.split}.csv have {counts} records"
    except FileNotFoundError:
        problem = "the file is missing"
    except OSError as error:
        problem = f"it cannot be read: {error}"

    rows: Any = images.to_dict("records")
    records: list[Finding | Record] = []
    if problem:
        records.append(Finding(part_dir, row.file, problem=problem))
    for number, frame in enumerate(pairwise(bounds)):
        records.append((row, file, number, frame, rows[number : number + 1]))
    return parallel.blocks(records, BLOCK)


def check_records(
    part_dir: str,
    plan: Plan,
    sources: Mapping[Any, str],
    records: Iterable[Finding | Record],
) -> Checked:
    """Read records, and compare them with their rows and with a sample of sources."""
    findings = list[Finding]()
    sums: Sums = Counter()
    for record in records:
        if isinstance(record, Finding):
            findings.append(record)
            continue
        shard, file, number, (offset, end), rows = record
        place = (part_dir, shard.file, number, offset)
        try:
            data = read_frame(file, offset, end - offset)
            pixels = _check_features(plan, shard.split, data, rows)
        except (ValueError, KeyError, RejectedImage) as error:
            findings.append(Finding(*place, f"the record is wrong: {error}"))
            continue
        sums.update(sum_channels(pixels))
        for row in rows:
            key = (shard.split, row["image_id"])
            path = sources.get(key, "")
            # Sources may have been removed or changed since they were written.
            with suppress(*PER_IMAGE_ERRORS, RejectedImage):
                source = read_image_bytes(path)
                problem, fit = compare_with_source(source, pixels, plan.image)
                findings.append(Finding(*place, problem, REPAIR, *fit, *key, path))
    return findings, sums


def close_shard(
    scratch: str, shard: tuple[ShardRow, Any], blocks: Iterable[Checked]
) -> list[Checked]:
    """Return what was found in each block of a shard, and remove its plain copy."""
    checked = list(blocks)
    storage.remove(f"{scratch}/{shard[0].number}")
    return checked


def _check_features(
    plan: Plan, split: str, data: bytes, rows: Iterable[Row]
) -> np.ndarray:
    """Return the pixels of a record whose features are those of its row.

    Raises: RejectedImage, ValueError, KeyError: what is wrong.
    """
    key = plan.schema.for_split(split).image_key
    (image,) = parse_record(data)[key].bytes_list.value
    header = read_header(image)
    if header.orientation != 1:
        raise ValueError(f"its image has the EXIF orientation {header.orientation}")
    encoded = EncodedImage(image, header.height, header.width, header.format)
    for row in rows:
        _compare_features(data, encode(row, encoded, plan.schema, plan.image))
    return read_pixels(image)


def _compare_features(data: bytes, expected_data: bytes) -> None:
    """Raise a ValueError that names the first difference of two records."""
    if data == expected_data:
        return
    found = parse_record(data)
    expected = parse_record(expected_data)
    for name in sorted({*found, *expected}):
        value = list_values(found[name])
        expected_value = list_values(expected[name])
        if value != expected_value:
            raise ValueError(
                f"'{name}' is {value!s:.60}, expected {expected_value!s:.60}"
            )
    raise ValueError("the order or the type of its features is not that of the schema")


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> tuple[str, tuple[float, float]]:
    """Return (problem, (psnr, psnr_swapped)) of a record's pixels.

    pixels: RGB (height, width, 3). The PSNR is in dB, as it is and with red and blue
    swapped. The problem is the transformation that fits better, or "".
    """
    height, width, _ = pixels.shape
    side = max(height, width)
    # Pillow alone resizes it, independently of the code that made the record.
    image = Image.fromarray(read_upright(source, side, settings.bit_depth))
    if settings.resize == "center_crop":
        image = ImageOps.fit(image, (side, side), METHOD)
    resize = Image.Image.resize if settings.resize == "stretch" else ImageOps.fit
    expected = np.asarray(resize(image, (width, height), METHOD))

    fits = {SWAPPED: psnr(expected, pixels[..., ::-1])}
    for number, orientation in ORIENTATIONS.items():
        version = apply_orientation(pixels, INVERSE[number])
        if version.shape == pixels.shape:
            fits[orientation.name] = psnr(expected, version)
    upright = fits["upright"]
    best = max(fits, key=fits.__getitem__)
    problem = best if fits[best] > upright + MARGIN_DB else ""
    return problem, (upright, fits[SWAPPED])
