"""hashes.parquet of a part: what is written is read, all else is an error."""

import io
from contextlib import suppress

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from support.fingerprints import make_fingerprints

from kaggle_tfr.earlier import (
    GROUP,
    TYPES,
    digest_groups,
    encode_fingerprints,
    read_fingerprints,
)
from kaggle_tfr.images.hashing import ALL_HASHES

ROWS = st.fixed_dictionaries(
    {
        **dict.fromkeys(["image_id", "split", "label_name", "digest"], st.text()),
        "fold": st.integers(-1, 99),
        "part": st.integers(1, 99),
        "cluster": st.integers(-1, 10**6),
        "texture": st.floats(0, 128, width=32),
        **dict.fromkeys(ALL_HASHES, st.integers(0, 2**64 - 1)),
    }
)


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    return tmp_path_factory.mktemp("part")


def read(part, data):
    """Return the fingerprints in a file with this content."""
    (part / "hashes.parquet").write_bytes(data)
    return read_fingerprints(part)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROWS, max_size=4), has_groups=st.booleans())
def test_what_is_written_is_read(part, rows, has_groups):
    """Any text and all 64 bits of a hash; the bytes depend on the table alone."""
    table = pd.DataFrame(rows, columns=[*TYPES])
    table = table.astype(dict.fromkeys(ALL_HASHES, np.uint64))
    if has_groups:
        table[GROUP] = digest_groups(table["image_id"])

    data = encode_fingerprints(table)

    # As parts of version 0.2 have it.
    assert pq.read_schema(io.BytesIO(data)).metadata == {
        b"kaggle_tfr.fingerprints": b"1"
    }
    again = read(part, data)
    assert again.to_dict("records") == table.to_dict("records")
    assert encode_fingerprints(again) == data


@pytest.fixture(scope="module")
def whole():
    """The content of a file with forty records."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, (40, len(ALL_HASHES)), np.uint64)
    table = make_fingerprints(pd.DataFrame(words, columns=[*ALL_HASHES]))
    return encode_fingerprints(table)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_an_error(part, whole, data):
    """Whichever bits are flipped, or wherever it is cut: no wrong hash is returned."""
    damaged = bytearray(whole)
    position = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged[position] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[position:]

    # Statistics and unused fields of the footer are not the content.
    with suppress(ValueError):
        again = read(part, bytes(damaged))
        assert encode_fingerprints(again) == whole


def test_another_file_is_an_error(part):
    """hashes.parquet of WORK_DIR has the same name; a later version another format."""
    rows = pq.read_table(io.BytesIO(encode_fingerprints(make_fingerprints([0]))))
    file = io.BytesIO()
    pq.write_table(rows.replace_schema_metadata(), file)
    with pytest.raises(ValueError, match="no part with hashes.parquet"):
        read(part, file.getvalue())
