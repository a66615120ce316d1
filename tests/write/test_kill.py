"""Kills, interrupts and restarts leave no trace in the bytes."""

import random
import shutil
import signal
import time

import pytest
from support.forks import fork
from support.plans import (
    digests,
    make_images,
    plan_images,
    read_plainly,
    repeat_images,
    write,
)
from support.tasks import write_by_two

from kaggle_tfr.write import writer


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A plan of 24 shards that takes a second or so to write."""
    folder = tmp_path_factory.mktemp("kill")
    table = repeat_images(make_images(folder / "images", 12, sizes=(460, 540)), 6)
    plan_images(table, folder, size=400, n_shards=24)
    write(folder, folder / "whole")
    return folder


def kill_often(work, out, kills, backend):
    """Restart and kill the writer; return the number of shards after each kill."""
    rng = random.Random(kills)
    progress = []
    n_shards = 0
    while len(progress) < kills:
        writer = fork(write_by_two, work, out, backend)
        n_wanted = n_shards + rng.randint(0, 3)
        while writer.is_alive() and len(list(out.glob("*/*.tfrec"))) < n_wanted:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        writer.kill()
        writer.join()
        if writer.exitcode == 0:  # it was done before the kill: begin again
            shutil.rmtree(out)
            n_shards = 0
            continue
        assert writer.exitcode == -signal.SIGKILL
        files = sorted((out / "part-1").glob("*.tfrec"))
        assert all(len(read_plainly([path])) == 3 for path in files)
        n_shards = len(files)
        progress.append(n_shards)
    writer = fork(write_by_two, work, out, backend)
    writer.join()
    assert writer.exitcode == 0
    return progress


HEAVY = [
    pytest.param(30, backend, marks=pytest.mark.heavy)
    for backend in ("threading", "loky", "dask")
]


@pytest.mark.parametrize(("kills", "backend"), [(2, "threading"), *HEAVY])
def test_kills_change_no_byte(work, tmp_path, kills, backend):
    """After SIGKILL at any moment named files are whole, and the end is the same."""
    assert any(kill_often(work, tmp_path / "out", kills, backend))
    assert digests(tmp_path / "out") == digests(work / "whole")


def test_an_interrupted_call_is_taken_up_by_the_next_one(work, tmp_path, monkeypatch):
    """SIGINT stops it, as in a notebook; the same process then writes equal bytes.

    The shard that was being written gets no name.
    """
    encode = writer.encode_images
    sent = []

    def interrupt(plan, rows):
        if len(list(tmp_path.glob("*/*.tfrec"))) >= 2 and not sent:
            sent.append(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.5)
        return encode(plan, rows)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "encode_images", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(work, tmp_path)
    assert 2 <= len(list(tmp_path.glob("*/*.tfrec"))) < 24
    assert not list(tmp_path.glob("*/journal/*.tmp"))

    write(work, tmp_path)
    assert digests(tmp_path) == digests(work / "whole")
