"""Shard names: what a template must have, and what a name reveals."""

from functools import partial

import pytest

from kaggle_tfr.naming import check_template, format_shard_name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(check_template, "{nme}-{i}.tfrec"), "It can use {name}, {split}"),
        (partial(check_template, "{name}-{count}.tfrec"), "has no {i}"),
        (partial(check_template, "../{i}.tfrec"), "is outside its folder"),
        (partial(check_template, "{i"), "cannot be read"),
    ],
)
def test_a_bad_template_or_name_says_what_to_fix(call, message):
    """A template that cannot name the shards is an error at once."""
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "name", ["../../x", "/x", "a/../../x", "..\\x", "C:\\x", "gs://b/x"]
)
def test_a_shard_stays_in_its_folder_whatever_name_is(name):
    """The template is harmless, but NAME leads outside: the error names both."""
    with pytest.raises(
        ValueError, match="'{name}-{i}' with NAME .* is outside its folder"
    ):
        format_shard_name("{name}-{i}", "train", 0, name=name, i=0)
