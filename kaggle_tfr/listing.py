"""What lies in INPUT_DIR: labels files, class folders, and images that no row speaks of."""

import json
import os
from collections.abc import Mapping

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.sources import folder_pattern

SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test")
IMAGE_ENDINGS = {"jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff", "avif"}


def read_given(path: str, parameter: str) -> bytes:
    """The bytes of a file that a parameter names.

    Raises:
        FileNotFoundError: it is not there; the parameter is named.
    """
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        ) from None


def read_map(given: str | Mapping, input_dir: str) -> Mapping | None:
    """The label map given by value or by file name; None for none.

    Raises:
        ValueError: the file is no JSON object.
    """
    if not given or isinstance(given, Mapping):
        return given or None
    path = storage.join(input_dir, given)
    try:
        found = json.loads(read_given(path, "LABEL_MAP"))
    except ValueError as error:
        raise ValueError(f"the label map '{path}' is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the label map '{path}' holds no {{'class': label}}.")
    return found


def list_images(input_dir: str, pattern: str) -> pd.DataFrame:
    """Columns image_id (path below INPUT_DIR), path, split, and the class as text in `value`.

    The last folder is the class; the one above it is the split, if it has a split's name.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: a pattern without a class folder, or a class folder without an image.
    """
    if "/" not in pattern:
        raise ValueError(
            f"PATTERN '{pattern}' has no class folder. Write it as '*/*.jpg' (class/file) or "
            "'*/*/*.jpg' (split/class/file)."
        )
    paths = storage.list_files(pattern, input_dir)
    if not storage.is_remote(input_dir):
        _check_folders(input_dir, pattern, paths)
    if not paths:
        raise FileNotFoundError(
            f"no file matches '{pattern}' in {input_dir}. Set PATTERN to class/file ('*/*.jpg') "
            "or split/class/file ('*/*/*.jpg'), or INPUT_DIR to the folder above them."
        )
    start = len(input_dir.rstrip("/")) + 1
    names = [path[start:].replace("\\", "/") for path in paths]
    parts = [name.split("/") for name in names]
    split = [part[-3] if len(part) > 2 and part[-3] in SPLITS else "train" for part in parts]
    value = [part[-2] for part in parts]
    return pd.DataFrame({"image_id": names, "path": list(paths), "split": split, "value": value})


def _check_folders(input_dir, pattern, paths):
    """Raises when a class folder has nothing that could be an image: a slip, or a lost download."""
    folders = storage.list_folders(pattern.rpartition("/")[0], input_dir)
    filled = {os.path.dirname(path) for path in paths if _may_be_image(path)}
    empty = [folder for folder in folders if folder not in filled]
    if empty:
        raise ValueError(
            f"{len(empty)} of {len(folders)} class folders hold no image, the first is "
            f"'{empty[0]}' (looked for '{pattern}' in {input_dir}). Fill or remove it, or set "
            "PATTERN so that it matches folders with images only."
        )


def _may_be_image(path: str) -> bool:
    """True for a name that ends like an image's, or has no ending at all."""
    ending = path.rpartition("/")[2].rpartition(".")[1:]
    return not ending[0] or ending[1].lower() in IMAGE_ENDINGS


def add_unlisted(
    table: pd.DataFrame, input_dir: str, template: str, csv_name: str, attrs: Mapping
) -> pd.DataFrame:
    """The table, then a row with a problem for each file of the image folder that has no row.

    Raises:
        FileNotFoundError: none of the table's images is there.
    """
    folder, pattern = folder_pattern(template)
    folder = storage.join(input_dir, folder) if folder else input_dir
    files = storage.list_files(pattern, folder) if storage.is_folder(folder) else []
    known = set(table["path"])
    if known.isdisjoint(files):
        raise FileNotFoundError(
            f"none of the {len(table)} images is there, the first would be "
            f"'{table['path'].iloc[0]}' "
            f"({len(files)} files match '{pattern}' in {folder}). Point INPUT_DIR at the folder "
            "that holds the images' folder, or set PATH_TEMPLATE."
        )
    paths = [path for path in files if path not in known]
    if not paths:
        return table
    start = len(folder.rstrip("/")) + 1
    extra = pd.DataFrame({"image_id": [path[start:] for path in paths], "path": paths})
    extra = extra.assign(split="train", label=-1, label_name="", problem=f"no row in {csv_name}")
    blank = "" if attrs["kind"] == "masks" else np.int8(0)
    extra = extra.assign(**dict.fromkeys(attrs["label_columns"], blank))
    # Whole numbers stay whole where the new rows have none.
    others = [name for name in table.columns if name not in extra.columns]
    whole = [name for name in others if pd.api.types.is_integer_dtype(table[name])]
    return pd.concat([table.astype(dict.fromkeys(whole, "Int64")), extra], ignore_index=True)
