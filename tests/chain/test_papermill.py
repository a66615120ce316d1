"""The notebooks of every recipe, run by papermill."""

import pytest
from support.chain import make_input
from support.docs import ROOT

from kaggle_tfr.parameters import load_recipe
from kaggle_tfr.run import run_recipe

RECIPES = [path.stem for path in sorted((ROOT / "recipes").glob("*.yaml"))]


@pytest.mark.heavy
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_notebooks_of_a_recipe_run(recipe, tmp_path):
    """`test_recipes` compares the bytes that their functions write."""
    values = load_recipe(recipe) | {"WORK_DIR": str(tmp_path / "work")}
    if recipe != "sample":  # which writes its own input
        make_input(recipe, tmp_path / "in")
        values["INPUT_DIR"] = str(tmp_path / "in")

    run_recipe(values)

    assert list(tmp_path.glob("work/part-1/shards.csv"))
