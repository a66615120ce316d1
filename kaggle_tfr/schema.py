"""The contents of a record: its fields, the presets, and how a row is encoded."""

import dataclasses
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints

import numpy as np
import pandas as pd

from kaggle_tfr.images.header import count_channels
from kaggle_tfr.records import Features, example_class, list_values
from kaggle_tfr.storage import parse_json

if TYPE_CHECKING:
    from kaggle_tfr.images.convert import EncodedImage, ImageSettings

# The sources of fields that every dataset has, and their default types. All other
# sources are columns of the table of images.
SOURCES = {
    "image": "bytes",  # the encoded image
    "extension": "bytes",  # "jpg" or "png"
    "height": "int64",  # of the image in the record, in pixels
    "width": "int64",
    "depth": "int64",  # channels of the image in the record
    "label": "int64",
    "label_name": "bytes",
    "labels": "int64",  # 0 or 1 for each class of a multi-label dataset
    "one_hot": "float",
    "image_id": "bytes",
    "split": "bytes",
}
RAGGED = -1  # the size of a list of any length
LABELS = {"label", "label_name", "labels", "one_hot"}
TYPES = {"bytes": "O", "int64": "<q", "float": "<f"}  # as NumPy and `struct` name them
Row = Mapping[str, Any]  # of a table, by its columns
Names = tuple[str, ...]

_LANDMARK = {"image": "image", "label": "label", "height": "height", "width": "width"}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {**_LANDMARK, "image_id": "image_id"},
    "landmark": _LANDMARK,
    "cassava": {"image": "image", "target": "label", "image_name": "image_id"},
    "imagenet": {"label": "label", "image_raw": "image"},
    "clouds": {
        "height": "height",
        "width": "width",
        "depth": "depth",
        "image_raw": "image",
        "fish": "Fish",
        "flower": "Flower",
        "gravel": "Gravel",
        "sugar": "Sugar",
    },
    "petals": {
        "image": "image",
        "class": "label",
        "label": "label_name",
        "size": ["height", "width"],
        "one_hot_class": "one_hot",
    },
    "flowers": {
        "image/encoded": "image",
        "image/format": "extension",
        "image/class/label": "label",
        "image/height": "height",
        "image/width": "width",
    },
}


class JsonDataclass:
    """A frozen dataclass that is stored as JSON."""

    def to_json(self, **extra: Any) -> str:
        """Return the object as JSON, one key per field.

        extra: more keys, for readers in other languages; `parse` ignores them.
        """
        values = vars(self) | extra
        # `vars` makes a mapping of each dataclass in a field.
        return json.dumps(values, default=vars, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Row) -> Self:
        """Return the object whose fields are the keys of a mapping from JSON.

        Unknown keys are ignored. A missing key has the default of its field.
        Raises: TypeError, ValueError, AttributeError: the mapping is of another class.
        """
        return _from_json(values, cls)

    @classmethod
    def parse(cls, text: str | bytes, path: str, advice: str) -> Self:
        """Return the object that `to_json` has written as `text`.

        path, advice: for the error: the file of the text, and what the user can do.
        Raises: ValueError: the text is not JSON, or is of another class.
        """
        return parse_json(text, path, advice, cls.from_dict)


def _from_json(value: Any, hint: Any) -> Any:
    """Return a value from JSON as the type of a hint, with tuples for lists.

    hint: the type of a field: a dataclass, or a tuple of one type. A value of any other
    type is returned as it is, unchecked.
    """
    if isinstance(value, list):
        # Of tuple[item_hint, ...], or of str | tuple[str, ...].
        item_hint, *_ = get_args(hint)
        return tuple(_from_json(item, item_hint) for item in value)
    if not is_dataclass(hint):
        return value
    hints = get_type_hints(hint)
    known = hints.keys() & value.keys()
    return hint(**{name: _from_json(value[name], hints[name]) for name in known})  # type: ignore[operator]


