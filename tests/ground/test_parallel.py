"""Work in threads and processes, and its progress; test_dask.py has the cluster."""

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
    """Whatever runs them, all items are done once, in order when order is asked for, and an error
    in one is raised where the results are consumed.
    """
    parallel.use_backend(2, backend)
    numbers = list(range(50))

    ordered = list(parallel.run(math.sqrt, numbers, label="roots", ordered=True))
    unordered = list(parallel.run(math.sqrt, numbers, label="roots"))

    assert ordered == [math.sqrt(number) for number in numbers]
    assert sorted(unordered) == ordered
    with pytest.raises(ValueError, match="math domain|nonnegative"):
        list(parallel.run(math.sqrt, [4, -1], label="roots"))


def test_a_log_gets_a_last_line_with_the_count(capsys):
    """Without a terminal there is no bar, only lines; the last one says all is done."""
    list(parallel.run(abs, [1, 2, 3], label="images", total=6, advance=lambda _: 2))

    assert capsys.readouterr().out.startswith("images: 6 of 6 in ")


@pytest.mark.parametrize(("seconds", "lines"), [(3600, 1), (0, 1000)])
def test_lines_are_throttled(capsys, monkeypatch, seconds, lines):
    """A thousand quick items do not flood a log: a line each interval, and one at the end."""
    monkeypatch.setattr(parallel, "SECONDS_BETWEEN_LINES", seconds)
    list(parallel.run(abs, range(1000), label="images", total=1000))

    assert len(capsys.readouterr().out.splitlines()) == lines


def test_a_backend_is_named_and_zero_jobs_are_all_cores():
    """An unknown backend's message lists what BACKEND can be."""
    with pytest.raises(ValueError, match="threading, loky, dask"):
        parallel.use_backend(1, "threads")
    assert parallel.use_backend(0).startswith(f"{os.cpu_count()} threads")
