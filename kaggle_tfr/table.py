"""images.parquet: one row per input image, its label, its size, and what is wrong with it."""

import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import listing, sources, storage
from kaggle_tfr.images import RefusedImage, check
from kaggle_tfr.labels import label_once
from kaggle_tfr.masks import find_problems
from kaggle_tfr.progress import blocks, run

BLOCK = 64  # images a task: enough to hide the cost of sending it, few enough to move the bar
# Column and its value where the image was not read.
MEASURED = {"height": 0, "width": 0, "n_bytes": 0, "format": "", "orientation": 1, "note": ""}


def read_table(
    source: str,
    input_dir: str,
    *,
    labels_csv: str = "",
    id_column: str = "",
    label_column: str | Sequence[str] = "",
    path_template: str = "",
    pattern: str = "",
    limit: int = 0,
    label_map: str | Mapping[str, int] = "",
    label_separator: str = "",
) -> pd.DataFrame:
    """The images and their labels, one row each, in the source's order; no image is opened.

    Columns: image_id, path (absolute or gs://), split, label (int64, -1 for none), label_name,
    problem ("" for a good row), the CSV's other columns, then for kinds "multi" (int8, 0 or 1) and
    "masks" (a run-length code or "") a column per label; there `label` numbers the combinations.
    attrs: kind ("single", "multi", "masks"), classes (index = label), label_columns.
    limit: only so many rows, spread evenly over all.

    Raises:
        FileNotFoundError: no such folder or CSV, or none of the images is there.
        ValueError: a setting that does not fit the data.
    """
    if not storage.is_remote(input_dir):
        input_dir = os.path.abspath(input_dir)
    if not storage.is_folder(input_dir):
        raise FileNotFoundError(
            f"INPUT_DIR '{input_dir}' is no folder. Give the folder that holds the images, "
            "a gs:// address, or the slug of an attached Kaggle dataset."
        )
    if source == "folders":
        table = listing.list_images(input_dir, pattern or "*/*")
        found = label_once(table.pop("value"), listing.read_map(label_map, input_dir))
        attrs, found.attrs = found.attrs, {}
        table = pd.concat([table, found], axis=1)
    elif source in ("csv", "rle_csv"):
        columns = [label_column] if isinstance(label_column, str) else list(label_column)
        columns = [name for name in columns if name]
        path = storage.join(input_dir, labels_csv)
        rows = sources.parse_csv(listing.read_given(path, "LABELS_CSV"), path, id_column, columns)
        table = sources.label_rows(
            rows,
            id_column,
            columns,
            is_rle=source == "rle_csv",
            separator=label_separator,
            label_map=listing.read_map(label_map, input_dir),
        )
        # pandas copies attrs at every step, and a list of 80,000 classes is slow to copy.
        attrs, table.attrs = table.attrs, {}
        named = table if source == "rle_csv" else rows
        below = sources.fill_paths(named, {id_column: table["image_id"]}, path_template)
        table = _add_paths(table, below, input_dir, path_template)
        table = listing.add_unlisted(table, input_dir, path_template, os.path.basename(path), attrs)
    else:
        raise ValueError(f'SOURCE is "{source}". Set it to "csv", "folders" or "rle_csv".')
    text = ["image_id", "path", "split", "label_name", "problem"]
    table = table.astype(dict.fromkeys(text, str))
    if limit and limit < len(table):
        # Spread evenly: the first rows of class folders would all be of one class.
        table = table.iloc[np.arange(limit) * len(table) // limit].reset_index(drop=True)
    table.attrs = attrs
    return table


def _add_paths(table, below, input_dir, template):
    start = input_dir.rstrip("/") + "/"
    paths = [start + path if path else "" for path in below]
    table.insert(1, "path", pd.Series(paths, index=table.index, dtype=object))
    short = (table["path"] == "") & (table["problem"] == "")
    table.loc[short, "problem"] = f"id too short for PATH_TEMPLATE '{template}'"
    return table


def measure(images: pd.DataFrame) -> pd.DataFrame:
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
    if images.attrs["kind"] == "masks":
        measured["problem"] = find_problems(measured, images.attrs["label_columns"])
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
        head = check(data, name=path)
    except RefusedImage as refusal:
        return 0, 0, len(data), "", 1, "", str(refusal)
    return head.height, head.width, len(data), head.format, head.orientation, head.note, ""


def save_images(images: pd.DataFrame, work_dir: str) -> None:
    """Writes labels.json, labels.txt ("0:daisy"), rejects.csv, label_map.json, images.parquet.

    label_map.json ({"daisy": 0}) is for one class per image. images.parquet comes last.
    """
    storage.make_folder(work_dir)
    classes = images.attrs["classes"]
    refused = images.loc[images["problem"] != "", ["image_id", "path", "problem"]]
    stream = io.BytesIO()
    images.to_parquet(stream, index=False)
    label_of = {str(name): label for label, name in enumerate(classes) if name is not None}
    if images.attrs["kind"] == "single":
        text = json.dumps(label_of, ensure_ascii=False, indent=1)
        storage.write_atomically(storage.join(work_dir, "label_map.json"), text.encode())
    for name, data in {
        "labels.json": json.dumps({"classes": classes}, ensure_ascii=False, indent=1).encode(),
        "labels.txt": "".join(f"{label_of[name]}:{name}\n" for name in label_of).encode(),
        "rejects.csv": refused.to_csv(index=False).encode(),
        "images.parquet": stream.getvalue(),
    }.items():
        storage.write_atomically(storage.join(work_dir, name), data)


def load_images(work_dir: str) -> pd.DataFrame:
    """The table that `save_images` wrote, with its attrs.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = storage.join(work_dir, "images.parquet")
    try:
        return storage.read_parquet(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no '{path}'. Run 01_explore with this WORK_DIR first."
        ) from None


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """One row per outcome with `images` and `share`, and a last row for all.

    Raises:
        RuntimeError: the counts do not add up to `total`.
    """
    found = sum(counts.values())
    if found != total:
        what = " + ".join(f"{count:,} {name}" for name, count in counts.items())
        raise RuntimeError(
            f"the accounting does not close: {what} = {found:,}, but {total:,} came in. "
            "Delete WORK_DIR and run again from 01_explore; if it stays, this is a fault of ours."
        )
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=table["images"] / max(total, 1))
