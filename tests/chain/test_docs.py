"""Every command and code block of README and docs runs.

A page's blocks run in their order in a folder that contains only the inputs and, except
for README, the output of the sample; in this process, with the functions of the
notebooks in place of the notebooks, and with few images.
"""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from support.docs import ROOT, list_blocks, write_inputs, write_recipe
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401

from kaggle_tfr import deduplicate, explore, plan, run, write
from kaggle_tfr.__main__ import main, make_parser
from kaggle_tfr.find import OWNER_PLACEHOLDER
from kaggle_tfr.parameters import DEFAULTS, check_parameters

BLOCKS = list_blocks()
# The examples of this page run on eight devices and with Kaggle's versions.
READING = "docs/reading.md"  # tests/read/test_reading_docs.py
PAGES = [page for page, blocks in BLOCKS.items() if blocks and page != READING]
FEW_IMAGES = {"LIMIT": 40, "IMAGE_SIZE": 64, "SECOND_LOOK": False}
STEPS = {"01": explore.run, "02": deduplicate.run, "03": plan.run, "04": write.run}


@pytest.fixture
def folder(request, sample, tmp_path, monkeypatch):
    """Return a reader's folder with the inputs, which is the current folder.

    It has what the first kernel needs of a clone, with the user name inserted.
    """
    folder = tmp_path / "reader"
    write_inputs(folder, sample / "in")
    metadata = (ROOT / "kernel-metadata.json").read_text()
    metadata = metadata.replace(OWNER_PLACEHOLDER, USER)
    (folder / "kernel-metadata.json").write_text(metadata)
    (folder / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks/kernel.ipynb", folder / "notebooks")
    if request.node.callspec.params["page"] != "README.md":
        shutil.copytree(sample / "work", folder / "work")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    return folder


@pytest.fixture
def kernels(kaggle, sample, tmp_path):
    """Leave the output of every kernel that is pushed to the stub of Kaggle.

    It is a plan and a part, which has the name of the kernel.
    """

    def leave_output(request):
        slug = request["slug"]
        output = tmp_path / "outputs" / slug
        if not output.exists():
            part = output / "part-1"
            shutil.copytree(sample / "work/sample/part-1", part)
            shutil.copy(part / "plan.json", output)
            file = part / "dataset-metadata.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"id": slug}))
        kaggle.outputs[slug] = output

    kaggle.on_save = leave_output


@pytest.fixture
def functions(monkeypatch, sample):
    """Replace the notebooks of `kaggle-tfr run` by their functions, on few images."""

    def run_recipe(values, notebooks):
        work = os.path.abspath(values.get("WORK_DIR") or f"work/{values['NAME']}")
        if not values.get("INPUT_DIR"):
            shutil.copytree(sample / "work/sample", work, dirs_exist_ok=True)
            return
        values = DEFAULTS | values | FEW_IMAGES | {"WORK_DIR": work}
        check_parameters(values)
        for notebook in notebooks:
            if step := STEPS.get(notebook[:2]):
                step(values)
            else:
                assert list(Path(work).glob("part-*/shards.csv")), work

    monkeypatch.setattr(run, "run_recipe", run_recipe)


def run_command(line):
    """Run a line of bash; return its exit code."""
    words = shlex.split(line, comments=True)
    if words[0] == "kaggle-tfr":
        names = [sorted(glob.glob(word)) or [word] for word in words[1:]]
        return main(list(chain(*names)))
    if words == ["make", "demo"]:
        return main(["run", "sample"])
    if words[0] in ("make", "papermill"):  # other tests check target and notebook
        return 0
    return run_program("bash", "-c", line)


def run_program(*command):
    return subprocess.run(command, check=False).returncode


def run_block(block, folder):
    """Run a block; return the first exit code that is not 0, or 0."""
    if block.language == "yaml":
        check_parameters(write_recipe(block, folder))
    elif block.language == "bash":
        return next(filter(None, map(run_command, block.commands)), 0)
    elif block.language == "python":
        needs_torch = re.search(r"^import torch$", block.text, re.MULTILINE)
        if not needs_torch or find_spec("torch"):
            return run_program(sys.executable, "-c", block.text)
    else:
        assert not block.language, block  # a figure made of text
    return 0


@pytest.mark.usefixtures("functions", "kernels")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, folder):
    """Each block finds the files of those before it."""
    for block in BLOCKS[page]:
        if block.runs:
            assert run_block(block, folder) == block.exit_code, block


def test_few_blocks_are_not_run():
    """Only what needs several machines is left out; its commands are valid."""
    blocks = [block for block in chain(*BLOCKS.values()) if not block.runs]
    assert len(blocks) <= 2
    for line in chain(*(block.commands for block in blocks)):
        program, *words = shlex.split(line, comments=True)
        if program == "kaggle-tfr":
            make_parser().parse_args(words)
