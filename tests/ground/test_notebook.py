"""The command line: refusals before work starts, and a failed cell shown."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from support.inputs import put
from support.pages import Elements

from kaggle_tfr import notebook, run
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import NOTEBOOKS


@pytest.fixture
def at(tmp_path, monkeypatch):
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_main(words):
    """Return the exit code, also where argparse ends the program."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("run sample -p QUALTY=7", 2, 'QUALTY is not a parameter. Did you mean "QUALI'),
        ("run sample --until plann", 2, "'plann' is not a step. The steps are"),
        ("runn", 2, "invalid choice: 'runn' (choose from"),
        ("run no.yaml", 2, "The recipe 'no.yaml' cannot be used: No such file"),
        ("run empty", 1, "/empty' has no image that can be used"),
        ("push nowhere", 1, "error: 'nowhere' has no kernel. Make one"),
    ],
)
def test_a_wrong_call_is_named_before_work_starts(at, capsys, call, code, message):
    """Whatever reads the call: argparse, the recipe, the table, or the command.

    The exit code is 2, and 1 where something in a folder is missing.
    """
    (at / "empty").mkdir()
    assert run_main(call.split()) == code
    assert message in capsys.readouterr().err
    assert [path.name for path in at.iterdir()] == ["empty"]


def test_a_folder_is_run_by_a_recipe_that_is_made_once(at, monkeypatch, capsys):
    """NAME.yaml is written, then used, with the changes that the user made in it.

    Another folder of this name has the same recipe.
    """
    runs = []
    monkeypatch.setattr(run, "run_recipe", lambda *call: runs.append(call))
    for folder in ("photos", "more/photos"):
        put(folder, ["rose/1.jpg", "tulip/1.jpg"])

    assert main(["run", "photos/", "-p", "QUALITY=70", "--until", "plan"]) == 0
    values, notebooks = runs[0]
    assert (values["INPUT_DIR"], values["QUALITY"]) == (f"{at}/photos", 70)
    assert notebooks == list(NOTEBOOKS[:3])

    (at / "photos.yaml").write_text(f"INPUT_DIR: {at}/photos\nSEED: 3")
    assert main(["run", "more/photos", "--from", "02", "--until", "01"]) == 0
    printed = capsys.readouterr().out
    assert "Written: photos.yaml." in printed
    assert "photos.yaml exists and is used" in printed
    values, notebooks = runs[1]
    assert (values["INPUT_DIR"], values["SEED"]) == (f"{at}/more/photos", 3)
    assert notebooks == ["02_deduplicate"]


def test_the_account_closes_or_says_so():
    """Counts that do not add up to the total are an error with every number in it."""
    table = notebook.account({"written": 3, "rejected": 1}, 4)
    assert table["images"].to_dict() == {"written": 3, "rejected": 1, "total": 4}
    with pytest.raises(RuntimeError, match="'rejected': 1}, but 5 came in"):
        notebook.account({"written": 3, "rejected": 1}, 5)


NOTED = [("03_plan", 0), ("04_write", 1), ("04_write", 2), ("06_train", 0)]
# Earlier versions have other columns, too.
OLD = {"step": "01_explore", "subject": "a", "mark": "·", "text": "a", "advice": ""}


@pytest.mark.parametrize(
    ("step", "part", "kept"),
    [("02_deduplicate", 0, "a"), ("04_write", 2, "abce"), ("04_write", 0, "abe")],
)
def test_a_step_that_starts_again_ends_its_findings(tmp_path, step, part, kept):
    """So do 01 to 03 those of later steps, and a part of 04 only those of the part."""
    work = str(tmp_path)
    (tmp_path / "findings.json").write_text(json.dumps([OLD | {"part": 0}]))
    for text, (noting_step, noting_part) in zip("bcde", NOTED, strict=True):
        notebook.begin(noting_step, {"WORK_DIR": work, "PART": noting_part})
        notebook.note("·", text, "subject")

    notebook.begin(step, {"WORK_DIR": work, "PART": part})

    notebook.end()
    findings = notebook.read_findings(work)
    assert "".join(finding.text for finding in findings) == kept


