"""Read shards as the input: each record is a row, its path an address: "x.tfrec#17"."""

import fnmatch
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.explore.files import explain_unreadable, list_files, list_texts
from kaggle_tfr.explore.labels import Table, label_rows
from kaggle_tfr.explore.rows import FILE, ID, LINK_PROBLEM, PROBLEM, SPLIT
from kaggle_tfr.naming import is_shard_name, parse_split
from kaggle_tfr.parameters import Values
from kaggle_tfr.records import (
    DamagedRecord,
    Features,
    index_shard,
    list_image_features,
    list_values,
)
from kaggle_tfr.schema import PRESETS, SOURCES, Labels, RecordSchema
from kaggle_tfr.shards import (
    check_one_dataset,
    choose_schema,
    read_part_table,
    share_labels,
)

# INPUT_SCHEMA: auto takes the largest one whose features are in the first record.
KNOWN = [
    *PRESETS.values(),
    # Of TensorFlow's scripts.
    {
        "image/encoded": "image",
        "image/class/label": "label",
        "image/class/text": "label_name",
    },
    # Of Kaggle's competitions for TPUs.
    {"image": "image", "class": "label", "id": "image_id"},
    {"image": "image", "label": "label"},
]


def read_records(settings: Values, known: Labels | None = None) -> Table:
    """Return the records of all shards as a table, and their labels.

    No image is decoded. A damaged record is a row with a problem, and so is a shard
    that cannot be read.
    image_id: that of the record, or its address below INPUT_DIR ("x.tfrec#17") if there
    is none or if it repeats. Features other than image, label, id, size and split
    become columns of text, "" for a missing value.
    settings: the parameters of 01 by name. known: the labels of the main input, for a
    further one.
    Raises: FileNotFoundError: no shard; ValueError: INPUT_SCHEMA is needed, or cannot
    be used.
    """
    input_dir = settings["INPUT_DIR"]
    shards = list_shards(settings)
    folders = shards["part"].unique()
    schema = _choose_schema(shards, folders[0], settings)
    saved = _load_labels(folders, schema)
    schema = replace(schema, label_columns=saved.label_columns)
    read_shard = partial(_read_shard, schema=schema, input_dir=input_dir)
    listed = shards[["file", "split"]].to_numpy().tolist()
    records = pd.concat(
        parallel.run(read_shard, listed, label="Reading shards"), ignore_index=True
    )
    if saved.classes and "label" in records:
        records["label"] = records["label"].map(dict(enumerate(saved.classes)))
    # Every cell is text, as those of a CSV, so that the rows of both fit together.
    records = records.where(records.notna(), "").astype(str)

    settings = {**settings, "LABEL_SEPARATOR": ""}
    # The shards decide, not LABEL_KIND, unless it makes a quantity of a class.
    if (settings["LABEL_KIND"], saved.kind) != ("number", "single"):
        settings["LABEL_KIND"] = saved.kind
    # Their labels.json numbers the classes, unless LABEL_MAP renames them.
    if saved.classes and not settings["LABEL_MAP"]:
        known = known or saved
    # Without what is read otherwise: image, label, id, size, split … and labels.
    rows = records.drop(columns=[*SOURCES, *saved.label_columns], errors="ignore")
    ids = records.get("image_id", rows[FILE])
    rows[ID] = ids.mask((ids == "") | ids.duplicated(), rows[FILE])
    return label_rows(rows, _read_text(records, saved), settings, known)


def _load_labels(folders: Iterable[str], schema: RecordSchema) -> Labels:
    """Return the labels.json of the shards, or labels as the schema has them.

    Those of the schema count if labels.json has another kind, or is missing; their
    classes are the label columns, if there are any.
    folders: of parts.
    """
    saved = share_labels(folders)
    # "labels" is the source of a list of 0 and 1.
    kind = "multi" if schema.key_of("labels") else schema.kind
    columns = schema.label_columns
    return saved if saved.kind == kind else Labels(kind, columns, columns)


def _read_text(records: pd.DataFrame, saved: Labels) -> pd.DataFrame:
    """Return the labels of records, "" for none, as `label_rows` takes them.

    Columns, by the kind of labels: "single": label_name, or else label; "multi" and
    "number": one for each label column; "masks": the name of the label and "/code", the
    run-length code, with a row for each code, so that the index repeats.
    records: as text. saved: the labels, with their kind and columns.
    """
    columns = list(saved.label_columns)
    if saved.kind == "single":
        columns = [name for name in ("label_name", "label") if name in records][:1]
    text = records.reindex(columns=columns, fill_value="")
    if saved.kind == "masks":
        text = text.melt(value_name="/code", ignore_index=False)
    return text


def list_shards(settings: Values) -> pd.DataFrame:
    """Return file, split and part of each shard in INPUT_DIR, sorted by file.

    They are the files that PATTERN chooses, or without it those named like TFRecords.
    file: below INPUT_DIR. part: the path of the part's folder.
    Shards that a shards.csv lists, but whose file is missing, are among them. A shard
    that no shards.csv lists has the split in its name, and INPUT_DIR as its part.
    settings: the parameters of 01 by name; EXCLUDED: folders that are not input.
    Raises: FileNotFoundError: no shard; ValueError: parts of different datasets.
    """
    input_dir = settings["INPUT_DIR"]
    files = list_files(input_dir, (), settings["EXCLUDED"])
    # Split and part of each file that is not an image.
    places = _place_shards(files.others, input_dir)
    patterns = list_texts(settings["PATTERN"])
    chosen = [fnmatch.filter(places, pattern) for pattern in patterns]
    shards = {*chain(*chosen)} if patterns else filter(is_shard_name, places)
    rows = [(name, *places[name]) for name in sorted(shards)]
    if not rows:
        raise FileNotFoundError(
            f"no TFRecord shard in {input_dir} is an input: there is none that fits "
            "PATTERN, or they are in WORK_DIR or OUT_DIR. Set INPUT_DIR to the folder "
            "of the shards, and PATTERN to their names, such as '*.tfrec'."
        )
    table = pd.DataFrame(rows, columns=["file", "split", "part"])
    check_one_dataset(
        table["part"].unique(),
        advice="Set INPUT_DIR to one of them, MORE_INPUTS to the other.",
    )
    return table


