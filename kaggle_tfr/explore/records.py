"""Shards as the input: the table of their records, whose paths are addresses ("x.tfrec#17")."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.labels import (
    RESERVED,
    Table,
    multi_label_table,
    read_classes,
    single_label_table,
)
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.records import (
    DamagedRecord,
    index_shard,
    list_image_features,
    list_values,
)
from kaggle_tfr.schema import SOURCES, Labels, RecordSchema, load_schema

LOOKED_AT = 20  # records of a shard, by which "auto" tells what its features are
LABEL_NAME = re.compile(
    r"(?i)(.*[/_])?(labels?|class(es)?|targets?|category|categories)(_?(ids?|idx|index|number))?"
)
_ID = re.compile(r"(?i)(image/)?(image|img|file|picture|photo)?_?(id|name)|key")
_SIZE = re.compile(r"(?i)(.*[/_])?(height|width|depth|channels|size)")
_READ = ("label", "labels", "image_id")  # of SOURCES; the others are made anew


def read_records(input_dir: str, settings: InputSettings) -> Table:
    """The table of the records of shards; a damaged one is a row with a problem, as is a shard.

    image_id: that of the records where it is the first of its kind, else the address below
    INPUT_DIR. Other features of one value are columns. No picture is decoded.
    Raises: FileNotFoundError: no shard; ValueError: INPUT_SCHEMA does not fit, no record is whole.
    """
    from kaggle_tfr.shards import share_labels

    splits, outside = _list_shards(input_dir, settings)
    beside = {os.path.dirname(file) for file in splits}
    folders = sorted(
        {_find_above(one, "labels.json", input_dir) for one in beside} - {""}
    )
    labels = share_labels(
        folders, (storage.read_text(f"{one}/labels.json") for one in folders)
    )
    schemas = dict[str, RecordSchema]()
    for split in sorted(set(splits.values())):
        shards = [file for file in splits if splits[file] == split]
        schemas[split] = _choose_schema(shards, input_dir, settings, split)
    tasks = [
        (file, split, schemas[split], _name_index(file, input_dir))
        for file, split in splits.items()
    ]
    tables = list(
        parallel.run(_read_shard, tasks, label="Reading shards", ordered=True)
    )
    tables += [outside] if len(outside) else []
    images = pd.concat(tables, ignore_index=True)
    if (images["problem"] != "").all():
        what = f"none of the {len(splits)} shards in {input_dir} has a whole record; the first: "
        mend = "Set INPUT_DIR and PATTERN to TFRecord files of tf.train.Example."
        raise ValueError(f"{what}{images['problem'][0]}. {mend}")
    address = images["path"].str[len(input_dir) + 1 :]
    ids = images.pop("image_id").fillna(address) if "image_id" in images else address
    if again := int(ids.duplicated().sum()):
        print(f"{again:,} ids repeat: their records are called by their addresses")
    ids = ids.mask(ids.duplicated(), address)
    labelled, labels = _make_labels(
        images, schemas, labels, read_classes(input_dir, settings.label_map)
    )
    if settings.label_columns:
        _check_labels(
            images.assign(problem=labelled["problem"]), labelled["label"], schemas
        )
    own = ["path", "split", "problem", *_READ, *labels.label_columns]
    others = images.drop(columns=own, errors="ignore").infer_objects()
    others = others.convert_dtypes(convert_string=False, convert_floating=False)
    images = pd.DataFrame(
        {"image_id": ids, "path": images["path"], "split": images["split"]}
    )
    return pd.concat([images, labelled, others], axis=1), labels


def _list_shards(
    input_dir: str, settings: InputSettings
) -> tuple[dict[str, str], pd.DataFrame]:
    """(the split of each shard by its path, a row with a problem for each link that leads out)."""
    from kaggle_tfr.shards import list_inputs

    splits = list_inputs(input_dir, settings.pattern)
    paths = files.keep_inputs(list(splits), input_dir, settings.excluded)
    is_outside = files.find_outside(paths, input_dir)
    inside = [path for path, out in zip(paths, is_outside, strict=True) if not out]
    if not inside:
        what = f"none of the {len(splits)} TFRecord shards in {input_dir} is an input: they lie"
        mend = "Set INPUT_DIR to the folder that holds the shards."
        raise FileNotFoundError(
            f"{what} in WORK_DIR or OUT_DIR, or are links that lead outside. {mend}"
        )
    refused = [
        {"path": f"{path}#0", "split": splits[path], "problem": files.LINK_PROBLEM}
        for path, out in zip(paths, is_outside, strict=True)
        if out
    ]
    columns = ["path", "split", "problem"]
    return {path: splits[path] for path in inside}, pd.DataFrame(
        refused, columns=columns
    )


def _check_labels(
    images: pd.DataFrame, label: pd.Series, schemas: Mapping[str, RecordSchema]
) -> None:
    """Raises a ValueError when a split to train or validate with has a label, and no record has it.

    Without a word all its images would be rejected, or written without labels.
    """
    for split, schema in schemas.items():
        own = (images["split"] == split) & images["problem"].isin(["", "no label"])
        if (
            split == "test"
            or not schema.label_keys
            or not own.any()
            or (label[own] >= 0).any()
        ):
            continue
        columns = (
            images[own]
            .drop(columns=["path", "split", "problem"])
            .dropna(axis=1, how="all")
        )
        there = ", ".join(sorted(map(str, columns))) or "none of one value"
        keys = ", ".join(schema.label_keys)
        raise ValueError(
            f"no record of the split '{split}' has a label in the feature '{keys}'. Features with "
            f"a value: {there}. Set INPUT_SCHEMA: {{{schema.image_key}: image, FEATURE: label}}, "
            f"or LABEL_COLUMN: [] to read the images without labels."
        )


def _find_above(folder: str, name: str, input_dir: str) -> str:
    """The folder, or the nearest above it in INPUT_DIR, that has a file of this name; else ""."""
    while len(folder) >= len(input_dir):
        if storage.exists(f"{folder}/{name}"):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _choose_schema(
    shards: list[str], input_dir: str, settings: InputSettings, split: str
) -> RecordSchema:
    """What the records of a split hold, by INPUT_SCHEMA, a schema.json, or what they look like."""
    from kaggle_tfr.shards import choose_schema

    given = "" if settings.input_schema == "auto" else settings.input_schema
    folder = (
        ""
        if given
        else _find_above(os.path.dirname(shards[0]), "schema.json", input_dir)
    )
    try:
        if given or folder:
            return choose_schema(folder, shards[0], given).for_split(split)
    except ValueError as error:
        raise ValueError(f"INPUT_SCHEMA: {error}") from None
    for shard in shards:
        looked_at = islice(_walk_records(shard), LOOKED_AT)
        if records := [features for _, features, problem in looked_at if not problem]:
            needs_label = split != "test" and bool(settings.label_columns)
            return _guess_schema(shard, records, split, needs_label=needs_label)
    return load_schema({"image": "image"})  # of nothing that can be read


def _name_index(file: str, input_dir: str) -> str:
    """Return the path that a shard's index has in a part, "" outside of parts."""
    part = _find_above(os.path.dirname(file), "shards.csv", input_dir)
    return f"{part}/index/{file[len(part) + 1 :]}.idx" if part else ""


