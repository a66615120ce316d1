"""Every recipe through papermill by hand, notebook by notebook, and through the driver."""

import os
import subprocess
import sys

import pytest
from support.chain import ROOT, make_input
from support.plans import digests

from kaggle_tfr.notebook import USUAL

RECIPES = [path.stem for path in sorted((ROOT / "recipes").glob("*.yaml"))]


def parts(work):
    """Every file of the parts but for the copies of the settings, by name."""
    return {name: sha256 for name, sha256 in digests(work).items() if ".tf" in name}


@pytest.mark.heavy
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_by_hand_and_through_the_driver(recipe, tmp_path):
    """`papermill notebooks/0X… -f recipe.yaml` five times gives the driver's files."""
    make_input(recipe, tmp_path / "in")
    text = str(ROOT / "recipes" / f"{recipe}.yaml")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options, commands = ["-p", "INPUT_DIR", str(tmp_path / "in"), "-p", "WORK_DIR"], []
    for step in USUAL:
        notebook = str(ROOT / "notebooks" / f"{step}.ipynb")
        command = [sys.executable, "-m", "papermill", notebook, str(tmp_path / f"{step}.ipynb")]
        command += ["-k", "python3", "-f", text, *options, str(tmp_path / "hand")]
        commands.append(command)
    driver = [sys.executable, "-m", "kaggle_tfr", "run", text, *options, str(tmp_path / "driver")]
    for command in [*commands, driver]:
        run = {"env": environment, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run(command, cwd=ROOT, check=False, **run)
        assert done.returncode == 0, done.stderr[-3000:]

    made = parts(tmp_path / "hand")
    assert made
    assert made == parts(tmp_path / "driver")