@dataclass(frozen=True)
class Labels(JsonDataclass):
    """The contents of labels.json.

    kind: "single" (one class per image), "multi" (0 or 1 for each class), "masks"
        (a run-length code for each class) or "number" (a quantity per image).
    classes: index = label, sorted, with the type of the original ids; of a quantity
        the names of its bins.
    label_columns: the table's columns of a multi-label or mask dataset, one per class;
        the column of a quantity.
    bit_depth: how 16-bit images were read, see `read_rgb`.
    """

    kind: str = "single"
    classes: tuple[int | str | None, ...] = ()
    label_columns: Names = ()
    name: str = ""
    bit_depth: str = "scale"

    def blanks(self) -> dict[str, Any]:
        """Return the value of each label column for an image without labels.

        {} if each image has one class: there are no label columns.
        """
        blanks = {"multi": np.int8(0), "masks": "", "number": np.nan}
        return dict.fromkeys(self.label_columns, blanks.get(self.kind))

    @property
    def class_columns(self) -> Names:
        """The columns of the table with one class each, for several labels or masks.

        () if the column `label` has the class of an image, or the bin of its quantity.
        """
        # Of a quantity, `label_columns` is its column; of one class per image, ().
        return () if self.kind == "number" else self.label_columns


@dataclass(frozen=True)
class Field:
    """One feature of a record.

    source: a key of SOURCES or a column of the table of images; several of them make a
        list of their values.
    type: "bytes", "int64" or "float".
    size: 0 for one value, n for a list of n, RAGGED for one of any length.
    """

    name: str
    source: str | Names
    type: str = "bytes"
    size: int = 0

    @property
    def sources(self) -> Names:
        """All sources of the field, also if there is only one."""
        return (self.source,) if isinstance(self.source, str) else self.source


@dataclass(frozen=True)
class RecordSchema(JsonDataclass):
    """The features of a record, in order.

    kind, label_columns: as in `Labels`. n_classes: the length of one-hot fields.
    test_fields: the features of test images, which have no label; () if they have all.
    Schemas that differ only in these are equal: their labelled records have the same
    features, also if only one part of a dataset has test images.
    """

    fields: tuple[Field, ...]
    kind: str = "single"
    n_classes: int = 0
    label_columns: Names = ()
    test_fields: tuple[Field, ...] = dataclasses.field(default=(), compare=False)

    @property
    def image_key(self) -> str:
        """The name of the feature with the image."""
        return self.key_of("image")

    @property
    def label_keys(self) -> Names:
        """The names of the features with labels: one, or one for each class.

        Those of classes are in the order of `label_columns`. () for records without
        labels.
        """
        # A feature with all labels comes first; those of single classes repeat it.
        key = self.key_of("label") or self.key_of("labels")
        keys = [key] if key else map(self.key_of, self.label_columns)
        return tuple(filter(None, keys))

    def key_of(self, source: str) -> str:
        """Return the name of the feature with this one source, "" if there is none.

        A feature that combines several sources, such as height and width, is not one.
        """
        return next((field.name for field in self.fields if field.source == source), "")

    def for_split(self, split: str) -> "RecordSchema":
        """Return the schema of the records of a split.

        Test images have only the `test_fields`, unless these are empty.
        """
        if split == "test" and self.test_fields:
            return RecordSchema(self.test_fields)  # without labels
        return self


SchemaLike = str | Row


def load_schema(
    schema: SchemaLike,
    images: pd.DataFrame | None = None,
    labels: Labels = Labels(classes=(0,)),
) -> RecordSchema:
    """Return a schema, fitted to a table of images if there is one.

    schema: the name of a preset, {feature: source}, or {feature: {from, type}};
        `from` may be a list.
    images, labels: of `explore.read_table`. The field from `label` becomes a list
        for several labels, one field per class for masks, and a float for a quantity.
        Without any class, fields from labels are left out; the default has one. With
        `images`, the fields of test images are chosen, and all values are checked.
    Raises: ValueError: it names the preset, key, type, column or value.
    """
    try:
        lines = PRESETS[schema] if isinstance(schema, str) else schema
        fields: list[Field] = []
        for name, line in lines.items():
            fields += _make_fields(name, line, labels)
        # A KeyError if a type is unknown, or if no field is from "image".
        {field.source: TYPES[field.type] for field in fields}.pop("image")
        record_schema = RecordSchema(
            tuple(fields), labels.kind, len(labels.classes), labels.label_columns
        )
        return record_schema if images is None else _fit(record_schema, images)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"SCHEMA cannot be used: {error}. Write SCHEMA as a preset "
            f"({', '.join(PRESETS)}) or as {{feature: {{from: column, type: bytes | "
            "int64 | float}}, with a feature from image."
        ) from None


