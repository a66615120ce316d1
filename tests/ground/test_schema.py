"""Records: the features of seven layouts, and fields of every type both ways."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.readers import make_picture

from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.schema import (
    Field,
    Labels,
    RecordSchema,
    encode,
    feature_spec,
    load_schema,
)

LABELS, AS_IS = Labels("single", ("daisy", "rose")), ImageSettings(None, "none")


def picture():
    data = make_picture(0, 30, 20)
    return SimpleNamespace(data=data, height=20, width=30, format="JPEG")


def make_table(**columns):
    row = {
        "image_id": "a.jpg",
        "label": 1,
        "label_name": "rose",
        "height": 20,
        "width": 30,
        "split": "train",
    }
    return pd.DataFrame([row]).assign(**columns)


def round_trip(schema, row):
    """Return the values in the record of the picture and a row of the table."""
    record = encode(row, picture(), schema, AS_IS)
    found = tf.io.parse_single_example(record, feature_spec(schema))
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def test_a_schema_of_ones_own_has_fields_of_every_type():
    """Numbers are texts, as in a CSV; a list is from several columns."""
    table = make_table(age="34.0", least=str(-(2**63)), weight=" 2.5", x="a é")
    described = {
        **{name: name for name in ("image", "x")},
        **{name: {"type": "int64"} for name in ("age", "least")},
        "weight": {"type": "float"},
        "size": ["height", "width"],
        "hot": "one_hot",
    }

    found = round_trip(load_schema(described, table, LABELS), table.iloc[0].to_dict())

    assert found.pop("image") == picture().data
    numbers = {"age": 34, "least": -(2**63), "weight": 2.5}
    lists = {"size": [20, 30], "hot": [0.0, 1.0]}
    assert found == {"x": "a é".encode(), **numbers, **lists}


@pytest.mark.parametrize(
    ("kind", "columns", "keys", "values"),
    [
        ("multi", {"rust": 0, "scab": 1}, ("label",), [[0, 1]]),
        ("masks", {"Fish": "1 2", "Sugar": ""}, ("Fish", "Sugar"), [b"1 2", b""]),
        ("number", {"age": 7}, ("label",), [7.0]),
    ],
)
def test_labels_of_other_kinds_replace_the_label(kind, columns, keys, values):
    """0 or 1 for each class, run-length codes in fields of their own, or a float.

    Records of unlabelled test images have another schema, without them.
    """
    names = tuple(columns)
    labels = Labels(kind, names, names)
    tests = make_table(image_id="b.jpg", label=-1, split="test", **labels.blanks())
    table = pd.concat([make_table(**columns), tests])
    schema = load_schema("landmark", table, labels)
    found = round_trip(schema, make_table(**columns).iloc[0].to_dict())

    assert (schema.kind, schema.label_keys) == (kind, keys)
    assert [found[key] for key in keys] == values
    assert vars(RecordSchema.from_dict(json.loads(schema.to_json()))) == vars(schema)
    test_keys = [field.name for field in schema.test_fields]
    assert test_keys == ["image", "height", "width", "id"]


@pytest.mark.parametrize(
    ("columns", "line", "field", "keys"),
    [
        (("a", "b"), "labels", Field("x", "labels", "int64", 2), ("x",)),
        (("a", "b"), "b", Field("x", "b", "int64"), ("a", "x")),
        (("a",), "labels", Field("x", "a", "float"), ("x",)),
    ],
)
def test_columns_of_labels_have_the_type_of_their_kind(columns, line, field, keys):
    """Features of several labels are in the order of the classes; one has all."""
    labels = Labels("multi" if "b" in columns else "number", columns, columns)

    schema = load_schema({"image": "image", "x": line, "a": "a"}, labels=labels)

    assert (schema.fields[1], schema.label_keys) == (field, keys)


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        ({"type": "float", "from": ["height", "x"]}, "", "''"),
        ({"type": "int64"}, 1.5, "1.5"),
        ({"type": "int64"}, str(2**63), "'9223372036854775808'"),
        ({"type": "float"}, 1e300, "1e.300"),
    ],
)
def test_a_value_that_does_not_fit_stops_03(spec, value, message):
    """The error names image, field, column, value and SCHEMA."""
    table = make_table(x=[value])
    good = table.assign(image_id="b.jpg", x="1")

    message = f"SCHEMA .* image 'a.jpg': the field 'x' takes .* column 'x' is {message}"
    with pytest.raises(ValueError, match=message):
        load_schema({"image": "image", "x": spec}, pd.concat([good, table]))


def test_test_images_lose_a_field_that_all_of_them_lack():
    """A column that is empty in all test images is no fault; a gap in it is one."""
    test_image = make_table(split="test", label=-1, age="")
    table = pd.concat([make_table(age="12"), test_image], ignore_index=True)
    described = {"image": "image", "age": {"type": "float"}}

    (image, image_id) = load_schema(described, table).test_fields

    assert (image.source, image_id.source) == ("image", "image_id")
    table.loc[2] = {**table.loc[1], "age": "7"}
    with pytest.raises(ValueError, match="image 'a.jpg': .* column 'age' is ''"):
        load_schema(described, table)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("landmarks", "'landmarks'"),
        ({"label": "label"}, "'image'"),
        ({"image": "image", "x": {"tpye": "int64"}}, "'tpye'"),
    ],
)
def test_a_schema_that_cannot_be_is_named(description, message):
    """Preset, key, type or column is named, and how a schema is written."""
    message = f"SCHEMA cannot be used: .*{message}.* landmark.* type: bytes"
    with pytest.raises(ValueError, match=message):
        load_schema(description, make_table())
