"""The command line: refusals before work starts, and a failed cell shown."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

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
def recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text("NAME: mine\n")
    return str(tmp_path / "mine.yaml")


def run_main(words):
    """Return the exit code, also where argparse ends the program."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "run MINE -p WORK_DIR=OUT -p QUALTY=7",
            'QUALTY is not a parameter. Did you mean "QUALITY"?',
        ),
        ("run MINE --until plann", "'plann' is not a step. The steps are"),
        ("run MINE -p N_FOLDS", "N_FOLDS cannot be ''"),
        ("runn", "invalid choice: 'runn' (choose from"),
    ],
)
def test_a_wrong_call_ends_with_code_2(recipe, tmp_path, capsys, call, message):
    """Whatever reads the call: argparse, the recipe, or the table of parameters."""
    places = {"MINE": recipe, "OUT": str(tmp_path / "k")}
    words = [places.get(word, word) for word in call.split(" ")]
    assert run_main(words) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_failed_cell_is_shown_with_its_executed_copy(recipe, tmp_path, capsys):
    """A missing INPUT_DIR: exit code 1, the executed copy, and the error.

    The error is the headline of report.html, and the first of the last lines.
    """
    work = tmp_path / "work"
    flags = ["-p", f"WORK_DIR={work}", "-p", f"INPUT_DIR={tmp_path}/nowhere"]
    assert main(["run", recipe, "--only", "01", *flags]) == 1

    output = capsys.readouterr()
    message = f"error: A cell failed; its notebook is in {work}/notebooks.\n"
    assert output.err.endswith(message)
    assert (work / "notebooks" / "01_explore.ipynb").exists()
    [stop] = notebook.read_findings(str(work))
    assert stop.text.startswith("Stopped in 01: FileNotFoundError: ")
    assert f"Train: no. {stop.text}" in output.out
    assert stop.text in Elements((work / "report.html").read_text()).texts


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("run FOLDER", 1, "'FOLDER' has no image"),
        (
            "run FOLDER/no.yaml",
            2,
            "The recipe 'FOLDER/no.yaml' cannot be used: No such file",
        ),
        ("notebooks FOLDER", 1, "error: File exists: 'FOLDER'"),
        ("push FOLDER/nowhere", 1, "'FOLDER/nowhere' has no kernel. Make one"),
    ],
)
def test_a_wrong_place_is_named(tmp_path, capsys, call, code, message):
    """A folder without images, and files that are missing."""
    assert run_main(call.replace("FOLDER", str(tmp_path)).split()) == code
    assert message.replace("FOLDER", str(tmp_path)) in capsys.readouterr().err


