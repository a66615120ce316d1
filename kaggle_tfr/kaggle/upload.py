"""Push kernels and publish parts; Kaggle's client reports some errors as success."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr.find import MISSING_INPUT, OWNER_PLACEHOLDER
from kaggle_tfr.kaggle.metadata import (
    DATASET_FILE,
    KERNEL_FILE,
    check_metadata,
    find_damage,
    find_missing_output,
    list_inside,
    list_upload,
)
from kaggle_tfr.shards import SUMS
from kaggle_tfr.storage import (
    explain_os_errors,
    parse_json,
    read_text,
    remove_leftovers,
    write_atomically,
)

POLL_SECONDS = 30  # between two requests for a status
MAX_FAILED_REQUESTS = 5  # in a row, before a running kernel counts as failed
MAX_WAIT_SECONDS = 1800  # for Kaggle to process the files of a dataset


class KaggleError(RuntimeError):
    """The client or the server rejected a request; the message has both."""


def call(method: str, name: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of Kaggle's client for a kernel, dataset or folder.

    The status of a dataset that does not exist, or is private and somebody else's, is
    "".
    Raises: KaggleError: the request was rejected.
    """
    from kaggle import api

    try:
        answer = getattr(api, method)(name, *arguments, **options)
    # The client raises unrelated classes.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        response = getattr(error, "response", None)
        is_missing = getattr(response, "status_code", 0) in (403, 404)
        if method == "dataset_status" and is_missing:
            return ""
        raise KaggleError(
            f"{method} of '{name}' failed: {str(error) or type(error).__name__}. "
            "Run the same command again: it resumes where it stopped."
        ) from None
    if problem := _find_rejection(answer):
        raise KaggleError(f"{method} of '{name}' was rejected: {problem}")
    return answer


def _find_rejection(answer: Any) -> str:
    """Return why the server rejected a request that it answered with success, or ""."""
    for source in ("dataset", "competition", "kernel", "model"):
        if names := getattr(answer, f"invalid_{source}_sources", ()):
            return f"there is no {source} source {', '.join(names)}"
    return getattr(answer, "error", "")


def get_username() -> str:
    """Return the Kaggle user whose key the client uses.

    Raises: ImportError: the client is not installed. KaggleError: there is no key.
    """
    try:
        # Without a key the client prints its help and exits.
        with suppress(SystemExit), redirect_stdout(io.StringIO()):
            from kaggle import api

            api.authenticate()
    except ImportError as error:
        raise ImportError(
            f"Kaggle's client cannot be started: {error}. Run: pip install "
            '"kaggle-tfr[kaggle]"'
        ) from None
    name = api.config_values.get("username")
    if not name:
        raise KaggleError(
            "Kaggle's client knows no user. Run `kaggle auth login`, or set "
            "KAGGLE_USERNAME and KAGGLE_KEY."
        )
    return name


@dataclass(eq=False)
class _Kernel:
    """A kernel to push.

    digest: of its metadata and code. output: the folder for its output.
    state: waiting → running → finished, unfinished or failed.
    """

    name: str
    metadata: dict[str, Any]
    digest: str
    output: str
    state: str = "waiting"
    problem: str = ""
    status: str = ""
    failed_requests: int = 0
    is_second_push: bool = False

    @property
    def sources(self) -> list[str]:
        """Return the names of the kernels whose output it needs."""
        return self.metadata.get("kernel_sources") or []

    def fail(self, problem: str) -> None:
        """Set the state of a kernel without usable output."""
        self.state = "failed"
        self.problem = problem
        print(f"{self.name}: failed: {problem}")

    def save(self) -> None:
        """Save what the next call needs to resume."""
        state = {"digest": self.digest, "state": self.state}
        write_atomically(f"{self.output}.json", f"{json.dumps(state)}\n".encode())


