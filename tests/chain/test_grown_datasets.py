"""Datasets that grow three times, growths that are killed, and growths from Kaggle."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.chain import draw_pictures, save_picture
from support.forks import fork
from support.gcs import serve_bucket
from support.growing import N_GROWTHS, VALUES, grow, write_images
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.plans import digests
from support.tasks import build

from kaggle_tfr import build_dataset, read
from kaggle_tfr.images.hashing import FLAT, HASHES

MAX_BITS = 25


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """A dataset, and its three growths."""
    return grow(tmp_path_factory.mktemp("grown"))


@pytest.fixture(params=range(1, N_GROWTHS + 1))
def growth(steps, request):
    """A growth, and the records before it."""
    return steps[request.param], steps[request.param - 1].records


def test_no_earlier_image_moves_and_no_earlier_byte_changes(growth):
    """Each record has its split, fold and label in folds.csv, and its part is equal."""
    step, records = growth
    before, after = step.earlier
    assert before == after
    assert sum(map(len, before)) > 10 * len(before)

    rows = step.folds[step.folds["reason"].str.startswith("earlier: part")]
    assert len(rows) == len(records)
    rows = records.merge(rows, on="image_id", suffixes=("", "_now"))
    assert (rows["split"] == rows["split_now"]).all()
    assert (rows["fold"] == rows["fold_now"]).all()
    rows = rows[rows["split"] != "test"]
    assert (rows["label_name"] == rows["label_name_now"]).all()


def test_every_planted_image_has_its_outcome(growth):
    """Copies of earlier images are dropped, also if the images are gone."""
    step, _ = growth
    reasons = step.folds.set_index("image_id")["reason"]
    found = reasons.loc[list(step.outcomes)].to_dict()
    expected = step.outcomes
    assert [name for name in found if not found[name].startswith(expected[name])] == []


def test_no_cluster_is_in_two_folds(growth):
    """Neither by folds.csv, nor by a comparison of all records with all others."""
    step, _ = growth
    members = step.folds[(step.folds["cluster"] >= 0) & (step.folds["split"] != "test")]
    places = members.groupby("cluster")[["split", "fold"]].nunique()
    assert (places == 1).all(axis=None)

    records = step.records
    is_compared = (records["split"] != "test") & (records["texture"] >= FLAT)
    words = records.loc[is_compared, [*HASHES]].to_numpy(np.uint64)
    fold = records["fold"][is_compared].to_numpy()
    for row in range(len(words)):
        distance = np.bitwise_count(words ^ words[row]).sum(axis=1)
        assert (fold[distance <= MAX_BITS] == fold[row]).all()


def test_the_accounting_closes(growth):
    """Every input image and every record of an image that is gone is counted once."""
    step, records = growth
    counts = step.accounting.drop("total")
    assert counts.sum() == step.accounting["total"] == len(step.folds)
    assert counts["in earlier parts"] == len(records)
    n_new = counts["labelled records"] + counts["test records"]
    assert len(step.records) == len(records) + n_new
    sizes = step.records["fold"].value_counts(normalize=True).drop(-1)
    assert sizes.max() - sizes.min() < 0.03


def test_tensorflow_reads_every_image_of_all_parts_once(steps):
    """The ids of all records are those of the fingerprints."""
    parts = list(map(str, steps[-1].parts))
    assert read.choose_folders([], "", os.path.dirname(parts[-1])) == parts
    shards = read.find_shards(parts)
    records = tf.data.TFRecordDataset(shards["file"].tolist()).as_numpy_iterator()
    features = [tf.train.Example.FromString(data).features.feature for data in records]
    ids = [feature["image_id"].bytes_list.value[0].decode() for feature in features]
    assert sorted(ids) == sorted(steps[-1].records["image_id"])


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A dataset of 60 images of three classes, and 40 new ones beside it."""
    folder = tmp_path_factory.mktemp("parent")
    pictures = draw_pictures(100, 120, 160)
    write_images(folder / "first", pictures, range(60))
    write_images(folder / "new", pictures, range(60, 100))
    for number in (5, 14, 23):
        copy = pictures[number].resize((140, 105))
        save_picture(copy, folder / f"new/c/9{number:02d}.jpg", quality=70)
    shutil.copytree(folder / "first", folder / "all")
    shutil.copytree(folder / "new", folder / "all", dirs_exist_ok=True)
    values = VALUES | {"INPUT_DIR": str(folder / "first")}
    build_dataset(**values, WORK_DIR=str(folder / "work"))
    return folder


