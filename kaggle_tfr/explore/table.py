"""images.parquet: one row per input image, its label, its size, and what is wrong with it."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.masks import find_code_problem
from kaggle_tfr.parallel import blocks, run
from kaggle_tfr.schema import Labels

BLOCK = 64  # images a task: enough to hide the cost of sending it, few enough to move the bar

# The columns that `measure` adds, with their values where no image could be read.
UNREAD: dict = {"height": 0, "width": 0, "n_bytes": 0, "format": "", "orientation": 1, "note": ""}


def measure(images: pd.DataFrame, labels: Labels = Labels()) -> pd.DataFrame:  # noqa: B008
    """The table after reading every image: with height, width, n_bytes, format, orientation, note.

    height, width: in pixels as shown. A refused image, or one whose run-length code does not fit,
    gets its reason in `problem`; rows that have one already are not opened.

    Raises:
        FileNotFoundError: none of the images is there.
        TimeoutError: a bucket does not answer.
    """
    good = images["problem"] == ""
    paths = images.loc[good, "path"].tolist()
    tasks = blocks(paths, BLOCK)
    results = run(
        _measure_block, tasks, label="Reading images", total=len(paths), advance=len, ordered=True
    )
    rows = [values for block in results for values in block]
    if rows and all(values[-1] == "missing file" for values in rows):
        raise FileNotFoundError(
            f"none of the {len(paths)} images is there, the first is '{paths[0]}'. Point "
            "INPUT_DIR at the folder that holds the images' folder, or set PATH_TEMPLATE."
        )
    measured = images.assign(**UNREAD)
    if rows:
        columns = [*UNREAD, "problem"]
        measured.loc[good, columns] = pd.DataFrame(rows, images.index[good], columns)
    if labels.kind == "masks":
        _check_codes(measured, labels.label_columns)
    return measured


def _measure_block(paths: list[str]) -> list[tuple[Any, ...]]:
    return [_measure_one(*pair) for pair in zip(paths, storage.read_many(paths), strict=True)]


def _measure_one(path: str, data: bytes | OSError) -> tuple[Any, ...]:
    """height, width, n_bytes, format, orientation, note, problem."""
    unread = tuple(UNREAD.values())
    if isinstance(data, OSError):
        missing = isinstance(data, FileNotFoundError)
        return *unread, "missing file" if missing else f"unreadable: {data.strerror or data}"
    try:
        head = check_image(data, name=path)
    except RefusedImage as refusal:
        return *unread[:2], len(data), *unread[3:], str(refusal)
    return head.height, head.width, len(data), head.format, head.orientation, head.note, ""


def _check_codes(images: pd.DataFrame, label_columns: Sequence[str]) -> None:
    """Names the broken run-length codes of good rows in the column `problem`, in place."""
    problems = images["problem"].tolist()
    for name in label_columns:
        columns = (images[key].tolist() for key in (name, "height", "width"))
        for row, (code, height, width) in enumerate(zip(*columns, strict=True)):
            problem = find_code_problem(code, height, width) if code and not problems[row] else ""
            problems[row] = f"{name}: {problem}" if problem else problems[row]
    images["problem"] = problems


def save_images(images: pd.DataFrame, labels: Labels, work_dir: str) -> None:
    """Writes labels.json, labels.txt ("0:daisy"), rejects.csv, label_map.json, images.parquet.

    label_map.json ({"daisy": 0}) is for one class per image. images.parquet comes last.
    """
    storage.make_folder(work_dir)
    refused = images.loc[images["problem"] != "", ["image_id", "path", "problem"]]
    label_of = {str(name): i for i, name in enumerate(labels.classes) if name is not None}
    files = {
        "labels.json": labels.to_json(),
        "labels.txt": "".join(f"{label}:{name}\n" for name, label in label_of.items()),
        "rejects.csv": refused.to_csv(index=False),
    }
    if labels.kind == "single":
        files["label_map.json"] = json.dumps(label_of, ensure_ascii=False, indent=1)
    for name, text in files.items():
        storage.write_atomically(storage.join(work_dir, name), text.encode())
    storage.write_parquet(images, storage.join(work_dir, "images.parquet"))


def load_images(work_dir: str) -> tuple[pd.DataFrame, Labels]:
    """(images, labels) that `save_images` wrote.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = storage.join(work_dir, "images.parquet")
    try:
        labels = Labels.from_dict(json.loads(storage.read_bytes(f"{work_dir}/labels.json")))
        return storage.read_parquet(path), labels
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no '{path}'. Run 01_explore with this WORK_DIR first."
        ) from None


def sample_per_class(images: pd.DataFrame, count: int, classes: int = 8) -> pd.DataFrame:
    """Up to `count` good images of each of the `classes` largest classes, the same every time."""
    good = images[images["problem"] == ""]
    largest = good["label_name"].value_counts().index[:classes]
    rows = [good[good["label_name"] == name].head(count) for name in largest]
    return pd.concat(rows) if rows else good
