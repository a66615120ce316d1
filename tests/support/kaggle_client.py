"""Kaggle's real client in a fresh process, whose libraries are imported once and not every time."""

import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

_FORKS = multiprocessing.get_context("forkserver")
_LIBRARIES = "bleach dateutil.relativedelta dotenv kagglesdk packaging.version requests six slugify"
_FORKS.set_forkserver_preload([*_LIBRARIES.split(), "tarfile", "tqdm"])


def run_client(command, forks=_FORKS, **_):
    """What `subprocess.run` gives for `python -m kaggle …`."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("stdout", "stderr")]
        child = forks.Process(target=_be_client, args=(command[3:], dict(os.environ), paths))
        child.start()
        child.join()
        return subprocess.CompletedProcess(command, child.exitcode, *(p.read_text() for p in paths))


def start_driver(arguments):
    """The process of `python -m kaggle_tfr …`: a fork of this one, which forks its clients."""
    forks = multiprocessing.get_context("fork")
    child = forks.Process(target=_be_driver, args=(arguments, forks))
    child.start()
    return child


def _be_driver(arguments, forks):
    from kaggle_tfr.__main__ import main
    from kaggle_tfr.kaggle import upload

    for name in _LIBRARIES.split():
        importlib.import_module(name)
    upload.subprocess = SimpleNamespace(run=partial(run_client, forks=forks))
    main(arguments)


def _be_client(arguments, environment, paths):
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout, sys.stderr = (path.open("w") for path in paths)
    sys.argv = ["kaggle", *arguments]
    runpy.run_module("kaggle", run_name="__main__")
