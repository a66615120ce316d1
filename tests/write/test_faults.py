"""Whatever call fails, and wherever the power goes: the next run ends with the same bytes."""

import contextlib
import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from support import faults
from support.faults import FULL, SHORT, Disk, Power, run_steps
from support.forks import CONTEXT, fork
from support.gcs import serve_bucket
from support.plans import LABELS, digests, make_images, two_parts

from kaggle_tfr import parallel
from kaggle_tfr.write import journal

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs Linux's /proc"
)
FAULTS = [errno.ENOSPC, errno.EIO, errno.ETIMEDOUT, SHORT, FULL]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Tables and plan of 18 pictures in six shards and two parts, and another plan of theirs."""
    root, versions = tmp_path_factory.mktemp("faults"), parallel.package_versions()
    table = make_images(root / "run" / "images", 18)
    other = {"quality": 95, "shard_name": "{name}-{i}.tfrec"}
    for name, changes in (("steps.pickle", {}), ("other.pickle", other)):
        plan, planned = two_parts(table, root / "plan", **changes)
        assert (plan.n_parts, len(plan.shards)) == (2, 6)
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


def list_named(root):
    """The digests of the files that have their final names, while others may have none yet."""
    files = digests(root / "run").items()
    return {
        name: own for name, own in files if not re.search(r"\.tmp$|/journal/tmp", name)
    }


def check_names(root, *wholes):
    """Every file that has its final name is whole, and no shard lacks its row."""
    for name, sha256 in list_named(root).items():
        path, known = root / "run" / name, {own.get(name) for own in wholes}
        if name.endswith(".parquet") and sha256 not in known:
            assert (
                name == "hashes.parquet"
            )  # in which a row may say that a picture was not read
            pd.read_parquet(path)
        elif "/journal/" in name or name.endswith(
            "dataset-metadata.json"
        ):  # without an owner yet
            assert not name.endswith(".json") or json.loads(path.read_bytes())
        else:
            assert sha256 in known, name
    for part in (root / "run" / "out").glob("part-*"):
        rows = {row.file for row in journal.read_rows_of_part(str(part))}
        assert {path.name for path in part.glob("*.tfrec")} <= rows


def check_message(error, failed):
    """It names a file that failed, its final name or its folder, and says what to do."""
    paths = {path for _, path in failed}
    named = paths | {re.sub(r"\.\w{32}\.tmp$", "", path) for path in paths}
    named |= {re.sub(r"/journal(/.*)?$", "", path) for path in named}
    named |= {
        os.path.dirname(path) for path in named
    }  # a call that reads several names the folder
    assert any(f"'{name}'" in str(error) for name in named), f"{failed}: {error}"
    assert re.search(
        r"again; it resumes where it stopped|Run 0|Remove shards.csv", str(error)
    ), error


def check_fault(root, whole, number, fault):
    """The number of calls that failed, after the next run's bytes were compared."""
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


@pytest.mark.parametrize(
    "step", [71, pytest.param(1, marks=[pytest.mark.heavy, pytest.mark.timeout(7200)])]
)
def test_a_call_that_fails_costs_no_byte(root, whole, step):
    """An error names the file and what to do; nothing torn has its final name; a rerun mends."""
    tried, failed = 0, 0
    for number, (name, _) in list(enumerate(whole[0], 1))[::step]:
        able = [
            f
            for f in FAULTS
            if name in {SHORT: ["write"], FULL: faults.MAKING}.get(f, [name])
        ]
        for fault in able if step == 1 else [able[number % len(able)]]:
            tried, failed = tried + 1, failed + check_fault(root, whole, number, fault)
    print(f"{len(whole[0]):,} calls, {tried:,} faults tried, {failed:,} calls failed")
    assert (
        failed >= 0.9 * tried
    )  # the shares of the caches decide how many calls there are


def test_a_table_has_its_columns_once(root, whole):
    """Also where the disk does not say whether its file was begun."""
    empty(root)
    exists, hidden = os.path.exists, re.compile("/journal/.*[.]csv$")
    with mock.patch.object(
        os.path, "exists", lambda p: not hidden.search(str(p)) and exists(p)
    ):
        run_steps(root)
    assert digests(root / "run") == whole[1]


