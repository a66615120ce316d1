"""The installed wheel is complete, and its commands work without a checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kaggle_tfr import __version__
from kaggle_tfr.parameters import NOTEBOOKS

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
SOURCES = ("pyproject.toml", "requirements.txt", "README.md", "LICENSE")
FOLDERS = ("kaggle_tfr", "notebooks", "recipes", "sample")
DATA_FILES = (
    "py.typed",
    "report.html",
    "report.js",
    "chapter.html",
    "kaggle/header.md",
    "write/page.md",
)


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """Return the wheel, built from a copy of the sources; a build leaves folders."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(root / name, folder / name)
    for name in FOLDERS:
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / name, folder / name, ignore=leave)
    options = ["--no-deps", "--no-build-isolation", "--quiet"]
    build = [*PIP, "wheel", *options, "--wheel-dir", folder / "made", folder]
    subprocess.run(build, check=True, timeout=120)
    (made,) = (folder / "made").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def call(wheel, tmp_path_factory):
    """Return a function that runs `kaggle-tfr …` from the wheel in a folder."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    outside = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    install = [*PIP, "--python", folder, "install", "--no-deps", "--quiet", wheel]
    subprocess.run(install, check=True, timeout=120, env=outside)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib"))

    def run(*words, cwd):
        command = [folder / "bin" / "kaggle-tfr", *words]
        settings = {"capture_output": True, "text": True, "env": outside}
        return subprocess.run(command, check=False, cwd=cwd, **settings)

    return run


def test_the_wheel_holds_the_sources_as_they_are(wheel, root):
    """The wheel has all modules, notebooks and recipes, the licence, no other file."""
    wanted = [*root.glob("kaggle_tfr/**/*.py"), *root.glob("recipes/*.yaml")]
    wanted += [root / f"kaggle_tfr/{name}" for name in DATA_FILES]
    wanted += [*(root / f"notebooks/{n}.ipynb" for n in NOTEBOOKS)]
    expected = {}
    for path in wanted:
        name = path.relative_to(root).as_posix().removeprefix("kaggle_tfr/")
        expected[f"kaggle_tfr/{name}"] = path.read_bytes()
    for path in root.glob("sample/*.py"):
        expected[f"kaggle_tfr_sample/{path.name}"] = path.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    info = {name: held.pop(name) for name in list(held) if ".dist-info/" in name}
    assert held == expected
    (licence,) = [data for name, data in info.items() if name.endswith("/LICENSE")]
    assert b"Apache License" in licence


def test_an_installed_wheel_answers_in_an_empty_folder(call, tmp_path):
    """--version, a bundled recipe by name, and copies of the notebooks."""
    assert call("--version", cwd=tmp_path).stdout == f"{__version__}\n"
    kernel = call("kernel", "sample", "--out", "k", cwd=tmp_path)
    assert kernel.returncode == 0, kernel.stderr
    assert call("notebooks", "nb", cwd=tmp_path).returncode == 0
    assert sorted(path.stem for path in (tmp_path / "nb").iterdir()) == list(NOTEBOOKS)


def test_the_lock_has_what_is_asked_for_and_names_no_index(root):
    """Each requirement, of the tests too, is pinned to a version that it admits."""
    text = (root / "requirements.lock").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lines = (root / "requirements.txt").read_text().splitlines()
    for extra in project["optional-dependencies"].values():
        lines += extra
    for line in lines:
        name = re.match(r"[\w.-]*", line)[0]
        if name not in ("", "kaggle-tfr"):
            specifier = Requirement(line.partition(" #")[0]).specifier
            assert specifier.contains(pins[canonicalize_name(name)]), line
    assert "://" not in text
    assert "torch" not in pins
