"""Class folders: the last folder is the class, the split may be above it."""

import os
import re
from collections.abc import Sequence
from itertools import chain, starmap

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.labels import Table, read_classes, single_label_table
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.naming import split_of


def read_folders(input_dir: str, settings: InputSettings) -> Table:
    """The table of class folders: the last folder is the class, the split may be above."""
    pattern, root = settings.pattern or "*/*", input_dir or "/"
    shapes = "'*/*.jpg' (class/file) or '*/*/*.jpg' (split/class/file)"
    if "/" not in pattern:
        raise ValueError(
            f"PATTERN '{pattern}' has no class folder. Write it as {shapes}."
        )
    paths = files.list_files(pattern, root, input_dir, settings.excluded)
    paths = _leave_out_empty_folders(paths, pattern, input_dir, settings)
    paths += find_test_files(pattern, root, set(paths), settings.excluded)
    mend = f"Set PATTERN to {shapes}, or INPUT_DIR to the folder above them."
    if not paths:
        raise FileNotFoundError(f"no file matches '{pattern}' in {input_dir}. {mend}")
    names = pd.Series(paths).str[len(input_dir) + 1 :].str.replace(os.sep, "/")
    parts, classes = names.str.split("/"), read_classes(input_dir, settings.label_map)
    folder, above = parts.str[-2], parts.str[-3].map(split_of, na_action="ignore")
    own = folder.map(split_of).where(~folder.isin(map(str, classes or ())), "")
    split = own.where(own != "", above.fillna("")).replace("", "train")
    unnamed = folder.str.contains(storage.ESCAPED)
    outside = pd.Series(files.find_outside(paths, input_dir))
    text, test = folder.where((own == "") & ~unnamed & ~outside, ""), split == "test"
    if test.all():
        raise FileNotFoundError(
            f"all files of '{pattern}' in {input_dir} are test images. {mend}"
        )
    labelled, labels = single_label_table(text[~test], classes)
    # Test images may lie in folders of classes: a held-out set with labels; or all in one.
    known = set(map(str, labels.classes))
    text = text if known.issuperset(text[test]) else text.where(~test, "")
    labelled, _ = single_label_table(text, list(labels.classes))
    labelled["problem"] = np.where(
        ~test & (own != ""), "no class folder", labelled["problem"]
    )
    labelled.loc[unnamed, "problem"] = "class name is no text"
    labelled.loc[test, "problem"] = ""
    labelled.loc[outside, "problem"] = files.LINK_PROBLEM
    ids = pd.DataFrame({"image_id": names, "path": paths, "split": split})
    return pd.concat([ids, labelled], axis=1), labels


def _leave_out_empty_folders(
    paths: list[str], pattern: str, input_dir: str, settings: InputSettings
) -> list[str]:
    """The paths without those of class folders that hold no image, which a printed line names."""
    folders_pattern = pattern.rpartition("/")[0]
    folders = files.list_folders(
        folders_pattern, input_dir or "/", input_dir, settings.excluded
    )
    with_images = {
        os.path.dirname(path) for path in paths if not files.COMPANION.search(path)
    }
    without_images = {*folders, *map(os.path.dirname, paths)} - with_images
    empty = {folder for folder in without_images if not split_of(folder)}
    if not storage.is_remote(input_dir):
        every_folder = storage.list_folders(folders_pattern, input_dir or "/")
        empty |= {
            path
            for path in every_folder
            if os.path.basename(path) in files.SYSTEM_NAMES
        }
    if empty:
        below = sorted(folder[len(input_dir) :].strip("/") for folder in empty)
        named = ", ".join(f"'{name}'" for name in below[:5]) + ", …" * (len(below) > 5)
        print(
            f"WARNING: {len(empty)} of {len(empty | with_images)} class folders hold no image "
            f"and are left out: {named} (PATTERN '{pattern}' in {input_dir})"
        )
    return [path for path in paths if os.path.dirname(path) not in empty]


def find_test_files(
    pattern: str, root: str, known: set[str], excluded: Sequence[str] = ()
) -> list[str]:
    """Files of a test folder beside the split or class folders, in class folders or in none."""
    above, ending = (
        re.split(r"[*?\[]", pattern)[0].rpartition("/")[0],
        pattern.rpartition("/")[2],
    )
    place = storage.join(root, *filter(None, [above]))
    listed = (
        [f"{place}/test"]
        if storage.is_remote(root)
        else storage.list_folders("*", place)
    )
    folders = [
        path for path in listed if split_of(path) == "test" and storage.is_folder(path)
    ]
    places = [(depth + ending, folder) for folder in folders for depth in ("", "*/")]
    found = list(chain.from_iterable(starmap(storage.list_files, places)))
    found = files.keep_inputs(found, root.rstrip("/"), excluded)
    return [
        path for path in found if path not in known and not files.COMPANION.search(path)
    ]
