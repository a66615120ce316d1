"""The images that CSVs name: their paths, labels and problems, and the files without a row."""

import glob
import os
import re
from collections.abc import Sequence
from itertools import product

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
)
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.splits import MISSING
from kaggle_tfr.naming import near_miss
from kaggle_tfr.schema import Labels

NO_ROW = "no row"  # begins the problem of a file that no CSV names


def read_label_csv(input_dir: str, settings: InputSettings) -> Table:
    """The table of a CSV with a row per image: one class, a list, 0 or 1 each, or none."""
    rows, columns = read_csv(input_dir, settings), settings.label_columns
    split, _ = splits.read_splits(rows, settings.split_column)
    if not columns:
        labelled = single_label_table(pd.Series("", index=rows.index))
        labelled[0]["problem"] = ""
    elif len(columns) > 1:
        labelled = read_flags(
            rows[columns],
            split == "test",
            settings.label_kind,
            read_classes(input_dir, settings.label_map),
        )
    elif settings.label_separator:
        labelled = split_labels(rows[columns[0]], settings.label_separator)
    else:
        text = _drop_placeholders(rows[columns[0]], split == "test")
        labelled = single_label_table(text, read_classes(input_dir, settings.label_map))
    return complete_rows(input_dir, settings, rows, labelled)


def _drop_placeholders(text: pd.Series, is_test: pd.Series) -> pd.Series:
    """The labels, without those of test rows where these share no class with the other rows."""
    classes = set(text[~is_test]) - set(MISSING)
    test_classes = set(text[is_test]) - set(MISSING)
    if not test_classes or classes & test_classes:
        return text
    first = min(test_classes)
    print(
        f"The test rows of LABELS_CSV have labels such as '{first}', which are no classes of the "
        f"other rows: they are read as test images without labels."
    )
    return text.mask(is_test, "")


