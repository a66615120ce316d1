"""Parts read again in one pass: faults by file, record and byte, a source check, channel sums."""

import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import cv2
import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.convert import EncodedImage, ImageSettings, psnr, read_pixels
from kaggle_tfr.images.header import Header, RejectedImage, read_header, read_upright
from kaggle_tfr.images.orientation import INVERSE, ORIENTATIONS, apply_orientation
from kaggle_tfr.plan.plan import Plan, read_plan, read_rows
from kaggle_tfr.records import (
    PER_IMAGE_ERRORS,
    decompress,
    is_gzip,
    list_frames,
    list_image_features,
    list_values,
    parse_record,
    read_frame,
    read_image_bytes,
    read_index,
)
from kaggle_tfr.schema import encode
from kaggle_tfr.shards import (
    find_changed_files,
    list_names,
    read_fingerprint,
    read_sums,
)
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import Row
from kaggle_tfr.write.stats import Stats, Sums, sum_channels

FAULT_COLUMNS = ["part", "file", "record", "offset", "problem"]
SOURCE_COLUMNS = [
    "part",
    "file",
    "record",
    "image_id",
    "psnr",
    "psnr_swapped",
    "problem",
]
PART_SIGNS = ("shards.csv", "journal", "SHA256SUMS")
MAX_FAULTS, MAX_COMPARED_SHARDS = 20, 10  # of a file, of a part
MARGIN_DB = (
    1.0  # by which a wrong version must fit better: some pictures look the same turned
)
_SWAPPED = "red and blue are swapped"

Fault = tuple[str, str, int, int, str]  # of FAULT_COLUMNS


class Verification(NamedTuple):
    """What the reading of part folders has shown."""

    faults: (
        pd.DataFrame
    )  # record from 0, −1 for the file; offset in the (unpacked) file
    sources: (
        pd.DataFrame
    )  # sampled records' PSNR in dB against the source as Pillow resizes it
    stats: dict[str, Stats]  # of each folder, for `save_stats`


@dataclass
class ShardCheck:
    """A shard to read, and what its reading has shown so far."""

    part_dir: str
    plan: Plan
    row: Row
    records: list[Row]  # of the split's table, [] where it cannot be read
    chosen: Mapping[str, str]  # paths of sources by image_id
    faults: list[Fault] = field(default_factory=list)
    sources: list[tuple[Any, ...]] = field(default_factory=list)
    sums: Sums = field(default_factory=Counter)

    def report(self, problem: str, record: int = -1, offset: int = 0) -> None:
        """Notes a fault."""
        self.faults.append((self.part_dir, self.row["file"], record, offset, problem))


