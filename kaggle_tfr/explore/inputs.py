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
from kaggle_tfr.explore.labels import (
    Table,
    load_label_map,
    multi_label_table,
    single_label_table,
    unlabelled_table,
)
from kaggle_tfr.explore.records import read_records
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.mounts import find_input, work_dir
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
    number in MORE_INPUTS); for several labels (int8, 0 or 1) and masks (run-length
    codes, "" for none) one column per label, and `label` numbers the combinations;
    other columns of a CSV. An id that an earlier input has gets the number of its input
    in front.
    Raises: FileNotFoundError: a folder, CSV or all images are missing; ValueError: a
    setting does not fit.
    """
    settings = _complete_settings(settings, input_dir, excluded)
    tables, labels = _read_inputs(settings)
    images = _drop_listed_elsewhere(pd.concat(tables, ignore_index=True))
    if labels.kind != "single":
        has_label = images["label"] >= 0
        names = images["label_name"][has_label]
        images.loc[has_label, "label"] = pd.factorize(names, sort=True)[0]
    texts = ["image_id", "path", "split", "label_name", "problem"]
    images = images.astype(dict.fromkeys(texts, str))
    if 0 < settings.limit < len(images):
        # Spread evenly: the first rows of class folders would all be of one class.
        chosen = np.arange(settings.limit) * len(images) // settings.limit
        images = images.iloc[chosen].reset_index(drop=True)
    return images, replace(labels, name=settings.name, bit_depth=settings.bit_depth)


def _read_inputs(settings: InputSettings) -> tuple[list[pd.DataFrame], Labels]:
    """Return the rows of the main input, of its test images, and of further inputs."""
    images, labels = _read_input(settings)
    tables = [images.assign(source=0)]
    if _has_test_images(settings):
        test_images = _read_test_images(settings, labels)
        _warn_of_lost_labels(images, test_images)
        tables.append(test_images.assign(source=0))
    for number, changes in enumerate(settings.more_inputs, 1):
        more = _read_more(settings, number, changes, (images, labels))
        known = pd.concat([table["image_id"] for table in tables])
        ids = more["image_id"]
        ids = ids.mask(ids.isin(known), f"{number}/" + ids)
        tables.append(more.assign(image_id=ids, source=number))
    return tables, labels


def _drop_listed_elsewhere(images: pd.DataFrame) -> pd.DataFrame:
    """Drop files that lack a row in one CSV but have one in another."""
    is_unlisted = images["problem"].str.startswith(rows.NO_ROW)
    if not is_unlisted.any():
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
            f"LABELS_CSV and TEST_CSV are both '{settings.test_csv}', which cannot "
            "both hold labels and lack them. Set LABELS_CSV to the labelled images' "
            "file."
        )
    if not storage.is_remote(input_dir):
        input_dir = os.path.abspath(input_dir)
    outputs = [work_dir(folder) for folder in excluded if folder]
    is_output = storage.real_path(input_dir) in map(storage.real_path, outputs)
    if is_output and not settings.reads_csv:
        raise ValueError(
            f"INPUT_DIR '{input_dir}' is also WORK_DIR or OUT_DIR, whose files are not "
            "input. Set OUT_DIR or WORK_DIR to another folder."
        )
    return replace(settings, input_dir=input_dir.rstrip("/"), excluded=outputs)


def _read_input(settings: InputSettings) -> Table:
    """Return the rows of one input in its order, and its labels."""
    input_dir = settings.input_dir
    if not storage.is_folder(input_dir):
        raise FileNotFoundError(
            f"INPUT_DIR '{input_dir}' is not a folder. Give the images' folder, a "
            "gs:// address, or the slug of an attached Kaggle dataset."
        )
    if settings.split_column and not settings.reads_csv:
        raise ValueError(
            f"SPLIT_COLUMN is '{settings.split_column}', but SOURCE is "
            f"'{settings.source}', which has no columns. Set SPLIT_COLUMN to \"\"."
        )
    if settings.source == "tfrecords":
        images, labels = read_records(input_dir, settings)
    elif settings.source == "folders":
        images, labels = folders.read_folders(settings)
    elif settings.source == "rle_csv":
        images, labels = rows.read_mask_csv(settings)
    else:
        images, labels = rows.read_label_csv(settings)
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
    if settings.source == "folders":
        return False

    input_dir = settings.input_dir
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
    id_column = test_settings.id_column
    ids = csvs.read_csv(test_settings, "TEST_CSV")[id_column]
    if labels.label_columns:  # a row may be a label's, such as 0011165.jpg_Fish
        halves = ids.str.rpartition("_")
        if halves[2].isin(labels.label_columns).all():
            ids = halves[0]
        ids = ids.drop_duplicates().reset_index(drop=True)
    # TEST_PATH_TEMPLATE may call the id as PATH_TEMPLATE does.
    names = pd.DataFrame({settings.id_column: ids, id_column: ids})
    try:
        unlabelled = unlabelled_table(ids.index)
        images, _ = rows.complete_rows(test_settings, names, unlabelled)
    except (FileNotFoundError, ValueError) as error:
        text = re.sub(r"\bPATH_TEMPLATE", "TEST_PATH_TEMPLATE", str(error))
        raise type(error)(f"test images: {text}") from None
    return images[["image_id", "path", "problem"]]


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
    """Print a warning if a given test split has labels that TEST_CSV's images lack."""
    n_labelled = ((images["split"] == "test") & (images["label"] >= 0)).sum()
    if n_labelled:
        print(
            f"WARNING: {n_labelled:,} images of the given test split have labels, the "
            f"{len(test_images):,} of TEST_CSV and TEST_PATH_TEMPLATE have none: test "
            "records are written without labels. Leave TEST_PATH_TEMPLATE empty to "
            "keep the labels."
        )


