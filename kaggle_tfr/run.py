"""Run the notebooks one after the other with papermill."""

import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import papermill
from jupyter_client.manager import KernelManager

from kaggle_tfr import storage
from kaggle_tfr.find import bundled, output_dir, work_dir
from kaggle_tfr.notebook import note_stop, read_findings
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    Values,
    check_parameters,
    find_notebook,
    select_parameters,
)
from kaggle_tfr.report import decide, write_report
from kaggle_tfr.session import TERMINAL
from kaggle_tfr.shards import list_own_parts
from kaggle_tfr.storage import explain_os_errors, is_remote

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
    check_parameters(values)
    settings = {**DEFAULTS, **values}
    work = work_dir(settings["WORK_DIR"], settings["NAME"])
    settings["WORK_DIR"] = work
    # The executed notebooks are always on this machine.
    copies = Path(work_dir("", settings["NAME"]) if is_remote(work) else work)
    copies = copies / "notebooks"
    names = [find_notebook(notebook) for notebook in notebooks]
    with storage.lock_work_dir(work):
        problem = _run_notebooks(names, copies, {**values, "WORK_DIR": work})
        write_report(settings)
        print(summarize(settings))
    if problem:
        raise RuntimeError(problem)
    return work


def _run_notebooks(names: Sequence[str], copies: Path, values: Values) -> str:
    """Run the notebooks until one fails; return its problem, "" for none."""
    copies.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        copy = copies / f"{name}.ipynb"
        known = select_parameters(name)
        changed = {key: value for key, value in values.items() if key in known}
        if problem := _run_notebook(copy, changed):
            return problem
    return ""


def summarize(settings: Values) -> str:
    """Return lines to print: the decision, what to look at, and where the files are.

    settings: all parameters of the run, with its work folder as WORK_DIR.
    """
    work = settings["WORK_DIR"]
    findings = read_findings(work)
    headline = decide(findings)
    lines = [headline]
    for finding in findings:
        if finding.mark in ("✗", "!") and finding.text != headline:
            lines.append(str(finding))
    for part in list_own_parts(output_dir(settings["OUT_DIR"] or work), work):
        lines.append(f"shards  {part}/")
    return "\n".join([*lines, f"report  {work}/report.html"])


def _run_notebook(copy: Path, values: Values) -> str:
    """Run the notebook of this name, and save it; return the problem, "" for none.

    What its cells print appears here at once.
    """
    started = time.monotonic()
    try:
        with explain_os_errors(copy):
            _execute(copy, values)
    except papermill.PapermillExecutionError as error:
        problem = f"{error.ename}: {error.evalue}"
    except RuntimeError as error:  # nbclient's, when the kernel died
        problem = (
            f"{error}. Was there too little memory? Set N_JOBS to fewer workers, and "
            "run the same command again; it resumes where it stopped. What libraries "
            f"wrote is in {copy.with_suffix('.log')}."
        )
    else:
        print(f"done in {time.monotonic() - started:,.0f} s", flush=True)
        return ""
    stop = f"Stopped in {copy.stem[:2]}: {problem}"
    note_stop(copy.stem, values["WORK_DIR"], values.get("PART", 0), stop)
    return f"{copy} has a cell that failed. {problem}"


def _execute(copy: Path, values: Values) -> None:
    """Run a notebook in a new kernel by papermill; end the kernel and its processes."""
    # Their messages repeat errors that are raised, or are about what an interrupt has
    # ended; without a handler they are printed.
    for library in ("papermill", "asyncio"):
        logging.getLogger(library).addHandler(logging.NullHandler())
    # Sockets are files: another process may take a port before the kernel does.
    manager = KernelManager(
        client_class="jupyter_client.asynchronous.AsyncKernelClient", transport="ipc"
    )
    variables = {
        TERMINAL: "1" if sys.stderr.isatty() else "0",
        storage.INSIDE: values["WORK_DIR"],
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    try:
        with open(copy.with_suffix(".log"), "w") as log:
            manager.start_kernel(
                env=os.environ | variables, extra_arguments=KERNEL_OPTIONS, stderr=log
            )
        papermill.execute_notebook(
            bundled("notebooks") / copy.name,
            copy,
            values,
            progress_bar=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
            coalesce_streams=True,  # a progress bar is saved as its last state
            km=manager,
        )
    finally:
        manager.shutdown_kernel()
