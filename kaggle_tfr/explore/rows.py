"""Join the rows of CSVs with files: each image's path, split, labels and problem."""

import glob
import os
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files, splits
from kaggle_tfr.explore.csvs import read_csv, template_columns
from kaggle_tfr.explore.labels import (
    RESERVED,
    Table,
    first_problem,
    multi_label_table,
    read_classes,
    read_flags,
    single_label_table,
    split_labels,
    spread_codes,
    unlabel_test_rows,
    unlabelled_table,
)
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.splits import FOLDER_COLUMN, MISSING
from kaggle_tfr.naming import near_miss
from kaggle_tfr.schema import Labels

NO_ROW = "no row"  # begins the problem of a file that no CSV names


def read_label_csv(settings: InputSettings) -> Table:
    """Return the images of a CSV with a row per image, and their labels."""
    rows = read_csv(settings)
    split, _ = splits.read_splits(rows, settings.split_column)
    is_test = split == "test"
    classes = read_classes(settings.input_dir, settings.label_map)
    columns = settings.label_columns
    if not columns:
        labelled = unlabelled_table(rows.index)
    elif len(columns) > 1:
        labelled = read_flags(rows[columns], is_test, settings.label_kind, classes)
    elif settings.label_separator:
        labelled = split_labels(rows[columns[0]], settings.label_separator)
    else:
        text = _drop_placeholders(rows[columns[0]], is_test)
        labelled = single_label_table(text, classes)
    return complete_rows(settings, rows, labelled)


def _drop_placeholders(text: pd.Series, is_test: pd.Series) -> pd.Series:
    """Return the labels, without those of test rows if no other row has one of them."""
    classes = set(text[~is_test]) - set(MISSING)
    test_classes = set(text[is_test]) - set(MISSING)
    if not test_classes or classes & test_classes:
        return text
    print(
        f"The test rows of LABELS_CSV have labels such as '{min(test_classes)}', which "
        "are not classes of the other rows: they are read as images without labels."
    )
    return text.mask(is_test, "")


def read_mask_csv(settings: InputSettings) -> Table:
    """Return the images of a CSV of run-length codes, with a column per label."""
    rows = read_csv(settings)
    columns = settings.label_columns
    if len(columns) not in (1, 2):
        raise ValueError(
            f"LABEL_COLUMN is {settings.label_column!r}. With 'rle_csv' set it to the "
            "column of run-length codes, or to [label, code]."
        )
    ids, names = _split_mask_ids(rows, settings)
    codes = spread_codes(ids, names, rows[columns[-1]])
    images = rows.assign(**{settings.id_column: ids})[~ids.duplicated()]
    images = images.reset_index(drop=True)
    labelled = multi_label_table(codes.reset_index(drop=True), "masks", "")
    return complete_rows(settings, images, labelled)


def _split_mask_ids(
    rows: pd.DataFrame, settings: InputSettings
) -> tuple[pd.Series, pd.Series]:
    """Return the image id and the label of each run-length code.

    The label is in a column, or ends the id ("0011165.jpg_Fish"). Otherwise the ids are
    plain, and there is one label, called like the column of codes.
    """
    ids = rows[settings.id_column]
    columns = settings.label_columns
    if len(columns) == 2:
        return ids, rows[columns[0]]

    has_tail = ids.str.contains("_", regex=False)
    # Ids with a tail may be plain too, as Carvana's 00087a6bd4dc_01.jpg.
    is_plain = _are_plain_ids(rows, settings) if has_tail.all() else not has_tail.any()
    if is_plain:
        return ids, pd.Series(columns[0], rows.index)
    if not has_tail.all():
        without_tail = ids[~has_tail]
        raise ValueError(
            f"'rle_csv' takes ids such as '0011165.jpg_Fish', but {len(without_tail)} "
            f"of {len(ids)} have no '_', the first is '{without_tail.iloc[0]}'. Set "
            "LABEL_COLUMN to [label, code] if the labels have a column."
        )
    halves = ids.str.rpartition("_")
    return halves[0], halves[2]


