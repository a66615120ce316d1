"""Read shards as the input: each record is a row, its path an address: "x.tfrec#17"."""

import fnmatch
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.explore.features import (
    UnclearLabelError,
    find_text_column,
    infer_schema,
)
from kaggle_tfr.explore.files import explain_unreadable, list_files
from kaggle_tfr.explore.labels import NO_LABEL, RESERVED, Table, read_labels
from kaggle_tfr.explore.rows import (
    FILE,
    ID,
    LINK_PROBLEM,
    PROBLEM,
    SPLIT,
    first_problem,
)
from kaggle_tfr.explore.settings import InputSettings, list_texts
from kaggle_tfr.naming import is_shard_name, parse_shard_name
from kaggle_tfr.records import (
    DamagedRecord,
    Features,
    index_shard,
    list_image_features,
    list_values,
    read_index,
)
from kaggle_tfr.schema import SOURCES, Labels, RecordSchema, load_schema
from kaggle_tfr.shards import (
    check_one_dataset,
    choose_schema,
    read_part_table,
    share_labels,
)

INSPECTED = 20  # records of a shard, from which INPUT_SCHEMA: auto infers the schema


def read_records(settings: InputSettings, known: Labels | None = None) -> Table:
    """Return the records of all shards as a table, and their labels.

    No image is decoded. A damaged record is a row with a problem, and so is a shard
    that cannot be read.
    image_id: that of the record, or its address below INPUT_DIR if there is none or if
    it repeats. Other features with one value are columns.
    known: the labels of the main input, for a further one.
    Raises: FileNotFoundError: no shard; ValueError: INPUT_SCHEMA does not fit.
    """
    input_dir = settings.input_dir
    shards = list_shards(settings)
    if shards.empty:
        raise FileNotFoundError(
            f"no TFRecord shard in {input_dir} is an input: there is none that fits "
            "PATTERN, or they are in WORK_DIR or OUT_DIR. Set INPUT_DIR to the folder "
            "of the shards, and PATTERN to their names, such as '*.tfrec'."
        )
    schemas = {
        str(split): _choose_schema(of_split, settings)
        for split, of_split in shards.groupby("split")
    }
    read_shard = partial(_read_shard, schemas=schemas, input_dir=input_dir)
    tables = parallel.run(
        read_shard, shards.to_numpy().tolist(), label="Reading shards"
    )
    records = pd.concat(tables, ignore_index=True)
    folders = sorted(set(map(os.path.dirname, shards["file"])))
    texts = dict(_read_above(folder, "labels.json", input_dir) for folder in folders)
    saved = share_labels(texts)
    labelled, labels = _label_records(records, schemas, saved, known, settings)
    others = records.drop(columns=list(labels.label_columns), errors="ignore")
    others = others.filter(regex="^[^/]")
    if settings.has_labels:
        _check_labels(records, labelled, schemas, list(others))
    others = others.rename(columns={name: f"record_{name}" for name in RESERVED})
    others = others.convert_dtypes(convert_string=False, convert_floating=False)
    addresses = records[FILE].str.removeprefix(f"{input_dir}/")
    addresses = addresses.str.replace(r"#[^#]+=(\d+)$", r"#\1", regex=True)
    ids = records.get(ID, addresses).fillna(addresses)
    images = pd.DataFrame(
        {
            "image_id": ids.mask(ids.duplicated(), addresses),
            "path": records[FILE],
            "split": records[SPLIT],
        }
    )
    return pd.concat([images, labelled, others], axis=1), labels


