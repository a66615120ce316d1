"""Kills, interrupts and restarts leave no trace in the bytes."""

import random
import shutil
import signal
import time

import pytest
from support.forks import fork, fork_kernels
from support.plans import (
    digests,
    make_images,
    plan_images,
    read_plainly,
    repeat_images,
    write,
)
from support.tasks import write_by_two


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


# From the third shard on images take seconds, as on a slow disk.
INTERRUPTED = """
import gc, pathlib, time
gc.disable()  # JAX's callback of the collector loses an interrupt that arrives in it
from unittest import mock
from kaggle_tfr.write import writer
encode = writer.encode_images
part = pathlib.Path({out!r}, "part-1")
def encode_slowly(plan, rows):
    if len(list(part.glob("*.tfrec"))) >= 2:
        pathlib.Path({waiting!r}).touch()
        time.sleep(3)
    return encode(plan, rows)
print("writing", flush=True)
with mock.patch.object(writer, "encode_images", encode_slowly):
    writer.write_parts({work!r}, {out!r})
"""
AGAIN = "writer.write_parts({work!r}, {out!r})"


def test_an_interrupt_in_a_notebook_is_taken_up_by_the_same_cell(work, tmp_path):
    """An interrupted cell (SIGINT) stops; run again it writes equal bytes.

    The shard that was being written gets no name.
    """
    from jupyter_client.manager import start_new_kernel

    with fork_kernels():
        manager, client = start_new_kernel(kernel_name="python3")
    out = tmp_path / "out"
    waiting = tmp_path / "waiting"
    part = out / "part-1"
    errors = []
    places = {"work": str(work), "out": str(out), "waiting": str(waiting)}

    def watch(message):
        content = message["content"]
        if message["msg_type"] == "stream" and "writing" in content["text"]:
            while not waiting.exists():
                time.sleep(0.005)
            manager.interrupt_kernel()
        if message["msg_type"] == "error":
            errors.append(content["ename"])

    def run(code):
        code = code.format(**places)
        client.execute_interactive(code, timeout=120, output_hook=watch)

    try:
        run(INTERRUPTED)
        assert errors == ["KeyboardInterrupt"]
        assert 2 <= len(list(part.glob("*.tfrec"))) < 24
        assert not list((part / "journal").glob("*.tmp"))
        run(AGAIN)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert errors == ["KeyboardInterrupt"]
    assert digests(out) == digests(work / "whole")
