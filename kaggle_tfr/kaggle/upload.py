"""Kaggle's own command-line client, read closely: it ends with code 0 when the server refuses."""

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from kaggle_tfr.kaggle.metadata import (
    DATASET_FILE,
    KERNEL_FILE,
    OWNER,
    check_dataset,
    check_kernel,
    find_damage,
    find_missing_output,
    list_folders,
    list_upload,
    read_json,
)
from kaggle_tfr.storage import write_atomically

# What the client prints with exit code 0 although its work was not done.
_REFUSALS = (
    r"Kernel push error: (.*)",
    r"Dataset (?:version )?creation error: (.*)",
    r"The following are not valid (?:dataset|competition|kernel) sources and could not (.*)",
)


_GONE = ("404", "403", "Not Found", "Forbidden", "was denied")


class KaggleError(RuntimeError):
    """The client or the server refused; the message says what was asked and what came back."""


class MissingError(KaggleError):
    """The kernel or dataset does not exist, or is somebody else's and private."""


def call(*arguments: str) -> str:
    """What `kaggle …` printed, when it did all that it was asked.

    Raises:
        ImportError: the client is not installed.
        MissingError: there is no such kernel or dataset.
        KaggleError: it failed, or reported a refusal while it ended with code 0.
    """
    command = [sys.executable, "-m", "kaggle", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    said = f"{done.stdout.strip()}\n{_last_lines(done.stderr)}".strip()
    asked = " ".join(["kaggle", *arguments])
    if done.returncode and "No module named" in done.stderr:
        raise ImportError(
            f"Kaggle's client cannot be started: {_last_lines(done.stderr, 1)}. "
            'Run: pip install "kaggle-tfr[kaggle]"'
        )
    if done.returncode:
        kind = MissingError if any(word in said for word in _GONE) else KaggleError
        raise kind(f"`{asked}` failed: {said or f'exit code {done.returncode}'}")
    for pattern in _REFUSALS:
        found = re.search(pattern, done.stdout)
        if found:
            raise KaggleError(f"`{asked}` was refused: {found.group(0).strip()}")
    return done.stdout


def username() -> str:
    """The Kaggle user whose key the client uses.

    Raises:
        KaggleError: no key is set up.
    """
    found = re.search(r"username: (\S+)", call("config", "view"))
    if not found or found.group(1) == "None":
        raise KaggleError(
            "Kaggle's client knows no user. Put kaggle.json, from your account's settings, into "
            "~/.kaggle/, or set KAGGLE_USERNAME and KAGGLE_KEY."
        )
    return found.group(1)


def _last_lines(text: str, count: int = 5) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return "\n".join(line for line in lines[-count:] if "B/s]" not in line)


ENDED = ("complete", "error", "cancel_acknowledged")


PATIENCE = 5  # questions in a row that may fail before a kernel is given up


@dataclass
class _Kernel:
    """A kernel's folder and how far it is.

    state: waiting → running → finished, or unfinished, failed, refused, unknown.
    """

    folder: str
    metadata: dict
    digest: str
    output: str
    state: str = "waiting"
    version: int = 0
    problem: str = ""
    said: str = ""
    unanswered: int = 0
    after: list = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.metadata["id"]

    def note(self) -> None:
        text = json.dumps({"digest": self.digest, "state": self.state, "version": self.version})
        os.makedirs(os.path.dirname(self.output) or ".", exist_ok=True)
        Path(self.output + ".json").write_text(text + "\n", encoding="utf-8")


def push_kernels(
    folders: Sequence[str],
    output: str,
    *,
    at_once: int = 3,
    poll_seconds: float = 60,
    say: Callable[[str], None] = print,
) -> pd.DataFrame:
    """One row a kernel, with its state and problem, after all have ended or failed.

    What is finished is not pushed again, what still runs is only waited for, and what ended
    before its time goes on from its own output. Interrupted, the same call continues.
    output: the folder for the kernels' outputs, one folder each, and notes of how far they are.

    Raises:
        ValueError, FileNotFoundError: a kernel would not do on Kaggle; nothing was pushed.
    """
    owner = username()
    kernels = [_open_kernel(folder, owner, output) for folder in folders]
    names = {kernel.name: kernel for kernel in kernels}
    for kernel in kernels:
        sources = kernel.metadata.get("kernel_sources", [])
        kernel.after = [names[name] for name in sources if name in names and name != kernel.name]
    for kernel in kernels:
        if kernel.state != "waiting":
            say(f"{kernel.name}: {kernel.state} already, not pushed again")
    while True:
        _push_ready(kernels, at_once, say)
        running = [kernel for kernel in kernels if kernel.state == "running"]
        if not running:
            break
        for kernel in running:
            _poll_kernel(kernel, say)
        if any(kernel.state == "running" for kernel in running):
            time.sleep(poll_seconds)
    for kernel in kernels:
        if kernel.state == "waiting":
            missing = ", ".join(other.name for other in kernel.after if other.state != "finished")
            kernel.problem = kernel.problem or f"not pushed: it needs the output of {missing}"
    columns = ["name", "state", "version", "problem", "output"]
    return pd.DataFrame([[getattr(k, c) for c in columns] for k in kernels], columns=columns)


def _open_kernel(folder: str, owner: str, output: str) -> _Kernel:
    """The kernel of a folder, under the user's name, as far as an earlier call brought it."""
    text = json.dumps(check_kernel(folder)).replace(f'"{OWNER}/', f'"{owner}/')
    metadata = json.loads(text)
    code = Path(folder, metadata["code_file"]).read_bytes()
    digest = hashlib.sha256(text.encode() + code).hexdigest()
    slug = metadata["id"].partition("/")[2]
    kernel = _Kernel(folder, metadata, digest, os.path.join(output, slug))
    if os.path.exists(kernel.output + ".json"):
        before = read_json(output, f"{slug}.json")
        if before.get("digest") == digest and before["state"] in ("running", "finished"):
            kernel.state, kernel.version = before["state"], before["version"]
        elif before.get("digest") == digest and before["state"] == "unfinished":
            metadata["kernel_sources"] = [*metadata.get("kernel_sources", []), metadata["id"]]
    if kernel.state == "finished" and find_missing_output(kernel.output):
        kernel.state = "running"  # its output is fetched again
    return kernel


def _push_ready(kernels: Sequence[_Kernel], at_once: int, say: Callable) -> None:
    for kernel in kernels:
        ready = all(other.state == "finished" for other in kernel.after)
        busy = sum(other.state == "running" for other in kernels)
        if kernel.state != "waiting" or not ready or busy >= at_once:
            continue
        problem = _compare_parts(kernel, kernels)
        if problem:
            kernel.state, kernel.problem = "refused", problem
            continue
        try:
            said = _push_kernel(kernel)
        except KaggleError as error:
            kernel.state, kernel.problem = "refused", str(error)
        else:
            version = re.search(r"version (\d+)", said)
            kernel.state, kernel.version = "running", int(version.group(1)) if version else 0
            kernel.note()
        say(f"{kernel.name}: {kernel.problem or f'version {kernel.version} pushed'}")


def _push_kernel(kernel: _Kernel) -> str:
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, kernel.metadata["code_file"])
        code.parent.mkdir(parents=True, exist_ok=True)
        code.write_bytes(Path(kernel.folder, kernel.metadata["code_file"]).read_bytes())
        Path(folder, KERNEL_FILE).write_text(json.dumps(kernel.metadata), encoding="utf-8")
        return call("kernels", "push", "-p", folder)


