"""List the files and folders of INPUT_DIR, and find the links that lead out of it."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.settings import InputSettings

LINK_PROBLEM = "link leads outside INPUT_DIR"
# Files beside images that describe them: they are never taken for images.
COMPANION = re.compile(
    r"(?i)\.(csv|tsv|xlsx?|parquet|jsonl?|txt|md|rst|ya?ml|xml|html?|pdf|ini|db|log"
    r"|py|ipynb|zip|tar|gz)$"
)
# Written by operating systems, NAS devices and archivers beside the user's own files.
SYSTEM_NAMES = {
    "__MACOSX",
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "__pycache__",
    "Thumbs.db",
    "desktop.ini",
}


def list_images(pattern: str, folder: str, settings: InputSettings) -> list[str]:
    """Return the sorted paths of files in a folder of INPUT_DIR that may be images."""
    paths = storage.list_files(pattern, folder)
    paths = keep_inputs(paths, settings.input_dir, settings.excluded)
    return [path for path in paths if not COMPANION.search(path)]


def list_folders(pattern: str, folder: str, settings: InputSettings) -> list[str]:
    """Return the sorted paths of folders in a folder of INPUT_DIR, none in a bucket."""
    if storage.is_remote(folder):
        return []
    paths = storage.list_folders(pattern, folder)
    return keep_inputs(paths, settings.input_dir, settings.excluded)


def fixed_folder(input_dir: str, pattern: str) -> str:
    """Return the folder above all files that a pattern or a template matches."""
    fixed = re.split(r"[*?\[{]", pattern)[0]
    return f"{input_dir}/{fixed}".rpartition("/")[0]


def keep_inputs(
    paths: Sequence[str], input_dir: str, excluded: Sequence[str]
) -> list[str]:
    """Return the paths that are neither in an excluded folder nor of the system."""
    output_dirs = tuple(_find_below(input_dir, excluded))
    kept = []
    for path in paths:
        below = path.removeprefix(input_dir).strip("/")
        is_output = f"{below}/".startswith(output_dirs)
        if not is_output and SYSTEM_NAMES.isdisjoint(below.split("/")):
            kept.append(path)
    return kept


def _find_below(input_dir: str, folders: Sequence[str]) -> list[str]:
    """Return the folders below INPUT_DIR, relative to it, each with a "/" behind."""
    root = storage.real_path(input_dir)
    found = []
    for folder in folders:
        if storage.is_inside(folder, input_dir):
            below = storage.real_path(folder)[len(root) :].strip("/")
            if below:
                found.append(f"{below}/")
    return found


def find_outside(paths: Sequence[str], input_dir: str) -> np.ndarray:
    """Return bool (n,): True where a symbolic link leads the path out of INPUT_DIR.

    INPUT_DIR may be a link itself. Each folder is listed once, which finds all links in
    it without a request for every file.
    """
    outside = np.zeros(len(paths), bool)
    if storage.is_remote(input_dir):
        return outside

    rows_of_folder = defaultdict[str, list[int]](list)
    for row, path in enumerate(paths):
        if path:
            rows_of_folder[os.path.dirname(path)].append(row)

    for folder, rows in rows_of_folder.items():
        if not storage.is_inside(folder, input_dir):
            outside[rows] = True
            continue
        links = _list_links(folder)
        for row in rows if links else ():
            if os.path.basename(paths[row]) in links:
                outside[row] = not storage.is_inside(paths[row], input_dir)
    return outside


def _list_links(folder: str) -> set[str]:
    """Return the names of the symbolic links in a folder that can be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_symlink()}
    return set()


def reject_links(images: pd.DataFrame, input_dir: str) -> pd.DataFrame:
    """Return the rows. Good ones whose file is outside INPUT_DIR get a problem."""
    is_outside = find_outside(images["path"].tolist(), input_dir)
    is_outside &= images["problem"] == ""
    return images.assign(problem=images["problem"].mask(is_outside, LINK_PROBLEM))


def check_named_file(path: str, input_dir: str, parameter: str) -> None:
    """Raise a ValueError for a link in INPUT_DIR to a file outside it."""
    below = os.path.relpath(os.path.abspath(path), os.path.abspath(input_dir))
    is_named_outside = storage.is_remote(path) or storage.OUTSIDE.search(below)
    if not is_named_outside and find_outside([path], input_dir).any():
        raise ValueError(
            f"{parameter} '{path}' is a link that leads outside INPUT_DIR. Set "
            f"{parameter} to the path of the file itself, or copy it into INPUT_DIR."
        )


def read_named_file(path: str, parameter: str) -> bytes:
    """Return the bytes of a file that a parameter names."""
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        ) from None
