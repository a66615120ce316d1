"""Keep computed columns in a parquet file, so that a rerun computes only new rows."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

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
    saved, other_rows = _read_saved(path, table, key)
    is_known = _fill_known(columns, saved, table[key])

    # Sorted, so that rows that need the same file are computed together.
    missing = table[~is_known].sort_values(key)
    next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
    for index, block in _compute_blocks(compute, missing, label):
        is_known[index] = True
        for name, values in zip(names, block, strict=True):
            columns[name][index] = values
        if path and (is_known.all() or time.monotonic() > next_save):
            known_rows = table.assign(**columns)[is_known]
            next_save = _save([known_rows, other_rows], path)
    return table.assign(**columns)


def _compute_blocks(
    compute: Callable[[pd.DataFrame], list[tuple]], table: pd.DataFrame, label: str
) -> Iterator[tuple[pd.Index, Iterable[tuple]]]:
    """Yield the index and the computed columns of each block of rows."""
    tasks = blocks(table, BLOCK)
    results = run(
        compute,
        tasks,
        label=label,
        total=len(table),
        advance=len,
        ordered=True,
    )
    for task, rows in zip(tasks, results, strict=True):
        yield task.index, zip(*rows, strict=True)


def _save(tables: list[pd.DataFrame], path: str) -> float:
    """Write the file; return when to write it again, by the monotonic clock."""
    start = time.monotonic()
    storage.write_parquet(pd.concat(tables), path)
    # Saving millions of rows takes long: it gets a tenth of the time at most.
    seconds = time.monotonic() - start
    return start + SECONDS_BETWEEN_SAVES + 10 * seconds


def _read_saved(
    path: str, table: pd.DataFrame, key: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all rows of the file, and those whose first key is not in the table.

    There are none without a file. The second table is sorted.
    """
    saved = table.iloc[:0]
    if path and storage.exists(path):
        rows = storage.read_parquet(path)
        if set(table).issubset(rows):  # else a file of an earlier version
            saved = rows[list(table)]
    is_other = ~saved[key[0]].isin(table[key[0]])
    return saved, saved[is_other].sort_values(key)


def _fill_known(
    columns: Mapping[str, np.ndarray], saved: pd.DataFrame, keys: pd.DataFrame
) -> np.ndarray:
    """Fill the columns from saved rows with the same keys; return bool: those filled.

    keys: the key columns of the table's rows.
    """
    saved = saved.drop_duplicates(list(keys))
    saved_keys = pd.MultiIndex.from_frame(saved[list(keys)])
    saved_row = saved_keys.get_indexer(pd.MultiIndex.from_frame(keys))
    is_known = saved_row >= 0
    for name, values in columns.items():
        values[is_known] = saved[name].to_numpy()[saved_row[is_known]]
    return is_known
