"""Columns that take long to compute, kept in a parquet file: a rerun computes new rows only."""

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.parallel import blocks, run

Columns = dict[str, np.ndarray]
# Enough rows to hide the cost of sending a task, few enough to move the progress bar.
BLOCK = 64
SECONDS_BETWEEN_SAVES = 30


def compute_columns(
    compute: Callable[[pd.DataFrame], list[tuple]],
    table: pd.DataFrame,
    names: list[str],
    key: list[str],
    path: str,
    *,
    label: str,
) -> pd.DataFrame:
    """Return the table with its columns `names` computed, or read from an earlier run's file.

    compute: picklable; takes rows, returns the values of `names` as one tuple per row.
    table: its index counts from 0; the columns `names` have their dtypes already.
    key: rows of the file with the same values in these columns are not computed again.
    path: the parquet file, "" for none. It is saved every half minute. Its other rows stay in it
    unless the table has their value of the first key column, such as their path.
    """
    columns = {name: table[name].to_numpy(copy=True) for name in names}
    is_known = np.zeros(len(table), bool)
    other_rows = table.iloc[:0]
    if path and storage.exists(path):
        saved = storage.read_parquet(path)
        if set(table).issubset(saved):  # a file of an earlier version may lack columns
            is_known = _fill_in(columns, table[key], saved)
            is_other = ~saved[key[0]].isin(table[key[0]])
            other_rows = saved.loc[is_other, list(table)].sort_values(key)

    # Sorted, so that rows that need the same file are computed together.
    missing = table[~is_known].sort_values(key)
    tasks = blocks(missing, BLOCK)
    results = run(
        compute, tasks, label=label, total=len(missing), advance=len, ordered=True
    )
    next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
    for task, rows in zip(tasks, results, strict=True):
        for column, values in zip(
            columns.values(), zip(*rows, strict=True), strict=True
        ):
            column[task.index] = values
        is_known[task.index] = True

        start = time.monotonic()
        if path and start > next_save:
            known_rows = table.assign(**columns)[is_known]
            storage.write_parquet(pd.concat([known_rows, other_rows]), path)
            # Saving a table of millions takes long: it gets a tenth of the time at most.
            seconds = time.monotonic() - start
            next_save = start + SECONDS_BETWEEN_SAVES + 10 * seconds

    table = table.assign(**columns)
    if path and len(missing):
        storage.write_parquet(pd.concat([table, other_rows]), path)
    return table


def _fill_in(columns: Columns, keys: pd.DataFrame, saved: pd.DataFrame) -> np.ndarray:
    """Copy saved values into the rows with the same keys; return which rows have them."""
    saved = saved.drop_duplicates(list(keys))
    saved_keys = pd.MultiIndex.from_frame(saved[list(keys)])
    saved_row = saved_keys.get_indexer(pd.MultiIndex.from_frame(keys))
    is_known = saved_row >= 0
    for name, values in columns.items():
        values[is_known] = saved[name].to_numpy()[saved_row[is_known]]
    return is_known
