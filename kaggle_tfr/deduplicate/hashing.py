"""Four perceptual hashes of one picture, 64 bits each: what near-duplicates are recognised by."""

import io
import time
from functools import partial
from hashlib import blake2b

import imagehash
import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import parallel, storage

HASHES = ("average", "perceptual", "difference", "wavelet")


WORK_SIDE = 256  # pixels: below it the wavelet hash moves away from that of the whole picture


THUMBNAIL_SIDE = 32  # pixels: what the perceptual hash looks at


FLAT = 4.0  # grey levels of 255: see `texture`


def hash_bits(data, exact=False):
    """uint8 (32,): average, perceptual, difference and wavelet hash, 64 bits each.

    Bits run row by row, the most significant first, as imagehash prints them. The picture is
    decoded once: grey, upright, and scaled down to no less than 256 pixels a side, which moves a
    fraction of one bit of 256. `exact` takes the file as it is stored, whole and not turned, and
    gives imagehash's own bits, at a tenth of the speed.

    Raises: OSError for data that is no whole image, as Pillow says it.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    return hash_and_texture(data, exact)[0]


def hash_and_texture(data, exact=False):
    """(`hash_bits`, `texture`) of one decode."""
    with Image.open(io.BytesIO(data)) as image:
        if not exact:
            image.draft("L", (WORK_SIDE, WORK_SIDE))  # JPEG only: scaled inside the decoder
        image.load()
        grey = image if exact else _small_and_grey(image)
    # Without its mean the picture has other wavelets, but the same ones above their median.
    wavelet = partial(imagehash.whash, remove_max_haar_ll=exact)
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, wavelet
    bits = np.concatenate([function(grey).hash.ravel() for function in functions])
    return np.packbits(bits), texture(grey)


def hex_string(bits):
    """64 digits for 32 bytes: 16 for each hash, in the order of `HASHES`.

    >>> hex_string(np.arange(32, dtype=np.uint8))[:20]
    '0x000102030405060708'
    """
    return "0x" + np.asarray(bits, np.uint8).tobytes().hex()


def texture(grey):
    """Grey levels (of 255) by which a 32-pixel thumbnail departs from an even shade or ramp.

    Below `FLAT` the bits of a hash are noise: an empty sky or a blank page would be a twin of every
    other one.
    """
    small = grey.convert("L").resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small, np.float64)
    along = np.linspace(-1, 1, THUMBNAIL_SIDE)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    across, down = (pixels * along).mean(), (pixels * along[:, None]).mean()
    return float(np.sqrt(max(0.0, pixels.var() - across**2 - down**2)))


def _small_and_grey(image):
    shown = ImageOps.exif_transpose(image)
    factor = min(shown.size) // WORK_SIDE
    # In grey, so that a picture with a palette is not reduced by its index numbers.
    grey = _eight_bits(shown).convert("L")
    return grey.reduce(factor) if factor > 1 else grey


def _eight_bits(image):
    """The image with 0–255 a channel; Pillow would clip 16-bit greys to white."""
    if not image.mode.startswith(("I", "F")):
        return image
    pixels = np.asarray(image, np.float64)
    return Image.fromarray((pixels / (256 if pixels.max() > 255 else 1)).clip(0, 255).astype("u1"))


BLOCK = 64  # pictures hashed by one task


SECONDS_BETWEEN_SAVES = 30


CACHE_KEY = ["path", "n_bytes", "changed", "exact"]


HASH_COLUMNS = [*HASHES, "texture", "digest", "problem"]


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
    items = [(rows, paths[rows]) for rows in parallel.blocks(todo, BLOCK)]
    columns = {name: table[name].to_numpy(copy=True) for name in HASH_COLUMNS}
    wait_until = time.monotonic() + SECONDS_BETWEEN_SAVES
    work = partial(_hash_block, exact=exact)
    for rows, found in parallel.run(
        work, items, label="Hashing pictures", total=len(todo), advance=lambda done: len(done[0])
    ):
        for name, values in zip(HASH_COLUMNS, zip(*found, strict=True), strict=True):
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
    blocks = parallel.blocks(table["path"].tolist(), 1024)
    looks = parallel.run(
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
    return table[["image_id", *CACHE_KEY, *HASH_COLUMNS]]


def _fill_from(cache_path, table):
    """Which rows of `table` the cache knew, bool (n,); they are filled in."""
    known = np.zeros(len(table), bool)
    if not storage.exists(cache_path):
        return known
    cache = storage.read_parquet(cache_path)
    # An unreadable file is tried again: what ailed it may be over.
    cache = cache[cache["problem"] == ""].drop_duplicates(CACHE_KEY)
    place = pd.MultiIndex.from_frame(cache[CACHE_KEY]).get_indexer(
        pd.MultiIndex.from_frame(table[CACHE_KEY])
    )
    known |= (place >= 0) & (table["problem"] == "").to_numpy()
    for name in HASH_COLUMNS:
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
    """The values of `HASH_COLUMNS` for one file."""
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