# Files that show that 02, 03 and 04 have begun, and that 04 has written a shard.
MARKS = ("images.parquet", "duplicates.parquet", "plan.json", "part-2/*.tfrec")


def is_written_since(work, mark, started):
    return any(path.stat().st_mtime >= started for path in work.glob(mark))


def kill_often(values, kills, seed):
    """Restart and kill a growth."""
    rng = random.Random(seed)
    work = Path(values["WORK_DIR"])
    n_killed = 0
    while n_killed < kills:
        shutil.rmtree(work / "part-2", ignore_errors=True)
        started = time.time()
        writer = fork(build, values)
        mark = MARKS[n_killed % len(MARKS)]
        while writer.is_alive() and not is_written_since(work, mark, started):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        writer.kill()
        writer.join()
        n_killed += writer.exitcode == -signal.SIGKILL


HEAVY = [pytest.mark.heavy, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=HEAVY)])
def test_kills_change_no_byte_of_a_growth(parent, tmp_path, kills):
    """After SIGKILL at any moment of 02, 03 and 04, the end is the same."""
    values = VALUES | {"INPUT_DIR": str(parent / "all")}
    values |= {"FOLDS_FROM": str(parent / "work"), "N_SHARDS": 12}
    before = digests(parent / "work")
    build_dataset(**values, WORK_DIR=str(tmp_path / "whole"))
    killed = values | {"WORK_DIR": str(tmp_path / "killed")}

    kill_often(killed, kills, seed=kills)
    writer = fork(build, killed)
    writer.join()

    assert writer.exitcode == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert digests(parent / "work") == before


def test_a_dataset_grows_from_its_published_parts(parent, kaggle, tmp_path):
    """Only fingerprints and plan are requested; the bytes are those of a growth here.

    The images of the parts are not on this machine, so there is no second look.
    """
    slug = f"{USER}/flowers-part-1"
    part = parent / "work" / "part-1"
    files = [path for path in part.rglob("*") if path.is_file()]
    kaggle.datasets[slug] = {
        str(path.relative_to(part)): path.read_bytes() for path in files
    }
    values = VALUES | {"INPUT_DIR": str(parent / "new"), "SECOND_LOOK": True}

    for name, folds_from in {"kaggle": slug, "local": str(part)}.items():
        build_dataset(**values, FOLDS_FROM=folds_from, WORK_DIR=str(tmp_path / name))

    assert sorted(kaggle.downloaded) == ["hashes.parquet", "plan.json"]
    part_2 = digests(tmp_path / "kaggle" / "part-2")
    assert part_2 == digests(tmp_path / "local" / "part-2")
    folds = pd.read_csv(tmp_path / "kaggle" / "folds.csv")
    outcome = folds["reason"].str.extract(r"(\w+)", expand=False)
    counts = {"earlier": 60, "kept": 40, "duplicate": 3}
    assert outcome.value_counts().to_dict() == counts


def test_a_dataset_grows_from_a_bucket(parent, tmp_path):
    """The address of a work folder or of a part gives the same bytes as a folder."""
    values = VALUES | {"INPUT_DIR": str(parent / "new")}
    local = {"FOLDS_FROM": str(parent / "work"), "WORK_DIR": str(tmp_path / "local")}
    build_dataset(**values, **local)
    expected = digests(tmp_path / "local" / "part-2")
    with serve_bucket(tmp_path) as bucket:
        bucket.seed_objects("my-bucket", parent / "work")
        for name in ("my-bucket", "my-bucket/part-1"):
            work = tmp_path / name.replace("/", "-")
            sources = {"FOLDS_FROM": f"gs://{name}", "WORK_DIR": str(work)}
            writer = fork(build, values | sources, env=bucket.env)
            writer.join()
            assert writer.exitcode == 0
            assert digests(work / "part-2") == expected
