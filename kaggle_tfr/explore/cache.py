"""Keep computed columns in a parquet file, so that a rerun computes only new rows."""

from collections.abc import Callable
from contextlib import closing
from itertools import chain, islice

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.parallel import blocks, run

# Enough rows to hide the cost of sending a task, few enough to move the progress bar.
BLOCK = 64
MIN_BLOCKS = 32  # between two saves: about 2,000 rows


def compute_columns(
    compute: Callable[[pd.DataFrame], list],
    table: pd.DataFrame,
    names: list[str],
    key: list[str],
    path: str,
    *,
    label: str,
) -> pd.DataFrame:
    """Return the table with its columns `names` computed, or read from the file.

    compute: picklable; takes rows, returns the values of `names` of each, as a tuple or
    a mapping.
    table: its index counts from 0; the columns `names` have their dtypes already.
    key: rows of the file with the same values in these columns are not computed again.
    path: the parquet file, "" for none. It is replaced when some 2,000 rows and a fifth
    of those in it are new.
    """
    done = _read_known(table, names, key, path)
    # Sorted, so that rows that need the same file are computed together.
    missing = table.drop(done.index).sort_values(key)
    tasks = blocks(missing, BLOCK)
    results = run(compute, tasks, label=label, total=len(missing), advance=len)
    with closing(results):
        while len(missing):
            n_blocks = max(MIN_BLOCKS, len(done) // 5 // BLOCK)
            values = list(chain.from_iterable(islice(results, n_blocks)))
            rows, missing = missing[: len(values)], missing[len(values) :]
            computed = pd.DataFrame(values, rows.index, names)
            computed = computed.astype(table.dtypes[names])
            done = pd.concat([done, rows.assign(**computed)])
            if path:
                storage.write_parquet(done.sort_index(), path)
    return done.sort_index()


def _read_known(
    table: pd.DataFrame, names: list[str], key: list[str], path: str
) -> pd.DataFrame:
    """Return the rows whose columns are in the file."""
    saved = storage.read_parquet(path) if storage.exists(path) else table.iloc[:0]
    if not set(table).issubset(saved):  # it is of an earlier version
        saved = table.iloc[:0]
    known = table[key].reset_index().merge(saved.drop_duplicates(key), on=key)
    known = known.set_index("index")[names]
    return table.loc[known.index].assign(**known)
