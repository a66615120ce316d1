"""What the cells of a notebook call: start, findings, and the accounting.

A finding is noted where its number is, in a step's function or in a cell. It is printed
and kept in findings.json, which the report, the audit and the last lines of a run show.
"""

import atexit
import io
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from kaggle_tfr import lock
from kaggle_tfr.mounts import work_dir
from kaggle_tfr.parameters import DEFAULTS, Values, check_globals
from kaggle_tfr.records import RECORDS_FOLDER
from kaggle_tfr.session import find_shell, prepare
from kaggle_tfr.storage import (
    join,
    read_text,
    remove,
    remove_leftovers,
    write_atomically,
)
from kaggle_tfr.tables import NO_MATH

__all__ = ["account", "note", "start"]  # what notebooks call

FINDINGS = "findings.json"  # in WORK_DIR
REPORT = "report.html"
# The result is wrong or incomplete; the reader decides; for information; all is well.
MARKS = ("✗", "!", "·", "✓")
STOP = "stop"  # subject of the error that ended a step
WRITING = "04_write"  # it writes the same records again: later findings stay true

# Of a notebook that was opened by hand; one at most.
_locks = ExitStack()


@dataclass(frozen=True)
class Finding:
    """A sentence with its numbers. Step, part and subject identify it.

    part: PART, 0 for all. subject: a word, with or without a detail: "input: masks".
    mark: one of `MARKS`. advice: what to do, "" for nothing.
    """

    step: str
    part: int
    subject: str
    mark: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        place = f"part {self.part}: " if self.part else ""
        return f"{self.mark} {place}{self.text} {self.advice}".rstrip()


@dataclass
class _Place:
    """Where this process notes its findings, and those of its step by subject."""

    work: str
    step: str
    part: int
    findings: dict[str, Finding]


_places: list[_Place] = []  # that of the present step; one at most


def start(step: str, values: Values) -> str:
    """Check a notebook's parameters, print and return the work folder.

    step: the notebook's name, such as "01_explore". values: its `globals()`. Workers
    are chosen if N_JOBS is among them; notebooks that read and train have none.
    Raises: ValueError: a parameter is misspelt or does not fit; RuntimeError:
    another run works in the folder.
    """
    check_globals(values)
    prepare()  # before TensorFlow and Keras are imported
    pd.set_option(*NO_MATH)
    shell = find_shell()
    if shell:
        from kaggle_tfr.figures.formats import use_style

        use_style(shell)
    work = _find_work(values)
    # The processes of a backend inherit it.
    os.environ[RECORDS_FOLDER] = f"{work}/records"
    print(f"work folder: {work}")
    if "N_JOBS" in values:  # the other notebooks only read
        from kaggle_tfr.parallel import use_backend

        _lock_for_notebook(work, values.get("PART", 0))
        print(use_backend(values["N_JOBS"], values["BACKEND"], values["SCHEDULER"]))
    remove_leftovers(work)  # of killed runs; files being written are locked
    return begin(step, values)


def begin(step: str, values: Values) -> str:
    """Note findings for a step from now on, without those of its last run.

    Later steps read what 01 to 03 rewrite, so their findings go, too, and a report of
    what 01 to 04 rewrite. Returns the work folder.
    """
    work = _find_work(values)
    part = values.get("PART", 0)
    _places[:] = [_Place(work, step, part, {})]
    if step <= WRITING:
        remove(join(work, REPORT))
    findings = read_findings(work)
    kept = [finding for finding in findings if not _is_replaced(finding, step, part)]
    if len(kept) < len(findings):
        _save(kept, work)
    return work


def _find_work(values: Values) -> str:
    return work_dir(values["WORK_DIR"], values.get("NAME", DEFAULTS["NAME"]))


def _is_replaced(finding: Finding, step: str, part: int) -> bool:
    """Return whether a finding ends when a step, or one part of it, starts."""
    if finding.subject == STOP:
        return True
    if step < WRITING:
        return finding.step >= step
    is_of_part = part in (0, finding.part) or finding.subject.startswith("parts: ")
    return finding.step == step and is_of_part


def note(mark: str, text: str, subject: str, advice: str = "") -> None:
    """Print a finding, and keep it in place of an earlier one on the same subject.

    Without a step, as in a script that calls single functions, it is only printed.
    """
    print(f"{mark} {text} {advice}".rstrip())
    for place in _places:
        new = Finding(place.step, place.part, subject, mark, text, advice)
        place.findings[subject] = new
        others = [
            finding
            for finding in read_findings(place.work)
            if (finding.step, finding.part) != (place.step, place.part)
        ]
        # All of the step: another process, which writes another part, may have saved
        # the file at the same time.
        _save([*others, *place.findings.values()], place.work)


def note_stop(step: str, work: str, part: int, text: str) -> None:
    """Keep the error that has ended a step, until a step starts again."""
    findings = [finding for finding in read_findings(work) if finding.subject != STOP]
    _save([*findings, Finding(step, part, STOP, "✗", text)], work)


def read_findings(work: str) -> list[Finding]:
    """Return the findings of all steps, the most serious first, else by their steps."""
    text = read_text(join(work, FINDINGS))
    findings = [Finding(**row) for row in json.loads(text or "[]")]
    return sorted(
        findings, key=lambda finding: (MARKS.index(finding.mark), finding.step)
    )


def _save(findings: list[Finding], work: str) -> None:
    rows = [asdict(finding) for finding in findings]
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    write_atomically(join(work, FINDINGS), f"{text}\n".encode())


def _lock_for_notebook(work: str, part: int) -> None:
    """Lock WORK_DIR until `account`, a cell that fails, or the kernel's end.

    A notebook that the driver runs is covered by the driver's lock.
    """
    release_lock()
    if os.environ.get(lock.INSIDE) == work:
        return
    _locks.enter_context(lock.take(work, part))
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
    _locks.close()


def end() -> None:
    """Release WORK_DIR; what is noted from now on is only printed."""
    release_lock()
    _places.clear()


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """Return the table of `tabulate` to show, and release WORK_DIR.

    This is a notebook's last call.
    """
    end()
    table = tabulate(counts, total)
    return table.assign(share=table["share"].map("{:.1%}".format))


def tabulate(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """Return one row per outcome with `images` and `share`, and a last row for all.

    Raises: RuntimeError: the counts do not add up to `total`.
    """
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
