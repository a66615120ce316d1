"""Read parts again in one pass: faults by record, a comparison with sources, sums."""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
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
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation
from kaggle_tfr.naming import is_shard_name
from kaggle_tfr.plan.plan import Plan, read_plan
from kaggle_tfr.records import (
    PER_IMAGE_ERRORS,
    check_frame,
    find_frames,
    parse_record,
    plain_file,
    read_image_bytes,
)
from kaggle_tfr.schema import Row, encode
from kaggle_tfr.shards import SUMS, TYPES, find_changed_files, list_parts, read_sums
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.stats import COLUMNS, sum_channels

METHOD = Image.Resampling.HAMMING
SWAPPED = "red and blue are swapped"
MARGIN_DB = 1.0  # a transformation must fit better by this to be a fault
# Columns of a split's table for which `encode` has other names.
ORIGINALS = {"source_height": "height", "source_width": "width"}
KEYS = ["split", "image_id"]


class Finding(NamedTuple):
    """A fault of a file or a record, or a record without one.

    record: from 0, -1 for the whole file. problem: "" for none. path: of the source.
    sums: `stats.COLUMNS` of the pixels, 0 for none.
    psnr, psnr_swapped: in dB, against the source, as it is and with red and blue
    swapped; NaN for a record that was not compared.
    """

    part: str
    file: str
    record: int = -1
    problem: str = ""
    split: str = ""
    path: str = ""
    psnr: float = nan
    psnr_swapped: float = nan
    sums: Any = 0


class Verification(NamedTuple):
    """faults, sources: rows of `Finding`.

    stats: `stats.COLUMNS`, a row for each part folder and split.
    """

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: pd.DataFrame


Shard = tuple[ShardRow, pd.DataFrame]  # with the rows of its images
Record = tuple[Finding, bytes, Row]  # its place, frame and row


def verify_parts(folders: Sequence[str], work_dir: str = "") -> Verification:
    """Read parts again and return their faults, a source comparison and pixel sums.

    Every byte is read: sha256, CRCs, each record's image, and its features against the
    row of the image; counts and files against plan and shards.csv.
    folders: parts, or folders of parts such as WORK_DIR.
    work_dir: the plan's; "" to compare no sources. Of each part, about 20 records are
        compared.
    """
    stats: Any = defaultdict(int)
    findings = list[Finding]()
    for folder in folders:
        # An unfinished part has a plan.json, but no shards.csv.
        parts = {*list_parts(folder), *list_parts(folder, "plan.json")}
        for part_dir in sorted(parts) or [folder.rstrip("/")]:
            for finding in _verify_part(part_dir, work_dir):
                # Of records without a fault, only those that were compared are kept:
                # the psnr of the others is NaN.
                if finding.problem or finding.psnr > 0:
                    findings.append(finding)
                if np.any(finding.sums):
                    stats[part_dir, finding.split] += finding.sums

    table = pd.DataFrame(findings, columns=Finding._fields)
    faults = table.loc[table["problem"] != "", "part":"problem"]
    places = pd.MultiIndex.from_tuples(stats, names=["part", "split"])
    sums = pd.DataFrame([*stats.values()], places, COLUMNS)
    # Only psnr may be NaN, where no source was compared.
    return Verification(faults, table.dropna(), sums)


def _verify_part(part_dir: str, work_dir: str) -> Iterator[Finding]:
    """Yield the faults of a part's files, and a finding for each record.

    work_dir: the plan's; "" to compare no sources.
    """
    plan, rows, problems = _open_part(part_dir)
    for file, problem in problems.items():
        yield Finding(part_dir, file, problem=problem)
    if not rows:
        return
    sources = _choose_sources(work_dir, rows[0].part) if work_dir else {}
    tables = _read_images(part_dir, {row.split for row in rows})
    results = parallel.run_groups(
        partial(read_shard, part_dir),
        partial(check_records, plan.for_worker(), sources),
        lambda _, findings: [*findings],  # of the shard
        [(row, tables.get(row.file, pd.DataFrame())) for row in rows],
        label=f"Verifying {part_dir}",
        total=sum(row.count for row in rows),
        advance=len,
    )
    for row, findings in zip(rows, results, strict=True):
        yield from findings
        if len(findings) != row.count:
            problem = f"it has {len(findings)} records, but {row.count} in shards.csv"
            yield Finding(part_dir, row.file, problem=problem)


def _open_part(part_dir: str) -> tuple[Any, list[ShardRow], dict[str, str]]:
    """Return a part's plan, the rows of shards that agree with it, and problems.

    The problems are those of files, by name. Without a plan: None and no rows.
    """
    sums = read_sums(part_dir)
    problems = find_changed_files(part_dir, sums)
    try:
        plan = read_plan(part_dir)
    except (*PER_IMAGE_ERRORS, ValueError) as error:
        return None, [], problems | {"plan.json": str(error)}
    rows = journal.match_plan(journal.read_shard_rows(part_dir), plan)
    if not rows:
        return plan, [], problems or {"shards.csv": "it has no shard of the plan"}

    shards = {row.file: row.sha256 for row in rows}
    # SHA256SUMS must have each of these pairs.
    if not shards.items() <= sums.items():
        problems[SUMS] = "it is missing or broken, or lacks a shard"
    for path in Path(part_dir).rglob("*.tfrec*"):
        file = str(path.relative_to(part_dir))
        if is_shard_name(file) and file not in shards:
            problems[file] = "it is not in shards.csv, or not as in the plan"
    return plan, rows, problems


