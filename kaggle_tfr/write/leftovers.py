"""Parts of other plans beside the present one: readers would mix both plans."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from kaggle_tfr import storage
from kaggle_tfr.naming import name_parts
from kaggle_tfr.shards import PlanId, list_parts, read_plan_id
from kaggle_tfr.write import journal


def remove_other_parts(
    work_dir: str,
    parts_dir: str,
    part_dirs: Mapping[int, str],
    *,
    overwrite: bool,
) -> None:
    """Remove the parts of other plans whose numbers this plan does not have.

    Parts of the same dataset stay: those that this plan continues, and those that
    continue this plan.
    part_dirs: the parts that this run writes. Another run may be writing the plan's
        other parts, so these stay and are named.
    Raises: ValueError: `overwrite` is off; the plan reads images from a part; a part
        is a link to another folder; or nothing shows that 04_write wrote it. Then
        nothing was removed.
    """
    plan = read_plan_id(work_dir)
    other_parts = _find_other_parts(parts_dir, plan, part_dirs)
    if overwrite:
        _check_no_input(work_dir, [*part_dirs.values(), *other_parts])
    elif other_parts:
        folders = "', '".join(other_parts)
        raise ValueError(
            f"'{folders}': left over from another plan. The present one has "
            f"{name_parts(plan.part_numbers)}, and readers would mix both plans. Set "
            "OVERWRITE = True to remove the files of such parts, move them away, or "
            "set another OUT_DIR."
        )

    removed = [
        path for path, number in other_parts.items() if number not in plan.part_numbers
    ]
    for part_dir in removed:
        _check_removable(part_dir)
    for part_dir in removed:
        _remove_part(part_dir)
        print(f"The files of '{part_dir}', left over from another plan, were removed.")
    for part_dir in other_parts.keys() - removed:
        print(f"'{part_dir}' is of another plan. Write it too: set PART to its number.")


def _remove_part(part_dir: str) -> None:
    """Remove the files that 04_write wrote; folders with other people's files stay."""
    journal.clear_part(part_dir)
    for folder, _, _ in os.walk(part_dir, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def _find_other_parts(
    parts_dir: str, plan: PlanId, part_dirs: Mapping[int, str]
) -> dict[str, int]:
    """Return {folder: number} of other plans' parts that this run does not write."""
    # Readers need no plan.json. One without a fingerprint is not of 03_plan.
    folders = list_parts(parts_dir)
    for folder in list_parts(parts_dir, "plan.json"):
        if read_plan_id(folder).fingerprint:
            folders.append(folder)

    number_of = {}
    for folder in folders:
        match = re.search(r"/part-([1-9][0-9]*)$", folder)
        number = int(match[1]) if match else 0
        found = read_plan_id(folder)
        # A copied folder may have a number that its plan does not have.
        is_of_dataset = number in found.part_numbers and not plan.find_conflict(found)
        if number and number not in part_dirs and not is_of_dataset:
            number_of[folder] = number
    return number_of


def _check_no_input(work_dir: str, part_dirs: Iterable[str]) -> None:
    """Raise a ValueError if images of the plan are in a part that may be removed."""
    plan_path = storage.join(work_dir, "plan.parquet")
    paths = storage.read_parquet(plan_path, columns=["path"])["path"]
    folders = paths.map(os.path.dirname).unique()
    for part_dir in part_dirs:
        if any(storage.is_inside(folder, part_dir) for folder in folders):
            raise ValueError(
                f"'{part_dir}' contains images that this plan reads, and OVERWRITE "
                "would remove them. Set another OUT_DIR."
            )


def _check_removable(part_dir: str) -> None:
    if not read_plan_id(part_dir).fingerprint:
        raise ValueError(
            f"'{part_dir}' has shards, but no plan.json of 04_write: its files stay. "
            "Move it away, or set another OUT_DIR."
        )
    if os.path.islink(part_dir):
        raise ValueError(
            f"'{part_dir}', left over from another plan, is a link to another folder: "
            "its files stay. Remove that link."
        )
