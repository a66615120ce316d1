"""A call fails, or the power is cut: the next run writes the same."""

import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from support import faults
from support.faults import FULL, Disk, Power, run_steps
from support.forks import CONTEXT, fork
from support.gcs import serve_bucket
from support.plans import LABELS, digests, make_images, two_parts

from kaggle_tfr import parallel
from kaggle_tfr.shards import read_sums
from kaggle_tfr.write import journal

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs Linux's /proc"
)
HOURS = [pytest.mark.heavy, pytest.mark.timeout(7200)]
EVERY = pytest.param(1, marks=HOURS)
FAULTS = [errno.ENOSPC, errno.EIO, errno.ETIMEDOUT, FULL]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Tables and plan of 18 images in six shards and two parts, and another plan."""
    root = tmp_path_factory.mktemp("faults")
    versions = parallel.package_versions()
    table = make_images(root / "run" / "images", 18)
    other = {"quality": 95, "shard_name": "{name}-{i}.tfrec"}
    for name, changes in (("steps.pickle", {}), ("other.pickle", other)):
        plan, planned = two_parts(table, root / "plan", **changes)
        assert (plan.n_parts, len(plan.shards)) == (2, 6)
        plan = replace(plan, folds_sha256="")  # of no file
        steps = table, LABELS, plan, planned, bool(changes)
        (root / name).write_bytes(pickle.dumps(steps))
    with (  # both take their time
        mock.patch.object(parallel, "package_versions", return_value=versions),
        mock.patch.object(os, "fsync"),
    ):
        yield root


@pytest.fixture(scope="module")
def whole(root):
    """(calls, digests) of an undisturbed run."""
    run_steps(root)  # what is imported on the way is no call
    empty(root)
    with Disk(root / "run") as disk:
        run_steps(root)
    return disk.calls, digests(root / "run")


def empty(root):
    for path in (root / "run").iterdir():
        if path.is_file():
            path.unlink()
        elif path.name != "images":
            shutil.rmtree(path)


def check_names(root, *expected_digests):
    """Check that a file with its final name is complete, and every shard is listed.

    expected_digests: of runs that ended well.
    """
    for name, sha256 in digests(root / "run").items():
        if re.search(r"\.tmp$|/journal/tmp|/\.lock$", name):
            continue
        path = root / "run" / name
        expected = {known.get(name) for known in expected_digests}
        if name.endswith(".parquet") and sha256 not in expected:
            # A row of this table may contain that an image could not be read.
            assert name == "hashes.parquet"
            pd.read_parquet(path)
        elif name.endswith("dataset-metadata.json"):
            assert json.loads(path.read_bytes())  # it may lack its owner yet
        elif "/journal/" in name:
            assert json.loads(path.read_bytes())
        else:
            assert sha256 in expected, name
    for part in (root / "run" / "out").glob("part-*"):
        listed = [row.file for row in journal.read_shard_rows(str(part))]
        shards = {path.name for path in part.glob("*.tfrec")}
        assert shards <= {*listed, *read_sums(str(part))}


def check_message(error, failed):
    """Check that an error names a file or folder that failed, and what to do."""
    paths = {path for _, path in failed}
    names = paths | {re.sub(r"\.\w{32}\.tmp$", "", path) for path in paths}
    names |= {re.sub(r"/journal(/.*)?$", "", path) for path in names}
    # A call that reads several files names the folder.
    names |= {os.path.dirname(path) for path in names}
    advice = r"again: it resumes where it stopped|Run 0|Remove shards.csv"
    assert any(f"'{name}'" in str(error) for name in names), f"{failed}: {error}"
    assert re.search(advice, str(error)), error


def check_fault(root, whole, number, fault):
    """Return how many calls failed, after a second run wrote the same bytes."""
    empty(root)
    error = None
    with Disk(root / "run", number, fault) as disk:
        try:
            run_steps(root)
        except Exception as raised:
            error = raised
    check_names(root, whole[1])
    if error is not None:
        check_message(error, disk.failed)
    run_steps(root)
    assert digests(root / "run") == whole[1]
    return len(disk.failed)


def list_faults(name, number, *, is_every_fault):
    """Return the faults that a call can have: all of them, or one in turn."""
    able = FAULTS if name in faults.MAKING else FAULTS[:-1]
    return able if is_every_fault else [able[number % len(able)]]


@pytest.mark.parametrize("step", [71, EVERY])
def test_a_call_that_fails_costs_no_byte(root, whole, step):
    """An error names the file and what to do, and the next run fixes the rest."""
    n_faults = 0
    n_failed = 0
    for number, (name, _) in list(enumerate(whole[0], 1))[::step]:
        for fault in list_faults(name, number, is_every_fault=step == 1):
            n_faults += 1
            n_failed += check_fault(root, whole, number, fault)
    print(f"{len(whole[0]):,} calls, {n_faults:,} faults, {n_failed:,} calls failed")
    # The state of the caches decides how many calls there are.
    assert n_failed >= 0.9 * n_faults


def restore(root, state):
    """Replace the files of a run by those of a state of the disk."""
    shutil.rmtree(root / "run" / "out", ignore_errors=True)
    empty(root)
    folders, files = state
    for folder in sorted(folders):
        Path(folder).mkdir(exist_ok=True)
    for name, data in files.items():
        if "/images/" not in name:
            Path(name).write_bytes(data)


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize(
    "states",
    [8, pytest.param(1500, marks=HOURS)],
)
def test_a_power_cut_costs_no_byte(root, whole, states, other):
    """Data that was not synced is torn, and names are lost in any order.

    other: the run replaces the parts of another plan.
    """
    steps = "other.pickle" if other else "steps.pickle"
    empty(root)
    if other:
        run_steps(root, steps)
        expected = digests(root / "run")
        empty(root)
        run_steps(root)
    else:
        expected = whole[1]
    with Power(root / "run") as power:
        run_steps(root, steps)
    assert digests(root / "run") == expected

    rng = random.Random(0)
    places = range(power.n_before, len(power.changes) + 1)
    for place in rng.choices(places, k=states):
        restore(root, power.cut(place, rng))
        check_names(root, whole[1], expected)
        run_steps(root, steps)
        assert digests(root / "run") == expected, power.changes[place - 1]


def test_what_killed_runs_left_is_removed(root, whole):
    """Temporary files are removed from every folder that a run writes to.

    The first run finds no part, the second one finds both finished.
    """
    places = [
        "hashes.parquet",
        "records/a.tfrec-1.frames",
        "records/a.tfrec-1-2-3.copy",
        "mean_rgb/train_files.json",
        "figures/a.png",
        "out/part-1/stats.json",
        "out/part-1/index/a.tfrec.idx",
        "out/part-2/index/train/a.tfrec.idx",
    ]
    empty(root)
    for _ in range(2):
        for place in places:
            path = root / "run" / f"{place}.{'0a' * 16}.tmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        run_steps(root)
        assert digests(root / "run") == whole[1]


def test_a_bucket_s_refusal_costs_no_byte(root, tmp_path):
    """503 for all requests from one in the middle: an error, and the next run resumes.

    TensorFlow repeats uploads for minutes; other requests fail sooner.
    """
    empty(root)
    run_steps(root)
    expected = digests(root / "run" / "out")
    with serve_bucket(tmp_path) as bucket:
        bucket.seed_objects("faults", tmp_path / "none")

        def run(out):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            child = fork(faults.run_apart, root, out, sender, env=bucket.env)
            error = receiver.recv()
            child.join()
            return error

        assert run("gs://faults/whole") == ""
        reads = [n for n, line in enumerate(bucket.requests) if "upload" not in line]
        first = len(bucket.requests) + reads[len(reads) // 2]
        bucket.status = 503
        bucket.refused = range(first, 1 << 30)
        assert re.search("gs://faults.*again: it resumes", run("gs://faults/out"))
        bucket.refused = range(0)
        assert run("gs://faults/out") == ""
        for name, data in bucket.read_objects("faults", "out").items():
            if not name.endswith("dataset-metadata.json"):
                assert hashlib.sha256(data).hexdigest() == expected.pop(name)
    assert {Path(name).name for name in expected} == {"dataset-metadata.json"}
