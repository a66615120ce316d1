"""Functions that the cells of a kernel call on Kaggle before a step begins."""

from pathlib import Path

from kaggle_tfr.find import find_folder, find_input, output_dir
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.storage import write_atomically

# Written by papermill and nbconvert beside a kernel's own files.
_KAGGLE_FILES = (
    "__notebook__.ipynb",
    "__results__.html",
    "__output__.json",
    "custom.css",
)


def copy_plan(kernel: str, work: str) -> None:
    """Copy the output of the kernel that plans into the work folder.

    Raises: FileNotFoundError: the kernel is not attached, or its output has no plan.
    """
    source = find_input(kernel)
    if not Path(source, "plan.json").is_file():
        raise FileNotFoundError(
            f"'{source}' has no plan.json. Run the kernel '{kernel}' to its end first."
        )
    _copy_files(source, work)


def restore_previous_output(kernel: str, folder: str) -> None:
    """Copy the output of this kernel's previous version, if any, to resume it."""
    source = find_folder(kernel)
    if source:
        _copy_files(source, folder)


def choose_part(work: str, position: int, n_parts: int) -> int:
    """Return the number of the part that a kernel writes, as PART has it.

    The first part of a plan that continues earlier parts is not part 1.
    position: of the kernel among the `n_parts` kernels that write parts, from 1.
    Raises: ValueError: the plan has another number of parts.
    """
    check_parts(work, n_parts)
    return read_plan(output_dir(work)).first_part - 1 + position


def check_parts(work: str, n_parts: int) -> None:
    """Raise a ValueError unless there is one kernel for each part of the plan."""
    planned = read_plan(output_dir(work)).n_parts
    if planned != n_parts:
        raise ValueError(
            f"The plan has {planned} parts, but {n_parts} kernels write parts. Run "
            f"`kaggle-tfr kernel RECIPE --parts {planned}`, or change PART_LIMIT_GB."
        )


def _copy_files(source: str, folder: str) -> None:
    """Copy the files that `folder` does not have yet."""
    paths = [path for path in sorted(Path(source).rglob("*")) if path.is_file()]
    # plan.json comes last: where it exists, the rest of the plan does too.
    paths.sort(key=lambda path: path.name == "plan.json")
    for path in paths:
        target = Path(output_dir(folder), path.relative_to(source))
        if _is_output(path) and not target.exists():
            write_atomically(target, path.read_bytes())


def _is_output(path: Path) -> bool:
    is_leftover = path.suffix in (".tmp", ".lock")  # of a session that was killed
    return path.name not in _KAGGLE_FILES and not is_leftover
