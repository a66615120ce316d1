"""The fields of a record: what each is made of, and the presets of published pipelines."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr.images.convert import Converted, ImageSettings, resize_mask
from kaggle_tfr.images.masks import NO_MASK, decode_mask, encode_mask
from kaggle_tfr.paths import near_miss

# What a field can be made of, besides the table's columns, and the type it then has by default.
SOURCES = {
    "image": "bytes",  # the encoded picture
    "format": "bytes",  # "jpeg" or "png"
    "extension": "bytes",  # "jpg" or "png"
    "height": "int64",  # of the picture as written, in pixels
    "width": "int64",
    "depth": "int64",  # channels of the picture as written
    "label": "int64",
    "label_name": "bytes",
    "labels": "int64",  # 0 or 1 for each class of a multi-label dataset
    "one_hot": "float",
    "image_id": "bytes",
    "split": "bytes",
}


TYPES = ("bytes", "int64", "float", "tensor")


RAGGED = -1


PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "image": "image",
        "label": "label",
        "height": "height",
        "width": "width",
        "image_id": "image_id",
    },
    "landmark": {"image": "image", "label": "label", "height": "height", "width": "width"},
    "cassava": {"image": "image", "target": "label", "image_name": "image_id"},
    "imagenet": {"label": "label", "image_raw": "image"},
    "clouds": {
        "height": "height",
        "width": "width",
        "depth": "depth",
        "image_raw": "image",
        "fish": {"from": "Fish", "type": "bytes"},
        "flower": {"from": "Flower", "type": "bytes"},
        "gravel": {"from": "Gravel", "type": "bytes"},
        "sugar": {"from": "Sugar", "type": "bytes"},
    },
    "petals": {
        "image": "image",
        "class": "label",
        "label": "label_name",
        "size": {"from": ["height", "width"], "type": "int64"},
        "one_hot_class": {"from": "one_hot", "size": "ragged"},
    },
    "flowers": {
        "image/encoded": "image",
        "image/format": "extension",
        "image/class/label": "label",
        "image/height": "height",
        "image/width": "width",
    },
}


@dataclass(frozen=True)
class Labels:
    """What labels.json holds: the name of the dataset and its classes.

    kind: "single" (a class per image), "multi" (0 or 1 for each class) or "masks" (a run-length
    code for each class). classes: index = label, sorted, with the type of the original ids.
    label_columns: the table's columns of a multi-label or mask dataset, one a class.
    """

    kind: str = "single"
    classes: tuple[int | str | None, ...] = ()
    label_columns: tuple[str, ...] = ()
    name: str = ""

    def to_json(self) -> str:
        """The text of `labels.json`."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping) -> "Labels":
        """The labels of a mapping that came through JSON."""
        lists = {name: tuple(values.get(name, ())) for name in ("classes", "label_columns")}
        return cls(values.get("kind", "single"), **lists, name=values.get("name", ""))


@dataclass(frozen=True)
class Field:
    """One feature of a record.

    source: a key of SOURCES, a column of the table, or several of them for a list.
    type: "bytes", "int64", "float" or "tensor" (as `tf.io.serialize_tensor` writes it).
    size: 0 for one value, n for a list of n, −1 for lists of any length.
    dtype: of a tensor's elements.
    """

    name: str
    source: str | tuple[str, ...]
    type: str = "bytes"
    size: int = 0
    dtype: str = "float32"


