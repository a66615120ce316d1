"""Run the notebooks one after the other with papermill."""

import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from kaggle_tfr import storage
from kaggle_tfr.mounts import copy_notebook, output_dir, work_dir
from kaggle_tfr.naming import FOLDS_FILE
from kaggle_tfr.notebook import note_stop, read_findings
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    Values,
    check_parameters,
    find_notebook,
    select_parameters,
)
from kaggle_tfr.session import TERMINAL
from kaggle_tfr.shards import list_own_parts
from kaggle_tfr.storage import exists, explain_os_errors, is_remote, join

PROJECT = Path(__file__).resolve().parent.parent
# They need only the plan, so several machines may write and read one part each.
STEPS_OF_A_PART = {"04_write", "05_read_and_visualize", "06_train"}
KERNEL_OPTIONS = [
    # What libraries write goes to the log, without a copy among the outputs.
    "--IPKernelApp.capture_fd_output=False",
    "--HistoryManager.hist_file=:memory:",
]


def run_recipe(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Run the notebooks with these parameters; return the work folder.

    It gets the executed copies (notebooks/) and report.html. The decision, what to
    look at, and where the files are is printed last, also after a cell that failed.
    values: parameters of any notebook; each notebook gets its own.
    notebooks: steps as `find_notebook` takes them.
    Raises: ValueError: a wrong parameter or work folder, before any run;
    RuntimeError: another run works in the folder, or a cell failed.
    """
    from kaggle_tfr.report import write_chapter

    check_parameters(values)
    settings = {**DEFAULTS, **values}
    work = work_dir(settings["WORK_DIR"], settings["NAME"])
    settings["WORK_DIR"] = work
    names = [find_notebook(notebook) for notebook in notebooks]
    part = settings["PART"] if STEPS_OF_A_PART.issuperset(names) else 0
    with storage.lock_work_dir(work, part):
        copies = _copies_folder(settings)
        copies.mkdir(parents=True, exist_ok=True)
        try:
            for number, name in enumerate(names, 1):
                print(f"[{number}/{len(names)}] {name}", flush=True)
                copy = copies / f"{name}.ipynb"
                known = select_parameters(name)
                changed = {key: settings[key] for key in known if key in values}
                _run_notebook(copy, {**changed, "WORK_DIR": work})
                write_chapter(copy, names)
        except RuntimeError:
            _conclude(settings)
            raise
        _conclude(settings)
    return work


def _conclude(settings: Values) -> None:
    """Write report.html and print its headline."""
    from kaggle_tfr.report import write_report

    write_report(settings, _copies_folder(settings))
    print(summarize(settings))


def summarize(settings: Values) -> str:
    """Return lines to print: the decision, what to look at, and where the files are.

    settings: all parameters of the run, with its work folder as WORK_DIR.
    """
    from kaggle_tfr.report import decide

    work = settings["WORK_DIR"]
    findings = read_findings(work)
    headline = decide(findings)
    lines = [headline]
    for finding in findings:
        if finding.mark in ("✗", "!") and finding.text != headline:
            lines.append(str(finding))
    for part in list_own_parts(output_dir(settings["OUT_DIR"] or work), work):
        lines.append(f"shards     {part}/")
    folds = join(work, FOLDS_FILE)
    if exists(folds):
        lines.append(f"folds      {folds}")
    report = f"{work}/report.html"
    if not is_remote(work):
        report = Path(report).as_uri()  # terminals open it on a click
    lines.append(f"notebooks  {_copies_folder(settings)}/")
    lines.append(f"report     {report}")
    return "\n".join(lines)


def _copies_folder(settings: Values) -> Path:
    """Return the folder of executed notebooks, which is always on this machine."""
    work = settings["WORK_DIR"]
    if is_remote(work):
        work = work_dir("", settings["NAME"])
    return Path(work, "notebooks")


def _run_notebook(copy: Path, values: Values) -> None:
    """Run a copy of the notebook of this name with these parameters, and save it.

    What its cells print appears here at once.
    Raises: RuntimeError: a cell failed, or the kernel died.
    """
    import papermill

    started = time.monotonic()
    try:
        with explain_os_errors(copy):
            _execute(copy, values)
    except papermill.PapermillExecutionError as error:
        problem = f"{error.ename}: {error.evalue}"
        place = f"{copy} stopped at cell [{error.exec_count}]"
    except RuntimeError as error:  # nbclient's, when the kernel died
        problem = (
            f"{error}. Was there too little memory? Set N_JOBS to fewer workers, and "
            "run the same command again; it resumes where it stopped."
        )
        place = f"{copy} stopped; what libraries wrote is in {copy.with_suffix('.log')}"
    else:
        print(f"done in {time.monotonic() - started:,.0f} s", flush=True)
        return
    stop = f"Stopped in {copy.stem[:2]}: {problem}"
    note_stop(copy.stem, values["WORK_DIR"], values.get("PART", 0), stop)
    raise RuntimeError(f"{place}. {problem}")


@dataclass
class _Console:
    """A stream of this process that displays nothing while it is muted."""

    stream: TextIO
    is_muted: bool = False

    def write(self, text: str) -> None:
        if not self.is_muted:
            self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


def _execute(copy: Path, values: Values) -> None:
    """Run a notebook in a new kernel by papermill; end the kernel and its processes."""
    import papermill
    from jupyter_client.manager import KernelManager

    # Their messages repeat errors that are raised, or are about what an interrupt has
    # ended; without a handler they are printed.
    for library in ("papermill", "asyncio"):
        logging.getLogger(library).addHandler(logging.NullHandler())
    source = copy_notebook(copy.stem, copy.parent)
    console = _Console(sys.stdout)

    def mute_lessons(cell: Any, cell_index: int) -> None:  # noqa: ARG001  # nbclient's
        console.is_muted = "lesson" in cell.metadata.get("tags", ())

    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        log = stack.enter_context(open(copy.with_suffix(".log"), "w"))
        # Sockets in a folder: another process may take a port before the kernel does.
        manager = KernelManager(
            client_class="jupyter_client.asynchronous.AsyncKernelClient",
            transport="ipc",
            connection_file=f"{folder}/kernel.json",
        )
        stack.callback(manager.shutdown_kernel)
        manager.start_kernel(
            env=os.environ | _kernel_variables(values["WORK_DIR"]),
            extra_arguments=KERNEL_OPTIONS,
            stderr=log,
        )
        # papermill stops the client of a kernel only if it has started the kernel.
        client = manager.client()
        stack.callback(client.stop_channels)
        manager.client = lambda: client  # type: ignore[assignment, misc]
        papermill.execute_notebook(
            _escape(source),
            _escape(copy),
            values,
            progress_bar=False,
            on_cell_start=mute_lessons,
            stdout_file=console,
            stderr_file=sys.stderr,
            coalesce_streams=True,  # a progress bar is saved as its last state
            km=manager,
        )


def _escape(path: Path) -> str:
    """Write the path for papermill, which fills in fields in braces."""
    return re.sub(r"[{}]", r"\g<0>\g<0>", str(path))


def _kernel_variables(work_dir: str) -> dict[str, str]:
    """Return the environment variables that a kernel needs."""
    return {
        # The package that runs here.
        "PYTHONPATH": f"{PROJECT}:{os.environ.get('PYTHONPATH', '')}",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        TERMINAL: "1" if sys.stderr.isatty() else "0",
        storage.INSIDE: work_dir,
    }
