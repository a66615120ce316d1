"""One run at a time in a WORK_DIR: a lock file there names the process that works in it.

A whole run holds `run.lock`. A run that only writes or reads part k holds `run-part-k.lock`, so
machines that share a WORK_DIR can write different parts at the same time.
"""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kaggle_tfr import storage

INSIDE = "KAGGLE_TFR_LOCKED"  # environment variable: the WORK_DIR that a driver holds for its kernels
WHOLE, PART, PARTS = "run.lock", "run-part-{}.lock", "run-part-*.lock"
SECONDS_BETWEEN_SIGNS = 60  # the holder renews the time of its lock file
SECONDS_WITHOUT_SIGNS = 900  # after which a process of another machine counts as gone
SECONDS_TO_WRITE = 1  # for a process that has just created its lock file to fill it
CLOCK_SECONDS = 2  # by which a process's start time may differ when it is read again
FIXES = storage.FIXES | dict.fromkeys(
    storage.DENIED, "Choose another WORK_DIR, or allow to write there."
)


class WorkDirBusyError(RuntimeError):
    """Another process works in the WORK_DIR; the message names it and says what to do."""


@dataclass
class Lock:
    """A lock file of this process, renewed by a thread until it is released."""

    path: str
    text: str
    pid: int = field(default_factory=os.getpid)
    released: threading.Event = field(default_factory=threading.Event)
    file: Any = (
        None  # locked as long as the process lives, where the disk has such locks
    )

    def __post_init__(self) -> None:
        if not storage.is_remote(self.path):
            with suppress(OSError):
                self.file = open(self.path, "rb+")  # noqa: SIM115
                fcntl.flock(self.file, fcntl.LOCK_EX)
        threading.Thread(target=self._renew, daemon=True).start()

    def _renew(self) -> None:
        while not self.released.wait(SECONDS_BETWEEN_SIGNS):
            with suppress(OSError):
                if storage.read_text(self.path) != self.text:
                    return
                if storage.is_remote(self.path):
                    storage.write_atomically(self.path, self.text.encode())
                else:
                    os.utime(self.path)

    def release(self) -> None:
        """Removes the lock file, unless this is a forked process or another run's file."""
        self.released.set()
        if self.pid == os.getpid():
            with suppress(OSError):
                _remove(self.path, self.text)
        if self.file:
            self.file.close()


def take(work_dir: str, part: int = 0, *, holder: str) -> Lock:
    """The lock of the WORK_DIR, or of one part, held by this process until it is released.

    holder: what the process is, for the error of the next one, such as "a run".
    Raises: WorkDirBusyError: another process works in the WORK_DIR, or writes the same part.
    """
    storage.make_folder(work_dir)
    path = storage.join(work_dir, PART.format(part) if part else WHOLE)
    text = _describe_process(holder)
    while not _create(path, text):
        _remove_stale(path)

    lock = Lock(path, text)
    try:
        # After the own file is there: of two that begin at the same time one sees the other.
        whole = storage.join(work_dir, WHOLE)
        others = [whole] if part else storage.list_files(PARTS, work_dir)
        for other in others:
            if storage.exists(other):
                _remove_stale(other)
    except BaseException:
        lock.release()
        raise
    return lock


def _describe_process(holder: str) -> str:
    """The text of a lock file: this process, its machine and the time."""
    import psutil

    process = {
        "holder": holder,
        "process": os.getpid(),
        "process_started": psutil.Process().create_time(),
        "host": socket.gethostname(),
        "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "id": uuid.uuid4().hex,
    }
    return json.dumps(process, indent=1) + "\n"


def _create(path: str, text: str) -> bool:
    """Whether the lock file was created with this text; False: there is one."""
    if storage.is_remote(path):
        # A bucket has no exclusive creation: of two at the same moment the last one wins.
        if storage.exists(path):
            return False
        storage.write_atomically(path, text.encode())
        return storage.read_text(path) == text

    with storage.explain_os_errors(path, FIXES):
        try:
            number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            os.remove(path)
            raise
    return True


def _remove_stale(path: str) -> None:
    """Removes the lock file of a process that is gone, and prints so.
    Raises: WorkDirBusyError: the process works.
    """
    text, holder = _read(path)
    if holder and _is_alive(path, holder):
        raise WorkDirBusyError(_explain(path, holder))
    if _remove(path, text):
        process = (
            f"process {holder['process']} on {holder['host']}"
            if holder
            else "its process"
        )
        print(
            f"'{path}' was left behind: {process} ended without removing it. This run takes over."
        )


def _read(path: str) -> tuple[str, dict[str, Any]]:
    """The text of the lock file, and what it says; "" without a file, {} where it is damaged."""
    until = time.monotonic() + SECONDS_TO_WRITE
    while True:
        text = storage.read_text(path)
        with suppress(ValueError, TypeError, KeyError):
            holder = dict(json.loads(text))
            types = {
                "process": int,
                "process_started": float,
                "host": str,
                "since": str,
            }
            if all(isinstance(holder[name], type_) for name, type_ in types.items()):
                return text, holder
        if time.monotonic() > until or not storage.exists(path):
            return text, {}
        time.sleep(0.05)


def _is_alive(path: str, holder: dict[str, Any]) -> bool:
    """Whether the process works, as far as this machine can tell."""
    import psutil

    if _is_locked(
        path
    ):  # also by a process of another container, or after a step of the clock
        return True
    if holder["host"] != socket.gethostname():
        with suppress(FileNotFoundError):
            renewed = storage.size_and_time(path)[1] / 1e9
            return time.time() - renewed < SECONDS_WITHOUT_SIGNS
        return False
    try:
        process = psutil.Process(holder["process"])
        # Another process may have been given the number of one that is gone.
        is_same = abs(process.create_time() - holder["process_started"]) < CLOCK_SECONDS
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _is_locked(path: str) -> bool:
    """Whether a process of this machine holds the file's own lock."""
    with suppress(OSError):
        if not storage.is_remote(path):
            with open(path, "rb+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
    return False


def _explain(path: str, holder: dict[str, Any]) -> str:
    """What the error says: who works in the WORK_DIR, since when, and what to do."""
    who = f"{holder.get('holder', 'a run')}, process {holder['process']} on {holder['host']}"
    mend = "Wait until it has ended, stop it, or choose another WORK_DIR."
    if "notebook" in str(holder.get("holder")):
        mend = f"Run that notebook to its end, or shut its kernel down. {mend}"
    if holder["host"] != socket.gethostname():
        mend += f" Where that machine is gone, remove '{path}'."
    folder = path.rpartition("/")[0]
    return f"'{folder}' is in use since {holder['since']} by {who}. {mend}"


def _remove(path: str, text: str) -> bool:
    """Whether the lock file with this text was removed; another run's stays."""
    if not storage.exists(path) or storage.read_text(path) != text:
        return False
    if storage.is_remote(path):
        storage.remove(path)
        return True
    # Another run may have replaced it meanwhile: only one of two can take the same file away.
    aside = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    if storage.read_text(aside) != text:
        with suppress(FileExistsError, FileNotFoundError):
            os.link(aside, path)
        with suppress(FileNotFoundError):
            os.remove(aside)
        return False
    with suppress(FileNotFoundError):  # `remove_leftovers` may take it
        os.remove(aside)
    return True
