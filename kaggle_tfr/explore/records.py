"""Read shards as the input: each record is a row, its path an address: "x.tfrec#17"."""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import Any

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.explore.features import (
    UnclearLabelError,
    find_text_column,
    infer_schema,
    is_whole,
)
from kaggle_tfr.explore.files import explain_unreadable, list_files
from kaggle_tfr.explore.labels import (
    RESERVED,
    Table,
    complete_labels,
    name_labels,
    number_names,
    read_labels,
)
from kaggle_tfr.explore.rows import LINK_PROBLEM, first_problem
from kaggle_tfr.explore.settings import InputSettings, list_texts
from kaggle_tfr.naming import is_shard_name
from kaggle_tfr.records import (
    DamagedRecord,
    index_shard,
    is_record_file,
    list_values,
    read_index,
)
from kaggle_tfr.schema import SOURCES, Labels, RecordSchema, load_schema
from kaggle_tfr.shards import choose_schema, list_inputs, share_labels

# Names such as "train-00000-of-00002", whose content decides.
_NUMBERED = re.compile(r"-\d+-of-\d+$")
INSPECTED = 20  # records of a shard, from which INPUT_SCHEMA: auto infers the schema
_READ = {"label", "labels", "image_id"}  # of SOURCES; the others are computed again


def read_records(settings: InputSettings, known: Labels | None = None) -> Table:
    """Return the records of all shards as a table, and their labels.

    No image is decoded. A damaged record is a row with a problem, and so is a shard
    that cannot be read.
    image_id: that of the record, or its address below INPUT_DIR if there is none or if
    it repeats. Other features with one value are columns.
    known: the labels of the main input, for a further one.
    Raises: FileNotFoundError: no shard; ValueError: INPUT_SCHEMA does not fit, or no
    record can be read.
    """
    input_dir = settings.input_dir
    shards = list_shards(settings)
    if shards.empty:
        raise FileNotFoundError(
            f"no TFRecord shard in {input_dir} is an input: there is none that fits "
            "PATTERN, or they are in WORK_DIR or OUT_DIR. Set INPUT_DIR to the folder "
            "of the shards, and PATTERN to their names, such as '*.tfrec'."
        )
    is_outside = shards["problem"] != ""
    outside = shards[is_outside]
    outside = outside.assign(path=outside["path"] + "#0")
    shards = shards[~is_outside]
    schemas = {}
    for split, paths in shards.groupby("split")["path"]:
        schemas[str(split)] = _choose_schema(paths.tolist(), str(split), settings)
    records = _read_shards(shards, schemas, input_dir)
    records = pd.concat([records, outside], ignore_index=True)
    _check_readable(records, len(shards), input_dir)

    saved = _read_labels(shards["path"], input_dir)
    labelled, labels = _label_records(records, schemas, saved, known, settings)
    if settings.has_labels:
        _check_labels(records, labelled, schemas)
    images = records.assign(image_id=_name_records(records, input_dir))
    images = images[["image_id", "path", "split"]]
    others = _list_others(records, labels.label_columns)
    return pd.concat([images, labelled, others], axis=1), labels


def list_shards(settings: InputSettings) -> pd.DataFrame:
    """Return path, split and problem of each shard in INPUT_DIR.

    PATTERN chooses them, else their names, or their content if these are unusual.
    """
    input_dir = settings.input_dir
    files = list_files(input_dir, (), settings.excluded, products=())
    names = sorted([*files.images, *files.others])
    patterns = list_texts(settings.pattern)
    if patterns:
        matches = (fnmatch.filter(names, pattern) for pattern in patterns)
        names = sorted(set().union(*matches))
    else:
        names = [name for name in names if _is_shard(f"{input_dir}/{name}")]
    paths = [f"{input_dir}/{name}" for name in names]
    splits = list_inputs(input_dir, paths, with_missing=not patterns)
    shards = pd.DataFrame({"path": list(splits), "problem": ""}, dtype=str)
    shards["split"] = shards["path"].map(splits)
    outside = [f"{input_dir}/{name}" for name in files.outside]
    shards.loc[shards["path"].isin(outside), "problem"] = LINK_PROBLEM
    return shards


