"""Run the notebooks one after the other with papermill."""

import io
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import pandas as pd

from kaggle_tfr import lock
from kaggle_tfr.mounts import bundled, find_input, work_dir
from kaggle_tfr.naming import near_miss
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    NOTEBOOKS,
    check_parameters,
    select_parameters,
)
from kaggle_tfr.report import write_report
from kaggle_tfr.session import TERMINAL
from kaggle_tfr.shards import is_of_plan, read_part_table
from kaggle_tfr.storage import (
    explain_os_errors,
    is_folder,
    is_remote,
    list_files,
    read_text,
)

PROJECT = Path(__file__).resolve().parent.parent
SECONDS_TO_STOP = 2  # for the workers of a killed kernel


class NotebookError(RuntimeError):
    """A cell of a notebook failed; the message shows cell, error and executed copy."""


def run_recipe(
    values: Mapping[str, Any], notebooks: Sequence[str] = DEFAULT_NOTEBOOKS
) -> str:
    """The work folder, after the notebooks ran in it: executed copies in notebooks/, report.html.

    values: parameters of any notebook; each notebook is given its own.
    Raises: ValueError: a wrong parameter or name, before any run; WorkDirBusyError: another run
    works in the folder; NotebookError: a cell failed.
    """
    folder, runs = _list_runs(values, notebooks)
    # A part needs nothing but the plan, so several machines may write one each.
    part = values.get("PART", 0) if runs.keys() <= {*NOTEBOOKS[3:6]} else 0
    held = lock.take(folder, part, holder="a run")
    try:
        copies = _copies_folder(folder)
        copies.mkdir(parents=True, exist_ok=True)
        for position, (name, own) in enumerate(runs.items(), 1):
            print(f"[{position}/{len(runs)}] {name}", flush=True)
            _run_notebook(
                bundled("notebooks") / f"{name}.ipynb", copies / f"{name}.ipynb", own
            )
        write_report({**values, "WORK_DIR": folder}, copies)
    finally:
        held.release()
    return folder


def describe_run(
    values: Mapping[str, Any], notebooks: Sequence[str] = DEFAULT_NOTEBOOKS
) -> str:
    """What `run_recipe` would do, as lines to print: each notebook with what is no default.
    Raises: ValueError: a wrong parameter or name; FileNotFoundError: INPUT_DIR is not there.
    """
    folder, runs = _list_runs(values, notebooks)
    lines, first = [f"work folder: {folder}"], runs.get(NOTEBOOKS[0], {})
    lines += (
        [f"input: {find_input(first['INPUT_DIR'])}"] if first.get("INPUT_DIR") else []
    )
    for name, own in runs.items():
        changed = {key: value for key, value in own.items() if value != DEFAULTS[key]}
        lines += [name, *(f"    {key}: {value!r}" for key, value in changed.items())]
    return "\n".join(lines)


def _list_runs(
    values: Mapping[str, Any], notebooks: Sequence[str]
) -> tuple[str, dict[str, dict]]:
    """(the work folder, each notebook's own parameters by its full name), all checked."""
    check_parameters(values)
    folder, names = work_dir(values.get("WORK_DIR", "")), find_notebooks(notebooks)
    values = {**values, "WORK_DIR": folder}
    own = {
        name: [one.name for one in select_parameters(name) if one.name in values]
        for name in names
    }
    return folder, {
        name: {key: values[key] for key in keys} for name, keys in own.items()
    }


def find_notebooks(names: Sequence[str]) -> list[str]:
    """The full names, such as "03_plan", of notebooks given by name or by number.
    Raises: ValueError: there is no such notebook; the near miss is named.
    """
    full_names = {key: name for name in NOTEBOOKS for key in (name, name.split("_")[0])}
    for name in names:
        if name not in full_names:
            there = f"{near_miss(name, NOTEBOOKS)} There are {', '.join(NOTEBOOKS)}."
            raise ValueError(f"there is no notebook '{name}'.{there}")
    return [full_names[name] for name in names]


def summarize(folder: str, out_dir: str = "") -> str:
    """Where everything lies after a run, and the accounting table, as lines to print."""
    lines = []
    parts_dir = work_dir(out_dir) if out_dir else folder
    is_there = is_folder(parts_dir)
    listings = list_files("part-*/shards.csv", parts_dir) if is_there else []
    for listing in sorted(listings, key=_part_number):
        shards = read_part_table(listing.rpartition("/")[0])
        size, count = shards["bytes"].sum() / 1e6, shards["count"].sum()
        held = f"{len(shards)} files, {count:,} records, {size:,.1f} MB"
        if not is_of_plan(listing.rpartition("/")[0], folder):
            held += "; of another plan than this run's"
        lines.append(f"shards     {listing.removesuffix('shards.csv')} ({held})")

    lines.append(f"notebooks  {_copies_folder(folder)}/")
    if not is_remote(folder):  # in a bucket, figures are in the notebooks only
        lines.append(f"figures    {folder}/figures/")
    lines.append(f"report     {folder}/report.html")

    if table := read_text(f"{folder}/accounting.csv"):
        accounting = pd.read_csv(io.StringIO(table), keep_default_na=False)
        lines += ["", accounting.to_string(index=False)]
    return "\n".join(lines)


def _part_number(listing: str) -> tuple[int, str]:
    """The key that sorts part-2/shards.csv before part-10/shards.csv."""
    found = re.search(r"part-(\d+)/shards.csv$", listing)
    return int(found[1]) if found else 0, listing


def _copies_folder(folder: str) -> Path:
    """Where the executed notebooks go: into WORK_DIR, or to this machine where that is a bucket."""
    return Path(folder if not is_remote(folder) else work_dir("")) / "notebooks"


def _run_notebook(source: Path, copy: Path, values: dict[str, Any]) -> None:
    """Run a notebook with these parameters and save the executed copy.

    What its cells print appears here at once.
    Raises: NotebookError: a cell failed, or the kernel died; KeyboardInterrupt: after
    the kernel and all its processes have ended.
    """
    import papermill

    started = time.monotonic()
    try:
        with _kernel_environment(values["WORK_DIR"]), explain_os_errors(copy):
            _wait_or_stop(partial(_execute, source, copy, values))
    except papermill.PapermillExecutionError as error:
        cell = indent(error.source.strip(), "    ")
        raise NotebookError(
            f"{source.name} stopped at cell [{error.exec_count}]:\n\n{cell}\n\n"
            f"{error.ename}: {error.evalue}\n\n"
            f"The executed copy, with the traceback: {copy}"
        ) from None
    except RuntimeError as error:  # nbclient's, when the kernel died
        raise NotebookError(
            f"{source.name}: {error}. Was there too little memory? Set N_JOBS to fewer "
            "workers, and run the same command again; it resumes where it stopped."
        ) from None
    print(f"done in {time.monotonic() - started:,.0f} s", flush=True)


def _execute(source: Path, copy: Path, values: dict[str, Any]) -> None:
    """Run a notebook in a kernel of its own by papermill."""
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
            kernel_name="python3",
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
    environment = dict(os.environ)
    python_path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        python_path
    )  # the package that runs here
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ[TERMINAL] = "1" if sys.stderr.isatty() else "0"
    os.environ[lock.INSIDE] = work_dir
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


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

    children = set(psutil.Process().children()) - processes_before
    descendants = set(psutil.Process().children(recursive=True)) - processes_before
    _kill(children)
    # Workers end with their parent, and remove their temporary files.
    _, alive = psutil.wait_procs(descendants - children, timeout=SECONDS_TO_STOP)
    _kill(alive)


def _kill(processes: Iterable[Any]) -> None:
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.kill()
