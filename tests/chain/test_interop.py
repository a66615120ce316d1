"""Other people's readers and Kaggle's own client take the parts as they are."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.plans import digests, make_images, plan_images, write

from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.write.journal import read_shard_rows
from kaggle_tfr.write.metadata import describe_dataset


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("interop") / "images", 24)


@pytest.fixture(scope="module")
def part(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    plan_images(table, folder)
    write(folder)
    return folder / "part-1"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("x", 1),
        ("Čassava läaves", 1),
        ("日本", 12),
        ("a very long name of a dataset, " * 4, 3),
    ],
)
def test_titles_and_slugs_follow_kaggle_s_rules(part, name, parts):
    """Title and slug have 6 to 50 characters."""
    plan = read_plan(str(part))
    plan = replace(plan, labels=replace(plan.labels, name=name), n_parts=parts)
    rows = [replace(row, part=parts) for row in read_shard_rows(str(part))]
    found = describe_dataset(plan, rows)
    assert re.fullmatch(r"[a-z0-9-]{6,50}", found["id"].split("/")[1])
    assert 6 <= len(found["title"]) <= 50
    assert found["licenses"] == []


def test_a_licence_goes_into_finished_parts_too(part, tmp_path):
    """The next run of 04 writes it, and changes no other file.

    The user set id and title, which the page follows.
    """
    part = Path(shutil.copytree(part.parent, tmp_path / "work"), "part-1")
    before = digests(part)
    file = part / "dataset-metadata.json"
    names = {"title": "Leaves of my garden", "id": "ada/leaves-of-my-garden"}
    values = json.loads(file.read_text()) | names
    for earlier, name in (("CC-BY-4.0", ""), ("CC-BY-4.0", "PDDL")):
        file.write_text(json.dumps(values | {"licenses": [{"name": earlier}]}))
        write(part.parent, license_name=name)
        written = json.loads(file.read_text())
        assert written["title"] == "Leaves of my garden"
        assert "/leaves-of-my-garden/*.tfrec" in written["description"]
        assert written["licenses"] == [{"name": name or earlier}]
    after = digests(part)
    assert {name for name in before if before[name] != after[name]} == {
        "dataset-metadata.json"
    }
