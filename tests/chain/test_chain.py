"""The seven notebooks as one chain on a small sample, compared with its truth.json."""

import json
import re
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import chain
from pathlib import Path

import keras
import nbformat
import pandas as pd
import pytest
import tensorflow as tf
from support.chain import write_small_sample
from support.forks import fork_kernels
from support.notebooks import run_notebook
from support.pages import Elements
from support.plans import digests, read_plainly
from support.words import collect_numbers

from kaggle_tfr import build_dataset
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import NOTEBOOKS, load_recipe
from kaggle_tfr_sample import DUPLICATES

SMALL = {"IMAGE_SIZE": 160, "N_FOLDS": 2, "N_SHARDS": 5}


@pytest.fixture(scope="module")
def work(root, tmp_path_factory):
    """The work folder of one run, from another current folder; kernels are forks.

    `tests/train` runs 06 in several ways.
    """
    folder = tmp_path_factory.mktemp("chain")
    write_small_sample(folder / "work/sample")
    call = ["run", str(root / "recipes/sample.yaml"), "-p", "WORK_DIR=work"]
    for name, value in SMALL.items():
        call += ["-p", f"{name}={value}"]
    with (folder / "log.txt").open("w") as log, chdir(folder), fork_kernels():
        with redirect_stdout(log), redirect_stderr(log):
            status = main(call)
        log.flush()
        assert status == 0, Path("log.txt").read_text()
    return folder / "work"


@pytest.fixture(scope="module")
def truth(work):
    return json.loads((work / "sample/truth.json").read_text())


def test_every_bad_file_is_rejected_with_its_own_reason(work, truth):
    """rejects.csv names the planted faults, each by its reason, and nothing else."""
    table = pd.read_csv(work / "rejects.csv", dtype=str)
    rejects = table.set_index("image_id")["problem"]
    planted = truth["refused"] | truth["test_refused"]
    unlisted = f"train_images/{truth['unlisted']}"
    assert set(rejects.index) == {*planted, unlisted}
    for image_id, reason in planted.items():
        assert rejects[image_id].startswith(reason)
    assert rejects[unlisted] == "no row in train.csv"


def test_exactly_the_planted_duplicates_are_found(work, truth):
    """A cluster with one label keeps its largest image, with two labels none."""
    duplicates = pd.read_parquet(work / "duplicates.parquet").set_index("image_id")
    groups = duplicates.groupby("cluster").groups
    clusters = {frozenset(ids) for ids in groups.values()}
    labelled_ids = set(pd.read_csv(work / "sample/train.csv")["image_id"])
    again = {
        f"1/{name}" if name in labelled_ids else name: first
        for first, name in truth["across_sources"]
    }
    planted = [*again.items(), *truth["leaks"], *truth["label_conflicts"]]
    planted += [[truth["empty"]], *chain(*map(truth.get, DUPLICATES))]
    assert clusters == {frozenset(ids) for ids in planted}

    is_test = duplicates["split"] == "test"
    kept = duplicates[duplicates["keep"] & ~is_test]
    assert {test for _, test in truth["leaks"]} == set(duplicates.index[is_test])
    assert set(again.values()) <= set(kept.index)
    _, *conflicts = truth["label_conflicts"]  # the first one is resolved
    conflicting = duplicates.loc[list(chain(*conflicts))]
    assert not conflicting["keep"].any()
    assert conflicting["reason"].str.contains("conflict").all()
    # The overrides keep a crop beside its original, and drop the empty image.
    assert set(kept["cluster"][kept["cluster"].duplicated()]) == {
        duplicates["cluster"][truth["cropped_copies"][0][1]]
    }
    assert truth["empty"] not in kept.index
    assert len(kept) == len(clusters) - len(conflicts)
    assert {larger for larger, _ in truth["half_size_copies"]} <= set(kept.index)


def test_everything_is_accounted_for(work, truth):
    """Rows in = records + duplicates + conflicts + rejected, in all files.

    A word has one number wherever it is printed or displayed.
    """
    counts = truth["counts"]
    n_records = counts["written"] + counts["test"]
    shards = pd.read_csv(work / "part-1/shards.csv")
    assert shards["count"].sum() == n_records
    table = pd.read_csv(work / "accounting.csv").set_index("outcome")["images"]
    assert table.to_dict() == {
        "labelled records": counts["written"],
        "test records": counts["test"],
        "duplicates dropped": counts["duplicates"],
        "conflicts dropped": counts["conflicts"],
        "dropped by overrides": counts["overrides"],
        "rejected": counts["rejected"],
        "total": counts["inputs"],
    }
    printed = (work.parent / "log.txt").read_text()
    page = Elements((work / "report.html").read_text())
    assert collect_numbers(printed + page.texts) == {
        "records": {n_records},
        "rejected": {counts["rejected"]},
    }


