"""images.parquet: one row per input image, its label, its size, and what is wrong with it."""

import json
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.header import RefusedImage
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
    Raises: FileNotFoundError: no image is there; TimeoutError: a bucket does not answer.
    """
    good = images["problem"] == ""
    paths = images.loc[good, "path"].tolist()
    show: dict = {"label": "Reading images", "total": len(paths), "advance": len}
    results = run(_measure_block, blocks(paths, BLOCK), **show, ordered=True)
    rows = [values for block in results for values in block]
    if rows and all(values[-1] == "missing file" for values in rows):
        what = f"none of the {len(paths)} images is there, the first is '{paths[0]}'"
        mend = "Point INPUT_DIR at the folder that holds the images' folder, or set PATH_TEMPLATE."
        raise FileNotFoundError(f"{what}. {mend}")
    images, columns = images.assign(**UNREAD), [*UNREAD, "problem"]
    if rows:
        images.loc[good, columns] = pd.DataFrame(rows, images.index[good], columns)
    for name in labels.label_columns if labels.kind == "masks" else ():
        good = (images["problem"] == "") & (images[name] != "")
        codes = images.loc[good, [name, "height", "width"]].itertuples(index=False, name=None)
        problems = [find_code_problem(*code) for code in codes]
        images.loc[good, "problem"] = [problem and f"{name}: {problem}" for problem in problems]
    return images


def _measure_block(paths: list[str]) -> list[tuple[Any, ...]]:
    """height, width, n_bytes, format, orientation, note, problem of each image."""
    rows, unread = list[tuple[Any, ...]](), tuple(UNREAD.values())
    for path, data in zip(paths, storage.read_many(paths), strict=True):
        if isinstance(data, OSError):
            missing = isinstance(data, FileNotFoundError)
            reason = "missing file" if missing else f"unreadable: {data.strerror or data}"
            rows.append((*unread, reason))
            continue
        try:
            head = check_image(data, name=path)
            size = head.height, head.width, len(data)
            rows.append((*size, head.format, head.orientation, head.note, ""))
        except RefusedImage as refusal:
            rows.append((*unread[:2], len(data), *unread[3:], str(refusal)))
    return rows


def save_images(images: pd.DataFrame, labels: Labels, work_dir: str) -> None:
    """Writes the labels as text and JSON, label_map.json if single, rejects.csv, images.parquet."""
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
    for name, text in files.items():  # and images.parquet last, for it says that all is there
        storage.write_atomically(storage.join(work_dir, name), text.encode())
    storage.write_parquet(images, storage.join(work_dir, "images.parquet"))


def load_images(work_dir: str) -> tuple[pd.DataFrame, Labels]:
    """(images, labels) that `save_images` wrote. Raises: FileNotFoundError."""
    path = storage.join(work_dir, "images.parquet")
    try:
        labels = Labels.from_dict(json.loads(storage.read_bytes(f"{work_dir}/labels.json")))
        return storage.read_parquet(path), labels
    except FileNotFoundError:
        mend = "Run 01_explore with this WORK_DIR first."
        raise FileNotFoundError(f"there is no '{path}'. {mend}") from None


def count_images(images: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; test images, where there are any, in lines of their own."""
    refused, test = images["problem"] != "", images["split"] == "test"
    counts = {"good": int((~refused & ~test).sum()), "refused": int((refused & ~test).sum())}
    own = {"test images": (~refused & test).sum(), "test images refused": (refused & test).sum()}
    return counts | ({name: int(count) for name, count in own.items()} if test.any() else {})


def sample_per_class(images: pd.DataFrame, count: int, classes: int = 8) -> pd.DataFrame:
    """Up to `count` good images of each of the `classes` largest classes, the same every time."""
    good = images[(images["problem"] == "") & (images["split"] != "test")]
    largest = good["label_name"].value_counts().index[:classes]
    rows = [good[good["label_name"] == name].head(count) for name in largest]
    return pd.concat(rows) if rows else good
