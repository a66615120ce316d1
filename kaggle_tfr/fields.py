"""The fields of a record: what each is made of, and the presets of published pipelines."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
