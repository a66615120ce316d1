"""Run the notebooks one after the other with papermill."""

import io
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import IO, Any

import pandas as pd

from kaggle_tfr import lock
from kaggle_tfr.mounts import bundled, find_input, work_dir
from kaggle_tfr.naming import near_miss
from kaggle_tfr.parameters import (
    DEFAULTS,
    NOTEBOOKS,
    check_parameters,
    select_parameters,
)
from kaggle_tfr.report import write_report
from kaggle_tfr.session import stderr_to
from kaggle_tfr.shards import is_of_plan, read_part_table
from kaggle_tfr.storage import (
    explain_os_errors,
    is_folder,
    is_remote,
    list_files,
    read_text,
)

PROJECT = Path(__file__).resolve().parent.parent
SECONDS_TO_STOP = 5  # for an interrupted cell, before its kernel is killed
MAX_STARTS, PORT_TAKEN = (
    3,
    "Address already in use",
)  # of a kernel; what it prints before it dies
# 06_train is for interactive use, or by its name: a run does not include it.
DEFAULT_NOTEBOOKS = NOTEBOOKS[:5]


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


class _Screen:
    """What a notebook prints, as papermill hands it on; a terminal's last line tells the time."""

    def __init__(self) -> None:
        self.live, self.began = sys.stdout.isatty(), time.monotonic()
        self.rest = self.count = ""  # of a line; what is counted at the moment

    def write(self, text: str) -> None:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in filter(str.strip, lines):
            self.count = line if self.live and line.endswith("s to go)") else ""
            if not self.count:
                self.say(f"  {line}\n")

    def flush(self) -> None:
        """Nothing: whole lines are printed as they come."""

    def say(self, text: str) -> None:
        print("\r\x1b[K" * self.live + text, end="", flush=True)

    def tick(self) -> None:
        if self.live:
            line = f"{time.monotonic() - self.began:,.0f} s  {self.count}"
            self.say(line[: shutil.get_terminal_size().columns - 1])


def _run_notebook(source: Path, copy: Path, values: dict[str, Any]) -> None:
    """Raises: NotebookError: a cell failed, or its kernel died; KeyboardInterrupt: none is left."""
    import papermill

    from kaggle_tfr.parallel import LINES

    screen, before = _Screen(), dict(os.environ)
    # What a kernel inherits: the package that runs here, and figures shown in the notebook.
    paths = filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ[LINES] = "1" if screen.live else "30"
    os.environ[lock.INSIDE] = values["WORK_DIR"]
    options = {"kernel_name": "python3", "progress_bar": False, "stdout_file": screen}
    # Papermill fills in the fields of a path, which are a folder's own braces here.
    places = [re.sub(r"[{}]", r"\g<0>\g<0>", str(path)) for path in (source, copy)]
    run = partial(papermill.execute_notebook, *places, values, **options)
    with tempfile.TemporaryFile() as noise:
        try:
            with stderr_to(noise), explain_os_errors(copy):
                _start_and_watch(run, screen, copy, noise)
        except papermill.PapermillExecutionError as error:
            cell = indent(error.source.strip(), "    ")
            raise NotebookError(
                f"{source.name} stopped at cell [{error.exec_count}]:\n\n{cell}\n\n"
                f"{error.ename}: {error.evalue}\n\nThe executed copy, with the traceback: {copy}"
            ) from None
        except RuntimeError as error:  # nbclient's
            noise.seek(0)
            said = noise.read()[-1000:].decode(errors="replace")
            mend = "Was there too little memory? Set N_JOBS to fewer workers."
            if PORT_TAKEN in said:
                mend = "Other programs took the ports of its kernel. Run the same command again."
            what = f"{source.name}: {error}. {mend} It goes on where it stopped."
            raise NotebookError(f"{what}\n{said}") from None
        finally:
            os.environ.clear()
            os.environ.update(before)
    print(f"  done in {time.monotonic() - screen.began:,.0f} s", flush=True)


def _start_and_watch(
    run: Callable[[], Any], screen: _Screen, copy: Path, noise: IO[bytes]
) -> None:
    """As `_watch`; a kernel that dies at its start of a port that was taken is started again.

    copy: the executed notebook. noise: the file that stderr goes to.
    """
    for start in range(1, MAX_STARTS + 1):
        try:
            _watch(run, screen)
        except RuntimeError:
            noise.seek(0)
            is_port_taken = PORT_TAKEN.encode() in noise.read()
            if start == MAX_STARTS or not is_port_taken or _has_begun(copy):
                raise
            noise.seek(0)
            noise.truncate()
            screen.say(
                "  another program took a port of the kernel, which is started again\n"
            )
        else:
            return


def _has_begun(copy: Path) -> bool:
    """Whether a cell of the executed notebook has run."""
    import nbformat

    cells = nbformat.read(copy, 4).cells
    return any(cell.metadata.get("papermill", {}).get("start_time") for cell in cells)


def _watch(run: Callable[[], Any], screen: _Screen) -> None:
    """Calls it, and ticks; an interrupt ends the kernel as Jupyter does, at last by killing it."""
    import psutil

    others = psutil.Process().children()  # which are not the kernel
    # In a thread: an interrupt within papermill's event loop would leave the kernel behind.
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(run)
        try:
            while not wait([work], timeout=0.2).done:
                screen.tick()
        except KeyboardInterrupt:
            for second in range(100):
                tree = second > SECONDS_TO_STOP  # with its own processes
                for process in set(
                    psutil.Process().children(recursive=tree)
                ).difference(others):
                    with suppress(psutil.Error):
                        process.send_signal(signal.SIGKILL if tree else signal.SIGINT)
                if wait([work], timeout=1).done:
                    break
            raise
        finally:
            screen.say("")
    work.result()
