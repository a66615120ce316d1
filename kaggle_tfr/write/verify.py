"""Read parts again in one pass: faults by record, a comparison with sources, sums."""

import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.convert import EncodedImage, ImageSettings, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_header, read_upright
from kaggle_tfr.images.orientation import INVERSE, ORIENTATIONS, apply_orientation
from kaggle_tfr.naming import is_shard_name
from kaggle_tfr.plan.plan import Plan, read_plan
from kaggle_tfr.records import (
    PER_IMAGE_ERRORS,
    Features,
    ShardIndex,
    list_frames,
    parse_record,
    plain_file,
    read_image_bytes,
)
from kaggle_tfr.schema import Row, encode
from kaggle_tfr.shards import SUMS, TYPES, find_changed_files, list_parts, read_sums
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import DATASET_FILE, ShardRow
from kaggle_tfr.write.metadata import read_metadata
from kaggle_tfr.write.stats import Stats, Sums, sum_channels

METHOD = Image.Resampling.HAMMING
SWAPPED = "red and blue are swapped"
MARGIN_DB = 1.0  # a transformation must fit better by this to be a fault
REPAIR = "Run 04_write again. If the fault stays, remove the part and write it again."
# Columns of a split's table for which `encode` has other names.
ORIGINALS = {"source_height": "height", "source_width": "width"}
KEYS = ["split", "image_id"]


class Finding(NamedTuple):
    """A fault of a file or a record, or a comparison of a record with its source.

    record: from 0, -1 for the whole file; offset: in the decompressed file. problem: ""
    for a source that fits. psnr, psnr_swapped: in dB, against the source, as it is and
    with red and blue swapped. path: of the source.
    """

    part: str
    file: str
    record: int = -1
    offset: int = 0
    problem: str = ""
    split: str = ""
    psnr: float = nan
    psnr_swapped: float = nan
    path: str = ""


class Verification(NamedTuple):
    """faults: rows of `Finding`, and how to repair them; sources: rows of `Finding`.

    stats: the sums of the pixels by part folder, then by split.
    """

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: dict[str, Stats]


Shard = tuple[ShardRow, pd.DataFrame]  # with the rows of its images
Checked = tuple[list[Finding], Sums]  # the sums are of the records that are right


def verify_parts(folders: Sequence[str] | str, work_dir: str = "") -> Verification:
    """Read parts again and return their faults, a source comparison and pixel sums.

    Every byte is read: sha256, CRCs, each record's image, and its features against the
    row of the image; names, counts and files against plan and shards.csv.
    folders: parts, or folders of parts such as WORK_DIR.
    work_dir: the plan's; "" to compare no sources. Of each part, one record in a
        hundred is compared, at least 6, at most about 50.
    """
    stats: dict[str, Stats] = {}
    findings = list[Finding]()
    for folder in [folders] if isinstance(folders, str) else folders:
        parts = {*list_parts(folder), *list_parts(folder, "plan.json")}
        for part_dir in sorted(parts) or [folder.rstrip("/")]:
            stats[part_dir] = defaultdict(Counter)
            findings += _verify_part(part_dir, work_dir, stats[part_dir])
    columns = [*Finding._fields[:5]]  # of faults
    table = pd.DataFrame(findings, columns=Finding._fields).sort_values(columns)
    faults = table.loc[table["problem"] != "", columns].assign(advice=REPAIR)
    return Verification(faults, table.dropna(), stats)


def verify_written(part_dirs: list[str], work_dir: str) -> Verification:
    """Read written parts again, and check that all of them are as planned.

    Raises: RuntimeError: a record or a file is not as planned.
    """
    checked = verify_parts(part_dirs, work_dir)
    if len(checked.faults):
        table = checked.faults.head(20).to_string()
        raise RuntimeError(f"the parts are not as planned:\n{table}")
    return checked


def _verify_part(part_dir: str, work_dir: str, stats: Stats) -> Iterator[Finding]:
    """Yield what is found in a part, and add the sums of its pixels to `stats`."""
    plan, rows, problems = _open_part(part_dir)
    for file, problem in problems.items():
        yield Finding(part_dir, file, problem=problem)
    if not rows:
        return
    sources = _choose_sources(work_dir, rows[0].part) if work_dir else {}
    tables = _read_images(part_dir, {row.split for row in rows})
    shards = [(row, tables.get(row.file, pd.DataFrame())) for row in rows]
    results = parallel.run(
        partial(check_shard, plan.for_worker(), part_dir, sources),
        shards,
        label=f"Verifying {part_dir}",
        total=sum(row.count for row in rows),
        advance=lambda result: result[1]["images"],
    )
    for row, (findings, sums) in zip(rows, results, strict=True):
        yield from findings
        if sums:
            stats[row.split].update(sums)


def _open_part(part_dir: str) -> tuple[Any, list[ShardRow], dict[str, str]]:
    """Return a part's plan, the rows of shards that agree with it, and problems.

    The problems are those of all files but these shards, by name.
    """
    plan: Any = None
    rows = list[ShardRow]()
    problems = {}
    try:
        plan = read_plan(part_dir)
        rows = journal.match_plan(journal.read_shard_rows(part_dir), plan)
        if not (rows and journal.is_closed(part_dir)):
            problems["shards.csv"] = "the part is unfinished, or this file is broken"
    except (*PER_IMAGE_ERRORS, ValueError) as error:
        problems["shards.csv" if plan else "plan.json"] = str(error)

    sums = read_sums(part_dir)
    shards = {row.file: row.sha256 for row in rows}
    others = {name: sums[name] for name in sums.keys() - shards.keys()}
    problems = find_changed_files(part_dir, others) | problems
    if not rows:
        return plan, rows, problems

    if not shards.items() <= sums.items():
        problems[SUMS] = "it is missing or broken, or lacks a shard"
    for path in Path(part_dir).rglob("*.tfrec*"):
        file = str(path.relative_to(part_dir))
        if file not in shards and is_shard_name(file):
            problems[file] = "it is not in the plan, or not in shards.csv"
    if not read_metadata(part_dir):
        problems[DATASET_FILE] = "it is missing or broken"
    return plan, rows, problems


