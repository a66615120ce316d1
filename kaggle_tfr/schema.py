"""The contents of a record: its fields, the presets, and how a row is encoded."""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from kaggle_tfr.images.header import count_channels
from kaggle_tfr.images.masks import resize_code
from kaggle_tfr.records import Features, example_class, list_values
from kaggle_tfr.storage import parse_json

if TYPE_CHECKING:
    from kaggle_tfr.images.convert import EncodedImage, ImageSettings

# The sources of fields, besides columns of the table, and their default types.
SOURCES = {
    "image": "bytes",  # the encoded image
    "format": "bytes",  # "jpeg" or "png"
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
PACKED = {"int64": "<q", "float": "<f"}  # the formats of `struct` and NumPy
LIST_SIZES = {"labels": RAGGED, "one_hot": RAGGED}
COLUMN_TYPES = {"i": "int64", "u": "int64", "b": "int64", "f": "float"}  # else bytes
Row = Mapping[str, Any]  # of a table, by its columns

_LANDMARK = {"image": "image", "label": "label", "height": "height", "width": "width"}
_CLOUDS = ("Fish", "Flower", "Gravel", "Sugar")
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
        **{name.lower(): {"from": name, "type": "bytes"} for name in _CLOUDS},
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


class JsonDataclass:
    """A frozen dataclass that is stored as JSON."""

    def to_json(self, **extra: Any) -> str:
        """Return the text of its file. extra: more keys, for other readers."""
        values = asdict(self) | extra  # type: ignore[call-overload]  # a dataclass
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the object of a mapping from JSON. Unknown keys are ignored.

        Raises: TypeError, ValueError, AttributeError: it is not of this class.
        """
        return _from_json(values, cls)

    @classmethod
    def parse(cls, text: str | bytes, path: str, advice: str) -> Self:
        """Return the object of a JSON file.

        advice: what to do with another file, for the error. Raises: ValueError.
        """
        values = parse_json(text, path, advice)
        try:
            return cls.from_dict(values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"'{path}' does not describe {cls.__name__}: {error}. {advice}"
            ) from None


def _from_json(value: Any, hint: Any) -> Any:
    """Return a value from JSON as the type of a hint; plain values are trusted."""
    if isinstance(value, list):
        (item_hint, *_) = get_args(hint) or (Any,)
        items = [_from_json(item, item_hint) for item in value]
        return items if get_origin(hint) is list else tuple(items)
    if not is_dataclass(hint):
        return value
    hints = get_type_hints(hint)
    known = value.keys() & hints.keys()
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
    label_columns: tuple[str, ...] = ()
    name: str = ""
    bit_depth: str = "scale"

    def blanks(self) -> dict[str, Any]:
        """Return the values of the label columns of an image without labels."""
        blanks = {"masks": "", "number": np.nan}
        blank = blanks.get(self.kind, np.int8(0))
        return dict.fromkeys(self.label_columns, blank)

    @property
    def class_columns(self) -> tuple[str, ...]:
        """The label columns, unless the column `label` has the class, or the bin."""
        return () if self.kind == "number" else self.label_columns


@dataclass(frozen=True)
class Field:
    """One feature of a record.

    source: a key of SOURCES or a column of the table, or several of them for a list.
    type: "bytes", "int64" or "float".
    size: 0 for one value, n for a list of n, RAGGED for a list of any length.
    """

    name: str
    source: str | tuple[str, ...]
    type: str = "bytes"
    size: int = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources of the field, also if there is only one."""
        return (self.source,) if isinstance(self.source, str) else self.source


@dataclass(frozen=True)
class RecordSchema(JsonDataclass):
    """The features of a record, in order.

    kind, label_columns: as in `Labels`. n_classes: the length of one-hot fields.
    test_fields: the features of test images, which have no label; () if they have all.
    """

    fields: tuple[Field, ...]
    kind: str = "single"
    n_classes: int = 0
    label_columns: tuple[str, ...] = ()
    test_fields: tuple[Field, ...] = ()

    @property
    def image_key(self) -> str:
        """The name of the feature with the image."""
        return self.key_of("image")

    @property
    def label_keys(self) -> tuple[str, ...]:
        """The names of the label's features: one, or one for each class of masks."""
        is_single = self.kind == "single"
        sources = {"label"} if is_single else {"labels", *self.label_columns}
        return tuple(field.name for field in self.fields if field.source in sources)

    def key_of(self, source: str) -> str:
        """Return the name of the feature from this source, or ""."""
        return next((field.name for field in self.fields if field.source == source), "")

    def for_split(self, split: str) -> "RecordSchema":
        """Return the schema of a split: that of test images may have no label."""
        if split == "test" and self.test_fields:
            return RecordSchema(self.test_fields)
        return self


SchemaLike = str | Mapping[str, Any] | RecordSchema


def load_schema(
    schema: SchemaLike,
    images: pd.DataFrame | None = None,
    labels: Labels = Labels(),
) -> RecordSchema:
    """Return a schema, fitted to a table of images if there is one.

    schema: the name of a preset, a RecordSchema, {feature: source}, or
        {feature: {from, type, size}}; `from` may be a list.
    images, labels: of `explore.read_table`. The field from `label` becomes a list
        for several labels, one field per class for masks, and a float for a quantity;
        every column is checked.
    Raises: ValueError: an unknown preset, source or type; a missing column; no image.
    """
    if isinstance(schema, str):
        if schema not in PRESETS:
            raise ValueError(
                f"SCHEMA is '{schema}'. There are {', '.join(PRESETS)}; or write a "
                "schema: {feature: {from: column, type: int64}}."
            )
        schema = PRESETS[schema]
    if not isinstance(schema, RecordSchema):
        dtypes = {} if images is None else dict(images.dtypes)
        fields = [_make_field(name, spec, dtypes) for name, spec in schema.items()]
        schema = RecordSchema(tuple(fields))
    if not schema.image_key:
        raise ValueError(
            "SCHEMA has no field with the image. Add one, such as 'image: image'."
        )
    return schema if images is None else _fit(schema, images, labels)


def _make_field(name: str, spec: Any, dtypes: Mapping[Any, Any]) -> Field:
    """Return the Field of one line of a description.

    If the line has no type, it is that of the source, or of the table's column.
    dtypes: of the table's columns.
    """
    if not isinstance(spec, dict):
        spec = {"from": spec}
    source = spec.get("from", name)
    sources = [source] if isinstance(source, str) else source
    size = spec.get("size", LIST_SIZES.get(str(source), 0))
    is_valid = (
        isinstance(sources, list)
        and spec.keys() <= {"from", "type", "size"}
        and spec.get("type", "bytes") in ("bytes", *PACKED)
        and (isinstance(size, int) or size == "ragged")
    )
    if not is_valid:
        raise ValueError(
            f"SCHEMA field '{name}' is {spec!r}. A field is {{from: column, type: "
            "bytes | int64 | float, size: n | ragged}."
        )
    if size == "ragged":
        size = RAGGED
    if sources is source:
        source = tuple(sources)
        size = size or len(sources)
    kind = dtypes[sources[0]].kind if sources[0] in dtypes else ""
    type_ = SOURCES.get(sources[0]) or COLUMN_TYPES.get(kind, "bytes")
    return Field(name, source, spec.get("type", type_), size)


def _fit(schema: RecordSchema, images: pd.DataFrame, labels: Labels) -> RecordSchema:
    """Return the schema with the kind, classes and label columns of a table.

    Without any class it has no label. Records of test images have no label and no field
    that is empty in all of them, but their id.
    """
    columns = labels.label_columns
    fields: list[Field] = []
    for field in schema.fields:
        fields += _fit_label(field, labels)

    is_test = (images["label"] < 0) & (images.get("split", "") == "test")
    test_images = images[is_test]
    test_fields = list[Field]()
    if is_test.any():
        is_empty = test_images.isna() | (test_images == "")
        absent = {*LABELS, *columns, *images.columns[is_empty.all()]}
        test_fields = [field for field in fields if absent.isdisjoint(field.sources)]
        if "image_id" not in [field.source for field in test_fields]:
            test_fields.append(Field("id", "image_id"))  # a submission needs it
    _check_columns(fields, images[~is_test])
    _check_columns(test_fields, test_images)
    return RecordSchema(
        tuple(fields), labels.kind, len(labels.classes), columns, tuple(test_fields)
    )


def _fit_label(field: Field, labels: Labels) -> list[Field]:
    """Return the fields that replace a field of a schema for single labels."""
    columns = labels.label_columns
    if labels.kind == "single":
        is_kept = labels.classes or LABELS.isdisjoint(field.sources)
        return [field] if is_kept else []
    if field.source != "label":
        return [field]
    if labels.kind == "multi":
        return [replace(field, source="labels", size=len(columns))]
    if labels.kind == "number":
        return [replace(field, source=columns[0], type="float")]
    return [Field(column, column) for column in columns]


def _check_columns(fields: Iterable[Field], images: pd.DataFrame) -> None:
    """Raise a ValueError unless the table has the columns, with valid values."""
    for field in fields:
        for source in set(field.sources) - SOURCES.keys():
            if source not in images:
                raise ValueError(
                    f"SCHEMA field '{field.name}' is from '{source}', which is not "
                    f"a column of the table. There are {', '.join(images.columns)}."
                )
            # An item of a list is one value.
            size = field.size if source == field.source else 0
            column = replace(field, source=source, size=size)
            for image_id, value in images[["image_id", source]].itertuples(index=False):
                _convert_value(value, column, image_id)


def feature_spec(schema: RecordSchema) -> dict[str, Any]:
    """Return the features of the schema for `tf.io.parse_single_example`."""
    from kaggle_tfr.session import tf

    types = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
    spec = {}
    for field in schema.fields:
        dtype = types[field.type]
        shape = [field.size] if field.size else []
        spec[field.name] = tf.io.FixedLenFeature(shape, dtype)
        if field.size == RAGGED:
            spec[field.name] = tf.io.RaggedFeature(dtype)
    return spec


def read_values(features: Features, fields: Iterable[Field]) -> dict[str, Any]:
    """Return the value of each field of a record, by its name, without TensorFlow.

    They equal those of `tf.io.parse_single_example` by `feature_spec`: an int, a float
    or bytes; of a list int64 (n,), float32 (n,) or a list of bytes.
    features: of `records.parse_record`.
    Raises: ValueError: a feature is missing, or its type or number of values differs.
    """
    return {field.name: _read_value(features, field) for field in fields}


def _read_value(features: Features, field: Field) -> Any:
    """Return the value of a field. Raises: ValueError."""
    feature = features.get(field.name)
    kind = feature and feature.WhichOneof("kind")
    wanted = f"{field.type}_list"
    values = list_values(feature)
    n_wanted = len(values) if field.size == RAGGED else max(1, field.size)
    if kind not in (None, wanted) or len(values) != n_wanted:
        raise ValueError(
            f"its feature '{field.name}' has {len(values)} values in a {kind}, the "
            f"schema wants {n_wanted} in a {wanted}"
        )
    if not field.size:
        return values[0]
    if field.type == "bytes":
        return values
    return np.array(values, PACKED[field.type])


def encode(
    row: Row,
    image: "EncodedImage",
    schema: RecordSchema,
    settings: "ImageSettings",
) -> bytes:
    """Return the serialized `tf.train.Example`; equal values give equal bytes.

    Run-length codes are resized with the image.
    Raises: ValueError: a value does not fit its field; names image, field and value.
    """
    schema = schema.for_split(row.get("split", ""))
    if schema.kind == "masks":
        size = (row["height"], row["width"])
        if size != (image.height, image.width):
            codes = {
                name: resize_code(row[name], *size, settings)
                for name in schema.label_columns
            }
            row = {**row, **codes}
    example = example_class()()
    for field in schema.fields:
        value = _find_value(field.source, row, image, schema)
        feature = example.features.feature[field.name]
        value_list = getattr(feature, f"{field.type}_list").value
        value_list.extend(_convert_value(value, field, row.get("image_id")))
    # Otherwise the features are in the order of a hash table.
    return example.SerializeToString(deterministic=True)


def _find_value(
    source: str | tuple[str, ...],
    row: Row,
    image: "EncodedImage",
    schema: RecordSchema,
) -> Any:
    """Return the value of a source: of the row, its labels or the encoded image."""
    match source:
        case tuple():
            return [_find_value(name, row, image, schema) for name in source]
        case "height" | "width":
            return getattr(image, source)
        case "image":
            return image.data
        case "depth":
            return count_channels(image.data)
        case "format":
            return image.format.lower()
        case "extension":
            return image.format.lower().replace("jpeg", "jpg")
        case "one_hot" if schema.kind != "multi":
            return np.eye(1, schema.n_classes, row["label"])[0]
        case "labels" | "one_hot":
            return [row[name] for name in schema.label_columns]
    return row[source]


def _convert_value(value: Any, field: Field, image_id: Any) -> list:
    """Return the values of a feature.

    Raises: ValueError: the value does not fit the field.
    """
    try:
        return _to_list(value, field)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise ValueError(
            f"image '{image_id}': the field '{field.name}' takes {field.type}, but "
            f"column '{field.source}' is {value!r:.60}: {error}. Fix the row, or "
            "remove the field from SCHEMA."
        ) from None


def _to_list(value: Any, field: Field) -> list:
    """Return the values of a feature. A list can be a text: "[1, 2]" or "1 2"."""
    if not field.size:
        return [_to_python(value, field.type)]
    if isinstance(value, str):
        is_json = value.lstrip().startswith("[")
        value = json.loads(value) if is_json else value.split()
    if field.size not in (RAGGED, len(value)):
        raise ValueError(f"a list of {len(value)} where SCHEMA has {field.size}")
    return [_to_python(item, field.type) for item in value]


def _to_python(value: Any, type_: str) -> bytes | int | float:
    """Return a value as Python's type for `type_`. Numbers can be text."""
    if type_ == "float":
        value = float(value)  # of "nan", it is no number
    if pd.isna(value):
        raise ValueError("no value")
    if type_ == "bytes":
        return value if isinstance(value, bytes) else str(value).encode()
    if type_ == "int64":
        number = Fraction(value)  # of 7, 7.0, "7" or "7.0"
        value = number.numerator
        if number.denominator != 1:
            raise ValueError("not a whole number")
    struct.pack(PACKED[type_], value)  # raises an error beyond the range of the type
    return value
