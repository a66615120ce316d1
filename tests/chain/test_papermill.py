"""Every recipe, run by papermill notebook by notebook and by the driver."""

import pytest
from support.chain import ROOT, make_input
from support.plans import digests
from support.processes import call_python

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
    path = f"recipes/{recipe}.yaml"
    options = []
    if recipe != "sample":  # which writes its own input
        make_input(recipe, tmp_path / "in")
        options = ["-p", "INPUT_DIR", tmp_path / "in"]
    options += ["-p", "WORK_DIR"]
    commands = [["kaggle_tfr", "run", path, *options, tmp_path / "driver"]]
    for step in DEFAULT_NOTEBOOKS:
        papermill = ["papermill", f"notebooks/{step}.ipynb", f"{tmp_path}/{step}.ipynb"]
        papermill += ["-k", "python3", "-f", path]
        commands.append([*papermill, *options, tmp_path / "hand"])

    for command in commands:
        done = call_python("-m", *command, cwd=ROOT, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]

    by_hand = parts(tmp_path / "hand")
    assert by_hand
    assert by_hand == parts(tmp_path / "driver")