def read_mask_csv(input_dir: str, settings: InputSettings) -> Table:
    """The table of a CSV of run-length codes, with one row per image and label.

    Ids: "0011165.jpg_Fish"; plain ones beside a column of labels; or plain ones alone, whose one
    class is called like the column of codes, and where several rows of an image are one mask.
    """
    rows, columns = read_csv(input_dir, settings), settings.label_columns
    if len(columns) not in (1, 2):
        mend = "With 'rle_csv' set it to the column of run-length codes, or to [label, code]."
        raise ValueError(f"LABEL_COLUMN is {settings.label_column!r}. {mend}")
    ids = rows[settings.id_column]
    has_tail = ids.str.contains("_", regex=False)
    plain = len(columns) == 1 and not has_tail.any()
    if (
        len(columns) == 1 and has_tail.all()
    ):  # may be plain too, as Carvana's 00087a6bd4dc_01.jpg
        some, counts = rows.iloc[:: max(1, len(rows) // 20)], []
        for names in (ids, ids.str.rpartition("_")[0]):
            paths = [path for path, _ in fill_paths(some, names, settings) if path]
            counts.append(sum(storage.exists(f"{input_dir}/{path}") for path in paths))
        plain = counts[0] > counts[1]
    images, codes = spread_codes(rows, settings.id_column, columns, plain=plain)
    labelled = multi_label_table(codes, "masks", images.pop("problem"))
    return complete_rows(input_dir, settings, images, labelled)


def complete_rows(
    input_dir: str, settings: InputSettings, rows: pd.DataFrame, given: Table
) -> Table:
    """The images of a CSV's rows with their paths, and of files without a row; their labels."""
    table, labels = given
    if taken := RESERVED.intersection(labels.label_columns):
        raise ValueError(
            f"a label is called '{min(taken)}', as a column of ours. Rename it."
        )
    ids = rows[settings.id_column]
    below, bad_ids = map(list, zip(*fill_paths(rows, ids, settings), strict=True))
    if not any(below):
        what = f"PATH_TEMPLATE '{settings.path_template}'"
        storage.check_inside(settings.path_template, what, f"'{input_dir}'")
        raise ValueError(
            f"{what} fits no row, the first is '{ids.iloc[0]}': {bad_ids[0]}."
        )
    split, split_problem = splits.read_splits(rows, settings.split_column)
    if not settings.split_column:
        splits.warn_unused(rows, [settings.id_column, *settings.label_columns])
    table = _unlabel_test_rows(table, labels, split == "test")
    ids = _name_apart(ids, rows, pd.Series(below, index=ids.index))
    problem = table["problem"].where(table["problem"] != "", split_problem)
    problem = problem.where(problem != "", bad_ids)
    repeated = ids[ids.duplicated(keep=False)]
    found = table["label_name"].where(table["problem"] == "", table["problem"])[
        repeated.index
    ]
    for what, held in {"labels": found, "splits": split[repeated.index]}.items():
        names = held.groupby(repeated).unique().map(sorted)
        clash = f"listed with different {what}: " + names[names.map(len) > 1].str.join(
            ", "
        )
        problem = ids.map(clash).fillna(problem)
    again = ids.duplicated() & ~problem.str.startswith("listed with different")
    problem = problem.mask(again, "listed twice: the first row counts")
    table["problem"] = problem.mask(rows[settings.id_column] == "", "no id")
    paths = [f"{input_dir}/{path}" if path else "" for path in below]
    images = pd.DataFrame(
        {"image_id": ids.map(storage.escape), "path": paths, "split": split}
    )
    others = rows.drop(
        columns=[settings.id_column, *settings.label_columns], errors="ignore"
    )
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    images = pd.concat([images, table, others], axis=1)
    return _add_files((images, labels), input_dir, settings, rows)


def _unlabel_test_rows(
    table: pd.DataFrame, labels: Labels, is_test: pd.Series
) -> pd.DataFrame:
    """The table, where test rows are no longer refused if none of the given test set has a label.

    Beside labelled ones a test row without a label stays refused: records of a split are alike.
    """
    is_unlabelled = table["problem"].str.startswith("no label")
    if not is_test.any() or not is_unlabelled[is_test].all():
        return table
    blank = {"label": -1, "label_name": "", "problem": "", **labels.blanks()}
    table = table.copy()
    for name, value in blank.items():
        table[name] = table[name].mask(is_test, value).astype(table[name].dtype)
    return table


def _name_apart(ids: pd.Series, rows: pd.DataFrame, paths: pd.Series) -> pd.Series:
    """The ids; one that names images of several CSVs' folders has its folder in front."""
    if splits.FOLDER_COLUMN not in rows:
        return ids
    is_shared = paths.groupby(ids).transform("nunique") > 1
    folders = rows[splits.FOLDER_COLUMN].astype(str)
    return ids.mask(is_shared & (folders != ""), folders + "/" + ids)


def fill_paths(
    rows: pd.DataFrame, ids: pd.Series, settings: InputSettings
) -> list[tuple]:
    """(path below INPUT_DIR, "") of each row, or ("", what is wrong with its id).
    Raises: ValueError: PATH_TEMPLATE names a column that the rows lack.
    """
    template = settings.path_template
    rows = rows.assign(
        **{settings.id_column: ids, "image_id": ids}
    )  # templates know both names
    fields = template_columns(settings.path_template)
    if unknown := sorted(fields - set(rows)):
        what = f"PATH_TEMPLATE '{template}' names the column '{unknown[0]}', which is not there."
        known = list(map(str, rows))
        raise ValueError(
            f"{what}{near_miss(unknown[0], known)} There are {', '.join(known)}."
        )
    columns = {name: rows[name].tolist() for name in {*fields, "image_id"}}
    at_top = template.replace(
        f"{{{splits.FOLDER_COLUMN}}}/", ""
    )  # of a CSV that lies there
    filled = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        own_template = at_top if row.get(splits.FOLDER_COLUMN) == "" else template
        try:
            path = storage.escape(own_template.format_map(row))
            outside = storage.OUTSIDE.search(path)
            filled.append(("", "id leads out of INPUT_DIR") if outside else (path, ""))
        except IndexError:
            filled.append(("", f"id too short for PATH_TEMPLATE '{template}'"))
    return filled


def _add_files(
    table: Table, input_dir: str, settings: InputSettings, rows: pd.DataFrame
) -> Table:
    """The table, then a row with a problem for each file of the image folders without a row.

    Files that describe images, such as the CSV itself, are not named.
    """
    images, labels = table
    has_path = images["path"] != ""
    depths = sorted(
        set(rows[settings.id_column][has_path].str.count("/"))
    )  # ids may be paths
    csv_folders = rows.get(splits.FOLDER_COLUMN, pd.Series([""])).astype(str).unique()
    found = dict[str, str]()  # path: what it is called below the images' folder
    for csv_folder, depth in product(csv_folders, depths):
        folder, pattern = _image_pattern(
            input_dir, settings.path_template, csv_folder, depth
        )
        if storage.is_folder(folder):
            for path in files.list_files(pattern, folder, input_dir, settings.excluded):
                name = path.removeprefix(folder.rstrip("/") + "/")
                found[path] = f"{csv_folder}/{name}" if csv_folder else name
    known = set(images["path"])
    if known.isdisjoint(found):
        first = f"'{images['path'][has_path].iloc[0]}'"
        first += f" ({len(found)} files match '{pattern}' in {folder})"
        mend = "Point INPUT_DIR at the folder that holds the images' folder, or set PATH_TEMPLATE."
        what = f"none of the {len(images)} images is there, the first would be {first}"
        raise FileNotFoundError(f"{what}. {mend}")
    unlisted = [
        path for path in found if path not in known and not files.COMPANION.search(path)
    ]
    if not unlisted:
        return table
    extra = pd.DataFrame({"path": sorted(unlisted)}, dtype=str)
    extra["image_id"] = extra["path"].map(found)
    extra["problem"] = f"{NO_ROW} in {os.path.basename(settings.labels_csv)}"
    splits_of_folders = (
        images["split"].groupby(images["path"].map(os.path.dirname)).unique()
    )
    only_split = {
        folder: held[0] for folder, held in splits_of_folders.items() if len(held) == 1
    }
    split = extra["path"].map(os.path.dirname).map(only_split).fillna("train")
    extra = extra.assign(split=split, label=-1, label_name="", **labels.blanks())
    return stack_rows([images, extra]), labels


def _image_pattern(
    input_dir: str, template: str, csv_folder: str, depth: int
) -> tuple[str, str]:
    """(folder, pattern in it) of the files that the template leads to, by ids with `depth` "/"."""
    field = f"{{{splits.FOLDER_COLUMN}}}"
    template = template.replace(
        f"{field}/", f"{glob.escape(csv_folder)}/" if csv_folder else ""
    )
    template = template.replace(field, glob.escape(csv_folder))
    pattern = re.sub(r"\{.*?\}", "*", template)
    pattern = re.sub(r"\*(?=[^*/]*$)", "*/" * depth + "*", pattern)
    below = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    return f"{input_dir}/{below}".rstrip("/") or "/", pattern.removeprefix(f"{below}/")


def stack_rows(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables one below the other; whole numbers stay whole where some table has none."""
    shared = set.intersection(*(set(table) for table in tables))
    whole = [
        list(table.drop(columns=[*shared]).select_dtypes("integer")) for table in tables
    ]
    typed = [
        t.astype(dict.fromkeys(own, "Int64"))
        for t, own in zip(tables, whole, strict=True)
    ]
    return pd.concat(typed, ignore_index=True)
