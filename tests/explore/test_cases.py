"""Layouts that people have give the right table, at once or after one question."""

import re

import pytest
from support.layouts import CASES, edit, find_faults, find_question_faults, run_steps


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W", "_", case.name))
def test_a_layout_is_right_or_raises_one_question(case, tmp_path):
    """The unedited recipe gives the right table, or a question that leads to it."""
    folder = tmp_path / f"of-{len(case.name)}"
    folder.mkdir()
    case.build(folder)
    recipe = tmp_path / "recipe.yaml"

    question = ""
    try:
        output = run_steps(case, folder, recipe, tmp_path / "first")
    except (ValueError, OSError, RuntimeError) as error:
        question = str(error)
    if question:
        assert find_question_faults(case, question) == []
    else:
        assert not case.must_ask
        assert find_faults(case, recipe, tmp_path / "first", output) == []

    if callable(case.answer):
        case.answer(folder, recipe)
    elif case.answer:
        edit(recipe, case.answer)
    output = run_steps(case, folder, recipe, tmp_path / "second")
    assert find_faults(case, recipe, tmp_path / "second", output) == []
