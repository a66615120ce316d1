"""Join the rows of CSVs with files: each image's path, split, labels and problem."""

import glob
import os
import re
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files, splits
from kaggle_tfr.explore.csvs import read_csv, template_columns
from kaggle_tfr.explore.labels import (
    RESERVED,
    Table,
    multi_label_table,
    read_classes,
    read_flags,
    single_label_table,
    split_labels,
    spread_codes,
    unlabelled_table,
)
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.splits import FOLDER_COLUMN, MISSING
from kaggle_tfr.naming import near_miss
from kaggle_tfr.schema import Labels

NO_ROW = "no row"  # begins the problem of a file that no CSV names


def read_label_csv(settings: InputSettings) -> Table:
    """Return the images of a CSV with a row per image, labelled in one or more columns."""
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
        f"are not classes of the other rows: they are read as test images without labels."
    )
    return text.mask(is_test, "")


def read_mask_csv(settings: InputSettings) -> Table:
    """Return the images of a CSV of run-length codes, with a column of codes per label."""
    rows = read_csv(settings)
    columns = settings.label_columns
    if len(columns) not in (1, 2):
        raise ValueError(
            f"LABEL_COLUMN is {settings.label_column!r}. With 'rle_csv' set it to the "
            f"column of run-length codes, or to [label, code]."
        )
    ids, names = _split_mask_ids(rows, settings)
    codes = spread_codes(ids, names, rows[columns[-1]])
    images = rows.drop(columns=columns).assign(**{settings.id_column: ids})
    images = images[~ids.duplicated()].reset_index(drop=True)
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
    is_plain = not has_tail.any()
    if has_tail.all():  # may be plain too, as Carvana's 00087a6bd4dc_01.jpg
        sample = rows.iloc[:: max(1, len(rows) // 20)]
        paths, _ = _fill_paths(sample, settings)
        is_plain = any(storage.exists(path) for path in paths if path)
    if is_plain:
        return ids, pd.Series(columns[0], rows.index)
    if not has_tail.all():
        without_tail = ids[~has_tail]
        raise ValueError(
            f"'rle_csv' takes ids such as '0011165.jpg_Fish', but {len(without_tail)} of "
            f"{len(ids)} have no '_', the first is '{without_tail.iloc[0]}'. "
            f"Set LABEL_COLUMN to [label, code] if the labels have a column."
        )
    halves = ids.str.rpartition("_")
    return halves[0], halves[2]


def complete_rows(
    settings: InputSettings, rows: pd.DataFrame, labelled: Table
) -> Table:
    """Return the images of a CSV's rows, then those of files without a row; their labels.

    labelled: the columns of labels of the rows.
    """
    table, labels = labelled
    reserved = RESERVED.intersection(labels.label_columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of kaggle-tfr. Rename it."
        )
    paths, path_problem = _fill_paths(rows, settings)
    split, split_problem = splits.read_splits(rows, settings.split_column)
    if not settings.split_column:
        splits.warn_unused(rows, [settings.id_column, *settings.label_columns])
    table = _unlabel_test_rows(table, labels, split == "test")
    ids = _name_apart(rows, paths, settings)

    label_names = table["label_name"].where(table["problem"] == "", table["problem"])
    no_id = pd.Series("", ids.index).mask(rows[settings.id_column] == "", "no id")
    again = no_id.mask(ids.duplicated(), "listed twice: the first row counts")
    table["problem"] = _choose_first(
        no_id,
        _find_clashes(ids, split, "splits"),
        _find_clashes(ids, label_names, "labels"),
        again,
        table["problem"],
        split_problem,
        path_problem,
    )

    images = pd.DataFrame(
        {"image_id": ids.map(storage.escape), "path": paths, "split": split}
    )
    used = [settings.id_column, *settings.label_columns]
    others = rows.drop(columns=used, errors="ignore")
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    images = pd.concat([images, table, others], axis=1)
    unlisted = _list_unlisted(images, settings)
    if unlisted.empty:
        return images, labels
    unlisted = unlisted.assign(label=-1, label_name="", **labels.blanks())
    return stack_rows([images, unlisted]), labels


def _choose_first(*problems: pd.Series) -> pd.Series:
    """Return the first problem of each row that is not empty."""
    chosen = problems[0]
    for problem in problems[1:]:
        chosen = chosen.where(chosen != "", problem)
    return chosen


def _find_clashes(ids: pd.Series, values: pd.Series, noun: str) -> pd.Series:
    """Return the problem of each row whose id has several values, "" for other rows."""
    repeated = ids[ids.duplicated(keep=False)]
    names = values[repeated.index].groupby(repeated).unique().map(sorted)
    listed = names[names.map(len) > 1].str.join(", ")
    return ids.map(f"listed with different {noun}: " + listed).fillna("")


def _unlabel_test_rows(
    table: pd.DataFrame, labels: Labels, is_test: pd.Series
) -> pd.DataFrame:
    """Return the table. Test rows need no labels if none of them has one.

    Beside labelled ones they stay rejected: the records of a split have the same fields.
    """
    is_unlabelled = table["problem"].str.startswith("no label")
    if not is_test.any() or not is_unlabelled[is_test].all():
        return table
    blanks = {"label": -1, "label_name": "", "problem": "", **labels.blanks()}
    for name, blank in blanks.items():
        table[name] = table[name].mask(is_test, blank).astype(table[name].dtype)
    return table


def _name_apart(
    rows: pd.DataFrame, paths: pd.Series, settings: InputSettings
) -> pd.Series:
    """Return the ids. An id of images in several CSVs' folders gets its folder in front."""
    ids = rows[settings.id_column]
    if FOLDER_COLUMN not in rows:
        return ids
    is_shared = paths.groupby(ids).transform("nunique") > 1
    folders = rows[FOLDER_COLUMN].astype(str)
    return ids.mask(is_shared & (folders != ""), folders + "/" + ids)


def _fill_paths(
    rows: pd.DataFrame, settings: InputSettings
) -> tuple[pd.Series, pd.Series]:
    """Return the path of each row by PATH_TEMPLATE, "" if its id does not fit; the problem.

    Raises: ValueError: PATH_TEMPLATE names a column that the rows lack, or fits no row.
    """
    input_dir = settings.input_dir
    template = settings.path_template
    rows = rows.assign(image_id=rows[settings.id_column])  # templates know both names
    columns = sorted(template_columns(template))
    for column in columns:
        if column not in rows:
            names = list(map(str, rows))
            raise ValueError(
                f"PATH_TEMPLATE '{template}' names the column '{column}', which does not "
                f"exist.{near_miss(column, names)} The columns are {', '.join(names)}."
            )

    template_at_top = template.replace(f"{{{FOLDER_COLUMN}}}/", "")
    paths = []
    problems = []
    for values in rows[columns].itertuples(index=False, name=None):
        row = dict(zip(columns, values, strict=True))
        path = ""
        problem = ""
        try:
            is_at_top = row.get(FOLDER_COLUMN) == ""
            name = (template_at_top if is_at_top else template).format_map(row)
            if storage.OUTSIDE.search(name):
                problem = "id is outside INPUT_DIR"
            else:
                path = f"{input_dir}/{storage.escape(name)}"
        except IndexError:
            problem = f"id too short for PATH_TEMPLATE '{template}'"
        paths.append(path)
        problems.append(problem)

    if not any(paths):
        source = f"PATH_TEMPLATE '{template}'"
        storage.check_inside(template, source, f"'{input_dir}'")
        first_id = rows["image_id"].iloc[0]
        raise ValueError(
            f"{source} fits no row, the first is '{first_id}': {problems[0]}."
        )
    return pd.Series(paths, rows.index), pd.Series(problems, rows.index)


def _list_unlisted(images: pd.DataFrame, settings: InputSettings) -> pd.DataFrame:
    """Return image_id, path, split and problem of files beside the images that no row names.

    Files that describe images, such as the CSV itself, are left out.
    Raises: FileNotFoundError: none of the images exists.
    """
    template = settings.path_template
    pattern = "*" + glob.escape(re.split("[}/]", template)[-1])
    image_dir = files.fixed_folder(settings.input_dir, template)
    found = dict[str, str]()  # the split of each file by its path
    with_path = images[images["path"] != ""]
    folder_of_path = with_path["path"].map(os.path.dirname)
    splits_in = with_path["split"].groupby(folder_of_path).unique()
    for folder, names in zip(splits_in.index, splits_in, strict=True):
        if storage.is_folder(folder):
            paths = files.list_images(pattern, folder, settings)
            found |= dict.fromkeys(paths, names[0] if len(names) == 1 else "train")

    known = set(images["path"])
    if known.isdisjoint(found):
        raise FileNotFoundError(
            f"none of the {len(images)} images exists; the first would be "
            f"'{with_path['path'].iloc[0]}'. {len(found)} other files are in such folders. "
            f"Point INPUT_DIR at the folder that holds the images' folder, or set "
            f"PATH_TEMPLATE."
        )
    unlisted = [path for path in sorted(found) if path not in known]
    return pd.DataFrame(
        {
            "image_id": [path.removeprefix(f"{image_dir}/") for path in unlisted],
            "path": unlisted,
            "split": [found[path] for path in unlisted],
            "problem": f"{NO_ROW} in {os.path.basename(settings.labels_csv)}",
        }
    )


def stack_rows(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return all rows as one table. Whole numbers stay whole if a table lacks a column."""
    shared = set.intersection(*(set(table) for table in tables))
    stacked = []
    for table in tables:
        whole = table.drop(columns=list(shared)).select_dtypes("integer")
        stacked.append(table.astype(dict.fromkeys(whole, "Int64")))
    return pd.concat(stacked, ignore_index=True)
