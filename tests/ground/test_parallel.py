"""Work in threads and processes, and its progress; test_dask.py has the cluster."""

import io
import math
import sys

import pytest

from kaggle_tfr import parallel


@pytest.fixture(autouse=True)
def _restore():
    yield
    parallel.close_backend()


def split(group):
    """Return blocks of at most three numbers below the group."""
    return parallel.blocks(list(range(group)), 3)


def find_roots(block):
    return [math.sqrt(number) for number in block]


def join(group, results):
    return group, list(results)


@pytest.mark.parametrize(
    ("jobs", "backend"),
    [(1, "threading"), (2, "threading"), (2, "loky"), (2, "dask")],
)
def test_groups_are_joined_from_their_own_blocks(capsys, backend, jobs):
    """One after the other, also empty ones; the bar counts what is in blocks.

    An error reaches the caller.
    """
    assert parallel.use_backend(jobs, backend) == f"{jobs} workers by {backend}"
    groups = [4, 0, 11, 1]
    options = {"label": "images", "total": 16, "advance": lambda group: group[0]}

    found = parallel.run_groups(split, find_roots, join, iter(groups), **options)

    assert {*parallel.package_versions()} == {"opencv-python", "pillow", "numpy"}
    assert list(found) == [(group, find_roots(range(group))) for group in groups]
    assert "16/16" in capsys.readouterr().err.strip().split("\r")[-1]
    with pytest.raises(ValueError, match="math domain|nonnegative"):
        list(parallel.run(math.sqrt, [4, -1], label="images"))


def test_only_a_few_items_are_ahead_of_the_results():
    """Memory does not grow with the items, however slowly results are taken."""
    parallel.use_backend(2)
    started = []
    results = parallel.run(started.append, range(1000), label="images")
    for _ in range(3):
        next(results)
    assert len(started) <= 2 * parallel.AHEAD + 3
    results.close()


def test_the_line_of_a_progress_bar_ends_before_other_output(monkeypatch):
    """A kernel buffers standard error, so its end of line could come too late."""
    buffer = io.BytesIO()
    stderr = io.TextIOWrapper(buffer, encoding="utf-8")  # sends nothing until a flush
    monkeypatch.setattr(sys, "stderr", stderr)

    list(parallel.run(math.sqrt, range(3), label="images"))

    assert buffer.getvalue().endswith(b"]\n")
