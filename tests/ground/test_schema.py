"""Records: the features of seven layouts, and fields of every type both ways."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from support.readers import make_picture

from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.schema import Labels, RecordSchema, encode, feature_spec, load_schema

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
    }
    return pd.DataFrame([row]).assign(**columns)


def write(row, schema):
    """Return the record of the picture and a row of the table."""
    return encode(row, picture(), schema, AS_IS)


def round_trip(schema, row):
    found = tf.io.parse_single_example(write(row, schema), feature_spec(schema))
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def test_a_schema_of_ones_own_has_fields_of_every_type():
    """The types are those of the columns; lists, also as text, and one-hot."""
    row = {"age": 34, "weight": 2.5, "points": "1 2.5 3", "box": "[1, 2]"}
    table = make_table(**row)
    described = {
        **{name: name for name in ("image", "age", "weight")},
        "points": {"type": "float", "size": "ragged"},
        "box": {"type": "int64", "size": 2},
        "size": ["height", "width"],
        "hot": "one_hot",
    }

    found = round_trip(load_schema(described, table, LABELS), table.iloc[0].to_dict())

    assert found.pop("image") == picture().data
    lists = {"points": [1.0, 2.5, 3.0], "box": [1, 2], "size": [20, 30]}
    assert found == row | lists | {"hot": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("kind", "columns", "keys", "values"),
    [
        ("multi", {"rust": [0], "scab": [1]}, ("label",), [[0, 1]]),
        ("masks", {"Fish": ["1 2"], "Sugar": [""]}, ("Fish", "Sugar"), [b"1 2", b""]),
    ],
)
def test_labels_of_other_kinds_replace_the_label(kind, columns, keys, values):
    """0 or 1 for each class, run-length codes in fields of their own, or a float."""
    table, names = make_table(**columns), tuple(columns)
    schema = load_schema("default", table, Labels(kind, names, names))
    found = round_trip(schema, table.iloc[0].to_dict())

    assert (schema.kind, schema.label_keys) == (kind, keys)
    assert [found[key] for key in keys] == values


def test_a_quantity_is_of_one_column_and_of_no_classes():
    """Images without it have NaN, and their records another schema without it."""
    labels = Labels("number", ("1 to 2", "2 to 9"), ("age",))
    tests = make_table(image_id="b.jpg", label=-1, split="test", **labels.blanks())
    table = pd.concat([make_table(age=[7.5], split="train"), tests])
    schema = load_schema("cassava", table, labels)

    assert labels.class_columns == ()
    assert RecordSchema.from_dict(json.loads(schema.to_json())) == schema
    assert [field.name for field in schema.test_fields] == ["image", "image_name"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("int64", float("nan"), "'x' is nan: no value"),
        ("int64", "abc", "'x' is 'abc'"),
        ("int64", 1.5, "1.5: not a whole number"),
        ("float", "nan", "'x' is 'nan': no value"),
        ("int64", 2**63, "out of range"),
        ("float", 1e300, "float too large"),
        ("bytes", None, "'x' is None: no value"),
        ({"type": "int64", "size": 3}, [1, 2], "a list of 2 where SCHEMA has 3"),
        ({"type": "int64", "size": 2}, [1, "b"], "'x' is \\[1, 'b'\\]"),
    ],
)
def test_a_value_that_does_not_fit_is_named(field, value, message):
    """The error names image, field, value and what to fix."""
    spec = field if isinstance(field, dict) else {"type": field}
    schema = load_schema({"image": "image", "x": spec})

    with pytest.raises(
        ValueError, match=f"image 'a.jpg': the field 'x' takes .*{message}.* Fix"
    ):
        write({"image_id": "a.jpg", "x": value}, schema)


@pytest.mark.parametrize("source", ["years", ["height", "years"]])
def test_every_row_is_checked_before_the_work(source):
    """An empty cell in a column of numbers is named with its image."""
    table = make_table(years=["12"])
    other = table.assign(image_id="b.jpg", years="")
    field = {"from": source, "type": "float"}

    message = "image 'b.jpg': the field 'age' takes float, but column 'years' is ''"
    with pytest.raises(ValueError, match=f"{message}.* SCHEMA"):
        load_schema({"image": "image", "age": field}, pd.concat([table, other]))


def test_test_images_lose_a_field_that_all_of_them_lack():
    """A column that is empty in all test images is no fault; a gap in it is one."""
    table = make_table(age=["12"])
    test_image = table.assign(split="test", label=-1, age="")
    table = pd.concat([table.assign(split="train"), test_image], ignore_index=True)
    described = {"image": "image", "age": {"type": "float"}}

    schema = load_schema(described, table, LABELS)

    assert [field.name for field in schema.test_fields] == ["image", "id"]
    other = test_image.assign(image_id="b.jpg", age="7")
    with pytest.raises(ValueError, match="image 'a.jpg': .* column 'age' is ''"):
        load_schema(described, pd.concat([table, other]), LABELS)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("landmarks", "SCHEMA is 'landmarks'. There are .*landmark"),
        ({"label": "label"}, "no field with the image"),
        ({"image": "image", "x": {"type": "int32"}}, "field 'x' is .*int32"),
        ({"image": "image", "x": 5}, "field 'x' is .*5"),
        ({"image": "image", "x": {"size": "many"}}, "field 'x' is .*many"),
        (
            {"image": "image", "x": "labl"},
            "from 'labl', which is not a column.*label",
        ),
    ],
)
def test_a_schema_that_cannot_be_is_named(description, message):
    """Preset, field, key or column is named."""
    with pytest.raises(ValueError, match=message):
        load_schema(description, make_table())


@given(
    st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False)
)
def test_any_value_survives(text, number, fraction):
    """Any text, 64-bit integer and float32 is read back as it was written.

    Numbers in a text, as in a CSV, are the same numbers.
    """
    types = {"text": "bytes", "number": "int64", "fraction": "float"}
    schema = load_schema(
        {"image": "image", **{k: {"type": v} for k, v in types.items()}}
    )
    row = {"image_id": "a", "text": text, "number": number, "fraction": fraction}
    features = tf.train.Example.FromString(write(row, schema)).features.feature

    assert features["text"].bytes_list.value == [text.encode()]
    assert features["number"].int64_list.value == [number]
    assert features["fraction"].float_list.value == [fraction]
    texts = {"number": str(number), "fraction": repr(fraction)}
    as_text = write(row | texts, schema)
    assert as_text == write(row, schema)