def _choose_sources(work_dir: str, part: int) -> dict[Any, str]:
    """Return the paths of a sample of a part's images by their `KEYS`."""
    path = storage.join(work_dir, "plan.parquet")
    table = storage.read_parquet(path, ["part", "path", *KEYS])
    table = table[table["part"] == part]
    n_images = np.clip(len(table) // 100, 6, 50)
    chosen = table[:: len(table) // n_images or 1]
    return chosen.set_index(KEYS)["path"].to_dict()


def _read_images(part_dir: str, splits: Iterable[str]) -> dict[Any, pd.DataFrame]:
    """Return the rows of each shard in the tables of these splits.

    SHA256SUMS shows which table is damaged; its shards have no rows.
    """
    tables = dict[Any, pd.DataFrame]()
    for split in splits:
        text = io.StringIO(storage.read_text(f"{part_dir}/{split}.csv"))
        with suppress(ValueError, KeyError):
            table = pd.read_csv(text, dtype=TYPES, keep_default_na=False)
            table = table.rename(columns=ORIGINALS).assign(split=split)
            tables.update(iter(table.groupby("file")))
    return tables


def check_shard(
    plan: Plan, part_dir: str, sources: Mapping[Any, str], shard: Shard
) -> Checked:
    """Compare the records of a shard with their rows, and with a sample of sources."""
    row, images = shard
    rows: dict[int, Any] = dict(enumerate(images.to_dict("records")))
    whole = Finding(part_dir, row.file, split=row.split)
    findings = list[Finding]()
    sums: Sums = Counter()
    try:
        with (
            storage.local_copy(f"{part_dir}/{row.file}") as local,
            plain_file(local) as plain,
        ):
            index = ShardIndex(row.file, plain, list_frames(plain))
            if len(index) != row.count or storage.sha256_of(local) != row.sha256:
                problem = "its records or its sha256 are not those of shards.csv"
                findings.append(whole._replace(problem=problem))
            for number in range(len(index)):
                place = whole._replace(record=number, offset=index.bounds[number])
                values = rows.get(number, {})
                path = sources.get((row.split, values.get("image_id")), "")
                found, pixel_sums = _check_record(plan, index, place, values, path)
                findings += found
                sums.update(pixel_sums)
    except OSError as error:
        findings.append(whole._replace(problem=f"it cannot be read: {error}"))
    return findings, sums


def _check_record(
    plan: Plan, index: ShardIndex, place: Finding, row: Row, path: str
) -> Checked:
    """Compare a record with its row, and with its source if it is in the sample.

    path: of its source, which may have been removed or changed, or "".
    """
    try:
        with index.open_record(place.record) as features:
            pixels = _check_features(plan, place.split, features, row)
    except (ValueError, KeyError) as error:
        return [place._replace(problem=str(error))], Counter()
    findings = []
    with suppress(*PER_IMAGE_ERRORS, RejectedImage):
        if path:
            source = read_image_bytes(path)
            problem, fit = compare_with_source(source, pixels, plan.image)
            findings.append(Finding(*place[:4], problem, place.split, *fit, path))
    return findings, sum_channels(pixels)


def _check_features(plan: Plan, split: str, features: Features, row: Row) -> np.ndarray:
    """Return the pixels of a record whose features are those of its row, if it has one.

    Raises: RejectedImage, ValueError, KeyError: what is wrong.
    """
    key = plan.schema.for_split(split).image_key
    (image,) = features[key].bytes_list.value or [b""]
    header = read_header(image)
    if header.orientation != 1:
        raise ValueError(f"its image has the EXIF orientation {header.orientation}")
    if row:
        encoded = EncodedImage(image, header.height, header.width, header.format)
        record = encode(row, encoded, plan.schema, plan.image)
        found = dict(features)
        expected = dict(parse_record(record))
        names = {*found, *expected}
        wrong = [name for name in names if found.get(name) != expected.get(name)]
        if wrong:
            raise ValueError(f"the features {sorted(wrong)} are not those of its row")
    return read_pixels(image)


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> tuple[str, tuple[float, float]]:
    """Return (problem, (psnr, psnr_swapped)) of a record's pixels.

    pixels: RGB (height, width, 3). The problem is "" or the transformation that fits
    better.
    """
    height, width, _ = pixels.shape
    side = max(height, width)
    # Pillow alone resizes it, independently of the code that made the record.
    image = Image.fromarray(read_upright(source, side, settings.bit_depth))
    if settings.resize == "center_crop":
        image = ImageOps.fit(image, (side, side), METHOD)
    resize = Image.Image.resize if settings.resize == "stretch" else ImageOps.fit
    expected = np.asarray(resize(image, (width, height), METHOD))

    versions = {SWAPPED: pixels[..., ::-1]}
    for number, name in ORIENTATIONS.items():
        versions[name] = apply_orientation(pixels, INVERSE[number])
    fits = {
        name: cv2.PSNR(expected, version)
        for name, version in versions.items()
        if version.shape == pixels.shape
    }
    best = max(fits, key=fits.__getitem__)
    upright = fits["upright"]
    problem = best if fits[best] > upright + MARGIN_DB else ""
    return problem, (upright, fits[SWAPPED])
