"""Read parts again in one pass: faults by record, a comparison with sources, sums."""

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from kaggle_tfr import notebook, parallel, storage
from kaggle_tfr.images.convert import EncodedImage, ImageSettings, psnr, read_pixels
from kaggle_tfr.images.header import Header, RejectedImage, read_header, read_upright
from kaggle_tfr.images.orientation import INVERSE, ORIENTATIONS, apply_orientation
from kaggle_tfr.plan.plan import Plan, read_plan
from kaggle_tfr.records import (
    PER_IMAGE_ERRORS,
    DamagedRecord,
    decompress,
    is_gzip,
    list_frames,
    list_values,
    parse_record,
    read_frame,
    read_image_bytes,
    read_index,
)
from kaggle_tfr.schema import SOURCES, RecordSchema, encode
from kaggle_tfr.shards import (
    SUMS,
    check_one_dataset,
    find_changed_files,
    list_shard_files,
    read_sums,
)
from kaggle_tfr.storage import AnyPath
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.metadata import DATASET_FILE, renew_metadata
from kaggle_tfr.write.stats import Stats, Sums, sum_channels

PART_SIGNS = ("shards.csv", "journal", SUMS)
MAX_FAULTS = 20  # of a shard
MARGIN_DB = 1.0  # some images look the same rotated: a fault must fit better by this
SWAPPED = "red and blue are swapped"
UNREADABLE = "it is missing or cannot be read; run 04_write again"

Sources = Mapping[tuple[str, str], str]  # paths of images, by split and image_id


class Fault(NamedTuple):
    """record: from 0, -1 for the whole file; offset: in the decompressed file."""

    part: str
    file: str
    record: int
    offset: int
    problem: str


class SourceMatch(NamedTuple):
    """PSNR in dB of a record against its source, as it is and with red/blue swapped.

    path: of the source.
    """

    part: str
    file: str
    record: int
    split: str
    image_id: str
    path: str
    psnr: float
    psnr_swapped: float
    problem: str


class Verification(NamedTuple):
    """faults: columns of `Fault`; sources: of `SourceMatch`; stats: by part folder."""

    faults: pd.DataFrame
    sources: pd.DataFrame
    stats: dict[str, Stats]


class Part(NamedTuple):
    """A part to verify; it has no rows if its plan or its tables cannot be read."""

    folder: str
    plan: Plan | None
    rows: list[ShardRow]
    faults: list[Fault]


@dataclass
class ShardCheck:
    """A shard to read, and the result so far.

    rows: of the split's table, one per record, [] where it cannot be read.
    sources: the images to compare.
    """

    part_dir: str
    plan: Plan
    shard: ShardRow
    rows: list[dict[Any, Any]]
    sources: Sources
    faults: list[Fault] = field(default_factory=list)
    matches: list[SourceMatch] = field(default_factory=list)
    sums: Sums = field(default_factory=Counter)

    def report(self, problem: str, record: int = -1, offset: int = 0) -> None:
        """Add a fault."""
        fault = Fault(self.part_dir, self.shard.file, record, offset, problem)
        self.faults.append(fault)


