"""Shard names: what a template must have, and what a name reveals."""

import pytest

from kaggle_tfr.naming import check_template, format_shard_name
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
