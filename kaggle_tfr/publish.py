"""Part folders as Kaggle datasets, and proof that what was sent has arrived."""

import csv
import io
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from kaggle_tfr.kaggle_client import KaggleError, MissingError, call, username
from kaggle_tfr.kaggle_folders import DATASET_FILE, find_damage, list_folders, list_upload
from kaggle_tfr.kaggle_rules import OWNER, check_dataset
from kaggle_tfr.storage import write_atomically

READY, FAILED = "ready", ("failed", "deleted")


def publish_parts(
    folders: Sequence[str],
    *,
    notes: str = "",
    public: bool = False,
    dir_mode: str = "tar",
    poll_seconds: float = 20,
    wait_seconds: float = 1800,
    say: Callable[[str], None] = print,
) -> pd.DataFrame:
    """One row a dataset: created, a new version, or there already; and its problem.

    A dataset that holds the same files already is left alone, so the same call continues after an
    interruption.
    notes: what a new version says; without them an existing dataset is not touched.
    dir_mode: "tar" or "zip": the archive as which a sub-folder is sent, for Kaggle to unpack. The
        client by itself would leave folders out without a word.

    Raises:
        ValueError, FileNotFoundError: a part would not do on Kaggle; nothing was sent.
    """
    owner, names = username(), {}
    for folder in folders:
        _set_owner(folder, owner)
        name = check_dataset(folder)["id"]
        if name in names:
            raise ValueError(f"'{names[name]}' and '{folder}' have the same id, {name}.")
        names[name] = folder
        damage = find_damage(folder) if os.path.exists(os.path.join(folder, "shards.csv")) else ""
        if damage:
            raise ValueError(f"'{folder}' is damaged: {damage}. Run 04_write again; it mends that.")
    rows = []
    for name, folder in names.items():
        state, problem = "not sent", ""
        try:
            state = _publish(folder, name, notes, public=public, dir_mode=dir_mode)
            if state != "there already":
                replaced = state == "new version"
                found = _settle(folder, name, poll_seconds, wait_seconds, replaced=replaced)
                if found:
                    state, problem = (
                        "incomplete",
                        f"{'; '.join(found)}. Publish again with --notes.",
                    )
        except KaggleError as error:
            problem = str(error)
        say(f"{name}: {state}{': ' + problem if problem else ''}")
        rows.append([name, state, problem, folder])
    return pd.DataFrame(rows, columns=["name", "state", "problem", "folder"])


def _set_owner(folder: str, owner: str) -> None:
    """Puts the user's name where the writer left room for it."""
    path = os.path.join(folder, DATASET_FILE)
    if not os.path.exists(path):
        return
    text = Path(path).read_text(encoding="utf-8")
    if f'"{OWNER}/' in text:
        write_atomically(path, text.replace(f'"{OWNER}/', f'"{owner}/').encode())


def _publish(folder: str, name: str, notes: str, *, public: bool, dir_mode: str) -> str:
    """Sends the files, unless they are there; says what was done."""
    exists = _status(name) != ""
    if exists and not _differences(folder, name):
        return "there already"
    if exists and not notes:
        raise KaggleError(
            f"the dataset {name} exists and holds other files. To replace them by a new version "
            "give --notes; to keep them, change the id and title in dataset-metadata.json."
        )
    what = ["-t", "-p", folder, "-r", dir_mode]
    if exists:
        said = call("datasets", "version", *what, "-m", notes)
    else:
        said = call("datasets", "create", *what, *(["--public"] if public else []))
    # Some versions of the client make the dataset all the same, without the file.
    lost = re.findall(r"Upload unsuccessful: (.*)", said)
    if lost:
        raise KaggleError(
            f"the upload of {', '.join(lost)} failed, and the dataset was made without. Publish "
            "again with --notes: a new version holds every file."
        )
    return "new version" if exists else "created"


def _status(name: str) -> str:
    """The dataset's status, "" when there is none of that name."""
    try:
        return call("datasets", "status", name).strip().lower()
    except MissingError:
        return ""


def _settle(
    folder: str, name: str, poll_seconds: float, wait_seconds: float, *, replaced: bool
) -> list[str]:
    """What still sets the dataset apart once Kaggle has taken the files in; [] is as it should."""
    until = time.monotonic() + wait_seconds
    while True:
        status = _status(name)
        if status in FAILED:
            return [f"Kaggle could not take the files in: the dataset is {status}"]
        waits = status != READY
        found = [f"it is still '{status}'"] if waits else _differences(folder, name)
        # An old version stays ready until the new one is.
        if not found or not (waits or replaced) or time.monotonic() > until:
            return found
        time.sleep(poll_seconds)


def _differences(folder: str, name: str) -> list[str]:
    """What sets the dataset apart from the folder: names, sizes, and the list of checksums."""
    local, there = list_upload(folder), _list_files(name)
    for inner in list_folders(folder):
        # Kaggle unpacks an archive in its own time; until then it is one file.
        archives = [f"{inner}.{kind}" for kind in ("zip", "tar") if f"{inner}.{kind}" in there]
        if archives:
            there.pop(archives[0])
            continue
        files = [path for path in Path(folder, inner).rglob("*") if path.is_file()]
        local |= {str(path.relative_to(folder)): path.stat().st_size for path in files}
    found = [f"{file} is missing there" for file in local if file not in there]
    found += [f"{file} is there and not here" for file in there if file not in local]
    found += [
        f"{file} has {there[file]:,} bytes there and {size:,} here"
        for file, size in local.items()
        if there.get(file, size) != size
    ]
    if not found and "shards.csv" in local:
        # Kaggle tells no checksums, but this file holds them all.
        with tempfile.TemporaryDirectory() as scratch:
            call("datasets", "download", name, "-f", "shards.csv", "-p", scratch)
            copy = Path(scratch, "shards.csv")
            if not copy.exists() or copy.read_bytes() != Path(folder, "shards.csv").read_bytes():
                found.append("shards.csv differs")
    return found


def _list_files(name: str) -> dict[str, int]:
    said = call("datasets", "files", name, "--csv", "--page-size", "200")
    start = said.find("name,size")
    if start < 0:
        return {}
    rows = csv.DictReader(io.StringIO(said[start:]))
    return {row["name"]: int(row["size"]) for row in rows}
