"""What a record holds: one description that encodes a row and its image, and parses them back."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from kaggle_tfr.fields import PRESETS, RAGGED, SOURCES, Field, RecordSchema, make_field
from kaggle_tfr.names import near_miss
from kaggle_tfr.values import as_list, as_values, count_channels

OF_PICTURE = {
    "image": lambda picture: picture.data,
    "height": lambda picture: picture.height,
    "width": lambda picture: picture.width,
    "depth": lambda picture: count_channels(picture.data),
    "format": lambda picture: picture.format.lower(),
    "extension": lambda picture: picture.format.lower().replace("jpeg", "jpg"),
}
LISTS = {"bytes": "bytes_list", "int64": "int64_list", "float": "float_list"}


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
    schema = RecordSchema(tuple(fields), kind, len(images.attrs["classes"]), columns)
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
    import tensorflow as tf

    return tf.train.Example, tf.io.serialize_tensor