def verify_parts(
    folders: Sequence[str] | str, work_dir: str = "", *, sample: int = 50, seed: int = 0
) -> Verification:
    """The faults of part folders, a source check and the channels' sums, after one reading.

    folders: parts, or folders that contain parts, such as WORK_DIR.
    Every byte is read: sha256, CRCs, each record's fields and image against the plan's row, the
    index; names, counts and files against plan and shards.csv.
    work_dir: the plan's, to hold one record in 100, but 6 to `sample`, against its source.
    Raises: FileNotFoundError: a folder contains no part that 04_write wrote.
    """
    listed = [folders] if isinstance(folders, str | os.PathLike) else folders
    part_dirs = [part_dir for folder in listed for part_dir in _find_parts(str(folder))]
    stats: dict[str, Stats] = {part_dir: defaultdict(Counter) for part_dir in part_dirs}
    faults, sources, tasks, total = [], [], [], 0
    rng, share = np.random.default_rng(seed), -(-sample // max(len(stats), 1))
    for folder in stats:
        try:
            plan, rows, problems = _open_part(folder)
        except (ValueError, IsADirectoryError) as error:
            faults.append((folder, "shards.csv", -1, 0, str(error)))
            continue
        faults += [(folder, file, -1, 0, text) for file, text in problems.items()]
        if plan is None:
            continue
        count = sum(row["count"] for row in rows)
        share_of_part = min(share, max(6, count // 100))
        chosen = (
            _choose_sources(work_dir, plan, rows, share_of_part, rng)
            if work_dir
            else {}
        )
        tasks.append(_list_checks(folder, plan, rows, chosen))
        total += count
    faults += _compare_plans(list(stats))
    shown: Row = {"label": "Verifying records", "total": total}
    shown["advance"] = lambda check: check.row["count"]
    for check in parallel.run(check_shard, chain.from_iterable(tasks), **shown):
        faults += check.faults
        sources += check.sources
        stats[check.part_dir][check.row["split"]].update(check.sums)
    named = pd.DataFrame(sorted(faults), columns=FAULT_COLUMNS)
    return Verification(
        named, pd.DataFrame(sorted(sources), columns=SOURCE_COLUMNS), stats
    )


def _compare_plans(folders: Sequence[str]) -> Iterator[Fault]:
    """A fault of each part that is of another plan than the first of those beside it.

    Readers take all parts of a folder for one dataset. Parts of several folders are checked apart.
    """
    first_parts = dict[
        str, tuple[str, str]
    ]()  # (part folder, fingerprint) by the folder around
    for folder in folders:
        around, _, name = os.path.abspath(folder).rpartition("/")
        fingerprint = read_fingerprint(folder)
        if not fingerprint or not re.fullmatch(r"part-\d+", name):
            continue
        first, expected = first_parts.setdefault(around, (folder, fingerprint))
        if fingerprint != expected:
            what = f"it is of another plan than '{first}' beside it"
            fix = "remove the older one, or run 04_write with OVERWRITE = True"
            yield folder, "plan.json", -1, 0, f"{what}; {fix}"


def _find_parts(folder: str) -> list[str]:
    """Return the part folders in a folder: itself, or those directly in it, finished or not.

    Raises: FileNotFoundError: 04_write wrote none of them.
    """
    if any(storage.exists(storage.join(folder, name)) for name in PART_SIGNS):
        return [folder]

    files = [
        file
        for name in ("shards.csv", "plan.json")
        for file in storage.list_files(f"*/{name}", folder)
    ]
    if not files:
        raise FileNotFoundError(
            f"'{folder}' is not a part that 04_write wrote: it contains none of "
            f"{', '.join(PART_SIGNS)}. Name a folder that 04_write wrote, or one that "
            "contains such folders. To check other TFRecord files, read them by "
            "01_explore with SOURCE: tfrecords."
        )
    return sorted({file.rpartition("/")[0] for file in files})


def _open_part(folder: str) -> tuple[Plan | None, list[Row], dict[str, str]]:
    """Return (plan, rows, problems of the folder as a whole by file).

    Without a plan the files are compared with SHA256SUMS alone.
    Raises: ValueError: a row names a file outside the part.
    """
    rows = journal.read_rows_of_part(folder)
    plan = None
    with suppress(*PER_IMAGE_ERRORS, ValueError):
        plan = read_plan(folder)

    if plan is None or not rows:
        problems = find_changed_files(folder, read_sums(folder))
        if plan is None:
            problems["plan.json"] = "it cannot be read; run 04_write again"
        if not rows:
            problems["shards.csv"] = "it cannot be read; run 04_write again"
        return None, [], problems

    problems = sidecars.find_changed(folder, plan, rows)
    if not journal.is_closed(folder):
        problems["shards.csv"] = "the part is unfinished; run 04_write again"
    problems |= _compare_with_plan(plan, rows)
    listed = {row["file"] for row in rows}
    for path, *_ in list_names(folder):
        name = path[len(folder) :].lstrip("/")
        if name not in listed:
            problems[name] = "not in shards.csv"
    return plan, rows, problems


def _compare_with_plan(plan: Plan, rows: Sequence[Row]) -> dict[str, str]:
    """Return the problems of the plan's shards that the part's tables do not list."""
    numbers = {row["number"] for row in journal.match_plan(rows, plan)}
    parts = {row["part"] for row in rows}
    return {
        plan.file_name(shard): f"the plan has {shard.count} images, shards.csv and "
        "rejects.csv have others"
        for shard in plan.shards
        if shard.part in parts and shard.number not in numbers
    }


def _choose_sources(
    work_dir: str,
    plan: Plan,
    rows: Sequence[Row],
    sample: int,
    rng: np.random.Generator,
) -> dict[str, dict[str, str]]:
    """The paths of some images of some shards, by file and image_id."""
    files = {row["number"]: row["file"] for row in journal.match_plan(rows, plan)}
    numbers = sorted(
        rng.permutation(sorted(files))[: min(sample, MAX_COMPARED_SHARDS)].tolist()
    )
    shares, chosen = np.diff(np.linspace(0, sample, len(numbers) + 1).astype(int)), {}
    shards = read_rows(work_dir, [plan.shards[int(number)] for number in numbers])
    for share, (shard, table) in zip(shares, shards, strict=True):
        some = table.sample(min(len(table), share), random_state=rng)
        chosen[files[shard.number]] = dict(
            zip(some["image_id"], some["path"], strict=True)
        )
    return chosen


def _list_checks(
    folder: str, plan: Plan, rows: Sequence[Row], chosen: Row
) -> Iterator[ShardCheck]:
    """A task a shard, each with its own rows only, read as they are asked for."""
    left, schema, slim = (
        {row["file"]: row for row in rows},
        plan.schema,
        plan.for_worker(),
    )
    fields = (*schema.fields, *schema.test_fields)
    texts = [source for one in fields if one.type == "bytes" for source in one.sources]
    text = dict.fromkeys(["image_id", "label_name", "file", *texts], str)
    for split in sorted({row["split"] for row in rows}):
        path = storage.join(folder, f"{split}.csv")
        # Of a broken table the shards are read without their rows; the file is named elsewhere.
        with (
            suppress(*PER_IMAGE_ERRORS, KeyError, ValueError),
            storage.local_copy(path) as local,
        ):
            blocks = pd.read_csv(
                local, dtype=text, keep_default_na=False, chunksize=20_000
            )
            records = (block.assign(split=split).to_dict("records") for block in blocks)
            for file, group in groupby(
                chain.from_iterable(records), itemgetter("file")
            ):
                own = list(group)
                if file in left:
                    yield ShardCheck(
                        folder, slim, left.pop(file), own, chosen.get(file, {})
                    )
    for row in left.values():
        yield ShardCheck(folder, slim, row, [], {})


def check_shard(check: ShardCheck) -> ShardCheck:
    """What one shard holds, with all that is wrong with it; without the plan's rows."""
    row, records, check.records = check.row, check.records, []
    path = storage.join(check.part_dir, row["file"])
    if not storage.exists(path) or storage.is_folder(path):
        check.report("the file is missing")
        return check
    if not (storage.is_remote(path) or os.path.isfile(path)):
        check.report("it is a pipe or a device, not a file")
        return check
    index = read_index(storage.join(check.part_dir, "index", f"{row['file']}.idx"))
    with storage.local_copy(path) as local, tempfile.TemporaryDirectory() as scratch:
        packed = is_gzip(local)
        plain = decompress(local, f"{scratch}/plain") if packed else local
        bounds = list_frames(plain)
        for number, (offset, end) in enumerate(pairwise(bounds)):
            try:
                data = read_frame(plain, offset, end - offset)
            except ValueError:
                problem = "cannot be read: it is damaged"
                problem += ", or the file ends in the middle of it" * (
                    end == bounds[-1]
                )
            else:
                problem = _check_record(
                    check, number, data, records[number : number + 1]
                )
                if index != [0] and index[number : number + 2] != [offset, end]:
                    problem = problem or "the index has another offset or length"
            if problem:
                check.report(problem, number, offset)
            if len(check.faults) == MAX_FAULTS:
                check.report(f"{MAX_FAULTS} faults; the rest of the file was not read")
                return check
        if records and len(records) != row["count"]:
            check.report(f"{row['split']}.csv has {len(records)} rows of this file")
        if (count := len(bounds) - 1) != row["count"]:
            check.report(f"{count} records were found, shards.csv has {row['count']}")
        size = os.path.getsize(local)
        if size != row["bytes"]:
            check.report(f"{size:,} bytes, shards.csv has {row['bytes']:,}")
        elif storage.sha256_of(str(local)) != row["sha256"]:
            check.report("its sha256 is not that of shards.csv")
    return check


def _check_record(
    check: ShardCheck, number: int, data: bytes, planned: Sequence[Row]
) -> str:
    """What is wrong with a record, "" when nothing is; its image is decoded once for all checks."""
    schema = check.plan.schema.for_split(check.row["split"])
    try:
        features = parse_record(data)
    except ValueError as error:
        return str(error)
    key = schema.image_key or "/".join(list_image_features(features))
    images = features[key].bytes_list.value
    if len(images) != 1:
        return f"'{key}' holds {len(images)} images"
    try:
        header, pixels = read_header(images[0]), read_pixels(images[0])
    except RejectedImage as refusal:
        return f"its image is refused: {refusal}"
    check.sums.update(sum_channels(pixels))
    image_id = planned[0]["image_id"] if planned else ""
    if image_id in check.chosen:
        with suppress(
            *PER_IMAGE_ERRORS, RejectedImage
        ):  # removed or changed since it was written
            source = read_image_bytes(check.chosen[image_id])
            compared = compare_with_source(source, pixels, check.plan.image)
            check.sources.append(
                (check.part_dir, check.row["file"], number, image_id, *compared)
            )
            if compared[-1]:
                return f"it does not show its source as it is: {compared[-1]}"
    for side in ("height", "width"):
        key, length = schema.key_of(side), getattr(header, side)
        said = list(features[key].int64_list.value) if key else [length]
        if said != [length]:
            return f"'{key}' says {said}, the image has {length} pixels"
    if header.orientation != 1:
        return f"its image lies turned (EXIF orientation {header.orientation})"
    return (
        _find_difference(data, images[0], header, check.plan, planned[0])
        if planned
        else ""
    )


def _find_difference(
    data: bytes, image: bytes, header: Header, plan: Plan, wanted: Row
) -> str:
    """The first feature that is not what the plan's row, encoded with this image, gives."""
    size = {"height": header.height, "width": header.width}
    if "source_height" in wanted:
        size = {"height": wanted["source_height"], "width": wanted["source_width"]}
    picture = EncodedImage(
        image, header.height, header.width, header.format, touched=False
    )
    try:
        planned = encode(wanted | size, picture, plan.schema, plan.image)
    except (ValueError, KeyError) as error:
        return f"the plan's row cannot be encoded: {error}"
    if planned == data:
        return ""
    found, right = parse_record(data), parse_record(planned)
    for name in sorted(set(found) | set(right)):
        if name not in found or name not in right:
            return f"it {'lacks' if name in right else 'has'} the feature '{name}'"
        if found[name] != right[name]:
            both = (list_values(features[name]) for features in (found, right))
            has, wants = (str(v[0] if len(v) == 1 else v) for v in both)
            return f"'{name}' is {has:.60}, the plan says {wants:.60}"
    return "its features are not in the order that the schema writes"


def compare_with_source(
    source: bytes, pixels: np.ndarray, settings: ImageSettings
) -> tuple[float, float, str]:
    """(psnr, psnr_swapped, problem) of a record's pixels, RGB (height, width, 3).

    In dB, as it is and with red and blue swapped; the problem is "" or what fits better. Pillow
    alone resizes the source, apart from the way the record was made.
    """
    height, width = pixels.shape[:2]
    read = read_upright(source, max(height, width), settings.bit_depth)
    upright = Image.fromarray(read)
    if settings.size is not None and settings.resize in ("center_crop", "fill"):
        square = (max(settings.size),) * 2
        covered = (width, height) if settings.resize == "fill" else square
        upright = ImageOps.fit(upright, covered, Image.Resampling.HAMMING)
        left, top = (upright.width - width) // 2, (upright.height - height) // 2
        upright = upright.crop((left, top, left + width, top + height))
    wanted = np.asarray(upright.resize((width, height), Image.Resampling.HAMMING))
    # Thumbnails tell the ways to lie apart, at a tenth of the time.
    thumbnail = min(width, 64), min(height, 64)
    small, own = (
        cv2.resize(x, thumbnail, interpolation=cv2.INTER_AREA) for x in (wanted, pixels)
    )
    others = {"": own, _SWAPPED: own[..., ::-1]}
    others |= {
        f"the image is {change.name}": apply_orientation(own, INVERSE[number])
        for number, change in ORIENTATIONS.items()
        if number > 1 and (height == width or not change.transposes)
    }
    fits = {name: psnr(small, other) for name, other in others.items()}
    problem = max(fits, key=fits.__getitem__)
    wrong = problem if fits[problem] > fits[""] + MARGIN_DB else ""
    return psnr(wanted, pixels), psnr(wanted, pixels[..., ::-1]), wrong
