"""Folders that go to Kaggle or have come from there: what they hold, and whether it is whole."""

import csv
import hashlib
import json
import os
import shutil
from pathlib import Path

KERNEL_FILE, DATASET_FILE = "kernel-metadata.json", "dataset-metadata.json"
# Never uploaded as data: the client takes them for itself.
_CLIENTS_OWN = (DATASET_FILE, KERNEL_FILE, "dataset-cover-image.png", "dataset-cover-image.jpg")


def read_json(folder: str, name: str) -> dict:
    """The metadata in a folder.

    Raises:
        FileNotFoundError, ValueError: it is missing, or no JSON object.
    """
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {name} in '{folder}'.") from None
    except ValueError as error:
        raise ValueError(f"'{path}' is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"'{path}' is no JSON object.")
    return values


def list_kernels(folder: str) -> list[str]:
    """The folder itself, when it is a kernel's, else the kernels' folders in it.

    Raises:
        FileNotFoundError: there is none.
    """
    if os.path.exists(os.path.join(folder, KERNEL_FILE)):
        return [folder]
    found = sorted(str(path.parent) for path in Path(folder).glob(f"*/{KERNEL_FILE}"))
    if not found:
        raise FileNotFoundError(
            f"'{folder}' holds no kernel. Make some: python -m kaggle_tfr kernel RECIPE --out DIR"
        )
    return found


def list_upload(folder: str) -> dict[str, int]:
    """Bytes by name of every file of a folder that becomes part of the dataset."""
    with os.scandir(folder) as entries:
        files = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    return {name: size for name, size in sorted(files.items()) if name not in _CLIENTS_OWN}


def list_folders(folder: str) -> list[str]:
    """Names of the folders in a folder."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def find_damage(part_dir: str) -> str:
    """The first file that is not as the part's shards.csv says; "" when all are."""
    with open(os.path.join(part_dir, "shards.csv"), encoding="utf-8", newline="") as listing:
        rows = list(csv.DictReader(listing))
    for row in rows:
        path = os.path.join(part_dir, row["file"])
        if not os.path.exists(path):
            return f"{row['file']} is missing"
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != row["sha256"]:
                return f"{row['file']} has another sha256 than shards.csv says"
    return ""


def find_lack(output: str) -> str:
    """What a kernel's output lacks of a finished plan or part; "" for nothing."""
    root = Path(output)
    parts = sorted(path for path in root.glob("part-*") if path.is_dir())
    for part in parts:
        if not (part / "shards.csv").exists():
            return f"{part.name} is not finished; push again, and it goes on where it stopped"
        damage = find_damage(str(part))
        if damage:
            return f"{part.name} arrived damaged: {damage}"
        shutil.rmtree(part / "journal", ignore_errors=True)  # of a version that went before
    if not parts and not (root / "plan.json").exists():
        return "it left neither a plan nor a part"
    return ""