def _list_missing(index_path: str, bounds: Sequence[int]) -> list[int]:
    """Return the offsets of records that are in a shard's index, but not in its file.

    bounds: where the frames in the file begin, and where the last one ends.
    """
    from kaggle_tfr.records import read_index

    found = set(bounds[:-1])
    listed = set(read_index(index_path)[:-1]) if index_path else set()
    # The index of another file with this name does not have the frames of this file.
    return sorted(listed - found) if found <= listed else []


def _walk_records(
    file: str, image: str = "", index_path: str = ""
) -> Iterator[tuple[int, Mapping[str, Any], str]]:
    """(number, features, "") of each record of a shard, (number, {}, problem) of a damaged one.

    Records that are only in the index of the shard come last.
    """
    try:
        index = index_shard(file, image)
    except TimeoutError:
        raise
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        yield (
            0,
            {},
            "missing file" if is_gone else f"unreadable: {error.strerror or error}",
        )
        return
    bounds = index.bounds.tolist()
    missing = _list_missing(index_path, bounds)
    if len(bounds) == 1 and not missing:
        yield 0, {}, f"'{file}' holds no record"
    for number in range(len(bounds) - 1):
        try:
            yield number, index.read_features(number), ""
        except DamagedRecord as error:
            yield number, {}, str(error)
    for number, offset in enumerate(missing, len(bounds) - 1):
        yield number, {}, f"'{file}' at byte {offset:,}: the record is missing"