def _is_shard(path: str) -> bool:
    """Return whether a file has the name of a shard, or is numbered like one."""
    if is_shard_name(path):
        return True
    return bool(_NUMBERED.search(path)) and is_record_file(path)


def _check_readable(records: pd.DataFrame, n_shards: int, input_dir: str) -> None:
    """Raise a ValueError if each record has a problem."""
    problem = records["problem"]
    if (problem != "").all():
        raise ValueError(
            f"none of the {n_shards} shards in {input_dir} has a whole record; the "
            f"first: {problem[0]}. "
            f"Set INPUT_DIR and PATTERN to TFRecord files of tf.train.Example."
        )


def _list_others(records: pd.DataFrame, label_columns: Iterable[str]) -> pd.DataFrame:
    """Return the columns of other features, with integers where all values are."""
    used = ["path", "split", "problem", *_READ, *label_columns]
    others = records.drop(columns=used, errors="ignore").infer_objects()
    return others.convert_dtypes(convert_string=False, convert_floating=False)


def _find_above(folder: str, name: str, input_dir: str) -> str:
    """Return the folder, or the nearest one above it, with this file; "" for none."""
    while folder.startswith(input_dir) and folder != "/":
        if storage.exists(f"{folder}/{name}"):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _read_labels(paths: Iterable[str], input_dir: str) -> Labels:
    """Return the labels.json beside or above the shards; empty labels without one."""
    shard_dirs = set(map(os.path.dirname, paths))
    found = {_find_above(folder, "labels.json", input_dir) for folder in shard_dirs}
    folders = sorted(found - {""})
    texts = [storage.read_text(f"{folder}/labels.json") for folder in folders]
    return share_labels(folders, texts)


def _choose_schema(
    paths: Sequence[str], split: str, settings: InputSettings
) -> RecordSchema:
    """Return the schema of a split: INPUT_SCHEMA, a schema.json, or an inferred one."""
    folder = ""
    schema = settings.input_schema
    if schema in ("", "auto"):
        schema = ""
        shard_dir = os.path.dirname(paths[0])
        folder = _find_above(shard_dir, "schema.json", settings.input_dir)
    if not schema and not folder:
        reads_labels = settings.has_labels
        return _infer_schema(paths, split, reads_labels=reads_labels)
    try:
        return choose_schema(folder, paths[0], schema).for_split(split)
    except ValueError as error:
        raise ValueError(f"INPUT_SCHEMA: {error}") from None


def _infer_schema(
    paths: Sequence[str], split: str, *, reads_labels: bool
) -> RecordSchema:
    """Return the schema by the first shard with records that can be read."""
    for path in paths:
        inspected = islice(_walk_records(path), INSPECTED)
        records = [features for _, features, problem in inspected if not problem]
        if records:
            return infer_schema(path, records, split, reads_labels=reads_labels)
    return load_schema({"image": "image"})  # no record can be read


def _walk_records(
    path: str, image_key: str = "", input_dir: str = ""
) -> Iterator[tuple[int, Mapping[str, Any], str]]:
    """Yield number, features and problem of each record; a problem means no features.

    Records that only the `.idx` file of a part lists come last.
    input_dir: where that file is looked for; "" leaves it out.
    """
    try:
        index = index_shard(path, image_key)
    except OSError as error:
        yield 0, {}, explain_unreadable(error)
        return

    missing = []
    if input_dir:
        missing = _list_missing(path, input_dir, found=set(index.bounds[:-1].tolist()))
    if not len(index) and not missing:
        yield 0, {}, f"'{path}' contains no record"
    for number in range(len(index)):
        try:
            yield number, index.read_features(number), ""
        except DamagedRecord as error:
            yield number, {}, str(error)
    for number, offset in enumerate(missing, len(index)):
        yield number, {}, f"'{path}' at byte {offset:,}: the record is missing"


def _list_missing(path: str, input_dir: str, found: set[int]) -> list[int]:
    """Return the offsets of records in the index of a part that the shard lacks.

    found: the offsets of the frames in the shard.
    """
    part = _find_above(os.path.dirname(path), "shards.csv", input_dir)
    name = path.removeprefix(f"{part}/")
    listed = set(read_index(f"{part}/index/{name}.idx")[:-1]) if part else set()
    # The index of another file with this name does not have the frames of this file.
    return sorted(listed - found) if found <= listed else []


