"""All inputs as one table: the main one, its test images, and further ones."""

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
    """(images, labels) of all inputs: one row an image, in their order; no image is opened.

    excluded: WORK_DIR and OUT_DIR, whose files are never input where they lie in INPUT_DIR.

    Columns: as of `read_input`, and source: 0 for the main input, then the number in MORE_INPUTS.
    Test images have split "test" and no label. An id of two sources gets the later one's number.
    Raises: FileNotFoundError: no folder, CSV or image is there; ValueError: a setting is wrong.
    """
    check_parameters(
        {"LIMIT": settings.limit, "MORE_INPUTS": list(settings.more_inputs)}
    )
    if (
        settings.source in ("csv", "rle_csv")
        and settings.labels_csv == settings.test_csv
    ):
        what = f"LABELS_CSV and TEST_CSV are both '{settings.test_csv}', which cannot hold labels"
        raise ValueError(
            f"{what} and ask for them. Set LABELS_CSV to the labelled images' file."
        )
    remote = storage.is_remote(input_dir)
    input_dir = (input_dir if remote else os.path.abspath(input_dir)).rstrip("/")
    settings = replace(
        settings, excluded=[work_dir(folder) for folder in excluded if folder]
    )
    if settings.source in (
        "folders",
        "tfrecords",
    ):  # which read all that is in INPUT_DIR
        _check_is_not_ours(input_dir, settings.excluded)
    images, labels = read_input(input_dir, settings)
    test = find_test_images(input_dir, settings, labels)
    _warn_of_mixed_tests(images, test)
    tables = [images.assign(source=0), *([test] if len(test) else [])]
    for number, given in enumerate(settings.more_inputs, 1):
        own = _read_more(input_dir, settings, number, given, labels)
        own = _keep_validation(own, images, number).assign(source=number)
        clash = own["image_id"].isin(pd.concat([table["image_id"] for table in tables]))
        own["image_id"] = own["image_id"].mask(clash, f"{number}/" + own["image_id"])
        tables.append(own)
    images = _drop_named_elsewhere(rows.stack_rows(tables))
    if labels.kind != "single":  # numbers of combinations, over all inputs
        has = images["label"] >= 0
        images.loc[has, "label"] = pd.factorize(images["label_name"][has], sort=True)[0]
    texts = ("image_id", "path", "split", "label_name", "problem")
    images = images.astype(dict.fromkeys(texts, str))
    if 0 < settings.limit < len(images):
        # Spread evenly: the first rows of class folders would all be of one class.
        places = np.arange(settings.limit) * len(images) // settings.limit
        images = images.iloc[places].reset_index(drop=True)
    return images, replace(labels, name=settings.name, bit_depth=settings.bit_depth)


def _check_is_not_ours(input_dir: str, excluded: Sequence[str]) -> None:
    """Raise a ValueError when INPUT_DIR is WORK_DIR or OUT_DIR, whose files are not input."""
    if storage.real_path(input_dir) in map(storage.real_path, excluded):
        raise ValueError(
            f"INPUT_DIR '{input_dir}' is also WORK_DIR or OUT_DIR, whose files are not input. "
            "Set OUT_DIR or WORK_DIR to another folder."
        )


def _warn_of_mixed_tests(images: pd.DataFrame, test: pd.DataFrame) -> None:
    """Prints that labels of test images are lost, where a TEST_CSV adds images without labels."""
    labelled = (images["split"] == "test") & (images["label"] >= 0)
    if len(test) and labelled.any():
        print(
            f"WARNING: {labelled.sum():,} images of the given test split have labels, the "
            f"{len(test):,} of TEST_CSV and TEST_PATH_TEMPLATE have none: test records are written "
            f'without labels. Set TEST_PATH_TEMPLATE: "" to keep the labels.'
        )


