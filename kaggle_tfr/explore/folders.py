"""Read class folders: the last folder is the class, one above it may be the split."""

import os
from dataclasses import replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.labels import Table, read_classes, single_label_table
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.naming import split_of

ADVICE = (
    "Set PATTERN to '*/*.jpg' (class/file) or '*/*/*.jpg' (split/class/file), or "
    "INPUT_DIR to the folder above them."
)


def read_folders(settings: InputSettings) -> Table:
    """Return the images that PATTERN matches, and those of test folders beside them."""
    settings = replace(settings, pattern=settings.pattern or "*/*")
    paths = _list_paths(settings)
    names = pd.Series(paths).str.removeprefix(f"{settings.input_dir}/")
    folders = names.str.split("/")
    class_folder = folders.str[-2]
    classes = read_classes(settings.input_dir, settings.label_map)
    own_split = _find_split(class_folder, classes)
    split_above = _find_split(folders.str[-3].fillna(""))
    split = own_split.where(own_split != "", split_above).replace("", "train")
    is_test = split == "test"
    if is_test.all():
        raise FileNotFoundError(
            f"all files of '{settings.pattern}' in {settings.input_dir} are test "
            f"images. {ADVICE}"
        )

    is_text = ~class_folder.str.contains(storage.ESCAPED)
    is_outside = files.find_outside(paths, settings.input_dir)
    is_class = (own_split == "") & is_text & ~is_outside
    table, labels = _label(class_folder.where(is_class, ""), is_test, classes)
    problem = table["problem"].mask(own_split != "", "no class folder")
    problem = problem.where(is_text, "class name is not text")
    # `reject_links` names the problem of those outside.
    table["problem"] = problem.mask(is_test | is_outside, "")
    images = pd.DataFrame({"image_id": names, "path": paths, "split": split})
    return pd.concat([images, table], axis=1), labels


def _find_split(folder: pd.Series, classes: list | None = None) -> pd.Series:
    """Return the splits that folders are called like, "" for none and for classes."""
    return folder.map(split_of).mask(folder.isin(map(str, classes or [])), "")


def _label(names: pd.Series, is_test: pd.Series, classes: list | None) -> Table:
    """Return the labels of images in folders of these names.

    Test images have labels only if all of them are in folders of classes.
    """
    _, labels = single_label_table(names[~is_test], classes)
    if not names[is_test].isin(map(str, labels.classes)).all():
        names = names.mask(is_test, "")
    return single_label_table(names, list(labels.classes))


def _list_paths(settings: InputSettings) -> list[str]:
    """Return the paths that PATTERN matches, then those in test folders."""
    pattern = settings.pattern
    if "/" not in pattern:
        raise ValueError(f"PATTERN '{pattern}' has no class folder. {ADVICE}")
    paths = files.list_images(pattern, settings.input_dir, settings)
    _warn_of_empty_folders(paths, settings)
    known = set(paths)
    paths += [path for path in _list_test_images(settings) if path not in known]
    if not paths:
        raise FileNotFoundError(
            f"no file matches '{pattern}' in {settings.input_dir}. {ADVICE}"
        )
    return paths


def _warn_of_empty_folders(paths: list[str], settings: InputSettings) -> None:
    """Print a warning that names the class folders without images."""
    input_dir = settings.input_dir
    listed = files.list_folders(os.path.dirname(settings.pattern), input_dir, settings)
    folders = {folder for folder in listed if not split_of(folder)}
    empty = sorted(folders.difference(map(os.path.dirname, paths)))
    if empty:
        names = [f"'{folder.removeprefix(f'{input_dir}/')}'" for folder in empty[:5]]
        print(
            f"WARNING: {len(empty)} of {len(folders)} class folders hold no image and "
            f"are left out: {', '.join(names)}{', …' if len(empty) > 5 else ''} "
            f"(PATTERN '{settings.pattern}' in {input_dir})"
        )


def _list_test_images(settings: InputSettings) -> list[str]:
    """Return the images in test folders beside the split or class folders.

    They are right in the test folder, or in class folders in it.
    """
    parent = files.fixed_folder(settings.input_dir, settings.pattern)
    folders = files.list_folders("*", parent, settings)
    file_pattern = os.path.basename(settings.pattern)
    paths = []
    for folder in folders or [f"{parent}/test"]:  # a bucket lists no folders
        if split_of(folder) == "test" and storage.is_folder(folder):
            paths += files.list_images(file_pattern, folder, settings)
            paths += files.list_images(f"*/{file_pattern}", folder, settings)
    return paths
