"""What the cells of a notebook call: start, findings, and the accounting.

A finding is noted where its number is, in a step's function or in a cell. It is printed
and kept in findings.json, which the report, the audit and the last lines of a run show.
"""

import atexit
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import work_dir
from kaggle_tfr.parameters import Values, check_globals
from kaggle_tfr.session import find_shell, prepare
from kaggle_tfr.storage import join, read_text, remove, write_atomically
from kaggle_tfr.tables import NO_MATH

FINDINGS = "findings.json"  # in WORK_DIR
# The result is wrong or incomplete; the reader decides; for information; all is well.
MARKS = ("✗", "!", "·", "✓")
STOP = "stop"  # subject of the error that ended a step
WRITING = "04_write"  # it writes the same records again: later findings stay true

_held = ExitStack()  # the lock of a notebook that was opened by hand
atexit.register(_held.close)


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


# Where this process notes its findings: WORK_DIR, step, part, and those that it has
# noted, by subject. One at most.
_places: list[tuple[str, str, int, dict[str, Finding]]] = []


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
    if shell := find_shell():
        from kaggle_tfr.figures.formats import use_style

        use_style(shell)
        shell.events.register("post_run_cell", _release_after_error)
    work = work_dir(values["WORK_DIR"], values.get("NAME", ""))
    print(f"work folder: {work}")
    if "N_JOBS" in values:  # the other notebooks only read
        from kaggle_tfr.parallel import use_backend

        # Until `account`, a cell that fails, or the kernel's end.
        _held.close()
        if os.environ.get(storage.INSIDE) != work:  # which the driver has locked
            _held.enter_context(storage.lock_work_dir(work, values.get("PART", 0)))
        print(use_backend(values["N_JOBS"], values["BACKEND"], values["SCHEDULER"]))
    return begin(step, values)


def begin(step: str, values: Values) -> str:
    """Note findings for a step from now on, without those of its last run.

    Later steps read what 01 to 03 rewrite, so their findings go, too, and a report of
    what 01 to 04 rewrite. Returns the work folder.
    """
    work = work_dir(values["WORK_DIR"], values.get("NAME", ""))
    part = values.get("PART", 0)
    _places[:] = [(work, step, part, {})]
    if step <= WRITING:
        remove(join(work, "report.html"))
    findings = [
        finding
        for finding in read_findings(work)
        if not _is_replaced(finding, step, part)
    ]
    _save(findings, work)
    return work


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
    for work, step, part, noted in _places:
        noted[subject] = Finding(step, part, subject, mark, text, advice)
        # All of the step: another process, which writes another part, may have saved
        # the file at the same time.
        _save([*read_findings(work), *noted.values()], work)


def note_stop(step: str, work: str, part: int, text: str) -> None:
    """Keep the error that has ended a step, until a step starts again."""
    stop = Finding(step, part, STOP, "✗", text)
    _save([*read_findings(work), stop], work)


def read_findings(work: str) -> list[Finding]:
    """Return the findings of all steps, the most serious first, else by their steps."""
    text = read_text(join(work, FINDINGS))
    findings = [Finding(**row) for row in json.loads(text or "[]")]
    return sorted(
        findings, key=lambda finding: (MARKS.index(finding.mark), finding.step)
    )


def _save(findings: Iterable[Finding], work: str) -> None:
    """Save findings, the last one on each subject."""
    last = {
        (finding.step, finding.part, finding.subject): vars(finding)
        for finding in findings
    }
    text = json.dumps(list(last.values()), ensure_ascii=False, indent=1)
    write_atomically(join(work, FINDINGS), text.encode())


def _release_after_error(result: Any) -> None:
    """Release the lock when a cell failed or was interrupted."""
    if not result.success:
        _held.close()


def end() -> None:
    """Release WORK_DIR; what is noted from now on is only printed."""
    _held.close()
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
        raise RuntimeError(
            f"the accounting does not close: {dict(counts)} are {counted:,}, but "
            f"{total:,} came in. Delete WORK_DIR and run again from 01_explore; if the "
            "error persists, please report a bug."
        )
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=(table["images"] / max(total, 1)).round(4))