def verify_parts(
    folders: Sequence[str] | str, work_dir: str = "", *, sample: int = 0
) -> Verification:
    """Read parts again and return their faults, a source comparison and pixel sums.

    Every byte is read: sha256, CRCs, index, each record's image, and its features
    against the plan's row; names, counts and files against plan and shards.csv.
    folders: parts, folders of parts such as WORK_DIR, or work/ of all recipes.
    work_dir: the plan's; "" to compare no sources.
    sample: number of records, over all parts, to compare with their sources; 0: one in
        a hundred, from 6 to 50.
    Raises: FileNotFoundError: a folder contains no part that 04_write wrote.
    """
    folders = [folders] if isinstance(folders, str) else folders
    part_dirs = [path for folder in folders for path in _find_parts(folder)]
    parts = [_open_part(part_dir) for part_dir in part_dirs]
    faults = _compare_plans(part_dirs)
    for part in parts:
        faults += part.faults

    if not sample:
        n_records = sum(row.count for part in parts for row in part.rows)
        sample = min(50, max(6, n_records // 100))
    n_sources = ceil(sample / len(parts)) if work_dir else 0
    matches = list[SourceMatch]()
    stats: dict[str, Stats] = {part_dir: defaultdict(Counter) for part_dir in part_dirs}
    for check in _read_shards(parts, work_dir, n_sources):
        faults += check.faults
        matches += check.matches
        stats[check.part_dir][check.shard.split].update(check.sums)
    return Verification(
        pd.DataFrame(sorted(faults), columns=Fault._fields),
        pd.DataFrame(sorted(matches), columns=SourceMatch._fields),
        stats,
    )


def verify_written(shards: pd.DataFrame, parts_dir: str, work_dir: str) -> Verification:
    """Read what `write_parts` wrote again, and note that all of it is as planned.

    shards: of `write_parts`.
    Raises: RuntimeError: a record or a file is not as planned.
    """
    numbers = shards["part"].unique()
    part_dirs = [storage.join(parts_dir, f"part-{number}") for number in numbers]
    checked = verify_parts(part_dirs, work_dir)
    if len(checked.faults):
        raise RuntimeError(
            "the parts are not what was planned:\n"
            f"{checked.faults.head(20).to_string()}"
        )
    n_records = shards["count"].sum()
    notebook.note(
        "✓", f"0 faults in {n_records:,} records, all read again.", "verification"
    )
    return checked


def _read_shards(
    parts: Sequence[Part], work_dir: str, n_sources: int
) -> Iterator[ShardCheck]:
    """Read the shards of all parts; n_sources: sources to compare, for each part."""
    checks = (_list_checks(part, work_dir, n_sources) for part in parts)
    return parallel.run(
        check_shard,
        chain.from_iterable(checks),
        label="Verifying records",
        total=sum(row.count for part in parts for row in part.rows),
        advance=lambda check: check.shard.count,
    )


def _find_parts(folder: str) -> list[str]:
    """Return the part folders in a folder: itself, those in it, or in its work folders.

    Raises: FileNotFoundError: 04_write wrote none of them.
    """
    if any(storage.exists(storage.join(folder, name)) for name in PART_SIGNS):
        return [storage.join(folder)]

    part_dirs = _list_part_dirs(folder)
    for plan in storage.list_files("*/plan.parquet", folder):
        work_dir = os.path.dirname(plan)
        part_dirs = part_dirs - {work_dir} | _list_part_dirs(work_dir)
    if not part_dirs:
        raise FileNotFoundError(
            f"'{folder}' is not a part that 04_write wrote: it contains none of "
            f"{', '.join(PART_SIGNS)}. Name a folder that 04_write wrote, or one that "
            "contains such folders. To check other TFRecord files, read them by "
            "01_explore with INPUT_SCHEMA: auto."
        )
    return sorted(part_dirs)


def _list_part_dirs(folder: str) -> set[str]:
    """Return the folders in a folder that have the tables of a part."""
    files = storage.list_files("*/shards.csv", folder)
    files += storage.list_files("*/plan.json", folder)  # unfinished parts
    return {os.path.dirname(file) for file in files}


def _compare_plans(part_dirs: Sequence[str]) -> list[Fault]:
    """Return a fault for each folder whose parts are of different datasets.

    Readers take all parts of a folder for one dataset.
    """
    faults = []
    for _, group in groupby(sorted(part_dirs), os.path.dirname):
        folders = list(group)
        advice = "Remove the older one, or run 04_write with OVERWRITE = True."
        try:
            check_one_dataset(folders, advice=advice)
        except ValueError as error:
            faults.append(Fault(folders[-1], "plan.json", -1, 0, str(error)))
    return faults


def _open_part(part_dir: str) -> Part:
    """Read the plan and the rows of a part, and check its files but the shards."""
    plan = None
    rows = list[ShardRow]()
    problems = {"plan.json": UNREADABLE, "shards.csv": UNREADABLE}
    with suppress(*PER_IMAGE_ERRORS, ValueError):
        plan = read_plan(part_dir)
        del problems["plan.json"]
    try:
        rows = journal.read_rows_of_part(part_dir)
    except ValueError as error:
        problems["shards.csv"] = str(error)
    if rows:
        del problems["shards.csv"]

    sums = read_sums(part_dir)
    if plan and rows:
        problems = _check_tables(part_dir, plan, rows, sums)
        for row in rows:  # which are read later
            sums.pop(row.file, "")
    else:
        rows = []
    problems = find_changed_files(part_dir, sums) | problems
    faults = [Fault(part_dir, file, -1, 0, text) for file, text in problems.items()]
    return Part(part_dir, plan, rows, faults)


def _check_tables(
    part_dir: str,
    plan: Plan,
    rows: Sequence[ShardRow],
    sums: Mapping[str, str],
) -> dict[str, str]:
    """Compare the files that list the shards with each other; return the problems.

    sums: of SHA256SUMS.
    """
    problems = _check_shard_list(plan, rows) | _find_unlisted_files(part_dir, rows)
    if not journal.is_closed(part_dir):
        problems["shards.csv"] = "the part is unfinished; run 04_write again"
    if renew_metadata(part_dir, plan, rows):
        problems[DATASET_FILE] = "it is missing, or does not describe this part"
    if any(sums.get(row.file) != row.sha256 for row in rows):
        problems[SUMS] = "it is missing or broken, or lacks a shard"
    return problems


def _check_shard_list(plan: Plan, rows: Sequence[ShardRow]) -> dict[str, str]:
    """Return the problems of shards whose rows do not agree with the plan."""
    problems = dict[str, str]()
    numbers = {row.number for row in journal.match_plan(rows, plan)}
    for shard in plan.shards:
        if shard.part == rows[0].part and shard.number not in numbers:
            problems[plan.file_name(shard, shard.count)] = (
                f"the plan has {shard.count} images, but not shards.csv and rejects.csv"
            )
    return problems


def _find_unlisted_files(part_dir: str, rows: Iterable[ShardRow]) -> dict[str, str]:
    """Return the problem of each file named like a shard that has no row."""
    paths = [path for path, *_ in list_shard_files(part_dir)]
    files = {path.removeprefix(f"{part_dir}/") for path in paths}
    files -= {row.file for row in rows}
    return dict.fromkeys(files, "not in shards.csv")


def _choose_sources(work_dir: str, part: int, n_sources: int) -> Sources:
    """Return a sample of a part's images."""
    if n_sources == 0:
        return {}
    columns = ["split", "image_id", "path"]
    plan_path = storage.join(work_dir, "plan.parquet")
    table = storage.read_parquet(plan_path, columns=["part", *columns])
    table = table.loc[table["part"] == part, columns]
    chosen = table.sample(min(n_sources, len(table)), random_state=0)
    return {(split, image): path for split, image, path in chosen.to_numpy()}


def _list_checks(part: Part, work_dir: str, n_sources: int) -> Iterator[ShardCheck]:
    """Yield a task for each shard, with its rows of the split's table."""
    if not (part.plan and part.rows):
        return
    sources = _choose_sources(work_dir, part.rows[0].part, n_sources)
    plan = part.plan.for_worker()
    for split, shards in groupby(part.rows, attrgetter("split")):
        table = _read_image_table(part.folder, plan, split)
        positions = table.groupby("file").indices
        for shard in shards:
            rows = table.iloc[positions.get(shard.file, [])].to_dict("records")
            yield ShardCheck(part.folder, plan, shard, rows, sources)


def _read_image_table(part_dir: str, plan: Plan, split: str) -> pd.DataFrame:
    """Return a split's table with its column `split`, empty if it cannot be read.

    `_open_part` reports a broken table.
    """
    types = dict.fromkeys(_list_text_columns(plan), str)
    path = f"{part_dir}/{split}.csv"
    with (
        suppress(*PER_IMAGE_ERRORS, ValueError),
        storage.local_copy(path) as local,
    ):
        table = pd.read_csv(local, dtype=types, keep_default_na=False)
        if {"image_id", "file"} <= set(table):
            return table.assign(split=split)
    return pd.DataFrame(columns=["file"])


def _list_text_columns(plan: Plan) -> list[str]:
    """Return the columns of a split's table that are text, even if they look else."""
    columns = ["image_id", "label_name", "file"]
    for schema_field in (*plan.schema.fields, *plan.schema.test_fields):
        for source in schema_field.sources:
            if schema_field.type == "bytes" or source not in SOURCES:
                columns.append(source)
    return columns


def check_shard(check: ShardCheck) -> ShardCheck:
    """Read a shard and return the check with the result, without its rows."""
    path = f"{check.part_dir}/{check.shard.file}"
    try:
        with storage.local_copy(path) as local, tempfile.TemporaryDirectory() as folder:
            if storage.sha256_of(local) != check.shard.sha256:
                check.report("its sha256 is not that of shards.csv")
            plain = decompress(local, f"{folder}/plain") if is_gzip(local) else local
            _check_records(check, plain)
    except FileNotFoundError:
        check.report("the file is missing")
    except OSError as error:
        check.report(f"it cannot be read: {error}")
    check.rows = []
    return check


def _check_records(check: ShardCheck, plain: AnyPath) -> None:
    """Check the records of a decompressed shard: their number, index, and each one."""
    bounds = list_frames(plain)
    _check_bounds(check, bounds)
    for number, (offset, end) in enumerate(pairwise(bounds)):
        try:
            record = read_frame(plain, offset, end - offset)
            problem = _check_record(check, number, record)
        except DamagedRecord:
            problem = "cannot be read: it is damaged"
            if end == bounds[-1]:
                problem += ", or the file ends in the middle of it"
        if problem:
            check.report(problem, number, offset)
        if len(check.faults) >= MAX_FAULTS:
            check.report(f"{MAX_FAULTS} faults; the other records were not read")
            return


def _check_bounds(check: ShardCheck, bounds: Sequence[int]) -> None:
    """Compare the records' bounds with shards.csv, the split's table and the index."""
    shard = check.shard
    count = len(bounds) - 1
    if count != shard.count:
        check.report(f"{count} records were found, shards.csv has {shard.count}")
    if check.rows and len(check.rows) != shard.count:
        check.report(f"{shard.split}.csv has {len(check.rows)} rows of this file")

    index = read_index(f"{check.part_dir}/index/{shard.file}.idx")
    if index not in ([0], bounds):
        check.report("its records are not where its index has them")


def _check_record(check: ShardCheck, number: int, record: bytes) -> str:
    """Return the problem of a record, or ""; its image is decoded once."""
    try:
        image = _find_image(record, check.plan.schema.for_split(check.shard.split))
        header = read_header(image)
        pixels = read_pixels(image)
    except RejectedImage as rejection:
        return f"its image is rejected: {rejection}"
    except ValueError as error:
        return str(error)
    check.sums.update(sum_channels(pixels))
    if header.orientation != 1:
        return f"its image is rotated (EXIF orientation {header.orientation})"
    if number >= len(check.rows):
        return ""

    row = check.rows[number]
    problem = _compare_source(check, number, row["image_id"], pixels)
    return problem or _find_difference(record, image, header, check.plan, row)


def _find_image(record: bytes, schema: RecordSchema) -> bytes:
    """Return the image of a record. Raises: ValueError: it has none, or several."""
    images = parse_record(record)[schema.image_key].bytes_list.value
    if len(images) != 1:
        raise ValueError(f"'{schema.image_key}' has {len(images)} images")
    return images[0]


def _compare_source(
    check: ShardCheck, number: int, image_id: str, pixels: np.ndarray
) -> str:
    """Compare a record with its source if it is in the sample; return the problem."""
    shard = check.shard
    path = check.sources.get((shard.split, image_id))
    if path is None:
        return ""
    # Sources may have been removed or changed since they were written.
    with suppress(*PER_IMAGE_ERRORS, RejectedImage):
        source = read_image_bytes(path)
        fit = compare_with_source(source, pixels, check.plan.image)
        place = (check.part_dir, shard.file, number, shard.split)
        match = SourceMatch(*place, image_id, path, *fit)
        check.matches.append(match)
        if match.problem:
            return f"it does not show its source as it is: {match.problem}"
    return ""


def _find_difference(
    record: bytes, image: bytes, header: Header, plan: Plan, row: Mapping[str, Any]
) -> str:
    """Return the first feature that differs from the plan's row with this image."""
    values = {
        **row,
        "height": row.get("source_height", header.height),
        "width": row.get("source_width", header.width),
    }
    encoded = EncodedImage(image, header.height, header.width, header.format)
    try:
        expected = encode(values, encoded, plan.schema, plan.image)
    except (ValueError, KeyError) as error:
        return f"the plan's row cannot be encoded: {error}"
    return "" if record == expected else _compare_features(record, expected)


def _compare_features(record: bytes, expected_record: bytes) -> str:
    """Return the first difference of two records that are not equal."""
    found = _list_features(record)
    expected = _list_features(expected_record)
    for name in sorted({*found, *expected}):
        value = found.get(name, "missing")
        expected_value = expected.get(name, "missing")
        if value != expected_value:
            return f"'{name}' is {value:.60}, expected {expected_value:.60}"
    return "its features are not in the order, or of the type, that the schema writes"


def _list_features(record: bytes) -> dict[str, str]:
    """Return the values of a record's features as text, by name."""
    features = parse_record(record)
    return {name: str(list_values(feature)) for name, feature in features.items()}


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> tuple[float, float, str]:
    """Return (psnr, psnr_swapped, problem) of a record's pixels.

    pixels: RGB (height, width, 3). The PSNR is in dB, as it is and with red and blue
    swapped. The problem is the transformation that fits better, or "".
    """
    height, width = pixels.shape[:2]
    expected = _resize_source(source, height, width, settings)
    versions = {"": pixels, SWAPPED: pixels[..., ::-1]}
    for number, orientation in ORIENTATIONS.items():
        if height == width or not orientation.transposes:
            version = apply_orientation(pixels, INVERSE[number])
            versions[f"the image is {orientation.name}"] = version
    fits = {problem: psnr(expected, v) for problem, v in versions.items()}
    best = max(fits, key=fits.__getitem__)
    problem = best if fits[best] > fits[""] + MARGIN_DB else ""
    return fits[""], fits[SWAPPED], problem


def _resize_source(
    source: bytes, height: int, width: int, settings: ImageSettings
) -> np.ndarray:
    """Return the pixels of a source as a record of this size should show it.

    Pillow alone resizes it, independently of the code that made the record.
    """
    pixels = read_upright(source, max(height, width), settings.bit_depth)
    image = Image.fromarray(pixels)
    scale_x = image.width / width
    scale_y = image.height / height
    if settings.resize == "fill":
        scale_x = scale_y = min(scale_x, scale_y)
    if settings.resize == "center_crop" and settings.size:
        scale_x = scale_y = min(image.size) / max(settings.size)
    # Pillow rejects a box that rounding puts outside the image.
    left = max(0, (image.width - width * scale_x) / 2)
    top = max(0, (image.height - height * scale_y) / 2)
    box = (left, top, image.width - left, image.height - top)
    return np.asarray(image.resize((width, height), Image.Resampling.HAMMING, box))
