"""The seven notebooks as one chain on a small sample, compared with its truth.json."""

import json
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import tensorflow as tf
from support.chain import write_small_sample
from support.forks import fork_kernels
from support.plans import read_plainly
from support.tasks import compare_once

from kaggle_tfr.__main__ import main
from kaggle_tfr.driver import summarize
from kaggle_tfr.parameters import NOTEBOOKS

SMALL = {"IMAGE_SIZE": 160, "N_FOLDS": 3, "N_SHARDS": 7, "EPOCHS": 1, "REPEATS": 2}


@pytest.fixture(scope="module")
def work(root, tmp_path_factory):
    """The work folder of one whole run by the driver, from another current folder.

    06 has its own kernel; the kernels of the other notebooks are forks.
    """
    folder = tmp_path_factory.mktemp("chain")
    write_small_sample(folder / "work" / "sample")
    call = ["run", str(root / "recipes" / "sample.yaml"), "-p", "WORK_DIR", "work"]
    for name, value in SMALL.items():
        call += ["-p", name, str(value)]
    with (
        (folder / "log.txt").open("w") as log,
        chdir(folder),
        fork_kernels(compare_once),
    ):
        with redirect_stdout(log), redirect_stderr(log):
            status = main([*call, "--only", "01", "02", "03", "04", "05", "07"])
        log.flush()
        assert status == 0, Path("log.txt").read_text()
    last = [sys.executable, "-m", "kaggle_tfr", *call, "--only", "06"]
    done = subprocess.run(last, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "work"


@pytest.fixture(scope="module")
def truth(work):
    return json.loads((work / "sample" / "truth.json").read_text())


def test_every_bad_file_is_rejected_with_its_own_reason(work, truth):
    """rejects.csv names the planted faults, each by its reason, and nothing else."""
    table = pd.read_csv(work / "rejects.csv", dtype=str)
    rejects = table.set_index("image_id")["problem"]
    assert set(rejects.index) == {
        *truth["refused"],
        *truth["test_refused"],
        truth["unlisted"],
    }
    for image_id, reason in (truth["refused"] | truth["test_refused"]).items():
        assert rejects[image_id].startswith(reason)
    assert rejects[truth["unlisted"]] == "no row in train.csv"


def test_exactly_the_planted_duplicates_are_found(work, truth):
    """A cluster with one label keeps its largest image, with two labels none."""
    duplicates = pd.read_parquet(work / "duplicates.parquet").set_index("image_id")
    clusters = {frozenset(ids) for ids in duplicates.groupby("cluster").groups.values()}
    labelled_ids = set(pd.read_csv(work / "sample" / "train.csv")["image_id"])
    again = {
        f"1/{name}" if name in labelled_ids else name: first
        for name, first in truth["across_sources"].items()
    }
    conflicting = {image_id for pair in truth["label_conflicts"] for image_id in pair}
    kept = duplicates[duplicates["keep"] & (duplicates["split"] == "train")]
    kinds = ("exact_copies", "reencoded_copies", "half_size_copies", "label_conflicts")
    planted = [frozenset(pair) for kind in kinds for pair in truth[kind]]
    planted += [frozenset(pair) for pair in (again | truth["leaks"]).items()]
    assert clusters == {*planted, frozenset(truth["group_of_three"])}
    assert set(again.values()) <= set(kept.index)
    assert set(truth["leaks"]) == set(duplicates.index[duplicates["split"] == "test"])
    assert not conflicting & set(kept.index)
    assert duplicates.loc[sorted(conflicting), "reason"].str.contains("conflict").all()
    assert kept["cluster"].is_unique
    assert len(kept) == len(clusters) - len(truth["label_conflicts"])
    assert {pair[0] for pair in truth["half_size_copies"]} <= set(kept.index)


def test_exactly_the_planted_leaks_are_named(work, truth):
    """leaks.csv names each test image with the labelled image that shows the same."""
    leaks = pd.read_csv(work / "leaks.csv").set_index("test_id")
    assert leaks["image_id"].to_dict() == truth["leaks"]
    assert leaks["label_name"].to_dict() == {
        k: truth["test_labels"][k] for k in truth["leaks"]
    }


def test_the_submission_has_each_id_once_and_in_order(work, truth):
    """The damaged image gets a class too; the header is the competition's."""
    asked = pd.read_csv(work / "sample" / "sample_submission.csv")
    filled = pd.read_csv(work / "submission.csv")
    assert filled["image_id"].tolist() == asked["image_id"].tolist()
    assert set(filled["image_id"]) == set(truth["test_labels"])
    assert set(filled["label"]) <= set(truth["classes"])
    assert list(filled) == list(asked)


def test_everything_is_accounted_for(work, truth):
    """Rows in = written + duplicates + conflicts + rejected, in all files."""
    counts = truth["counts"]
    images = pd.read_parquet(work / "images.parquet")
    plan = pd.read_parquet(work / "plan.parquet")
    shards = pd.read_csv(work / "part-1" / "shards.csv")
    assert len(images) == counts["inputs"]
    assert len(plan) == shards["count"].sum() == counts["written"] + counts["test"]
    table = pd.read_csv(work / "accounting.csv").set_index("outcome")["images"]
    outcomes = ["written", "duplicates dropped", "conflicts dropped", "rejected"]
    keys = ["written", "duplicates", "conflicts", "refused"]
    assert table[outcomes].tolist() == [counts[key] for key in keys]
    test = table[["test images", "test images rejected"]]
    assert test.tolist() == [counts["test"], counts["test_refused"]]
    assert table[outcomes].sum() + test.sum() == table["total"] == counts["inputs"]


def test_every_record_is_read_by_tensorflow_alone(work, truth):
    """A literal feature dict reads labels, sizes and pixels as planned."""
    import tensorflow as tf

    plan = pd.read_parquet(work / "plan.parquet").set_index("image_id")
    classes = json.loads((work / "part-1" / "labels.json").read_text())["classes"]
    table = pd.read_csv(work / "sample" / "train.csv", index_col="image_id")["label"]

    labelled = sorted((work / "part-1").glob("*.tfrec"))
    unlabelled = sorted((work / "part-1" / "test").glob("*.tfrec"))
    schema = json.loads((work / "part-1" / "schema.json").read_text())
    said = {"compression": "", "image_format": "jpeg"}
    assert said.items() <= schema.items()
    kinds = {"bytes": tf.string, "int64": tf.int64}
    names, of_test = (
        {
            field["name"]: tf.io.FixedLenFeature([], kinds[field["type"]])
            for field in schema[name]
        }
        for name in ("fields", "test_fields")
    )
    test = read_plainly(unlabelled, features=of_test)
    found = read_plainly(labelled, features=names)
    records = {record["image_id"].decode(): record for record in found}
    is_test = plan["split"] == "test"
    assert {record["image_id"].decode() for record in test} == set(plan.index[is_test])
    assert set(records) == set(plan.index[~is_test]) > set(truth["odd_formats"])
    assert "label" not in of_test
    table = table.reindex(plan.index).fillna(plan["label_name"])
    for image_id, record in records.items():
        pixels = tf.io.decode_jpeg(record["image"], channels=3).numpy()
        assert pixels.shape == (record["height"], record["width"], 3)
        assert min(pixels.shape[:2]) <= SMALL["IMAGE_SIZE"]
        assert classes[record["label"]] == table[image_id]


def test_the_driver_says_where_everything_lies(work):
    """The last lines name shards, notebooks and figures, and show the accounting."""
    said = (work.parent / "log.txt").read_text()
    for text in ("part-1/", "notebooks/", "figures/", "report.html"):
        assert f"{work}/{text}" in said
    assert "written" in said


def test_the_driver_says_where_everything_lies_of_a_bucket(work, tmp_path, monkeypatch):
    """Parts, report and accounting are objects; notebooks are on this machine."""
    monkeypatch.chdir(tmp_path)
    bucket = f"ram://{tmp_path.name}"
    for name in ("part-1/shards.csv", "accounting.csv"):
        tf.io.gfile.makedirs(f"{bucket}/part-1")
        tf.io.gfile.copy(str(work / name), f"{bucket}/{name}")
    said = summarize(bucket)
    for text in (
        f"{bucket}/part-1/ (",
        f"{bucket}/report.html",
        f"{tmp_path}/work/notebooks/",
    ):
        assert text in said
    assert "written" in said
    assert f"{bucket}/notebooks" not in said


def test_the_report_holds_all_figures_but_the_lessons_and_nobody_s_folder(work):
    """One page under 5 MB, which shows what the notebooks show; the part has it too."""
    page = (work / "report.html").read_text()
    assert (work / "part-1" / "report.html").read_text() == page
    assert len(page) < 5e6
    assert str(work) not in page
    lessons = {"01_misread", "02_hashes", "03_qualities"}
    assert page.count("<img") == len(list((work / "figures").iterdir())) - len(lessons)
    for text in (
        "What was rejected",
        "Leaks between splits",
        "all within",
        "0 faults in",
        "written",
    ):
        assert text in page


def test_executed_notebooks_show_each_figure_once(work):
    """Every figure is in one output, and no cell wrote a warning or an error."""
    copies = sorted((work / "notebooks").glob("*.ipynb"))
    n_images = 0
    assert [path.stem for path in copies] == list(NOTEBOOKS)
    for path in copies:
        cells = nbformat.read(path, as_version=4).cells
        for cell in [cell for cell in cells if cell.cell_type == "code"]:
            images = [o for o in cell.outputs if "image/png" in o.get("data", {})]
            assert len(images) <= 1, cell.source
            n_images += len(images)
            loud = [o.text for o in cell.outputs if o.get("name") == "stderr"]
            assert not [
                text for text in loud if "Warning" in text or "Traceback" in text
            ], loud
    saved = list(Path(work / "figures").glob("*.png"))
    assert n_images == len(saved) >= 10
