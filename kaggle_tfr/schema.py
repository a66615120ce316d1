"""What a record holds: labels, fields, presets; rows and pictures encoded, and parsed back."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from kaggle_tfr.images.header import count_channels
from kaggle_tfr.images.masks import resize_code
from kaggle_tfr.naming import near_miss
from kaggle_tfr.records import example_class
from kaggle_tfr.storage import parse_json

if TYPE_CHECKING:
    from kaggle_tfr.images.convert import EncodedImage, ImageSettings

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
LISTS = {"bytes": "bytes_list", "int64": "int64_list", "float": "float_list"}
KINDS = {
    "i": "int64",
    "u": "int64",
    "b": "int64",
    "f": "float",
}  # of columns; others: bytes
RAGGED, FLOAT32_MAX = -1, 3.4028234663852886e38
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        name: name for name in ("image", "label", "height", "width", "image_id")
    },
    "landmark": {name: name for name in ("image", "label", "height", "width")},
    "cassava": {"image": "image", "target": "label", "image_name": "image_id"},
    "imagenet": {"label": "label", "image_raw": "image"},
    "clouds": {
        "height": "height",
        "width": "width",
        "depth": "depth",
        "image_raw": "image",
    }
    | {
        n.lower(): {"from": n, "type": "bytes"}
        for n in ("Fish", "Flower", "Gravel", "Sugar")
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
    }
    | {"image/height": "height", "image/width": "width"},
}


class JsonDataclass:
    """A frozen dataclass that lies in a file as JSON."""

    def to_json(self, **beside: Any) -> str:
        """The text of its file. beside: what else stands in it, for other readers."""
        values = asdict(self) | beside  # type: ignore[call-overload]  # a dataclass
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """That of a mapping which came through JSON; it may have keys that are not ours."""
        known = {name: values[name] for name in cls.__annotations__ if name in values}
        return cls(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        )

    @classmethod
    def parse(cls, text: str | bytes, path: str, advice: str) -> Self:
        """That of a file's JSON. Raises: ValueError: it is another; `advice` says what to do."""
        values = parse_json(text, path, advice)
        try:
            parsed = cls.from_dict(values)
            parsed.check_types()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = (
                f"it does not describe {cls.__name__} ({type(error).__name__}: {error})"
            )
            raise ValueError(f"'{path}' cannot be used: {what}. {advice}") from None
        return parsed

    def check_types(self) -> None:
        """Raise a TypeError for a value that is not of the type that its name has."""
        for name, hint in get_type_hints(type(self)).items():
            options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            types = tuple(get_origin(option) or option for option in options)
            value = getattr(self, name)
            members = value if isinstance(value, tuple) else ()
            if not isinstance(value, types) or any(
                isinstance(m, list | dict) for m in members
            ):
                raise TypeError(f"{name} is {value!r:.60}")


@dataclass(frozen=True)
class Labels(JsonDataclass):
    """What labels.json holds.

    kind: "single" (a class per image), "multi" (0 or 1 for each class), "masks" (run-length codes).
    classes: index = label, sorted, with the type of the original ids.
    label_columns: the table's columns of a multi-label or mask dataset, one a class.
    bit_depth: how 16-bit pictures were read, as of `to_rgb`.
    """

    kind: str = "single"
    classes: tuple[int | str | None, ...] = ()
    label_columns: tuple[str, ...] = ()
    name: str = ""
    bit_depth: str = "scale"

    def blanks(self) -> dict[str, Any]:
        """What the table's columns of labels hold where there is none."""
        return dict.fromkeys(
            self.label_columns, "" if self.kind == "masks" else np.int8(0)
        )


@dataclass(frozen=True)
class Field(JsonDataclass):
    """One feature of a record.

    source: a key of SOURCES, a column of the table, or several of them for a list.
    type: "bytes", "int64" or "float". size: 0 for one value, n for a list of n, −1 for any list.
    """

    name: str
    source: str | tuple[str, ...]
    type: str = "bytes"
    size: int = 0

    def check_types(self) -> None:
        """As of `JsonDataclass`; the type must be one that a record can hold."""
        super().check_types()
        if self.type not in ("bytes", "int64", "float"):
            raise ValueError(f"type is {self.type!r:.60}")

    @property
    def sources(self) -> tuple[str, ...]:
        """What it is made of, as a list."""
        return (self.source,) if isinstance(self.source, str) else self.source