def _read_shards(
    shards: pd.DataFrame, schemas: Mapping[str, RecordSchema], input_dir: str
) -> pd.DataFrame:
    """Return the rows of `_read_shard` for all shards."""
    read_shard = partial(_read_shard, schemas=schemas, input_dir=input_dir)
    pairs = zip(shards["path"], shards["split"], strict=True)
    tables = parallel.run(read_shard, pairs, label="Reading shards", ordered=True)
    return pd.concat(tables, ignore_index=True)


def _read_shard(
    shard: tuple[str, str], schemas: Mapping[str, RecordSchema], input_dir: str
) -> pd.DataFrame:
    """Return path, split, problem and the values (object) of each record of a shard.

    shard: its path and split.
    """
    path, split = shard
    schema = schemas[split]
    image_key = schema.image_key
    name_column = cache(partial(_name_column, schema=schema))
    rows = []
    for number, features, problem in _walk_records(path, image_key, input_dir):
        row = {"path": f"{path}#{number}", "split": split, "problem": problem}
        if not problem and not _has_image(features, image_key):
            row["problem"] = f"no image in the feature '{image_key}'"
        rows.append(row | _read_values(features, name_column))
    return pd.DataFrame(rows, dtype=object)


def _read_values(
    features: Mapping[str, Any], name_column: Callable[[str], str]
) -> dict[str, Any]:
    """Return the values of a record by their columns, without empty ones."""
    values = {}
    for name in sorted(features):
        column = name_column(name)
        value = _read_value(features[name], column)
        if value is not None:
            values[column] = value
    return values


def _has_image(features: Mapping[str, Any], image_key: str) -> bool:
    """Return whether the feature holds one image."""
    return image_key in features and len(features[image_key].bytes_list.value) == 1


def _read_value(feature: Any, column: str) -> Any:
    """Return the value of a feature for a column, None for no value.

    The value of "labels" is a list. Other lists, and bytes that are not text, are none.
    """
    values = list_values(feature) if column else []
    try:
        values = [v.decode() if isinstance(v, bytes) else v for v in values]
    except UnicodeDecodeError:
        return None
    if column == "labels":
        return values
    return values[0] if len(values) == 1 else None


def _name_column(name: str, schema: RecordSchema) -> str:
    """Return the column for a feature; "" for one that is computed again."""
    source_of: dict[str, Any] = {field.name: field.source for field in schema.fields}
    source = source_of.get(name)
    if source in (*_READ, *schema.label_columns):
        return source
    if source in SOURCES or isinstance(source, tuple):
        return ""
    column = source or name
    return f"record_{column}" if column in {*RESERVED, *SOURCES} else column


def _name_records(records: pd.DataFrame, input_dir: str) -> pd.Series:
    """Return the id of each record, or its address if the id is missing or repeats."""
    addresses = records["path"].str[len(input_dir) + 1 :]
    if "image_id" not in records:
        return addresses
    ids = records["image_id"].fillna(addresses)
    repeats = ids.duplicated()
    if repeats.any():
        print(f"{repeats.sum():,} ids repeat: these records have addresses as ids")
    return ids.mask(repeats, addresses)


def _label_records(
    records: pd.DataFrame,
    schemas: Mapping[str, RecordSchema],
    saved: Labels,
    known: Labels | None,
    settings: InputSettings,
) -> Table:
    """Return the columns of labels and problems.

    saved: the labels.json of the shards. known: the labels of the main input.
    """
    kind = "multi" if "labels" in records else _find_kind(schemas.values())
    is_test = records["split"] == "test"
    rows = pd.DataFrame(
        {
            "image": records["path"],
            "is_test": is_test,
            "is_optional": is_test | (records["problem"] != ""),
        }
    )
    settings = replace(settings, label_kind=kind, label_separator="")
    problem = records["problem"]
    if known is None and saved.kind == kind and saved.classes:
        known = None if settings.label_map else saved
    if kind == "single":
        name_of = _find_names(records, saved)
        if known is None and name_of and not settings.label_map:
            names = [name_of[label] for label in sorted(name_of)]
            known = Labels("single", tuple(names))
        text, problem = _name_classes(records, name_of)
        table, labels = read_labels(text, rows, settings, known)
        problem = first_problem(records["problem"], problem)
    else:
        columns = max((schema.label_columns for schema in schemas.values()), key=len)
        values = _spread_labels(records, saved.label_columns or columns)
        text = values.fillna("").astype(str)
        if kind == "masks":
            table, labels = name_labels(text, "masks")
            table.loc[values.isna().any(axis=1), "label"] = -1
            table = complete_labels(table, labels, rows)
        else:
            table, labels = read_labels(text, rows, settings, known)
        labels = replace(labels, classes=saved.classes or labels.classes)
    return table.assign(problem=first_problem(problem, table["problem"])), labels


