"""What a notebook's first and last cells call."""

import atexit
import io
import os
from collections.abc import Mapping
from typing import Any

import pandas as pd

from kaggle_tfr import lock
from kaggle_tfr.mounts import work_dir
from kaggle_tfr.parameters import DEFAULTS, Values, check_globals, make_settings
from kaggle_tfr.records import RECORDS_FOLDER
from kaggle_tfr.session import find_shell, prepare
from kaggle_tfr.storage import join, read_text, remove_leftovers
from kaggle_tfr.tables import NO_MATH

__all__ = ["account", "make_settings", "start"]  # what notebooks call

# Of a notebook that was opened by hand; one at most.
_locks: list[lock.Lock] = []


def start(values: Values) -> str:
    """Check a notebook's parameters, print and return the work folder.

    values: its `globals()`. Workers are chosen if N_JOBS is among them; notebooks that
    read and train have none.
    Raises: ValueError: a parameter is misspelt or does not fit; WorkDirBusyError:
    another run works in the folder.
    """
    check_globals(values)
    prepare()  # before TensorFlow and Keras are imported
    pd.set_option(*NO_MATH)
    work = work_dir(values["WORK_DIR"], values.get("NAME", DEFAULTS["NAME"]))
    # The processes of a backend inherit it.
    os.environ[RECORDS_FOLDER] = f"{work}/records"
    print(f"work folder: {work}")
    if "N_JOBS" in values:  # the other notebooks only read
        from kaggle_tfr.parallel import use_backend

        _lock_for_notebook(work, values.get("PART", 0))
        print(use_backend(values["N_JOBS"], values["BACKEND"], values["SCHEDULER"]))
    remove_leftovers(work)  # of killed runs; files being written are locked
    return work


def _lock_for_notebook(work: str, part: int) -> None:
    """Lock WORK_DIR until `account`, a cell that fails, or the kernel's end.

    A notebook that the driver runs is covered by the driver's lock.
    """
    release_lock()
    if os.environ.get(lock.INSIDE) == work:
        return
    _locks.append(lock.take(work, part, holder="a notebook"))
    shell = find_shell()
    if shell:
        shell.events.register("post_run_cell", _release_after_error)


def _release_after_error(result: Any) -> None:
    """Release the lock when a cell failed or was interrupted."""
    if result.error_before_exec or result.error_in_exec:
        release_lock()


@atexit.register
def release_lock() -> None:
    """Release the notebook's lock of WORK_DIR, if it has one."""
    while _locks:
        _locks.pop().release()


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """Return one row per outcome with `images` and `share`, and a last row for all.

    This is a notebook's last call: WORK_DIR is released.
    Raises: RuntimeError: the counts do not add up to `total`.
    """
    release_lock()
    counted = sum(counts.values())
    if counted != total:
        terms = " + ".join(f"{count:,} {name}" for name, count in counts.items())
        raise RuntimeError(
            f"the accounting does not close: {terms} = {counted:,}, but {total:,} came "
            "in. Delete WORK_DIR and run again from 01_explore; if the error persists, "
            "please report a bug."
        )
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=(table["images"] / max(total, 1)).round(4))


def read_accounting(work: str) -> pd.DataFrame:
    """Return the table of accounting.csv, empty if there is no file."""
    text = read_text(join(work, "accounting.csv"))
    if not text:
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text), keep_default_na=False)
