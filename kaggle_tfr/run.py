"""Run the notebooks one after the other with papermill."""

import logging
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import papermill
from jupyter_client.manager import KernelManager

from kaggle_tfr import notebook, storage
from kaggle_tfr.find import bundled, work_dir
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
from kaggle_tfr.storage import ERRNO, is_remote

KERNEL_OPTIONS = [
    # What libraries write goes to the log, without a copy among the outputs.
    "--IPKernelApp.capture_fd_output=False",
    "--HistoryManager.hist_file=:memory:",
]


def run_recipe(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Run the notebooks with these parameters; return the work folder.

    The work folder gets the executed copies (notebooks/) and report.html. Whether to
    train, the serious findings and the report's place are printed last, also after a
    cell that failed.
    values: parameters of any notebook; each notebook gets its own.
    notebooks: steps as `find_notebook` takes them, in order; by default 01 to 05.
    Raises: ValueError: a wrong parameter or work folder, before any run;
    RuntimeError: another run works in the folder, or a cell failed.
    """
    check_parameters(values)
    settings = {**DEFAULTS, **values}
    work = work_dir(settings)
    # The executed notebooks are always on this machine.
    folder = work_dir({**settings, "WORK_DIR": ""}) if is_remote(work) else work
    copies = Path(folder, "notebooks")
    names = [find_notebook(step) for step in notebooks]
    with storage.lock_work_dir(work):
        copies.mkdir(parents=True, exist_ok=True)
        values = {**values, "WORK_DIR": work}
        # The first notebook with a failed cell is the last one that is run.
        is_done = all(_run_notebook(copies / f"{name}.ipynb", values) for name in names)
        write_report(values)
        _print_summary(work, settings["OUT_DIR"])
    if not is_done:
        raise RuntimeError(f"A cell failed; its notebook is in {copies}.")
    return work


def _print_summary(work: str, out_dir: str) -> None:
    """Print whether to train, the serious findings, and where the files are.

    work: the work folder. out_dir: OUT_DIR, "" for the work folder.
    """
    findings = notebook.read_findings(work)
    remarks = [finding for finding in findings if finding.mark in "✗!"]
    print(decide(findings), *remarks, sep="\n")
    paths = list_own_parts(out_dir, work)  # absolute
    paths += [f"{work}/folds.csv", f"{work}/report.html"]
    for path in filter(storage.exists, paths):  # terminals open them on a click
        print(path if is_remote(path) else Path(path).as_uri())


def _run_notebook(copy: Path, values: Values) -> bool:
    """Run a notebook of this project; return whether no cell failed.

    What its cells print appears here at once. A failure is noted as a finding, in place
    of the notebook's other findings.
    copy: the path of the executed copy, which has the notebook's name. values: the
    parameters of all notebooks.
    """
    print(copy.stem, flush=True)
    known = {
        name: values[name] for name in select_parameters(copy.stem) if name in values
    }
    try:
        _execute(copy, known)
    except papermill.PapermillExecutionError as error:
        # Without "[Errno 2] " in the text.
        problem = f"{error.ename}: {re.sub(ERRNO, '', error.evalue)}"
    except RuntimeError as error:  # nbclient's, when the kernel died
        problem = (
            f"{error}. Was there too little memory? Set N_JOBS to fewer workers, and "
            "run the same command again; it resumes where it stopped. What libraries "
            f"wrote is in {copy.with_suffix('.log')}."
        )
    else:
        return True
    notebook.begin(copy.stem, known)
    notebook.note("✗", f"Stopped in {copy.stem[:2]}: {problem}", "stop")
    notebook.end()
    return False


def _execute(copy: Path, values: Values) -> None:
    """Run a notebook in a new kernel by papermill; end the kernel and its processes.

    The executed copy is saved, also if a cell fails. What libraries write to stderr is
    in a file beside it, which ends with .log.
    copy: the path of the executed copy, which has the notebook's name. values: the
    notebook's parameters; WORK_DIR is locked by this process.
    Raises: papermill.PapermillExecutionError: a cell failed; RuntimeError: the kernel
    died.
    """
    # Messages of papermill and asyncio repeat errors that are raised, or are about what
    # an interrupt has ended. Without any handler they would be printed.
    logging.getLogger().addHandler(logging.NullHandler())
    variables = {
        # Progress bars move if it is "1", else they are a line from time to time.
        TERMINAL: "1" if sys.stderr.isatty() else "0",
        # The WORK_DIR that is locked for the kernel, which does not lock it again.
        storage.INSIDE: values["WORK_DIR"],
        # Figures are outputs of cells.
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    with TemporaryDirectory() as folder:
        # With "ipc", sockets are files in `folder`. Another process could take a free
        # port before the kernel uses it.
        manager = KernelManager(
            client_class="jupyter_client.asynchronous.AsyncKernelClient",
            transport="ipc",
            connection_file=f"{folder}/kernel.json",
        )
        try:
            # Ctrl-C interrupts the main thread only. In another thread the start is
            # always completed, so that `finally` can end the kernel.
            with (
                open(copy.with_suffix(".log"), "w") as log,
                ThreadPoolExecutor(1) as thread,
            ):
                thread.submit(
                    manager.start_kernel,
                    env=os.environ | variables,
                    extra_arguments=KERNEL_OPTIONS,
                    stderr=log,
                ).result()
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
            if manager.has_kernel:
                manager.shutdown_kernel()