def list_shards(settings: InputSettings) -> pd.DataFrame:
    """Return file, split and part of each shard in INPUT_DIR, sorted by file.

    PATTERN chooses them, else their names.
    Shards that a shards.csv lists, but whose file is missing, are among them. A shard
    that none lists has the split in its name, and the part "".
    Raises: ValueError: parts of different datasets.
    """
    input_dir = settings.input_dir
    files = list_files(input_dir, (), settings.excluded, products=())
    paths = [f"{input_dir}/{name}" for name in (*files.images, *files.others)]
    listed = dict[str, tuple[str, str, str]]()
    for table in fnmatch.filter(paths, "*/shards.csv"):
        part = os.path.dirname(table)
        listing = read_part_table(part, columns=["file", "split"])
        for name, split in listing.to_numpy():
            file = storage.join(part, name)
            listed[file] = (file, split, part)

    patterns = list_texts(settings.pattern)
    shards = {*listed, *filter(is_shard_name, paths)} if not patterns else set()
    for pattern in patterns:
        path_pattern = f"{glob.escape(input_dir)}/{pattern}"
        shards.update(fnmatch.filter({*listed, *paths}, path_pattern))
    rows = []
    for file in sorted(shards):
        split, _ = parse_shard_name(file, input_dir)
        rows.append(listed.get(file, (file, split, "")))
    check_one_dataset(
        [part for _, _, part in rows if part],
        advice="Set INPUT_DIR to one of them, MORE_INPUTS to the other.",
    )
    return pd.DataFrame(rows, columns=["file", "split", "part"])


def _read_above(folder: str, name: str, input_dir: str) -> tuple[str, str]:
    """Return the text of a file in the folder or the nearest one above it, "" for none.

    The first value is the folder with the file.
    """
    text = storage.read_text(f"{folder}/{name}")
    if text or len(folder) <= len(input_dir):
        return folder, text
    return _read_above(os.path.dirname(folder), name, input_dir)


def _choose_schema(shards: pd.DataFrame, settings: InputSettings) -> RecordSchema:
    """Return the schema of a split: INPUT_SCHEMA, a schema.json, or an inferred one.

    It is inferred from the first shard with records that can be read.
    """
    path, split, *_ = shards.iloc[0]
    folder, text = _read_above(os.path.dirname(path), "schema.json", settings.input_dir)
    schema = "" if settings.input_schema == "auto" else settings.input_schema
    if schema or text:
        try:
            return choose_schema(folder, schema).for_split(split)
        except ValueError as error:
            raise ValueError(f"INPUT_SCHEMA: {error}") from None
    for path in shards["file"]:
        inspected = islice(_walk_records(path, settings.input_dir), INSPECTED)
        records = [features for features, problem in inspected if not problem]
        if records:
            return infer_schema(path, records, split, has_labels=settings.has_labels)
    return load_schema({"image": "image"})


def _walk_records(
    path: str, input_dir: str, part: str = ""
) -> Iterator[tuple[Features, str]]:
    """Yield features and problem of each record; a problem means no features.

    part: the folder with an index of the shard, "" for none. Records that only this
    index lists come last.
    """
    if not storage.is_inside(path, input_dir):
        yield {}, LINK_PROBLEM
        return
    try:
        index = index_shard(path)
    except OSError as error:
        yield {}, explain_unreadable(error)
        return

    found = set(index.bounds[:-1])
    name = path.removeprefix(f"{part}/")
    listed = set(read_index(f"{part}/index/{name}.idx")[:-1]) if part else set()
    # The index of another file with this name does not have the frames of this file.
    missing = sorted(listed - found) if found <= listed else []
    if not found and not missing:
        yield {}, f"'{path}' contains no record"
    for number in range(len(index)):
        try:
            with index.open_record(number) as features:
                yield features, ""
        except DamagedRecord as error:
            yield {}, str(error)
    for offset in missing:
        yield {}, f"'{path}' at byte {offset:,}: the record is missing"


def _read_shard(
    shard: Sequence[str], schemas: Mapping[str, RecordSchema], input_dir: str
) -> pd.DataFrame:
    """Return `FILE`, `SPLIT`, `PROBLEM` and the values (object) of each record.

    shard: a row of `list_shards`.
    """
    path, split, part = shard
    schema = schemas[split]
    column_of = {}
    for field in schema.fields:
        source = field.sources[0]
        # "/" does not begin the name of a feature.
        column_of[field.name] = f"/{source}" if source in SOURCES else source
    image_key = schema.image_key
    rows = []
    for number, record in enumerate(_walk_records(path, input_dir, part)):
        features, problem = record
        address = f"{path}#{number}"
        if not problem and image_key not in features:
            problem = f"no image in the feature '{image_key}'"
        elif not problem and list_image_features(features) != [image_key]:
            address = f"{path}#{image_key}={number}"
        place = {FILE: address, SPLIT: split, PROBLEM: problem}
        rows.append(_read_values(features, column_of) | place)
    return pd.DataFrame(rows, dtype=object)