# Processes that a shell starts in the background ignore SIGINT.
DRIVE = """
import signal, sys
from pathlib import Path
from kaggle_tfr import __main__ as program, run
signal.signal(signal.SIGINT, signal.default_int_handler)
run.bundled = lambda _: Path.cwd()
sys.exit(program.main(sys.argv[1:]))
"""


@pytest.fixture
def drive(tmp_path, root):
    """Start `kaggle-tfr run` over a notebook with one cell."""

    def start(cell):
        cells = [new_code_cell("WORK_DIR = ''", metadata={"tags": ["parameters"]})]
        kernel = {"name": "python3", "display_name": "", "language": "python"}
        source = new_notebook(
            cells=[*cells, new_code_cell(cell)], metadata={"kernelspec": kernel}
        )
        nbformat.write(source, tmp_path / "01_explore.ipynb")
        (tmp_path / "r.yaml").touch()
        call = ["run", "r.yaml", "--only", "01", "-p", f"WORK_DIR={tmp_path}"]
        return subprocess.Popen(
            [sys.executable, "-c", DRIVE, *call],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(root)},
            cwd=tmp_path,
            start_new_session=True,
            text=True,
        )

    return start


COUNT = """
import sys, time
from kaggle_tfr import parallel
print("one line")
print("to stderr", file=sys.stderr)
results = list(parallel.run(lambda _: time.sleep(0.2), range(8), label="Waiting"))
"""


def test_a_log_has_the_lines_of_the_cells(drive, tmp_path):
    """The step, what its cells print, and the progress; no noise."""
    lines = drive(COUNT).communicate(timeout=60)[0].splitlines()
    assert lines[0] == "01_explore"
    assert sorted(lines[1:3]) == ["one line", "to stderr"]
    states = [line for line in lines if line.startswith("Waiting:")]
    assert re.match(r"Waiting: 100%.*8/8", states[-1])
    assert len(states) == 2  # the first and the last
    assert lines[-2].startswith("Train: not yet")
    assert not list(tmp_path.glob("*.lock"))

    executed = nbformat.read(tmp_path / "notebooks" / "01_explore.ipynb", 4)
    texts = {output.name: output.text for output in executed.cells[-1].outputs}
    assert texts["stdout"] == "one line\n"
    assert texts["stderr"].count("Waiting:") == 1


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        (0, signal.SIGINT),
        (0.3, signal.SIGINT),
        (3, signal.SIGTERM),
    ],
)
def test_an_interrupt_ends_a_run_with_one_line(drive, tmp_path, seconds, number):
    """Exit code 130, no traceback, and none of its processes is left.

    Also while the kernel starts.
    """
    run = drive("import subprocess\nsubprocess.run(['sleep', '77.5'])")
    output = run.stdout.readline()
    time.sleep(seconds)
    started = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(number)
    output += run.communicate(timeout=30)[0]
    assert run.returncode == 130
    assert output.splitlines() == [
        "01_explore",
        "stopped; run the same command again to resume",
    ]
    ended = psutil.STATUS_ZOMBIE  # and waits for its parent to see it
    alive = [process for process in started if process.is_running()]
    assert not [process for process in alive if process.status() != ended]
    assert not [*tmp_path.glob("*.lock"), *tmp_path.glob("kernel*")]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("open('no.csv')", "FileNotFoundError: No such file or directory: 'no.csv'"),
        ("os.kill(os.getpid(), 9)", "Kernel died. Was there too little memory? Set N_"),
    ],
)
def test_a_failed_cell_is_the_headline(drive, tmp_path, code, problem):
    """Or a dead kernel, as when memory runs out: exit code 1, and the executed copy.

    What C code writes to the standard error is in a file.
    """
    run = drive(f"import os\nos.write(2, b'from C')\n{code}")
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 1
    copies = tmp_path / "notebooks"
    assert output.endswith(f"error: A cell failed; its notebook is in {copies}.\n")
    assert (copies / "01_explore.ipynb").exists()
    assert (copies / "01_explore.log").read_text() == "from C"
    [stop] = notebook.read_findings(str(tmp_path))
    assert stop.text.startswith(f"Stopped in 01: {problem}")
    for text in (output, Elements((tmp_path / "report.html").read_text()).texts):
        assert f"Train: no. {stop.text}" in text
