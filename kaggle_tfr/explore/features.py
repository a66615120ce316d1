"""Infer which features of records are the image, the label and the id."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kaggle_tfr.records import list_image_features, list_values
from kaggle_tfr.schema import RecordSchema, load_schema

LABEL_NAME = re.compile(
    r"(?i)(.*[/_])?(labels?|class(es)?|targets?|category|categories)"
    r"(_?(ids?|idx|index|number))?"
)
_ID_NAME = re.compile(r"(?i)(image/)?(image|img|file|picture|photo)?_?(id|name)|key")
_SIZE_NAME = re.compile(r"(?i)(.*[/_])?(height|width|depth|channels|size)")
_NO_LABEL = 3  # see `label_rank`


@dataclass(frozen=True)
class Feature:
    """A feature of some records.

    values: those of each record that has any. is_common: every record has some.
    """

    name: str
    values: list[list[Any]]
    is_common: bool

    @property
    def is_single(self) -> bool:
        """Whether no record has several values."""
        return {len(values) for values in self.values} == {1}

    @property
    def description(self) -> str:
        """The name and the type, such as "tags (list of int)"."""
        type_name = type(self.values[0][0]).__name__
        if type_name == "bytes":
            type_name = "text or bytes"
        return f"{self.name} ({'' if self.is_single else 'list of '}{type_name})"

    @property
    def label_rank(self) -> int:
        """0 to 2 for what may be a label, the likeliest first; _NO_LABEL for the rest.

        A label may be missing in some records, which are rejected later.
        """
        first_values = [values[0] for values in self.values]
        if not self.is_single:
            return _NO_LABEL
        if LABEL_NAME.fullmatch(self.name):
            if all(map(is_whole, first_values)):
                return 0
            if isinstance(first_values[0], bytes):
                return 1
        is_size = _SIZE_NAME.fullmatch(self.name)
        if self.is_common and isinstance(first_values[0], int) and not is_size:
            return 2
        return _NO_LABEL

    @property
    def is_id(self) -> bool:
        """Whether it is a text that is different in every record."""
        if (
            not self.is_common
            or not self.is_single
            or not _ID_NAME.fullmatch(self.name)
        ):
            return False
        texts = {values[0] for values in self.values if isinstance(values[0], bytes)}
        return len(texts) == len(self.values)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, which may be stored as a float."""
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def infer_schema(
    shard: str, records: Sequence[Mapping[str, Any]], split: str, *, needs_label: bool
) -> RecordSchema:
    """Return the schema by values and names of features; a printed line names them.

    records: the features of the first records of `shard`.
    Raises: ValueError: several features may be the image or the label, none is the
    image, or none is a label although one is needed.
    """
    features = _collect_features(records)
    images = _list_images(records)
    labels = _list_labels(features)
    ids = [f.name for f in features if f.is_id and f.name not in labels][:1]
    advice = "Name the features that are image, label and image_id: INPUT_SCHEMA:"
    if not images:
        names = ", ".join(feature.name for feature in features)
        raise ValueError(
            f"in '{shard}' none of {names} looks like the image. "
            f"{advice} {{feature: image, …}}"
        )
    for source, found in (("image", images), ("label", labels)):
        if len(found) > 1:
            raise ValueError(
                f"in '{shard}' each of {', '.join(found)} looks like the {source}. "
                f"{advice} {{{found[0]}: {source}, …}}"
            )
    if needs_label and not labels:
        others = [f.description for f in features if f.name not in images]
        raise ValueError(
            f"in '{shard}' no feature looks like the label of the split '{split}'. "
            f"Features besides the image: {', '.join(others) or 'none'}. "
            f"Set INPUT_SCHEMA: {{{images[0]}: image, FEATURE: label}} "
            f"(FEATURE: labels for a list of 0 and 1), "
            f"or LABEL_COLUMN: [] to read the images without labels."
        )

    source_of = {images[0]: "image"}
    source_of |= dict.fromkeys(labels, "label") | dict.fromkeys(ids, "image_id")
    print(
        f"{split}: image {images[0]}, label {[*labels, '–'][0]}, "
        f"image_id {[*ids, '–'][0]} "
        f"(by {len(records)} records of {os.path.basename(shard)})"
    )
    return load_schema(source_of)


def _collect_features(records: Sequence[Mapping[str, Any]]) -> list[Feature]:
    """Return the features that have values, by name."""
    features = []
    for name in sorted(set().union(*records)):
        values = [list_values(record[name]) for record in records if name in record]
        values = [values_of_record for values_of_record in values if values_of_record]
        if values:
            features.append(Feature(name, values, len(values) == len(records)))
    return features


def _list_images(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the features that hold an image in most records."""
    counts = Counter(name for record in records for name in list_image_features(record))
    return sorted(name for name, count in counts.items() if 2 * count > len(records))


def _list_labels(features: Sequence[Feature]) -> list[str]:
    """Return the likeliest label; several names if they are equally likely."""
    rank = min((feature.label_rank for feature in features), default=_NO_LABEL)
    labels = [feature.name for feature in features if feature.label_rank == rank]
    is_unclear = rank == 2 and len(labels) > 1  # numbers with any name
    return [] if rank == _NO_LABEL or is_unclear else labels