def test_every_record_is_read_by_tensorflow_alone(work, truth):
    """A literal feature dict reads labels, sizes and pixels as planned."""
    files = sorted(work.glob("part-1/*.tfrec"))
    records = {row["image_id"].decode(): row for row in read_plainly(files)}
    plan = pd.read_parquet(work / "plan.parquet").set_index("image_id")
    planned = plan[plan["split"] != "test"]
    assert set(records) == set(planned.index) > set(truth["odd_formats"])

    classes = json.loads((work / "part-1/labels.json").read_text())["classes"]
    label_names = pd.read_csv(work / "sample/train.csv", index_col=0)["label"]
    decided = pd.read_csv(work / "sample/overrides.csv").query("action == 'label'")
    label_names.update(decided.set_index("image_id")["value"])
    for image_id, record in records.items():
        pixels = tf.io.decode_jpeg(record["image"], channels=3)
        assert pixels.shape == (record["height"], record["width"], 3)
        assert min(pixels.shape[:2]) <= SMALL["IMAGE_SIZE"]
        label_name = classes[record["label"]]
        assert label_name == label_names.get(image_id, label_name)


def test_a_script_writes_what_the_notebooks_write(work):
    """Every table and shard has the same bytes, so a notebook can resume the work."""
    by_notebooks = digests(work)
    notebooks = work.rename(work.with_name("notebooks"))
    shutil.copytree(notebooks / "sample", work / "sample")
    build_dataset(**load_recipe("sample") | SMALL, WORK_DIR=str(work))
    by_script = digests(work)
    shutil.rmtree(work)
    notebooks.rename(work)

    assert "part-1/SHA256SUMS" in by_script
    changed = {name for name in by_script if by_script[name] != by_notebooks[name]}
    assert changed <= {"findings.json"}  # cells note more


def test_the_last_lines_decide_and_name_all_files(work):
    """The decision, the remarks, then the paths."""
    lines = (work.parent / "log.txt").read_text().splitlines()
    headline = "Train: yes, with 4 remarks. Publish: not yet, LICENSE is empty."
    last = lines[lines.index(headline) :]
    assert [line[0] for line in last[1:5]] == ["!"] * 4
    assert last[5:] == [
        f"file://{work}/{name}" for name in ("part-1", "folds.csv", "report.html")
    ]


def test_copies_add_nothing_to_the_score_of_an_untrained_network(work, monkeypatch):
    """07 runs to its end, and each image has one answer with torn and whole folds."""
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: None)
    values = {"WORK_DIR": str(work), "GROUP_COLUMN": "plant", **SMALL}

    names = run_notebook("07", values)

    assert len(names["gains"]) == 3
    assert (names["gains"]["gain"] == 0).all()


def is_visible(output):
    """Whether an output has a text, a table or a figure, and not just a log."""
    if output.output_type == "stream":
        return output.name == "stdout" and output.text.strip() != ""
    return "text/plain" in output.get("data", {})


def test_each_cell_shows_something_and_one_figure_at_most(work, root):
    """Parameters show themselves.

    Every figure is in one output, and no cell wrote a warning or an error.
    """
    copies = [
        *work.glob("notebooks/*.ipynb"),
        *root.glob("docs/executed/0[67]_*.ipynb"),
    ]
    assert sorted(path.stem for path in copies) == list(NOTEBOOKS)
    n_images = 0
    for path in copies:
        for cell in nbformat.read(path, as_version=4).cells:
            outputs = cell.get("outputs", ())
            tags = str(cell.metadata.get("tags"))
            if cell.cell_type == "code" and "parameters" not in tags:
                assert any(map(is_visible, outputs)), cell.source
            types = [name for output in outputs for name in output.get("data", {})]
            n_images_of_cell = sum(name.startswith("image/") for name in types)
            assert n_images_of_cell <= 1, cell.source
            n_images += n_images_of_cell
            errors = [o.text for o in outputs if o.get("name") == "stderr"]
            assert not re.search("Warning|Traceback|absl::Init", "".join(errors))
    assert n_images >= 10
