"""The plan: every setting needed to write and to read, and for each image its shard and part."""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images import ImageSettings
from kaggle_tfr.names import format_name, template_fields

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
class Plan:
    """What `plan.json` holds.

    schema: `RecordSchema` as a mapping. parameters: further settings of the notebook, by name.
    part_limit_bytes: what a part folder may weigh; shard_limit_bytes: all shards in it together.
    outcomes: input images by what becomes of them, see `count_outcomes`.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    """

    name: str
    kind: str
    classes: list
    schema: dict
    image: ImageSettings
    compression: str
    shard_name: str
    seed: int
    n_folds: int
    n_parts: int
    part_limit_bytes: int
    shard_limit_bytes: int
    label_columns: list[str] = field(default_factory=list)
    parameters: dict = field(default_factory=dict)
    forecast: dict = field(default_factory=dict)
    outcomes: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    fingerprint: str = ""
    shards: list[Shard] = field(default_factory=list)

    def file_name(self, shard: Shard, count: int | None = None) -> str:
        """The shard's path below its part folder, for `count` records (default: as planned)."""
        return format_name(
            self.shard_name,
            name=self.name,
            split=shard.split,
            fold=shard.fold,
            part=shard.part,
            i=shard.i,
            n=shard.n,
            count=shard.count if count is None else count,
        )

    def to_json(self) -> str:
        """The text of `plan.json`."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan that `to_json` wrote."""
        values = json.loads(text)
        size = values["image"]["size"]
        image = ImageSettings(**values["image"] | {"size": tuple(size) if size else None})
        shards = [Shard(**shard) for shard in values["shards"]]
        return cls(**values | {"image": image, "shards": shards})


def number_shards(shards: Iterable[Shard], template: str) -> list[Shard]:
    """The shards with `i` and `n` counted among those that share the template's other fields."""
    used = [name for name, _ in template_fields(template) if name in ("split", "fold", "part")]
    groups = [tuple(getattr(shard, name) for name in used) for shard in shards]
    totals, seen, numbered = Counter(groups), Counter(), []
    for shard, group in zip(shards, groups, strict=True):
        numbered.append(replace(shard, i=seen[group], n=totals[group]))
        seen[group] += 1
    return numbered


def list_shards(table: pd.DataFrame, template: str) -> list[Shard]:
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


def load_plan(work_dir: str) -> tuple[Plan, pd.DataFrame]:
    """The plan and its table, one row an image, in the order of the records."""
    table = storage.read_parquet(storage.join(work_dir, "plan.parquet"))
    return read_plan(work_dir), table


def read_rows(work_dir: str, shards: Iterable[Shard]) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Each shard with its own rows, read when asked for, so that the plan never is in memory."""
    path = storage.join(work_dir, "plan.parquet")
    with storage.on_disk(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()