def _place_shards(names: Sequence[str], input_dir: str) -> dict[str, tuple[str, str]]:
    """Return (split, part folder) of each file, and of those that a shards.csv lists.

    names: paths below input_dir, which are the keys. A file that no shards.csv lists
    has the split in its name, and input_dir as its part.
    """
    places = {name: (parse_split(name), input_dir) for name in names}
    for listing in fnmatch.filter(names, "*shards.csv"):
        folder = os.path.dirname(listing)
        part = f"{input_dir}/{folder}".rstrip("/")
        listed = read_part_table(part, columns=["file", "split"])
        for name, split in listed.to_numpy():
            places[os.path.join(folder, name)] = (split, part)
    return places


def _choose_schema(
    shards: pd.DataFrame,
    folder: str,
    settings: Values,
) -> RecordSchema:
    """Return INPUT_SCHEMA, the schema.json in a folder, or that of a known dataset.

    The known dataset is the one with most features of those in `KNOWN` whose features
    are all in the first labelled record that is not damaged.
    shards: of `list_shards`. folder: of the first part.
    Raises: as `read_records`.
    """
    schema = "" if settings["INPUT_SCHEMA"] == "auto" else settings["INPUT_SCHEMA"]
    # For "", `choose_schema` reads schema.json.
    if schema or storage.exists(f"{folder}/schema.json"):
        return choose_schema(folder, schema)
    walk = partial(_walk_records, input_dir=settings["INPUT_DIR"])
    records = chain.from_iterable(map(walk, shards.query("split != 'test'")["file"]))
    features = next((found for found, problem in records if not problem), {})
    # Each of KNOWN is {feature: source}, as INPUT_SCHEMA is.
    known = [lines for lines in KNOWN if features.keys() >= lines.keys()]
    if not known:
        raise ValueError(
            f"the features of the records, {', '.join(sorted(features))}, are not "
            "those of a known dataset. Set INPUT_SCHEMA to those that are image, label "
            "and image_id: {FEATURE: image, FEATURE: label}; 'labels' is a list of 0 "
            "and 1. Without a label, images have none."
        )
    return choose_schema(folder, max(known, key=len))


def _walk_records(shard: str, input_dir: str) -> Iterator[tuple[Features, str]]:
    """Yield (features, "") of each record in a shard, ({}, problem) of a damaged one.

    A shard that cannot be read, is empty, or is a link out of input_dir is one problem.
    The features stay valid after the next step.
    shard: its path below input_dir.
    """
    path = f"{input_dir}/{shard}"
    if not storage.is_inside(path, input_dir):
        yield {}, LINK_PROBLEM
        return
    try:
        index = index_shard(path)
    except OSError as error:
        yield {}, explain_unreadable(error)
        return
    if not len(index):
        yield {}, f"'{path}' contains no record"
    for number in range(len(index)):
        try:
            with index.open_record(number) as features:
                yield features, ""
        except DamagedRecord as error:
            yield {}, str(error)


def _read_shard(
    shard: Sequence[str],
    schema: RecordSchema,
    input_dir: str,
) -> pd.DataFrame:
    """Return a row for each record of a shard, also for a damaged one.

    Columns (object): `FILE`, the address of the image, such as "x.tfrec#17" or
    "x.tfrec#image/encoded=17"; `SPLIT`; `PROBLEM`, "" for none; and the values of the
    features by their sources in the schema, as `_read_values` returns them, NaN where a
    record has none.
    shard: file, below input_dir, and split.
    """
    name, split = shard
    schema = schema.for_split(split)
    image_key = schema.image_key
    rows = []
    for number, (features, problem) in enumerate(_walk_records(name, input_dir)):
        row = {FILE: f"{name}#{number}", SPLIT: split, PROBLEM: problem}
        if not problem:
            row |= _read_values(features, schema)
            # A missing feature has no values.
            if not list_values(features[image_key]):
                row[PROBLEM] = f"no image in the feature '{image_key}'"
            # An address without a feature means the only feature that begins like an
            # image file. Unless that is `image_key`, the address names `image_key`.
            elif list_image_features(features) != [image_key]:
                row[FILE] = f"{name}#{image_key}={number}"
        rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _read_values(features: Features, schema: RecordSchema) -> dict[str, Any]:
    """Return the values of a record, text or numbers, by their sources in the schema.

    A source is the column of the table from which a feature is, such as "label". A list
    of 0 and 1 for several labels becomes a value for each label, by its name.
    Other lists, missing values, and bytes that are not text are left out.
    """
    row: dict[str, Any] = {}
    names = schema.label_columns
    for field in schema.fields:
        values = list_values(features[field.name])  # of a missing one: []
        if field.source == "labels" and len(values) == len(names):
            row.update(zip(names, values, strict=True))
        elif len(values) == 1:
            value = values[0]
            with suppress(UnicodeDecodeError):
                text = value.decode() if isinstance(value, bytes) else value
                row[field.sources[0]] = text
    return row
