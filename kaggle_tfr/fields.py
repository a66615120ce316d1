"""The fields of a record: what they can be made of, the presets, and how a value becomes a list."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
FLOAT32_MAX = 3.4028234663852886e38
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


def as_values(field: Field, value: Any) -> list:
    """The value as the list that its feature holds: bytes, int or float, checked.

    Lists may come as lists, arrays, or text such as "[1, 2]" or "1 2".

    Raises:
        ValueError: a value that does not fit; the caller knows of which image it is.
    """
    if field.type == "tensor":
        raise TypeError(f"the field '{field.name}' is a tensor, not a list.")
    single = {"bytes": _as_bytes, "int64": _as_int, "float": _as_float}[field.type]
    if not field.size:
        return [single(value)]
    values = [single(one) for one in as_list(value)]
    if field.size not in (RAGGED, len(values)):
        raise ValueError(f"a list of {len(values)} where SCHEMA says {field.size}")
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
