"""List the files and folders of INPUT_DIR, and find the links that lead out of it."""

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.mounts import PRODUCTS
from kaggle_tfr.naming import is_shard_name

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
    output_dirs = _list_outputs(input_dir, excluded)
    kept = []
    for path in paths:
        below = path.removeprefix(input_dir).strip("/")
        is_output = f"{below}/".startswith(output_dirs)
        if not is_output and SYSTEM_NAMES.isdisjoint(below.split("/")):
            kept.append(path)
    return kept


def list_unread(
    input_dir: str, paths: Collection[str], excluded: Sequence[str]
) -> list[str]:
    """Return the images and shards in a folder that `paths` does not contain.

    The names are sorted, below the folder. What kaggle-tfr wrote is left out.
    paths: of images, or addresses of records in shards.
    """
    shards = {path.rpartition("#")[0] for path in paths}
    unread = set[str]()
    for folder, subfolders, names in os.walk(input_dir):
        if folder != input_dir and not set(PRODUCTS).isdisjoint(names):
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if name[0] != "."]
        files = [
            storage.escape(f"{folder}/{name}")
            for name in names
            if name[0] != "."
            and (storage.IMAGE_NAME.search(name) or is_shard_name(name))
        ]
        unread.update(keep_inputs(files, input_dir, excluded))
    unread -= {*shards, *paths}
    return sorted(path.removeprefix(f"{input_dir}/") for path in unread)


def _list_outputs(input_dir: str, excluded: Sequence[str]) -> tuple[str, ...]:
    """Return the excluded folders relative to INPUT_DIR, which may be a link.

    Folders outside stay absolute, and INPUT_DIR itself is left out.
    """
    root = f"{storage.real_path(input_dir).rstrip('/')}/"
    outputs = {f"{storage.real_path(folder)}/" for folder in excluded} - {root}
    return tuple(folder.removeprefix(root) for folder in outputs)


def find_outside(paths: Sequence[str], input_dir: str) -> np.ndarray:
    """Return bool (n,): True where a symbolic link leads the path out of INPUT_DIR.

    INPUT_DIR may be a link itself. Each folder is listed once, which finds all links in
    it without a request for every file.
    """
    is_inside = cache(lambda folder: storage.is_inside(folder, input_dir))
    list_links = cache(_list_links)
    outside = []
    for path in paths:
        folder, name = os.path.split(path)
        if name in list_links(folder):
            outside.append(not storage.is_inside(path, input_dir))
        else:
            outside.append(path != "" and not is_inside(folder))
    return np.array(outside, bool)


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


def explain_unreadable(error: OSError) -> str:
    """Return the problem of an image or shard that cannot be read.

    Raises: OSError: the input may be good, but its bucket does not answer, or the disk
    of the work folder, which keeps the indexes of shards, is full.
    """
    if isinstance(error, TimeoutError) or error.errno in storage.NO_SPACE:
        raise error
    if isinstance(error, FileNotFoundError):
        return "missing file"
    return f"unreadable: {error.strerror or error}"


def check_named_file(path: str, input_dir: str, parameter: str) -> None:
    """Raise a ValueError for a link in INPUT_DIR to a file outside it."""
    below = os.path.relpath(path, input_dir)
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
