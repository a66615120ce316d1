"""Infer which features of records are the image, the label and the id."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd

from kaggle_tfr.records import Features, list_image_features, list_values
from kaggle_tfr.schema import RecordSchema, load_schema

# Such as "target", "class_id" and "image/class/label".
_LABEL_NAME = re.compile(
    r"(?i)(.*[/_])?(labels?|class(es)?|targets?|category|categories)"
    r"(_?(ids?|idx|index|number))?"
)
# Such as "image_name", "id" and "image/filename".
_ID_NAME = re.compile(r"(?i)(image/)?(image|img|file|picture|photo)?_?(id|name)|key")
# Of the feature with the name of the class, beside the one with its number.
_CLASS_NAME = re.compile(r"(?i)(.*[/_])?(class|label|category)[/_]?(text|names?)")


class UnclearLabelError(ValueError):
    """No feature of records is clearly the label."""


def infer_schema(
    shard: str,
    records: Sequence[Features],
    split: str,
    *,
    has_labels: bool,
) -> RecordSchema:
    """Return the schema by values and names of features; a printed line names them.

    records: the first records of `shard`.
    has_labels: whether records have labels, except those of the test split, which may
    have them.
    Raises: ValueError: several features may be the image, or none; UnclearLabelError:
    several may be the label, or none although the records have labels.
    """
    names = sorted(set().union(*records))
    image_names = list(chain.from_iterable(map(list_image_features, records)))
    images = [name for name in names if 2 * image_names.count(name) > len(records)]
    values_of = {}
    for name in names:
        lists = [list_values(record[name]) for record in records if name in record]
        if max(map(len, lists)) == 1:
            values_of[name] = list(chain.from_iterable(lists))
    ids = [
        name
        for name, values in values_of.items()
        if _ID_NAME.fullmatch(name)
        and isinstance(values[0], bytes)
        and len(set(values)) == len(records)
    ]

    found = {"image": images, "image_id": ids[:1]}
    if has_labels:
        found["label"] = _list_labels(values_of)
    optional = ["image_id", "label"] if split == "test" else ["image_id"]
    for source, candidates in found.items():
        if len(candidates) > 1 or not (candidates or source in optional):
            error = UnclearLabelError if source == "label" else ValueError
            raise error(
                f"in '{shard}' {'each' if candidates else 'none'} of "
                f"{', '.join(candidates or names)} looks like the {source} of the "
                f"split '{split}'. Set INPUT_SCHEMA to the features that are image, "
                "label and image_id: {FEATURE: image, FEATURE: label}; 'labels' is a "
                "list of 0 and 1. LABEL_COLUMN: [] reads the images without labels."
            )
    source_of = {name: source for source in found for name in found[source]}
    print(f"{split}: {source_of} by {len(records)} records of '{shard}'")
    return load_schema(source_of)


def _list_labels(values_of: dict[str, list]) -> list[str]:
    """Return the features that are called like a label: whole numbers, else texts.

    A label may be missing in some records, which are rejected later.
    """
    texts = []
    whole_numbers = []
    for name in filter(_LABEL_NAME.fullmatch, values_of):
        values = values_of[name]
        if isinstance(values[0], bytes):
            texts.append(name)
        elif not any(value % 1 for value in values):
            whole_numbers.append(name)
    return whole_numbers or texts


def find_text_column(records: pd.DataFrame) -> dict[Any, str]:
    """Return the name of each number of a label, {} without a feature that has them.

    records: the values of features by their names, the label as "/label".
    """
    for name in filter(_CLASS_NAME.fullmatch, map(str, records)):
        pairs = records[["/label", name]].dropna(subset="/label").drop_duplicates()
        if (pairs.nunique() == len(pairs)).all():  # each has a name of its own
            return dict(sorted(pairs.to_numpy().tolist()))
    return {}