def _drop_named_elsewhere(images: pd.DataFrame) -> pd.DataFrame:
    """The table without the files that lack a row in one CSV, but have one in another."""
    lacks_row = images["problem"].str.startswith(rows.NO_ROW)
    if not lacks_row.any():
        return images
    unlisted = set(images["path"][lacks_row].tolist())
    named = unlisted.intersection(images["path"][~lacks_row].tolist())
    return images[~(lacks_row & images["path"].isin(list(named)))].reset_index(
        drop=True
    )


def read_input(input_dir: str, settings: InputSettings) -> Table:
    """(images, labels) of one input: one row an image, in its order; no image is opened.

    Columns: image_id, path (absolute or gs://), split, label (int64, -1 for none), label_name,
    problem ("" for a good row); for kinds "multi" (int8, 0 or 1) and "masks" (a run-length code or
    "") one per label, while `label` numbers the combinations; then the CSV's other columns.
    Raises: FileNotFoundError: no folder, CSV or image is there; ValueError: a setting is wrong.
    """
    if not storage.is_folder(input_dir or "/"):
        mend = "Give the images' folder, a gs:// address, or an attached Kaggle dataset's slug."
        raise FileNotFoundError(f"INPUT_DIR '{input_dir}' is no folder. {mend}")
    check_parameters({"SOURCE": settings.source, "LABEL_KIND": settings.label_kind})
    if settings.split_column and settings.source not in ("csv", "rle_csv"):
        what = f"SPLIT_COLUMN is '{settings.split_column}', but SOURCE is '{settings.source}'"
        raise ValueError(f'{what}, which has no columns. Set SPLIT_COLUMN to "".')
    sources = {"csv": rows.read_label_csv, "folders": folders.read_folders}
    sources |= {"rle_csv": rows.read_mask_csv, "tfrecords": read_records}
    images, labels = sources[settings.source](input_dir, settings)
    if settings.label_map and labels.kind != "single":
        raise ValueError(
            "LABEL_MAP numbers one class per image. Leave it empty for several labels."
        )
    return files.reject_links(images, input_dir), labels


def find_test_images(
    input_dir: str, settings: InputSettings, labels: Labels
) -> pd.DataFrame:
    """Rows of the images to predict: those of TEST_CSV, or all that TEST_PATH_TEMPLATE matches.

    None where both are the defaults and neither is there; class folders have their own, in test/.
    Raises: FileNotFoundError, ValueError: CSV and images are not both there, or do not fit.
    """
    template, csv = settings.test_path_template, settings.test_csv
    if not template or settings.source == "tfrecords":
        return pd.DataFrame()
    if (csv, template) == (DEFAULTS["TEST_CSV"], DEFAULTS["TEST_PATH_TEMPLATE"]):
        there = {
            name: storage.exists(f"{input_dir}/{name}") for name in (csv, "test_images")
        }
        if settings.source == "folders" or not any(there.values()):
            return pd.DataFrame()
        if not all(there.values()):
            has, lacks = sorted(there, key=lambda name: not there[name])
            what = f"'{input_dir}' has '{has}', but no '{lacks}': which are the test images?"
            mend = 'Set TEST_CSV ("" for none) and TEST_PATH_TEMPLATE ("" for no test images).'
            raise FileNotFoundError(f"{what} {mend}")
    images = (_read_test_csv if csv else _match_test_files)(input_dir, settings, labels)
    images = files.reject_links(images, input_dir)
    return images.assign(
        split="test", label=-1, label_name="", source=0, **labels.blanks()
    )


