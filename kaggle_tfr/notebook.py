"""The five notebooks, one after the other, through papermill with one recipe."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr.parameters import BY_NOTEBOOK, EVERYWHERE, check_parameters
from kaggle_tfr.paths import near_miss, work_dir
from kaggle_tfr.storage import is_remote

PROJECT = Path(__file__).resolve().parent.parent


NOTEBOOKS = tuple(BY_NOTEBOOK)


_FOLDERS = ("INPUT_DIR", "OUT_DIR")


class NotebookError(RuntimeError):
    """A cell of a notebook failed; the message shows cell, error and executed copy."""


def run_recipe(values: Mapping[str, Any], notebooks: Sequence[str] = NOTEBOOKS) -> str:
    """The work folder, after the notebooks ran in it; executed copies lie in its notebooks/.

    values: parameters of any notebook; each notebook is given its own.
    Raises:
        ValueError: a parameter or a notebook's name is wrong; nothing has run then.
        NotebookError: a cell failed.
    """
    check_parameters(values)
    notebooks = [_full_name(name) for name in notebooks]
    values = _with_absolute_folders(values)
    folder = values["WORK_DIR"]
    copies = Path(folder if not is_remote(folder) else work_dir("")) / "notebooks"
    copies.mkdir(parents=True, exist_ok=True)
    for position, name in enumerate(notebooks, 1):
        print(f"[{position}/{len(notebooks)}] {name}", flush=True)
        known = EVERYWHERE | BY_NOTEBOOK[name]
        _run_notebook(
            PROJECT / "notebooks" / f"{name}.ipynb",
            copies / f"{name}.ipynb",
            {key: value for key, value in values.items() if key in known},
        )
    return folder


def summarize(folder: str) -> str:
    """Where everything lies after a run, and the accounting table, as lines to print."""
    lines = []
    for listing in sorted(Path(folder).glob("part-*/shards.csv")):
        shards = pd.read_csv(listing)
        size, count = shards["bytes"].sum() / 1e6, shards["count"].sum()
        held = f"{len(shards)} files, {count:,} records, {size:,.1f} MB"
        lines.append(f"shards     {listing.parent}/ ({held})")
    lines += [f"notebooks  {folder}/notebooks/", f"figures    {folder}/figures/"]
    table = Path(folder) / "accounting.csv"
    if table.exists():
        lines += ["", pd.read_csv(table, keep_default_na=False).to_string(index=False)]
    return "\n".join(lines)


def _full_name(name: str) -> str:
    matches = [full for full in NOTEBOOKS if full == name or full.split("_")[0] == name]
    if not matches:
        raise ValueError(
            f"there is no notebook '{name}'.{near_miss(name, NOTEBOOKS)} "
            f"There are {', '.join(NOTEBOOKS)}."
        )
    return matches[0]


def _with_absolute_folders(values: Mapping[str, Any]) -> dict[str, Any]:
    """Folders counted from here, because a notebook may run somewhere else."""
    values = dict(values) | {"WORK_DIR": work_dir(values.get("WORK_DIR", ""))}
    for name in _FOLDERS:
        folder = values.get(name, "")
        if folder and not is_remote(folder) and Path(folder).expanduser().exists():
            values[name] = str(Path(folder).expanduser().absolute())
    if values.get("TFREC_DIRS"):
        values["TFREC_DIRS"] = [
            str(Path(folder).absolute()) if Path(folder).exists() else folder
            for folder in values["TFREC_DIRS"]
        ]
    return values


def _run_notebook(source: Path, copy: Path, values: dict[str, Any]) -> None:
    import papermill

    try:
        with _environment_of_kernels():
            papermill.execute_notebook(
                str(source),
                str(copy),
                parameters=values,
                kernel_name="python3",
                progress_bar=sys.stderr.isatty(),
            )
    except papermill.PapermillExecutionError as error:
        raise NotebookError(
            f"{source.name} stopped at cell [{error.exec_count}]:\n\n{_indented(error.source)}\n\n"
            f"{error.ename}: {error.evalue}\n\nThe executed copy, with the traceback: {copy}"
        ) from None


@contextmanager
def _environment_of_kernels() -> Iterator[None]:
    """What a kernel inherits: the package that runs here, and figures shown in the notebook."""
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    wanted = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip().splitlines())


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """One row per outcome with `images` and `share`, and a last row for all.

    Raises:
        RuntimeError: the counts do not add up to `total`.
    """
    found = sum(counts.values())
    if found != total:
        what = " + ".join(f"{count:,} {name}" for name, count in counts.items())
        raise RuntimeError(
            f"the accounting does not close: {what} = {found:,}, but {total:,} came in. "
            "Delete WORK_DIR and run again from 01_explore; if it stays, this is a fault of ours."
        )
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=table["images"] / max(total, 1))


SESSION_HOURS = 12


# To check_image the part, and for Kaggle to save up to 20 GB of output.
RESERVE_HOURS = 0.75


def hours_left() -> float:
    """Hours of work until the session's end, less what closing down takes; inf outside of Kaggle.

    The first cell of a kernel notes when it began.
    """
    began = os.environ.get("KAGGLE_TFR_STARTED")
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") != "Batch" or not began:
        return float("inf")
    return SESSION_HOURS - RESERVE_HOURS - (time.time() - float(began)) / 3600