@dataclass(frozen=True)
class RecordSchema:
    """The features of a record, in the order of their description.

    kind: "single" (a label), "multi" (0 or 1 for each class) or "masks" (run-length codes).
    n_classes: length of one-hot fields. label_columns: columns of a multi-label or mask table.
    """

    fields: tuple[Field, ...]
    kind: str = "single"
    n_classes: int = 0
    label_columns: tuple[str, ...] = ()

    @property
    def image_key(self) -> str:
        """The feature that holds the picture."""
        return self._key("image")

    @property
    def label_key(self) -> str:
        """The feature that holds the int64 label, "" for none."""
        return self._key("label")

    @property
    def label_keys(self) -> tuple[str, ...]:
        """The features that make up the label: one, or one for each class of masks."""
        wanted = {"single": ("label",), "multi": ("labels", *self.label_columns)}
        sources = wanted.get(self.kind, self.label_columns)
        return tuple(field.name for field in self.fields if field.source in sources)

    @property
    def height_key(self) -> str:
        """The feature that holds the height in pixels, "" for none."""
        return self._key("height")

    @property
    def width_key(self) -> str:
        """The feature that holds the width in pixels, "" for none."""
        return self._key("width")

    def _key(self, source):
        return next((field.name for field in self.fields if field.source == source), "")

    def to_dict(self) -> dict:
        """A mapping that JSON keeps as it is."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping) -> "RecordSchema":
        """The schema that `to_dict` described, also after a journey through JSON."""
        fields = []
        for field in values["fields"]:
            source = field["source"]
            fields.append(
                Field(**field | {"source": source if isinstance(source, str) else tuple(source)})
            )
        return cls(
            **dict(values)
            | {"fields": tuple(fields), "label_columns": tuple(values["label_columns"])}
        )

    def to_json(self) -> str:
        """The text of `schema.json`."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "RecordSchema":
        """The schema that `to_json` wrote."""
        return cls.from_dict(json.loads(text))


def make_field(name: str, spec: Any, images=None) -> Field:
    """The Field of one line of a description; see `schema.load_schema`.

    images: a table whose columns suggest the types that the line leaves out.

    Raises:
        ValueError: an unknown key, type or size.
    """
    spec = {"from": spec} if isinstance(spec, str | list) else dict(spec)
    source = spec.pop("from", name)
    many = not isinstance(source, str)
    size = {"ragged": RAGGED}.get(spec.get("size", 0), spec.get("size", 0))
    size = size or (len(source) if many else RAGGED if source in ("one_hot", "labels") else 0)
    kind = (
        spec.get("type") or SOURCES.get(source[0] if many else source) or _type_of(source, images)
    )
    unknown = set(spec) - {"type", "size", "dtype"}
    if unknown or kind not in TYPES or not isinstance(size, int) or size < RAGGED:
        wrong = f"the key '{min(unknown)}'" if unknown else f"type {kind!r} and size {size!r}"
        raise ValueError(
            f"SCHEMA field '{name}' has {wrong}. A field is {{from: column, type: bytes | int64 | "
            "float | tensor, size: n | ragged, dtype: float32}."
        )
    source = tuple(source) if many else source
    return Field(name, source, kind, size, spec.get("dtype", "float32"))


def _type_of(source, images):
    """The type that a column's own values suggest; text when no table is at hand to ask."""
    column = None if images is None or not isinstance(source, str) else images.get(source)
    kind = "O" if column is None else getattr(column.dtype, "kind", "O")
    return {"i": "int64", "u": "int64", "b": "int64", "f": "float"}.get(kind, "bytes")


FLOAT32_MAX = 3.4028234663852886e38


def as_values(value: Any, kind: str, size: int = 0) -> list:
    """The value as the list that a feature holds, checked.

    kind: "bytes", "int64" or "float". size: 0 for one value, n for a list of n, −1 for a list of
        any length. Lists may come as lists, arrays, or text such as "[1, 2]" or "1 2".

    Raises:
        ValueError: a value that does not fit; the caller knows of which image it is.
    """
    single = {"bytes": _as_bytes, "int64": _as_int, "float": _as_float}[kind]
    if not size:
        return [single(value)]
    values = [single(one) for one in as_list(value)]
    if size not in (-1, len(values)):
        raise ValueError(f"a list of {len(values)} where SCHEMA says {size}")
    return values


def as_list(value: Any) -> list:
    """The elements of a list, an array, or a text that holds one.

    >>> as_list("[1, 2]"), as_list("1 2"), as_list((1, 2))
    ([1, 2], ['1', '2'], [1, 2])
    """
    if isinstance(value, str):
        return json.loads(value) if value.lstrip().startswith("[") else value.split()
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return list(value)
    raise ValueError(f"{value!r} is no list")


