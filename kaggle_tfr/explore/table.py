"""The table of images: the result of reading each file, and images.parquet."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import HASHES, ROTATION_BITS, hash_image
from kaggle_tfr.images.header import RejectedImage, rejecting
from kaggle_tfr.images.masks import find_code_problem
from kaggle_tfr.parallel import blocks, run
from kaggle_tfr.records import forget_records, size_and_time, stream_image_bytes
from kaggle_tfr.schema import Labels

# The columns that `measure` adds, with their values where no image could be read.
UNREAD: dict = {
    "height": 0,
    "width": 0,
    "n_bytes": 0,
    "format": "",
    "orientation": 1,
    "note": "",
}

BITS = (*HASHES, *ROTATION_BITS)

HASHED: dict = {
    **dict.fromkeys(BITS, np.uint64(0)),
    "texture": np.float32(0),
    "digest": "",
}

KEY = [
    "path",
    "file_bytes",
    "changed",
    "bit_depth",
    "problem",
]  # what has a problem is read again

COMPUTED = [*UNREAD, *HASHED, "problem"]


def measure(
    images: pd.DataFrame,
    labels: Labels = Labels(),  # noqa: B008
    work_dir: str = "",
) -> pd.DataFrame:
    """The table after reading every image, with the columns `UNREAD` and `digest`.

    height, width: in pixels as shown; digest: of `storage.digest`, maybe "". A refused image,
    or one whose run-length code does not fit, gets its reason in `problem`; rows that have one
    already are not opened.
    work_dir: where hashes.parquet keeps what was read, with the hashes of `load_hashes`: a rerun
    opens only what is new or changed, or had a problem. It also keeps what is known of files that
    are not in this table, such as those that LIMIT leaves out.
    Raises: TimeoutError: a bucket does not answer.
    """
    path = work_dir and storage.join(work_dir, "hashes.parquet")
    table = _read_images(images.assign(bit_depth=labels.bit_depth), path)
    found = (*UNREAD, "digest", "problem")
    images = images.assign(**{name: table[name].to_numpy() for name in found})
    for name in labels.label_columns if labels.kind == "masks" else ():
        good = (images["problem"] == "") & (images[name] != "")
        codes = images.loc[good, [name, "height", "width"]].itertuples(
            index=False, name=None
        )
        problems = [find_code_problem(*code) for code in codes]
        images.loc[good, "problem"] = [
            problem and f"{name}: {problem}" for problem in problems
        ]
    return images


def load_hashes(images: pd.DataFrame, work_dir: str) -> pd.DataFrame:
    """One row per row of `images`, in its order: its hashes as `measure` has saved them.

    Columns: image_id, path, `HASHES` and `ROTATION_BITS` (uint64), texture, digest (of the file), problem.
    Raises: FileNotFoundError, ValueError: `measure` has not seen these images.
    """
    path, mend = (
        storage.join(work_dir, "hashes.parquet"),
        "Run 01_explore with this WORK_DIR.",
    )
    if not storage.exists(path):
        raise FileNotFoundError(f"there is no '{path}'. {mend}")
    known = storage.read_parquet(path, columns=["path", *HASHED, "problem"])
    known = known[known["problem"] == ""].drop_duplicates("path")
    table = images[["image_id", "path"]].reset_index(drop=True).assign(**HASHED)
    good = np.flatnonzero(images["problem"] == "")
    row = pd.Index(known["path"]).get_indexer(table["path"][good])
    if (row < 0).any():
        first = table["path"][good[row < 0][0]]
        raise ValueError(
            f"'{path}' lacks {(row < 0).sum()} images, such as '{first}'. {mend}"
        )
    for name in HASHED:
        table.loc[good, name] = known[name].to_numpy()[row]
    return table.assign(problem=images["problem"].to_numpy())


def _read_images(images: pd.DataFrame, path: str) -> pd.DataFrame:
    """image_id, path, file_bytes, changed (nanoseconds since 1970), `COMPUTED` of each row."""
    table = images[["image_id", "path", "bit_depth", "problem"]].reset_index(drop=True)
    table = table.assign(**UNREAD, **HASHED)
    show: dict = {"label": "Looking at files", "total": len(table), "advance": len}
    status = run(
        _stat_files, blocks(table["path"].tolist(), 1024), **show, ordered=True
    )
    table[["file_bytes", "changed"]] = np.concatenate(
        [np.empty((0, 2), np.int64), *status]
    )
    return compute_columns(
        _read_block, table, COMPUTED, KEY, path, label="Reading images"
    )


def _stat_files(paths: list[str]) -> list[tuple[int, int]]:
    """(bytes, nanoseconds since 1970 of the last change) of each file; 0, 0 where none is."""
    status = [(0, 0)] * len(paths)
    for row, path in enumerate(paths):
        with suppress(OSError):
            status[row] = size_and_time(path)
    return status


def _read_block(table: pd.DataFrame) -> list[tuple]:
    """What the columns `COMPUTED` hold for each file, which is opened and decoded once."""
    rows = []
    contents = stream_image_bytes(table["path"][table["problem"] == ""])
    for path, bit_depth, problem in table[["path", "bit_depth", "problem"]].itertuples(
        index=False
    ):
        row = UNREAD | HASHED | {"problem": problem}
        data = b"" if problem else next(contents)
        if isinstance(data, OSError):
            missing = isinstance(data, FileNotFoundError)
            reason = (
                "name is not text" if storage.ESCAPED.search(path) else "missing file"
            )
            row["problem"] = (
                reason if missing else f"unreadable: {data.strerror or data}"
            )
        elif not problem:
            row["n_bytes"] = len(data)
            try:
                row |= _read_picture(data, path, bit_depth)
            except RejectedImage as refusal:
                row["problem"] = str(refusal)
        rows.append(tuple(row[name] for name in COMPUTED))
    return rows


def _read_picture(data: bytes, path: str, bit_depth: str) -> dict[str, Any]:
    header, grey = check_image(data, name=path, bit_depth=bit_depth)
    with rejecting(data):
        bits, texture, turned = hash_image(grey)
    words = np.append(bits, turned).view(">u8")
    digest = {"texture": texture, "digest": storage.digest(data)}
    return vars(header) | dict(zip(BITS, words.tolist(), strict=True)) | digest


def save_rejects(images: pd.DataFrame, work_dir: str) -> None:
    """Write rejects.csv: the rejected images, each with its reason.

    Raises: ValueError: no image is good; the message has the most frequent reasons.
    """
    storage.make_folder(work_dir)
    storage.remove_leftovers(work_dir)
    paths = images["path"][images["problem"] != "missing file"]
    shards = {
        path.rpartition("#")[0] for path in paths
    }  # of records' addresses, else nothing
    forget_records(storage.join(work_dir, "records"), shards)
    refused = images.loc[images["problem"] != "", ["image_id", "path", "problem"]]
    refused = refused.replace(
        "\r", r"\\r", regex=True
    )  # which readers take for a line's end
    path = storage.join(work_dir, "rejects.csv")
    storage.write_atomically(path, refused.to_csv(index=False).encode())
    if (images["problem"] == "").any():
        return
    reasons = images["problem"].str.split(":").str[0].value_counts().head(5)
    counted = ", ".join(f"{count:,} × {reason}" for reason, count in reasons.items())
    raise ValueError(
        f"none of the {len(images):,} images can be used: {counted}. '{path}' lists each image. "
        "Fix the files, or set the parameters of 01_explore so that it reads others."
    )


def save_images(images: pd.DataFrame, labels: Labels, work_dir: str) -> None:
    """Writes the labels as text and JSON, label_map.json if single, rejects.csv, images.parquet.

    Raises: ValueError: no image is good.
    """
    save_rejects(images, work_dir)
    label_of = {
        str(name): i for i, name in enumerate(labels.classes) if name is not None
    }
    files = {
        "labels.json": labels.to_json(),
        "labels.txt": "".join(f"{label}:{name}\n" for name, label in label_of.items()),
    }
    if labels.kind == "single":
        files["label_map.json"] = json.dumps(label_of, ensure_ascii=False, indent=1)
    for (
        name,
        text,
    ) in files.items():  # and images.parquet last, for it says that all is there
        storage.write_atomically(storage.join(work_dir, name), text.encode())
    storage.write_parquet(images, storage.join(work_dir, "images.parquet"))


def load_images(work_dir: str) -> tuple[pd.DataFrame, Labels]:
    """(images, labels) that `save_images` wrote. Raises: FileNotFoundError."""
    path = storage.join(work_dir, "images.parquet")
    try:
        beside = f"{work_dir}/labels.json"
        labels = Labels.parse(
            storage.read_bytes(beside), beside, "Run 01_explore again."
        )
        return storage.read_parquet(path), labels
    except FileNotFoundError:
        mend = "Run 01_explore with this WORK_DIR first."
        raise FileNotFoundError(f"there is no '{path}'. {mend}") from None


def count_rows(images: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; test images, where there are any, in lines of their own."""
    refused, test = images["problem"] != "", images["split"] == "test"
    counts = {
        "good": int((~refused & ~test).sum()),
        "rejected": int((refused & ~test).sum()),
    }
    own = {
        "test images": (~refused & test).sum(),
        "test images rejected": (refused & test).sum(),
    }
    return counts | (
        {name: int(count) for name, count in own.items()} if test.any() else {}
    )


def sample_per_class(
    images: pd.DataFrame, count: int, classes: int = 8
) -> pd.DataFrame:
    """Up to `count` good images of each of the `classes` largest classes, the same every time."""
    good = images[(images["problem"] == "") & (images["split"] != "test")]
    largest = good["label_name"].value_counts().index[:classes]
    rows = [good[good["label_name"] == name].head(count) for name in largest]
    return pd.concat(rows) if rows else good
