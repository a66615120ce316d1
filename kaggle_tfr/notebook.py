"""What a notebook's first and last cells call."""

import atexit
import os
import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd

from kaggle_tfr import lock
from kaggle_tfr.mounts import work_dir
from kaggle_tfr.parameters import check_parameters, make_settings
from kaggle_tfr.records import RECORDS_FOLDER
from kaggle_tfr.session import prepare
from kaggle_tfr.storage import remove_leftovers
from kaggle_tfr.tables import NO_MATH

__all__ = ["account", "make_settings", "start"]  # what notebooks call


_held: list[lock.Lock] = []  # by a notebook that was opened by hand, one at most


def start(values: Mapping[str, Any]) -> str:
    """The work folder, after a notebook's parameters were checked; one printed line says where.

    values: its `globals()`; without N_JOBS, which reading and training lack, no workers are chosen.
    Raises: ValueError: a parameter is misspelt or does not fit.
    """
    check_parameters(values, notebook=True)
    prepare()
    work, said = work_dir(values["WORK_DIR"]), ""
    pd.set_option(*NO_MATH)
    if "N_JOBS" in values:  # the others only read what these have written
        _lock_for_notebook(work, values.get("PART", 0))
    remove_leftovers(work)
    # The processes of a backend inherit it.
    os.environ[RECORDS_FOLDER] = f"{work}/records"
    if "N_JOBS" in values:
        from kaggle_tfr.parallel import use_backend

        said = use_backend(values["N_JOBS"], values["BACKEND"], values["SCHEDULER"])
    print(f"{work}{', ' + said if said else ''}")
    return work


def _lock_for_notebook(work: str, part: int) -> None:
    """Locks WORK_DIR until `account`, a cell that fails, or the kernel's end.

    What a driver runs is inside the driver's lock. Raises: WorkDirBusyError: another run works.
    """
    release_lock()
    if os.environ.get(lock.INSIDE) == work:
        return
    _held.append(lock.take(work, part, holder="a notebook"))
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell and _release_after_error not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _release_after_error)


def _release_after_error(result: Any) -> None:
    """A notebook that stopped at a cell, also by an interrupt, is in nobody's way."""
    if result.error_before_exec or result.error_in_exec:
        release_lock()


@atexit.register
def release_lock() -> None:
    """Ends the notebook's hold of WORK_DIR, where it has one."""
    while _held:
        _held.pop().release()


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """One row per outcome with `images` and `share`, and a last row for all.

    A notebook's last call: what was opened by hand releases WORK_DIR.
    Raises: RuntimeError: the counts do not add up to `total`.
    """
    release_lock()
    counted = sum(counts.values())
    if counted != total:
        what = " + ".join(f"{count:,} {name}" for name, count in counts.items())
        what = f"the accounting does not close: {what} = {counted:,}, but {total:,} came in"
        mend = "Delete WORK_DIR and run again from 01_explore; if it stays, the fault is ours."
        raise RuntimeError(f"{what}. {mend}")
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=(table["images"] / max(total, 1)).round(4))
