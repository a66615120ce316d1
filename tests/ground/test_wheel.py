"""The installed wheel is complete, and its commands work without a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.plans import digests

from kaggle_tfr import __version__
from kaggle_tfr.kaggle.kernels import write_kernels
from kaggle_tfr.parameters import NOTEBOOKS, load_recipe

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
SOURCES = ("pyproject.toml", "requirements.txt", "README.md", "LICENSE")
# Where the files of each folder are installed.
PLACES = {
    "kaggle_tfr": "kaggle_tfr",
    "notebooks": "kaggle_tfr/notebooks",
    "recipes": "kaggle_tfr/recipes",
    "sample": "kaggle_tfr_sample",
}
# `kaggle-tfr sample` with few images: the heavy test writes all.
SMALL_SAMPLE = """
import sys
from functools import partial
import kaggle_tfr_sample as sample
from kaggle_tfr.__main__ import main
sample.write_sample = partial(sample.write_sample, scale=1 / 6)
sys.exit(main(["sample", "competition"]))
"""


@pytest.fixture(scope="module")
def installed(root, tmp_path_factory):
    """Return the folder of an installed wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("sources")  # a build leaves folders
    for name in SOURCES:
        shutil.copy(root / name, folder / name)
    for name in PLACES:
        shutil.copytree(root / name, folder / name)
    target = tmp_path_factory.mktemp("installed")
    options = ["--no-deps", "--no-build-isolation", "--no-compile", "--quiet"]
    install = [*PIP, "install", *options, "--target", target, folder]
    subprocess.run(install, check=True, timeout=120)
    return target


def test_the_wheel_holds_the_sources_as_they_are(installed, root):
    """The wheel has all modules, notebooks and recipes, the licence, no other file."""
    expected = {}
    for name, place in PLACES.items():
        for path in (root / name).rglob("*.*"):
            if path.suffix != ".pyc" and path.name != "kernel.ipynb":
                inner = path.relative_to(root / name).as_posix()
                expected[f"{place}/{inner}"] = path.read_bytes()
    packages = [path for path in installed.glob("kaggle_tfr*/**/*") if path.is_file()]
    held = {str(path.relative_to(installed)): path.read_bytes() for path in packages}
    info = {name: held.pop(name) for name in list(held) if ".dist-info/" in name}
    assert held == expected
    assert any(name.endswith("/LICENSE") for name in info)


def test_an_installed_wheel_answers_in_an_empty_folder(installed, tmp_path):
    """--version, a bundled recipe by name, copies of the notebooks, and the sample."""

    def call(program, *words):
        command = [sys.executable, *program, *words]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(installed)},
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    ours = [installed / "bin" / "kaggle-tfr"]
    assert call(ours, "--version") == (0, f"{__version__}\n")
    assert call(ours, "kernel", "sample", "--out", "k")[0] == 0
    [kernel] = write_kernels(load_recipe("sample"), str(tmp_path / "checkout"))
    assert digests(tmp_path / "k" / Path(kernel).name) == digests(kernel)
    assert call(ours, "notebooks", "nb")[0] == 0
    assert sorted(path.stem for path in (tmp_path / "nb").iterdir()) == list(NOTEBOOKS)
    assert call(ours, "notebooks", "nb") == (1, "error: File exists: 'nb'\n")
    assert call(["-c", SMALL_SAMPLE])[0] == 0
    assert (tmp_path / "competition" / "train.csv").exists()
