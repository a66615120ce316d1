"""Kaggle's real client in a fresh process, whose libraries are imported once and not every time."""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["bleach", "kagglesdk", "requests", "six", "slugify", "tqdm"])


def run_client(command, **_):
    """What `subprocess.run` gives for `python -m kaggle …`."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdout", "stderr")]
        child = _FORKS.Process(target=_be_client, args=(command[3:], dict(os.environ), paths))
        child.start()
        child.join()
        return subprocess.CompletedProcess(command, child.exitcode, *(p.read_text() for p in paths))


def _be_client(arguments, environment, paths):
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["kaggle", *arguments]
    runpy.run_module("kaggle", run_name="__main__")
