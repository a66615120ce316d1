"""Functions that a kernel calls on Kaggle before its steps begin."""

from pathlib import Path

from kaggle_tfr.find import find_folder
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.storage import write_atomically


def copy_output(kernel: str, folder: str) -> None:
    """Copy the output of a kernel, if it is attached; existing files are not replaced.

    folder: gets the files, in the same subfolders.
    kernel: a slug, of another kernel or of an earlier session of this one.
    """
    source = find_folder(kernel)
    if not source:
        return
    for path in Path(source).rglob("*"):
        target = Path(folder, path.relative_to(source))
        if path.is_file() and not target.exists():
            write_atomically(target, path.read_bytes())


def choose_part(work: str, position: int, n_parts: int) -> int:
    """Return the number of the part that a kernel writes, as PART has it.

    If the plan continues earlier parts, its first part is not part 1, but is still
    written by the kernel at position 1.
    work: the folder of the plan. position: of the kernel among the `n_parts` kernels
    that write parts, from 1.
    Raises: ValueError: the plan has another number of parts.
    """
    plan = read_plan(work)
    if plan.n_parts != n_parts:
        raise ValueError(
            f"The plan has {plan.n_parts} parts, but {n_parts} kernels write parts. "
            f"Run `kaggle-tfr kernel RECIPE --parts {plan.n_parts}`, or change "
            "PART_LIMIT_GB."
        )
    return plan.first_part - 1 + position
