"""The table of images: read every image; save, load and count the rows."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.explore.files import explain_unreadable
from kaggle_tfr.explore.inputs import note_rejects
from kaggle_tfr.explore.masks import check_codes
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.facts import NO_FACTS, measure_quality, read_facts
from kaggle_tfr.images.hashing import ALL_HASHES, hash_images
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.naming import RECORDS
from kaggle_tfr.parallel import blocks, run
from kaggle_tfr.records import size_and_time, stream_image_bytes
from kaggle_tfr.schema import Labels

# The columns that `measure` adds, with their values for an image that cannot be read.
MEASURED: dict = {
    "height": 0,
    "width": 0,
    "n_bytes": 0,
    "format": "",
    "orientation": 1,
    "digest": "",
    "brightness": np.float32(0),
    "sharpness": np.float32(0),
    **NO_FACTS,
}
HASHED: dict = {
    **dict.fromkeys(ALL_HASHES, np.uint64(0)),
    "texture": np.float32(0),
}
BLANK = MEASURED | HASHED
HASHED_AT_ONCE = 8  # more would leave the cache of a core


def measure(
    images: pd.DataFrame,
    labels: Labels = Labels(),  # noqa: B008
    work_dir: str = "",
    rle_order: str = "columns",
) -> pd.DataFrame:
    """Read every image; return the table with the columns `MEASURED` and new problems.

    height, width: in pixels as displayed; n_bytes, digest: of the file; format: "JPEG",
    "PNG" …; orientation: EXIF's, 1 to 8; brightness, sharpness: of `measure_quality`;
    jpeg_quality, exif_camera, exif_time: see `NO_FACTS`. For an image that cannot be
    used, all but n_bytes are 0 or "" (orientation: 1).
    An image that cannot be used, or whose run-length code does not fit, has the reason
    as its problem. Rows with a problem are not opened.
    work_dir: hashes.parquet in it keeps the results and hashes, so that a rerun opens
    only new and changed files, and those with a problem.
    rle_order: how run-length codes count; those that count by "rows" are converted.
    Raises: TimeoutError: a bucket does not answer.
    """
    table = images[["image_id", "path", "problem"]].reset_index(drop=True)
    # BLANK: the columns MEASURED and those of the hashes, with the values for an image
    # that cannot be read.
    table = table.assign(bit_depth=labels.bit_depth, **BLANK)
    paths = blocks(table["path"].tolist(), 1024)
    # A file whose size or time of change differs is read again.
    status = run(_inspect_files, paths, label="Inspecting files")
    table[["file_bytes", "changed"]] = np.concatenate(list(status))
    table = compute_columns(
        _read_block,
        table,
        names=[*BLANK, "problem"],
        # An image that could not be read is saved with its problem. It has none here
        # yet, so the saved row does not match: the image is read again.
        key=["path", "file_bytes", "changed", "bit_depth", "problem"],
        path=work_dir and f"{work_dir}/hashes.parquet",
        label="Reading images",
    )
    images = images.assign(**table[[*MEASURED, "problem"]].set_index(images.index))
    if labels.kind == "masks":
        # Changes the codes and problems in place, not those of the caller's table.
        check_codes(images, labels, rle_order)
    return images


def _inspect_files(paths: list[str]) -> np.ndarray:
    """Return size (bytes) and time of change (ns) of each file: int64 (n, 2).

    Both are 0 for a missing file. The status of a record is that of its shard.
    """
    status = np.zeros((len(paths), 2), np.int64)
    for row, path in enumerate(paths):
        with suppress(OSError):
            status[row] = size_and_time(path)
    return status


def _read_block(table: pd.DataFrame) -> list[dict]:
    """Read images; return the measured values, hashes and problem of each row.

    Keys: the names of the columns `BLANK`, and problem. An image that cannot be used
    has the values of `BLANK`, 0 and "", but for n_bytes.
    table: columns path, problem and bit_depth; a row with a problem is not read.
    """
    # One for each row without a problem, in their order.
    contents = stream_image_bytes(table.query("problem == ''")["path"])
    rows = []
    for image in table.itertuples():
        row = BLANK | {"problem": image.problem}
        if not image.problem:
            row |= _read_image(next(contents), image)
        rows.append(row)
    # In place: the key "luma" of a row, the grey pixels of its image, becomes the
    # hashes and the texture of the image. Images of one size are hashed together.
    _replace_lumas(rows)
    return rows


def _read_image(content: bytes | OSError, image: Any) -> dict[str, Any]:
    """Return the values of an image for the columns `MEASURED`, and its "luma".

    luma: the grey pixels, uint8 (rows, columns), from which the caller makes hashes, so
    that the image is decoded once. An image that cannot be used has the key "problem",
    no luma, and of the columns n_bytes at most.
    content: the bytes of the file, or the error of reading it. image: a row of the
    table, with path and bit_depth.
    Raises: OSError: the input may be good, see `explain_unreadable`.
    """
    if isinstance(content, OSError):
        problem = explain_unreadable(content)
        # ESCAPED matches what `escape` writes for bytes of a name that are not text.
        if problem == "missing file" and storage.ESCAPED.search(image.path):
            problem = "name is not text"
        return {"problem": problem}
    try:
        header, luma = check_image(content, bit_depth=image.bit_depth)
    except RejectedImage as rejection:
        return {"n_bytes": len(content), "problem": str(rejection)}
    brightness, sharpness = measure_quality(luma)
    return {
        "n_bytes": len(content),
        "digest": storage.digest(content),
        "brightness": brightness,
        "sharpness": sharpness,
        "luma": luma,
        **vars(header),  # height, width, format, orientation; others are not used
        **read_facts(content),  # jpeg_quality, exif_camera, exif_time
    }


def _replace_lumas(rows: list[dict]) -> None:
    """Replace the key "luma" of rows by `ALL_HASHES` (int) and texture, in place.

    luma: the grey pixels of an image, uint8 (rows, columns). Rows without it stay.
    Lumas of one shape are hashed together, a few at once.
    """
    lumas = defaultdict[tuple, list](list)
    for row in rows:
        if "luma" in row:
            lumas[row["luma"].shape].append(row)
    for same_shape in lumas.values():
        for block in blocks(same_shape, HASHED_AT_ONCE):
            bits, textures = hash_images(np.stack([row.pop("luma") for row in block]))
            words = bits.view(">u8").tolist()  # eight bytes are a hash of 64 bits
            for row, texture, hashes in zip(block, textures, words, strict=True):
                row.update(zip(ALL_HASHES, hashes, strict=True), texture=texture)


def load_hashes(images: pd.DataFrame, work_dir: str) -> pd.DataFrame:
    """Return the hashes that 01 has saved, one row per row of `images`.

    Columns: image_id, path, `HASHED` (14 hashes uint64, texture float32), digest (of
    the file), problem. Rows with a problem have 0 and "". Rows with the path of an
    earlier record, such as "earlier:part-3/train/7.jpg", have the record's hashes.
    Raises: FileNotFoundError, KeyError: 01 has not read these images.
    """
    # The row for images with a problem, which look up the path "" below.
    blank = pd.DataFrame(HASHED | {"path": "", "digest": ""}, [0])
    saved = storage.read_parquet(f"{work_dir}/hashes.parquet")
    tables = [blank, saved.query("problem == ''")]
    records = f"{work_dir}/{RECORDS}"
    if storage.exists(records):
        tables.append(storage.read_parquet(records))
    # Only the columns of `blank`.
    known = pd.concat(tables, join="inner").drop_duplicates("path").set_index("path")

    table = images[["image_id", "path", "problem"]].reset_index(drop=True)
    paths = table["path"].where(table["problem"] == "", "")  # "" is that of `blank`
    return table.join(known.loc[paths].reset_index(drop=True))


def save_rejects(images: pd.DataFrame, work_dir: str) -> None:
    """Write rejects.csv with image_id, path and problem; note how many are rejected."""
    rejects = images.query("problem != ''")[["image_id", "path", "problem"]]
    storage.write_atomically(f"{work_dir}/rejects.csv", storage.format_csv(rejects))
    note_rejects(images)


def save_images(
    images: pd.DataFrame,
    labels: Labels,
    work_dir: str,
) -> None:
    """Write labels.json and images.parquet."""
    storage.write_atomically(f"{work_dir}/labels.json", labels.to_json())
    # Last, since it shows that both files are there.
    storage.write_parquet(images, f"{work_dir}/images.parquet")


def load_images(work_dir: str) -> tuple[pd.DataFrame, Labels]:
    """Return the images and labels that `save_images` wrote.

    Raises: FileNotFoundError: 01 has not run.
    """
    path = f"{work_dir}/images.parquet"
    if not storage.exists(path):
        raise FileNotFoundError(
            f"there is no '{path}'. Run 01_explore with this WORK_DIR first."
        )
    labels_path = f"{work_dir}/labels.json"
    text = storage.read_text(labels_path)
    labels = Labels.parse(text, labels_path, "Run 01_explore again.")
    return storage.read_parquet(path), labels
