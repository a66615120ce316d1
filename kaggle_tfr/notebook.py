"""What the cells of a notebook call: start, findings, and the accounting.

A finding is noted where its number is, in a step's function or in a cell. It is printed
and kept in findings.json, which the report, the audit and the last lines of a run show.
"""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.find import work_dir
from kaggle_tfr.parameters import Values, check_globals
from kaggle_tfr.session import find_shell, prepare

FINDINGS = "findings.json"  # in WORK_DIR
# The result is wrong or incomplete; the reader decides; for information; all is well.
MARKS = "✗!·✓"
WRITING = "04_write"  # it writes the same records again: later findings stay true

_held = ExitStack()  # the lock of a notebook that was opened by hand


class Finding(NamedTuple):
    """A sentence with its numbers. Step and subject identify it.

    step: such as "04_write", or "04_write part 2" for one part. subject: a word, with
    or without a detail: "input: masks". mark: one of `MARKS`. advice: what to do, ""
    for nothing.
    """

    step: str
    subject: str
    mark: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        """Return the line that is printed."""
        return f"{self.mark} {self.text} {self.advice}".rstrip()


# Where this process notes its findings: WORK_DIR and step, one at most.
_noting: list[tuple[str, str]] = []


def start(step: str, values: Values) -> str:
    """Check a notebook's parameters, print and return the work folder.

    If N_JOBS is a parameter, as in 01 to 04, the work folder is locked until `account`
    or `end`, and workers are started. Findings are noted for the step from now on.
    step: the notebook's name, such as "01_explore". values: its `globals()`.
    Raises: ValueError: a parameter is misspelt or does not fit; RuntimeError:
    another run works in the folder.
    """
    check_globals(values)
    prepare()  # before TensorFlow and Keras are imported
    pd.set_option("display.html.use_mathjax", False)  # "$" in a name is not a formula
    if shell := find_shell():
        from kaggle_tfr.figures.style import use_style

        use_style(shell)
    work = work_dir(values)
    print(f"work folder: {work}")
    if "N_JOBS" in values:  # notebooks without it only read
        from kaggle_tfr.parallel import use_backend

        # If the cell is run again, this kernel holds the lock already.
        _held.close()
        # `kaggle-tfr run` locks WORK_DIR for its kernels, and names it in INSIDE.
        if os.environ.get(storage.INSIDE) != work:
            _held.enter_context(storage.lock_work_dir(work))
        print(use_backend(values["N_JOBS"], values["BACKEND"], values["SCHEDULER"]))
    return begin(step, values)


def begin(step: str, values: Values) -> str:
    """Let `note` save findings of this step from now on; return the work folder.

    The findings of the step's last run are removed. 01 to 03 remove those of later
    steps, too, because these read the files that 01 to 03 replace.
    step: such as "04_write". values: parameters; PART is added to the step.
    """
    work = work_dir(values)
    if part := values.get("PART"):
        step += f" part {part}"
    _noting[:] = [(work, step)]  # which `note` reads
    kept = []
    for finding in read_findings(work):
        # A step begins with its number. From 04 (WRITING) on, later findings stay true.
        is_later = step < WRITING and finding.step > step
        # "04_write" includes "04_write part 2"; "04_write part 1" is not "… part 12".
        is_of_step = f"{finding.step} ".startswith(f"{step} ")
        if not (is_later or is_of_step):
            kept.append(finding)
    _save(work, kept)
    return work


def note(mark: str, text: str, subject: str, advice: str = "") -> None:
    """Print a finding, and keep it in place of an earlier one on the same subject.

    It is of the step of `begin`. Without one, as in a script that calls single
    functions, it is only printed.
    mark, text, subject, advice: as in `Finding`.
    """
    finding = Finding("", subject, mark, text, advice)
    print(finding)
    for work, step in _noting:  # one, or none
        _save(work, [*read_findings(work), finding._replace(step=step)])


def read_findings(work: str) -> list[Finding]:
    """Return the findings of all steps, the most serious first, else by their steps.

    The order of the marks is ✗ ! · ✓. [] if nothing was noted. work: the work folder.
    """
    rows = json.loads(storage.read_text(f"{work}/{FINDINGS}") or "[]")
    # Other keys, which earlier versions wrote, are ignored.
    findings = [Finding(*map(row.get, Finding._fields)) for row in rows]
    return sorted(
        findings, key=lambda finding: (MARKS.index(finding.mark), finding.step)
    )


def _save(work: str, findings: list[Finding]) -> None:
    """Save all findings of a work folder; of several on one subject, only the last.

    It has the place of the first one.
    """
    # The first two fields, step and subject, identify a finding.
    latest = {finding[:2]: finding for finding in findings}
    rows = [finding._asdict() for finding in latest.values()]
    storage.write_atomically(
        f"{work}/{FINDINGS}", json.dumps(rows, ensure_ascii=False, indent=1)
    )


def end() -> None:
    """Release the lock of WORK_DIR; what is noted from now on is only printed."""
    _held.close()
    _noting.clear()


def account(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """Return the table of `tabulate` to show, and release the lock of WORK_DIR.

    This is a notebook's last call.
    counts: number of images by outcome. total: of all images.
    """
    end()
    return tabulate(counts, total)


def tabulate(counts: Mapping[str, int], total: int) -> pd.DataFrame:
    """Return one row per outcome with `images` and `share`, and a last row for all.

    The outcome is the index. share: of the total, from 0 to 1.
    counts: number of images by outcome. total: of all images.
    Raises: RuntimeError: the counts do not add up to `total`.
    """
    if sum(counts.values()) != total:
        raise RuntimeError(
            f"The accounting does not close: {counts}, but {total} came in. "
            "Delete WORK_DIR and run again from 01_explore; if the error persists, "
            "please report a bug."
        )
    table = pd.DataFrame({"images": {**counts, "total": total}}).rename_axis("outcome")
    return table.assign(share=(table["images"] / total).round(4))


def count_of(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural.

    >>> count_of(1, "pair"), count_of(4317, "pair")
    ('1 pair', '4,317 pairs')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
