"""Records are parsed as TensorFlow parses them, whatever wrote them."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from kaggle_tfr.records import parse_record
from kaggle_tfr.schema import RAGGED, Field, RecordSchema, feature_spec, read_values

FIELDS = (
    Field("image", "image"),
    Field("label", "label", "int64"),
    Field("tags", "labels", "int64", 3),
    Field("score", "Score", "float"),
    Field("codes", "Codes", "bytes", RAGGED),
    Field("boxes", "Boxes", "float", RAGGED),
)
SPEC = feature_spec(RecordSchema(FIELDS))
VALUES = {
    "bytes": st.binary(max_size=20),
    "float": st.floats(width=32, allow_nan=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
USUALLY = st.sampled_from([True] * 19 + [False])


@st.composite
def examples(draw):
    """Draw a serialized example, whose features are usually as their fields want."""
    example = tf.train.Example()
    for field in FIELDS:
        if not draw(USUALLY):
            continue
        is_expected = draw(USUALLY)
        type_ = field.type if is_expected else draw(st.sampled_from(list(VALUES)))
        n_values = max(1, field.size) if is_expected and field.size >= 0 else None
        values = st.lists(VALUES[type_], min_size=n_values or 0, max_size=n_values or 4)
        feature = example.features.feature[field.name]
        getattr(feature, f"{type_}_list").value.extend(draw(values))
    return example.SerializeToString()


@settings(max_examples=150)
@given(examples())
def test_an_example_is_parsed_as_by_tensorflow(record):
    """The values and the errors are those of `read_batches`."""
    try:
        tensors = tf.io.parse_single_example(record, SPEC)
    except tf.errors.OpError:
        with pytest.raises(ValueError, match="its feature"):
            read_values(parse_record(record), FIELDS)
        return

    for name, value in read_values(parse_record(record), FIELDS).items():
        assert np.array_equal(value, tensors[name].numpy())
