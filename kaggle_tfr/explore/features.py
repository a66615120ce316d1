"""Infer which features of records are the image, the label and the id."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd

from kaggle_tfr.records import list_image_features, list_values
from kaggle_tfr.schema import RecordSchema, load_schema

LABEL_NAME = re.compile(
    r"(?i)(.*[/_])?(labels?|class(es)?|targets?|category|categories)"
    r"(_?(ids?|idx|index|number))?"
)
_ID_NAME = re.compile(r"(?i)(image/)?(image|img|file|picture|photo)?_?(id|name)|key")
_SIZE_NAME = re.compile(r"(?i)(.*[/_])?(height|width|depth|channels|size)")

# Of the feature with the name of the class, beside the one with its number.
_CLASS_NAME = re.compile(r"(?i)(.*[/_])?(class|label|category)[/_]?(text|names?)")


class UnclearLabelError(ValueError):
    """No feature of records is clearly the label."""


Record = Mapping[str, Any]  # its features by name
Values = Mapping[str, list[Any]]  # of all records, by the names of features


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, which may be stored as a float."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def infer_schema(
    shard: str, records: Sequence[Record], split: str, *, reads_labels: bool
) -> RecordSchema:
    """Return the schema by values and names of features; a printed line names them.

    records: the first records of `shard`.
    reads_labels: whether records have labels, except those of the test split, which may
    have them.
    Raises: ValueError: several features may be the image, or none; UnclearLabelError:
    several may be the label, or none although the records have labels.
    """
    images = _list_images(records)
    values_of = _collect_values(records)
    labels = _list_labels(values_of, len(records))
    others = sorted(set().union(*records).difference(images))
    _check_choice("image", images, others, shard)
    if not reads_labels and len(labels) > 1:
        labels = []
    if labels or (reads_labels and split != "test"):
        source = f"label of the split '{split}'"
        _check_choice(source, labels, others, shard, UnclearLabelError)
    ids = _list_ids(values_of, len(records))

    source_of = {images[0]: "image"}
    source_of |= dict.fromkeys(labels, "label")
    source_of |= dict.fromkeys(ids[:1], "image_id")
    found = ", ".join(f"{source} {name}" for name, source in source_of.items())
    file = os.path.basename(shard)
    print(f"{split}: {found} (by {len(records)} records of {file})")
    return load_schema(source_of)


def _check_choice(
    source: str,
    names: Sequence[str],
    others: Sequence[str],
    shard: str,
    error: type[ValueError] = ValueError,
) -> None:
    """Raise the error unless exactly one feature looks like the source.

    names: the features that do. others: all features that are not images.
    """
    if len(names) != 1:
        quantity = "each" if names else "none"
        raise error(
            f"in '{shard}' {quantity} of {', '.join(names or others)} looks like the "
            f"{source}. Set INPUT_SCHEMA to the features that are image, label and "
            "image_id: {FEATURE: image, FEATURE: label}; 'labels' is a list of 0 and "
            "1. LABEL_COLUMN: [] reads the images without labels."
        )


def _list_images(records: Sequence[Record]) -> list[str]:
    """Return the features that hold an image in most records."""
    counts = Counter(chain.from_iterable(map(list_image_features, records)))
    return sorted(name for name in counts if 2 * counts[name] > len(records))


def _collect_values(records: Sequence[Record]) -> Values:
    """Return the values of each feature that has at most one in every record.

    Records without the feature are left out.
    """
    values_of = {}
    for name in sorted(set().union(*records)):
        lists = [list_values(record[name]) for record in records if name in record]
        values = list(chain.from_iterable(lists))
        if values and max(map(len, lists)) == 1:
            values_of[name] = values
    return values_of


def _list_labels(values_of: Values, n_records: int) -> list[str]:
    """Return the likeliest label; several names if they are equally likely.

    A label may be missing in some records, which are rejected later.
    """
    named = {
        name: values for name, values in values_of.items() if LABEL_NAME.fullmatch(name)
    }
    numbers = [name for name, values in named.items() if all(map(is_whole, values))]
    texts = [name for name, values in named.items() if isinstance(values[0], bytes)]
    return numbers or texts or _find_number(values_of, n_records)


def _find_number(values_of: Values, n_records: int) -> list[str]:
    """Return the only feature of integers in all records, besides sizes; [] if none."""
    names = [
        name
        for name, values in values_of.items()
        if isinstance(values[0], int)
        and len(values) == n_records
        and not _SIZE_NAME.fullmatch(name)
    ]
    return names if len(names) == 1 else []


def find_text_column(records: pd.DataFrame) -> dict[Any, str]:
    """Return the name of each number of a label, {} without a feature that has them.

    records: the values of features by their names, "label" among them.
    """
    labelled = records[records["label"].notna()]
    for name in labelled.columns:
        if _CLASS_NAME.fullmatch(str(name)) and labelled[name].notna().all():
            pairs = labelled[["label", name]].drop_duplicates()
            if pairs["label"].is_unique and pairs[name].is_unique:
                return dict(zip(pairs["label"], pairs[name], strict=True))
    return {}


def _list_ids(values_of: Values, n_records: int) -> list[str]:
    """Return the features that may be ids: texts that differ in all records."""
    return [
        name
        for name, values in values_of.items()
        if _ID_NAME.fullmatch(name)
        and isinstance(values[0], bytes)
        and len(set(values)) == n_records
    ]