def put(root, state):
    """Lays a state of the disk below the root."""
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
    [8, pytest.param(1500, marks=[pytest.mark.heavy, pytest.mark.timeout(7200)])],
)
def test_a_power_cut_costs_no_byte(root, whole, states, other):
    """Unsynced data torn, unsynced names lost in any order: nothing torn has its final name."""
    empty(root)
    steps, wanted, rng = (
        "other.pickle" if other else "steps.pickle",
        whole[1],
        random.Random(0),
    )
    if other:
        run_steps(root, steps)
        wanted = digests(root / "run")
        empty(root)
        run_steps(root)
    with Power(root / "run") as power:
        run_steps(root, steps)
    assert digests(root / "run") == wanted
    for at in rng.choices(range(power.first, len(power.events) + 1), k=states):
        put(root, power.cut(at, rng))
        check_names(root, whole[1], wanted)
        run_steps(root, steps)
        assert digests(root / "run") == wanted, power.events[at - 1]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """A bucket, and a function that runs the steps: (exit code, error) of (root, out, n)."""
    folder = tmp_path_factory.mktemp("bucket")
    with serve_bucket(folder) as bucket:
        bucket.seed_objects("faults", folder / "none")

        def run(root, out="", number=0):
            answer, said = CONTEXT.Pipe(duplex=False)
            child, error = (
                fork(faults.run_apart, root, out, number, said, env=bucket.env),
                "",
            )
            said.close()
            with contextlib.suppress(EOFError):  # it was killed
                error = answer.recv()
            child.join()
            return child.exitcode, error

        yield bucket, run


@pytest.mark.parametrize(
    "step", [233, pytest.param(1, marks=[pytest.mark.heavy, pytest.mark.timeout(7200)])]
)
def test_a_kill_at_any_call_costs_no_byte(root, whole, process, step):
    """SIGKILL before each call, or half-way through its bytes; then one undisturbed run."""
    for number in range(1, len(whole[0]) + 1, step):
        empty(root)
        assert process[1](root, number=number)[0] == -signal.SIGKILL
        check_names(root, whole[1])
        run_steps(root)
        assert digests(root / "run") == whole[1], whole[0][number - 1]


def test_what_killed_runs_left_is_removed(root, whole):
    """Temporary files of every folder that a run writes to, whether it writes there again or not.

    The first run finds no part, the second one finds both finished.
    """
    places = [
        "hashes.parquet",
        "records/a.tfrec-1.frames",
        "records/a.tfrec-1-2-3.copy",
    ]
    places += ["mean_rgb/train_files.json", "figures/a.png", "out/part-1/stats.json"]
    places += ["out/part-1/index/a.tfrec.idx", "out/part-2/index/train/a.tfrec.idx"]
    empty(root)
    for _ in range(2):
        for place in places:
            path = root / "run" / f"{place}.{'0a' * 16}.tmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        run_steps(root)
        assert digests(root / "run") == whole[1]


@pytest.mark.parametrize(
    "step", [193, pytest.param(1, marks=[pytest.mark.heavy, pytest.mark.timeout(7200)])]
)
def test_a_bucket_s_refusal_costs_no_byte(root, whole, process, step):
    """429, 500 or 503 for one request, which is tried again, or for all from it on: an error."""
    parts = {name[4:]: own for name, own in whole[1].items() if name.startswith("out/")}
    parts = {
        n: own for n, own in parts.items() if not n.endswith("dataset-metadata.json")
    }
    empty(root)
    run_steps(root)
    bucket, run = process
    assert run(root, "gs://faults/whole") == (0, "")
    # For uploads TensorFlow asks ten times, and waits up to half a minute in between.
    ends = ["/upload/" not in line for line in bucket.requests]
    for number in range(0, len(ends), step):
        for times in (1, 1000) if ends[number] else (1,):
            out, first = f"out-{number}-{times}", len(bucket.requests) + number
            bucket.status = (429, 500, 503)[number % 3]
            bucket.refused = range(first, first + times)
            error = run(root, f"gs://faults/{out}")[1]
            bucket.refused = range(0)
            assert bool(error) == (times > 1), error
            assert not error or (
                "gs://faults" in error and "again; it resumes" in error
            )
            assert run(root, f"gs://faults/{out}") == (0, "")
            objects = bucket.read_objects("faults", out)
            found = {n: hashlib.sha256(data).hexdigest() for n, data in objects.items()}
            own = {n: sha256 for n, sha256 in found.items() if n in parts}
            assert own == parts
            assert set(found) - set(parts) == {
                f"part-{k}/dataset-metadata.json" for k in (1, 2)
            }