def push_kernels(
    folders: Sequence[str], output: str, *, at_once: int = 3
) -> pd.DataFrame:
    """Push kernels and fetch their output; return each kernel's state and problem.

    The same call resumes after an interruption: finished kernels are not pushed again,
    running ones are waited for, unfinished ones continue from their own output.
    output: the folder for their outputs.
    Raises: ValueError, FileNotFoundError: Kaggle would reject a kernel; nothing was
    pushed.
    """
    username = get_username()
    kernels = [_open_kernel(folder, username, output) for folder in folders]
    _push_ready(kernels, at_once)
    while running := _list_running(kernels):
        for kernel in running:
            _poll_kernel(kernel)
        if _list_running(running):
            time.sleep(POLL_SECONDS)
        _push_ready(kernels, at_once)

    columns = ["name", "state", "problem", "output"]
    return pd.DataFrame([vars(kernel) for kernel in kernels], columns=columns)


def _list_running(kernels: Sequence[_Kernel]) -> list[_Kernel]:
    return [kernel for kernel in kernels if kernel.state == "running"]


def _list_unfinished(kernel: _Kernel, kernels: Sequence[_Kernel]) -> list[str]:
    """Return the kernels of the same call whose output it needs and does not have."""
    return [
        other.name
        for other in kernels
        if other.name in kernel.sources
        and other is not kernel
        and other.state != "finished"
    ]


def _open_kernel(folder: str, username: str, output: str) -> _Kernel:
    """Return the kernel of a folder, in the state that an earlier call has saved."""
    metadata = _read_metadata(folder, username)
    name = metadata["id"]
    code = Path(folder, metadata["code_file"]).resolve()
    text = json.dumps(metadata).encode()
    digest = hashlib.sha256(text + code.read_bytes()).hexdigest()
    metadata["code_file"] = str(code)
    kernel = _Kernel(name, metadata, digest, os.path.join(output, Path(name).name))
    _resume(kernel)
    if kernel.state != "waiting":
        print(f"{name}: {kernel.state} already, not pushed again")
    return kernel


def _read_metadata(folder: str, username: str) -> dict[str, Any]:
    """Return a kernel's checked metadata, with the user as owner."""
    text = json.dumps(check_metadata(folder, KERNEL_FILE))
    return json.loads(text.replace(f'"{OWNER_PLACEHOLDER}/', f'"{username}/'))


def _resume(kernel: _Kernel) -> None:
    """Set the state that an earlier call has saved, if the kernel is still the same."""
    state = _read_state(kernel)
    if state == "finished" and find_missing_output(kernel.output):
        kernel.state = "running"  # its output is fetched again
    elif state in ("running", "finished"):
        kernel.state = state
    elif state == "unfinished":
        kernel.metadata["kernel_sources"] = [*kernel.sources, kernel.name]


def _read_state(kernel: _Kernel) -> str:
    """Return the saved state of a kernel with the same metadata and code, or ""."""
    path = f"{kernel.output}.json"
    saved: dict[str, Any] = {}
    with suppress(ValueError):  # a full disk or a user may have damaged the file
        saved = parse_json(read_text(path), path, "")
    return saved.get("state", "") if saved.get("digest") == kernel.digest else ""


def _push_ready(kernels: Sequence[_Kernel], at_once: int) -> None:
    """Push the kernels whose sources are finished, while fewer than `at_once` run."""
    for kernel in kernels:
        if kernel.state != "waiting":
            continue
        missing = _list_unfinished(kernel, kernels)
        if missing:
            names = ", ".join(missing)
            kernel.problem = f"not pushed: it needs the output of {names}"
        elif len(_list_running(kernels)) < at_once:
            _push(kernel)


