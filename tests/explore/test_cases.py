"""Layouts that people have give the right table, at once or after one question."""

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from support.layouts import CASES, RECIPE, edit

from kaggle_tfr import explore
from kaggle_tfr.explore.layout import write_recipe
from kaggle_tfr.parameters import DEFAULTS, load_recipe


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W", "_", case.name))
def test_a_layout_is_right_or_raises_one_question(case, monkeypatch, capsys):
    """The unedited recipe gives the right table, or a question that leads to it."""
    folder = f"of-{len(case.name)}"
    os.mkdir(folder)
    monkeypatch.chdir(folder)
    case.build()

    question = ""
    try:
        run_explore(case, "../first")
    except (ValueError, OSError, RuntimeError) as error:
        question = str(error)
    if question:
        check_question(case, question)
    else:
        assert not case.must_ask
        check_table(case, "../first", capsys.readouterr().out)

    if callable(case.answer):
        case.answer()
    elif case.answer:
        edit(case.answer)
    run_explore(case, "../second")
    check_table(case, "../second", capsys.readouterr().out)


def run_explore(case, work):
    """Run 01 on the current folder by its recipe, and print the recipe.

    Raises: the errors with which it stops.
    """
    if not RECIPE.exists():
        write_recipe(".", str(RECIPE))
        edit(case.recipe)
    print(RECIPE.read_text(encoding="utf-8"))
    values = {**DEFAULTS, **load_recipe(str(RECIPE)), "N_JOBS": 1}
    explore.run({**values, "WORK_DIR": work})


def check_question(case, question):
    """Assert that a stop was allowed, and shows the way out."""
    assert case.answer
    keys = [] if callable(case.answer) else re.findall(r"(?m)^(\w+):", case.answer)
    assert re.search(case.asks or "|".join(keys), question)


def check_table(case, work, output):
    """Assert that the table in WORK_DIR is the expected one."""
    images = pd.read_parquet(f"{work}/images.parquet")
    labels = json.loads(Path(work, "labels.json").read_bytes())
    good = images[images["problem"] == ""]
    found = {**count(good, labels), "rejected": len(images) - len(good)}
    if not isinstance(case.classes, list):
        found["classes"] = len(found["classes"])

    for name, value in found.items():
        expected = getattr(case, name)
        choices = expected if isinstance(expected, tuple) else [expected]
        assert expected is None or value in choices, name
    texts = " ".join([output, *images["problem"].unique()])
    assert re.search(f"(?i){case.tells}", texts)
    for name, expected in case.labels.items():
        assert read_label(find_row(images, name), labels) == expected


def count(good, labels):
    """Return the numbers of good images and groups, and what the labels are."""
    split = good["split"].str[:3]
    train = good[split == "tra"]
    classes = [str(name) for name in labels["classes"]]
    if labels["kind"] == "single" and classes:
        train = train[train["label"] >= 0]
    group_column = load_recipe(str(RECIPE)).get("GROUP_COLUMN")
    groups = good.get(group_column, pd.Series(dtype=str))
    return {
        "kind": labels["kind"],
        "classes": classes,
        "train": len(train),
        "validation": (split == "val").sum(),
        "test": (split == "tes").sum(),
        "groups": groups[groups != ""].nunique(),
    }


def find_row(images, name):
    """Return the first row of a file whose path ends so."""
    row, *_ = images[images["path"].str.endswith(f"/{name}")].to_dict("records")
    return row


def read_label(row, labels):
    """Return the names of the labels of a good row."""
    assert row["problem"] == ""
    columns = labels["label_columns"]
    if labels["kind"] == "number":
        return str(row[columns[0]])
    if columns:
        return "|".join(sorted(name for name in columns if row[name]))
    return str(labels["classes"][row["label"]]) if row["label"] >= 0 else ""
