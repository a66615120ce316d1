"""Read class folders: the last folder is the class, one above it may be the split.

Without labels, any of the folders may be the split.
"""

import os

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.labels import (
    Table,
    keep_problems,
    read_classes,
    single_label_table,
    unlabelled_table,
)
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.naming import split_of

ADVICE = (
    "Set PATTERN to '*/*.jpg' (class/file) or '*/*/*.jpg' (split/class/file), or "
    "INPUT_DIR to the folder above them. LABEL_COLUMN: [] reads the images without "
    "labels."
)


def read_folders(settings: InputSettings) -> Table:
    """Return the images that PATTERN matches, and those of test folders beside them.

    If LABEL_COLUMN is empty, they have no labels, which is printed.
    """
    if not settings.label_columns:
        return _read_unlabelled(settings)
    classes = read_classes(settings.input_dir, settings.label_map)
    paths = _list_paths(settings)
    images = _parse_paths(paths, settings.input_dir, classes)
    is_test = images["split"] == "test"
    _check_train(is_test)
    problem = images.pop("problem")
    class_names = images.pop("class").where(problem == "", "")
    table, labels = _label(class_names, is_test, classes)
    table = keep_problems(problem, table)
    table["problem"] = table["problem"].mask(is_test, "")
    return pd.concat([images, table], axis=1), labels


def _check_train(is_test: pd.Series) -> None:
    """Raise a FileNotFoundError if all images are test images."""
    if is_test.all():
        raise FileNotFoundError(f"all files in INPUT_DIR are test images. {ADVICE}")


def _read_unlabelled(settings: InputSettings) -> Table:
    """Return the images without labels, each in the split of its lowest such folder."""
    paths = _list_paths(settings)
    names = pd.Series(paths).str.removeprefix(f"{settings.input_dir}/")
    folders = names.str.rpartition("/")[0]
    split_of_folder = {folder: _find_split(folder) for folder in folders.unique()}
    split = folders.map(split_of_folder)
    _check_train(split == "test")
    counts = ", ".join(f"{n:,} {name}" for name, n in split.value_counts().items())
    print(
        f"No labels: LABEL_COLUMN is empty, so folders are not classes ({counts}). "
        'If they are, set LABEL_COLUMN: label and PATTERN: "*/*" (class/file).'
    )
    images = pd.DataFrame({"image_id": names, "path": paths, "split": split})
    table, labels = unlabelled_table(images.index)
    is_outside = files.find_outside(paths, settings.input_dir)
    table["problem"] = table["problem"].mask(is_outside, files.LINK_PROBLEM)
    return pd.concat([images, table], axis=1), labels


def _find_split(folder: str) -> str:
    """Return the split of the lowest folder that is called like one, else "train"."""
    splits = map(split_of, reversed(folder.split("/")))
    return next(filter(None, splits), "train")


def _parse_paths(
    paths: list[str],
    input_dir: str,
    classes: list | None,
) -> pd.DataFrame:
    """Return image_id, path, split, class and problem of each file.

    classes: those of LABEL_MAP; one may be called like a split.
    """
    names = pd.Series(paths).str.removeprefix(f"{input_dir}/")
    folders = names.str.split("/")
    class_folder = folders.str[-2]
    is_class = class_folder.isin(map(str, classes or []))
    own_split = class_folder.map(split_of).mask(is_class, "")
    split_above = folders.str[-3].fillna("").map(split_of)
    split = own_split.where(own_split != "", split_above)
    is_outside = files.find_outside(paths, input_dir)
    problem = _find_problems(class_folder, own_split)
    return pd.DataFrame(
        {
            "image_id": names,
            "path": paths,
            "split": split.replace("", "train"),
            "class": class_folder,
            "problem": problem.mask(is_outside, files.LINK_PROBLEM),
        }
    )


def _find_problems(class_folder: pd.Series, own_split: pd.Series) -> pd.Series:
    """Return the problem of each file that is not in a class folder.

    own_split: the split that the folder is called like, "" for a class.
    """
    problem = own_split.mask(own_split != "", "no class folder")
    is_text = ~class_folder.str.contains(storage.ESCAPED)
    return problem.where(is_text, "class name is not text")


def _label(
    names: pd.Series,
    is_test: pd.Series,
    classes: list | None,
) -> Table:
    """Return the labels of images in folders of these names.

    Test images have labels only if all of them are in folders of classes.
    """
    _, labels = single_label_table(names[~is_test], classes)
    known = [str(name) for name in labels.classes]
    if not names[is_test].isin(known).all():
        names = names.mask(is_test, "")
    return single_label_table(names, list(labels.classes))


def _list_paths(settings: InputSettings) -> list[str]:
    """Return the paths that PATTERN matches, then those in test folders."""
    pattern = settings.pattern
    has_classes = bool(settings.label_columns)
    if has_classes and "/" not in pattern:
        raise ValueError(f"PATTERN '{pattern}' has no class folder. {ADVICE}")
    paths = files.list_images(pattern, settings.input_dir, settings)
    if has_classes:
        _warn_of_empty_folders(paths, settings)
    paths += _list_test_images(settings)
    paths = list(dict.fromkeys(paths))
    if not paths:
        raise FileNotFoundError(
            f"no file matches '{pattern}' in {settings.input_dir}. {ADVICE}"
        )
    return paths


def _warn_of_empty_folders(paths: list[str], settings: InputSettings) -> None:
    """Print a warning that names the class folders without images."""
    pattern = os.path.dirname(settings.pattern)
    listed = files.list_folders(pattern, settings.input_dir, settings)
    folders = {folder for folder in listed if not split_of(folder)}
    with_images = {os.path.dirname(path) for path in paths}
    empty = sorted(folders - with_images)
    if empty:
        print(
            f"WARNING: {len(empty)} of {len(folders)} class folders hold no image and "
            f"are left out, such as {', '.join(empty[:5])}"
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