def _as_bytes(value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if _is_missing(value):
        raise ValueError("no value")
    return str(value).encode()


def _as_int(value):
    if type(value) is int:
        number = value
    elif _is_missing(value):
        raise ValueError("no value")
    elif isinstance(value, str):
        number = int(value)
    elif int(value) != value:
        raise ValueError(f"{value!r} is no whole number")
    else:
        number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} needs more than 64 bits")
    return number


def _as_float(value):
    number = float(value)
    if FLOAT32_MAX < abs(number) < math.inf:
        raise ValueError(f"{number} is beyond float32")
    return number


def _is_missing(value):
    # pandas has three: None, NaN and NA, whose comparison is no truth value.
    return value is None or type(value).__name__ == "NAType" or value != value  # noqa: PLR0124


def count_channels(data: bytes) -> int:
    """Channels that TensorFlow decodes a JPEG or PNG to when left alone: 1, 2, 3 or 4."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return {0: 1, 4: 2, 6: 4}.get(data[25], 3)
    position = 2
    while position + 9 < len(data):
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        # Frame headers are C0 to CF, but for the tables C4, C8 and CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return min(data[position + 9], 3)
        position += 2 + length
    raise ValueError("the picture is neither JPEG nor PNG")


OF_PICTURE = {
    "image": lambda picture: picture.data,
    "height": lambda picture: picture.height,
    "width": lambda picture: picture.width,
    "depth": lambda picture: count_channels(picture.data),
    "format": lambda picture: picture.format.lower(),
    "extension": lambda picture: picture.format.lower().replace("jpeg", "jpg"),
}


LISTS = {"bytes": "bytes_list", "int64": "int64_list", "float": "float_list"}


def load_schema(
    given: str | Mapping | RecordSchema,
    images: pd.DataFrame | None = None,
    labels: Labels = Labels(),  # noqa: B008  # frozen
) -> RecordSchema:
    """The schema of that preset's name or that description, fitted to a table when one is given.

    given: {feature: source} or {feature: {from, type, size, dtype}}; `from` may be a list.
    images, labels: of `explore.read_table`: set kind, n_classes, label_columns; check the columns.
        The field made of `label` becomes a list for several labels, and one field each for masks.

    Raises:
        ValueError: an unknown preset, source or type; a table without a column; no image.
    """
    if isinstance(given, RecordSchema):
        schema = given
    elif isinstance(given, str):
        if given not in PRESETS:
            raise ValueError(
                f"SCHEMA is '{given}'.{near_miss(given, PRESETS)} There are {', '.join(PRESETS)}; "
                "or describe one's own: {feature: {from: column, type: int64}}."
            )
        schema = RecordSchema(tuple(make_field(*item, images) for item in PRESETS[given].items()))
    elif "fields" in given and "n_classes" in given:
        schema = RecordSchema.from_dict(given)
    else:
        schema = RecordSchema(tuple(make_field(*item, images) for item in given.items()))
    if not schema.image_key:
        raise ValueError(
            "SCHEMA has no field made of the image. Add one, such as 'image: image' in YAML."
        )
    return schema if images is None else _fit(schema, images, labels)


def _fit(schema: RecordSchema, images: pd.DataFrame, labels: Labels) -> RecordSchema:
    """The schema with the kind, classes and label columns of a table that has all it needs."""
    kind, columns = labels.kind, labels.label_columns
    fields = []
    for field in schema.fields:
        if field.source != "label" or kind == "single":
            fields.append(field)
        elif kind == "multi":
            fields.append(replace(field, source="labels", size=len(columns)))
        else:
            fields += [Field(column, column) for column in columns]
    for field in fields:
        for source in (field.source,) if isinstance(field.source, str) else field.source:
            if source not in SOURCES and source not in images:
                known = [*SOURCES, *images.columns]
                raise ValueError(
                    f"SCHEMA field '{field.name}' is made of '{source}', which is no column of the "
                    f"table.{near_miss(source, known)} There are {', '.join(images.columns)}."
                )
    schema = RecordSchema(tuple(fields), kind, len(labels.classes), columns)
    _check_values(schema, images)
    return schema


def _check_values(schema, images):
    """Raises for the first value of the table's own columns that does not fit, before any work."""
    for field in schema.fields:
        if field.type == "tensor" or not isinstance(field.source, str) or field.source in SOURCES:
            continue
        rows = zip(images["image_id"].tolist(), images[field.source].tolist(), strict=True)
        for image_id, value in rows:
            try:
                as_values(value, field.type, field.size)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(_describe(field, image_id, value, error)) from None


