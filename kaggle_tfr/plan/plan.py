"""The plan: every setting needed to write and to read, and for each image its shard and part."""

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import ceil, floor

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.paths import check_template, format_name, template_fields
from kaggle_tfr.plan.folds import assign_shards
from kaggle_tfr.plan.forecast import (
    Forecast,
    forecast,
    forecast_groups,
)
from kaggle_tfr.schema import Labels, RecordSchema, encode_row

LARGEST_SHARD_MB = 400


# schema.json, labels.json, labels.txt, plan.json, shards.csv, rejects.csv and stats.json; a CSV a
# split comes on top. Five of Kaggle's 50 stay free by default: TFDS's two files and its class
# names, the index folder (uploaded as one archive) and a cover picture.
SIDECAR_FILES = 7


def sidecar_bytes(table: pd.DataFrame, n_shards: int) -> tuple[float, int]:
    """Bytes beside the shards: for each image (its CSV row and index line), and once a part."""
    columns = [name for name in table.columns if name not in ("path", "problem", "note")]
    head = table[columns].sample(min(len(table), 500), random_state=0)
    row = len(head.to_csv(index=False, header=False).encode()) / max(1, len(head))
    return 1.5 * row + 100, (64 << 10) + 600 * n_shards


def shards_per_group(
    weights: Mapping[tuple[str, int], float],
    counts: Mapping[tuple[str, int], int],
    n_parts: int,
    *,
    max_part_files: int = 45,
    shard_mb: float = 200,
    n_shards: int = 0,
    shard_images: int = 0,
) -> dict[tuple[str, int], int] | None:
    """Shards of each (split, fold), or None when `n_parts` parts cannot hold them.

    weights, counts: expected bytes and images of each (split, fold).
    n_shards, shard_images: ask for so many shards in all, or images a shard at most; else shards
    are near `shard_mb` × 10⁶ bytes, and grow to 400 MB before there are more parts.
    max_part_files: files at the top of a part, those beside the shards included.

    Raises:
        ValueError: no number of parts can satisfy this.
    """
    room = max_part_files - SIDECAR_FILES - len({split for split, _ in counts})
    if len(counts) > room:
        raise ValueError(
            f"{len(counts)} folds need a shard each in every part, but MAX_PART_FILES = "
            f"{max_part_files} leaves {room} beside the part's own files. "
            "Raise MAX_PART_FILES, or lower N_FOLDS."
        )
    if n_shards:
        wanted = _apportion(counts, n_shards)
    elif shard_images:
        wanted = {group: ceil(count / shard_images) for group, count in counts.items()}
    if n_shards or shard_images:
        fits = sum(ceil(shards / n_parts) for shards in wanted.values()) <= room
        return wanted if fits else None
    largest_mb = max(shard_mb, LARGEST_SHARD_MB)
    for target_mb in np.linspace(shard_mb, largest_mb, 41):
        megabytes = {group: weight / n_parts / 1e6 for group, weight in weights.items()}
        each = {
            group: max(1, round(weight / target_mb), ceil(weight / largest_mb))
            for group, weight in megabytes.items()
        }
        if sum(each.values()) <= room:
            return {group: min(counts[group], each[group] * n_parts) for group in counts}
    return None


def _apportion(counts: Mapping[tuple[str, int], int], n_shards: int) -> dict[tuple[str, int], int]:
    """`n_shards` over the groups: one each, the others one by one to the fullest shards.

    Source: Adams' method of apportionment (smallest divisors), by its priority numbers.
    """
    if n_shards < len(counts) or n_shards > sum(counts.values()):
        raise ValueError(
            f"N_SHARDS = {n_shards}, but there are {len(counts)} folds with "
            f"{sum(counts.values())} images, and a shard holds images of one fold, at least one. "
            "Set N_SHARDS between these two, or N_FOLDS = 0."
        )
    shards = dict.fromkeys(counts, 1)
    for _ in range(n_shards - len(counts)):
        shards[max(shards, key=lambda group: counts[group] / shards[group])] += 1
    return shards


# Rows in this order are rows in the order of the records; a row group of plan.parquet is a shard.
ORDER = ["part", "split", "fold", "shard", "position"]


@dataclass(frozen=True)
class Shard:
    """One TFRecord file of a plan.

    number: position among all shards of the plan, from 0; the row group of plan.parquet.
    index: position among the shards of its split and fold, from 0.
    i, n: what `{i}` and `{n}` of the name template are.
    count: records planned; an image that is refused while writing makes the file shorter.
    bytes_high: upper bound of the forecast.
    """

    number: int
    part: int
    split: str
    fold: int
    index: int
    i: int
    n: int
    count: int
    bytes_high: int = 0


