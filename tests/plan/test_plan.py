"""Plans: saved and read again, names of shards, fingerprints and limits."""

import json
from dataclasses import asdict, replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans import make_images, plan_images, two_parts

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import (
    Shard,
    check_names,
    fingerprint,
    has_folds,
    list_planned,
    number_shards,
    read_plan,
)
from kaggle_tfr.write.journal import compare_plans


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    return folder / "work", *plan_images(
        make_images(folder / "images"), folder / "work"
    )


def test_a_saved_plan_is_read_back_equal(planned):
    """plan.json has all settings and versions, plan.parquet the table."""
    work, plan, table = planned
    values = json.loads((work / "plan.json").read_text())

    assert read_plan(str(work)) == plan
    rows = storage.read_parquet(str(work / "plan.parquet"))
    pd.testing.assert_frame_equal(rows, table, check_dtype=False)
    assert values["labels"]["name"] == "trees"
    assert (values["image"]["size"], values["image"]["quality"]) == ([32, 32], 90)
    assert values["versions"]["tensorflow"]
    assert len(values["fingerprint"]) == 64


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{i:02d}", ["00", "01", "02", "03"]),
        ("f{fold}-{i}-of-{n}", ["f0-0-of-2", "f1-0-of-2", "f0-1-of-2", "f1-1-of-2"]),
        ("p{part}-{i}-of-{n}", ["p1-0-of-2", "p1-1-of-2", "p2-0-of-2", "p2-1-of-2"]),
        ("{split}/{i}-{count}.tfrec", [f"train/{i}-5.tfrec" for i in range(4)]),
    ],
)
def test_numbers_count_shards_with_equal_other_fields(planned, template, names):
    """{i} counts from 0, and {n} is the total, of the same split, fold and part."""
    shards = [
        Shard(0, part, "train", fold, 0, 0, 0, 5) for part in (1, 2) for fold in (0, 1)
    ]
    plan = replace(
        planned[1], settings=replace(planned[1].settings, shard_name=template)
    )

    assert [plan.file_name(shard) for shard in number_shards(shards, template)] == names


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{name}-f{fold}-{i:03d}-{count}.tfrec", "test/trees-test-000-5.tfrec"),
        ("Id_df{i:02d}-{count}.tfrec", "test/test-Id_df00-5.tfrec"),
        ("{split}/{split}-{i}.tfrecord", "test/test-0.tfrecord"),
        ("{split}_{i}.tfrecord", "test/test_0.tfrecord"),
        ("shards/{i}.tfrec", "test/shards/test-0.tfrec"),
    ],
)
def test_test_shards_are_in_a_folder_of_their_own(planned, template, name):
    """All files at the top of a part are labelled, so a glob of them trains."""
    plan = replace(
        planned[1], settings=replace(planned[1].settings, shard_name=template)
    )
    test, train = (Shard(0, 1, split, -1, 0, 0, 1, 5) for split in ("test", "train"))

    assert plan.file_name(test) == name
    assert not plan.file_name(train).startswith("test/")


fields = st.permutations(["split", "fold", "part", "count"])


@given(
    fields, st.integers(0, 4), st.sets(st.tuples(*[st.integers(0, 3)] * 3), max_size=40)
)
def test_no_two_shards_share_a_number(order, used, places):
    """Whatever other fields a template uses, its values are unique over all parts."""
    shards = [
        Shard(0, part, "train", *where, 0, 0, 1) for part, *where in sorted(places)
    ]
    numbered = number_shards(
        shards, "-".join(f"{{{name}}}" for name in [*order[:used], "i"])
    )

    named = {
        tuple(getattr(shard, name) for name in [*order[:used], "i"])
        for shard in numbered
    }
    assert len(named) == len(places)


@pytest.mark.parametrize(
    ("template", "name", "message"),
    [
        ("{name}-{fold}{i}", "trees", r"side by side in '\{fold\}\{i\}'"),
        (
            "journal/{i}.json",
            "trees",
            r"'journal/0\.json', which a part needs for its own file",
        ),
        ("{i}.tmp", "trees", "for its own file"),
        ("{name}", "SHA256SUMS", "for its own file"),
        ("{i}-{name}", "ä" * 107, "has 216 bytes; it can have 214"),
        ("{i}-{name}", "a\nb", r"character '\\n' Kaggle may refuse"),
        ("{name}&{i}", "trees", "character '&' Kaggle may refuse"),
    ],
)
def test_names_that_shards_cannot_have_are_errors(planned, template, name, message):
    """Names that repeat, that are too long, or that a part needs for other files."""
    places = [(fold, i) for fold in (1, 11) for i in range(12)]
    shards = [
        Shard(n, 1, "train", fold, i, i, 12, 5) for n, (fold, i) in enumerate(places)
    ]
    plan = planned[1]
    settings = replace(plan.settings, shard_name=template)
    bad = replace(
        plan, settings=settings, labels=replace(plan.labels, name=name), shards=shards
    )
    with pytest.raises(ValueError, match=message):
        check_names(bad)
    settings = replace(settings, shard_name="{split}{i}-{n}f{fold}x{count}")
    check_names(replace(bad, settings=settings))


def test_a_plan_whose_shards_cannot_be_named_is_not_saved(planned, tmp_path):
    """The names are checked before anything is saved."""
    with pytest.raises(ValueError, match="for its own file"):
        plan_images(planned[2], tmp_path / "work", shard_name="journal/{i}.json")
    assert not (tmp_path / "work").exists()


