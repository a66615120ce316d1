"""Keep computed columns in a parquet file, so that a rerun computes only new rows."""

import time
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.parallel import blocks, run

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
    """Return the table with its columns `names` computed, or read from the file.

    compute: picklable; takes rows, returns the values of `names` as one tuple per row.
    table: its index counts from 0; the columns `names` have their dtypes already.
    key: rows of the file with the same values in these columns are not computed again.
    path: the parquet file, "" for none. It is saved every half minute. Its other rows
    stay in it unless the table has their value of the first key column, such as their
    path.
    """
    columns = {name: table[name].to_numpy(copy=True) for name in names}
    is_known, other_rows = _load_saved(path, table, columns, key)
    # Sorted, so that rows that need the same file are computed together.
    missing = table[~is_known].sort_values(key)
    tasks = blocks(missing, BLOCK)
    total = len(missing)
    results = run(compute, tasks, label=label, total=total, advance=len, ordered=True)
    next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
    for task, rows in zip(tasks, results, strict=True):
        is_known[task.index] = True
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            columns[name][task.index] = values
        if path and (is_known.all() or time.monotonic() > next_save):
            known_rows = table.assign(**columns)[is_known]
            next_save = _save(pd.concat([known_rows, other_rows]), path)
    return table.assign(**columns)


def _save(rows: pd.DataFrame, path: str) -> float:
    """Write the file; return when to write it again, by the monotonic clock."""
    start = time.monotonic()
    storage.write_parquet(rows, path)
    # Saving millions of rows takes long: it gets a tenth of the time at most.
    seconds = time.monotonic() - start
    return start + SECONDS_BETWEEN_SAVES + 10 * seconds


def _load_saved(
    path: str, table: pd.DataFrame, columns: Mapping[str, np.ndarray], key: list[str]
) -> tuple[np.ndarray, pd.DataFrame]:
    """Fill the columns from the file; return which rows it has, and its other rows."""
    saved = table.iloc[:0]
    if path and storage.exists(path):
        saved = storage.read_parquet(path)
        if not set(table).issubset(saved):  # a file of an earlier version
            saved = table.iloc[:0]

    is_other = ~saved[key[0]].isin(table[key[0]])
    other_rows = saved.loc[is_other, list(table)].sort_values(key)
    saved = saved.drop_duplicates(key)
    saved_keys = pd.MultiIndex.from_frame(saved[key])
    saved_row = saved_keys.get_indexer(pd.MultiIndex.from_frame(table[key]))
    is_known = saved_row >= 0
    for name, values in columns.items():
        values[is_known] = saved[name].to_numpy()[saved_row[is_known]]
    return is_known, other_rows