def _push(kernel: _Kernel) -> None:
    """Push a kernel; it fails if Kaggle rejects it."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(kernel.metadata)
            Path(folder, KERNEL_FILE).write_text(text, encoding="utf-8")
            call("kernels_push", folder)
    except KaggleError as error:
        kernel.fail(str(error))
    else:
        kernel.state = "running"
        kernel.save()
        print(f"{kernel.name}: pushed")


def _poll_kernel(kernel: _Kernel) -> None:
    """Request the status of a running kernel; fetch its output when it has ended."""
    try:
        answer = call("kernels_status", kernel.name)
        status = answer.status.name.lower().replace("_", " ")
        if status != kernel.status:
            print(f"{kernel.name}: {status}")
        kernel.status = status
        if status in ("complete", "error", "cancel acknowledged"):
            _finish(kernel, answer.failure_message or status)
        kernel.failed_requests = 0
    except KaggleError as error:
        # A session continues while the network is down, so a few failures mean nothing.
        kernel.failed_requests += 1
        if kernel.failed_requests >= MAX_FAILED_REQUESTS:
            kernel.fail(str(error))


def _finish(kernel: _Kernel, reason: str) -> None:
    """Fetch the output of a kernel that has ended, and save its state.

    reason: why it has ended, if it has failed.
    """
    _fetch_output(kernel)
    if kernel.status != "complete":
        _handle_failure(kernel, reason)
    kernel.save()


def _fetch_output(kernel: _Kernel) -> None:
    """Download the output of a kernel that has ended, and set its state and problem."""
    # The client keeps a damaged file of the right size unless it is forced.
    for force in (False, True):
        call(
            "kernels_output",
            kernel.name,
            kernel.output,
            force=force,
            page_size=200,
        )
        kernel.problem = find_missing_output(kernel.output)
        if "damaged" not in kernel.problem:
            break
    kernel.state = "unfinished" if kernel.problem else "finished"
    print(f"{kernel.name}: {kernel.state} {kernel.problem}".strip())


def _handle_failure(kernel: _Kernel, reason: str) -> None:
    """Set the state of a kernel that has stopped with an error."""
    log = os.path.join(kernel.output, f"{os.path.basename(kernel.output)}.log")
    if MISSING_INPUT in read_text(log) and not kernel.is_second_push:
        # An input that was just attached may be missing. Source: Kaggle/kaggle-cli,
        # issue 1140.
        kernel.is_second_push = True
        kernel.state = "waiting"
    else:
        kernel.fail(f"{reason} (the log: {log})")


def publish_parts(
    folders: Sequence[str], *, notes: str = "", public: bool = False
) -> pd.DataFrame:
    """Upload each part as a dataset; return each dataset's state and problem.

    The same call resumes after an interruption. A dataset with equal files is not sent
    again.
    notes: what is new in a new version; without notes an existing dataset is not
    replaced.
    Raises: ValueError, FileNotFoundError: Kaggle would reject a part; nothing was sent.
    """
    rows = []
    for name, folder in _check_parts(folders, get_username()).items():
        problem = ""
        try:
            state = _publish_part(folder, name, notes=notes, public=public)
        except KaggleError as error:
            state = "failed"
            problem = str(error)
        print(f"{name}: {state} {problem}".strip())
        rows.append((name, state, problem, folder))
    return pd.DataFrame(rows, columns=["name", "state", "problem", "folder"])


def _publish_part(folder: str, name: str, *, notes: str, public: bool) -> str:
    """Upload one part; return the state of its dataset.

    Raises: KaggleError: the dataset does not have the files of the part.
    """
    is_new = not call("dataset_status", name)
    with _stage(folder, name) as staged:
        if is_new:
            call("dataset_create_new", staged, public, convert_to_csv=False)
        elif not _find_differences(name, staged):
            return "there already"
        elif not notes:
            raise KaggleError(
                "the dataset exists with other files. Give --notes to replace them; to "
                f"keep them, change id and title in {DATASET_FILE}."
            )
        else:
            call("dataset_create_version", staged, notes, convert_to_csv=False)
        _wait(name, staged, is_new=is_new)
    return "created" if is_new else "new version"


def _check_parts(folders: Sequence[str], username: str) -> dict[str, str]:
    """Check all parts; return their folders by the datasets' names."""
    parts: dict[str, str] = {}
    for folder in folders:
        owner_and_slug = _check_part(folder)
        name = owner_and_slug.replace(f"{OWNER_PLACEHOLDER}/", f"{username}/")
        if name in parts:
            raise ValueError(
                f"'{parts[name]}' and '{folder}' have the same id, {name}. Change one "
                f"in {DATASET_FILE}."
            )
        parts[name] = folder
    return parts


def _check_part(folder: str) -> str:
    """Remove the leftovers of a part and check it; return the id of its dataset."""
    remove_leftovers(folder)
    with explain_os_errors(folder):
        metadata = check_metadata(folder, DATASET_FILE)
        damage = find_damage(folder)
    if damage:
        raise ValueError(
            f"'{folder}' is damaged: {damage}. Run 04_write again to fix it."
        )
    return metadata["id"]


