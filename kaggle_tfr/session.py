"""Inside a Kaggle session: what earlier kernels left, and an end before the session's own."""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kaggle_tfr import writer
from kaggle_tfr.mounts import KAGGLE_WORKING, find_input
from kaggle_tfr.plan import read_plan

SESSION_HOURS = 12
# To check the part, and for Kaggle to save up to 20 GB of output.
RESERVE_HOURS = 0.75
# What papermill and nbconvert leave beside a kernel's own files.
_KAGGLES_OWN = ("__notebook__.ipynb", "__results__.html", "__output__.json", "custom.css")


def scratch_dir() -> str:
    """A folder whose contents do not become output: the sample, and the plan of another kernel."""
    return "/kaggle/temp" if os.path.isdir(KAGGLE_WORKING) else tempfile.gettempdir()


def bring_plan(kernel: str, work: str) -> None:
    """Copies what the planning kernel left, so that the writing steps find it in `work`.

    kernel: the slug of the planning kernel, attached as a source.

    Raises:
        FileNotFoundError: it is not attached, or has left no plan.
    """
    source = Path(find_input(kernel))
    if not (source / "plan.json").is_file():
        raise FileNotFoundError(
            f"'{source}' holds no plan.json. Has the kernel '{kernel}' run to its end?"
        )
    _copy_files([path for path in source.iterdir() if path.is_file()], source, Path(work))


def bring_earlier(kernel: str, folder: str) -> int:
    """How many files of this kernel's earlier version were copied, so that it goes on from there.

    0 where the kernel has no earlier output attached, and for files that are there already.
    """
    try:
        source = Path(find_input(kernel))
    except FileNotFoundError:
        return 0
    return _copy_files([path for path in source.rglob("*") if path.is_file()], source, Path(folder))


def check_parts(work: str, n_parts: int) -> None:
    """None, when the plan has as many parts as there are kernels to write them.

    Raises:
        ValueError: it has others.
    """
    planned = read_plan(work).n_parts
    if planned != n_parts:
        raise ValueError(
            f"The plan has {planned} parts, and the kernels were made for {n_parts}. Make them "
            f"again: python -m kaggle_tfr kernel RECIPE --parts {planned}, or set PART_LIMIT_GB."
        )


def hours_left() -> float:
    """Hours of work until the session's end, less what closing down takes; inf outside of Kaggle.

    The first cell of a kernel notes when it began.
    """
    began = os.environ.get("KAGGLE_TFR_STARTED")
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") != "Batch" or not began:
        return float("inf")
    return SESSION_HOURS - RESERVE_HOURS - (time.time() - float(began)) / 3600


def write_parts(work_dir: str, out_dir: str = "", part: int = 0, **settings) -> pd.DataFrame:
    """What `writer.write_parts` gives, when the session is long enough for it.

    Otherwise the notebook ends here without an error, because Kaggle keeps the output of a run
    that has ended well: its next version takes that and goes on.

    Raises:
        ValueError, OSError: as `writer.write_parts`.
        SystemExit: the time is over; papermill takes code 0 for a good end.
    """
    left = hours_left()
    limit = 0 if left == float("inf") else max(left, 1e-9)
    try:
        return writer.write_parts(work_dir, out_dir, part, **settings, stop_after_hours=limit)
    except OSError as error:
        if "stop_after_hours" not in str(error):
            raise
        print(
            f"{error}\nThe session's {SESSION_HOURS} hours are nearly over, so the notebook ends "
            "here. Push the kernel again with its own output as a source "
            "(`python -m kaggle_tfr push` does): it goes on from the last finished shard."
        )
        raise SystemExit(0) from None


def _copy_files(paths: Sequence[Path], source: Path, folder: Path) -> int:
    copied = 0
    # The plan last: one that is there is whole.
    for path in sorted(paths, key=lambda path: (path.name == "plan.json", path)):
        target = folder / path.relative_to(source)
        if path.name in _KAGGLES_OWN or path.suffix == ".tmp" or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.tmp")
        shutil.copyfile(path, temporary)
        temporary.replace(target)
        copied += 1
    return copied