def _find_kind(schemas: Iterable[RecordSchema]) -> str:
    """Return the kind of labels: "single" unless a split has another one."""
    kinds = {schema.kind for schema in schemas}
    return min(kinds - {"single"}, default="single")


def _spread_labels(records: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a column for each label, with NaN where a record has none.

    Labels are lists of 0 and 1, or each is a feature.
    """
    if "labels" not in records:
        return records.reindex(columns=list(columns))
    lengths = records["labels"].str.len()
    names = list(columns) or [f"label_{i}" for i in range(int(lengths.max()))]
    lists = records["labels"][lengths == len(names)]
    values = pd.DataFrame(lists.tolist(), lists.index, names, dtype=object)
    return values.reindex(records.index)


def _find_names(records: pd.DataFrame, saved: Labels) -> dict[Any, str]:
    """Return the name of each number of a label, {} if numbers have no names.

    The names are those of labels.json, or of a feature with the name of each class.
    """
    if "label" not in records:
        return {}
    classes = saved.classes if saved.kind == "single" else ()
    # Numbers without a class are left out.
    name_of: dict[Any, str] = {
        label: name for name, label in number_names(classes).items()
    }
    return name_of or find_text_column(records)


def _name_classes(
    records: pd.DataFrame, name_of: Mapping[Any, str]
) -> tuple[pd.DataFrame, pd.Series]:
    """Return the class of each record as a column, none without labels; and problems.

    name_of: the class of each number, {} if the numbers are the classes.
    """
    if "label" not in records:
        return pd.DataFrame(index=records.index), pd.Series("", records.index)
    named = [_name_class(value, name_of) for value in records["label"]]
    columns = pd.DataFrame(named, records.index, ["class", "problem"])
    return columns[["class"]], columns["problem"]


def _name_class(value: Any, name_of: Mapping[int, str]) -> tuple[str, str]:
    """Return the class that the value of a label means, or "", and a problem, or ""."""
    if isinstance(value, str):
        return value, ""
    if pd.isna(value):
        return "", ""
    if not is_whole(value):
        return "", f"label {value} is not a whole number"
    if value < 0:
        return "", ""
    if not name_of:
        return str(int(value)), ""
    if value not in name_of:
        return "", f"label {int(value)} is not a class of labels.json"
    return name_of[value], ""


def _check_labels(
    records: pd.DataFrame, labelled: pd.DataFrame, schemas: Mapping[str, RecordSchema]
) -> None:
    """Raise an error if no record of a training or validation split has its label.

    All images of the split would be rejected, or written without labels.
    """
    is_good = labelled["problem"] == ""
    is_usable = is_good | labelled["problem"].str.startswith("no label")
    is_labelled = is_good & (labelled["label"] >= 0)
    for split, schema in schemas.items():
        is_of_split = is_usable & (records["split"] == split)
        needs_label = split != "test" and schema.label_keys
        if needs_label and is_of_split.any() and not (is_of_split & is_labelled).any():
            columns = records[is_of_split].dropna(axis=1, how="all").columns
            others = columns.difference(["path", "split", "problem"])
            raise UnclearLabelError(
                f"no record of the split '{split}' has a label in the feature "
                f"'{', '.join(schema.label_keys)}'. "
                f"Features with a value: {', '.join(others) or 'none of one value'}. "
                f"Set INPUT_SCHEMA: {{{schema.image_key}: image, FEATURE: label}}, "
                f"or LABEL_COLUMN: [] to read the images without labels."
            )