def _describe(field, image_id, value, error):
    return (
        f"image '{image_id}': the field '{field.name}' takes {field.type}, but "
        f"'{field.source}' is {value!r}: {error}. Mend the row, or the field in SCHEMA."
    )


def feature_dict(schema: RecordSchema) -> dict[str, Any]:
    """What `tf.io.parse_single_example` takes: the feature specification of each field."""

    kinds = {"int64": tf.int64, "float": tf.float32}
    features = {}
    for field in schema.fields:
        kind = kinds.get(field.type, tf.string)
        shape = [] if field.size == 0 or field.type == "tensor" else [field.size]
        fixed = field.size != RAGGED or field.type == "tensor"
        features[field.name] = (
            tf.io.FixedLenFeature(shape, kind) if fixed else tf.io.RaggedFeature(kind)
        )
    return features


def parse(serialized, schema: RecordSchema) -> dict[str, Any]:
    """The features of one serialized record as tensors; the image still encoded."""

    values = tf.io.parse_single_example(serialized, feature_dict(schema))
    for field in schema.fields:
        if field.type == "tensor":
            values[field.name] = tf.io.parse_tensor(values[field.name], field.dtype)
    return values


def encode(row: Mapping[str, Any], picture, schema: RecordSchema) -> bytes:
    """The serialized `tf.train.Example` of an image; the same bytes for the same values.

    picture: has data (bytes), height, width (pixels) and format ("JPEG" or "PNG").

    Raises:
        ValueError: a value that does not fit its field; image, field and value are named.
    """
    make_example, serialize = _tensorflow()
    example = make_example()
    features = example.features.feature
    for field in schema.fields:
        try:
            value = _find_value(field.source, row, picture, schema)
            if field.type == "tensor":
                value = as_list(value) if isinstance(value, str) else value
                data = serialize(np.asarray(value, field.dtype)).numpy()
                features[field.name].bytes_list.value.append(data)
                continue
            values = as_values(value, field.type, field.size)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            value = row.get(field.source) if isinstance(field.source, str) else None
            raise ValueError(_describe(field, row.get("image_id"), value, error)) from None
        feature = features[field.name]
        getattr(feature, LISTS[field.type]).value.extend(values)
    # Without it the order of the features is that of a hash table.
    return example.SerializeToString(deterministic=True)


def _find_value(source, row, picture, schema):
    if not isinstance(source, str):
        return [_find_value(name, row, picture, schema) for name in source]
    if source in ("one_hot", "labels"):
        return _list_labels(source, row, schema)
    of_picture = OF_PICTURE.get(source)
    return row[source] if of_picture is None else of_picture(picture)


def _list_labels(source, row, schema):
    if source == "labels" or schema.kind == "multi":
        return [row[name] for name in schema.label_columns]
    if not 0 <= row["label"] < schema.n_classes:
        raise ValueError(f"label {row['label']} is none of {schema.n_classes} classes")
    return np.eye(1, schema.n_classes, row["label"])[0].tolist()


@lru_cache
def _tensorflow():

    return tf.train.Example, tf.io.serialize_tensor


def encode_row(
    row: Mapping, picture: Converted, schema: RecordSchema, settings: ImageSettings
) -> bytes:
    """The serialized record of an image; run-length codes follow the picture's new size."""
    before, after = (row.get("height"), row.get("width")), (picture.height, picture.width)
    if schema.kind == "masks" and before != after:
        codes = {name: row[name] for name in schema.label_columns}
        masks = {
            name: decode_mask(code, *before) for name, code in codes.items() if code not in NO_MASK
        }
        new = {name: encode_mask(resize_mask(mask, settings)) for name, mask in masks.items()}
        row = {**row, **new}
    return encode(row, picture, schema)
