"""Layouts that people have give the right table, at once or after one question."""

import os

import pytest
import yaml
from support.layouts import CASES

from kaggle_tfr import explore
from kaggle_tfr.explore.layout import propose_recipe
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import DEFAULTS, check_parameters


def run_explore(answer=None):
    """Run 01 on the current folder by the proposed recipe, with the owner's changes.

    Return the images, their labels and the parameters.
    """
    values, _ = propose_recipe(".")
    values = DEFAULTS | values | (answer or {})
    check_parameters(values)
    table = explore.run(values | {"WORK_DIR": "../work", "N_JOBS": 1})
    return *table, values


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.build.__name__)
def test_a_layout_is_right_or_raises_one_question(case, monkeypatch):
    """The proposed recipe gives the right table, or a question that leads to it."""
    os.mkdir("in")
    monkeypatch.chdir("in")
    case.build()
    if case.asks:
        with pytest.raises((ValueError, OSError), match=case.asks):
            run_explore()
    if case.repair:
        case.repair()

    images, labels, values = run_explore(yaml.safe_load(case.answer))

    good = images[images["problem"] == ""]
    counts = good["split"].map(SPLIT_NAMES).value_counts()
    for split in ("train", "validation", "test"):
        assert counts.get(split, 0) == getattr(case, split), split
    assert len(images) - len(good) == case.rejected
    assert labels.kind == case.kind
    assert case.kind == "number" or [*map(str, labels.classes)] == case.classes
    assert values["N_FOLDS"] == (0 if case.validation else 5)
    groups = set(good.get(values["GROUP_COLUMN"], ""))
    assert len(groups - {""}) == case.groups
    for name, label_name in case.label_names.items():
        rows = good[good["path"].str.endswith(f"/{name}")]
        assert set(rows["label_name"]) == {label_name}
