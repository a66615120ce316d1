"""Run the notebooks one after the other with papermill."""

import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

from kaggle_tfr import lock
from kaggle_tfr.mounts import bundled, find_input, work_dir
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    NOTEBOOK_NAMES,
    Values,
    check_parameters,
    select_parameters,
)
from kaggle_tfr.report import read_accounting, write_report
from kaggle_tfr.session import TERMINAL
from kaggle_tfr.shards import is_of_plan, read_part_table
from kaggle_tfr.storage import explain_os_errors, is_folder, is_remote, list_files

PROJECT = Path(__file__).resolve().parent.parent
SECONDS_TO_STOP = 2  # for the workers of a killed kernel


def run_recipe(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Run the notebooks with these parameters; return the work folder.

    It gets the executed copies (notebooks/) and report.html. values: parameters of any
    notebook; each notebook gets its own. notebooks: keys of NOTEBOOK_NAMES.
    Raises: ValueError: a wrong parameter, before any run; WorkDirBusyError: another run
    works in the folder; RuntimeError: a cell failed.
    """
    work, runs = _list_runs(values, notebooks)
    lock_of_run = lock.take(work, _choose_part(values, runs), holder="a run")
    try:
        copies = _copies_folder(work)
        copies.mkdir(parents=True, exist_ok=True)
        for number, (name, parameters) in enumerate(runs.items(), 1):
            print(f"[{number}/{len(runs)}] {name}", flush=True)
            source = bundled("notebooks") / f"{name}.ipynb"
            _run_notebook(source, copies / source.name, parameters)
        write_report({**values, "WORK_DIR": work}, copies)
    finally:
        lock_of_run.release()
    return work


def _choose_part(values: Values, notebooks: Iterable[str]) -> int:
    """Return the part that a run works in, 0 if it needs the whole work folder."""
    # Writing a part needs only the plan, so several machines may write one each.
    needs_plan_only = {"04_write", "05_read_and_visualize", "06_train"}
    return values.get("PART", 0) if needs_plan_only.issuperset(notebooks) else 0


def describe_run(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Return, as lines to print, what `run_recipe` would do with these arguments.

    Raises: ValueError: a wrong parameter; FileNotFoundError: INPUT_DIR.
    """
    work, runs = _list_runs(values, notebooks)
    lines = [f"work folder: {work}"]
    for name, parameters in runs.items():
        if parameters.get("INPUT_DIR"):
            lines.append(f"input: {find_input(parameters['INPUT_DIR'])}")
        lines.append(name)
        for parameter, value in parameters.items():
            lines.append(f"    {parameter}: {value!r}")
    return "\n".join(lines)


def _list_runs(
    values: Values, notebooks: Sequence[str]
) -> tuple[str, dict[str, Values]]:
    """Check everything; return the work folder and each notebook's parameters."""
    check_parameters(values)
    work = work_dir(values.get("WORK_DIR", ""))
    values = {**values, "WORK_DIR": work}
    runs: dict[str, Values] = {}
    for notebook in notebooks:
        name = NOTEBOOK_NAMES[notebook]
        runs[name] = {
            parameter.name: values[parameter.name]
            for parameter in select_parameters(name)
            if parameter.name in values
        }
    return work, runs


def summarize(work: str, out_dir: str = "") -> str:
    """Return, as lines to print, where the files of a run are, and the accounting."""
    listings = _list_parts(work_dir(out_dir or work))
    lines = [_describe_part(path, work) for path in listings]
    lines.append(f"notebooks  {_copies_folder(work)}/")
    if not is_remote(work):  # in a bucket, figures are in the notebooks only
        lines.append(f"figures    {work}/figures/")
    lines.append(f"report     {work}/report.html")
    accounting = read_accounting(work)
    if len(accounting):
        lines += ["", accounting.to_string(index=False)]
    return "\n".join(lines)


def _list_parts(parts_dir: str) -> list[str]:
    """Return the path of each part's shards.csv, in the order of the parts."""
    if not is_folder(parts_dir):
        return []
    listings = list_files("part-*/shards.csv", parts_dir)
    # By length first, so that part-10 follows part-2.
    return sorted(listings, key=lambda path: (len(path), path))


def _describe_part(listing: str, work: str) -> str:
    """Return a line about the part that this shards.csv belongs to."""
    part = listing.removesuffix("/shards.csv")
    shards = read_part_table(part)
    note = "" if is_of_plan(part, work) else "; of another plan than this run's"
    return (
        f"shards     {part}/ ({len(shards)} files, {shards['count'].sum():,} records, "
        f"{shards['bytes'].sum() / 1e6:,.1f} MB{note})"
    )


def _copies_folder(work: str) -> Path:
    """Return the folder of executed notebooks, which is always on this machine."""
    return Path(work_dir("") if is_remote(work) else work) / "notebooks"


def _run_notebook(source: Path, copy: Path, values: Values) -> None:
    """Run a notebook with these parameters and save the executed copy.

    What its cells print appears here at once.
    Raises: RuntimeError: a cell failed, or the kernel died; KeyboardInterrupt: after
    the kernel and all its processes have ended.
    """
    import papermill

    started = time.monotonic()
    try:
        with _kernel_environment(values["WORK_DIR"]), explain_os_errors(copy):
            _wait_or_stop(partial(_execute, source, copy, values))
    except papermill.PapermillExecutionError as error:
        cell = indent(error.source.strip(), "    ")
        raise RuntimeError(
            f"{source.name} stopped at cell [{error.exec_count}]:\n\n{cell}\n\n"
            f"{error.ename}: {error.evalue}\n\n"
            f"The executed copy, with the traceback: {copy}"
        ) from None
    except RuntimeError as error:  # nbclient's, when the kernel died
        raise RuntimeError(
            f"{source.name}: {error}. Was there too little memory? Set N_JOBS to fewer "
            "workers, and run the same command again; it resumes where it stopped."
        ) from None
    print(f"done in {time.monotonic() - started:,.0f} s", flush=True)


def _execute(source: Path, copy: Path, values: Values) -> None:
    """Run a notebook in a new kernel by papermill."""
    import papermill
    from traitlets.config import Config

    # Its messages repeat errors that it raises; without a handler they are printed.
    logging.getLogger("papermill").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        # Sockets in a folder: another process may take a port before the kernel does.
        sockets = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        papermill.execute_notebook(
            _escape(source),
            _escape(copy),
            values,
            progress_bar=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
            coalesce_streams=True,  # a progress bar is saved as its last state
            config=Config({"KernelManager": sockets}),
        )


def _escape(path: Path) -> str:
    """Write the path for papermill, which fills in fields in braces."""
    return re.sub(r"[{}]", r"\g<0>\g<0>", str(path))


@contextmanager
def _kernel_environment(work_dir: str) -> Iterator[None]:
    """Set what a kernel inherits from this process, until the block ends."""
    before = dict(os.environ)
    # The package that runs here.
    search_path = f"{PROJECT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    os.environ.update(
        {
            "PYTHONPATH": search_path.rstrip(os.pathsep),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            TERMINAL: "1" if sys.stderr.isatty() else "0",
            lock.INSIDE: work_dir,
        }
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _wait_or_stop(run: Callable[[], None]) -> None:
    """Call `run`; after an interrupt, end the processes that it has started."""
    import psutil

    processes_before = set(psutil.Process().children())
    # In a thread: an interrupt in papermill's event loop would leave the kernel behind.
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        try:
            future.result()
        except KeyboardInterrupt:
            while not future.done():  # the kernel may only now have started
                _kill_children(processes_before)
                wait([future], timeout=1)
            raise


def _kill_children(processes_before: set[Any]) -> None:
    """Kill the child processes that have started since then, and their children."""
    import psutil

    for child in set(psutil.Process().children()) - processes_before:
        with suppress(psutil.NoSuchProcess):
            workers = child.children(recursive=True)
            child.kill()
            # Workers end with their parent, and remove their temporary files.
            _, alive = psutil.wait_procs(workers, timeout=SECONDS_TO_STOP)
            for worker in alive:
                worker.kill()
