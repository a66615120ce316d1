"""The page of a part on Kaggle: its code runs, and its words are those of readers."""

import json
import re
from dataclasses import replace

import mistune
import pandas as pd
import pytest
from support.chain import run_chain, write_small_sample
from support.kaggle_machine import make_environment, run_python
from support.pages import HOSTILE, Elements
from support.plans import make_images, plan_images, write

from kaggle_tfr.write.journal import read_shard_rows
from kaggle_tfr.write.metadata import DATASET_FILE, describe_dataset


def read_page(part):
    return json.loads((part / DATASET_FILE).read_text())["description"]


def list_code(part):
    return re.findall(r"```python\n(.*?)```", read_page(part), re.DOTALL)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The first part of the sample, with test images and images outside the folds."""
    folder = tmp_path_factory.mktemp("sample")
    write_small_sample(folder / "in")
    values = {"INPUT_DIR": str(folder / "in"), "VALIDATION_SIZE": 0.1}
    run_chain("sample", str(folder / "work"), **values)
    return folder / "work" / "part-1"


def test_the_code_reads_the_sample_on_kaggle(sample, tmp_path):
    """Where Kaggle mounts the dataset, under its slug, without this package."""
    python = make_environment(tmp_path / "environment")
    attached = {"datasets/ada/sample-tfrecords": sample}

    done = run_python(python, list_code(sample)[0], tmp_path / "out", attached)

    assert len(re.findall(r"\(\d+, \d+, 3\) \[\d\]", done.stdout)) == 3, done.stderr


def test_the_code_lists_the_original_images_of_a_fold(sample):
    """A user of PyTorch needs pandas only; the lists are those of the shards."""
    _, code = list_code(sample)
    names = {}
    exec(code.replace("/kaggle/input/datasets/*/sample-tfrecords", str(sample)), names)

    records = pd.read_csv(sample / "train.csv", dtype={"image_id": str})
    validation = records[records["fold"] == 0]
    training = records[records["fold"] != 0]
    assert set(names["validation"]["image_id"]) == set(validation["image_id"])
    assert set(names["training"]["image_id"]) == set(training["image_id"])


def test_the_page_has_no_terms_of_this_package(sample):
    """No fold -1, no names of parameters or columns; the sums are those of the part."""
    words = r"-1|−1|cluster|_across_|short_side|shard(?!s\.csv)|n_folds|\(256, 256\)"
    assert re.findall(words, read_page(sample)) == []
    uses = re.findall(r"^\| (.*?) \| \d+ \| (\d+) \|$", read_page(sample), re.MULTILINE)
    in_folds = [f"fold {number}" for number in range(5)]
    assert [use for use, _ in uses] == ["test, without labels", *in_folds, "validation"]
    counts = pd.read_csv(sample / "shards.csv")["count"]
    assert sum(int(count) for _, count in uses) == counts.sum()


def test_names_stay_text(tmp_path):
    """Classes are named as they are, in Markdown, HTML and Jinja."""
    names = (*HOSTILE, "`a` | *b*", "{{ 7*7 }}", "two\nlines")
    plan, _ = plan_images(make_images(tmp_path / "images", 12), tmp_path)
    write(tmp_path)
    plan = replace(plan, labels=replace(plan.labels, classes=names))
    rows = read_shard_rows(f"{tmp_path}/part-1")

    page = describe_dataset(plan, rows)["description"]

    html = Elements(mistune.create_markdown(escape=False)(page))
    assert {tag for tag, _ in html.found} == {"p", "pre", "code", "strong"}
    text = f": {', '.join(names)}.".replace("\n", " ")
    assert text in html.texts
