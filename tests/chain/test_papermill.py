"""Every recipe, run by papermill notebook by notebook and by `run`."""

import pytest
import yaml
from support.chain import ROOT, make_input
from support.plans import digests
from support.processes import call_python

from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS, load_recipe

RECIPES = [path.stem for path in sorted((ROOT / "recipes").glob("*.yaml"))]


def parts(work):
    """Every file of the parts but for the copies of the settings, by name."""
    return {name: sha256 for name, sha256 in digests(work).items() if ".tf" in name}


@pytest.mark.heavy
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_by_hand_and_by_one_command(recipe, tmp_path):
    """`papermill notebooks/0X… -f recipe.yaml` five times gives the files of `run`."""
    values = load_recipe(recipe)
    if recipe != "sample":  # which writes its own input
        make_input(recipe, tmp_path / "in")
        values["INPUT_DIR"] = str(tmp_path / "in")
    for way in ("run", "hand"):
        values["WORK_DIR"] = str(tmp_path / way)
        (tmp_path / f"{way}.yaml").write_text(yaml.safe_dump(values))
    commands = [["kaggle_tfr", "run", tmp_path / "run.yaml"]]
    for step in DEFAULT_NOTEBOOKS:
        papermill = ["papermill", f"notebooks/{step}.ipynb", f"{tmp_path}/{step}.ipynb"]
        commands.append([*papermill, "-k", "python3", "-f", tmp_path / "hand.yaml"])

    for command in commands:
        done = call_python("-m", *command, cwd=ROOT, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]

    by_hand = parts(tmp_path / "hand")
    assert by_hand
    assert by_hand == parts(tmp_path / "run")
