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
from pathlib import Path

import pandas as pd
import pytest
from support.chain import ROOT
from support.docs import list_blocks, write_inputs, write_recipe
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401

from kaggle_tfr import deduplicate, explore, plan, run, write
from kaggle_tfr.__main__ import main
from kaggle_tfr.find import OWNER_PLACEHOLDER
from kaggle_tfr.parameters import DEFAULTS, check_parameters, load_recipe

BLOCKS = list_blocks()
# Its examples run on eight devices and with Kaggle's versions.
OTHER_TESTS = {"docs/reading.md": "tests/read/test_reading_docs.py"}
# It needs a cluster and a bucket; `test_readme` parses its commands.
PAGES = [page for page in BLOCKS if page not in (*OTHER_TESTS, "docs/dask.md")]
FEW_IMAGES = {"LIMIT": 40, "IMAGE_SIZE": 64, "SECOND_LOOK": False}
RUNS = {"01": explore.run, "02": deduplicate.run, "03": plan.run, "04": write.run}
SECONDS = 900  # for one block


@pytest.fixture
def folder(request, sample, tmp_path, monkeypatch):
    """Return a reader's folder with the inputs, which is the current folder."""
    folder = tmp_path / "reader"
    folder.mkdir()
    write_inputs(folder, sample / "in")
    write_clone(folder)
    if request.node.callspec.params["page"] != "README.md":
        shutil.copytree(sample / "work", folder / "work")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kernels(kaggle, sample, tmp_path):
    """Leave the output of every kernel that is pushed to the stub of Kaggle."""

    def leave_output(request):
        slug = request["slug"]
        output = tmp_path / "outputs" / slug
        if not output.exists():
            write_output(sample / "work/sample", output, slug)
        kaggle.outputs[slug] = output

    kaggle.on_save = leave_output


def write_clone(folder):
    """Write what the first kernel needs of a clone, with the user name inserted."""
    root = ROOT
    metadata = (root / "kernel-metadata.json").read_text()
    user = metadata.replace(OWNER_PLACEHOLDER, USER)
    (folder / "kernel-metadata.json").write_text(user)
    (folder / "notebooks").mkdir()
    shutil.copy(root / "notebooks" / "kernel.ipynb", folder / "notebooks")


def write_output(sample_work, output, slug):
    """Write what the session of a kernel leaves: a plan, a part, or a model."""
    number = re.search(r"-part-(\d+)$", slug)
    part = output / f"part-{number[1] if number else 1}"
    if slug.endswith("-plan"):
        part.parent.mkdir(parents=True)
    else:
        shutil.copytree(sample_work / "part-1", part)
        metadata = json.loads((part / "dataset-metadata.json").read_text())
        metadata["id"] = slug
        (part / "dataset-metadata.json").write_text(json.dumps(metadata))
    shutil.copy(sample_work / "plan.json", output)
    (output / "model.keras").write_bytes(b"weights")


@pytest.fixture
def functions(monkeypatch, sample):
    """Replace the notebooks of `kaggle-tfr run` by their functions, on few images."""

    def run_recipe(values, notebooks):
        work = os.path.abspath(values.get("WORK_DIR") or f"work/{values['NAME']}")
        if not values.get("INPUT_DIR"):
            shutil.copytree(sample / "work/sample", work, dirs_exist_ok=True)
        else:
            run_steps(DEFAULTS | values | FEW_IMAGES, work, notebooks)
        return work

    monkeypatch.setattr(run, "run_recipe", run_recipe)


def run_steps(values, work, notebooks):
    """Run the functions of these notebooks, of which 05 only needs the shards."""
    check_parameters(values)
    for notebook in notebooks:
        step = notebook[:2]
        if step in RUNS:
            RUNS[step]({**values, "WORK_DIR": work})
        else:
            assert list(Path(work).glob("part-*/shards.csv")), work


def run_here(block, folder):
    """Run the commands of a block in this process; return the first exit code not 0."""
    for line in block.commands:
        words = shlex.split(line, comments=True)
        arguments = [
            name for word in words[1:] for name in sorted(glob.glob(word)) or [word]
        ]
        if words[0] == "kaggle-tfr":
            status = main(arguments)
        elif words[0] == "papermill":
            status = run_papermill(*arguments)
        else:
            status = run_program(["bash", "-c", line], folder)
        if status:
            return status
    return 0


def run_papermill(notebook, output, recipe_flag, recipe):
    """Run the functions of a notebook with "-f RECIPE"."""
    assert Path(notebook).is_file()
    assert recipe_flag == "-f"
    run.run_recipe(load_recipe(recipe), [Path(notebook).stem])
    Path(output).touch()
    return 0


def run_program(command, folder):
    """Run a command, print its output, and return its exit code."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    python_path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode


def run_page(page, folder):
    """Run the blocks of a page in order; return {block: its exit code or a word}."""
    results = {}
    for block in BLOCKS[page]:
        result = 0
        if not block.runs:
            result = block.note
        elif block.language == "yaml":
            check_parameters(write_recipe(block, folder))
        elif block.language == "bash":
            result = run_here(block, folder)
        elif block.language == "python":
            needs_torch = re.search(r"^import torch$", block.text, re.MULTILINE)
            if needs_torch and find_spec("torch") is None:
                result = "torch is not installed"
            else:
                result = run_program([sys.executable, "-c", block.text], folder)
        else:
            assert not block.language, f"{block}: nothing runs this language"
            result = "a figure"
        print(f"{block}: {result if isinstance(result, str) else f'exit {result}'}")
        results[block] = result
    return results


@pytest.mark.usefixtures("functions", "kernels")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, folder):
    """Each block finds the files of those before it."""
    results = run_page(page, folder)

    statuses = {block: n for block, n in results.items() if isinstance(n, int)}
    assert statuses == {block: block.exit_code for block in statuses}
    if page in CHECKS:
        CHECKS[page](folder)


def check_readme(folder):
    """A part contains the files of the README's tree; the kernel has its licence."""
    [tree] = [block for block in BLOCKS["README.md"] if not block.language]
    lines = tree.text.partition("part-1/")[2].splitlines()[1:]
    words = " ".join(line[:33] for line in lines).split()
    names = [word for word in words if re.search(r"\w[.]\w|/$|^[A-Z0-9]+$", word)]
    assert len(names) == 10
    for name in names:
        pattern = re.sub(r"\d+-\d+\.tfrec", "*.tfrec", name).rstrip("/")
        assert list((folder / "work/sample/part-1").glob(pattern)), name
    [kernel] = folder.glob("kernels/*/kernel.ipynb")
    assert "LICENSE = 'other'" in kernel.read_text()


def check_inputs(folder):
    """The recipe got test images and a second source, whose classes are translated."""
    images = pd.read_parquet(folder / "work/leaves/images.parquet")
    assert set(images["split"]) == {"train", "test"}
    is_added = (images["source"] == 1) & (images["problem"] == "")
    assert {0} < set(images["label"][is_added]) <= {0, 1, 2, 3}


CHECKS = {"README.md": check_readme, "docs/inputs.md": check_inputs}


def test_few_blocks_are_not_run():
    """Only what needs several machines is left out, with its reason."""
    blocks = [block for blocks in BLOCKS.values() for block in blocks]
    left_out = [str(block) for block in blocks if not block.runs]
    assert len(left_out) <= 2, left_out
    for page, file in OTHER_TESTS.items():
        assert Path(page).name in Path(ROOT, file).read_text()
