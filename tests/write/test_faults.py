"""A call fails, or the power is cut: the next run writes the same."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from support import faults
from support.faults import FULL, Disk, Power, run_steps
from support.forks import CONTEXT, fork
from support.gcs import serve_bucket
from support.plans import digests, make_images, two_parts

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
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """Functions that run the steps of a plan of two parts, and those of another plan.

    The other plan's run replaces the parts.
    """
    table = make_images(work / "images", 18)
    runs = []
    for changes in ({}, {"quality": 95, "shard_name": "{name}-{i}.tfrec"}):
        plan, planned = two_parts(table, tmp_path_factory.mktemp("plan"), **changes)
        assert (plan.n_parts, len(plan.shards)) == (2, 6)
        plan = replace(plan, folds_sha256="")  # of no file
        steps = str(work), table, plan, planned
        runs.append(partial(run_steps, *steps, overwrite=bool(changes)))
    versions = parallel.package_versions()
    with (  # both take their time
        mock.patch.object(parallel, "package_versions", return_value=versions),
        mock.patch.object(os, "fsync"),
    ):
        yield runs


@pytest.fixture(scope="module")
def whole(work, runs):
    """(calls, digests) of an undisturbed run."""
    runs[0]()  # what is imported on the way is no call
    empty(work)
    with Disk(work) as disk:
        runs[0]()
    return disk.calls, digests(work)


def empty(work):
    for path in work.iterdir():
        if path.is_file():
            path.unlink()
        elif path.name != "images":
            shutil.rmtree(path)


def check_names(work, *expected_digests):
    """Check that a file with its final name is complete, and every shard is listed.

    expected_digests: of runs that ended well.
    """
    for name, sha256 in digests(work).items():
        if re.search(r"\.tmp$|/journal/tmp|/\.lock$", name):
            continue
        expected = {known.get(name) for known in expected_digests}
        if name == "hashes.parquet" and sha256 not in expected:
            # A row of this table may contain that an image could not be read.
            pd.read_parquet(work / name)
        elif name.endswith("dataset-metadata.json") or "/journal/" in name:
            # The metadata may lack its license yet.
            assert json.loads((work / name).read_bytes())
        else:
            assert sha256 in expected, name
    for part in work.glob("out/part-*"):
        listed = [row.file for row in journal.read_shard_rows(str(part))]
        shards = {path.name for path in part.glob("*.tfrec")}
        assert shards <= {*listed, *read_sums(str(part))}


def check_fault(work, run, whole, number, fault):
    """Return how many calls failed, after a second run wrote the same bytes."""
    empty(work)
    error = None
    with Disk(work, number, fault) as disk:
        try:
            run()
        except Exception as raised:
            error = raised
    check_names(work, whole[1])
    if error is not None:
        # The file's name without the ending of a temporary file, or a folder's.
        named = re.findall(r"'(/.*?)'", str(error))
        failed = [path for _, path in disk.failed]
        assert any(path.startswith(name) for path in failed for name in named), error
        advice = r"again: it resumes where it stopped|Run 0|Remove shards.csv"
        assert re.search(advice, str(error)), error
    run()
    assert digests(work) == whole[1]
    return len(disk.failed)


def list_faults(name, number, *, is_every_fault):
    """Return the faults that a call can have: all of them, or one in turn."""
    able = FAULTS if name in faults.MAKING else FAULTS[:-1]
    return able if is_every_fault else [able[number % len(able)]]


@pytest.mark.parametrize("step", [71, EVERY])
def test_a_call_that_fails_costs_no_byte(work, runs, whole, step):
    """An error names the file and what to do, and the next run fixes the rest."""
    n_faults = 0
    n_failed = 0
    for number, (name, _) in list(enumerate(whole[0], 1))[::step]:
        for fault in list_faults(name, number, is_every_fault=step == 1):
            n_faults += 1
            n_failed += check_fault(work, runs[0], whole, number, fault)
    # The state of the caches decides how many calls there are.
    assert n_failed >= 0.9 * n_faults


def restore(work, state):
    """Replace the files of a run by those of a state of the disk."""
    empty(work)
    folders, files = state
    for folder in sorted(folders):
        Path(folder).mkdir(exist_ok=True)
    for name, data in files.items():
        if "/images/" not in name:
            Path(name).write_bytes(data)


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize(
    "states",
    [8, pytest.param(1500, marks=HOURS)],
)
def test_a_power_cut_costs_no_byte(work, runs, whole, states, is_other):
    """Data that was not synced is torn, and names are lost in any order.

    is_other: the run replaces the parts of another plan.
    """
    run = runs[is_other]
    empty(work)
    run()
    expected = digests(work)
    empty(work)
    if is_other:
        runs[0]()
    with Power(work) as power:
        run()
    assert digests(work) == expected

    rng = random.Random(0)
    places = range(power.n_before, len(power.changes) + 1)
    for place in rng.choices(places, k=states):
        restore(work, power.cut(place, rng))
        check_names(work, whole[1], expected)
        run()
        assert digests(work) == expected, power.changes[place - 1]


def test_a_bucket_s_refusal_costs_no_byte(work, runs, tmp_path):
    """503 for all requests from one in the middle: an error, and the next run resumes.

    TensorFlow repeats uploads for minutes; other requests fail sooner.
    """
    empty(work)
    runs[0]()
    expected = digests(work / "out")
    receiver, sender = CONTEXT.Pipe(duplex=False)
    with serve_bucket(tmp_path) as bucket:
        bucket.seed_objects("faults", tmp_path / "none")

        def write(out):
            """Return the number of faults, or the error."""
            fork(faults.write_apart, str(work), out, sender, env=bucket.env)
            return receiver.recv()

        assert write("gs://faults/whole") == 0
        reads = [n for n, line in enumerate(bucket.requests) if "upload" not in line]
        # The last third verifies the parts.
        first = len(bucket.requests) + reads[len(reads) // 3]
        bucket.status = 503
        bucket.refused = range(first, 1 << 30)
        assert re.search("gs://faults.*again: it resumes", write("gs://faults/out"))
        bucket.refused = range(0)
        assert write("gs://faults/out") == 0
        written = bucket.read_objects("faults", "out")
    sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in written.items()}
    assert sha256 == expected