def test_the_fingerprint_ignores_the_folder_of_the_images(planned):
    """Only what changes the bytes of records changes it, such as a label."""
    *_, table = planned
    moved = table.assign(path="/elsewhere/" + table["image_id"])
    relabelled = table.assign(label=table["label"].where(table.index != 7, 0 - 1))
    same = fingerprint(table, {"q": 90})

    assert fingerprint(moved, {"q": 90}) == same
    # Versions of a decoder differ in it, and `digest` is that of the file.
    assert fingerprint(table.assign(brightness=99.5), {"q": 90}) == same
    assert same not in {
        fingerprint(relabelled, {"q": 90}),
        fingerprint(table, {"q": 70}),
    }


def test_parts_are_numbered_after_those_that_the_plan_continues(tmp_path):
    """Three parts are there, so two parts of new images are 4 and 5."""
    table = make_images(tmp_path / "images")
    settings = {"n_shards": 12, "shard_name": "p{part}-f{fold}-{i}-of-{n}"}

    plan, planned = two_parts(
        table, tmp_path, dataset_id="a1", first_part=4, **settings
    )

    assert list(plan.part_numbers) == [4, 5]
    assert planned["part"].value_counts().to_dict() == {4: 24, 5: 24}
    files = list_planned(plan)["file"].str[:2].unique()
    assert files.tolist() == ["p4", "p5"]
    with_folds = replace(plan, folds_sha256="0" * 64)
    assert [has_folds(with_folds, part) for part in (1, 4, 5)] == [False, True, False]
    assert read_plan(str(tmp_path)) == plan
    values = json.loads((tmp_path / "plan.json").read_text())
    assert (values["dataset_id"], values["first_part"]) == ("a1", 4)


def test_only_a_plan_that_continues_a_dataset_has_it_in_its_fingerprint(
    planned, tmp_path
):
    """Other plans keep the fingerprint of their settings and table alone."""
    _, plan, table = planned
    values = json.loads((planned[0] / "plan.json").read_text())
    decisive = {name: values[name] for name in ("labels", "image", "n_parts")}
    decisive |= {
        name: values["settings"][name] for name in ("compression", "shard_name")
    }
    decisive["schema"] = asdict(plan.schema)
    assert plan.fingerprint == plan.dataset_id == fingerprint(table, decisive)

    images = table.drop(columns=["shard", "part", "position"])
    plans = [
        plan_images(images, tmp_path, dataset_id=dataset_id, first_part=first_part)[0]
        for dataset_id, first_part in (("", 1), ("a1", 4), ("a1", 5), ("c3", 4))
    ]
    assert len({plan.fingerprint for plan in plans}) == 4


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        (None, ("", 1)),
        ([], ("", 1)),
        (
            [
                {"fingerprint": "a1", "first_part": 1, "n_parts": 2},
                {"fingerprint": "b2", "first_part": 3, "n_parts": 1},
            ],
            ("a1", 4),
        ),
    ],
)
def test_a_plan_of_version_0_2_is_read(planned, tmp_path, earlier, expected):
    """It lists the plans that it continues; an older one does not have the key."""
    folder, plan, _ = planned
    values = json.loads((folder / "plan.json").read_text())
    del values["dataset_id"], values["first_part"]
    if earlier is not None:
        values["earlier"] = earlier
    (tmp_path / "plan.json").write_text(json.dumps(values))

    found = read_plan(str(tmp_path))

    dataset_id, first_part = expected
    expected_id = dataset_id or plan.fingerprint
    assert found == replace(plan, dataset_id=expected_id, first_part=first_part)


def test_differences_have_the_parameter_s_name(planned):
    """The message has the values that a person set, not a hash."""
    plan = planned[1]
    changed = replace(
        plan, settings=replace(plan.settings, quality=70, group_column="site")
    )

    found = compare_plans(plan, replace(changed, fingerprint="other"))
    assert sorted(found) == [
        "GROUP_COLUMN: '' before, 'site' now",
        "QUALITY: 90 before, 70 now",
    ]
    assert compare_plans(plan, replace(plan, fingerprint="other"))[0].startswith(
        "the images"
    )
    assert compare_plans(plan, changed) == []


def test_the_error_for_a_missing_plan_names_the_notebook(tmp_path):
    """It names the folder and the step to run."""
    with pytest.raises(FileNotFoundError, match=r"no plan.json in .*Run 03_plan"):
        read_plan(str(tmp_path))
    (tmp_path / "plan.json").write_text('{"name": 1')
    with pytest.raises(ValueError, match=r"plan.json' is not .*Run 03_plan again"):
        read_plan(str(tmp_path))


@pytest.mark.parametrize("n", [1, 5])
def test_test_images_may_be_fewer_than_parts(tmp_path, n):
    """A part may have no test images; N_SHARDS counts shards of labelled images."""
    table = make_images(tmp_path / "in", 60)
    table.loc[table.index < n, ["split", "fold", "label"]] = ["test", -1, -1]
    plan, _ = two_parts(table, tmp_path, n_shards=6)
    counts = [shard.count for shard in plan.shards if shard.split == "test"]
    assert plan.n_parts == 2
    assert counts == ([1] if n == 1 else [3, 2])
    assert len(plan.shards) - len(counts) == 6
