"""Damaged pictures: no crash, no hang, and no record of what Pillow calls truncated."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("count", "seed"), [(400, 1), pytest.param(20_000, 2, marks=pytest.mark.heavy)]
)
def test_mutated_pictures_are_survived(root, count, seed):
    """
    Mutated JPEG, PNG and WebP files become records or refusals within 2 seconds each; Pillow
    refuses a good part of them as truncated, and of none of those is there a record; every
    record can be read.
    """
    done = subprocess.run(
        [sys.executable, "tests/support/fuzzing.py", str(count), str(seed)],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60 + count / 20,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["truncated to Pillow"] > count / 20
    assert found["records of files truncated to Pillow"] == 0
    assert found["records that Pillow cannot read"] == 0
    assert found["refusals of files that Pillow reads"] == 0
    assert found["verdicts of check unlike Pillow's"] == 0
    assert found["slowest"] < 2
