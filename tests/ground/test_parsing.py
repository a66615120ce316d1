"""Records are parsed as TensorFlow parses them, whatever wrote or damaged them."""

import struct

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from kaggle_tfr.records import parse_record
from kaggle_tfr.schema import RAGGED, Field, RecordSchema, feature_spec, read_values

FIELDS = {
    "image": Field("image", "image"),
    "label": Field("label", "label", "int64"),
    "tags": Field("tags", "labels", "int64", 3),
    "score": Field("score", "Score", "float"),
    "codes": Field("codes", "Codes", "bytes", RAGGED),
    "boxes": Field("boxes", "Boxes", "float", RAGGED),
}
SPEC = feature_spec(RecordSchema(tuple(FIELDS.values())))
VALUES = {
    "bytes": st.binary(max_size=20),
    "float": st.floats(width=32),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
USUALLY = st.sampled_from([True] * 29 + [False])
LIST_NUMBERS = {"bytes": 1, "float": 2, "int64": 3}  # in tf.train.Feature


def encode_varint(number):
    number %= 1 << 64
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def encode_field(number, data):
    """Return a field of bytes, a message or packed numbers."""
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def encode_list(type_, values, *, is_packed):
    """Return a BytesList, FloatList or Int64List."""
    if type_ == "bytes":
        return b"".join(encode_field(1, value) for value in values)
    if type_ == "float":
        numbers = [struct.pack("<f", value) for value in values]
        tag = b"\x0d"  # field 1, 4 bytes
    else:
        numbers = [encode_varint(value) for value in values]
        tag = b"\x08"  # field 1, a varint
    if is_packed:
        return encode_field(1, b"".join(numbers))
    return b"".join(tag + number for number in numbers)


@st.composite
def features(draw, name):
    """Draw an entry of the map of features, usually as its field wants it."""
    field = FIELDS.get(name)
    is_expected = field is not None and draw(USUALLY)
    type_ = field.type if is_expected else draw(st.sampled_from(list(VALUES)))
    least, most = 0, 4
    if is_expected and field.size != RAGGED:
        least = most = max(1, field.size)
    values = draw(st.lists(VALUES[type_], min_size=least, max_size=most))
    encoded = encode_list(type_, values, is_packed=draw(st.booleans()))
    feature = encode_field(LIST_NUMBERS[type_], encoded)
    # Of a field's name, TensorFlow's fast parser would then take an earlier entry.
    if field is None and draw(st.booleans()):
        feature = b""
    return encode_field(1, encode_field(1, name.encode()) + encode_field(2, feature))


@st.composite
def examples(draw):
    """Draw a serialized example: some names repeat, some are unknown or missing."""
    names = [name for name in FIELDS if draw(USUALLY)]
    other_names = st.sampled_from([*FIELDS, "other", "é", ""])
    names += draw(st.lists(other_names, max_size=3))
    entries = [draw(features(name)) for name in draw(st.permutations(names))]
    return encode_field(1, b"".join(entries))


@st.composite
def damaged_examples(draw):
    """Draw an example with changed, inserted or missing bytes."""
    record = bytearray(draw(examples()))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(record)))
        n_replaced = draw(st.sampled_from([0, 1, 1, 1, 5, len(record)]))
        record[start : start + n_replaced] = draw(st.binary(max_size=2))
    return bytes(record)


def read_by_us(record):
    """Return the values of the fields, None after a ValueError."""
    try:
        return read_values(parse_record(record), FIELDS.values())
    except ValueError:
        return None


def read_by_tensorflow(record):
    """Return what `read_batches` gets, None after an error."""
    try:
        values = tf.io.parse_single_example(record, SPEC)
    except (tf.errors.OpError, UnicodeDecodeError):  # it cannot print the error's text
        return None
    return {name: value.numpy() for name, value in values.items()}


def read_by_protobuf(record):
    """Return the values of the fields in TensorFlow's message, None after an error."""
    try:
        example = tf.train.Example.FromString(record)
        return read_values(example.features.feature, FIELDS.values())
    except (DecodeError, ValueError):
        return None


def check_equal(values, expected):
    """Check that both readers failed, or that both have the same values."""
    assert (values is None) == (expected is None)
    for field in FIELDS.values() if values else ():
        value = values[field.name]
        expected_value = expected[field.name]
        if field.type == "bytes":  # NumPy would drop a last zero
            assert value == (list(expected_value) if field.size else expected_value)
        else:
            np.testing.assert_array_equal(value, expected_value)
            if field.size:
                assert value.dtype == expected_value.dtype


def check_example(record):
    """Unknown features, repeated names, packed and unpacked lists of any length."""
    check_equal(read_by_us(record), read_by_tensorflow(record))


def check_damaged(record):
    """There is an error, or the values are those that the bytes now mean."""
    check_equal(read_by_us(record), read_by_protobuf(record))


quick = settings(max_examples=150)
test_an_example_is_parsed_as_by_tensorflow = quick(given(examples())(check_example))
test_a_damaged_example_is_no_wrong_data = quick(
    given(damaged_examples())(check_damaged)
)
