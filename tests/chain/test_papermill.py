"""Every recipe, run by papermill notebook by notebook and by the driver."""

import os
import subprocess
import sys

import pytest
from support.chain import ROOT, make_input
from support.plans import digests

from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS

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
    text, options = f"recipes/{recipe}.yaml", ["-p", "INPUT_DIR", str(tmp_path / "in")]
    by_hand = [
        *options,
        "-p",
        "WORK_DIR",
        str(tmp_path / "hand"),
        "-k",
        "python3",
        "-f",
        text,
    ]
    commands = [
        ["papermill", f"notebooks/{s}.ipynb", f"{tmp_path}/{s}.ipynb"]
        for s in DEFAULT_NOTEBOOKS
    ]
    commands = [[*command, *by_hand] for command in commands]
    commands += [
        [
            "kaggle_tfr",
            "run",
            text,
            *options,
            "-p",
            "WORK_DIR",
            str(tmp_path / "driver"),
        ]
    ]
    run = {
        "env": os.environ | {"PYTHONPATH": str(ROOT)},
        "capture_output": True,
        "text": True,
    }
    for command in commands:
        whole = [sys.executable, "-m", *command]
        done = subprocess.run(whole, cwd=ROOT, check=False, timeout=600, **run)
        assert done.returncode == 0, done.stderr[-3000:]

    by_hand = parts(tmp_path / "hand")
    assert by_hand
    assert by_hand == parts(tmp_path / "driver")