@dataclass(frozen=True)
class PlanSettings:
    """The parameters of 03_plan, by their names in lower case; `settings` fills in the defaults."""

    group_column: str
    image_size: int | Sequence[int]
    resize: str
    resample: str
    quality: int
    chroma: str
    optimize: bool
    compression: str
    n_folds: int
    validation_size: float
    shard_mb: float
    n_shards: int
    shard_images: int
    shard_name: str
    part_limit_gb: float
    max_part_files: int
    seed: int

    @property
    def limit_bytes(self) -> int:
        """What a part folder may weigh."""
        return round(self.part_limit_gb * 1e9)

    @property
    def image(self) -> ImageSettings:
        """How a picture becomes a record's image. One image_size is both sides."""
        both = self.image_size
        size = (both, both) if isinstance(both, int) else tuple(both)
        return ImageSettings(
            None if self.resize == "none" else size,
            self.resize,
            resample=self.resample,
            quality=self.quality,
            subsampling=self.chroma,
            optimize=self.optimize,
        )


@dataclass(frozen=True)
class Plan:
    """What `plan.json` holds.

    shard_limit_bytes: what all shards of a part may weigh together.
    outcomes: input images by what becomes of them, see `count_outcomes`.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    """

    labels: Labels
    schema: RecordSchema
    image: ImageSettings
    settings: PlanSettings
    n_parts: int
    shard_limit_bytes: int
    forecast: dict = field(default_factory=dict)
    outcomes: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    fingerprint: str = ""
    shards: list[Shard] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the dataset."""
        return self.labels.name

    def file_name(self, shard: Shard, count: int | None = None) -> str:
        """The shard's path below its part folder, for `count` records (default: as planned)."""
        return format_name(
            self.settings.shard_name,
            name=self.name,
            split=shard.split,
            fold=shard.fold,
            part=shard.part,
            i=shard.i,
            n=shard.n,
            count=shard.count if count is None else count,
        )

    def for_worker(self) -> "Plan":
        """The plan without what grows with the dataset: its shards and classes stay behind."""
        labels = replace(self.labels, classes=())
        return replace(self, labels=labels, shards=[], forecast={}, outcomes={})

    def to_json(self) -> str:
        """The text of `plan.json`."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan that `to_json` wrote."""
        values = json.loads(text)
        size = values["image"]["size"]
        image = ImageSettings(**values["image"] | {"size": tuple(size) if size else None})
        found = {
            "labels": Labels.from_dict(values["labels"]),
            "schema": RecordSchema.from_dict(values["schema"]),
            "image": image,
            "settings": PlanSettings(**values["settings"]),
            "shards": [Shard(**shard) for shard in values["shards"]],
        }
        return cls(**values | found)


def number_shards(shards: Iterable[Shard], template: str) -> list[Shard]:
    """The shards with `i` and `n` counted among those that share the template's other fields."""
    used = [name for name, _ in template_fields(template) if name in ("split", "fold", "part")]
    groups = [tuple(getattr(shard, name) for name in used) for shard in shards]
    totals, seen, numbered = Counter(groups), Counter(), []
    for shard, group in zip(shards, groups, strict=True):
        numbered.append(replace(shard, i=seen[group], n=totals[group]))
        seen[group] += 1
    return numbered


def list_planned_shards(table: pd.DataFrame, template: str) -> list[Shard]:
    """The shards of a table that has the columns part, split, fold and shard, in writing order."""
    counts = table.groupby(ORDER[:-1], sort=True, observed=True).size()
    shards = [
        Shard(number, int(part), str(split), int(fold), int(index), 0, 0, int(count))
        for number, ((part, split, fold, index), count) in enumerate(counts.items())
    ]
    return number_shards(shards, template)