def _make_fields(name: str, line: Any, labels: Labels) -> list[Field]:
    """Return the fields of one line of a SCHEMA: usually one.

    Fields from labels depend on `labels`: [] without classes. "label" is a field for
    each class of masks, with the name of its column; a list with 0 or 1 for each of
    several labels; and a quantity.
    name: of the feature. line: a source, a list of sources, or {from, type}, where
    `from` is `name` by default. Unless the line has a type, a column of the table is
    bytes, but one of several labels int64, and a quantity float.
    Raises: TypeError: the line has an unknown key.
    """
    options = {"from": name, **line} if isinstance(line, dict) else {"from": line}
    source = options.pop("from")
    columns = labels.label_columns
    size = 0  # one value
    match source, labels.kind:
        case "label", "masks":
            return [Field(column, column, **options) for column in columns]
        case "label" | "labels", "multi":
            source = "labels"
            size = len(columns)
        case "label" | "labels", "number":
            (source,) = columns
        case "labels" | "one_hot", _:
            size = RAGGED
        case list(), _:
            size = len(source)
            source = tuple(source)
    field = Field(name, source, size=size, **options)
    if "type" not in options:
        # SOURCES has the types of all sources that are not columns of the table.
        types = SOURCES | dict.fromkeys(
            columns, {"multi": "int64", "number": "float"}.get(labels.kind, "bytes")
        )
        field = replace(field, type=types.get(field.sources[0], "bytes"))
    # LABELS are the sources of labels, which have no values if there are no classes.
    return [field] if labels.classes or LABELS.isdisjoint(field.sources) else []


def _fit(schema: RecordSchema, images: pd.DataFrame) -> RecordSchema:
    """Return the schema with its `test_fields`; check the values of all fields.

    The records of unlabelled test images lack the label, and each field whose column is
    empty for all these images. They always have the image's id.
    images: one row per image, with the columns split, label (-1: none), image_id, and
    those that are sources.
    Raises: KeyError: `images` lacks a column; ValueError: a value does not fit a field.
    """
    test_images = images.query("split == 'test' and label < 0")
    if len(test_images):
        # Sources without a value: those of labels, and columns with only "" or NaN.
        is_absent = test_images[test_images != ""].isna().all()
        absent = {*LABELS, *schema.label_columns, *images.columns[is_absent]}
        fields = [field for field in schema.fields if absent.isdisjoint(field.sources)]
        if not schema.key_of("image_id"):
            # A submission needs the id, also if labelled records are without it.
            fields.append(Field("id", "image_id"))
        schema = replace(schema, test_fields=tuple(fields))
    for split, rows in images.groupby("split"):
        for field in schema.for_split(str(split)).fields:
            # SOURCES, such as the height of the image, always have a valid value; the
            # other sources are columns, with any content. Each value is checked once.
            for source in set(field.sources) - SOURCES.keys():
                values = rows[["image_id", source]].drop_duplicates(source)
                for image_id, value in values.to_numpy():
                    # Only for its ValueError.
                    _convert_value(value, field, source, image_id)
    return schema


def feature_spec(schema: RecordSchema) -> dict[str, Any]:
    """Return the features of the schema for `tf.io.parse_single_example`.

    A field of any length is a RaggedFeature, every other field a FixedLenFeature with
    the shape () or (size,).
    """
    from kaggle_tfr.session import tf

    spec = {}
    for field in schema.fields:
        # TYPES has NumPy's names; bytes are "O", which is tf.string.
        dtype = tf.as_dtype(np.dtype(TYPES[field.type]))
        spec[field.name] = tf.io.FixedLenFeature(field.size or (), dtype)
        if field.size == RAGGED:
            spec[field.name] = tf.io.RaggedFeature(dtype)
    return spec


def read_values(features: Features, fields: Iterable[Field]) -> dict[str, Any]:
    """Return the value of each field of a record, by its name, without TensorFlow.

    They equal those of `tf.io.parse_single_example` by `feature_spec`: an int, a float
    or bytes; of a list int64 (n,), float32 (n,) or object (n,).
    features: of `records.parse_record`.
    Raises: ValueError: a feature is missing, or its type or number of values differs.
    """
    row = {}
    for field in fields:
        feature = features[field.name]
        values = list_values(feature)
        type_ = feature.WhichOneof("kind")  # None if it is empty
        # A field without a size has one value, a RAGGED one any number of values.
        has_other_size = field.size != RAGGED and len(values) != max(1, field.size)
        if has_other_size or type_ not in (None, f"{field.type}_list"):
            raise ValueError(
                f"its feature '{field.name}' has {len(values)} values in a {type_}, "
                f"the schema wants {field.size} of type {field.type}"
            )
        is_list = field.size != 0  # one value is not a list of one
        row[field.name] = np.array(values, TYPES[field.type]) if is_list else values[0]
    return row