def _are_plain_ids(rows: pd.DataFrame, settings: InputSettings) -> bool:
    """Return whether ids name existing files as they are, by a sample of the rows."""
    sample = rows.iloc[:: max(1, len(rows) // 20)]
    paths, _ = _fill_paths(sample, settings)
    return any(storage.exists(path) for path in paths if path)


def complete_rows(
    settings: InputSettings, rows: pd.DataFrame, labelled: Table
) -> Table:
    """Return the images of a CSV's rows, then of the files without a row, and labels.

    labelled: labels and problems, one row for each of `rows`, and their description.
    Raises: FileNotFoundError: no image exists; ValueError: a setting does not fit.
    """
    label_table, labels = labelled
    _check_label_names(labels)
    paths, path_problem = _fill_paths(rows, settings)
    split, split_problem = splits.read_splits(rows, settings.split_column)
    label_table = unlabel_test_rows(label_table, labels, split == "test")
    ids = _make_unique(rows, paths, settings)
    repeat_problem = _find_repeats(ids, label_table, split)
    problem = first_problem(
        repeat_problem, label_table["problem"], split_problem, path_problem
    )
    label_table["problem"] = problem.mask(rows[settings.id_column] == "", "no id")
    ids = ids.map(storage.escape)
    images = pd.DataFrame({"image_id": ids, "path": paths, "split": split})
    other_columns = _list_other_columns(rows, settings)
    images = pd.concat([images, label_table, other_columns], axis=1)
    unlisted = _list_files_without_row(images, labels, settings)
    if len(unlisted):
        images = pd.concat([images, unlisted], ignore_index=True)
    return images, labels


def _check_label_names(labels: Labels) -> None:
    """Raise a ValueError for a label column with the name of another column."""
    reserved = RESERVED.intersection(labels.label_columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of images.parquet. "
            "Rename the label in LABELS_CSV."
        )


def _list_other_columns(rows: pd.DataFrame, settings: InputSettings) -> pd.DataFrame:
    """Return the columns that are neither ids nor labels.

    Integers stay integers beside rows of another input that lacks their column.
    """
    used = [settings.id_column, *settings.label_columns]
    if not settings.split_column:
        splits.warn_unused(rows, used)
    others = rows.drop(columns=used)
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    integers = others.select_dtypes("integer")
    return others.astype(dict.fromkeys(integers, "Int64"))


def _find_repeats(ids: pd.Series, table: pd.DataFrame, split: pd.Series) -> pd.Series:
    """Return the problem of each row whose id has other rows, "" for other rows."""
    problem = pd.Series("", ids.index)
    problem = problem.mask(ids.duplicated(), "listed twice: the first row counts")
    names = first_problem(table["problem"], table["label_name"])
    for noun, values in (("labels", names), ("splits", split)):
        clash = ids.map(f"listed with different {noun}: " + _list_clashes(ids, values))
        problem = clash.fillna(problem)
    return problem


def _list_clashes(ids: pd.Series, values: pd.Series) -> pd.Series:
    """Return the values of each id that has several, as text, by the ids."""
    repeated = ids[ids.duplicated(keep=False)]
    values_of_id = values[repeated.index].groupby(repeated).unique().map(sorted)
    return values_of_id[values_of_id.map(len) > 1].str.join(", ")


def _make_unique(
    rows: pd.DataFrame, paths: pd.Series, settings: InputSettings
) -> pd.Series:
    """Return the ids; one that several CSVs' folders share gets its folder in front."""
    ids = rows[settings.id_column]
    if FOLDER_COLUMN not in rows:
        return ids
    is_shared = paths.groupby(ids).transform("nunique") > 1
    folders = rows[FOLDER_COLUMN].astype(str)
    return ids.mask(is_shared & (folders != ""), folders + "/" + ids)


def _fill_paths(
    rows: pd.DataFrame, settings: InputSettings
) -> tuple[pd.Series, pd.Series]:
    """Return the path of each row by PATH_TEMPLATE and "", or "" and its problem.

    Raises: ValueError: PATH_TEMPLATE names a column that the rows lack, or fits no row.
    """
    template = settings.path_template
    rows = rows.assign(image_id=rows[settings.id_column])  # templates know both names
    columns = list(template_columns(template))
    _check_template(template, columns, list(map(str, rows)))
    filled = [
        _fill_template(dict(zip(columns, values, strict=True)), settings)
        for values in rows[columns].itertuples(index=False, name=None)
    ]
    paths, problems = zip(*filled, strict=True)
    if not any(paths):
        source = f"PATH_TEMPLATE '{template}'"
        storage.check_inside(template, source, f"'{settings.input_dir}'")
        raise ValueError(
            f"{source} fits no row, the first is '{rows['image_id'].iloc[0]}': "
            f"{problems[0]}."
        )
    return pd.Series(paths, rows.index), pd.Series(problems, rows.index)


def _check_template(template: str, columns: list[str], existing: list[str]) -> None:
    """Raise a ValueError if one of the template's columns does not exist."""
    for column in columns:
        if column not in existing:
            raise ValueError(
                f"PATH_TEMPLATE '{template}' names the column '{column}', which does "
                f"not exist.{near_miss(column, existing)} The columns are "
                f"{', '.join(existing)}."
            )


def _fill_template(row: Mapping[str, Any], settings: InputSettings) -> tuple[str, str]:
    """Return the path of a row and "", or "" and its problem."""
    template = settings.path_template
    if row.get(FOLDER_COLUMN) == "":
        template = template.replace(f"{{{FOLDER_COLUMN}}}/", "")
    try:
        name = template.format_map(row)
    except IndexError:
        return "", f"id too short for PATH_TEMPLATE '{template}'"
    if storage.OUTSIDE.search(name):
        return "", "id is outside INPUT_DIR"
    return f"{settings.input_dir}/{storage.escape(name)}", ""


def _list_files_without_row(
    images: pd.DataFrame, labels: Labels, settings: InputSettings
) -> pd.DataFrame:
    """Return the files that no row names, which have a problem and no label.

    Raises: FileNotFoundError: none of the images exists.
    """
    listed = set(images["path"]) - {""}
    found = _find_beside(listed, settings)
    if listed.isdisjoint(found):
        raise FileNotFoundError(
            f"none of the {len(images)} images exists; the first would be "
            f"'{min(listed)}'. {len(found)} other files are in its folder or beside "
            "other images. Point INPUT_DIR at the folder above the images' "
            "folder, or set PATH_TEMPLATE."
        )
    image_dir = files.fixed_folder(settings.input_dir, settings.path_template)
    unlisted = pd.DataFrame({"path": sorted(found - listed)}, dtype=str)
    return unlisted.assign(
        image_id=unlisted["path"].str.removeprefix(f"{image_dir}/"),
        split="train",
        problem=f"{NO_ROW} in {os.path.basename(settings.labels_csv)}",
        label=-1,
        label_name="",
        **labels.blanks(),
    )


def _find_beside(paths: set[str], settings: InputSettings) -> set[str]:
    """Return the files that may be images in the folders of these paths."""
    ending = re.split("[}/]", settings.path_template)[-1]
    pattern = "*" + glob.escape(ending)
    found = set[str]()
    for folder in set(map(os.path.dirname, paths)):
        if storage.is_folder(folder):
            found.update(files.list_images(pattern, folder, settings))
    return found