def _compare_parts(kernel: _Kernel, kernels: Sequence[_Kernel]) -> str:
    """Why the kernels that write do not fit the plan that was made for them; "" when they do."""
    for planner in kernel.after:
        if not os.path.exists(os.path.join(planner.output, "plan.json")):
            continue
        planned = read_json(planner.output, "plan.json").get("n_parts")
        made = sum(planner in other.after for other in kernels)
        if planned != made:
            return (
                f"the plan has {planned} parts and {made} kernels would write them. Make the "
                f"folders again with --parts {planned}; the planning kernel need not run again."
            )
    return ""


def _poll_kernel(kernel: _Kernel, say: Callable) -> None:
    """Asks for the kernel's state, and fetches its output when it has ended."""
    try:
        said = call("kernels", "status", kernel.name)
        found = re.search(r'has status "(?:\w+\.)?(\w+)"', said)
        status = found.group(1).lower() if found else "unknown"
        if status != kernel.said:
            say(f"{kernel.name}: {status.replace('_', ' ')}")
        kernel.said = status
        if status in ENDED:
            call("kernels", "output", kernel.name, "-p", kernel.output)
            _close_kernel(kernel, status, said, say)
        kernel.unanswered = 0
    except KaggleError as error:
        # A session goes on while the network is away; only for good is it given up.
        kernel.unanswered += 1
        if kernel.unanswered >= PATIENCE:
            kernel.state, kernel.problem = "unknown", f"{error} (push again to look again)"


def _close_kernel(kernel: _Kernel, status: str, said: str, say: Callable) -> None:
    if status != "complete":
        message = re.search(r'Failure message: "(.*)"', said, re.DOTALL)
        slug = kernel.name.partition("/")[2]
        reason = message.group(1) if message else status.replace("_", " ")
        kernel.problem = f"{reason} (the log: {os.path.join(kernel.output, slug)}.log)"
        kernel.state = "failed"
    else:
        if "damaged" in find_missing_output(kernel.output):
            call("kernels", "output", kernel.name, "-p", kernel.output, "--force")
        kernel.problem = find_missing_output(kernel.output)
        kernel.state = "unfinished" if kernel.problem else "finished"
    kernel.note()
    say(f"{kernel.name}: {kernel.state}{': ' + kernel.problem if kernel.problem else ''}")


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
            state = _send_dataset(folder, name, notes, public=public, dir_mode=dir_mode)
            if state != "there already":
                replaced = state == "new version"
                found = _await_dataset(folder, name, poll_seconds, wait_seconds, replaced=replaced)
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


def _send_dataset(folder: str, name: str, notes: str, *, public: bool, dir_mode: str) -> str:
    """Sends the files, unless they are there; says what was done."""
    exists = _dataset_status(name) != ""
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


def _dataset_status(name: str) -> str:
    """The dataset's status, "" when there is none of that name."""
    try:
        return call("datasets", "status", name).strip().lower()
    except MissingError:
        return ""


def _await_dataset(
    folder: str, name: str, poll_seconds: float, wait_seconds: float, *, replaced: bool
) -> list[str]:
    """What still sets the dataset apart once Kaggle has taken the files in; [] is as it should."""
    until = time.monotonic() + wait_seconds
    while True:
        status = _dataset_status(name)
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