def _read_more(
    settings: InputSettings, number: int, changes: Mapping[str, Any], main: Table
) -> pd.DataFrame:
    """Return the rows of a further input, with the labels and splits of the main one.

    changes: the parameters that differ from the main input's. Its LABEL_MAP has the
    main input's name of a class, "" to leave the class out.
    """
    main_images, labels = main
    folder = storage.resolve(settings.input_dir, changes["INPUT_DIR"])
    if not storage.is_folder(folder):
        folder = find_input(changes["INPUT_DIR"])
    # A few rows could look like another kind of labels.
    values: dict[str, Any] = {"label_kind": labels.kind}
    values |= {name.lower(): value for name, value in changes.items()}
    values |= {"input_dir": folder.rstrip("/"), "label_map": ""}
    settings = replace(settings, **values)
    if not settings.reads_csv and "SPLIT_COLUMN" not in changes:
        settings = replace(settings, split_column="")
    images, own_labels = _read_input(settings)

    source = f"MORE_INPUTS, input {number} ('{folder}')"
    if own_labels.kind != labels.kind:
        raise ValueError(
            f"{source} has labels of the kind '{own_labels.kind}', the main input "
            f"'{labels.kind}'. Set its SOURCE and LABEL_COLUMN to labels of this kind."
        )
    label_map = load_label_map(folder, changes.get("LABEL_MAP") or {})
    new_names = _map_classes(own_labels, labels, label_map, source)
    images = _align_labels((images, own_labels), new_names, labels)
    return _keep_validation(images, main_images, number)


def _map_classes(
    own_labels: Labels, labels: Labels, label_map: Mapping[str, Any], source: str
) -> dict[str, str]:
    """Return the main input's class for each of a further input's, "" for none."""
    names = map(str, own_labels.classes)
    new_names = {name: str(label_map.get(name, name) or "") for name in names}
    known = {"", *map(str, labels.classes)}
    unknown = [name for name, new_name in new_names.items() if new_name not in known]
    if unknown:
        raise ValueError(
            f"{source} has {len(unknown)} classes that the main input lacks, the first "
            f"is '{unknown[0]}'.{near_miss(unknown[0], known)} Give it LABEL_MAP: "
            f'{{"{unknown[0]}": "a class of the main input"}}, or "" to leave it out.'
        )
    return new_names


def _align_labels(
    table: Table, new_names: Mapping[str, str], labels: Labels
) -> pd.DataFrame:
    """Return a further input's rows with the main input's labels."""
    images, own_labels = table
    problem = images["problem"]
    is_good = problem == ""
    is_test = images["split"] == "test"
    problem = problem.mask(is_good & is_test, "test image of a further input")
    if labels.kind == "single":
        names = images["label_name"]
        renamed = names.map({**new_names, "": ""})
        is_left_out = is_good & (renamed == "") & (names != "")
        problem = problem.mask(is_left_out, "left out by LABEL_MAP: " + names)
        labelled, _ = single_label_table(renamed, list(labels.classes))
    else:
        columns = images[list(own_labels.label_columns)]
        columns = _align_columns(columns, list(new_names.values()), labels.blanks())
        labelled, _ = multi_label_table(columns, labels.kind, problem)
    used = [*own_labels.label_columns, "label", "label_name", "problem"]
    others = images.drop(columns=used)
    return pd.concat([others, labelled.assign(problem=problem)], axis=1)


def _align_columns(
    columns: pd.DataFrame, new_names: list[str], blanks: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the columns of `blanks`, filled from those that get their names."""
    aligned = pd.DataFrame(blanks, columns.index)
    for name, new_name in zip(columns, new_names, strict=True):
        if new_name:
            is_blank = columns[name] == blanks[new_name]
            aligned[new_name] = columns[name].mask(is_blank, aligned[new_name])
    return aligned


def _keep_validation(
    images: pd.DataFrame, main_images: pd.DataFrame, number: int
) -> pd.DataFrame:
    """Return a further input's rows: its validation split stays, all others train.

    That split is called as in the main input, so that no fold trains on its images.
    """
    main_splits = main_images["split"].unique()
    names = [name for name in main_splits if SPLIT_NAMES.get(name) == "validation"]
    name = names[0] if len(names) == 1 else "validation"
    is_validation = images["split"].map(SPLIT_NAMES) == "validation"
    count = (is_validation & (images["problem"] == "")).sum()
    if count:
        print(
            f"MORE_INPUTS, input {number}: {count:,} images of its own validation "
            f"split stay validation images (split '{name}'); no fold trains on them"
        )
    return images.assign(split=np.where(is_validation, name, "train"))


def save_submission(
    images: pd.DataFrame, input_dir: str, settings: InputSettings, work_dir: str
) -> None:
    """Copy TEST_CSV to WORK_DIR, for the order and the columns of submission.csv.

    The copy goes into parts, which are published. A TEST_CSV that is not called a
    submission may hold the labels of the test images: it is not copied.
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
