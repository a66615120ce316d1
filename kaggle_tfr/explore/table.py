"""images.parquet: one row per input image, its label, its size, and what is wrong with it."""

import io
import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.masks import find_code_problem
from kaggle_tfr.parallel import blocks, run
from kaggle_tfr.schema import Labels


def find_problems(images: pd.DataFrame, label_columns: Sequence[str]) -> np.ndarray:
    """The column `problem` with the broken codes of good rows named; needs height and width."""
    problems = images["problem"].to_numpy(object).copy()
    good = np.flatnonzero(problems == "")
    for name in label_columns:
        columns = (images[key].to_numpy()[good] for key in (name, "height", "width"))
        for row, code, height, width in zip(good, *columns, strict=True):
            problem = find_code_problem(code, height, width) if code else ""
            if problem and not problems[row]:
                problems[row] = f"{name}: {problem}"
    return problems


BLOCK = 64  # images a task: enough to hide the cost of sending it, few enough to move the bar


# Column and its value where the image was not read.
MEASURED = {"height": 0, "width": 0, "n_bytes": 0, "format": "", "orientation": 1, "note": ""}


def measure(images: pd.DataFrame, labels: Labels = Labels()) -> pd.DataFrame:  # noqa: B008
    """The table after reading every image: with height, width, n_bytes, format, orientation, note.

    height, width: in pixels as shown. A refused image, or one whose run-length code does not fit,
    gets its reason in `problem`; rows that have one already are not opened.

    Raises:
        FileNotFoundError: none of the images is there.
        TimeoutError: a bucket does not answer.
    """
    rows = np.flatnonzero((images["problem"] == "").to_numpy())
    todo = list(zip(rows.tolist(), images["path"].iloc[rows].tolist(), strict=True))
    found = {}
    results = run(
        _measure_block,
        blocks(todo, BLOCK),
        label="Reading images",
        total=len(todo),
        advance=len,
    )
    for block in results:
        found.update(block)
    if todo and all(values[-1] == "missing file" for values in found.values()):
        raise FileNotFoundError(
            f"none of the {len(todo)} images is there, the first is '{todo[0][1]}'. Point "
            "INPUT_DIR at the folder that holds the images' folder, or set PATH_TEMPLATE."
        )
    measured = images.copy()
    for k, (name, blank) in enumerate(MEASURED.items()):
        values = [found[row][k] if row in found else blank for row in range(len(images))]
        measured[name] = pd.Series(values, index=images.index, dtype=type(blank))
    refused = {row: values[-1] for row, values in found.items() if values[-1]}
    measured.iloc[list(refused), measured.columns.get_loc("problem")] = list(refused.values())
    if labels.kind == "masks":
        measured["problem"] = find_problems(measured, labels.label_columns)
    return measured


def _measure_block(block):
    found = storage.read_many([path for _, path in block])
    return [(row, _measure_one(path, data)) for (row, path), data in zip(block, found, strict=True)]


def _measure_one(path, data):
    """height, width, n_bytes, format, orientation, note, problem. data: bytes, or an OSError."""
    if isinstance(data, FileNotFoundError):
        return 0, 0, 0, "", 1, "", "missing file"
    if isinstance(data, OSError):
        return 0, 0, 0, "", 1, "", f"unreadable: {data.strerror or data}"
    try:
        head = check_image(data, name=path)
    except RefusedImage as refusal:
        return 0, 0, len(data), "", 1, "", str(refusal)
    return head.height, head.width, len(data), head.format, head.orientation, head.note, ""


def save_images(images: pd.DataFrame, labels: Labels, work_dir: str) -> None:
    """Writes labels.json, labels.txt ("0:daisy"), rejects.csv, label_map.json, images.parquet.

    label_map.json ({"daisy": 0}) is for one class per image. images.parquet comes last.
    """
    storage.make_folder(work_dir)
    classes = labels.classes
    refused = images.loc[images["problem"] != "", ["image_id", "path", "problem"]]
    stream = io.BytesIO()
    images.to_parquet(stream, index=False)
    label_of = {str(name): label for label, name in enumerate(classes) if name is not None}
    if labels.kind == "single":
        text = json.dumps(label_of, ensure_ascii=False, indent=1)
        storage.write_atomically(storage.join(work_dir, "label_map.json"), text.encode())
    for name, data in {
        "labels.json": labels.to_json().encode(),
        "labels.txt": "".join(f"{label_of[name]}:{name}\n" for name in label_of).encode(),
        "rejects.csv": refused.to_csv(index=False).encode(),
        "images.parquet": stream.getvalue(),
    }.items():
        storage.write_atomically(storage.join(work_dir, name), data)


def load_images(work_dir: str) -> tuple[pd.DataFrame, Labels]:
    """(images, labels) that `save_images` wrote.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = storage.join(work_dir, "images.parquet")
    try:
        labels = json.loads(storage.read_bytes(storage.join(work_dir, "labels.json")))
        return storage.read_parquet(path), Labels.from_dict(labels)
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
