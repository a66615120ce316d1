"""Plans: saved and read again, names of shards, fingerprints and limits."""

from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans import make_images, plan_images, two_parts

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import Shard, number_shards, read_plan


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    table = make_images(folder / "images")
    return folder / "work", *plan_images(table, folder / "work")


def make_shard(part, fold, number=0):
    return Shard(number, part, "train", fold, 0, number, 12, 5, 0)


def name_shards(plan, template, places, name="trees"):
    """Return the files of a plan with these names and shards."""
    shards = pd.DataFrame([make_shard(*place) for place in places])
    settings = replace(plan.settings, shard_name=template)
    plan = replace(plan, settings=settings, labels=replace(plan.labels, name=name))
    numbered = number_shards(shards, template, name)
    return [plan.file_name(shard, shard.count) for shard in numbered]


def test_a_saved_plan_is_read_back_equal(planned):
    """plan.json has all settings and versions, plan.parquet the table."""
    work, plan, table = planned

    assert read_plan(str(work)) == plan
    rows = storage.read_parquet(str(work / "plan.parquet"))
    expected = table.reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("f{fold}-{i}-of-{n}", ["f0-0-of-2", "f1-0-of-2", "f0-1-of-2", "f1-1-of-2"]),
        ("p{part}-{i}-of-{n}", ["p1-0-of-2", "p1-1-of-2", "p2-0-of-2", "p2-1-of-2"]),
        ("{split}/{i}-{count}.tfrec", [f"train/{i}-5.tfrec" for i in range(4)]),
    ],
)
def test_numbers_count_shards_with_equal_other_fields(planned, template, names):
    """{i} counts from 0, and {n} is the total, of the same split, fold and part."""
    places = product((1, 2), (0, 1))

    assert name_shards(planned[1], template, places) == names


@given(
    st.lists(st.sampled_from(["split", "fold", "part"]), unique=True),
    st.sets(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1),
)
def test_no_two_shards_share_a_name(planned, fields, places):
    """Whatever other fields a template uses, its values are unique over all parts."""
    template = "-".join(f"{{{name}}}" for name in [*fields, "i"])

    assert len(set(name_shards(planned[1], template, sorted(places)))) == len(places)


@pytest.mark.parametrize(
    ("template", "name", "message"),
    [
        ("{name}-{fold}{i}", "trees", "two numbers side by side"),
        ("journal/{i}.json", "trees", r"the name 'journal/0\.json'"),
        ("{i}.tmp", "trees", r"the name '0\.tmp'"),
        ("test/{i}", "trees", "the name 'test/0'"),
        ("{i}-{name}", "ä" * 119, "at most 120 letters"),
        ("{name}&{i}", "trees", "SHARD_NAME '{name}&{i}' with NAME 'trees'"),
    ],
)
def test_names_that_shards_cannot_have_are_errors(planned, template, name, message):
    """Names that repeat, that are too long, or that a part needs for other files."""
    with pytest.raises(ValueError, match=message):
        name_shards(planned[1], template, [(1, 1)], name)


def test_the_fingerprint_is_of_what_changes_the_bytes_of_records(planned, tmp_path):
    """Folders, clusters and brightness are not: `digest` is of the file."""
    table = planned[2].drop(columns=["shard", "part", "position"])
    path = table["path"].str.replace("images/", "images/../images/")
    moved = table.assign(path=path, brightness=99.5, cluster=7)
    fingerprint = plan_images(table, tmp_path)[0].fingerprint
    assert plan_images(moved, tmp_path)[0].fingerprint == fingerprint

    other_label = plan_images(table.assign(label=0), tmp_path)[0].fingerprint
    fingerprints = {fingerprint, other_label}
    for change in ({"name": "birds"}, {"shard_name": "{i}"}, {"quality": 91}):
        fingerprints.add(plan_images(table, tmp_path, **change)[0].fingerprint)
    assert len(fingerprints) == 5


def test_parts_are_numbered_after_those_that_the_plan_continues(planned, tmp_path):
    """Three parts are there, so two parts of new images are 4 and 5."""
    table = planned[2].drop(columns=["shard", "part", "position"])
    settings = {"n_shards": 12, "shard_name": "p{part}-f{fold}-{i}-of-{n}"}

    plan, rows = two_parts(table, tmp_path, dataset_id="a1", first_part=4, **settings)

    assert list(plan.part_numbers) == [4, 5]
    assert rows["part"].value_counts().to_dict() == {4: 24, 5: 24}
    assert {plan.file_name(shard, 1)[:3] for shard in plan.shards} == {"p4-", "p5-"}


def test_test_images_may_be_fewer_than_parts(tmp_path):
    """A part may have no test images; N_SHARDS counts shards of labelled images."""
    table = make_images(tmp_path / "in", 60)
    table.loc[0, ["split", "fold", "label"]] = ["test", -1, -1]
    plan, _ = two_parts(table, tmp_path, n_shards=6)
    assert plan.n_parts == 2
    assert [shard.split for shard in plan.shards].count("train") == 6
    assert len(plan.shards) == 7
