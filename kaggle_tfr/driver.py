"""Run the notebooks one after the other with papermill."""

import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from threading import Thread
from typing import Any, TextIO

from kaggle_tfr import lock
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
from kaggle_tfr.storage import (
    exists,
    explain_os_errors,
    is_remote,
    join,
    list_files,
    real_path,
    write_atomically,
)

PROJECT = Path(__file__).resolve().parent.parent
SECONDS_TO_STOP = 2  # for the workers of a killed kernel
# TensorFlow prints the first two lines when it is imported, whatever its settings are,
# and a kernel the third, when Jupyter interrupts it in order to end it. They begin a
# line, or follow a progress bar that is still at 0 %, which ends in "?it/s]".
NOISE = re.compile(
    r"^(?:.*\?it/s\])?"
    r"(?:WARNING: All log messages before absl::InitializeLog|[EIW]0000 \d\d:\d\d:\d"
    r"|\[IPKernelApp\] ERROR \| KeyboardInterrupt caught in kernel).*\n?",
    re.MULTILINE,
)


def run_recipe(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Run the notebooks with these parameters; return the work folder.

    It gets the executed copies (notebooks/) and report.html.
    values: parameters of any notebook; each notebook gets its own.
    notebooks: steps as `find_notebook` takes them.
    Raises: ValueError: a wrong parameter or work folder, before any run;
    RuntimeError: another run works in the folder, or a cell failed.
    """
    from kaggle_tfr.report import write_chapter, write_report

    work, runs = _list_runs(values, notebooks)
    lock_of_run = lock.take(work, _choose_part(values, runs))
    try:
        values = {**DEFAULTS, **values, "WORK_DIR": work}
        copies = _copies_folder(values)
        copies.mkdir(parents=True, exist_ok=True)
        try:
            for number, (name, parameters) in enumerate(runs.items(), 1):
                print(f"[{number}/{len(runs)}] {name}", flush=True)
                copy = copies / f"{name}.ipynb"
                _run_notebook(copy, parameters)
                write_chapter(copy, runs)
        except RuntimeError:
            with suppress(OSError):  # of a full disk, for example
                write_report(values, copies)
                print(summarize(values, notebooks))
            raise
        write_report(values, copies)
    finally:
        lock_of_run.close()
    return work


def _choose_part(values: Values, notebooks: Iterable[str]) -> int:
    """Return the part that a run works in, 0 if it needs the whole work folder."""
    # Writing a part needs only the plan, so several machines may write one each.
    needs_plan_only = {"04_write", "05_read_and_visualize", "06_train"}
    return values.get("PART", 0) if needs_plan_only.issuperset(notebooks) else 0


def _read_last_run(copy: Path) -> Values:
    """Return the parameters of an executed notebook, {} unless it ran to its end."""
    try:
        metadata = json.loads(copy.read_text(encoding="utf-8"))["metadata"]["papermill"]
    except (OSError, ValueError, KeyError):
        return {}
    has_ended = metadata.get("end_time") and not metadata.get("exception")
    return metadata.get("parameters", {}) if has_ended else {}


def _list_runs(
    values: Values, notebooks: Sequence[str]
) -> tuple[str, dict[str, Values]]:
    """Check everything; return the work folder and each notebook's parameters."""
    check_parameters(values)
    name = values.get("NAME", DEFAULTS["NAME"])
    work = work_dir(values.get("WORK_DIR", ""), name)
    if not values.get("WORK_DIR"):
        _check_input(values, work)
    values = {**values, "WORK_DIR": work}
    runs: dict[str, Values] = {}
    for notebook in map(find_notebook, notebooks):
        runs[notebook] = {
            parameter: values[parameter]
            for parameter in select_parameters(notebook)
            if parameter in values
        }
    return work, runs


def _check_input(values: Values, work: str) -> None:
    """Raise a ValueError if the work folder contains a run of another INPUT_DIR."""
    last_run = _read_last_run(Path(work, "notebooks", "01_explore.ipynb"))
    if not last_run or not exists(join(work, "images.parquet")):
        return
    last_input = last_run.get("INPUT_DIR", "")
    input_dir = values.get("INPUT_DIR", "")
    if not _is_same_input(last_input, input_dir):
        raise ValueError(
            f"'{work}' contains a run of {_name_input(last_input)}, but INPUT_DIR is "
            f"now {_name_input(input_dir)}. Give this recipe another NAME or WORK_DIR, "
            "or set WORK_DIR to that folder to use it all the same."
        )


def _is_same_input(first: str, second: str) -> bool:
    """Return whether two values of INPUT_DIR are names of one folder or slug."""
    if not first or not second:  # the bundled sample
        return first == second
    return real_path(output_dir(first)) == real_path(output_dir(second))


def _name_input(input_dir: str) -> str:
    return f"'{input_dir}'" if input_dir else "the bundled sample"


def summarize(values: Values, notebooks: Sequence[str] = DEFAULT_NOTEBOOKS) -> str:
    """Return lines to print: the decision, what to look at, and where the files are.

    values, notebooks: of the run, as `run_recipe` takes them.
    """
    from kaggle_tfr.report import decide

    values = {**DEFAULTS, **values}
    work = work_dir(values["WORK_DIR"], values["NAME"])
    values["WORK_DIR"] = work
    findings = read_findings(work)
    headline = decide(findings)
    remarks = [finding for finding in findings if finding.mark in ("✗", "!")]
    lines = [headline]
    lines += [str(remark) for remark in remarks if remark.text != headline]
    parts = list_own_parts(output_dir(values["OUT_DIR"] or work), work)
    lines += [f"shards     {part}/" for part in parts]
    folds = join(work, FOLDS_FILE)
    if exists(folds):
        lines.append(f"folds      {folds}")
    if "06_train" in map(find_notebook, notebooks):
        lines += _list_training_files(work)
    report = f"{work}/report.html"
    if not is_remote(work):  # in a bucket, figures are in the notebooks only
        report = Path(report).as_uri()  # terminals open it on a click
    lines.append(f"notebooks  {_copies_folder(values)}/")
    lines.append(f"report     {report}")
    return "\n".join(lines)


def _list_training_files(work: str) -> Iterator[str]:
    """Yield a line for each file that 06 has written, and one for its models."""
    pattern = "model-fold*.keras"
    n_models = len(list_files(pattern, work))
    if n_models:
        yield f"models     {join(work, pattern)} (files: {n_models})"
    for title, name in (("oof", "oof.csv"), ("submission", "submission.csv")):
        path = join(work, name)
        if exists(path):
            yield f"{title:<10} {path}"


def _copies_folder(values: Values) -> Path:
    """Return the folder of executed notebooks, which is always on this machine."""
    work = values["WORK_DIR"]
    if is_remote(work):
        work = work_dir("", values["NAME"])
    return Path(work, "notebooks")


def _run_notebook(copy: Path, values: Values) -> None:
    """Run a copy of the notebook of this name with these parameters, and save it.

    What its cells print appears here at once.
    Raises: RuntimeError: a cell failed, or the kernel died; KeyboardInterrupt: after
    the kernel and all its processes have ended.
    """
    import papermill

    started = time.monotonic()
    try:
        variables = _kernel_variables(values["WORK_DIR"])
        with _environment(variables), explain_os_errors(copy):
            _wait_or_stop(partial(_execute, copy, values))
    except papermill.PapermillExecutionError as error:
        _note_stop(copy, values, f"{error.ename}: {error.evalue}")
        cell = indent(error.source.strip(), "    ")
        raise RuntimeError(
            f"{copy.name} stopped at cell [{error.exec_count}]. "
            f"{error.ename}: {error.evalue}\n\nThe cell:\n\n{cell}\n\n"
            f"The executed copy, with the traceback: {copy}"
        ) from None
    except RuntimeError as error:  # nbclient's, when the kernel died
        problem = (
            f"{error}. Was there too little memory? Set N_JOBS to fewer workers, and "
            "run the same command again; it resumes where it stopped."
        )
        _note_stop(copy, values, problem)
        raise RuntimeError(f"{copy.name}: {problem}") from None
    print(f"done in {time.monotonic() - started:,.0f} s", flush=True)


def _note_stop(copy: Path, values: Values, problem: str) -> None:
    """Keep the error for the report."""
    step = copy.stem
    text = f"Stopped in {step[:2]}: {problem}"
    note_stop(step, values["WORK_DIR"], values.get("PART", 0), text)


@dataclass
class _Console:
    """A stream of this process, without the lines of NOISE, and while it is muted."""

    stream: TextIO
    is_muted: bool = False

    def write(self, text: str) -> None:
        if not self.is_muted:
            self.stream.write(NOISE.sub("", text))

    def flush(self) -> None:
        self.stream.flush()


def _execute(copy: Path, values: Values) -> None:
    """Run a notebook in a new kernel by papermill."""
    import papermill
    from traitlets.config import Config

    # Its messages repeat errors that it raises; without a handler they are printed.
    logging.getLogger("papermill").addHandler(logging.NullHandler())
    output = _Console(sys.stdout)
    errors = _Console(sys.stderr)

    def mute_lessons(cell: Any, cell_index: int) -> None:  # noqa: ARG001  # nbclient's
        is_lesson = "lesson" in cell.metadata.get("tags", ())
        output.is_muted = errors.is_muted = is_lesson

    with tempfile.TemporaryDirectory() as folder, _filtered_stderr() as stderr:
        # Sockets in a folder: another process may take a port before the kernel does.
        sockets = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        papermill.execute_notebook(
            _escape(copy_notebook(copy.stem, copy.parent)),
            _escape(copy),
            values,
            progress_bar=False,
            on_cell_start=mute_lessons,
            stdout_file=output,
            stderr_file=errors,
            coalesce_streams=True,  # a progress bar is saved as its last state
            config=Config({"KernelManager": sockets}),
            kernel_manager_class=_make_manager(stderr),
        )
    _remove_startup_log(copy)


@contextmanager
def _filtered_stderr() -> Iterator[int]:
    """Yield a file descriptor; what is written there appears here, but not the log."""
    reading, writing = os.pipe()
    relay = Thread(target=_relay, args=(reading,), daemon=True)
    relay.start()
    try:
        yield writing
    finally:
        os.close(writing)
        relay.join(SECONDS_TO_STOP)


def _relay(pipe: int) -> None:
    """Write the lines that arrive in a pipe to the standard error of this process."""
    console = _Console(sys.stderr)
    with open(pipe, errors="replace") as lines:
        for line in lines:
            console.write(line)


def _make_manager(stderr: int) -> type:
    """Return a class of managers whose kernels have this standard error.

    A kernel copies there what libraries write, besides sending it as an output.
    """
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        async def start_kernel(  # type: ignore[override]  # as AsyncKernelManager's
            self, *args: Any, **options: Any
        ) -> None:
            await super().start_kernel(*args, stderr=stderr, **options)

    return Manager


def _remove_startup_log(copy: Path) -> None:
    """Remove TensorFlow's start-up log from the outputs of an executed notebook."""
    executed = json.loads(copy.read_text())
    for cell in executed["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = list(filter(None, map(_clean_output, cell["outputs"])))
    write_atomically(copy, json.dumps(executed, indent=1).encode())


def _clean_output(output: dict[str, Any]) -> dict[str, Any] | None:
    """Return a cell's output without the start-up log, None if nothing is left."""
    if output.get("name") != "stderr":
        return output
    text = NOISE.sub("", "".join(output["text"]))
    return {**output, "text": text} if text else None


def _escape(path: Path) -> str:
    """Write the path for papermill, which fills in fields in braces."""
    return re.sub(r"[{}]", r"\g<0>\g<0>", str(path))


def _kernel_variables(work_dir: str) -> dict[str, str]:
    """Return the environment variables that a kernel needs."""
    # The package that runs here.
    search_path = f"{PROJECT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {
        "PYTHONPATH": search_path.rstrip(os.pathsep),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        TERMINAL: "1" if sys.stderr.isatty() else "0",
        lock.INSIDE: work_dir,
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process until the block ends."""
    before = dict(os.environ)
    os.environ.update(variables)
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