def _guess_schema(
    file: str, records: list[Mapping[str, Any]], split: str, *, needs_label: bool
) -> RecordSchema:
    """The schema by what features look like and are called; a printed line names them.

    Raises: ValueError: several features could be one, there is no image, or no label where one is
    needed.
    """
    seen = Counter(
        name for features in records for name in list_image_features(features)
    )
    pictures = sorted(name for name, count in seen.items() if 2 * count > len(records))
    values = _collect_values(records)
    single = [name for name, held in values.items() if set(map(len, held)) == {1}]
    # A record may lack its label: it is rejected later, and takes no other record's label away.
    common = [name for name in single if len(values[name]) == len(records)]
    numbers = [name for name in single if all(is_whole(one) for (one,) in values[name])]
    texts = [name for name in single if isinstance(values[name][0][0], bytes)]
    whole = [
        name
        for name in numbers
        if name in common and isinstance(values[name][0][0], int)
    ]
    others = [name for name in whole if not _SIZE.fullmatch(name)]
    label = [name for name in numbers if LABEL_NAME.fullmatch(name)]
    label = label or [name for name in texts if LABEL_NAME.fullmatch(name)]
    label = label or others[: len(others) == 1]
    ids = [
        name
        for name in texts
        if _ID.fullmatch(name) and name in common and name not in label
    ]
    ids = [
        name for name in ids if len({one for (one,) in values[name]}) == len(records)
    ]
    chosen = {"image": pictures, "label": label, "image_id": ids[:1]}
    for what, found in chosen.items():
        if len(found) > 1 or (what == "image" and not found):
            holds = (
                f"each of {', '.join(found)}"
                if found
                else f"none of {', '.join(values)}"
            )
            example = f"{{{[*found, 'feature'][0]}: {what}, …}}"
            mend = f"Name the features that are image, label and image_id: INPUT_SCHEMA: {example}"
            raise ValueError(f"in '{file}' {holds} looks like the {what}. {mend}")
    if needs_label and not label:
        rest = {name: held for name, held in values.items() if name not in pictures}
        listed = (
            ", ".join(f"{name} ({_describe(held)})" for name, held in rest.items())
            or "none"
        )
        raise ValueError(
            f"in '{file}' no feature looks like the label of the split '{split}'. Besides the "
            f"image there are: {listed}. Set INPUT_SCHEMA: {{{pictures[0]}: image, FEATURE: label}}"
            f" (FEATURE: labels for a list of 0 and 1), or LABEL_COLUMN: [] to read the images "
            f"without labels."
        )
    told = ", ".join(f"{what} {[*found, '–'][0]}" for what, found in chosen.items())
    print(f"{split}: {told} (by {len(records)} records of {os.path.basename(file)})")
    return load_schema({found[0]: what for what, found in chosen.items() if found})


def _collect_values(records: Sequence[Mapping[str, Any]]) -> dict[str, list[list]]:
    """The values of each feature, by its name, of the records in which it is not empty."""
    values = dict[str, list[list]]()
    for name in sorted(set[str]().union(*records)):
        held = [list_values(features[name]) for features in records if name in features]
        if held := [one for one in held if one]:
            values[name] = held
    return values


