"""Pictures → their hashes, in parallel; a rerun does only what is new or changed."""

import time
from functools import partial
from hashlib import blake2b

import numpy as np
import pandas as pd

from kaggle_tfr import progress, storage
from kaggle_tfr.hashes import HASHES, hash_and_texture

BLOCK = 64  # pictures hashed by one task
SECONDS_BETWEEN_SAVES = 30
KEY = ["path", "n_bytes", "changed", "exact"]
FOUND = [*HASHES, "texture", "digest", "problem"]


def hash_images(images, work_dir, *, exact=False):
    """One row per row of `images`, in its order: its hashes, or the problem that it has none.

    images: columns image_id, path, problem; a row with a problem is not read.
    Columns: image_id, path, n_bytes, changed (nanoseconds since 1970), exact, the four of `HASHES`
    (uint64), texture (grey levels, see `hashes.texture`), digest of the file, problem.

    `hashes.parquet` in work_dir is saved as the work goes on. What it holds of files with the same
    path, size and time of change is taken from there.
    """
    cache_path = storage.join(work_dir, "hashes.parquet")
    table = _blank_table(images, exact)
    known = (table["problem"] != "").to_numpy() | _fill_from(cache_path, table)
    todo = np.flatnonzero(~known)
    paths = table["path"].to_numpy()
    items = [(rows, paths[rows]) for rows in progress.blocks(todo, BLOCK)]
    columns = {name: table[name].to_numpy(copy=True) for name in FOUND}
    wait_until = time.monotonic() + SECONDS_BETWEEN_SAVES
    work = partial(_hash_block, exact=exact)
    for rows, found in progress.run(
        work, items, label="Hashing pictures", total=len(todo), advance=lambda done: len(done[0])
    ):
        for name, values in zip(FOUND, zip(*found, strict=True), strict=True):
            columns[name][rows] = values
        known[rows] = True
        if time.monotonic() > wait_until:
            start = time.monotonic()
            storage.write_parquet(table.assign(**columns)[known], cache_path)
            # A table of millions takes a while to save: then it is saved less often.
            wait_until = time.monotonic() + SECONDS_BETWEEN_SAVES + 9 * (time.monotonic() - start)
    table = table.assign(**columns)
    if len(todo):
        storage.write_parquet(table, cache_path)
    return table


def _blank_table(images, exact):
    table = images[["image_id", "path", "problem"]].reset_index(drop=True)
    blocks = progress.blocks(table["path"].tolist(), 1024)
    looks = progress.run(
        _size_and_time,
        blocks,
        label="Looking at files",
        total=len(table),
        advance=len,
        ordered=True,
    )
    status = np.array([row for rows in looks for row in rows], np.int64).reshape(-1, 2)
    table["n_bytes"], table["changed"], table["exact"] = status[:, 0], status[:, 1], exact
    for name in HASHES:
        table[name] = np.uint64(0)
    table["texture"], table["digest"] = np.float32(0), ""
    for name in ("digest", "problem"):
        table[name] = table[name].astype(object)
    return table[["image_id", *KEY, *FOUND]]


def _fill_from(cache_path, table):
    """Which rows of `table` the cache knew, bool (n,); they are filled in."""
    known = np.zeros(len(table), bool)
    if not storage.exists(cache_path):
        return known
    cache = storage.read_parquet(cache_path)
    # An unreadable file is tried again: what ailed it may be over.
    cache = cache[cache["problem"] == ""].drop_duplicates(KEY)
    place = pd.MultiIndex.from_frame(cache[KEY]).get_indexer(pd.MultiIndex.from_frame(table[KEY]))
    known |= (place >= 0) & (table["problem"] == "").to_numpy()
    for name in FOUND:
        values = table[name].to_numpy(copy=True)
        values[known] = cache[name].to_numpy()[place[known]]
        table[name] = values
    return known


def _size_and_time(paths):
    return [_status(path) for path in paths]


def _status(path):
    try:
        return storage.size_and_time(path)
    except OSError:
        return -1, -1


def _hash_block(item, exact):
    rows, paths = item
    return rows, [_hash_file(path, exact) for path in paths]


def _hash_file(path, exact):
    """The values of `FOUND` for one file."""
    nothing = (0, 0, 0, 0, 0.0)
    try:
        data = storage.read_bytes(path)
    except OSError as error:
        return (*nothing, "", f"not readable: {error}")
    digest = blake2b(data, digest_size=16).hexdigest()
    try:
        bits, texture = hash_and_texture(data, exact)
    # Pillow raises what its plugins raise, and one bad file must not end the run.
    except Exception as error:  # noqa: BLE001
        return (*nothing, digest, f"no hash: {error}")
    return (*bits.view(">u8").tolist(), texture, digest, "")
