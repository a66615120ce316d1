"""hashes.parquet of a part: what is written is read, all else is an error."""

import io

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from support.fingerprints import make_fingerprints

from kaggle_tfr.fingerprints import (
    FORMAT,
    FORMAT_KEY,
    GROUP,
    TYPES,
    decode_fingerprints,
    digest_groups,
    encode_fingerprints,
)
from kaggle_tfr.images.hashing import ALL_HASHES

WORDS = st.integers(0, 2**64 - 1)
ROWS = st.fixed_dictionaries(
    {
        "image_id": st.text(),
        "split": st.sampled_from(["train", "validation", "val", "test"]),
        "label_name": st.text(),
        "digest": st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
        "fold": st.integers(-1, 99),
        "part": st.integers(1, 99),
        "cluster": st.integers(-1, 10**6),
        "texture": st.floats(0, 128, width=32),
        **dict.fromkeys(ALL_HASHES, WORDS),
    }
)


def draw_table(n_images=6, **columns):
    """Return fingerprints of random hashes."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, (n_images, len(ALL_HASHES)), np.uint64)
    hashes = pd.DataFrame(words, columns=[*ALL_HASHES])
    digests = [f"{number:016x}" for number in range(n_images)]
    return make_fingerprints(hashes, **({"digest": digests} | columns))


def to_arrow(table, types=TYPES):
    return pa.Table.from_pandas(table, schema=pa.schema(types.items()))


def write_parquet(rows, metadata=None):
    """Return the bytes of a Parquet file."""
    known = {FORMAT_KEY: FORMAT} if metadata is None else metadata
    buffer = io.BytesIO()
    pq.write_table(rows.replace_schema_metadata(known), buffer)
    return buffer.getvalue()


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, max_size=4), st.booleans())
def test_what_is_written_is_read(rows, has_groups):
    """Any text and all 64 bits of a hash; the bytes depend on the table alone."""
    table = pd.DataFrame(rows, columns=[*TYPES])
    table = table.astype(dict.fromkeys(ALL_HASHES, np.uint64))
    if has_groups:
        table[GROUP] = digest_groups(pd.Series([*"abcd"][: len(table)], dtype=object))

    data = encode_fingerprints(table)

    again = decode_fingerprints(data, "hashes.parquet")
    assert again.to_dict("records") == table.to_dict("records")
    assert encode_fingerprints(again) == encode_fingerprints(table.copy()) == data


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_is_an_error(data):
    """Whichever bits are flipped, or wherever it is cut: no wrong hash is returned."""
    table = draw_table(40)
    damaged = bytearray(encode_fingerprints(table))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]

    error = ""
    try:
        again = decode_fingerprints(bytes(damaged), "a/hashes.parquet")
    except ValueError as caught:
        error = str(caught)
    if error:
        assert "'a/hashes.parquet' " in error
    else:  # statistics and unused fields of the footer are not the content
        whole = decode_fingerprints(encode_fingerprints(table), "")
        pd.testing.assert_frame_equal(again, whole)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_of_anything_else_are_an_error(data):
    """Such as an archive, or a page that asks to log in."""
    for content in (data, b"PAR1" + data + b"PAR1"):
        with pytest.raises(
            ValueError, match="'x' is not a Parquet file, or is damaged"
        ):
            decode_fingerprints(content, "x")


def change(rows, name, values, arrow_type):
    """Return the rows with other values in a column, "" for one that is new."""
    column = pa.array(values, arrow_type)
    if name not in rows.column_names:
        return rows.append_column(name, column)
    return rows.set_column(rows.column_names.index(name), name, column)


@pytest.mark.parametrize(
    ("name", "values", "arrow_type", "message"),
    [
        ("average", [1], pa.int64(), "column 'average' is int64, not uint64"),
        ("image_id", [None], pa.string(), "column 'image_id' has missing values"),
        ("split", ["../train"], pa.string(), "split '../train' is not one of train"),
        ("split", [""], pa.string(), "split '' is not one of train"),
        ("fold", [-2], pa.int32(), "a fold is below -1"),
        ("part", [0], pa.int32(), "a part is below 1"),
        ("cluster", [-2], pa.int32(), "a cluster is below -1"),
        ("texture", [float("nan")], pa.float32(), "a texture is not a number of 0"),
        ("texture", [float("inf")], pa.float32(), "a texture is not a number of 0"),
        ("texture", [-1.0], pa.float32(), "a texture is not a number of 0"),
        ("digest", ["0" * 15], pa.string(), "a digest is not of 16 hexadecimal"),
        ("digest", ["0" * 16 + "\n"], pa.string(), "a digest is not of 16 hexadecimal"),
        ("group", [7], pa.int64(), "column 'group' is int64, not string"),
        ("group", ["patient 7"], pa.string(), "a group is not a digest"),
    ],
)
def test_a_file_with_a_wrong_column_is_named(name, values, arrow_type, message):
    """It was written by another program, or somebody has changed it."""
    rows = change(to_arrow(draw_table(1)), name, values, arrow_type)
    with pytest.raises(ValueError, match=message) as caught:
        decode_fingerprints(write_parquet(rows), "part-1/hashes.parquet")
    assert "'part-1/hashes.parquet' does not contain the fingerprints" in str(
        caught.value
    )


def test_a_file_of_another_format_is_named():
    """hashes.parquet of WORK_DIR has the same name; a later version another number."""
    rows = to_arrow(draw_table())
    cases = {
        "it was not written as hashes.parquet of a part": {},
        "it has format 2, this version reads 1": {FORMAT_KEY: b"2"},
        "it has format �, this version reads 1": {FORMAT_KEY: b"\xff"},
    }
    for message, metadata in cases.items():
        with pytest.raises(ValueError, match=message):
            decode_fingerprints(write_parquet(rows, metadata), "x")


def test_a_missing_and_a_repeated_column_are_named():
    """Neither is guessed."""
    rows = to_arrow(draw_table())
    with pytest.raises(ValueError, match="column 'wavelet' is missing, not uint64"):
        decode_fingerprints(write_parquet(rows.drop_columns(["wavelet"])), "x")
    twice = rows.append_column("fold", rows["fold"])
    with pytest.raises(ValueError, match="column 'fold' is int32, int32, not int32"):
        decode_fingerprints(write_parquet(twice), "x")


def test_a_text_that_is_not_unicode_is_an_error():
    """Parquet does not check it."""
    rows = to_arrow(draw_table(1))
    for name in ("image_id", "split", "label_name", "digest"):
        text = pa.array([b"\xff" * 16]).cast(pa.string(), safe=False)
        column = rows.column_names.index(name)
        with pytest.raises(ValueError, match="not a Parquet file, or is damaged"):
            decode_fingerprints(write_parquet(rows.set_column(column, name, text)), "x")


def test_further_columns_are_left_out():
    """A later version may add one without another format."""
    rows = change(to_arrow(draw_table()), "aesthetics", [0.5] * 6, pa.float64())
    table = decode_fingerprints(write_parquet(rows), "x")
    assert list(table) == [*TYPES]


def test_names_of_groups_are_not_published():
    """Equal names have equal digests; no name has none."""
    first, second, again, *missing = digest_groups(
        pd.Series(["ada", "bob", "ada", None, "", 7.5])
    )
    assert first == again != second
    assert missing[:2] == ["", ""]
    assert all(len(text) == 16 for text in (first, second, missing[2]))