@dataclass(frozen=True)
class RecordSchema(JsonDataclass):
    """The features of a record in order; kind, label_columns: as in `Labels`.

    test_fields: what the records of test images hold instead, which have no label; () for all.
    """

    fields: tuple[Field, ...]
    kind: str = "single"
    n_classes: int = 0  # the length of one-hot fields
    label_columns: tuple[str, ...] = ()
    test_fields: tuple[Field, ...] = ()

    @property
    def image_key(self) -> str:
        """The feature that holds the picture."""
        return self.key_of("image")

    @property
    def label_keys(self) -> tuple[str, ...]:
        """The features that make up the label: one, or one for each class of masks."""
        wanted = {"single": ("label",), "multi": ("labels", *self.label_columns)}
        sources = wanted.get(self.kind, self.label_columns)
        return tuple(field.name for field in self.fields if field.source in sources)

    def key_of(self, source: str) -> str:
        """The feature that is made of this source, "" for none."""
        return next((field.name for field in self.fields if field.source == source), "")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """As of `JsonDataclass`, with its fields."""
        lists = {
            "fields": values["fields"],
            "test_fields": values.get("test_fields", ()),
        }
        fields = {
            name: tuple(map(Field.from_dict, given)) for name, given in lists.items()
        }
        return super().from_dict({**values, **fields})

    def check_types(self) -> None:
        """As of `JsonDataclass`, with its fields."""
        super().check_types()
        for field in (*self.fields, *self.test_fields):
            field.check_types()

    def for_split(self, split: str) -> "RecordSchema":
        """The schema of a split's records, which is another for test images without labels."""
        if split != "test" or not self.test_fields:
            return self
        return RecordSchema(self.test_fields)


def load_schema(
    given: str | Mapping[str, Any] | RecordSchema,
    images: pd.DataFrame | None = None,
    labels: Labels = Labels(),
) -> RecordSchema:
    """The schema of that preset's name or that description, fitted to a table when one is given.

    given: {feature: source} or {feature: {from, type, size}}; `from` may be a list.
    images, labels: of `explore.read_table`: the field made of `label` becomes a list for several
        labels, and one field each for masks; every column is checked.
    Raises: ValueError: an unknown preset, source or type; a table without a column; no image.
    """
    if isinstance(given, str) and given not in PRESETS:
        what = f"SCHEMA is '{given}'.{near_miss(given, PRESETS)} There are {', '.join(PRESETS)}"
        raise ValueError(
            f"{what}; or give your own: {{feature: {{from: column, type: int64}}}}."
        )
    schema = PRESETS[given] if isinstance(given, str) else given
    if not isinstance(schema, RecordSchema):
        schema = RecordSchema(
            tuple(_make_field(*item, images) for item in schema.items())
        )
    if not schema.image_key:
        raise ValueError(
            "SCHEMA has no field made of the image. Add one, such as 'image: image'."
        )
    return schema if images is None else _fit(schema, images, labels)


def list_fields(schema: RecordSchema) -> pd.DataFrame:
    """One row a feature of the record: its name, type, and what it is made of."""
    rows = [(field.name, field.type, field.source) for field in schema.fields]
    return pd.DataFrame(rows, columns=["feature", "type", "made of"]).set_index(
        "feature"
    )


def _make_field(name: str, spec: Any, images: pd.DataFrame | None) -> Field:
    """The Field of one line of a description; a column suggests the type that it leaves out."""
    spec = {"from": spec} if isinstance(spec, str | list) else dict(spec)
    source = spec.pop("from", name)
    many = not isinstance(source, str)
    size = {"ragged": RAGGED}.get(spec.get("size", 0), spec.get("size", 0))
    size = size or (
        len(source) if many else RAGGED if source in ("one_hot", "labels") else 0
    )
    usual = SOURCES.get(source[0] if many else source)
    column = None if images is None or many else images.get(source)
    suggested = KINDS.get("O" if column is None else column.dtype.kind, "bytes")
    type_ = spec.get("type") or usual or suggested
    unknown = set(spec) - {"type", "size"}
    if unknown or type_ not in LISTS or not isinstance(size, int) or size < RAGGED:
        wrong = (
            f"the key '{min(unknown)}'"
            if unknown
            else f"type {type_!r} and size {size!r}"
        )
        form = "{from: column, type: bytes | int64 | float, size: n | ragged}"
        raise ValueError(f"SCHEMA field '{name}' has {wrong}. A field is {form}.")
    return Field(name, tuple(source) if many else source, type_, size)


def _fit(schema: RecordSchema, images: pd.DataFrame, labels: Labels) -> RecordSchema:
    """The schema with the kind, classes and label columns of a table that has all it needs."""
    columns, fields = labels.label_columns, []
    for field in schema.fields:
        if field.source != "label" or labels.kind == "single":
            fields.append(field)
        elif labels.kind == "multi":
            fields.append(replace(field, source="labels", size=len(columns)))
        else:
            fields += [Field(column, column) for column in columns]
    test = pd.Series(images.get("split", "") == "test", images.index) & (
        images["label"] < 0
    )
    test_fields = _drop_labels(fields, images[test], columns) if test.any() else []
    for held, rows in ((fields, images[~test]), (test_fields, images[test])):
        for field in held:
            _check_column(field, rows)
    kind = labels.kind, len(labels.classes), columns
    return RecordSchema(tuple(fields), *kind, tuple(test_fields))


def _drop_labels(
    fields: list[Field], images: pd.DataFrame, columns: Sequence[str]
) -> list[Field]:
    """What records of test images hold: no label, no column that they lack, but their id."""
    absent = {"label", "label_name", "labels", "one_hot", *columns}
    absent |= {str(name) for name in images if images[name].isna().all()}
    held = [field for field in fields if absent.isdisjoint(field.sources)]
    if not any(
        field.source == "image_id" for field in held
    ):  # which a submission needs
        held.append(Field("id", "image_id"))
    return held


