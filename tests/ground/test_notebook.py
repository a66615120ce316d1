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

from kaggle_tfr import driver, notebook
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import NOTEBOOKS


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text("NAME: mine\n")
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("run smaple", 2, "there is no recipe 'smaple'. Bundled recipes: cassava, "),
        ("run MINE -p WORK_DIR FOLDER/k -p QUALTY=7", 2, 'Did you mean "QUALITY"?'),
        ("run MINE --until plann", 2, "'plann' is not a step. The steps are"),
        ("run MINE --from 04 --until 03", 2, "no step is left to run"),
        ("run MINE --only 02 --from 03", 2, "leave out --from and"),
        ("run MINE -p N_FOLDS", 2, "-p N_FOLDS: it takes a name and a value"),
        ("run MINE -p WORK_DIR a\0b", 2, "WORK_DIR is 'a\\x00b'"),
        ("run MINE -p INPUT_DIR \udcff", 2, "bytes that are not UTF-8"),
        ("kernel MINE --out FOLDER/k --parts 0", 2, "'0' is not a whole number of 1"),
        ("publish gs://b/x", 2, "'gs://b/x' is not a path on this machine"),
        ("runn", 2, "invalid choice: 'runn' (choose from"),
        ("run FOLDER", 1, "'FOLDER' has no image"),
        ("kernel FOLDER --out FOLDER/k", 2, "there is no recipe 'FOLDER'."),
        ("notebooks FOLDER", 1, "File exists: 'FOLDER'. Name a new folder"),
        ("push FOLDER/nowhere", 1, "'FOLDER/nowhere' has no kernel. Make one"),
    ],
)
@pytest.mark.usefixtures("recipe")
def test_a_wrong_call_is_named(tmp_path, capsys, call, code, message):
    """Whatever reads it: argparse, the recipe, the parameters, or the file system."""
    call = call.replace("MINE", "FOLDER/mine.yaml")
    assert main(call.replace("FOLDER", str(tmp_path)).split(" ")) == code
    error = capsys.readouterr().err
    assert message.replace("FOLDER", str(tmp_path)) in error
    assert "[Errno" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_parameter_is_given_in_two_words_or_in_one(recipe, runs):
    """`-p NAME VALUE` or `-p NAME=VALUE`; values may look like options."""
    flags = "-p N_FOLDS 3 -p ID_COLUMN -1 -p NAME=-x=y -p SHARD_MB=7"
    assert main(["run", *flags.split(), recipe]) == 0
    [(values, _)] = runs
    assert values == {"N_FOLDS": 3, "ID_COLUMN": "-1", "NAME": "-x=y", "SHARD_MB": 7}


def test_a_failed_cell_is_shown_with_its_executed_copy(recipe, tmp_path, capsys):
    """A missing INPUT_DIR: exit code 1, the error, the cell, and the executed copy.

    The error is the headline of report.html, and the first of the last lines.
    """
    work = tmp_path / "work"
    flags = ["-p", "WORK_DIR", str(work), "-p", "INPUT_DIR", str(tmp_path / "nowhere")]
    assert main(["run", recipe, "--only", "01", *flags]) == 1

    output = capsys.readouterr()
    executed = work / "notebooks" / "01_explore.ipynb"
    for text in ("stopped at cell", "explore.run(globals())", str(executed)):
        assert text in output.err
    [stop] = notebook.read_findings(str(work))
    assert stop.text.startswith("Stopped in 01: FileNotFoundError: ")
    assert stop.text in output.out
    assert Elements((work / "report.html").read_text()).texts.count(stop.text) == 2


def test_a_full_disk_is_named_with_the_file(tmp_path, capsys):
    """Exit code 1, the file, and what to do."""
    copy = tmp_path / "a {field} in papermill's eyes" / "notebooks" / "01_explore.ipynb"
    copy.parent.mkdir(parents=True)
    copy.symlink_to("/dev/full")
    work = ["-p", "WORK_DIR", str(copy.parent.parent)]

    assert main(["run", "sample", "--only", "01", *work]) == 1

    error = capsys.readouterr().err
    assert error.startswith(f"error: No space left on device: '{copy}'. Free disk")


