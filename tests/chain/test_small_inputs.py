"""The notebooks on inputs with almost nothing to display."""

import json
import re
import shutil

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image
from support import layouts
from support.inputs import put
from support.notebooks import run_notebook
from support.plans import digests

# Of a table that a notebook shows.
TAGS = {"<table", "<thead", "<tbody", "<tr", "<th", "<td", "<div", "<style", "<p"}
SMALL = {"IMAGE_SIZE": 32, "N_FOLDS": 0, "BATCH_SIZE": 4, "N_JOBS": 1}


def show(value):
    """Do what a notebook does with the value of the last line of a cell."""
    if hasattr(value, "_repr_html_"):
        tags = set(re.findall(r"<[a-z!]+", value._repr_html_() or ""))
        assert tags <= TAGS
    if isinstance(value, plt.Figure):
        value.draw_without_rendering()
        print("figure:", value.get_suptitle())
        plt.close(value)


def test_rejects_are_saved_where_no_image_is_good(tmp_path):
    """01 ends with the most frequent reason; the file lists all images."""
    put(tmp_path / "in", [], {"a/0.jpg": "no image", "a/1.jpg": "", "a/2.jpg": ""})
    values = {"INPUT_DIR": str(tmp_path / "in"), "WORK_DIR": str(tmp_path / "work")}
    with pytest.raises(ValueError, match=r"2 of the images, 67%, .*: empty file"):
        run_notebook("01", SMALL | values, show=show)
    problems = pd.read_csv(tmp_path / "work/rejects.csv")["problem"]
    assert problems.str.startswith("empty file").tolist().count(True) == 2
    assert len(problems) == 3


CASES = {
    # case: a notebook that ends with an error.
    "one image": ("07", "at least two classes, and found 1 of 1"),
    "one class": ("07", "at least two classes, and found 4 of 1"),
    "no labels": ("06", "of the kind 'none'"),
    "several labels": ("06", "of the kind 'multi'"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_cell_stands_a_small_input(tmp_path, case, capsys):
    """01 to 05 run, and 06 and 07 name what they need.

    Finished shards stay without their images.
    """
    folder = tmp_path / "in"
    values = {**SMALL, "INPUT_DIR": str(folder), "WORK_DIR": str(tmp_path / "work")}
    n_images = 1 if case == "one image" else 3
    is_multi = case == "several labels"
    name = "$a$<img src=x onerror=alert(1)>"
    layouts.put(layouts.many(f"{folder}/{name}/{{}}.jpg", n_images))
    if is_multi:
        rows = "image_id,cat,dog,owl\n0.jpg,1,1,0\n1.jpg,1,0,0\n2.jpg,0,0,0\n"
        (folder / "train.csv").write_text(rows)
        values |= {"LABEL_COLUMN": ["cat", "dog", "owl"], "MIRRORED": True}
    elif case == "one class":  # and an image that `convert` rejects
        Image.new("1", (2**18, 1)).save(f"{folder}/{name}/wide.png")
        values["RESIZE"] = "fill"
    elif case == "no labels":
        values |= {"LABEL_COLUMN": []}
    for number in ("01", "02", "03", "04", "05"):
        names = run_notebook(number, values, show=show)
    assert len(names["ids"]) == len(set(names["ids"])) == n_images  # no padding
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "All shards have the same SHA-256 as before: True" in printed
    planned = json.loads((tmp_path / "work/plan.json").read_text())
    assert planned["checks"]["mirrored"] == is_multi
    # A combination of labels is not a class.
    covered = "1 of 3 classes have no validation record, so no score covers them: owl"
    assert (covered in printed) == is_multi
    last, error = CASES[case]
    with pytest.raises(ValueError, match=error):
        run_notebook(last, values, show=show)
    if case == "one class":
        written = digests(tmp_path / "work/part-1")
        shutil.rmtree(folder)
        run_notebook("04", values, show=show)
        assert digests(tmp_path / "work/part-1") == written
    if is_multi:  # at last, since it is another plan
        run_notebook("03", values | {"N_FOLDS": 3}, show=show)
        printed = capsys.readouterr().out
        assert re.search(
            r"! \d of 3 classes are not in every fold and split.*cat", printed
        )
