"""The fingerprints of the planned images, which 04 copies into each part."""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.fingerprints import (
    GROUP,
    PLANNED_FILE,
    digest_groups,
    encode_fingerprints,
)
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.plan.plan import Plan, Shard


def save_fingerprints(
    plan: Plan, table: pd.DataFrame, hashes: pd.DataFrame, work_dir: str
) -> None:
    """Write fingerprints.parquet, a row group per shard, for 04 and a later growth.

    plan, table: of `make_plan`. hashes: of `load_hashes`, of all images.
    """
    # A row that repeats the path of a good one is rejected, and has no hashes.
    is_planned = hashes["path"].isin(table["path"]) & (hashes["problem"] == "")
    hashes = hashes[is_planned].drop_duplicates("path")
    position = pd.Index(hashes["path"]).get_indexer(table["path"])
    columns = {name: hashes[name].to_numpy()[position] for name in ALL_HASHES}
    columns["texture"] = hashes["texture"].to_numpy(np.float32)[position]
    columns["digest"] = hashes["digest"].to_numpy(object)[position]
    rows = table.assign(**columns)
    if "cluster" not in rows:
        rows["cluster"] = -1
    group_column = plan.settings.group_column
    if group_column:
        rows[GROUP] = digest_groups(table[group_column])
    sizes = [shard.count for shard in plan.shards]
    path = storage.join(work_dir, PLANNED_FILE)
    storage.write_atomically(path, encode_fingerprints(rows, sizes))


def read_planned(work_dir: str, shards: Iterable[Shard]) -> Iterator[pd.DataFrame]:
    """Yield the fingerprints of the images planned for each shard.

    Raises: FileNotFoundError: 03 has not written them.
    """
    path = storage.join(work_dir, PLANNED_FILE)
    if not storage.exists(path):
        raise FileNotFoundError(
            f"there is no '{path}'. Run 03_plan, or set PUBLISH_HASHES = False."
        )
    with storage.local_copy(path) as local, pq.ParquetFile(local) as file:
        for shard in shards:
            yield file.read_row_group(shard.number).to_pandas()
