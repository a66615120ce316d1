"""Shard names: what a template must have, and what a name reveals."""

import pytest

from kaggle_tfr.naming import check_template, format_shard_name, parse_split
from kaggle_tfr.plan.plan import SAFE_NAME


def test_a_template_that_cannot_name_the_shards_is_an_error():
    """The message has the template and the fields."""
    with pytest.raises(ValueError, match="needs {i}, and can have {count}, {fold}"):
        check_template("{nme}-{i}.tfrec")


@pytest.mark.parametrize("name", ["../../x", "/x", "gs://b/x"])
def test_a_shard_stays_in_its_folder_whatever_name_is(name):
    """The template is harmless, but NAME leads outside: 03 refuses it."""
    path = format_shard_name("{name}-{i}", "train", 0, name=name, i=0)
    assert not SAFE_NAME.fullmatch(path)


def test_a_split_is_a_word_in_any_case_also_before_a_number():
    """Part of a word is not."""
    splits = {
        "test00-687.tfrec": "test",
        "VAL-3.tfrec": "validation",
        "Test/train-5.tfrec": "test",
        "contest1-0.tfrec": "train",
    }
    assert {path: parse_split(path) for path in splits} == splits
