"""Read parts again in one pass: faults by record, a comparison with sources, sums."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
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
    check_frame,
    list_frames,
    list_values,
    parse_record,
    plain_file,
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
from kaggle_tfr.write.metadata import DATASET_FILE, read_metadata, renew_metadata
from kaggle_tfr.write.stats import Stats, Sums, sum_channels

METHOD = Image.Resampling.HAMMING
SWAPPED = "red and blue are swapped"
MARGIN_DB = 1.0  # a transformation must fit better by this to be a fault
REPAIR = "Run 04_write again. If the fault stays, remove the part and write it again."
# Columns of a split's table that `encode` needs as numbers, and its names for them.
NUMBERS = {"label": "label", "source_height": "height", "source_width": "width"}
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
    """faults: rows of `Finding`, and how to repair them; stats: by part folder.

    sources: rows of `Finding`.
    """

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: dict[str, Stats]


Shard = tuple[ShardRow, pd.DataFrame]  # with the rows of its images
# The place, frame and row ({} if unknown) of a record; without a frame, a fault of the
# whole file.
Record = tuple[Finding, bytes, Row]
Checked = tuple[list[Finding], Sums]


def verify_parts(
    folders: Sequence[str] | str, work_dir: str = "", *, sample: int = 0
) -> Verification:
    """Read parts again and return their faults, a source comparison and pixel sums.

    Every byte is read: sha256, CRCs, each record's image, and its features against the
    row of the image; names, counts and files against plan and shards.csv.
    folders: parts, or folders of parts such as WORK_DIR.
    work_dir: the plan's; "" to compare no sources.
    sample: the minimum number of records of each part to compare with their sources; 0:
        one in a hundred, from 6 to 50.
    """
    stats: dict[str, Stats] = {}
    findings = list[Finding]()
    for folder in [folders] if isinstance(folders, str) else folders:
        parts = {*list_parts(folder), *list_parts(folder, "plan.json")}
        for part_dir in sorted(parts) or [folder.rstrip("/")]:
            stats[part_dir] = defaultdict(Counter)
            findings += _verify_part(part_dir, work_dir, sample, stats[part_dir])
    columns = [*Finding._fields[:5]]  # of faults
    table = pd.DataFrame(findings, columns=Finding._fields).sort_values(columns)
    faults = table.loc[table["problem"] != "", columns].assign(advice=REPAIR)
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
        raise RuntimeError(f"the parts are not as planned:\n{table}")
    text = f"0 faults in {shards['count'].sum():,} records, all read again."
    notebook.note("✓", text, "verification")
    return checked


def _verify_part(
    part_dir: str, work_dir: str, sample: int, stats: Stats
) -> Iterator[Finding]:
    """Yield what is found in a part, and add the sums of its pixels to `stats`."""
    plan, rows, problems = _open_part(part_dir)
    for file, problem in problems.items():
        yield Finding(part_dir, file, problem=problem)
    if not rows:
        return
    sources = _choose_sources(work_dir, rows[0].part, sample) if work_dir else {}
    tables = _read_images(part_dir, {row.split for row in rows})
    results = parallel.run_groups(
        partial(read_shard, part_dir),
        partial(check_records, plan.for_worker(), sources),
        _list_blocks,
        [(row, tables.get(row.file, pd.DataFrame())) for row in rows],
        label=f"Verifying {part_dir}",
        total=sum(row.count for row in rows),
        advance=lambda blocks: sum(sums["images"] for _, sums in blocks),
    )
    for row, blocks in zip(rows, results, strict=True):
        for findings, sums in blocks:
            yield from findings
            if sums:
                stats[row.split].update(sums)


def _open_part(part_dir: str) -> tuple[Any, list[ShardRow], dict[str, str]]:
    """Return a part's plan, the rows of shards that agree with it, and problems.

    The problems are those of all files but these shards, by name.
    """
    plan: Any = None
    rows = list[ShardRow]()
    error = ""
    try:
        plan = read_plan(part_dir)
        rows = journal.match_plan(journal.read_shard_rows(part_dir), plan)
        # Readers take all parts of a folder for one dataset.
        siblings = list_parts(os.path.dirname(part_dir))
        check_one_dataset(siblings, advice="Remove one of them.")
    except (*PER_IMAGE_ERRORS, ValueError) as raised:
        error = str(raised)
    if not (rows and journal.is_closed(part_dir)):
        error = error or "the part is unfinished, or this file is broken"

    sums = read_sums(part_dir)
    shards = {row.file: row.sha256 for row in rows}
    others = {name: sums[name] for name in sums.keys() - shards.keys()}
    problems = find_changed_files(part_dir, others)
    if error:
        problems["shards.csv" if plan else "plan.json"] = error
    if not rows:
        return plan, rows, problems

    if not shards.items() <= sums.items():
        problems[SUMS] = "it is missing or broken, or lacks a shard"
    for path in list_shard_files(part_dir):
        file = os.path.relpath(path, part_dir)
        if file not in shards:
            problems[file] = "it is not in the plan, or not in shards.csv"
    # Earlier versions wrote another plan.json, and other pages.
    is_current = storage.read_text(f"{part_dir}/plan.json") == plan.to_json()
    metadata = renew_metadata(part_dir, plan, rows)
    if not problems and is_current and read_metadata(part_dir) != metadata:
        problems[DATASET_FILE] = "it is missing, or does not describe this part"
    return plan, rows, problems


def _choose_sources(work_dir: str, part: int, sample: int) -> dict[Any, str]:
    """Return the paths of a sample of a part's images by their `KEYS`."""
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