def fingerprint(table: pd.DataFrame, settings: Mapping) -> str:
    """sha256 (hexadecimal) of the settings and of all that the table gives to the records.

    Paths are left out: the same images may be mounted elsewhere.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for column in sorted(set(table.columns) - {"path", "cluster", "note", "problem"}):
        digest.update(f"\x1d{column}\x1d".encode())
        digest.update("\x1f".join(map(str, table[column].tolist())).encode())
    return digest.hexdigest()


def save_plan(plan: Plan, table: pd.DataFrame, work_dir: str) -> None:
    """Writes plan.json and plan.parquet; the rows in the order of the records, a row group a shard.

    plan.json comes last, so that a plan that is there is whole.
    """
    storage.make_folder(work_dir)
    rows = pa.Table.from_pandas(table.sort_values(ORDER), preserve_index=False)
    buffer, start = io.BytesIO(), 0
    with pq.ParquetWriter(buffer, rows.schema) as writer:
        for shard in plan.shards:
            writer.write_table(rows.slice(start, shard.count), row_group_size=shard.count)
            start += shard.count
    storage.write_atomically(storage.join(work_dir, "plan.parquet"), buffer.getvalue())
    storage.write_atomically(storage.join(work_dir, "plan.json"), plan.to_json().encode())


def read_plan(folder: str) -> Plan:
    """The plan of a work or part folder, without its table.

    Raises:
        FileNotFoundError: there is no plan.json.
        ValueError: it cannot be read.
    """
    path = storage.join(folder, "plan.json")
    try:
        return Plan.from_json(storage.read_bytes(path).decode())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no plan.json in '{folder}'. Run 03_plan with this WORK_DIR first."
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"'{path}' is no plan of this version: {error}. Run 03_plan again."
        ) from None


def read_rows(work_dir: str, shards: Iterable[Shard]) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Each shard with its own rows, read when asked for, so that the plan never is in memory."""
    path = storage.join(work_dir, "plan.parquet")
    with storage.on_disk(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()


def make_forecast(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    *,
    compression: str = "",
    seed: int = 0,
    sample: int = 1000,
) -> Forecast:
    """Bytes and seconds a record, from a sample of images taken the whole way to a record."""
    encode = partial(encode_row, schema=schema, settings=image)
    return forecast(table, image, seed=seed, sample=sample, compression=compression, encode=encode)


def make_plan(
    table: pd.DataFrame,
    found: Forecast,
    labels: Labels,
    schema: RecordSchema,
    image: ImageSettings,
    settings: PlanSettings,
) -> tuple[Plan, pd.DataFrame]:
    """The plan and its table, which gains shard, part and position, in the order of the records.

    table: the images to write, with split and fold.
    found: what `make_forecast` gave for this table, schema and image settings.

    Raises:
        ValueError: no number of parts satisfies the limits, or SHARD_NAME cannot name the shards.
    """
    check_template(settings.shard_name)
    dealt, n_parts, room = _fit_parts(table, found, image, settings)
    shards = list_planned_shards(dealt, settings.shard_name)
    sizes = forecast_groups(dealt, image, found, ORDER[:-1])["high"]
    shards = [
        replace(shard, bytes_high=ceil(sizes[shard.part, shard.split, shard.fold, shard.index]))
        for shard in shards
    ]
    plan = Plan(
        labels=labels,
        schema=schema,
        image=image,
        settings=settings,
        n_parts=n_parts,
        shard_limit_bytes=room,
        forecast=found.summary(),
        versions=package_versions(),
        shards=shards,
    )
    return replace(plan, fingerprint=fingerprint(dealt, _bytes_settings(plan))), dealt


def _bytes_settings(plan: Plan) -> dict:
    """The settings that decide the bytes of the shards, given the table."""
    names = ("labels", "schema", "image", "n_parts")
    settings = {name: asdict(plan)[name] for name in names}
    chosen = {name: getattr(plan.settings, name) for name in ("compression", "shard_name")}
    return settings | chosen


def _fit_parts(
    table: pd.DataFrame, found: Forecast, image: ImageSettings, settings: PlanSettings
) -> tuple[pd.DataFrame, int, int]:
    """The table dealt out to the fewest parts that fit, their number, and the bytes for shards.

    Parts are measured as they are, not as a mean: the bound of each one must fit.
    """
    table = table.reset_index(drop=True)
    limit_bytes, seed = settings.limit_bytes, settings.seed
    names = ("max_part_files", "shard_mb", "n_shards", "shard_images")
    limits = {name: getattr(settings, name) for name in names}
    groups = forecast_groups(table, image, found, ["split", "fold"])["expected"]
    counts = table.groupby(["split", "fold"], observed=True).size()
    weights, counts = ({(str(s), int(f)): v for (s, f), v in x.items()} for x in (groups, counts))
    n_parts = max(1, floor(found.total_bytes / max(limit_bytes, 1)))
    while n_parts <= len(table):
        wanted = shards_per_group(weights, counts, n_parts, **limits)
        if not wanted:
            n_parts += 1
            continue
        _check_shards(wanted, n_parts)
        dealt = assign_shards(table, wanted, n_parts, seed=seed)
        dealt = dealt.sort_values(ORDER, ignore_index=True)
        row_bytes, fixed_bytes = sidecar_bytes(table, sum(wanted.values()))
        beside = ceil(dealt.groupby("part").size().max() * row_bytes + fixed_bytes)
        high = ceil(forecast_groups(dealt, image, found, ["part"])["high"].max())
        if high + beside <= limit_bytes:
            return dealt, n_parts, limit_bytes - beside
        n_parts = max(n_parts + 1, floor(n_parts * high / max(limit_bytes - fixed_bytes, 1)))
    raise ValueError(
        f"no number of parts fits PART_LIMIT_GB = {limit_bytes / 1e9:g}: one record alone may take "
        f"{found.high / 1e6:,.2f} MB. Raise PART_LIMIT_GB, or lower IMAGE_SIZE or QUALITY."
    )


def _check_shards(wanted: Mapping, n_parts: int) -> None:
    few = {group: shards for group, shards in wanted.items() if shards < n_parts}
    if few:
        (split, fold), shards = next(iter(few.items()))
        raise ValueError(
            f"the images need {n_parts} parts, but fold {fold} of '{split}' has {shards} shards, "
            "and a part takes some of every fold. Raise PART_LIMIT_GB or N_SHARDS, lower "
            "SHARD_IMAGES, or set the two to 0."
        )


SESSION_HOURS = 12  # of a Kaggle CPU session


def list_planned(plan: Plan) -> pd.DataFrame:
    """One row a shard of the plan: part, split, fold, count, MB at most, file."""
    rows = [
        {
            "part": shard.part,
            "split": shard.split,
            "fold": shard.fold,
            "count": shard.count,
            "mb_at_most": shard.bytes_high / 1e6,
            "file": plan.file_name(shard),
        }
        for shard in plan.shards
    ]
    return pd.DataFrame(rows)


def list_forecast(found: Forecast) -> pd.DataFrame:
    """What a record and all records take: expected, and the interval's ends."""
    size = (found.bytes_per_image, found.low, found.high)
    seconds = (found.seconds_per_image, found.seconds_low, found.seconds_high)
    n = found.n_images
    rows = {
        "bytes a record": [f"{value:,.0f}" for value in size],
        "bytes in all": [format_bytes(value * n) for value in size],
        "time a record, one worker": [f"{value * 1e3:,.1f} ms" for value in seconds],
        f"time in all, {found.workers:.1f} workers": [
            format_seconds(value * n / found.workers) for value in seconds
        ],
    }
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=["expected", "at least", "at most"]
    )
    table.columns.name = f"{found.n_sampled:,} sampled, {found.n_exact:,} pass through"
    return table


