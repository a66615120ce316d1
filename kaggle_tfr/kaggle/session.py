"""What the cells of a kernel call on Kaggle: nothing here needs more than the steps themselves."""

from pathlib import Path

from kaggle_tfr.paths import find_input, work_dir
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.storage import write_atomically

# What papermill and nbconvert leave beside a kernel's own files.
_KAGGLE_FILES = ("__notebook__.ipynb", "__results__.html", "__output__.json", "custom.css")


def copy_plan(kernel: str, work: str) -> None:
    """Copies the planning kernel's output; FileNotFoundError: not attached, or without a plan."""
    source = find_input(kernel)
    if not Path(source, "plan.json").is_file():
        hint = f"Has the kernel '{kernel}' run to its end?"
        raise FileNotFoundError(f"'{source}' holds no plan.json. {hint}")
    _copy_files(source, work)


def restore_previous_output(kernel: str, folder: str) -> int:
    """Number of files copied from this kernel's earlier version; it continues from there."""
    try:
        source = find_input(kernel)
    except FileNotFoundError:
        return 0
    return _copy_files(source, folder)


def check_parts(work: str, n_parts: int) -> None:
    """Raises a ValueError unless the plan has as many parts as kernels were made to write them."""
    planned = read_plan(work_dir(work)).n_parts
    if planned != n_parts:
        fault = f"The plan has {planned} parts, and the kernels were made for {n_parts}. Make them"
        mend = f"again: python -m kaggle_tfr kernel RECIPE --parts {planned}, or set PART_LIMIT_GB."
        raise ValueError(f"{fault} {mend}")


def _copy_files(source: str, folder: str) -> int:
    copied = 0
    # plan.json comes last: where it exists, the rest of the plan does too.
    paths = sorted(Path(source).rglob("*"), key=lambda path: (path.name == "plan.json", path))
    for path in paths:
        target = Path(work_dir(folder), path.relative_to(source))
        skipped = path.name in _KAGGLE_FILES or path.suffix == ".tmp" or target.exists()
        if path.is_file() and not skipped:
            write_atomically(target, path.read_bytes())
            copied += 1
    return copied
