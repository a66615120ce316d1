"""Read class folders: the last folder is the class, a folder above it may be the split."""

import os

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.labels import Table, read_classes, single_label_table
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.naming import split_of

SHAPES = "'*/*.jpg' (class/file) or '*/*/*.jpg' (split/class/file)"


def read_folders(settings: InputSettings) -> Table:
    """Return the images that PATTERN matches, and those of test folders beside them."""
    pattern = settings.pattern or "*/*"
    if "/" not in pattern:
        raise ValueError(
            f"PATTERN '{pattern}' has no class folder. Write it as {SHAPES}."
        )
    input_dir = settings.input_dir
    paths = files.list_images(pattern, input_dir, settings)
    _warn_of_empty_folders(paths, pattern, settings)
    known = set(paths)
    test_paths = _list_test_images(pattern, settings)
    paths += [path for path in test_paths if path not in known]
    if not paths:
        raise FileNotFoundError(
            f"no file matches '{pattern}' in {input_dir}. Set PATTERN to {SHAPES}, or "
            f"INPUT_DIR to the folder above them."
        )

    names = pd.Series(paths).str.removeprefix(f"{input_dir}/")
    folders = names.str.split("/")
    folder = folders.str[-2]
    # A label map may call a class like a split.
    classes = read_classes(input_dir, settings.label_map)
    is_mapped = folder.isin(map(str, classes or []))
    folder_split = folder.map(split_of).mask(is_mapped, "")
    split_above = folders.str[-3].map(split_of, na_action="ignore").fillna("")
    split = folder_split.where(folder_split != "", split_above).replace("", "train")
    is_test = split == "test"
    if is_test.all():
        raise FileNotFoundError(
            f"all files of '{pattern}' in {input_dir} are test images. Set PATTERN to "
            f"{SHAPES}, or INPUT_DIR to the folder above them."
        )

    is_not_text = folder.str.contains(storage.ESCAPED)
    is_outside = files.find_outside(paths, input_dir)
    is_class = (folder_split == "") & ~is_not_text & ~is_outside
    class_names = folder.where(is_class, "")
    _, labels = single_label_table(class_names[~is_test], classes)
    # Test images may be in folders of these classes, and so have labels; or in any folders.
    if not set(map(str, labels.classes)).issuperset(class_names[is_test]):
        class_names = class_names.mask(is_test, "")
    labelled, _ = single_label_table(class_names, list(labels.classes))
    problem = labelled["problem"].mask(folder_split != "", "no class folder")
    problem = problem.mask(is_not_text, "class name is not text").mask(
        is_test | is_outside, ""
    )
    images = pd.DataFrame({"image_id": names, "path": paths, "split": split})
    return pd.concat([images, labelled.assign(problem=problem)], axis=1), labels


def _warn_of_empty_folders(
    paths: list[str], pattern: str, settings: InputSettings
) -> None:
    """Print a warning that names class folders without images, which are not classes."""
    input_dir = settings.input_dir
    listed = files.list_folders(os.path.dirname(pattern), input_dir, settings)
    folders = {folder for folder in listed if not split_of(folder)}
    empty = sorted(folders.difference(map(os.path.dirname, paths)))
    if empty:
        names = [f"'{folder.removeprefix(f'{input_dir}/')}'" for folder in empty[:5]]
        print(
            f"WARNING: {len(empty)} of {len(folders)} class folders hold no image and "
            f"are left out: {', '.join(names)}{', …' if len(empty) > 5 else ''} "
            f"(PATTERN '{pattern}' in {input_dir})"
        )


def _list_test_images(pattern: str, settings: InputSettings) -> list[str]:
    """Return the images in test folders beside the split or class folders.

    They are right in the test folder, or in class folders in it.
    """
    parent = files.fixed_folder(settings.input_dir, pattern)
    folders = files.list_folders("*", parent, settings)
    file_pattern = os.path.basename(pattern)
    paths = []
    for folder in folders or [f"{parent}/test"]:  # a bucket lists no folders
        if split_of(folder) == "test" and storage.is_folder(folder):
            paths += files.list_images(file_pattern, folder, settings)
            paths += files.list_images(f"*/{file_pattern}", folder, settings)
    return paths
