"""The table of images and labels: of class folders, a CSV of labels or of run-length codes."""

import glob
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product, starmap
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files, splits
from kaggle_tfr.explore.splits import MISSING
from kaggle_tfr.paths import near_miss, template_fields
from kaggle_tfr.schema import NO_MASK, Labels, find_code_problem, split_of

Table = tuple[pd.DataFrame, Labels]  # one row per image, and what its labels are

FLAGS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}
NO_ROW = "no row"  # begins the problem of a file that no CSV names
NO_LABEL_MAP = "LABEL_MAP numbers one class per image. Leave it empty for several."
INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text
# What the steps call their own columns; a CSV's column of such a name gets the prefix "csv_".
RESERVED = {
    *(
        "image_id",
        "path",
        "split",
        "label",
        "label_name",
        "problem",
        "height",
        "width",
        "n_bytes",
    ),
    *(
        "format",
        "orientation",
        "note",
        "cluster",
        "distance",
        "keep",
        "reason",
        "fold",
        "shard",
    ),
    *(
        "part",
        "position",
        "source",
        "digest",
        "file",
        "record",
        "source_height",
        "source_width",
    ),
}


@dataclass(frozen=True)
class InputSettings:
    """How images and labels lie in INPUT_DIR: the parameters of 01_explore, by their names.

    excluded: folders that hold no input, WORK_DIR and OUT_DIR; `read_table` sets it.
    """

    name: str = ""
    source: str = "csv"
    labels_csv: str = ""
    id_column: str = ""
    label_column: str | Sequence[str] = ""
    label_kind: str = "auto"
    label_separator: str = ""
    label_map: str | Mapping[str, int] = ""
    split_column: str = ""
    path_template: str = ""
    pattern: str = ""
    input_schema: str | Mapping[str, Any] = "auto"
    test_csv: str = ""
    test_id_column: str = ""
    test_path_template: str = ""
    more_inputs: Sequence[Mapping[str, Any]] = ()
    limit: int = 0
    bit_depth: str = "scale"
    excluded: Sequence[str] = field(default=(), metadata={"parameter": False})

    @property
    def label_columns(self) -> list[str]:
        given = (
            [self.label_column]
            if isinstance(self.label_column, str)
            else self.label_column
        )
        return [name for name in given if name]


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
    parts, classes = names.str.split("/"), read_classes(input_dir, settings)
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
            if os.path.basename(path) in files.SYSTEM_FOLDERS
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


def read_label_csv(input_dir: str, settings: InputSettings) -> Table:
    """The table of a CSV with a row per image: one class, a list, 0 or 1 each, or none."""
    rows, columns = read_csv(input_dir, settings), settings.label_columns
    split, _ = splits.read_splits(rows, settings.split_column)
    if not columns:
        labelled = single_label_table(pd.Series("", index=rows.index))
        labelled[0]["problem"] = ""
    elif len(columns) > 1:
        labelled = read_flags(rows[columns], split == "test", input_dir, settings)
    elif settings.label_separator:
        labelled = split_labels(rows[columns[0]], settings.label_separator)
    else:
        text = _drop_placeholders(rows[columns[0]], split == "test")
        labelled = single_label_table(text, read_classes(input_dir, settings))
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


