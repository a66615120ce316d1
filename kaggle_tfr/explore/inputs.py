"""Read all inputs as one table: the main input, its test images, and further inputs."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import csvs, files, folders, rows
from kaggle_tfr.explore.groups import add_groups
from kaggle_tfr.explore.labels import (
    Table,
    load_label_map,
    multi_label_table,
    number_names,
    single_label_table,
    unlabelled_table,
)
from kaggle_tfr.explore.records import read_records
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.mounts import WORK, find_input, output_dir
from kaggle_tfr.naming import SPLIT_NAMES, SUBMISSION, near_miss
from kaggle_tfr.parameters import DEFAULTS, check_parameters
from kaggle_tfr.schema import Labels


def read_table(
    input_dir: str, settings: InputSettings, excluded: Sequence[str] = ()
) -> Table:
    """Return one row per image of all inputs, and their labels. No image is opened.

    excluded: WORK_DIR and OUT_DIR, whose files are not input where they are in
    INPUT_DIR.

    Columns: image_id; path (absolute or gs://); split; label (int64, -1 for none);
    label_name; problem ("" for a good row); source (0 for the main input, else the
    number in MORE_INPUTS); input_dir (the folder of its source, a category); for
    several labels (int8, 0 or 1) and masks (run-length codes, "" for none) one column
    per label, and `label` numbers the combinations; other columns of a CSV; the groups
    under the text of GROUP_COLUMN, if that is a rule. An id that an earlier input has
    gets the number of its input in front.
    Raises: FileNotFoundError: a folder, CSV or all images are missing; ValueError: a
    setting does not fit.
    """
    settings = _complete_settings(settings, input_dir, excluded)
    images, labels = _read_inputs(settings)
    images = _drop_listed_elsewhere(images)
    if labels.kind != "single":
        combinations = images["label_name"].where(images["label"] >= 0)
        images["label"], _ = pd.factorize(combinations, sort=True)
    texts = ["image_id", "path", "split", "label_name", "problem"]
    images = images.astype({**dict.fromkeys(texts, str), "input_dir": "category"})
    images = _limit_rows(images, settings.limit)
    images = add_groups(images, settings.group_column)
    return images, replace(labels, name=settings.name, bit_depth=settings.bit_depth)


def _limit_rows(images: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Return `limit` rows spread evenly, or all if there are fewer or it is 0."""
    if not 0 < limit < len(images):
        return images
    # The first rows of class folders would all be of one class.
    chosen = np.arange(limit) * len(images) // limit
    return images.iloc[chosen].reset_index(drop=True)


def _read_inputs(settings: InputSettings) -> Table:
    """Return the rows of the main input, of its test images, and of further inputs."""
    images, labels = _read_input(settings)
    if _has_test_images(settings):
        test_images = _read_test_images(settings, labels)
        _warn_of_lost_labels(images, test_images)
        images = pd.concat([images, test_images], ignore_index=True)
    images = images.assign(source=0, input_dir=settings.input_dir)
    for number, changes in enumerate(settings.more_inputs, 1):
        more = _read_more(settings, number, changes, labels)
        more = _keep_validation(more, images["split"], number)
        images = _append_input(images, more, number)
    return images, labels


def _append_input(
    images: pd.DataFrame, more: pd.DataFrame, number: int
) -> pd.DataFrame:
    """Return the rows, then those of a further input; repeated ids get its number."""
    ids = more["image_id"]
    ids = ids.mask(ids.isin(images["image_id"]), f"{number}/" + ids)
    more = more.assign(image_id=ids, source=number)
    return pd.concat([images, more], ignore_index=True)


def _drop_listed_elsewhere(images: pd.DataFrame) -> pd.DataFrame:
    """Drop files that lack a row in one CSV but have one in another."""
    is_unlisted = images["problem"].str.startswith(rows.NO_ROW)
    if not is_unlisted.any():  # spares the search, half a second in 100,000 rows
        return images
    is_listed = images["path"].isin(images["path"][~is_unlisted])
    return images[~(is_unlisted & is_listed)].reset_index(drop=True)


def _complete_settings(
    settings: InputSettings, input_dir: str, excluded: Sequence[str]
) -> InputSettings:
    """Return the settings with the folders. Raises: ValueError: they do not fit."""
    checked = ("SOURCE", "LABEL_KIND", "LIMIT", "MORE_INPUTS")
    check_parameters({name: getattr(settings, name.lower()) for name in checked})
    if settings.reads_csv and settings.labels_csv == settings.test_csv:
        raise ValueError(
            f"LABELS_CSV and TEST_CSV are both '{settings.test_csv}'. Set LABELS_CSV "
            "to the CSV of the labelled images."
        )
    if not storage.is_remote(input_dir):
        input_dir = os.path.abspath(input_dir)
    outputs = [output_dir(folder) for folder in excluded if folder]
    if not settings.reads_csv:
        _check_not_output(input_dir, outputs)
    # Other recipes may have work folders beside this one.
    work_folders = output_dir(WORK)
    if work_folders in map(os.path.dirname, outputs):
        outputs.append(work_folders)
    return replace(settings, input_dir=input_dir.rstrip("/"), excluded=outputs)


def _check_not_output(input_dir: str, outputs: Sequence[str]) -> None:
    """Raise a ValueError if INPUT_DIR is a folder of output."""
    if storage.real_path(input_dir) in map(storage.real_path, outputs):
        raise ValueError(
            f"INPUT_DIR '{input_dir}' is also WORK_DIR or OUT_DIR, whose files are not "
            "input. Set OUT_DIR or WORK_DIR to another folder."
        )


def _read_input(settings: InputSettings) -> Table:
    """Return the rows of one input in its order, and its labels."""
    input_dir = settings.input_dir
    if not storage.is_folder(input_dir):
        raise FileNotFoundError(
            f"INPUT_DIR '{input_dir}' is not a folder. Give the images' folder, a "
            "gs:// address, or a Kaggle slug."
        )
    if settings.split_column and not settings.reads_csv:
        raise ValueError(
            f"SPLIT_COLUMN is '{settings.split_column}', but SOURCE is "
            f"'{settings.source}', which has no columns. Set SPLIT_COLUMN to \"\"."
        )
    readers = {
        "csv": rows.read_label_csv,
        "rle_csv": rows.read_mask_csv,
        "folders": folders.read_folders,
        "tfrecords": read_records,
    }
    images, labels = readers[settings.source](settings)
    if settings.label_map and labels.kind != "single":
        raise ValueError(
            "LABEL_MAP numbers one class per image. Leave it empty for several labels."
        )
    return files.reject_links(images, input_dir), labels


def _has_test_images(settings: InputSettings) -> bool:
    """Return whether TEST_CSV or TEST_PATH_TEMPLATE is set, or their defaults exist.

    Class folders have their test images in a folder test/.
    """
    csv = settings.test_csv
    template = settings.test_path_template
    if not template or settings.source == "tfrecords":
        return False
    if (csv, template) != (DEFAULTS["TEST_CSV"], DEFAULTS["TEST_PATH_TEMPLATE"]):
        return True
    return settings.reads_csv and _has_default_tests(settings.input_dir, csv)


def _has_default_tests(input_dir: str, csv: str) -> bool:
    """Return whether the default CSV and folder of test images exist.

    Raises: FileNotFoundError: only one of them exists.
    """
    names = {csv, "test_images"}
    existing = {name for name in names if storage.exists(f"{input_dir}/{name}")}
    if len(existing) == 1:
        raise FileNotFoundError(
            f"'{input_dir}' has '{min(existing)}', but no '{min(names - existing)}': "
            "which are the test images? Set TEST_CSV (empty for none) and "
            "TEST_PATH_TEMPLATE (empty for no test images)."
        )
    return bool(existing)


def _read_test_images(settings: InputSettings, labels: Labels) -> pd.DataFrame:
    """Return the images to predict: TEST_CSV's rows, or TEST_PATH_TEMPLATE's files."""
    if settings.test_csv:
        images = _read_test_csv(settings, labels)
    else:
        images = _match_test_files(settings)
    images = files.reject_links(images, settings.input_dir)
    return images.assign(split="test", label=-1, label_name="", **labels.blanks())


def _read_test_csv(settings: InputSettings, labels: Labels) -> pd.DataFrame:
    """Return image_id, path and problem of TEST_CSV's rows and of unlisted files."""
    test_settings = replace(
        settings,
        labels_csv=settings.test_csv,
        id_column=settings.test_id_column or settings.id_column,
        label_column="",
        split_column="",
        path_template=settings.test_path_template,
    )
    ids = _read_test_ids(test_settings, labels.label_columns)
    # TEST_PATH_TEMPLATE may call the id as PATH_TEMPLATE does.
    names = pd.DataFrame({settings.id_column: ids, test_settings.id_column: ids})
    try:
        unlabelled = unlabelled_table(ids.index)
        images, _ = rows.complete_rows(test_settings, names, unlabelled)
    except (FileNotFoundError, ValueError) as error:
        text = re.sub(r"\bPATH_TEMPLATE", "TEST_PATH_TEMPLATE", str(error))
        raise type(error)(f"test images: {text}") from None
    return images[["image_id", "path", "problem"]]


def _read_test_ids(
    test_settings: InputSettings, label_columns: Sequence[str]
) -> pd.Series:
    """Return the ids in TEST_CSV; an image has a row, or a row for each label."""
    ids = csvs.read_csv(test_settings, "TEST_CSV")[test_settings.id_column]
    if not label_columns:
        return ids
    halves = ids.str.rpartition("_")  # such as 0011165.jpg_Fish
    if halves[2].isin(label_columns).all():
        ids = halves[0]
    return ids.drop_duplicates().reset_index(drop=True)


def _match_test_files(settings: InputSettings) -> pd.DataFrame:
    """Return image_id, path and problem of the files of TEST_PATH_TEMPLATE."""
    template = settings.test_path_template
    pattern = re.sub(r"\{.*?\}", "*", template)
    paths = files.list_images(pattern, settings.input_dir, settings)
    if not paths:
        raise FileNotFoundError(
            f"TEST_PATH_TEMPLATE '{template}' matches no file in "
            f"'{settings.input_dir}'. "
            f'Fix it, or set it to "" for no test images.'
        )
    folder = files.fixed_folder(settings.input_dir, pattern)
    ids = pd.Series(paths).str.removeprefix(f"{folder}/")
    if re.search(r"\}\.\w+$", settings.path_template):  # ids have no ending
        ids = ids.str.replace(r"\.[^./]+$", "", regex=True)
    return pd.DataFrame({"image_id": ids, "path": paths, "problem": ""})


def _warn_of_lost_labels(images: pd.DataFrame, test_images: pd.DataFrame) -> None:
    """Print a warning if images of SPLIT_COLUMN's test split lose their labels."""
    n_labelled = ((images["split"] == "test") & (images["label"] >= 0)).sum()
    if n_labelled:
        print(
            f"WARNING: {n_labelled:,} images of the input's test split have labels, "
            f"the {len(test_images):,} of TEST_CSV and TEST_PATH_TEMPLATE have none: "
            "test records are written without labels. Leave TEST_PATH_TEMPLATE empty "
            "to keep the labels."
        )


def _read_more(
    settings: InputSettings, number: int, changes: Mapping[str, Any], labels: Labels
) -> pd.DataFrame:
    """Return the rows of a further input, with the labels of the main one.

    changes: the parameters that differ from the main input's. Its LABEL_MAP has the
    main input's name of a class, "" to leave the class out.
    """
    settings = _change_settings(settings, changes, labels.kind)
    folder = settings.input_dir
    images, more_labels = _read_input(settings)
    source = f"MORE_INPUTS, input {number} ('{changes['INPUT_DIR']}')"
    if more_labels.kind != labels.kind:
        raise ValueError(
            f"{source} has labels of the kind '{more_labels.kind}', the main input "
            f"'{labels.kind}'. Set its SOURCE and LABEL_COLUMN to labels of this kind."
        )
    label_map = load_label_map(folder, changes.get("LABEL_MAP") or {})
    names = more_labels.label_columns or number_names(more_labels.classes)
    new_names = {name: str(label_map.get(name, name) or "") for name in names}
    _check_classes(new_names, labels, source)
    return _align_labels(images, new_names, labels).assign(input_dir=folder)


def _change_settings(
    settings: InputSettings, changes: Mapping[str, Any], label_kind: str
) -> InputSettings:
    """Return the settings of a further input, which reads its own classes.

    Without a SPLIT_COLUMN it has that of the main input, if it is a CSV too.
    """
    folder = storage.resolve(settings.input_dir, changes["INPUT_DIR"])
    if not storage.is_folder(folder):
        folder = find_input(changes["INPUT_DIR"], beside=settings.input_dir)
    # A few rows can be too few to detect the kind of labels.
    values: dict[str, Any] = {"label_kind": label_kind}
    values |= {name.lower(): value for name, value in changes.items()}
    # Its LABEL_MAP renames classes later, see `_read_more`; it does not number them.
    values |= {"input_dir": folder.rstrip("/"), "label_map": ""}
    settings = replace(settings, **values)
    if not settings.reads_csv and "SPLIT_COLUMN" not in changes:
        settings = replace(settings, split_column="")
    return settings


def _check_classes(new_names: Mapping[str, str], labels: Labels, source: str) -> None:
    """Raise a ValueError for a class of a further input that the main input lacks."""
    known = {"", *number_names(labels.classes)}
    unknown = [name for name, new_name in new_names.items() if new_name not in known]
    if unknown:
        raise ValueError(
            f"{source} has {len(unknown)} classes that the main input lacks, the first "
            f"is '{unknown[0]}'.{near_miss(unknown[0], known)} Give it LABEL_MAP: "
            f'{{"{unknown[0]}": "a class of the main input"}}, or "" to leave it out.'
        )


def _align_labels(
    images: pd.DataFrame, new_names: Mapping[str, str], labels: Labels
) -> pd.DataFrame:
    """Return a further input's rows with the main input's labels.

    new_names: the main input's class for each of the further input's, "" for none.
    """
    if labels.kind == "single":
        labelled = _rename_classes(images, new_names, labels.classes)
    else:
        columns = _rename_columns(images, new_names, labels.blanks())
        labelled, _ = multi_label_table(columns, labels.kind, images["problem"])
        images = images.drop(columns=list(new_names))
    problem = labelled["problem"]
    is_test = (problem == "") & (images["split"] == "test")
    labelled["problem"] = problem.mask(is_test, "test image of a further input")
    images = images.drop(columns=["label", "label_name", "problem"])
    return pd.concat([images, labelled], axis=1)


def _rename_classes(
    images: pd.DataFrame, new_names: Mapping[str, str], classes: Sequence[Any]
) -> pd.DataFrame:
    """Return label, label_name and problem by the main input's classes."""
    names = images["label_name"]
    renamed = names.map({**new_names, "": ""})
    labelled, _ = single_label_table(renamed, list(classes))
    problem = images["problem"]
    is_left_out = (problem == "") & (renamed == "") & (names != "")
    problem = problem.mask(is_left_out, "left out by LABEL_MAP: " + names)
    return labelled.assign(problem=problem)


def _rename_columns(
    images: pd.DataFrame, new_names: Mapping[str, str], blanks: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the main input's label columns, blank where the further input has none."""
    columns = pd.DataFrame(blanks, images.index)
    for name, new_name in new_names.items():
        if new_name:
            has_label = images[name] != blanks[new_name]
            columns[new_name] = columns[new_name].mask(has_label, images[name])
    return columns


def _keep_validation(
    images: pd.DataFrame, main_splits: pd.Series, number: int
) -> pd.DataFrame:
    """Return a further input's rows: its validation images stay so, all others train.

    Their split gets the name that the main input's validation split has. Test images
    already have a problem, by `_align_labels`, so they are not trained on.
    """
    names = main_splits[main_splits.map(SPLIT_NAMES) == "validation"].unique()
    name = names[0] if len(names) == 1 else "validation"
    is_validation = images["split"].map(SPLIT_NAMES) == "validation"
    count = (is_validation & (images["problem"] == "")).sum()
    if count:
        print(
            f"MORE_INPUTS, input {number}: {count:,} images of its validation split "
            f"stay validation images (split '{name}'); no fold trains on them"
        )
    return images.assign(split=np.where(is_validation, name, "train"))


def save_submission(
    images: pd.DataFrame, input_dir: str, settings: InputSettings, work_dir: str
) -> None:
    """Copy TEST_CSV to WORK_DIR, for the order and the columns of submission.csv.

    The copy goes into parts, which are published. A TEST_CSV that is not called a
    submission may contain the labels of the test images: it is not copied.
    """
    path = storage.join(work_dir, SUBMISSION)
    source = storage.resolve(input_dir, settings.test_csv)
    is_template = "submission" in os.path.basename(settings.test_csv).lower()
    has_tests = (images["split"] == "test").any()
    if is_template and has_tests and storage.exists(source):
        files.check_named_file(source, input_dir, "TEST_CSV")
        storage.write_atomically(path, storage.read_bytes(source))
    else:
        storage.remove(path)