def is_whole(value: Any) -> bool:
    """True for a whole number, also one that is stored as a float."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _describe(held: list[list]) -> str:
    """What the values of a feature are, such as "list of int"."""
    kind = {"bytes": "text or bytes"}.get(name := type(held[0][0]).__name__, name)
    return kind if set(map(len, held)) == {1} else f"list of {kind}"


def _read_shard(task: tuple[str, str, RecordSchema, str]) -> pd.DataFrame:
    """Path, split, problem and values (object) of each record of a shard."""
    file, split, schema, index_path = task
    key, wanted, read = schema.image_key, {*_READ, *schema.label_columns}, []
    known = {
        one.name: one.source for one in schema.fields if isinstance(one.source, str)
    }
    unread = {one.name for one in schema.fields} - known.keys()
    unread |= {
        name for name, source in known.items() if source in SOURCES.keys() - wanted
    }
    taken = RESERVED | SOURCES.keys()
    for number, features, problem in _walk_records(file, key, index_path):
        row: dict[str, Any] = {
            "path": f"{file}#{number}",
            "split": split,
            "problem": problem,
        }
        for name in sorted(features.keys() - unread):
            column = known.get(name, name)
            if name not in known or column not in wanted:
                column = f"record_{column}" if column in taken else column
            values = list_values(features[name])
            with suppress(UnicodeDecodeError):  # bytes that are no text make no column
                values = [v.decode() if isinstance(v, bytes) else v for v in values]
                if column == "labels" or len(values) == 1:
                    row[column] = values if column == "labels" else values[0]
        if not problem and (
            key not in features or len(features[key].bytes_list.value) != 1
        ):
            row["problem"] = f"no picture in the feature '{key}'"
        read.append(row)
    return pd.DataFrame(read, dtype=object)


def _make_labels(
    images: pd.DataFrame,
    schemas: Mapping[str, RecordSchema],
    ours: Labels,
    classes: list | None,
) -> Table:
    """The columns of labels and problems; `ours`: the labels.json beside the shards."""
    kinds = {schema.kind for schema in schemas.values()} - {"single"}
    kind = "multi" if "labels" in images else min(kinds, default="single")
    if kind == "single":
        known = ours.classes if ours.kind == "single" else ()
        table, labels = _name_classes(images, known, classes)
    elif classes:
        raise ValueError(
            "LABEL_MAP numbers one class per image. Leave it empty for several."
        )
    else:
        listed = (schema.label_columns for schema in schemas.values())
        held = _spread_labels(images, ours.label_columns or max(listed, key=len))
        missing = held.isna().any(axis=1)
        flags = held.fillna("") if kind == "masks" else held.fillna(0).astype(np.int8)
        table, labels = multi_label_table(
            flags, kind, np.where(missing, "no label", "")
        )
        table.loc[missing, ["label", "label_name"]] = -1, ""
        labels = replace(labels, classes=ours.classes or labels.classes)
    unlabelled = (images["split"] == "test") & (table["label"] < 0)
    problem = images["problem"].mask(
        images["problem"] == "", table["problem"].mask(unlabelled, "")
    )
    return table.assign(problem=problem), labels


def _spread_labels(images: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A column a label: of lists of 0 or 1, or of features of their own; NaN where none are."""
    if "labels" not in images:
        return images.reindex(columns=list(columns))
    lists = [value if isinstance(value, list) else [] for value in images["labels"]]
    names = columns or [f"label_{number}" for number in range(max(map(len, lists)))]
    fits = [
        values if len(values) == len(names) else [None] * len(names) for values in lists
    ]
    return pd.DataFrame(fits, images.index, list(names))


def _name_classes(
    images: pd.DataFrame, known: Sequence[Any], classes: list | None
) -> Table:
    """The columns of one class each: of numbers by `known` classes, or the numbers themselves."""
    if "label" not in images:
        table, labels = single_label_table(pd.Series("", images.index), classes)
        return table.assign(problem=""), labels
    values = [int(value) if is_whole(value) else value for value in images["label"]]
    held = pd.Series(values, images.index, dtype=object)
    names = {n: str(one) for n, one in enumerate(known) if one is not None}
    is_number = held.map(lambda value: isinstance(value, int) and value >= 0)
    text = held.where(held.map(lambda value: isinstance(value, str)), "")
    text = text.mask(
        is_number, held.map(names).fillna("") if names else held.astype(str)
    )
    table, labels = single_label_table(text, classes or list(known) or None)
    unknown = "label " + held.astype(str) + " is no class of labels.json"
    problem = table["problem"].mask(is_number & (text == ""), unknown)
    is_fraction = held.map(
        lambda value: isinstance(value, float) and not math.isnan(value)
    )
    problem = problem.mask(
        is_fraction, "label " + held.astype(str) + " is not a whole number"
    )
    return table.assign(problem=problem), labels