def _check_column(field: Field, images: pd.DataFrame) -> None:
    """Raises a ValueError unless the table has the field's columns, with values that fit."""
    for source in field.sources:
        if source not in SOURCES and source not in images:
            hint = near_miss(source, [*SOURCES, *images.columns])
            what = f"SCHEMA field '{field.name}' is made of '{source}', which is no column of the"
            raise ValueError(
                f"{what} table.{hint} There are {', '.join(images.columns)}."
            )
    if not isinstance(field.source, str) or field.source in SOURCES:
        return
    for name, value in zip(
        images["image_id"], images[field.source].tolist(), strict=True
    ):
        try:
            as_values(value, field.type, field.size)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(_describe(field, name, value, error)) from None


def _describe(field: Field, image_id: Any, value: Any, error: Exception) -> str:
    what = f"image '{image_id}': the field '{field.name}' takes {field.type}, but '{field.source}'"
    return f"{what} is {value!r}: {error}. Mend the row, or the field in SCHEMA."


def feature_spec(schema: RecordSchema) -> dict[str, Any]:
    """What `tf.io.parse_single_example` takes: the feature specification of each field."""
    from kaggle_tfr.session import tf

    types = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
    return {
        field.name: tf.io.RaggedFeature(types[field.type])
        if field.size == RAGGED
        else tf.io.FixedLenFeature(
            [field.size] if field.size else [], types[field.type]
        )
        for field in schema.fields
    }


def encode(
    row: Mapping[str, Any],
    picture: "EncodedImage",
    schema: RecordSchema,
    settings: "ImageSettings",
) -> bytes:
    """The serialized `tf.train.Example` of an image; the same bytes for the same values.

    Run-length codes follow the picture's new size.
    Raises: ValueError: a value that does not fit its field; image, field and value are named.
    """
    schema = schema.for_split(row.get("split", ""))
    before = row.get("height", 0), row.get("width", 0)
    if schema.kind == "masks" and before != (picture.height, picture.width):
        codes = {
            name: resize_code(row[name], *before, settings)
            for name in schema.label_columns
        }
        row = {**row, **codes}
    example = example_class()()
    features = example.features.feature
    for field in schema.fields:
        try:
            value = _find_value(field.source, row, picture, schema)
            values = as_values(value, field.type, field.size)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            value = row.get(field.source) if isinstance(field.source, str) else None
            raise ValueError(
                _describe(field, row.get("image_id"), value, error)
            ) from None
        getattr(features[field.name], LISTS[field.type]).value.extend(values)
    # Without it the order of the features is that of a hash table.
    return example.SerializeToString(deterministic=True)


def _find_value(
    source: str | Sequence[str],
    row: Mapping[str, Any],
    picture: "EncodedImage",
    schema: RecordSchema,
) -> Any:
    """What a field is made of: values of the row, of its labels or of the picture as written."""
    if not isinstance(source, str):
        return [_find_value(name, row, picture, schema) for name in source]
    if source in ("height", "width"):
        return getattr(picture, source)
    if source in ("image", "depth"):
        return picture.data if source == "image" else count_channels(picture.data)
    if source in ("format", "extension"):
        name = picture.format.lower()
        return name if source == "format" else name.replace("jpeg", "jpg")
    if source == "labels" or (source == "one_hot" and schema.kind == "multi"):
        return [row[name] for name in schema.label_columns]
    if source != "one_hot":
        return row[source]
    if not 0 <= row["label"] < schema.n_classes:
        raise ValueError(f"label {row['label']} is none of {schema.n_classes} classes")
    return np.eye(1, schema.n_classes, row["label"])[0].tolist()


def as_values(value: Any, type_: str, size: int = 0) -> list:
    """The value as the list that a feature holds; type_, size: as in `Field`.

    Lists may come as lists, arrays, or text: "[1, 2]" or "1 2". Raises: ValueError: no fit.
    """
    values = [_convert(one, type_) for one in (_as_list(value) if size else [value])]
    if size not in (0, RAGGED, len(values)):
        raise ValueError(f"a list of {len(values)} where SCHEMA says {size}")
    return values


def _as_list(value: Any) -> list:
    if isinstance(value, str):
        return json.loads(value) if value.lstrip().startswith("[") else value.split()
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return list(value)
    raise ValueError(f"{value!r} is no list")


def _convert(value: Any, type_: str) -> bytes | int | float:
    """The value as Python's own type. Raises: ValueError, TypeError, OverflowError: no fit."""
    if type_ == "float":
        number = float(value)
        if FLOAT32_MAX < abs(number) < math.inf:
            raise ValueError(f"{number} is beyond float32")
        return number
    if not isinstance(value, bytes | str | int) and pd.isna(value) is True:
        raise ValueError("no value")
    if type_ == "bytes":
        return value if isinstance(value, bytes) else str(value).encode()
    whole = int(value)
    if not isinstance(value, str) and whole != value:
        raise ValueError(f"{value!r} is no whole number")
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"{whole} needs more than 64 bits")
    return whole