@pytest.fixture
def runs(monkeypatch):
    """The arguments of each run; no notebook is run."""
    calls = []
    monkeypatch.setattr(driver, "summarize", lambda *_: "")
    monkeypatch.setattr(driver, "run_recipe", lambda *call: calls.append(call))
    return calls


def test_training_runs_by_its_name_only(recipe, runs):
    """A whole run leaves the training notebook out; `--only 06` is for it alone."""
    assert main(["run", recipe]) == main(["run", recipe, "--only", "06"]) == 0
    assert [notebooks for _, notebooks in runs] == [list(NOTEBOOKS[:5]), ["06_train"]]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Class folders in the current folder."""
    monkeypatch.chdir(tmp_path)
    return put(tmp_path / "photos", ["rose/1.jpg", "tulip/1.jpg"])


def test_a_folder_is_run_by_a_recipe_that_is_made_once(photos, runs, capsys):
    """NAME.yaml is written, then used, with the user's changes, for that folder."""
    assert main(["run", "photos/", "-p", "QUALITY=70", "--until", "plan"]) == 0
    assert "Written: photos.yaml." in capsys.readouterr().out
    values, notebooks = runs.pop()
    assert values["INPUT_DIR"] == str(photos)
    assert (values["LABEL_COLUMN"], values["QUALITY"]) == ("folder", 70)
    assert notebooks == list(NOTEBOOKS[:3])

    with open("photos.yaml", "a") as recipe:
        recipe.write("SEED: 3\n")
    assert main(["run", "photos"]) == 0
    [(values, _)] = runs
    assert values["SEED"] == 3

    shutil.copytree(photos, "more/photos")
    assert main(["run", "more/photos"]) == 2
    error = capsys.readouterr().err
    assert f"photos.yaml exists, but its INPUT_DIR is '{photos}'" in error


def test_two_recipes_never_meet_in_a_work_folder(photos, capsys):
    """Another INPUT_DIR under the same NAME stops."""
    metadata = {"parameters": {"INPUT_DIR": "photos"}, "end_time": "2026"}
    executed = new_notebook(metadata={"papermill": metadata | {"exception": None}})
    put("work/sample", [], {"images.parquet": "", "notebooks/.keep": ""})
    nbformat.write(executed, "work/sample/notebooks/01_explore.ipynb")
    put(".", [], {"rose.yaml": "INPUT_DIR: photos/rose\n"})

    assert main(["run", "rose.yaml"]) == 1

    error = capsys.readouterr().err
    assert "contains a run of 'photos', but INPUT_DIR is now 'photos/rose'" in error
    driver._list_runs({"INPUT_DIR": f"{photos}/"}, ["01"])  # the same input


def test_parts_of_the_plan_are_listed_by_their_numbers(tmp_path, monkeypatch):
    """OUT_DIR may begin with "~"; part-10 comes after part-2."""
    monkeypatch.setenv("HOME", str(tmp_path))
    fingerprints = {".": "a1", "part-1": "c3", "part-2": "a1", "part-10": "a1"}
    for place, fingerprint in fingerprints.items():
        plan = json.dumps({"fingerprint": fingerprint})
        put(tmp_path / "out" / place, [], {"plan.json": plan, "shards.csv": ""})

    listed = driver.summarize({"WORK_DIR": f"{tmp_path}/out", "OUT_DIR": "~/out"})

    assert re.findall("shards .*/out/part-(.*)/", listed) == ["2", "10"]


def test_the_account_closes_or_says_so():
    """Counts that do not add up to the total are an error with every number in it."""
    counts = {"written": 3, "rejected": 1}
    table = notebook.account(counts, 4)
    assert table["images"].to_dict() == {**counts, "total": 4}
    with pytest.raises(RuntimeError, match=f"{counts} are 4, but 5 came in"):
        notebook.account(counts, 5)


NOTED = ["01_explore 0", "03_plan 0", "04_write 1", "04_write 2", "06_train 0"]