@contextmanager
def _stage(folder: str, name: str) -> Iterator[str]:
    """Yield a folder with links to a part's files, tars of its subfolders, metadata.

    name: of the dataset, "owner/slug". The path, and the data files' names, sizes and
    times, are equal in each call: the client identifies what it has sent by these, and
    resumes an interrupted upload.
    """
    staged = Path.home() / ".cache" / "kaggle-tfr" / name
    shutil.rmtree(staged, ignore_errors=True)  # of a call that was killed
    staged.mkdir(parents=True)
    try:
        _link_and_pack(folder, staged)
        metadata = json.loads(read_text(f"{folder}/{DATASET_FILE}"))
        text = json.dumps(metadata | {"id": name})
        (staged / DATASET_FILE).write_text(text, encoding="utf-8")
        yield str(staged)
    finally:
        shutil.rmtree(staged)


def _link_and_pack(folder: str, staged: Path) -> None:
    """Create the links to a part's files, and the tar of each subfolder."""
    for path in list_upload(folder):
        if path.is_file():
            (staged / path.name).symlink_to(path.resolve())
        else:
            _pack_folder(path, staged / f"{path.name}.tar")


def _pack_folder(folder: Path, archive: Path) -> None:
    files = list_inside(folder)
    with (
        explain_os_errors(archive),
        tarfile.open(archive, "w", dereference=True) as tar,
    ):
        for file in files:
            tar.add(file, file.relative_to(folder))
    newest = max(file.stat().st_mtime for file in files)
    os.utime(archive, (newest, newest))


def _wait(name: str, staged: str, *, is_new: bool) -> None:
    """Wait until Kaggle has processed the files.

    Raises: KaggleError: it failed, or took too long.
    """
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        status = call("dataset_status", name)
        # Without a status: is the quota exceeded? Source: Kaggle/kaggle-cli, issue 284
        problem = f"the dataset is '{status or 'missing (quota exceeded?)'}' on Kaggle"
        if status == "ready":
            problem = "; ".join(_find_differences(name, staged))
        if not problem:
            return
        # An old version stays ready until the new one is.
        has_ended = status in ("failed", "deleted") or (status == "ready" and is_new)
        if has_ended or time.monotonic() > deadline:
            raise KaggleError(f"{problem}. Publish again with --notes.")
        time.sleep(POLL_SECONDS)


def _find_differences(name: str, staged: str) -> list[str]:
    """Return how a dataset differs from the staged files: names, sizes, SHA256SUMS."""
    remote = _list_files(name)
    local = _list_staged(staged, remote)
    differences = [
        f"{file} has {local.get(file, 'no')} bytes here, {remote.get(file, 'no')} "
        "on Kaggle"
        for file in sorted(local.keys() | remote.keys())
        if local.get(file) != remote.get(file)
    ]
    # Kaggle reports no checksums, but this file contains all of them.
    if not differences and _download_sums(name) != read_text(f"{staged}/{SUMS}"):
        differences.append(f"{SUMS} differs")
    return differences


def _download_sums(name: str) -> str:
    """Return the text of a dataset's SHA256SUMS."""
    with tempfile.TemporaryDirectory() as folder:
        call("dataset_download_file", name, SUMS, folder)
        return read_text(f"{folder}/{SUMS}")


def _list_staged(staged: str, remote: Container[str]) -> dict[str, int]:
    """Return the bytes of the staged files by the names that they have on Kaggle.

    Kaggle unpacks an archive some time later; until then it is one of the remote files.
    """
    sizes: dict[str, int] = {}
    for path in list_upload(staged):
        if path.suffix == ".tar" and path.name not in remote:
            with tarfile.open(path) as tar:
                sizes |= {f"{path.stem}/{file.name}": file.size for file in tar}
        else:
            sizes[path.name] = path.stat().st_size
    return sizes


def _list_files(name: str) -> dict[str, int]:
    """Return the bytes of a dataset's files by name, from all pages."""
    sizes: dict[str, int] = {}
    token = ""
    while True:
        page = call("dataset_list_files", name, token, page_size=200)
        sizes |= {file.name: file.total_bytes for file in page.files or ()}
        token = page.next_page_token
        if not token:
            return sizes