def _read_values(features: Features, column_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a record by their columns.

    The value of "labels" is a list. Other lists, and bytes that are not text, are left
    out.
    """
    row: dict[str, Any] = {}
    for name in sorted(features):
        column = column_of.get(name, name)
        values = list_values(features[name])
        if column == "/labels":
            row[column] = values
        elif len(values) == 1:
            (value,) = values
            with suppress(UnicodeDecodeError):
                row[column] = value.decode() if isinstance(value, bytes) else value
    return row


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
    schema = max(schemas.values(), key=lambda schema: len(schema.label_columns))
    kind = "multi" if "/labels" in records else schema.kind
    if saved.kind != kind:
        saved = Labels(kind, schema.label_columns, schema.label_columns)
    problem = records[PROBLEM]
    is_test = records[SPLIT] == "test"
    is_optional = is_test | (problem != "")
    text = records[[]]
    if kind != "single":
        values = _spread_labels(records, list(saved.label_columns))
        text = values.fillna("").astype(str)
        if kind == "masks":
            is_missing = values.isna().any(axis=1) & ~is_optional
            problem = problem.mask(is_missing, NO_LABEL)
            text = text.melt(value_name="/code", ignore_index=False)
    elif "/label" in records:
        text, saved = _name_classes(records, saved)
        problem = first_problem(problem, text.pop("problem"))

    rows = pd.DataFrame(
        {
            "image": records[FILE],
            "is_test": is_test,
            "is_optional": is_optional,
        }
    )
    settings = replace(settings, label_kind=kind, label_separator="")
    if saved.classes and not settings.label_map:
        known = known or saved
    table, labels = read_labels(text, rows, settings, known)
    if kind != "single":
        labels = replace(labels, classes=saved.classes or labels.classes)
    return table.assign(problem=first_problem(problem, table["problem"])), labels


def _spread_labels(records: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return a column for each label, with NaN where a record has none.

    Labels are lists of 0 and 1, or each is a feature.
    """
    if "/labels" not in records:
        return records.reindex(columns=names)
    lists = records["/labels"].dropna()
    lengths = lists.map(len)
    names = names or [f"label_{number}" for number in range(lengths.max())]
    complete = lists[lengths == len(names)].to_dict()
    values = pd.DataFrame.from_dict(complete, "index", object, names)
    return values.reindex(records.index)


def _name_classes(records: pd.DataFrame, saved: Labels) -> Table:
    """Return the columns class and problem of each label, and the classes in order.

    The names of numbers are those of labels.json, or of a feature with the names.
    """
    classes = enumerate(saved.classes)
    name_of = {label: str(name) for label, name in classes if name is not None}
    if not name_of:
        name_of = find_text_column(records)
        saved = Labels(classes=tuple(name_of.values()))
    named = [_name_class(value, name_of) for value in records["/label"]]
    return pd.DataFrame(named, columns=["class", "problem"]), saved


def _name_class(value: Any, name_of: Mapping[Any, str]) -> tuple[str, str]:
    """Return the class that the value of a label means, or "", and a problem, or ""."""
    if isinstance(value, str) or value in name_of:
        return name_of.get(value, value), ""
    if pd.isna(value) or value < 0:
        return "", ""
    if name_of or value % 1:
        return "", f"label is not a class: {value}"
    return str(int(value)), ""


def _check_labels(
    records: pd.DataFrame,
    labelled: pd.DataFrame,
    schemas: Mapping[str, RecordSchema],
    others: list[str],
) -> None:
    """Raise an error if no record of a training or validation split has its label.

    All images of the split would be rejected, or written without labels.
    others: the features with one value that are not labels.
    """
    whole = labelled[records[PROBLEM] == ""]
    for split, rows in whole.groupby(records[SPLIT]):
        schema = schemas[str(split)]
        if split != "test" and schema.label_keys and (rows["label"] < 0).all():
            raise UnclearLabelError(
                f"no record of the split '{split}' has a label in the feature "
                f"'{', '.join(schema.label_keys)}': {rows['problem'].iloc[0]}. Other "
                f"features with one value: {', '.join(others)}. Set INPUT_SCHEMA: "
                f"{{{schema.image_key}: image, FEATURE: label}}, or LABEL_COLUMN: [] "
                "to read the images without labels."
            )
