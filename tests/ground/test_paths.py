"""Shard names and image paths by template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaggle_tfr.paths import check_template, fill_path, format_name, near_miss, parse_name

TEMPLATES = [
    "{name}-f{fold}-{i:03d}-{count}.tfrec",
    "v1_PART_{part}_{split}_batch_{i}.tfrecords",
    "Id_df{i:02d}-{count}.tfrec",
    "{split}/{split}-{i}.tfrecord",
    "raw_train_images_{i:04d}.tfrecords",
    "flowers_{split}_{i:05d}-of-{n:05d}.tfrecord",
]
WORD = st.text("abcdefghijklmnopqrstuvwxyzé-_ 0123456789", min_size=1, max_size=12)
NUMBER = st.integers(0, 10**7)


@given(
    template=st.sampled_from(TEMPLATES),
    name=WORD,
    split=st.sampled_from(["train", "validation", "test"]),
    fold=st.integers(-1, 99),
    part=NUMBER,
    i=NUMBER,
    n=NUMBER,
    count=NUMBER,
)
def test_a_name_is_parsed_back_to_what_made_it(template, **fields):
    """
    Whatever a shard's name was made of is read from it again, for every published layout.
    """
    parsed = parse_name(template, "some/folder/" + format_name(template, **fields))

    assert parsed == {field: fields[field] for field in parsed}
    assert parsed["i"] == fields["i"]


def test_published_names_are_parsed():
    """
    Names as the published notebooks wrote them give their numbers.
    """
    assert parse_name("Id_df{i:02d}-{count}.tfrec", "Id_df07-1427.tfrec") == {"i": 7, "count": 1427}
    assert parse_name(TEMPLATES[3], "x/val/val-12.tfrecord") == {"split": "val", "i": 12}


@pytest.mark.parametrize("file", ["Id_df7-1427.tfrec", "Id_df07-.tfrec", "other.tfrec"])
def test_a_strange_name_is_refused(file):
    """
    A file that does not follow the template is an error that shows both.
    """
    with pytest.raises(ValueError, match="does not follow the template 'Id_df"):
        parse_name("Id_df{i:02d}-{count}.tfrec", file)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{nme}-{i}.tfrec", 'Did you mean "name"'),
        ("{name}-{count}.tfrec", "has no {i}"),
        ("../{i}.tfrec", "leads out of its folder"),
        ("/tmp/{i}.tfrec", "leads out of its folder"),
        ("{i", "cannot be read"),
    ],
)
def test_a_bad_shard_template_says_what_to_mend(template, message):
    """
    A template that could not name the shards is refused before any is written.
    """
    with pytest.raises(ValueError, match=message):
        check_template(template)


def test_a_path_is_filled_from_the_row():
    """
    Landmark's path takes folders from the first letters of the id; other columns may be used too.
    """
    row = {"image_id": "a7fx", "site": 3}

    assert fill_path("train/{image_id[0]}/{image_id[1]}/{image_id[2]}/{image_id}.jpg", row) == (
        "train/a/7/f/a7fx.jpg"
    )
    assert fill_path("{site}/{image_id}.png", row) == "3/a7fx.png"


@pytest.mark.parametrize(
    ("template", "row", "message"),
    [
        ("{imageid}.jpg", {"image_id": "a"}, 'Did you mean "image_id"'),
        ("{image_id[9]}.jpg", {"image_id": "a"}, "does not fit the row"),
        ("../{image_id}.jpg", {"image_id": "a"}, "leads out of its folder"),
        ("{image_id}.jpg", {"image_id": "../../etc/passwd"}, "leads out of its folder"),
        ("{image_id}", {"image_id": "/etc/passwd"}, "leads out of its folder"),
    ],
)
def test_a_bad_path_template_says_what_to_mend(template, row, message):
    """
    An unknown column, an id too short and a way out of INPUT_DIR each have their message.
    """
    with pytest.raises(ValueError, match=message):
        fill_path(template, row)


def test_near_misses_ignore_case():
    """
    A name typed in the wrong case is still recognised; nonsense is not.
    """
    assert near_miss("image_sise", ["IMAGE_SIZE", "SEED"]) == ' Did you mean "IMAGE_SIZE"?'
    assert near_miss("xyzzy", ["IMAGE_SIZE", "SEED"]) == ""
