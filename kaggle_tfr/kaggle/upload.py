"""Kaggle's own client, its answers read closely: it takes a server's refusal for a success."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr.kaggle import metadata as rules
from kaggle_tfr.kaggle.metadata import DATASET_FILE, KERNEL_FILE, check_metadata
from kaggle_tfr.mounts import MISSING_INPUT, OWNER_PLACEHOLDER
from kaggle_tfr.shards import SUMS, check_one_plan, read_fingerprint
from kaggle_tfr.storage import (
    PART_LEVELS,
    explain_os_errors,
    read_text,
    remove_leftovers,
    write_atomically,
)

MAX_UNANSWERED = 5  # status requests in a row that may fail before a kernel is given up
MAX_WAIT_SECONDS = 1800  # for Kaggle to take a dataset's files in


class KaggleError(RuntimeError):
    """The client or the server refused; the message says what was asked and what came back."""


def call(method: str, name: str, *arguments: Any, **options: Any) -> Any:
    """What this method of Kaggle's client answers about a kernel, a dataset or a folder.

    The status of a dataset that does not exist, or is private and somebody else's, is "".
    Raises: KaggleError: refused.
    """
    from kaggle import api

    try:
        answer = getattr(api, method)(name, *arguments, **options)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the client raises unrelated classes
        code = getattr(getattr(error, "response", None), "status_code", 0)
        if method == "dataset_status" and code in (403, 404):
            return ""
        raise KaggleError(
            f"{method} of '{name}' failed: {error or type(error).__name__}"
        ) from None
    wrong = getattr(answer, "error", "")
    for source in ("dataset", "competition", "kernel", "model"):
        if names := getattr(answer, f"invalid_{source}_sources", ()):
            wrong = f"there is no {source} source {', '.join(names)}"
    if wrong:
        raise KaggleError(f"{method} of '{name}' was refused: {wrong}")
    return answer


def username() -> str:
    """The Kaggle user whose key the client uses.
    Raises: ImportError: no client. KaggleError: no key is set up.
    """
    try:
        with (
            suppress(SystemExit),
            redirect_stdout(io.StringIO()),
        ):  # its help, when there is no key
            from kaggle import api

            api.authenticate()
    except ImportError as error:
        mend = 'Run: pip install "kaggle-tfr[kaggle]"'
        raise ImportError(
            f"Kaggle's client cannot be started: {error}. {mend}"
        ) from None
    if not (name := api.config_values.get("username")):
        mend = "Run `kaggle auth login`, or set KAGGLE_USERNAME and KAGGLE_KEY."
        raise KaggleError(f"Kaggle's client knows no user. {mend}")
    return name


@dataclass(eq=False)
class _Kernel:
    """State: waiting → running → finished, or unfinished, failed, refused, unknown."""

    name: str
    metadata: dict[str, Any]
    digest: str
    output: str
    state: str = "waiting"
    version: int = 0
    problem: str = ""
    status: str = ""
    unanswered: int = 0
    again: bool = (
        False  # pushed once more, since the first session saw none of its inputs
    )
    after: list["_Kernel"] = field(default_factory=list)

    def save(self) -> None:
        text = json.dumps(
            {name: getattr(self, name) for name in ("digest", "state", "version")}
        )
        write_atomically(f"{self.output}.json", f"{text}\n".encode())


def push_kernels(
    folders: Sequence[str], output: str, *, at_once: int = 3, poll_seconds: float = 60
) -> pd.DataFrame:
    """One row a kernel, with its state and problem, after all have ended or failed.

    Finished kernels are not pushed again, running ones only waited for, unfinished ones go on from
    their own output: the same call continues after an interruption. output: for their outputs.
    Raises: ValueError, FileNotFoundError: a kernel would not do on Kaggle; nothing was pushed.
    """
    owner = username()
    kernels = [_open_kernel(folder, owner, output) for folder in folders]
    for kernel in kernels:
        sources = kernel.metadata.get("kernel_sources") or []
        kernel.after = [
            other for other in kernels if other.name in sources and other is not kernel
        ]
        if kernel.state != "waiting":
            print(f"{kernel.name}: {kernel.state} already, not pushed again")
    while True:
        _push_ready(kernels, at_once)
        if not (running := [kernel for kernel in kernels if kernel.state == "running"]):
            break
        for kernel in running:
            _poll_kernel(kernel)
        if any(kernel.state == "running" for kernel in running):
            time.sleep(poll_seconds)
    for kernel in (kernel for kernel in kernels if kernel.state == "waiting"):
        missing = ", ".join(
            other.name for other in kernel.after if other.state != "finished"
        )
        kernel.problem = f"not pushed: it needs the output of {missing}"
    columns = ["name", "state", "version", "problem", "output"]
    return pd.DataFrame([vars(kernel) for kernel in kernels], columns=columns)


def _open_kernel(folder: str, owner: str, output: str) -> _Kernel:
    """The kernel of a folder, under the user's name, as far as an earlier call brought it."""
    text = json.dumps(check_metadata(folder, KERNEL_FILE)).replace(
        f'"{OWNER_PLACEHOLDER}/', f'"{owner}/'
    )
    metadata = json.loads(text)
    name, code = metadata["id"], Path(folder, metadata["code_file"]).resolve()
    metadata["code_file"] = str(code)
    digest = hashlib.sha256(text.encode() + code.read_bytes()).hexdigest()
    kernel = _Kernel(name, metadata, digest, os.path.join(output, Path(name).name))
    before = _read_state(f"{kernel.output}.json")
    state = before["state"] if before["digest"] == digest else ""
    if state in ("running", "finished"):
        kernel.state, kernel.version = state, before["version"]
    elif state == "unfinished":
        metadata["kernel_sources"] = [*(metadata.get("kernel_sources") or []), name]
    if kernel.state == "finished" and rules.find_missing_output(kernel.output):
        kernel.state = "running"  # its output is fetched again
    return kernel


