"""The plan: every setting needed to write and to read, and for each image its shard and part."""

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.paths import format_name, template_fields
from kaggle_tfr.schema import Labels, RecordSchema, Saved

# Rows in this order are rows in the order of the records; a row group of plan.parquet is a shard.
ORDER = ["part", "split", "fold", "shard", "position"]


@dataclass(frozen=True)
class Shard:
    """One TFRecord file of a plan.

    number: among all shards of the plan, from 0; its row group of plan.parquet.
    index: among the shards of its split and fold, from 0; i, n: of the name template.
    count: records planned; fewer when an image is refused while writing.
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
        return round(self.part_limit_gb * 1e9)

    @property
    def image(self) -> ImageSettings:
        """How a picture becomes a record's image; one image_size is both sides."""
        sides = self.image_size
        height, width = (sides, sides) if isinstance(sides, int) else sides
        size = None if self.resize == "none" else (height, width)
        encoding = self.quality, self.resample, self.chroma, self.optimize
        return ImageSettings(size, self.resize, *encoding)


@dataclass(frozen=True)
class Plan(Saved):
    """What `plan.json` holds.

    shard_limit_bytes: of all shards of a part together.
    outcomes: input images by what becomes of them, see `count_outcomes`.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    """

    labels: Labels
    schema: RecordSchema
    image: ImageSettings
    settings: PlanSettings
    n_parts: int
    shard_limit_bytes: int
    forecast: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    shards: list[Shard] = field(default_factory=list)

    def file_name(self, shard: Shard, count: int | None = None) -> str:
        """The shard's path below its part folder, for `count` records (default: as planned)."""
        shard = shard if count is None else replace(shard, count=count)
        return format_name(self.settings.shard_name, **vars(shard), name=self.labels.name)

    def for_worker(self) -> "Plan":
        """The plan without what grows with the dataset: its shards and classes stay behind."""
        labels = replace(self.labels, classes=())
        return replace(self, labels=labels, shards=[], forecast={}, outcomes={})


def number_shards(shards: Iterable[Shard], template: str) -> list[Shard]:
    """The shards with `i` and `n` counted among those that share the template's other fields."""
    used = [name for name, _ in template_fields(template) if name in ("split", "fold", "part")]
    groups = [(shard, tuple(getattr(shard, name) for name in used)) for shard in shards]
    totals = Counter(group for _, group in groups)
    numbers: dict[tuple, Iterator[int]] = defaultdict(count)
    return [replace(shard, i=next(numbers[group]), n=totals[group]) for shard, group in groups]


def save_plan(plan: Plan, table: pd.DataFrame, work_dir: str) -> None:
    """Writes plan.parquet, a row group a shard, then plan.json: a plan that is there is whole."""
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
    Raises: FileNotFoundError without a plan.json; ValueError for one that cannot be read.
    """
    path = storage.join(folder, "plan.json")
    try:
        values: dict[str, Any] = json.loads(storage.read_bytes(path))
        size = values["image"]["size"]
        read = {
            "labels": Labels.from_dict(values["labels"]),
            "schema": RecordSchema.from_dict(values["schema"]),
            "image": ImageSettings(**values["image"] | {"size": size and tuple(size)}),
            "settings": PlanSettings(**values["settings"]),
            "shards": [Shard(**shard) for shard in values["shards"]],
        }
        return Plan(**values | read)
    except FileNotFoundError:
        raise FileNotFoundError(f"no plan.json in WORK_DIR '{folder}'. Run 03_plan.") from None
    except (ValueError, TypeError, KeyError) as error:
        message = f"'{path}' is no plan of this version: {error}. Run 03_plan again."
        raise ValueError(message) from None


def read_rows(work_dir: str, shards: Iterable[Shard]) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Each shard with its own rows, read when asked for, so that the plan never is in memory."""
    path = storage.join(work_dir, "plan.parquet")
    with storage.on_disk(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()


def format_bytes(size: float) -> str:
    """Three digits and a decimal unit, as disks and Kaggle count.

    >>> format_bytes(8_812_345), format_bytes(19e9), format_bytes(512)
    ('8.81 MB', '19 GB', '512 B')
    """
    units = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    texts = (f"{size / each:.3g} {unit}" for unit, each in units if size >= each)
    return next(texts, f"{size:.0f} B")
