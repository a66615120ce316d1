"""Columns computed block by block and kept in a parquet file: a rerun does only what is new."""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from kaggle_tfr import parallel, storage

BLOCK = 64  # rows computed by one task
SECONDS_BETWEEN_SAVES = 30
Task = Callable[[pd.DataFrame], list[tuple]]


def compute_columns(
    compute: Task, table: pd.DataFrame, names: list[str], key: list[str], path: str, *, label: str
) -> pd.DataFrame:
    """The table, its columns `names` filled with what `compute` gives for rows: a tuple for each.

    The parquet file at `path` ("" for none) is saved as the work goes on, and rows whose `key` it
    holds are not computed again. The table's index counts from 0.
    """
    columns = {name: table[name].to_numpy(copy=True) for name in names}
    known = np.zeros(len(table), bool)
    if path and storage.exists(path):
        cache = storage.read_parquet(path).drop_duplicates(key)
        row = pd.MultiIndex.from_frame(cache[key]).get_indexer(pd.MultiIndex.from_frame(table[key]))
        known = row >= 0
        for name, values in columns.items():
            values[known] = cache[name].to_numpy()[row[known]]
    todo = table[~known].sort_values(key)  # so that a file that several rows need is read once
    blocks = [todo[start : start + BLOCK] for start in range(0, len(todo), BLOCK)]
    work = parallel.run(compute, blocks, label=label, total=len(todo), advance=len, ordered=True)
    due = time.monotonic() + SECONDS_BETWEEN_SAVES
    for block, values in zip(blocks, work, strict=True):
        for column, new in zip(columns.values(), zip(*values, strict=True), strict=True):
            column[block.index] = new
        known[block.index] = True
        if path and (start := time.monotonic()) > due:
            storage.write_parquet(table.assign(**columns)[known], path)
            # A table of millions takes a while to save: a tenth of the time is enough.
            due = time.monotonic() + SECONDS_BETWEEN_SAVES + 9 * (time.monotonic() - start)
    table = table.assign(**columns)
    if path and len(todo):
        storage.write_parquet(table, path)
    return table
