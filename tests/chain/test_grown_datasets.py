"""Datasets that grow three times, growths that are killed, and growths from Kaggle."""

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
from support.growing import (
    N_GROWTHS,
    VALUES,
    copy_sample,
    draw_competition,
    grow,
    write_images,
)
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.plans import digests
from support.tasks import build

from kaggle_tfr import build_dataset, read
from kaggle_tfr.images.hashing import FLAT, HASHES

MAX_BITS = 25
HEAVY = [pytest.mark.heavy, pytest.mark.timeout(3600)]


@pytest.fixture(
    scope="module",
    params=[draw_competition, pytest.param(copy_sample, marks=HEAVY)],
)
def steps(request, tmp_path_factory):
    """A dataset, and its three growths."""
    folder = tmp_path_factory.mktemp("grown")
    (folder / "input").mkdir()
    return grow(request.param(folder / "input"), folder)


@pytest.fixture(params=range(1, N_GROWTHS + 1))
def step(steps, request):
    """One of the growths."""
    return steps[request.param]


def test_no_earlier_image_moves_and_no_earlier_byte_changes(step):
    """Each record has its split, fold and label in folds.csv, and its part is equal."""
    before, after = step.earlier
    assert before == after
    assert sum(map(len, before)) > 10 * len(before)

    records = step.records_before
    folds = step.folds.assign(is_test=step.folds["split"] == "test")
    rows = folds.set_index(["image_id", "is_test"]).loc[
        list(zip(records["image_id"], records["split"] == "test", strict=True))
    ]
    assert len(rows) == len(records)
    assert rows["split"].tolist() == records["split"].tolist()
    assert rows["fold"].tolist() == records["fold"].tolist()
    is_labelled = (records["split"] != "test").to_numpy()
    names = rows["label_name"].astype(str)
    assert names[is_labelled].tolist() == records["label_name"][is_labelled].tolist()


def test_every_planted_image_has_its_outcome(step):
    """Copies of earlier images are dropped, also if the images are gone."""
    reasons = step.folds.drop_duplicates("image_id").set_index("image_id")["reason"]
    found = reasons.loc[list(step.outcomes)].to_dict()
    wrong = {
        name: reason
        for name, reason in found.items()
        if not reason.startswith(step.outcomes[name])
    }
    assert wrong == {}


def test_no_cluster_is_in_two_folds(step):
    """Neither by folds.csv, nor by a comparison of all records with all others."""
    members = step.folds[(step.folds["cluster"] >= 0) & (step.folds["split"] != "test")]
    places = members.groupby("cluster")[["split", "fold"]].nunique()
    assert (places == 1).all(axis=None)

    records = step.records[step.records["split"] != "test"]
    records = records[records["texture"] >= FLAT].reset_index(drop=True)
    words = records[[*HASHES]].to_numpy(np.uint64)
    place = pd.factorize(records["split"] + records["fold"].astype(str))[0]
    for row in range(len(records)):
        distance = np.bitwise_count(words ^ words[row]).sum(axis=1)
        is_copy = (distance <= MAX_BITS) & (place != place[row])
        assert records["image_id"][is_copy].tolist() == []


def test_the_accounting_closes(step):
    """Every input image and every record of an image that is gone is counted once."""
    counts = step.accounting.drop("total")
    assert counts.sum() == step.accounting["total"] == len(step.folds)
    assert counts["in earlier parts"] == len(step.records_before)
    n_new = counts["labelled records"] + counts["test records"]
    assert len(step.records) == len(step.records_before) + n_new


def test_no_fold_is_much_larger_than_another(step):
    """With the records of earlier parts."""
    sizes = step.records["fold"].value_counts().drop(-1)
    assert (sizes / sizes.sum()).between(0.31, 0.36).all()


def test_tensorflow_reads_every_image_once(step):
    """The ids of all records are those of the fingerprints, each once."""
    shards = read.find_shards([str(part) for part in step.parts])
    for is_test in (False, True):
        files = shards["file"][(shards["split"] == "test") == is_test]
        ids = []
        for record in tf.data.TFRecordDataset(files.tolist()).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            ids.append(features["image_id"].bytes_list.value[0].decode())
        records = step.records
        expected = records["image_id"][(records["split"] == "test") == is_test]
        assert sorted(ids) == sorted(expected)


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
MARKS = ("earlier.json", "duplicates.parquet", "plan.json", "part-2/*.tfrec")


def is_written_since(work, mark, started):
    return any(path.stat().st_mtime >= started for path in work.glob(mark))


def kill_often(values, kills, seed):
    """Restart and kill a growth; return the steps in which it was killed."""
    rng = random.Random(seed)
    work = Path(values["WORK_DIR"])
    killed = []
    while len(killed) < kills:
        mark = MARKS[len(killed) % len(MARKS)]
        shutil.rmtree(work / "part-2", ignore_errors=True)
        started = time.time()
        writer = fork(build, values)
        while writer.is_alive() and not is_written_since(work, mark, started):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.1))
        writer.kill()
        writer.join()
        if writer.exitcode == -signal.SIGKILL:
            killed.append(mark)
    return killed


@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=HEAVY)])
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

    The images of the parts are not on this machine.
    """
    slug = f"{USER}/flowers-part-1"
    part = parent / "work" / "part-1"
    files = [path for path in part.rglob("*") if path.is_file()]
    kaggle.datasets[slug] = {
        str(path.relative_to(part)): path.read_bytes() for path in files
    }
    values = VALUES | {"INPUT_DIR": str(parent / "new")}

    for name, folds_from in {"kaggle": slug, "local": str(part)}.items():
        build_dataset(**values, FOLDS_FROM=folds_from, WORK_DIR=str(tmp_path / name))

    assert sorted(kaggle.downloaded) == ["hashes.parquet", "plan.json"]
    assert set(kaggle.calls) <= {"GetDataset", "DownloadDataset"}
    part_2 = digests(tmp_path / "kaggle" / "part-2")
    assert part_2 == digests(tmp_path / "local" / "part-2")
    folds = pd.read_csv(tmp_path / "kaggle" / "folds.csv")
    outcome = folds["reason"].str.extract(r"(\w+)", expand=False)
    counts = {"earlier": 60, "kept": 40, "duplicate": 3}
    assert outcome.value_counts().to_dict() == counts
    with pytest.raises(FileNotFoundError, match="needs|gone|nowhere|neither"):
        build_dataset(**values, FOLDS_FROM=f"{USER}/nowhere", WORK_DIR=str(tmp_path))


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
