"""Layouts that people have give the right table, at once or after one question."""

import re

import pytest
from support.layouts import CASES, edit, find_faults, find_question_faults, run_steps


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W", "_", case.name))
def test_a_layout_is_right_or_raises_one_question(case, tmp_path, monkeypatch):
    """The unedited recipe gives the right table, or a question that leads to it."""
    folder = tmp_path / f"of-{len(case.name)}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    case.build()

    question = ""
    try:
        output = run_steps(case, "../first")
    except (ValueError, OSError, RuntimeError) as error:
        question = str(error)
    if question:
        assert find_question_faults(case, question) == []
    else:
        assert not case.must_ask
        assert find_faults(case, "../first", output) == []

    if callable(case.answer):
        case.answer()
    elif case.answer:
        edit(case.answer)
    output = run_steps(case, "../second")
    assert find_faults(case, "../second", output) == []