def read_shard(part_dir: str, shard: Shard) -> Iterator[list[Record]]:
    """Yield the records of a shard in blocks, then the fault of the whole file."""
    row, images = shard
    path = f"{part_dir}/{row.file}"
    whole = Finding(part_dir, row.file, split=row.split)
    problem = ""
    try:
        with storage.local_copy(path) as local, plain_file(local) as plain:
            bounds = list_frames(plain)
            numbers = range(len(bounds) - 1)
            rows: dict[int, Any] = dict(enumerate(images.to_dict("records")))
            largest = np.diff(bounds).max(initial=0)
            for block in parallel.blocks_by_bytes(numbers, largest):
                start, stop = bounds[block[0]], bounds[block[-1] + 1]
                # Frames follow one another, so that one read has all of a block.
                (data,) = storage.read_pieces(plain, start, [stop - start])
                yield [
                    (
                        whole._replace(record=n, offset=bounds[n]),
                        data[bounds[n] - start : bounds[n + 1] - start],
                        rows.get(n, {}),
                    )
                    for n in block
                ]
            if storage.sha256_of(local) != row.sha256:
                problem = "its sha256 is not that of shards.csv"
            elif len(numbers) != row.count:
                problem = f"it has {len(numbers)} records, in shards.csv {row.count}"
    except FileNotFoundError:
        problem = "the file is missing"
    except OSError as error:
        problem = f"it cannot be read: {error}"
    if problem:
        yield [(whole._replace(problem=problem), b"", {})]


def check_records(
    plan: Plan, sources: Mapping[Any, str], records: Iterable[Record]
) -> Checked:
    """Compare records with their rows, and with a sample of sources; add pixels up."""
    findings = list[Finding]()
    sums: Sums = Counter()
    for place, frame, row in records:
        if not frame:
            findings.append(place)
            continue
        try:
            data = check_frame(frame[:12], frame[12:-4], frame[-4:])
            pixels = _check_features(plan, place.split, data, row)
        except (ValueError, KeyError, RejectedImage) as error:
            findings.append(place._replace(problem=f"the record is wrong: {error}"))
            continue
        sums.update(sum_channels(pixels))
        path = sources.get((place.split, row.get("image_id")))
        if not path:
            continue
        # Sources may have been removed or changed since they were written.
        with suppress(*PER_IMAGE_ERRORS, RejectedImage):
            source = read_image_bytes(path)
            problem, fit = compare_with_source(source, pixels, plan.image)
            findings.append(Finding(*place[:4], problem, place.split, *fit, path))
    return findings, sums


def _list_blocks(_: Shard, blocks: Iterable[Checked]) -> list[Checked]:
    return [*blocks]


def _check_features(plan: Plan, split: str, data: bytes, row: Row) -> np.ndarray:
    """Return the pixels of a record whose features are those of its row, if it has one.

    Raises: RejectedImage, ValueError, KeyError: what is wrong.
    """
    features = parse_record(data)
    key = plan.schema.for_split(split).image_key
    (image,) = features[key].bytes_list.value or [b""]
    header = read_header(image)
    if header.orientation != 1:
        raise ValueError(f"its image has the EXIF orientation {header.orientation}")
    encoded = EncodedImage(image, header.height, header.width, header.format)
    expected_data = encode(row, encoded, plan.schema, plan.image) if row else data
    if data != expected_data:
        expected = parse_record(expected_data)
        for name in sorted({*features, *expected}):
            values = [list_values(record[name]) for record in (features, expected)]
            if values[0] != values[1]:
                raise ValueError(
                    f"'{name}' is {values[0]!s:.60}, expected {values[1]!s:.60}"
                )
        raise ValueError(
            "its features are not in the order or of the type of the schema"
        )
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
    for number, orientation in ORIENTATIONS.items():
        versions[orientation.name] = apply_orientation(pixels, INVERSE[number])
    fits = {
        name: psnr(expected, version)
        for name, version in versions.items()
        if version.shape == pixels.shape
    }
    best = max(fits, key=fits.__getitem__)
    upright = fits["upright"]
    problem = best if fits[best] > upright + MARGIN_DB else ""
    return problem, (upright, fits[SWAPPED])
