"""What has come from Kaggle or is to go there, held against its own list of checksums."""

import csv
import hashlib
import os
import shutil
from pathlib import Path


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