def _choose_sources(work_dir: str, part: int) -> dict[Any, str]:
    """Return the paths of about 20 images of a part by (split, image_id).

    They are evenly spaced in plan.parquet, or all if there are fewer than 40.
    """
    table = storage.read_parquet(f"{work_dir}/plan.parquet", ["part", "path", *KEYS])
    rows = table.query(f"part == {part}")
    return rows[:: len(rows) // 20 or 1].set_index(KEYS)["path"].to_dict()


def _read_images(part_dir: str, splits: Iterable[str]) -> dict[Any, pd.DataFrame]:
    """Return the rows of the images of each shard, by its file, to check the records.

    They are read from the CSVs of these splits, such as train.csv, with the names of
    columns that `encode` takes. A damaged CSV is left out, so its shards have no rows;
    `_open_part` reports it by its SHA-256.
    """
    tables = dict[Any, pd.DataFrame]()
    for split in splits:
        text = io.StringIO(storage.read_text(f"{part_dir}/{split}.csv"))
        with suppress(ValueError, KeyError):
            table = pd.read_csv(text, dtype=TYPES, keep_default_na=False)
            table = table.rename(columns=ORIGINALS).assign(split=split)
            tables.update(iter(table.groupby("file")))
    return tables


def read_shard(part_dir: str, shard: Shard) -> Iterator[list[Record]]:
    """Yield the records of a shard in blocks; none if it is missing.

    Each has the place of the record (a `Finding` without a problem), its frame, and the
    row of its image.
    """
    row, images = shard
    path = f"{part_dir}/{row.file}"
    # Records beyond the table, or all if it is damaged, have the row {}.
    rows: Any = chain(images.to_dict("records"), repeat({}))
    with (
        suppress(*PER_IMAGE_ERRORS),
        plain_file(path) as plain,
        storage.open_file(plain) as file,
    ):
        sizes = np.diff(find_frames(path, plain))  # bytes of each frame
        # Of records as large as the mean, a block has at most 16, and at most 2 MiB.
        mean_bytes = row.bytes // max(1, row.count)
        for numbers in parallel.blocks_by_bytes(range(len(sizes)), mean_bytes):
            yield [
                (
                    Finding(part_dir, row.file, number, split=row.split),
                    file.read(sizes[number]),
                    next(rows),
                )
                for number in numbers
            ]


def check_records(
    plan: Plan, sources: Mapping[Any, str], records: list[Record]
) -> list[Finding]:
    """Return a finding for each record: its problem, its sums, and the comparison.

    A record is compared with its row; and with its source, if that is in `sources` and
    can be read.
    sources: paths by (split, image_id), of a few records.
    """
    findings = []
    for place, frame, row in records:
        path = sources.get((place.split, row.get("image_id")), "")
        found: dict[str, Any] = {"path": path}
        try:
            record = check_frame(frame)
            pixels = _check_features(plan, place.split, record, row)
            found["sums"] = sum_channels(pixels)
            # The source may have been removed or changed.
            with suppress(*PER_IMAGE_ERRORS, RejectedImage):
                if path:
                    source = read_image_bytes(path)
                    found |= compare_with_source(source, pixels, plan.image)
        except (ValueError, KeyError) as error:
            found["problem"] = str(error)
        findings.append(place._replace(**found))
    return findings


def _check_features(plan: Plan, split: str, record: bytes, row: Row) -> np.ndarray:
    """Return the pixels of a record; check that its features are those of its row.

    The row is encoded with the record's own image, and must give the same bytes. With
    the row {}, features are not compared.
    Raises: RejectedImage, ValueError, KeyError: what is wrong.
    """
    features = parse_record(record)
    key = plan.schema.for_split(split).image_key
    image = b"".join(features[key].bytes_list.value)  # one value; b"" is rejected
    header = read_header(image)
    if row:
        encoded = EncodedImage(image, header.height, header.width, header.format)
        if record != encode(row, encoded, plan.schema, plan.image):
            raise ValueError("its features, or their order, are not those of its row")
    return read_pixels(image)


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> dict[str, Any]:
    """Return psnr, psnr_swapped and problem of a record's pixels, as in `Finding`.

    source: the image file. pixels: RGB (height, width, 3). The problem is "" or the
    transformation that fits better, by 1 dB (`MARGIN_DB`) or more: an orientation, or
    red and blue swapped.
    """
    height, width, _ = pixels.shape  # channels are last
    side = max(height, width)
    # Pillow alone resizes it, independently of the code that made the record.
    image = Image.fromarray(read_upright(source, side, settings.bit_depth))
    # As `ImageSettings` describes `resize`: to the longer side, then the middle of it.
    if settings.resize == "center_crop":
        image = ImageOps.fit(image, (side, side), METHOD)
    resize = Image.Image.resize if settings.resize == "stretch" else ImageOps.fit
    expected = np.asarray(resize(image, (width, height), METHOD))

    # PSNR in dB by transformation: the largest fits best.
    fits = {SWAPPED: cv2.PSNR(expected[..., ::-1], pixels)}
    for number, name in ORIENTATIONS.items():
        version = apply_orientation(expected, number)
        if version.shape == pixels.shape:  # some transpose the sides
            fits[name] = cv2.PSNR(version, pixels)

    best = max(fits, key=fits.__getitem__)
    is_wrong = fits[best] > fits["upright"] + MARGIN_DB
    return {
        "problem": best if is_wrong else "",
        "psnr": fits["upright"],
        "psnr_swapped": fits[SWAPPED],
    }
