"""Push kernels and publish parts; Kaggle's client reports some errors as success."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr.kaggle.metadata import (
    DATASET_FILE,
    KERNEL_FILE,
    prepare_dataset,
    read_kernel,
)
from kaggle_tfr.shards import SUMS
from kaggle_tfr.storage import read_text, write_atomically

POLL_SECONDS = 30  # between two requests for a status
MAX_POLLS = 60  # until Kaggle has processed the files of a dataset


def call(method: str, name: str, *arguments: Any, **options: Any) -> Any:
    """Return the answer of Kaggle's client, which retries while the network is down.

    method: of the client, such as "kernels_push". name: of a kernel or dataset, or a
    folder: its first argument.
    Raises: FileNotFoundError: it is missing, or private and somebody else's.
    RuntimeError: the client or the server rejected the request.
    """
    from kaggle import api

    try:
        answer = api.with_retry(getattr(api, method))(name, *arguments, **options)
    except Exception as error:  # the client raises unrelated classes
        response = getattr(error, "response", None)
        is_missing = getattr(response, "status_code", 0) in (403, 404)
        error_type = FileNotFoundError if is_missing else RuntimeError
        raise error_type(f"{method} of '{name}' failed: {error}") from error
    # The server reports some errors in an answer with status 200.
    if problem := getattr(answer, "error", ""):
        raise RuntimeError(f"{method} of '{name}' was rejected: {problem}")
    return answer


def read_username() -> str:
    """Return the Kaggle user whose key the client uses.

    Raises: SystemExit: there is no key; the client has printed how to get one.
    ModuleNotFoundError: there is no client.
    """
    try:
        from kaggle import api
    except ModuleNotFoundError as error:
        error.msg += ': pip install "kaggle-tfr[kaggle]"'
        raise

    api.authenticate()
    return api.config_values["username"]


def push_kernels(
    folders: Sequence[str], output: str, *, at_once: int = 3
) -> pd.DataFrame:
    """Push kernels and fetch their output; return each kernel's state and problem.

    Columns: name ("owner/slug"); state: "finished", "unfinished" (push it again) or
    "failed"; problem: "" for none. A kernel is pushed after the kernels whose output it
    reads; if one of these does not finish, it is not pushed and has no row.
    The same call resumes after an interruption: finished kernels are not pushed again,
    running ones are waited for, unfinished ones continue from their own output.
    output: the folder for their outputs. at_once: sessions at a time.
    Raises: ValueError: a kernel's metadata is not JSON; nothing was pushed.
    """
    username = read_username()
    waiting = [read_kernel(folder, username) for folder in folders]
    unfinished = {kernel["id"] for kernel in waiting}
    rows: list[tuple[str, ...]] = []
    with ThreadPool(at_once) as threads:
        # Ready: none of its sources is an unfinished kernel, except itself.
        while ready := [
            kernel
            for kernel in waiting
            if unfinished & {*kernel.get("kernel_sources", [])} <= {kernel["id"]}
        ]:
            waiting = [kernel for kernel in waiting if kernel not in ready]
            rows += threads.map(partial(_run_kernel, output=output), ready)
            unfinished -= {name for name, state, _ in rows if state == "finished"}
    return pd.DataFrame(rows, columns=["name", "state", "problem"])


def _run_kernel(kernel: dict[str, Any], output: str) -> tuple[str, ...]:
    """Push a kernel and fetch its output; return its name, state and problem.

    kernel: of `read_kernel`. output: the folder around the outputs of all kernels.
    """
    name = kernel["id"]
    output = f"{output}/{Path(name).name}"
    state = "failed"
    try:
        state, problem = _finish_kernel(kernel, output)
    except (RuntimeError, OSError) as error:
        problem = str(error)
    print(f"{name}: {state} {problem}".strip())
    return name, state, problem


def _finish_kernel(kernel: dict[str, Any], output: str) -> tuple[str, str]:
    """Push a kernel and fetch its output, unless done; return its state and problem.

    A file in its output contains the state, and the digest of what was pushed: a kernel
    that has changed since is pushed again, and a finished one is left as it is.
    kernel: of `read_kernel`. output: the folder of its output.
    """
    digest = _digest(kernel)
    state_file = f"{output}/push.state"
    saved = read_text(state_file)
    if saved == f"finished {digest}":
        return "finished", ""

    if saved != f"pushed {digest}":
        sources = kernel.get("kernel_sources", [])
        # The next session continues from the output of the last one.
        if saved == f"unfinished {digest}":
            sources = [*sources, kernel["id"]]
        _push({**kernel, "kernel_sources": sources})
        shutil.rmtree(output, ignore_errors=True)
        # If this process ends now, the next call waits for the same session.
        write_atomically(state_file, f"pushed {digest}")
    state, problem = _fetch_output(kernel["id"], output)
    write_atomically(state_file, f"{state} {digest}")
    return state, problem


def _digest(kernel: dict[str, Any]) -> str:
    """Return the SHA-256 of a kernel's metadata and code, wherever its folder is.

    kernel: of `read_kernel`; code_file contains the path of the folder.
    """
    metadata = json.dumps({**kernel, "code_file": ""}).encode()
    return hashlib.sha256(metadata + Path(kernel["code_file"]).read_bytes()).hexdigest()


def _push(kernel: dict[str, Any]) -> None:
    """Push a kernel, which starts its session.

    kernel: of `read_kernel`, whose code_file is an absolute path.
    Raises: RuntimeError: Kaggle rejects it, or cannot attach one of its inputs.
    """
    # The client reads the metadata from a file.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, KERNEL_FILE).write_text(json.dumps(kernel), encoding="utf-8")
        answer = call("kernels_push", folder)
    missing = [
        *answer.invalid_competition_sources,
        *answer.invalid_dataset_sources,
        *answer.invalid_kernel_sources,
        *answer.invalid_model_sources,
    ]
    if missing:
        raise RuntimeError(f"Kaggle has no input {', '.join(missing)} for you")
    print(f"{kernel['id']}: pushed")


def _fetch_output(name: str, output: str) -> tuple[str, str]:
    """Wait for the end of a session, download its output; return state and problem.

    The state is "finished", "unfinished" (a part lacks shards) or "failed".
    name: of the kernel. output: the folder for its output.
    """
    while True:
        answer = call("kernels_status", name)
        if answer.status.name in ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED"):
            break
        time.sleep(POLL_SECONDS)
    call("kernels_output", name, output, page_size=200)
    if answer.status.name != "COMPLETE":
        return "failed", f"{answer.failure_message} (the log is in {output})"
    # A session without the time to write all shards leaves a part without this file.
    if all((part / "shards.csv").exists() for part in Path(output).glob("part-*/")):
        return "finished", ""
    return "unfinished", "push again to resume it"


def publish_parts(
    folders: Sequence[str], *, notes: str = "", public: bool = False
) -> pd.DataFrame:
    """Upload each part as a dataset; return the state of each dataset.

    Columns: name ("owner/slug"); state: "uploaded" or "there already"; problem: "" in
    each row, a column that the table of `push_kernels` has, too.
    The same call resumes after an interruption. A dataset with equal files is not sent
    again.
    notes: what is new in a new version; without notes an existing dataset is not
    replaced.
    Raises: ValueError: a part is damaged or has no license; nothing was sent.
    RuntimeError: a dataset does not have the files of its part.
    """
    username = read_username()
    # All parts are checked before the first one is sent.
    names = [prepare_dataset(folder, username) for folder in folders]
    states = [
        _publish_part(*part, notes, public) for part in zip(folders, names, strict=True)
    ]
    return pd.DataFrame({"name": names, "state": states, "problem": ""})


def _publish_part(folder: str, name: str, notes: str, public: bool) -> str:
    """Upload one part; return the state of its dataset: "uploaded" or "there already".

    folder: the part. name: of the dataset. notes, public: as in `publish_parts`.
    Raises: RuntimeError: after the upload, the dataset has other files.
    """
    if not _find_differences(name, folder):
        return "there already"
    if notes:
        call("dataset_create_version", folder, notes, dir_mode="tar")
    else:  # an error if the dataset exists
        call("dataset_create_new", folder, public, dir_mode="tar")

    # Kaggle processes the files for a while, and lists those of the old version
    # meanwhile.
    for _ in range(MAX_POLLS):
        differences = _find_differences(name, folder)
        if not differences:
            return "uploaded"
        time.sleep(POLL_SECONDS)
    raise RuntimeError(
        f"{name} on Kaggle lacks {', '.join(differences)}, or has other bytes. Is your "
        "quota exceeded? If not, publish again with --notes."
    )


def _find_differences(name: str, folder: str) -> list[str]:
    """Return the names in a part that a dataset lacks or has with other bytes.

    name: of the dataset. folder: the part. dataset-metadata.json is not compared.
    """
    remote = _list_files(name)
    differences = []
    for path in sorted(Path(folder).iterdir()):
        is_equal = remote.get(path.name) == path.stat().st_size
        if path.is_dir():
            # It is sent as an archive, which Kaggle unpacks some time later.
            archive = (f"{path.name}/", f"{path.name}.tar")
            is_equal = any(file.startswith(archive) for file in remote)
        if not is_equal and path.name != DATASET_FILE:
            differences.append(path.name)
    # Names and sizes are equal now. Kaggle reports no checksums, but a part's file
    # SHA256SUMS (SUMS) contains those of all its files.
    if not differences and _download_sums(name) != read_text(f"{folder}/{SUMS}"):
        differences.append(SUMS)
    return differences


def _download_sums(name: str) -> str:
    """Return the text of a dataset's SHA256SUMS, from Kaggle."""
    with tempfile.TemporaryDirectory() as folder:
        call("dataset_download_file", name, SUMS, folder)
        return read_text(f"{folder}/{SUMS}")


def _list_files(name: str) -> dict[str, int]:
    """Return the size of each file of a dataset in bytes, by name.

    {} if the dataset does not exist.
    """
    sizes = {}
    token = None  # of a page: None for the first one, "" after the last one
    with suppress(FileNotFoundError):
        while token != "":
            page = call("dataset_list_files", name, token, page_size=200)
            for file in page.files:
                sizes[file.name] = file.total_bytes
            token = page.next_page_token
    return sizes