def _read_test_csv(
    input_dir: str, settings: InputSettings, labels: Labels
) -> pd.DataFrame:
    """Columns image_id, path, problem: the rows of TEST_CSV, then files that it does not name."""
    own = replace(
        settings,
        labels_csv=settings.test_csv,
        id_column=settings.test_id_column or settings.id_column,
        label_column="",
        label_map="",
        split_column="",
        path_template=settings.test_path_template,
    )
    ids = csvs.read_csv(input_dir, own, "TEST_CSV")[own.id_column]
    halves = ids.str.rpartition("_")  # of clouds' 0011165.jpg_Fish
    ids = halves[0] if halves[2].isin(labels.label_columns).all() else ids
    ids = (ids.drop_duplicates() if labels.kind == "masks" else ids).reset_index(
        drop=True
    )
    unlabelled = unlabelled_table(ids.index)
    try:
        # TEST_PATH_TEMPLATE may call the id as PATH_TEMPLATE does.
        names = pd.DataFrame(dict.fromkeys([settings.id_column, own.id_column], ids))
        images, _ = rows.complete_rows(input_dir, own, names, unlabelled)
    except (FileNotFoundError, ValueError) as error:
        text = re.sub(r"\bPATH_TEMPLATE", "TEST_PATH_TEMPLATE", str(error))
        raise type(error)(f"test images: {text}") from None
    return images[["image_id", "path", "problem"]]


def _match_test_files(
    input_dir: str, settings: InputSettings, _: Labels
) -> pd.DataFrame:
    """Columns image_id, path, problem of the files that TEST_PATH_TEMPLATE matches."""
    template = settings.test_path_template
    pattern = re.sub(r"\{.*?\}", "*", template)
    paths = files.list_images(pattern, input_dir or "/", input_dir, settings.excluded)
    if not paths:
        what = f"TEST_PATH_TEMPLATE '{template}' matches no file in '{input_dir}'."
        raise FileNotFoundError(f'{what} Mend it, or set it to "" for no test images.')
    folder = re.split(r"[{*?\[]", template)[0].rpartition("/")[0]
    ids = pd.Series(paths).str.removeprefix(f"{input_dir}/{folder}".rstrip("/") + "/")
    if re.search(r"\}\.\w+$", settings.path_template):  # there ids have no ending
        ids = ids.map(lambda name: os.path.splitext(name)[0])
    return pd.DataFrame({"image_id": ids, "path": paths, "problem": ""})


def _read_more(
    input_dir: str,
    settings: InputSettings,
    number: int,
    given: Mapping[str, Any],
    labels: Labels,
) -> pd.DataFrame:
    """The rows of a further input, whose labels are those of the main one, by their names."""
    changed = {
        name.lower(): value for name, value in given.items() if name != "INPUT_DIR"
    }
    own = replace(settings, **changed | {"label_map": "", "more_inputs": ()})
    if "LABEL_KIND" not in given and labels.kind in ("single", "multi"):
        own = replace(
            own, label_kind=labels.kind
        )  # or a few rows might look like the other kind
    if "SPLIT_COLUMN" not in given and own.source not in ("csv", "rle_csv"):
        own = replace(own, split_column="")
    below = storage.resolve(input_dir, given["INPUT_DIR"])
    folder = below if storage.is_folder(below) else find_input(given["INPUT_DIR"])
    images, its = read_input(folder, own)
    where = f"MORE_INPUTS, input {number} ('{folder}')"
    if its.kind != labels.kind:
        what = f"{where} has labels of the kind '{its.kind}', the main input '{labels.kind}'."
        raise ValueError(
            f"{what} Set its SOURCE and LABEL_COLUMN to labels of the same kind."
        )
    renamed: Any = given.get("LABEL_MAP") or {}
    if isinstance(renamed, str):
        renamed = load_label_map(folder, renamed)
    new_name = {
        str(name): str(renamed.get(str(name), name) or "") for name in its.classes
    }
    known = {"", *(str(name) for name in labels.classes if name is not None)}
    if unknown := [name for name, new in new_name.items() if new not in known]:
        what = f"{where} has {len(unknown)} classes that the main input lacks, the first is"
        mend = f'LABEL_MAP: {{"{unknown[0]}": "a class of the main input"}}, or "" to leave it out'
        hint = near_miss(unknown[0], known)
        raise ValueError(f"{what} '{unknown[0]}'.{hint} Give it {mend}.")
    return _align_labels(images, its, labels, new_name)


