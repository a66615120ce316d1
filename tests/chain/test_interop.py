"""Kaggle's own client takes the parts as they are."""

import json
import re

import pytest
from support.plans import digests, make_images, plan_images, write


@pytest.mark.parametrize("name", ["日本", "a-very-long-name-of-a-dataset-" * 2])
def test_names_and_license_follow_kaggle_s_rules_and_the_user(name, tmp_path):
    """Title and slug have 6 to 50 characters, or the user sets them.

    The page follows the user's. A license goes into finished parts, too: the next run
    of 04 writes it, and changes no other file.
    """
    plan_images(make_images(tmp_path / "images", 8), tmp_path, name=name, first_part=12)
    write(tmp_path)
    before = digests(tmp_path / "part-12")
    file = tmp_path / "part-12/dataset-metadata.json"
    values = json.loads(file.read_text())
    assert re.fullmatch(r"[a-z0-9-]{6,50}", values["id"].split("/")[1])
    assert 6 <= len(values["title"]) <= 50
    assert values["licenses"] == []

    values |= {"title": "Leaves of my garden", "id": "ada/leaves-of-my-garden"}
    for license_name in ("", "PDDL"):
        file.write_text(json.dumps(values | {"licenses": [{"name": "CC-BY-4.0"}]}))
        write(tmp_path, license_name=license_name)
        written = json.loads(file.read_text())
        assert written["title"] == "Leaves of my garden"
        assert "/leaves-of-my-garden/*.tfrec" in written["description"]
        assert written["licenses"] == [{"name": license_name or "CC-BY-4.0"}]
    after = digests(tmp_path / "part-12")
    assert {name for name in before if before[name] != after[name]} == {file.name}
