"""Keep computed columns in a parquet file, so that a rerun computes only new rows."""

import time
from collections.abc import Callable

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
    saved = table.iloc[:0]
    if storage.exists(path):
        rows_of_file = storage.read_parquet(path)
        if set(table).issubset(rows_of_file):  # else it is of an earlier version
            saved = rows_of_file[list(table)]
    other_rows = saved[~saved[key[0]].isin(table[key[0]])]
    known = table[key].reset_index().merge(saved.drop_duplicates(key), on=key)
    is_known = table.index.isin(known["index"])
    columns = {}
    for name in names:
        columns[name] = table[name].to_numpy(copy=True)
        columns[name][known["index"]] = known[name]

    # Sorted, so that rows that need the same file are computed together.
    missing = table[~is_known].sort_values(key)
    tasks = blocks(missing, BLOCK)
    results = run(
        compute,
        tasks,
        label=label,
        total=len(missing),
        advance=len,
    )
    next_save = time.monotonic() + SECONDS_BETWEEN_SAVES
    for task, rows in zip(tasks, results, strict=True):
        is_known[task.index] = True
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            columns[name][task.index] = values
        start = time.monotonic()
        if path and (is_known.all() or start > next_save):
            known_rows = table.assign(**columns)[is_known]
            storage.write_parquet(pd.concat([known_rows, other_rows]), path)
            # Saving millions of rows takes long: it gets a tenth of the time at most.
            seconds = time.monotonic() - start
            next_save = start + SECONDS_BETWEEN_SAVES + 10 * seconds
    return table.assign(**columns)