def _align_labels(
    images: pd.DataFrame, its: Labels, labels: Labels, new_name: Mapping[str, str]
) -> pd.DataFrame:
    """The rows with the main input's labels. new_name: of each of their classes, "" for none."""
    good = images["problem"] == ""
    reasons = images["problem"].mask(
        good & (images["split"] == "test"), "of a test set not ours"
    )
    if labels.kind == "single":
        text = images["label_name"].map(lambda name: new_name.get(name, name))
        left = good & (text == "") & (images["label_name"] != "")
        reasons = reasons.mask(left, "left out by LABEL_MAP: " + images["label_name"])
        labelled, _ = single_label_table(text, list(labels.classes))
    else:
        blank: Any = "" if labels.kind == "masks" else np.int8(0)
        columns = images[list(its.label_columns)].rename(columns=new_name)
        columns = columns.reindex(columns=list(labels.label_columns), fill_value=blank)
        labelled, _ = multi_label_table(columns, labels.kind, reasons)
    others = images.drop(columns=[*its.label_columns, "label", "label_name", "problem"])
    return pd.concat([others, labelled.assign(problem=reasons)], axis=1)


def _keep_validation(
    images: pd.DataFrame, main: pd.DataFrame, number: int
) -> pd.DataFrame:
    """The rows of a further input: of its own splits only that of validation stays.

    It is called as the main input calls its own: nothing may train on images of either.
    """
    ours = [
        split
        for split in main["split"].unique()
        if SPLIT_NAMES.get(split) == "validation"
    ]
    name = ours[0] if len(ours) == 1 else "validation"
    is_validation = images["split"].map(SPLIT_NAMES) == "validation"
    if count := int((is_validation & (images["problem"] == "")).sum()):
        print(
            f"MORE_INPUTS, input {number}: {count:,} images of its own validation split stay "
            f"validation images (split '{name}'); no fold trains on them"
        )
    return images.assign(split=np.where(is_validation, name, "train"))


def save_submission(
    images: pd.DataFrame, input_dir: str, settings: InputSettings, work_dir: str
) -> None:
    """Copies TEST_CSV beside images.parquet, for the order and the columns of submission.csv.

    The copy goes into parts, which are published: it never holds the labels of the test images.
    """
    source, path = (
        storage.resolve(input_dir, settings.test_csv),
        storage.join(work_dir, SUBMISSION),
    )
    asked = settings.test_csv and (images["split"] == "test").any()
    data = b""
    if asked and storage.exists(source):
        try:
            files.check_named_file(source, input_dir, "TEST_CSV")
            data = _hide_labels(source, images, settings)
        except ValueError as error:
            print(f"WARNING: there will be no {SUBMISSION} in WORK_DIR: {error}")
    if data:
        storage.write_atomically(path, data)
    else:
        storage.remove(path)


def _hide_labels(path: str, images: pd.DataFrame, settings: InputSettings) -> bytes:
    """The bytes of a TEST_CSV; one value in every row of a column that tells labels apart.

    A template for submissions keeps its bytes: it is called so, or has the same label in all rows.
    """
    if "submission" in os.path.basename(path).lower():
        return storage.read_bytes(path)
    own = replace(settings, id_column=settings.test_id_column or settings.id_column)
    table = csvs.read_as_text(path, own.id_column, "TEST_CSV")
    columns = (
        settings.label_columns[-1:]
        if settings.source == "rle_csv"
        else own.label_columns
    )
    names = {*columns, *images["label_name"]} - {own.id_column}
    telling = [name for name in table if name in names and len(set(table[name])) > 1]
    if not telling:
        return storage.read_bytes(path)
    for name in telling:
        table[name] = "" if settings.source == "rle_csv" else table[name].min()
    print(
        f"TEST_CSV '{path}' holds labels in {', '.join(map(repr, telling))}: {SUBMISSION} in "
        f"WORK_DIR keeps its rows and columns, but has one value in all rows of these columns."
    )
    return table.to_csv(index=False).encode()
