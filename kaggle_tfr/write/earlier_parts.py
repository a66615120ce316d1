"""Check the parts that a plan continues: their files must be as they were written."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.naming import name_parts
from kaggle_tfr.plan.plan import Plan
from kaggle_tfr.shards import (
    SUMS,
    find_changed_files,
    is_earlier_part,
    read_fingerprint,
    read_part_table,
    read_sums,
)
from kaggle_tfr.write.leftovers import parse_part_number

UNCHANGED = "unchanged"
PLAN_ONLY = f"plan.json only: there is no {SUMS}"


def check_earlier_parts(plan: Plan, folders: Sequence[str]) -> pd.DataFrame:
    """Compare the parts that a plan continues with their checksums.

    folders: of earlier parts, on this machine or in a bucket.
    Columns: folder, files (the number of files compared), state. Where a part has no
    SHA256SUMS, only its plan.json is compared.
    Raises: ValueError: a folder is not an earlier part of this plan, or a file has
        changed.
    """
    rows = []
    for folder in folders:
        _check_plan(plan, folder)
        n_files = _check_files(folder)
        state = UNCHANGED if n_files else PLAN_ONLY
        rows.append((folder, n_files or 1, state))
    return pd.DataFrame(rows, columns=["folder", "files", "state"])


def _check_plan(plan: Plan, folder: str) -> None:
    """Raise a ValueError unless a plan that this one continues wrote the part."""
    fingerprint = read_fingerprint(folder)
    if not fingerprint:
        raise ValueError(
            f"'{folder}' has no plan.json of 04_write, so nothing shows which part it "
            "is. Copy or download the part again."
        )
    is_earlier_plan = any(old.fingerprint == fingerprint for old in plan.earlier)
    has_number = all(
        is_earlier_part(plan.earlier, fingerprint, number)
        for number in _find_numbers(folder)
    )
    if not (is_earlier_plan and has_number):
        before = range(1, plan.first_part)
        continued = name_parts(before) if before else "no earlier part"
        raise ValueError(
            f"'{folder}' is not an earlier part of this dataset: the plan continues "
            f"{continued}, and another plan wrote this folder. Use the parts that "
            "FOLDS_FROM names, or run 03_plan again."
        )


def _find_numbers(folder: str) -> list[int]:
    """Return the numbers of the part in a folder, by shards.csv or else its name.

    It is one number, unless shards.csv was changed; [] if it is unknown.
    """
    shards = read_part_table(folder, columns=["file", "part"])
    number = parse_part_number(folder)
    numbers = shards["part"].unique().tolist()
    return numbers or ([number] if number else [])


def _check_files(folder: str) -> int:
    """Return how many files of a part are as SHA256SUMS has them, 0 without that file.

    Raises: ValueError: it names the first file that is not.
    """
    sums = read_sums(folder)
    if not sums:
        if storage.exists(storage.join(folder, SUMS)):
            raise ValueError(
                f"'{folder}/{SUMS}' is damaged, so nothing shows whether the part has "
                "changed. Copy or download the part again."
            )
        return 0
    changed = dict[str, str]()
    check = partial(_check_file, folder)
    label = f"Checking the earlier part {folder}"
    for problem in parallel.run(check, sums.items(), label=label):
        changed |= problem
    if changed:
        name = min(changed)
        raise ValueError(
            f"'{folder}/{name}' is not as it was written: {changed[name]}. Earlier "
            "parts must stay as they are, because new parts continue them. Copy or "
            "download this part again."
        )
    return len(sums)


def _check_file(folder: str, entry: tuple[str, str]) -> dict[str, str]:
    """Return what is wrong with a file of a part, by its name. entry: name, sha256."""
    return find_changed_files(folder, dict([entry]))
