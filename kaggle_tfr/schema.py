"""What a record holds: one description that encodes a row and its image, and parses them back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from kaggle_tfr.fields import PRESETS, RAGGED, SOURCES, Field, as_list, as_values, make_field
from kaggle_tfr.names import near_miss

OF_PICTURE = {
    "image": lambda picture: picture.data,
    "height": lambda picture: picture.height,
    "width": lambda picture: picture.width,
    "depth": lambda picture: count_channels(picture.data),
    "format": lambda picture: picture.format.lower(),
    "extension": lambda picture: picture.format.lower().replace("jpeg", "jpg"),
}
LISTS = {"bytes": "bytes_list", "int64": "int64_list", "float": "float_list"}


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


def load_schema(given: str | Mapping | RecordSchema, images=None) -> RecordSchema:
    """The schema of that preset's name or that description, fitted to a table when one is given.

    given: {feature: source} or {feature: {from, type, size, dtype}}; `from` may be a list.
    images: the table of `read_table`: sets kind, n_classes and label_columns, checks the columns.
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
    return schema if images is None else _fit(schema, images)


def _fit(schema, images):
    """The schema with the kind, classes and label columns of a table that has all it needs."""
    kind, columns = images.attrs["kind"], tuple(images.attrs["label_columns"])
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
    return RecordSchema(tuple(fields), kind, len(images.attrs["classes"]), columns)


def feature_dict(schema: RecordSchema) -> dict[str, Any]:
    """What `tf.io.parse_single_example` takes: the feature specification of each field."""
    import tensorflow as tf

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
    import tensorflow as tf

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
            values = as_values(field, value)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            found = row.get(field.source) if isinstance(field.source, str) else field.source
            raise ValueError(
                f"image '{row.get('image_id')}': the field '{field.name}' takes {field.type}, but "
                f"'{field.source}' is {found!r}: {error}. Mend the row, or the field in SCHEMA."
            ) from None
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


@lru_cache
def _tensorflow():
    import tensorflow as tf

    return tf.train.Example, tf.io.serialize_tensor