@pytest.mark.parametrize(
    ("step", "part", "kept"),
    [
        ("02_deduplicate", 0, NOTED[:1]),
        ("04_write", 2, [*NOTED[:3], NOTED[4]]),
        ("04_write", 0, [*NOTED[:2], NOTED[4]]),
    ],
)
def test_a_step_that_starts_again_ends_its_findings(tmp_path, step, part, kept):
    """So do 01 to 03 those of later steps, and a part of 04 only those of the part."""
    work = str(tmp_path)
    for text in NOTED:
        noting_step, noting_part = text.split()
        notebook.begin(noting_step, {"WORK_DIR": work, "PART": int(noting_part)})
        notebook.note("·", text, "subject")

    notebook.begin(step, {"WORK_DIR": work, "PART": part})

    assert [finding.text for finding in notebook.read_findings(work)] == kept


def test_two_processes_that_write_parts_lose_no_finding(tmp_path):
    """Nor if the other one has saved the file without what was noted meanwhile."""
    work = str(tmp_path)
    notebook.begin("04_write", {"WORK_DIR": work, "PART": 1})
    notebook.note("·", "a", "parts")
    notebook._save([notebook.Finding("04_write", 2, "parts", "·", "b")], work)

    notebook.note("·", "c", "license")

    texts = {finding.text for finding in notebook.read_findings(work)}
    assert texts == {"a", "b", "c"}


# Processes that a shell starts in the background ignore SIGINT.
DRIVE = """
import signal, sys
from pathlib import Path
from kaggle_tfr import __main__ as program, mounts
signal.signal(signal.SIGINT, signal.default_int_handler)
mounts.bundled = lambda _: Path.cwd()
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
import os, sys, time
from kaggle_tfr import parallel
print("one line")
os.write(2, b"I0000 00:00:1795496096.287262 21329 port.cc:153] oneDNN\\nof C code\\n")
results = list(parallel.run(lambda _: time.sleep(0.4), range(8), label="Waiting"))
"""


def test_a_log_has_the_lines_of_the_cells(drive, tmp_path):
    """The step, what cells and libraries write, the progress, and the time."""
    lines = drive(COUNT).communicate(timeout=60)[0].splitlines()
    assert lines[0] == "[1/1] 01_explore"
    assert {"one line", "of C code"} < set(lines)
    assert "oneDNN" not in "".join(lines)
    states = [line for line in lines if line.startswith("Waiting:")]
    assert re.match(r"Waiting: 100%.*8/8", states[-1])
    assert len(states) == 2  # the first and the last
    assert re.fullmatch(r"done in \d+ s", lines[-4])
    assert lines[-3].startswith("Train: not yet")
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


@pytest.mark.parametrize("seconds", [0, 3])
def test_an_interrupt_ends_a_run_with_one_line(drive, tmp_path, seconds):
    """Exit code 130, no traceback, and none of its processes is left."""
    cell = "import subprocess\nsubprocess.run(['sleep', '77.5'])"
    run = drive(cell)
    output = run.stdout.readline()
    time.sleep(seconds)
    started = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGINT)
    output += run.communicate(timeout=30)[0]
    assert run.returncode == 130
    assert output.splitlines() == [
        "[1/1] 01_explore",
        "stopped; run the same command again to resume",
    ]
    ended = psutil.STATUS_ZOMBIE  # and waits for its parent to see it
    alive = [process for process in started if process.is_running()]
    assert not [process for process in alive if process.status() != ended]
    assert not list(tmp_path.glob("*.lock"))


def test_a_kernel_that_dies_is_an_error(drive):
    """As when memory runs out: exit code 1, and what to do."""
    write = "os.write(2, b'out of memory\\n')"
    wait = "time.sleep(1)"  # until it is sent and repeated
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    run = drive(f"import os, signal, time\n{write}\n{wait}\n{kill}")
    output = run.communicate(timeout=60)[0]
    assert run.returncode == 1
    assert "out of memory" in output
    assert "Stopped in 01: Kernel died" in output
    assert (
        "error: 01_explore.ipynb: Kernel died. Was there too little memory?" in output
    )