def _read_state(path: str) -> dict[str, Any]:
    """Digest, state and version as `_Kernel.save` has left them; a damaged file tells nothing."""
    state = {"digest": "", "state": "", "version": 0}
    with suppress(ValueError, TypeError, RecursionError):
        found = dict(json.loads(read_text(path)))
        if all(
            isinstance(found.get(name), type(value)) for name, value in state.items()
        ):
            return found
    return state


def _push_ready(kernels: Sequence[_Kernel], at_once: int) -> None:
    """Pushes the kernels whose sources are there, as long as no more than `at_once` run."""
    for kernel in kernels:
        ready = all(other.state == "finished" for other in kernel.after)
        busy = sum(other.state == "running" for other in kernels)
        if kernel.state != "waiting" or not ready or busy >= at_once:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, KERNEL_FILE).write_text(
                    json.dumps(kernel.metadata), encoding="utf-8"
                )
                kernel.version = call("kernels_push", folder).version_number or 0
            kernel.state = "running"
            kernel.save()
        except KaggleError as error:
            kernel.state, kernel.problem = "refused", str(error)
        print(f"{kernel.name}: {kernel.problem or f'version {kernel.version} pushed'}")


def _poll_kernel(kernel: _Kernel) -> None:
    """Asks for the kernel's status, and fetches its output when it has ended."""
    try:
        answer = call("kernels_status", kernel.name)
        before, kernel.status = (
            kernel.status,
            answer.status.name.lower().replace("_", " "),
        )
        if kernel.status != before:
            print(f"{kernel.name}: {kernel.status}")
        if kernel.status in ("complete", "error", "cancel acknowledged"):
            call("kernels_output", kernel.name, kernel.output, page_size=200)
            kernel.problem = rules.find_missing_output(kernel.output)
            if "damaged" in kernel.problem:
                call(
                    "kernels_output",
                    kernel.name,
                    kernel.output,
                    force=True,
                    page_size=200,
                )
                kernel.problem = rules.find_missing_output(kernel.output)
            kernel.state = "unfinished" if kernel.problem else "finished"
            if kernel.status != "complete":
                log = os.path.join(
                    kernel.output, os.path.basename(kernel.output) + ".log"
                )
                kernel.problem = (
                    f"{answer.failure_message or kernel.status} (the log: {log})"
                )
                kernel.state = "failed"
                # Just attached, it may not be there yet. Source: Kaggle/kaggle-cli, issue 1140.
                if not kernel.again and MISSING_INPUT in read_text(log):
                    print(
                        f"{kernel.name}: its input was not there yet, so it is pushed once more"
                    )
                    kernel.again, kernel.state, kernel.problem = True, "waiting", ""
            kernel.save()
            print(
                f"{kernel.name}: {kernel.state}{kernel.problem and f': {kernel.problem}'}"
            )
        kernel.unanswered = 0
    except KaggleError as error:
        # A session goes on while the network is away, so one failed request says nothing of it.
        kernel.unanswered += 1
        if kernel.unanswered >= MAX_UNANSWERED:
            kernel.state, kernel.problem = (
                "unknown",
                f"{error} (push again to ask again)",
            )


