"""Files and folders below an INPUT_DIR: what is listed, and which links lead out of it."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pandas as pd

from kaggle_tfr import storage

LINK_PROBLEM = "link leads outside INPUT_DIR"
# Files that lie beside images and describe them. One without a row is not a forgotten image.
COMPANION = re.compile(
    r"(?i)\.(csv|tsv|xlsx?|parquet|jsonl?|txt|md|rst|ya?ml|xml|html?|pdf|ini|db|log|py|ipynb"
    r"|zip|tar|gz)$"
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


def list_files(
    pattern: str, folder: str, input_dir: str, excluded: Sequence[str] = ()
) -> list[str]:
    """Sorted paths of the files that match `pattern` in `folder`, which lies in `input_dir`.

    excluded: folders that hold no input, such as WORK_DIR. System folders hold none either.
    """
    return keep_inputs(storage.list_files(pattern, folder), input_dir, excluded)


def list_folders(
    pattern: str, folder: str, input_dir: str, excluded: Sequence[str] = ()
) -> list[str]:
    """Sorted paths of the folders, by the same rules. A bucket has none of its own."""
    if storage.is_remote(folder):
        return []
    return keep_inputs(storage.list_folders(pattern, folder), input_dir, excluded)


def keep_inputs(
    paths: Sequence[str], input_dir: str, excluded: Sequence[str]
) -> list[str]:
    """The paths that lie neither in an excluded folder nor in a system folder."""
    places = _find_places(input_dir, excluded)
    kept = []
    for path in paths:
        below = path[len(input_dir) :].strip("/")
        is_excluded = any(f"{below}/".startswith(place) for place in places)
        if not is_excluded and SYSTEM_NAMES.isdisjoint(below.split("/")):
            kept.append(path)
    return kept


def _find_places(input_dir: str, excluded: Sequence[str]) -> list[str]:
    """The excluded folders that lie below INPUT_DIR, relative to it, each with a "/" behind."""
    places = []
    for folder in excluded:
        if storage.is_remote(folder) or storage.is_remote(input_dir):
            inside = folder.startswith(f"{input_dir}/")
            below = folder[len(input_dir) + 1 :] if inside else ""
        else:
            # Both may be reached by links, as Kaggle's folders may be.
            root = os.path.realpath(input_dir or "/")
            below = os.path.relpath(os.path.realpath(folder), root)
        if below not in ("", ".") and below.split("/")[0] != "..":
            places.append(f"{below.rstrip('/')}/")
    return places


def find_outside(paths: Sequence[str], input_dir: str) -> np.ndarray:
    """Bool (n,): True where a symbolic link leads the path out of INPUT_DIR.

    INPUT_DIR may be a link itself. Each folder is listed once: links tell themselves apart there
    without a request for every file.
    """
    outside = np.zeros(len(paths), bool)
    if storage.is_remote(input_dir):
        return outside

    rows_of_folder = defaultdict[str, list[int]](list)
    for row, path in enumerate(paths):
        if path:
            rows_of_folder[os.path.dirname(path)].append(row)

    root = os.path.realpath(input_dir or "/").rstrip("/") + "/"
    for folder, rows in rows_of_folder.items():
        if not _lies_in(folder, root):
            outside[rows] = True
            continue
        links = _list_links(folder)
        for row in rows if links else ():
            if os.path.basename(paths[row]) in links:
                outside[row] = not _lies_in(paths[row], root)
    return outside


def _lies_in(path: str, root: str) -> bool:
    return f"{os.path.realpath(path)}/".startswith(root)


def _list_links(folder: str) -> set[str]:
    """The names of the symbolic links in a folder; none where it cannot be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_symlink()}
    return set()


def reject_links(images: pd.DataFrame, input_dir: str) -> pd.DataFrame:
    """The rows; a good one whose file lies outside INPUT_DIR gets a problem."""
    is_good = images["problem"] == ""
    outside = find_outside(images["path"].where(is_good, "").tolist(), input_dir)
    return images.assign(problem=images["problem"].mask(outside, LINK_PROBLEM))


def check_named_file(path: str, input_dir: str, parameter: str) -> None:
    """Raises a ValueError for a file in INPUT_DIR that is a link to a place outside it."""
    below = os.path.relpath(os.path.abspath(path), os.path.abspath(input_dir or "/"))
    is_named_outside = storage.is_remote(path) or below.split("/")[0] == ".."
    if not is_named_outside and find_outside([path], input_dir).any():
        mend = f"Set {parameter} to the path of the file itself, or copy it into INPUT_DIR."
        raise ValueError(
            f"{parameter} '{path}' is a link that leads outside INPUT_DIR. {mend}"
        )


def read_named_file(path: str, parameter: str) -> bytes:
    """The bytes of a file that a parameter names, which its FileNotFoundError names too."""
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        what = (
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        )
        raise FileNotFoundError(what) from None
