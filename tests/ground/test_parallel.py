"""Work in threads and processes, and its progress; test_dask.py has the cluster."""

import io
import math
import re
import sys

import pytest

from kaggle_tfr import parallel


@pytest.fixture(autouse=True)
def _restore():
    yield
    parallel.close_backend()


def run(function, items, **options):
    """Return all results of `parallel.run`."""
    return list(parallel.run(function, items, label="images", **options))


def last_state(capsys):
    """Return the last state of the progress bar."""
    return capsys.readouterr().err.strip().split("\r")[-1]


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_results_are_those_of_a_plain_loop(backend):
    """Each item is done once, in order; an error reaches the caller."""
    parallel.use_backend(2, backend)
    numbers = list(range(50))
    roots = [math.sqrt(number) for number in numbers]

    assert run(math.sqrt, numbers) == roots
    with pytest.raises(ValueError, match="math domain|nonnegative"):
        run(math.sqrt, [4, -1])


def split(group):
    """Return blocks of at most three numbers below the group."""
    return parallel.blocks(list(range(group)), 3)


def negate(block):
    return [-number for number in block]


def join(group, results):
    return group, list(results)


@pytest.mark.parametrize("backend", ["threading", "loky", "dask"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_groups_are_joined_from_their_own_blocks(capsys, backend, jobs):
    """One after the other, also empty ones; the bar counts what is in blocks."""
    parallel.use_backend(jobs, backend)
    groups = [4, 0, 11, 1]
    options = {"label": "images", "total": 16, "advance": lambda group: group[0]}

    results = list(parallel.run_groups(split, negate, join, iter(groups), **options))

    assert results == [(group, negate(range(group))) for group in groups]
    assert "16/16" in last_state(capsys)


def test_only_a_few_items_are_ahead_of_the_results():
    """Memory does not grow with the items, however slowly results are taken."""
    parallel.use_backend(2)
    started = []
    results = parallel.run(started.append, range(1000), label="images")
    for _ in range(3):
        next(results)
    assert len(started) <= 2 * parallel.AHEAD + 3
    results.close()


def test_a_log_gets_a_state_each_interval_and_one_at_the_end(capsys):
    """A thousand quick items do not flood a log."""
    run(abs, range(1000), total=2000, advance=lambda _: 2)

    progress = capsys.readouterr().err.strip().split("\r")
    assert len(progress) <= 4
    assert re.match(r"images: 100%.*2000/2000", progress[-1])


def test_the_line_of_a_progress_bar_ends_before_other_output(monkeypatch):
    """A kernel buffers standard error, so its end of line could come too late."""
    buffer = io.BytesIO()
    stderr = io.TextIOWrapper(buffer, encoding="utf-8")  # sends nothing until a flush
    monkeypatch.setattr(sys, "stderr", stderr)

    list(parallel.run(math.sqrt, range(3), label="images"))

    assert buffer.getvalue().endswith(b"]\n")
