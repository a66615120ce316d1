"""Plans: saved and read again, names of shards, fingerprints and limits."""

from itertools import product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans import make_images, plan_images, two_parts

from kaggle_tfr.naming import format_shard_name
from kaggle_tfr.plan.plan import number_shards, read_plan


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("plan") / "images")


def name_shards(template, places, name="trees"):
    """Return the files of shards in these parts and folds."""
    fields = {"split": "train", "index": 0, "count": 5, "bytes_high": 0}
    shards = pd.DataFrame(places, columns=["part", "fold"]).assign(**fields)
    numbered = number_shards(shards, template, name)
    return [format_shard_name(template, name=name, **vars(row)) for row in numbered]


def test_a_saved_plan_is_read_back_equal(table, tmp_path):
    """plan.json has all settings and versions, plan.parquet the table."""
    plan, planned = plan_images(table, tmp_path)

    assert read_plan(str(tmp_path)) == plan
    rows = pd.read_parquet(tmp_path / "plan.parquet")
    expected = planned.reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("f{fold}-{i}-of-{n}", ["f0-0-of-2", "f1-0-of-2", "f0-1-of-2", "f1-1-of-2"]),
        ("p{part}-{i}-of-{n}", ["p1-0-of-2", "p1-1-of-2", "p2-0-of-2", "p2-1-of-2"]),
    ],
)
def test_numbers_count_shards_with_equal_other_fields(template, names):
    """{i} counts from 0, and {n} is the total, of the same split, fold and part."""
    assert name_shards(template, product((1, 2), (0, 1))) == names


@given(
    st.lists(st.sampled_from(["split", "fold", "part"]), unique=True),
    st.sets(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1),
)
def test_no_two_shards_share_a_name(fields, places):
    """Whatever other fields a template uses, its values are unique over all parts."""
    template = "-".join(f"{{{name}}}" for name in [*fields, "i"])

    assert len(set(name_shards(template, sorted(places)))) == len(places)


@pytest.mark.parametrize(
    ("template", "name", "message"),
    [
        ("{name}-{fold}{i}", "trees", "two numbers side by side"),
        ("journal/{i}.json", "trees", r"the name 'journal/0\.json'"),
        ("test/{i}", "trees", "the name 'test/0'"),
        ("{i}-{name}", "ä" * 119, "at most 120 letters"),
        ("{name}&{i}", "trees", "SHARD_NAME '{name}&{i}' with NAME 'trees'"),
    ],
)
def test_names_that_shards_cannot_have_are_errors(template, name, message):
    """Names that repeat, that are too long, or that a part needs for other files."""
    with pytest.raises(ValueError, match=message):
        name_shards(template, [(1, 1)], name)


def test_the_fingerprint_is_of_what_changes_the_bytes_of_records(table, tmp_path):
    """Folders, clusters and brightness are not: `digest` is of the file."""
    path = table["path"].str.replace("images/", "images/../images/")
    changes = {"cluster": 7, "override_group": "a", "brightness": 99.5, "sharpness": 9}
    moved = table.assign(path=path, problem="none", **changes)
    plans = [
        plan_images(images, tmp_path, **changes)[0]
        for images, changes in [
            (moved, {}),
            (table, {}),
            (table.assign(label=0), {}),
            (table, {"name": "birds"}),
            (table, {"shard_name": "{i}"}),
            (table, {"quality": 91}),
        ]
    ]

    first, *others = [plan.fingerprint for plan in plans]
    assert first == others[0]
    assert len(set(others)) == 5


def test_parts_are_numbered_after_those_that_the_plan_continues(table, tmp_path):
    """Three parts are there, so two parts of new images are 4 and 5."""
    plan, rows = two_parts(table, tmp_path, dataset_id="a1", first_part=4)

    assert [*plan.part_numbers] == [4, 5]
    assert rows["part"].value_counts().to_dict() == {4: 24, 5: 24}
    assert sorted(shard.part for shard in plan.shards) == [4, 4, 4, 5, 5, 5]
    assert plan.dataset_id == "a1"


def test_test_images_may_be_fewer_than_parts(table, tmp_path):
    """A part may have no test images; N_SHARDS counts shards of labelled images."""
    table = table.copy()
    table.loc[0, ["split", "fold", "label"]] = ["test", -1, -1]
    plan, _ = two_parts(table, tmp_path)
    assert plan.n_parts == 2
    assert [shard.split for shard in plan.shards].count("train") == 6
    assert len(plan.shards) == 7
