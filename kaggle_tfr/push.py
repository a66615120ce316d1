"""Kernels pushed, watched and fetched: those that depend on others after them, a few at a time."""

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from kaggle_tfr.kaggle_client import KaggleError, call, username
from kaggle_tfr.kaggle_folders import KERNEL_FILE, find_lack, read_json
from kaggle_tfr.kaggle_rules import OWNER, check_kernel

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
    kernels = [_open(folder, owner, output) for folder in folders]
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
            _look(kernel, say)
        if any(kernel.state == "running" for kernel in running):
            time.sleep(poll_seconds)
    for kernel in kernels:
        if kernel.state == "waiting":
            missing = ", ".join(other.name for other in kernel.after if other.state != "finished")
            kernel.problem = kernel.problem or f"not pushed: it needs the output of {missing}"
    columns = ["name", "state", "version", "problem", "output"]
    return pd.DataFrame([[getattr(k, c) for c in columns] for k in kernels], columns=columns)


def _open(folder: str, owner: str, output: str) -> _Kernel:
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
    if kernel.state == "finished" and find_lack(kernel.output):
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
            said = _push(kernel)
        except KaggleError as error:
            kernel.state, kernel.problem = "refused", str(error)
        else:
            version = re.search(r"version (\d+)", said)
            kernel.state, kernel.version = "running", int(version.group(1)) if version else 0
            kernel.note()
        say(f"{kernel.name}: {kernel.problem or f'version {kernel.version} pushed'}")


def _push(kernel: _Kernel) -> str:
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


def _look(kernel: _Kernel, say: Callable) -> None:
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
            _close(kernel, status, said, say)
        kernel.unanswered = 0
    except KaggleError as error:
        # A session goes on while the network is away; only for good is it given up.
        kernel.unanswered += 1
        if kernel.unanswered >= PATIENCE:
            kernel.state, kernel.problem = "unknown", f"{error} (push again to look again)"


def _close(kernel: _Kernel, status: str, said: str, say: Callable) -> None:
    if status != "complete":
        message = re.search(r'Failure message: "(.*)"', said, re.DOTALL)
        slug = kernel.name.partition("/")[2]
        reason = message.group(1) if message else status.replace("_", " ")
        kernel.problem = f"{reason} (the log: {os.path.join(kernel.output, slug)}.log)"
        kernel.state = "failed"
    else:
        if "damaged" in find_lack(kernel.output):
            call("kernels", "output", kernel.name, "-p", kernel.output, "--force")
        kernel.problem = find_lack(kernel.output)
        kernel.state = "unfinished" if kernel.problem else "finished"
    kernel.note()
    say(f"{kernel.name}: {kernel.state}{': ' + kernel.problem if kernel.problem else ''}")
