"""Keep computed columns in a parquet file, so that a rerun computes only new rows."""

from collections.abc import Callable
from itertools import chain, islice

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.parallel import blocks, run

# Enough rows to hide the cost of sending a task, few enough to move the progress bar.
BLOCK = 64
MIN_ROWS = 2000  # between two saves


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

    The order of the rows stays.
    compute: picklable; takes up to `BLOCK` rows, returns the values of `names` of each,
    as a tuple or a mapping, whose other keys are ignored.
    table: its index counts from 0; the columns `names` have their dtypes already.
    key: rows of the file with the same values in these columns are not computed again.
    path: the parquet file, "" for none. It is replaced whenever 2,000 rows, and a fifth
    of those known before, are computed, and after the last ones; then it has the rows
    of this table alone.
    """
    done = _read_known(table, names, key, path)
    # Sorted, so that rows that need the same file are computed together.
    missing = table.drop(done.index).sort_values(key)
    # Lists, one for each block, in the order of `missing`. `run` is a generator: the
    # loop below takes the values while further blocks are computed.
    results = run(
        compute,
        blocks(missing, BLOCK),
        label=label,
        total=len(missing),
        advance=len,
    )
    values = chain.from_iterable(results)
    while len(missing):
        n_rows = max(MIN_ROWS, len(done) // 5)
        rows = missing[:n_rows]
        missing = missing[n_rows:]
        computed = pd.DataFrame(list(islice(values, n_rows)), rows.index, names)
        computed = computed.astype(table.dtypes[names])
        # The columns of `computed` replace those of the same names.
        done = pd.concat([done, rows.assign(**computed)]).sort_index()
        if path:
            storage.write_parquet(done, path)
    return done


def _read_known(
    table: pd.DataFrame, names: list[str], key: list[str], path: str
) -> pd.DataFrame:
    """Return the rows of the table that are in the file, with `names` from the file.

    They have the index of the table. Rows with equal columns `key` are the same.
    There are none if the file is missing, or `path` is "".
    """
    try:
        saved = storage.read_parquet(path).drop_duplicates(key)
        # With the index of the table.
        known = table[key].reset_index().merge(saved, on=key).set_index("index")[names]
    except (FileNotFoundError, KeyError):  # or it is of an earlier version
        return table.iloc[:0]
    return table.loc[known.index].assign(**known)
