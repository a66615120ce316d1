"""Parallel work and its progress."""

import math
import os

import pytest

from kaggle_tfr import parallel


@pytest.fixture(autouse=True)
def _restore():
    yield
    parallel.close_backend()


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_results_are_those_of_a_plain_loop(backend):
    """
    Whatever runs them, all items are done once, and in order when order is asked for.
    """
    parallel.use_backend(2, backend)
    numbers = list(range(50))

    ordered = list(parallel.run(math.sqrt, numbers, label="roots", ordered=True))
    unordered = list(parallel.run(math.sqrt, numbers, label="roots"))

    assert ordered == [math.sqrt(number) for number in numbers]
    assert sorted(unordered) == ordered


def test_a_log_gets_a_last_line_with_the_count(capsys):
    """
    Without a terminal there is no bar, only lines; the last one says all is done.
    """
    list(parallel.run(abs, [1, 2, 3], label="images", total=6, advance=lambda _: 2))

    assert capsys.readouterr().out.startswith("images: 6 of 6 in ")


def test_lines_are_throttled(capsys, monkeypatch):
    """
    A thousand quick items do not flood a log.
    """
    monkeypatch.setattr(parallel, "SECONDS_BETWEEN_LINES", 3600)
    list(parallel.run(abs, range(1000), label="images", total=1000))

    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_failure_in_a_worker_reaches_the_caller():
    """
    An error in one item is raised where the results are consumed.
    """
    with pytest.raises(ValueError, match="math domain|nonnegative"):
        list(parallel.run(math.sqrt, [4, -1], label="roots"))


def test_an_unknown_backend_is_named():
    """
    The message lists what BACKEND can be.
    """
    with pytest.raises(ValueError, match="threading, loky, dask"):
        parallel.use_backend(1, "threads")


def test_zero_jobs_are_all_cores():
    """
    N_JOBS = 0 takes every core.
    """
    assert parallel.use_backend(0).startswith(f"{os.cpu_count()} threads")