@pytest.fixture
def runs(monkeypatch):
    """The arguments of each run; no notebook is run."""
    calls = []
    monkeypatch.setattr(run, "run_recipe", lambda *call: calls.append(call))
    return calls


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Class folders in the current folder."""
    monkeypatch.chdir(tmp_path)
    return put(tmp_path / "photos", ["rose/1.jpg", "tulip/1.jpg"])


def test_a_folder_is_run_by_a_recipe_that_is_made_once(photos, runs, capsys):
    """NAME.yaml is written, then used, with the changes that the user made in it."""
    assert main(["run", "photos/", "-p", "QUALITY=70", "--until", "plan"]) == 0
    values, notebooks = runs.pop()
    assert (values["INPUT_DIR"], values["QUALITY"]) == (str(photos), 70)
    assert notebooks == list(NOTEBOOKS[:3])

    (photos.parent / "photos.yaml").write_text(f"INPUT_DIR: {photos}\nSEED: 3")
    assert main(["run", "photos"]) == 0
    printed = capsys.readouterr().out
    assert "Written: photos.yaml." in printed
    assert "photos.yaml exists and is used" in printed
    assert runs.pop()[0]["SEED"] == 3


def test_the_folder_of_the_call_is_read(photos, runs):
    """Another folder of this name has the same recipe."""
    shutil.copytree(photos, photos.parent / "more" / "photos")
    assert main(["run", "photos"]) == 0

    assert main(["run", "more/photos"]) == 0

    assert runs[1][0]["INPUT_DIR"] == f"{photos.parent}/more/photos"


def test_the_account_closes_or_says_so():
    """Counts that do not add up to the total are an error with every number in it."""
    table = notebook.account({"written": 3, "rejected": 1}, 4)
    assert table["images"].to_dict() == {"written": 3, "rejected": 1, "total": 4}
    message = "'written': 3, 'rejected': 1}, but 5 came in"
    with pytest.raises(RuntimeError, match=message):
        notebook.account({"written": 3, "rejected": 1}, 5)


NOTED = {"a": ("01_explore", 0), "b": ("03_plan", 0)}
NOTED |= {"c": ("04_write", 1), "d": ("04_write", 2), "e": ("06_train", 0)}


@pytest.mark.parametrize(
    ("step", "part", "kept"),
    [("02_deduplicate", 0, "a"), ("04_write", 2, "abce"), ("04_write", 0, "abe")],
)
def test_a_step_that_starts_again_ends_its_findings(tmp_path, step, part, kept):
    """So do 01 to 03 those of later steps, and a part of 04 only those of the part."""
    work = str(tmp_path)
    for text, (noting_step, noting_part) in NOTED.items():
        notebook.begin(noting_step, {"WORK_DIR": work, "PART": noting_part})
        notebook.note("·", text, "subject")

    notebook.begin(step, {"WORK_DIR": work, "PART": part})

    notebook.end()
    findings = notebook.read_findings(work)
    assert "".join(finding.text for finding in findings) == kept


def test_findings_of_an_earlier_version_are_read(tmp_path):
    """They have a column more."""
    row = {"step": "04_write", "part": 2, "subject": "a", "mark": "·", "text": "b"}
    (tmp_path / "findings.json").write_text(json.dumps([{**row, "advice": ""}]))
    [finding] = notebook.read_findings(str(tmp_path))
    assert str(finding) == "· b"


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

    def start(cell, terminal=None):
        cells = [new_code_cell("WORK_DIR = ''", metadata={"tags": ["parameters"]})]
        kernel = {"name": "python3", "display_name": "", "language": "python"}
        source = new_notebook(
            cells=[*cells, new_code_cell(cell)], metadata={"kernelspec": kernel}
        )
        nbformat.write(source, put(tmp_path, [], {"r.yaml": ""}) / "01_explore.ipynb")
        call = ["run", "r.yaml", "--only", "01", "-p", f"WORK_DIR={tmp_path}"]
        return subprocess.Popen(
            [sys.executable, "-c", DRIVE, *call],
            stdout=terminal or subprocess.PIPE,
            stderr=terminal or subprocess.STDOUT,
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
results = list(parallel.run(lambda _: time.sleep(0.4), range(8), label="Waiting"))
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


def test_a_terminal_shows_progress_as_it_is_made(drive):
    """The bar is drawn again in its line."""
    ours, theirs = pty.openpty()
    run = drive(COUNT.replace("0.4", "1.2"), terminal=theirs)
    os.close(theirs)
    text = b""
    with suppress(OSError):  # the terminal is closed
        while data := os.read(ours, 1000):
            text += data
    assert run.wait(10) == 0
    assert b"one line\r\n" in text
    assert len(re.findall(rb"\rWaiting: +\d+%", text)) > 3
    assert b" 8/8 " in text


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        (0, signal.SIGINT),
        (0.1, signal.SIGINT),
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


def test_a_kernel_that_dies_is_an_error(drive, tmp_path):
    """As when memory runs out: exit code 1, and what to do.

    What C code writes to the standard error is in a file.
    """
    code = "import os, signal\nos.write(2, b'out of memory')\n"
    run = drive(code + "os.kill(os.getpid(), signal.SIGKILL)")
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 1
    log = tmp_path / "notebooks" / "01_explore.log"
    assert log.read_text() == "out of memory"
    assert "Stopped in 01: Kernel died" in output
    assert "error: " in output
    assert "Was there too little memory? Set N_JOBS to fewer workers" in output