def encode(
    row: Row,
    image: "EncodedImage",
    schema: RecordSchema,
    settings: "ImageSettings",
) -> bytes:
    """Return the serialized `tf.train.Example`; equal values give equal bytes.

    row: of the table of images: size, label and id of the original. image: what the
    record stores. settings: how it was resized; run-length codes are resized with it.
    Raises: ValueError: a value does not fit its field; names image, field and value.
    """
    schema = schema.for_split(row.get("split", ""))
    size = (image.height, image.width)
    # In `row`, height and width are those of the original image.
    is_resized = schema.kind == "masks" and size != (row["height"], row["width"])
    example = example_class()()
    features = example.features.feature
    for field in schema.fields:
        values = getattr(features[field.name], f"{field.type}_list").value
        for source in field.sources:
            value = _find_value(source, row, image, schema)
            if is_resized and source in schema.label_columns:
                # Imported here: a machine that only reads records may lack cv2.
                from kaggle_tfr.images.convert import resize_code

                value = resize_code(value, row["height"], row["width"], settings)
            values.extend(_convert_value(value, field, source, row.get("image_id")))
    # Otherwise the order of the features, and so the bytes, could change with each run.
    return example.SerializeToString(deterministic=True)


def _find_value(
    source: str, row: Row, image: "EncodedImage", schema: RecordSchema
) -> Any:
    """Return the value of a source, a list for "labels" and "one_hot".

    source: a key of SOURCES, which describes the encoded image or the labels, or a
    column of `row`.
    """
    match source:
        case "height" | "width":
            return getattr(image, source)
        case "image":
            return image.data
        case "depth":
            return count_channels(image.data)
        case "extension":
            return image.format.lower().replace("jpeg", "jpg")
        case "one_hot" if schema.kind != "multi":
            # 0 for each class, but 1 for the label.
            return np.eye(1, schema.n_classes, row["label"])[0]
        case "labels" | "one_hot":
            return [row[name] for name in schema.label_columns]
    return row[source]


def _convert_value(value: Any, field: Field, source: str, image_id: Any) -> list:
    """Return the values that a source adds to its feature, each as bytes, int or float.

    value: of the source: a list for a source such as "labels".
    source: the source of the field, or one of several. image_id: for the error.
    Raises: ValueError: a value does not fit the type; it names image, field and column.
    """
    try:
        # A list field with one source takes all values of a list. With several sources,
        # such as height and width, it takes one value from each.
        is_list = field.size and source == field.source
        items = value if is_list else [value]
        return [_to_python(item, field.type) for item in items]
    except (ValueError, TypeError, ArithmeticError, struct.error):
        raise ValueError(
            f"image '{image_id}': the field '{field.name}' takes {field.type}, but "
            f"column '{source}' is {value!r:.60}. Fix the row"
        ) from None


def _to_python(value: Any, type_: str) -> bytes | int | float:
    """Return a value as bytes, int or float.

    type_: "bytes" (any value: its text), "int64" or "float" (also from text: "7.0").
    Raises: ValueError, TypeError, ArithmeticError, struct.error: the value is missing,
    is NaN, is a fraction for int64, or is outside the range of the type.
    """
    if type_ == "float":
        value = float(value)  # the text "nan" becomes NaN, which is rejected below
    if value is None or value != value:  # noqa: PLR0124  # NaN; pd.isna is slow
        raise ValueError
    if type_ == "bytes":
        return value if isinstance(value, bytes) else str(value).encode()
    if type_ == "int64":
        # 7, 7.0, "7" and "7.0" are all 7 / 1.
        value, denominator = Decimal(value).as_integer_ratio()
        if denominator > 1:
            raise ValueError
    # TYPES has the format of 64-bit integers and 32-bit floats: an error beyond them.
    struct.pack(TYPES[type_], value)
    return value