def publish_parts(
    folders: Sequence[str],
    *,
    notes: str = "",
    public: bool = False,
    poll_seconds: float = 20,
) -> pd.DataFrame:
    """One row a dataset: created, a new version, or there already; and its problem.

    A dataset with the same files is left alone, so the same call continues after an interruption.
    notes: what a new version says; without them an existing dataset is not touched.
    Raises: ValueError, FileNotFoundError: a part would not do on Kaggle; nothing was sent.
    """
    rows, parts = [], _check_parts(folders, username())
    for name, folder in parts.items():
        state, problem = "not sent", ""
        try:
            exists = call("dataset_status", name) != ""
            with _stage(folder, name) as staged:
                if exists and not _differences(folder, name, staged):
                    state = "there already"
                elif exists and not notes:
                    mend = f"give --notes; to keep them, change {DATASET_FILE}'s id and title."
                    problem = f"the dataset exists and holds other files. To replace them {mend}"
                else:
                    method = (
                        "dataset_create_version" if exists else "dataset_create_new"
                    )
                    call(
                        method,
                        staged,
                        notes if exists else public,
                        convert_to_csv=False,
                    )
                    state = "new version" if exists else "created"
                    if wrong := _wait(folder, name, staged, poll_seconds, exists):
                        state, problem = (
                            "incomplete",
                            f"{wrong}. Publish again with --notes.",
                        )
        except KaggleError as error:
            problem = f"{error}. Publish again: it goes on where it stopped."
        print(f"{name}: {state}{problem and f': {problem}'}")
        rows.append([name, state, problem, folder])
    return pd.DataFrame(rows, columns=["name", "state", "problem", "folder"])


def _check_parts(folders: Sequence[str], owner: str) -> dict[str, str]:
    """The folder by its dataset's name, the user's in it; all checked."""
    names: dict[str, str] = {}
    plans: dict[
        str, dict[str, str]
    ] = {}  # fingerprints by the dataset's NAME, then by the folder
    for folder in folders:
        remove_leftovers(folder, PART_LEVELS)
        with explain_os_errors(folder):
            values, damage = (
                check_metadata(folder, DATASET_FILE),
                rules.find_damage(folder),
            )
        if damage:
            raise ValueError(
                f"'{folder}' is damaged: {damage}. Run 04_write again; it mends that."
            )
        if (
            name := values["id"].replace(f"{OWNER_PLACEHOLDER}/", f"{owner}/")
        ) in names:
            raise ValueError(
                f"'{names[name]}' and '{folder}' have the same id, {name}."
            )
        names[name] = folder
        labels = json.loads(read_text(f"{folder}/labels.json") or "{}")
        plans.setdefault(labels.get("name", ""), {})[folder] = read_fingerprint(folder)
    for fingerprints in plans.values():
        advice = "Write the older one again, or publish the two by a call each."
        check_one_plan(fingerprints, advice=advice)
    return names


