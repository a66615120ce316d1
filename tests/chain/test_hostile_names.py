"""A dataset whose names are attacks, from `init` to the report, by the command line."""

import csv
import random
import re

import numpy as np
import pandas as pd
import pytest
from support.pages import HOSTILE, Elements
from support.scenes import saved, scene

from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import load_recipe

N_NAMES = 200
# Every second one is special in HTML, Markdown, YAML, CSV or a pattern.
SPECIAL = "<>&\"'$#:{}[]!*%@`\\\n\x85\u2028 "
CHARACTERS = SPECIAL * 500 + "".join(map(chr, range(1, 0x3000))).replace("/", "")


def draw_names():
    """Return N_NAMES different names with markup in the middle."""
    rng = random.Random(0)
    markup = [text.replace("/", "\u2215") for text in HOSTILE]
    names = []
    for number in range(N_NAMES):
        name = "".join(rng.choices(CHARACTERS, k=rng.randint(1, 20)))
        names.append(f"n{number}{markup[number % len(markup)]}{name}")
    return names


def write_input(folder, names):
    """Write an image for each name; its row has a hostile class, group and columns."""
    (folder / "images").mkdir(parents=True)
    rows = pd.DataFrame({"image_id": [f"{name}.jpg" for name in names]})
    rows[f"label {HOSTILE[0]}"] = np.resize(names[:5], N_NAMES)
    rows[f"patient_id {HOSTILE[1]}"] = np.resize(names[5:45], N_NAMES)
    rows.to_csv(folder / "train.csv", index_label=names[-1], quoting=csv.QUOTE_ALL)
    for number, image_id in enumerate(rows["image_id"]):
        data = saved(scene(40, 48, number)) if number % 20 else b"no image"
        (folder / "images" / image_id).write_bytes(data)


@pytest.mark.heavy
def test_hostile_names_go_from_init_to_the_report_as_text(tmp_path, monkeypatch):
    """The report has no element that its template does not contain.

    Each image is in the accounting: 190 written, ten rejected.
    """
    monkeypatch.chdir(tmp_path)
    write_input(tmp_path / "input", draw_names())
    assert main(["init", "input", "-o", "recipe.yaml"]) == 0
    values = load_recipe("recipe.yaml")
    assert values["ID_COLUMN"] == "image_id"
    assert values.keys().isdisjoint({"OUT_DIR", "WORK_DIR", "OVERWRITE", "BACKEND"})

    call = ["run", "recipe.yaml", "-p", "IMAGE_SIZE=32", "-p", "WORK_DIR=work"]
    call += ["-p", f"LABEL_COLUMN=label {HOSTILE[0]}"]
    call += ["-p", f"GROUP_COLUMN=patient_id {HOSTILE[1]}"]
    assert main(call) == 0

    page = Elements((tmp_path / "work/report.html").read_text(encoding="utf-8"))
    assert "script" not in dict(page.found)  # there are no clusters
    attributes = " ".join(name for _, names in page.found for name in names)
    assert not re.search(r"\bon", attributes)
    assert page.comments == []
    counts = pd.read_csv("work/accounting.csv", index_col=0)["images"]
    assert counts["total"] == N_NAMES
    assert counts["labelled records"] == N_NAMES - N_NAMES // 20
