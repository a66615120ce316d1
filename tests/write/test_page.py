"""The page of a part on Kaggle: its code runs, and its words are those of readers."""

import json
import re
from dataclasses import replace

import mistune
import pandas as pd
import pytest
from support.kaggle_machine import make_environment, run_python
from support.pages import HOSTILE, Elements

from kaggle_tfr.plan import read_plan
from kaggle_tfr.write.journal import read_shard_rows
from kaggle_tfr.write.metadata import describe_dataset


def read_page(part):
    return json.loads((part / "dataset-metadata.json").read_text())["description"]


def list_code(part):
    return re.findall(r"```python\n(.*?)```", read_page(part), re.DOTALL)


@pytest.fixture(scope="module")
def part(sample):
    """The part of the sample, with test images and images outside the folds."""
    return sample / "work/sample/part-1"


def test_the_code_reads_the_sample_on_kaggle(part, tmp_path):
    """Where Kaggle mounts the dataset, under its slug, without this package."""
    python = make_environment(tmp_path / "environment")
    attached = {"datasets/ada/sample-tfrecords": part}

    done = run_python(python, list_code(part)[0], tmp_path / "out", attached)

    assert len(re.findall(r"\(\d+, \d+, 3\) \[\d\]", done.stdout)) == 3, done.stderr


def test_the_code_lists_the_original_images_of_a_fold(part):
    """A user of PyTorch needs pandas only; the lists are those of the shards."""
    _, code = list_code(part)
    names = {}
    exec(code.replace("/kaggle/input/datasets/*/sample-tfrecords", str(part)), names)

    records = pd.read_csv(part / "train.csv", dtype={"image_id": str})
    validation = records[records["fold"] == 0]
    training = records[records["fold"] != 0]
    assert set(names["validation"]["image_id"]) == set(validation["image_id"])
    assert set(names["training"]["image_id"]) == set(training["image_id"])


def test_the_page_has_no_terms_of_this_package(part):
    """No fold -1, no names of parameters or columns; the sums are those of the part."""
    words = r"-1|−1|cluster|_across_|short_side|shard(?!s\.csv)|n_folds|\(256, 256\)"
    assert re.findall(words, read_page(part)) == []
    uses = re.findall(r"^\| (.*?) \| \d+ \| (\d+) \|$", read_page(part), re.MULTILINE)
    assert [use for use, _ in uses] == [
        "test, without labels",
        "train, in no fold: never for validation",
        *(f"fold {number}" for number in range(5)),
    ]
    counts = pd.read_csv(part / "shards.csv")["count"]
    assert sum(int(count) for _, count in uses) == counts.sum()


def test_names_stay_text(part):
    """Classes are named as they are, in Markdown, HTML and Jinja."""
    names = (*HOSTILE, "`a` | *b*", "{{ 7*7 }}", "two\nlines")
    plan = read_plan(str(part))
    plan = replace(plan, labels=replace(plan.labels, classes=names))

    page = describe_dataset(plan, read_shard_rows(str(part)))["description"]

    html = Elements(mistune.create_markdown(escape=False)(page))
    assert {tag for tag, _ in html.found} == {"p", "pre", "code", "strong"}
    text = f": {', '.join(names)}.".replace("\n", " ")
    assert text in html.texts