@contextmanager
def _stage(folder: str, name: str) -> Iterator[str]:
    """A folder of what the client is to send: links to the files, an archive of each folder.

    It is the same at each call, in place, names, bytes and times: by these the client knows what it
    has sent, and goes on where an upload broke off.
    """
    place = Path.home() / ".cache" / "kaggle-tfr" / name
    shutil.rmtree(place, ignore_errors=True)  # of a call that was killed
    place.mkdir(parents=True)
    try:
        for path in rules.list_upload(folder):
            if path.is_file():
                (place / path.name).symlink_to(path.resolve())
                continue
            inside, packed = rules.list_inside(path), place / f"{path.name}.tar"
            with (
                explain_os_errors(packed),
                tarfile.open(packed, "w", dereference=True) as archive,
            ):
                for file in inside:
                    archive.add(file, file.relative_to(path))
            newest = max((file.stat().st_mtime for file in inside), default=0)
            os.utime(packed, (newest, newest))
        values = json.loads(read_text(f"{folder}/{DATASET_FILE}"))
        text = json.dumps(values | {"id": name})
        (place / DATASET_FILE).write_text(text, encoding="utf-8")
        yield str(place)
    finally:
        shutil.rmtree(place)


def _wait(
    folder: str, name: str, staged: str, poll_seconds: float, replaced: bool
) -> str:
    """What is wrong with the dataset once Kaggle has taken the files in; "" for nothing."""
    until = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        status = call("dataset_status", name)
        wrong = f"Kaggle says that the dataset is '{status}'"
        if not status:  # Source: Kaggle/kaggle-cli, issue 284
            wrong = "Kaggle has not made it, as when the quota of private datasets is exceeded"
        elif status == "ready":
            wrong = "; ".join(_differences(folder, name, staged))
        # An old version stays ready until the new one is.
        ended = status in ("failed", "deleted") or (status == "ready" and not replaced)
        if not wrong or ended or time.monotonic() > until:
            return wrong
        time.sleep(poll_seconds)


def _differences(folder: str, name: str, staged: str) -> list[str]:
    """How the dataset differs from what is sent: in names, in sizes, in the list of checksums."""
    there, here = _list_files(name), dict[str, int]()
    for path in rules.list_upload(staged):
        if path.suffix == ".tar" and path.name not in there:
            # Kaggle unpacks an archive in its own time; until then it is one file.
            with tarfile.open(path) as archive:
                here |= {f"{path.stem}/{file.name}": file.size for file in archive}
        else:
            here[path.name] = path.stat().st_size
    unequal = sorted({file for file, _ in here.items() ^ there.items()})
    listing = [file for file in here if file.rpartition("/")[2] == SUMS]
    if listing and not unequal:
        # Kaggle tells no checksums, but this file holds them all.
        with tempfile.TemporaryDirectory() as scratch:
            call("dataset_download_file", name, listing[0], scratch)
            # Client 2.2.4 leaves the file's folder out.
            sums = read_text(f"{scratch}/{listing[0]}") or read_text(
                f"{scratch}/{SUMS}"
            )
            if sums != read_text(f"{folder}/{SUMS}"):
                return [f"{SUMS} differs"]
    return [
        f"{f} has {here.get(f, 'no')} bytes here, {there.get(f, 'no')} there"
        for f in unequal
    ]


def _list_files(name: str, token: str = "") -> dict[str, int]:
    """Bytes by name of a dataset's files, from as many pages as there are."""
    answer = call("dataset_list_files", name, token, page_size=200)
    files = {file.name: file.total_bytes for file in answer.files or ()}
    return files | (
        _list_files(name, answer.next_page_token) if answer.next_page_token else {}
    )
