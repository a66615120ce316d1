"""Four perceptual hashes of a picture, 64 bits each, by which near-duplicates are recognised."""

import io
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b

import imagehash
import numpy as np
import pandas as pd
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.convert import read_grey

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


HASHES = ("average", "perceptual", "difference", "wavelet")
WORK_SIDE = 256  # pixels: below it the wavelet hash moves away from that of the whole picture
FLAT = 4.0  # grey levels of 255: empty skies and blank pages, whose bits are noise, have less
KEY = ["path", "n_bytes", "changed", "exact", "problem"]  # what has a problem is tried again
COMPUTED = [*HASHES, "texture", "digest", "problem"]


def hash_picture(data: bytes, *, exact: bool = False) -> tuple[np.ndarray, float]:
    """(uint8 (32,) average, perceptual, difference and wavelet hash of 64 bits each, texture).

    The picture is decoded once, as records show it: grey, upright, and scaled down to no less than
    256 pixels a side, which moves a fraction of one bit of 256. `exact` takes the file as it is
    stored, whole and not turned, and gives imagehash's own bits, at a tenth of the speed.
    texture: grey levels of 255 by which a 32-pixel thumbnail departs from an even shade or ramp.
    Raises: RefusedImage for data that is no whole image; with `exact` OSError, as Pillow says it.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    picture = Image.open(io.BytesIO(data)) if exact else read_grey(data, WORK_SIDE)
    # Without its mean the picture has other wavelets, but the same ones above their median.
    wavelet = partial(imagehash.whash, remove_max_haar_ll=exact)
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, wavelet
    bits = np.concatenate([function(picture).hash.ravel() for function in functions])
    thumbnail = picture.convert("L").resize((32, 32), Image.Resampling.BOX)
    pixels, along = np.asarray(thumbnail, np.float64), np.linspace(-1, 1, 32)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    across, down = (pixels * along).mean(), (pixels * along[:, None]).mean()
    return np.packbits(bits), float(np.sqrt(max(0.0, pixels.var() - across**2 - down**2)))


def hash_images(images: pd.DataFrame, work_dir: str, *, exact: bool = False) -> pd.DataFrame:
    """One row per row of `images`, in its order: its hashes, or the problem why it has none.

    images: columns image_id, path, problem; a row with a problem is not read.
    Columns: image_id, path, n_bytes, changed (nanoseconds since 1970), exact, the four of `HASHES`
    (uint64), texture, digest (of the file), problem. hashes.parquet (exact_hashes.parquet) in
    work_dir is saved as the work goes on; files of the same path, size and time come from there.
    """
    table = images[["image_id", "path", "problem"]].reset_index(drop=True)
    blocks, n = parallel.blocks(table["path"].tolist(), 1024), len(table)
    label = "Looking at files"
    status = parallel.run(_stat_files, blocks, label=label, total=n, advance=len, ordered=True)
    table[["n_bytes", "changed"]] = np.concatenate([np.empty((0, 2), np.int64), *status])
    table[list(HASHES)] = np.uint64(0)
    path = storage.join(work_dir, "exact_hashes.parquet" if exact else "hashes.parquet")
    table = table.assign(exact=exact, texture=np.float32(0), digest="")
    table = table[["image_id", *KEY[:-1], *COMPUTED]]
    return compute_columns(_hash_block, table, COMPUTED, KEY, path, label="Hashing pictures")


def _stat_files(paths: list[str]) -> list[tuple[int, int]]:
    """(bytes, nanoseconds since 1970 of the last change) of each file; -1, -1 where none is."""
    status = [(-1, -1)] * len(paths)
    for row, path in enumerate(paths):
        with suppress(OSError):
            status[row] = storage.size_and_time(path)
    return status


def _hash_block(table: pd.DataFrame) -> list[tuple]:
    """What the columns `COMPUTED` hold for each file."""
    rows = []
    for path, known, exact in table[["path", "problem", "exact"]].itertuples(index=False):
        bits, texture, digest, problem = np.zeros(32, np.uint8), 0.0, "", known
        step = "not readable"
        try:
            if not known:
                data = storage.read_bytes(path)
                digest, step = blake2b(data, digest_size=16).hexdigest(), "no hash"
                bits, texture = hash_picture(data, exact=exact)
        # Pillow raises what its plugins raise, and one bad file must not end the run.
        except Exception as error:  # noqa: BLE001
            problem = f"{step}: {error}"
        rows.append((*bits.view(">u8").tolist(), texture, digest, problem))
    return rows
