"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def call_python(*words, cwd=None, timeout=None, **variables):
    """Run Python with the package of the checkout; return the process and its texts."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        check=False,
        capture_output=True,
        text=True,
    )