def spread_codes(
    rows: pd.DataFrame,
    id_column: str,
    label_columns: Sequence[str],
    *,
    plain: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(one row per image, with a column `problem`; a column of codes per label, "" for no mask)."""
    ids, codes = rows[id_column], rows[label_columns[-1]].str.strip()
    codes = codes.where(~codes.isin(NO_MASK), "")
    if plain:
        names = pd.Series(label_columns[-1], index=rows.index)
        several = ids.duplicated(keep=False) & (codes != "")
        codes = ids.map(codes[several].groupby(ids[several]).agg(join_codes)).fillna(
            codes
        )
    elif len(label_columns) == 2:
        names = rows[label_columns[0]]
    else:
        bad = ids[~ids.str.contains("_", regex=False)]
        if len(bad):
            what = f"{len(bad)} of {len(ids)} have no '_', the first is '{bad.iloc[0]}'"
            mend = "Set LABEL_COLUMN to [label, code] when the label has a column of its own."
            raise ValueError(
                f"'rle_csv' takes ids such as '0011165.jpg_Fish', but {what}. {mend}"
            )
        halves = ids.str.rpartition("_")
        ids, names = halves[0], halves[2]
    image, different = pd.factorize(ids)
    label, classes = pd.factorize(names, sort=True)
    spread = np.full((len(different), len(classes)), "", object)
    spread[image, label] = codes.to_numpy(object)
    problem = np.full(len(different), "", object)
    again = pd.DataFrame({"image": image, "label": label}).duplicated().to_numpy() & (
        not plain
    )
    problem[image[again]] = [
        f"label '{name}' listed twice" for name in classes[label[again]]
    ]
    images = rows.drop(columns=label_columns)[~ids.duplicated()].reset_index(drop=True)
    images[id_column], images["problem"] = different, problem
    return images, pd.DataFrame(spread, columns=list(classes))


def join_codes(codes: Sequence[str]) -> str:
    """The run-length code of all the masks together; the first broken code when there is one."""
    broken = [
        code for code in codes if find_code_problem(code, 1 << 31, 1 << 31)
    ]  # of any size
    if broken:
        return broken[0]
    runs = np.array(" ".join(codes).split(), np.int64).reshape(-1, 2)
    starts, lengths = runs[runs[:, 0].argsort()].T
    ends = np.maximum.accumulate(starts + lengths)
    gaps = starts[1:] > ends[:-1]
    merged = zip(
        starts[np.append(True, gaps)], ends[np.append(gaps, True)], strict=True
    )
    return " ".join(f"{start} {end - start}" for start, end in merged)


def read_csv(
    input_dir: str, settings: InputSettings, parameter: str = "LABELS_CSV"
) -> pd.DataFrame:
    """That CSV: ids and labels as text ("007" and "NA" stay), other columns by their look.

    Of a pattern such as "*/_classes.csv" the rows of all CSVs, with a column `csv_folder`.
    """
    columns = settings.label_columns
    is_single = settings.source == "csv" and not settings.label_separator
    is_single = is_single and (len(columns) == 1 or settings.label_kind != "multi")
    if settings.label_map and not is_single:
        raise ValueError(NO_LABEL_MAP)
    if settings.id_column in columns:
        both = f"ID_COLUMN and LABEL_COLUMN both name '{settings.id_column}'"
        raise ValueError(
            f"{both}. Set LABEL_COLUMN to the column of labels, or to [] for none."
        )

    folder_of = _find_csvs(input_dir, settings, parameter)
    is_pattern = storage.resolve(input_dir, settings.labels_csv) not in folder_of
    if not is_pattern:
        [(path, folder)] = folder_of.items()
        rows = _read_one_csv(path, settings, parameter)
        needed = {settings.split_column, *_template_columns(settings)}
        if splits.FOLDER_COLUMN in needed and splits.FOLDER_COLUMN not in rows:
            rows[splits.FOLDER_COLUMN] = folder
        return rows

    tables = []
    for path, folder in folder_of.items():
        table = read_as_text(path, settings, parameter)
        table = table.rename(
            columns={splits.FOLDER_COLUMN: f"csv_{splits.FOLDER_COLUMN}"}
        )
        tables.append(table.assign(**{splits.FOLDER_COLUMN: folder}))
    rows = pd.concat(tables, ignore_index=True)
    for column in columns:
        if column not in rows:
            raise ValueError(
                _explain_column(
                    f"{parameter} '{path}'", column, list(map(str, rows)), "LABEL"
                )
            )
    ours = [settings.id_column, *columns, splits.FOLDER_COLUMN]
    others = rows.drop(columns=ours)
    if not others.columns.empty:  # one table tells better than many what a column holds
        text = others.to_csv(index=False).encode()
        others = pd.read_csv(io.BytesIO(text), low_memory=False, skip_blank_lines=False)
    return pd.concat([rows[ours].fillna(""), others], axis=1)


def _find_csvs(
    input_dir: str, settings: InputSettings, parameter: str
) -> dict[str, str]:
    """{path: its folder below INPUT_DIR, "" for the top} of the CSV or the CSVs of a pattern."""
    given = settings.labels_csv
    path = storage.resolve(input_dir, given)
    if not re.search(r"[*?\[]", given) or storage.exists(path):
        files.check_named_file(path, input_dir, parameter)
        is_inside = path.startswith(f"{input_dir}/") and not storage.OUTSIDE.search(
            given
        )
        return {path: os.path.dirname(path[len(input_dir) + 1 :]) if is_inside else ""}

    storage.check_inside(given, f"{parameter} '{given}'", f"'{input_dir}'")
    paths = files.list_files(given, input_dir or "/", input_dir, settings.excluded)
    if not paths:
        mend = f"Set {parameter} to a CSV, or to a pattern that matches some, in INPUT_DIR."
        raise FileNotFoundError(f"no file in '{input_dir}' matches '{given}'. {mend}")
    for path in paths:
        files.check_named_file(path, input_dir, parameter)
    return {path: os.path.dirname(path[len(input_dir) + 1 :]) for path in paths}


def _read_one_csv(
    path: str,
    settings: InputSettings,
    parameter: str,
    *,
    every_column_as_text: bool = False,
) -> pd.DataFrame:
    """The rows of a CSV, its names of columns without blanks around them."""
    data, what = read_given(path, parameter), f"{parameter} '{path}'"
    headers = {sep: _read_header(data, what, sep) for sep in ",;\t"}
    sep = next(
        (sep for sep in headers if settings.id_column in headers[sep].values()), ","
    )
    name_of = headers[sep]  # as it is in the file: as we call it
    header, ours = list(name_of.values()), [settings.id_column, *settings.label_columns]
    for name in ours:
        is_id = name == settings.id_column
        # Of several CSVs one may hold images without labels, such as a test set.
        if name not in header and (is_id or not every_column_as_text):
            is_test_csv = parameter == "TEST_CSV"
            column = ("TEST_ID" if is_test_csv else "ID") if is_id else "LABEL"
            raise ValueError(_explain_column(what, name, header, column))

    as_text: dict[str, Any] = {"sep": sep, "dtype": str, "keep_default_na": False}
    in_ours = [
        raw for raw, name in name_of.items() if name in ours or every_column_as_text
    ]
    others = [raw for raw in name_of if raw not in in_ours]
    rows = _parse_csv(data, what, usecols=in_ours, **as_text).rename(columns=name_of)
    if rows.empty:
        raise ValueError(f"{what} has a header and no row. Set {parameter} to another.")
    if every_column_as_text:
        return rows
    rest = [_parse_csv(data, what, sep=sep, usecols=others).rename(columns=name_of)]
    return pd.concat(
        [rows[list(dict.fromkeys(ours))], *(rest if others else [])], axis=1
    )


def read_as_text(path: str, settings: InputSettings, parameter: str) -> pd.DataFrame:
    """The rows of a CSV, every column as text. It may lack the columns of labels."""
    return _read_one_csv(path, settings, parameter, every_column_as_text=True)


def _read_header(data: bytes, what: str, sep: str) -> dict[str, str]:
    """{name of a column in the file: the same without blanks around it, where that is unique}."""
    names = list(map(str, _parse_csv(data, what, nrows=0, sep=sep)))
    stripped = [name.strip() for name in names]
    pairs = zip(names, stripped, strict=True)
    return {
        name: short if stripped.count(short) == 1 else name for name, short in pairs
    }


def _explain_column(what: str, name: str, header: Sequence[str], column: str) -> str:
    """The error for a CSV that lacks the column which the parameter `column`_COLUMN names."""
    has = f"{what} has no column '{name}'.{near_miss(name, header)} It has {', '.join(header)}."
    return f"{has} Set {column}_COLUMN to one of them."


def _template_columns(settings: InputSettings) -> set[str]:
    """The columns that PATH_TEMPLATE names."""
    return {
        re.split(r"[.\[]", name)[0] for name in template_fields(settings.path_template)
    }


def _parse_csv(data: bytes, what: str, **options: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(
            io.BytesIO(data), encoding="utf-8-sig", low_memory=False, **options
        )
    except ValueError as error:
        wrong = f"is no CSV in UTF-8: {error}. Save it as one."
        wrong = wrong if data.strip() else "is empty. Set it to the one you mean."
        raise ValueError(f"{what} {wrong}") from None


def read_given(path: str, parameter: str) -> bytes:
    """The bytes of a file that a parameter names, which its FileNotFoundError names too."""
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        what = (
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        )
        raise FileNotFoundError(what) from None


def read_classes(input_dir: str, settings: InputSettings) -> list | None:
    """The classes of LABEL_MAP, given by value or file, so that index = label; None for no map."""
    given: Any = settings.label_map
    if not given:
        return None
    source = "LABEL_MAP"
    if isinstance(given, str):
        path = storage.resolve(input_dir, given)
        files.check_named_file(path, input_dir, "LABEL_MAP")
        source = f"the label map '{path}'"
        try:
            given = json.loads(read_given(path, "LABEL_MAP"))
        except ValueError as error:
            raise ValueError(f"{source} is not JSON: {error}") from None
    items = list(given.items() if isinstance(given, Mapping) else ())
    wrong = [item for item in items if not isinstance(item[1], int) or item[1] < 0]
    if wrong or not items:
        what = "'{}' has {!r}".format(*wrong[0]) if wrong else f"it is {given!r:.40}"
        mend = "Mend the map, or leave LABEL_MAP empty to number the sorted classes."
        raise ValueError(
            f'{source} takes {{"class": label}}, labels from 0, but {what}. {mend}'
        )
    kind = int if all(INTEGER.fullmatch(str(name)) for name in given) else str
    classes: list = [None] * (max(given.values()) + 1)
    for name, label in items:
        if classes[label] is not None:
            both = f"both '{classes[label]}' and '{name}'. Give each class its own."
            raise ValueError(f"{source} gives label {label} to {both}")
        classes[label] = kind(name)
    return classes


def number_classes(
    text: pd.Series, classes: list | None = None
) -> tuple[np.ndarray, list]:
    """(int64 label of each row, -1 for none; the classes, sorted when not given: index = label).

    >>> number_classes(pd.Series(["10", "9", "", "10"]))
    (array([ 1,  0, -1,  1]), [9, 10])
    """
    codes, different = pd.factorize(text.where(~text.isin(MISSING)))
    names = list(map(str, different))
    kind: Any = int if all(map(INTEGER.fullmatch, names)) else str
    classes = sorted(map(kind, names)) if classes is None else classes
    label_of = {
        str(name): label for label, name in enumerate(classes) if name is not None
    }
    if unknown := [name for name in names if name not in label_of]:
        what = f"lacks {len(unknown)} of the data, the first is '{unknown[0]}'"
        mend = "Add them, or leave it empty to number the sorted classes."
        raise ValueError(f"LABEL_MAP has {len(label_of)} classes and {what}. {mend}")
    return np.array([label_of[name] for name in names] + [-1], np.int64)[codes], classes


def single_label_table(text: pd.Series, classes: list | None = None) -> Table:
    """Columns label, label_name, problem of images with one class each."""
    label, classes = number_classes(text, classes)
    table = pd.DataFrame(
        {"label": label, "label_name": text.where(label >= 0, "").astype(object)}
    )
    table["problem"] = np.where(label < 0, "no label", "").astype(object)
    return table, Labels("single", tuple(classes))


def multi_label_table(columns: pd.DataFrame, kind: str, problem: Any) -> Table:
    """Columns label (of the combination), label_name ("Fish|Sugar"), problem, given ones."""
    present = columns.to_numpy() != ("" if kind == "masks" else 0)
    combinations, row = np.unique(present, axis=0, return_inverse=True)
    text = np.array(["|".join(columns.columns[one]) for one in combinations], object)[
        row.ravel()
    ]
    table = pd.DataFrame(
        {"label": pd.factorize(text, sort=True)[0], "label_name": text}
    )
    table = table.set_index(columns.index).assign(problem=problem)
    names = tuple(map(str, columns))
    return pd.concat([table, columns], axis=1), Labels(kind, names, names)


def read_flags(
    rows: pd.DataFrame, is_test: pd.Series, input_dir: str, settings: InputSettings
) -> Table:
    """The table of columns of text, each of a label and 0 or 1 in every row.

    One class per image or several labels, as LABEL_KIND says; "auto" goes by the rows that are not
    of a given test split.
    """
    flags = rows.apply(lambda text: text.str.strip().str.lower().map(FLAGS))
    problem = pd.Series("", index=rows.index, dtype=object)
    for name in rows:
        wrong = rows[name][flags[name].isna()].astype(object)
        problem[wrong.index] = (
            f"label column '{name}' holds '" + wrong + "', not 0 or 1"
        )
        problem[rows[name].isin(MISSING)] = f"no label in column '{name}'"
    flags = flags.fillna(0).astype(np.int8)
    is_good = problem == ""
    ones = flags.sum(axis=1)
    kind = settings.label_kind
    if kind == "auto":
        decisive = ones[is_good & ~is_test]
        kind = "single" if len(decisive) and (decisive == 1).all() else "multi"
        if kind == "single":
            print(
                f"Each row has exactly one 1 in {len(rows.columns)} label columns: they are read "
                f"as one class per image. Set LABEL_KIND: multi to read them as several labels."
            )
    if kind == "multi":
        if settings.label_map:
            raise ValueError(NO_LABEL_MAP)
        return multi_label_table(flags, "multi", problem)

    names = pd.Series(list(rows), dtype=str)
    classes = read_classes(input_dir, settings) or number_classes(names)[1]
    chosen = pd.Series(
        names.to_numpy()[flags.to_numpy().argmax(axis=1)], index=rows.index
    )
    table, labels = single_label_table(chosen.where(is_good & (ones == 1), ""), classes)
    problem = problem.mask(is_good & (ones == 0), "no label: no label column holds 1")
    has_several = is_good & (ones > 1)
    listed = [", ".join(names[row]) for row in flags[has_several].to_numpy(bool)]
    reasons = [f"several labels where one is expected: {one}" for one in listed]
    problem[has_several] = np.array(reasons, object)
    return table.assign(problem=problem), labels


def split_labels(text: pd.Series, separator: str) -> Table:
    """The multi-label table of separated lists of classes."""
    single = (
        text.mask(missing := text.isin(MISSING), "")
        .str.split(separator)
        .explode()
        .str.strip()
    )
    single = single[single != ""]
    label, classes = number_classes(single)
    flags = np.zeros((len(text), len(classes)), np.int8)
    flags[text.index.get_indexer(single.index), label] = 1
    columns = pd.DataFrame(flags, text.index, list(map(str, classes)))
    table, labels = multi_label_table(
        columns, "multi", np.where(missing, "no label", "")
    )
    return table, replace(labels, classes=tuple(classes))


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
    fields = _template_columns(settings)
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
