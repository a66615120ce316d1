"""The command line: refusals before work starts, and a failed cell shown."""

import pytest

from kaggle_tfr import notebook
from kaggle_tfr.__main__ import main
from kaggle_tfr.notebook import account
from kaggle_tfr.parameters import NOTEBOOKS


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text("NAME: mine\n")
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("command", [[], ["sample"], ["run"], ["verify"], ["kernel"]])
def test_help_is_there_for_every_command(command, capsys):
    """`--help` explains each command and ends well."""
    with pytest.raises(SystemExit, match="^0$"):
        main([*command, "--help"])
    assert "usage: kaggle-tfr" in capsys.readouterr().out


def test_a_misspelt_parameter_stops_before_anything_runs(recipe, tmp_path, capsys):
    """The near miss is named, the exit code is 1, and no folder was made."""
    work = tmp_path / "work"
    assert main(["run", recipe, "-p", "WORK_DIR", str(work), "-p", "QUALTY", "70"]) == 1
    assert 'QUALTY is no parameter. Did you mean "QUALITY"?' in capsys.readouterr().err
    assert not work.exists()


def test_an_unknown_notebook_is_named(recipe, tmp_path, capsys):
    """`--only` takes a number or a name; anything else lists what there is."""
    assert main(["run", recipe, "--only", "3_plan", "-p", "WORK_DIR", str(tmp_path / "w")]) == 1
    assert 'Did you mean "03_plan"?' in capsys.readouterr().err


def test_a_failed_cell_is_shown_with_its_executed_copy(recipe, tmp_path, capsys):
    """A missing INPUT_DIR: exit code 1, the cell, the error, and where the executed copy lies."""
    work = tmp_path / "work"
    flags = ["-p", "WORK_DIR", str(work), "-p", "INPUT_DIR", str(tmp_path / "nowhere")]
    assert main(["run", recipe, "--only", "01", *flags]) == 1

    said, executed = capsys.readouterr(), work / "notebooks" / "01_explore.ipynb"
    assert "[1/1] 01_explore" in said.out
    shown = ("01_explore.ipynb stopped at cell", "input_or_sample(INPUT_DIR", "FileNotFoundError")
    assert [text for text in (*shown, str(executed)) if text not in said.err] == []
    assert executed.exists()
    assert not list(work.glob("*.parquet"))


def test_training_runs_by_its_name_only(recipe, monkeypatch):
    """A whole run leaves the training notebook out; `--only 06` is for it alone."""
    ran = []
    monkeypatch.setattr(notebook, "summarize", str)
    monkeypatch.setattr(notebook, "run_recipe", lambda _, names: ran.append(list(names)))
    assert main(["run", recipe]) == main(["run", recipe, "--only", "06"]) == 0
    assert ran == [list(NOTEBOOKS[:5]), ["06"]]


def test_the_account_closes_or_says_so():
    """Counts that do not add up to the total are an error with every number in it."""
    table = account({"written": 3, "refused": 1}, 4)
    assert table["images"].to_dict() == {"written": 3, "refused": 1, "total": 4}
    with pytest.raises(RuntimeError, match="3 written \\+ 1 refused = 4, but 5 came in"):
        account({"written": 3, "refused": 1}, 5)