def compare_with_limits(plan: Plan, found: Forecast, folder: str) -> pd.DataFrame:
    """What is expected (value, low, high) against each limit, a row a limit, for `plot_limits`."""
    counts = pd.Series([shard.count for shard in plan.shards])
    fullest = counts.groupby([shard.part for shard in plan.shards]).sum().max()
    size = (found.bytes_per_image, found.low, found.high)
    seconds = (found.seconds_per_image, found.seconds_low, found.seconds_high)
    name = f"fullest of {plan.n_parts} parts" if plan.n_parts > 1 else "the one part"
    rows = {name: _against(size, fullest, plan.settings.limit_bytes, format_bytes)}
    if "://" not in folder:
        free = shutil.disk_usage(folder).free
        rows["all parts on this disk"] = _against(size, found.n_images, free, format_bytes)
    limit = SESSION_HOURS * 3600
    rows["time to write a part"] = _against(seconds, fullest / found.workers, limit, format_seconds)
    return pd.DataFrame.from_dict(rows, orient="index")


def _against(each: Sequence[float], times: float, limit: float, say) -> dict:
    value, low, high = (number * times for number in each)
    text = f"{say(value)}, at most {say(high)}, of {say(limit)}"
    return {"value": value, "low": low, "high": high, "limit": limit, "text": text}


def format_bytes(size: float) -> str:
    """'8.8 MB' for 8 812 345: three digits and a decimal unit, as disks and Kaggle count.

    >>> format_bytes(8_812_345), format_bytes(19e9), format_bytes(512)
    ('8.81 MB', '19 GB', '512 B')
    """
    for unit, bytes_each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_each:
            return f"{size / bytes_each:.3g} {unit}"
    return f"{size:.0f} B"


def format_seconds(seconds: float) -> str:
    """'12 h' for 43 200: the largest unit that gives one or more.

    >>> format_seconds(43_200), format_seconds(90), format_seconds(0.7)
    ('12 h', '1.5 min', '0.7 s')
    """
    for unit, each in (("h", 3600), ("min", 60)):
        if seconds >= each:
            return f"{seconds / each:.3g} {unit}"
    return f"{seconds:.2g} s"
