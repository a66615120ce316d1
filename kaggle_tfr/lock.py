"""Locks of a WORK_DIR, so that one run at a time works in it.

A whole run locks `run.lock`. A run that only writes or reads part k locks
`run-part-k.lock`, so that several runs can write different parts at the same time. The
operating system releases a lock when its process ends. A WORK_DIR in a bucket, or on a
file system without locks, is not locked.
"""

import fcntl
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TextIO

from kaggle_tfr import storage

# Environment variable: the WORK_DIR that a driver has locked for its kernels.
INSIDE = "KAGGLE_TFR_LOCKED"
WHOLE = "run.lock"
PART = "run-part-{}.lock"


class WorkDirBusyError(RuntimeError):
    """Another process works in the WORK_DIR; the message names it and what to do."""


@dataclass
class Lock:
    """A lock of this process: an open, locked file, or None in a bucket."""

    file: TextIO | None
    pid: int = field(default_factory=os.getpid)

    def release(self) -> None:
        """Remove the lock file and unlock it, unless this is a forked process."""
        if self.file and self.pid == os.getpid():
            with suppress(OSError):
                os.remove(self.file.name)
            with suppress(OSError):
                fcntl.flock(self.file, fcntl.LOCK_UN)
            self.file.close()
            self.file = None


def take(work_dir: str, part: int = 0, *, holder: str) -> Lock:
    """Lock the WORK_DIR, or one part of it (from 1), without waiting.

    The lock ends with `release`, or when the result is garbage-collected. Buckets, and
    file systems without locks, are not locked.
    holder: what this process is, such as "a run", for the error of a second process.
    Raises: WorkDirBusyError: another process works in the WORK_DIR, or in that part.
    """
    if storage.is_remote(work_dir):
        return Lock(None)
    storage.make_folder(work_dir)
    path = storage.join(work_dir, PART.format(part) if part else WHOLE)
    with storage.explain_os_errors(path, storage.OUTPUT_FIXES):
        file = storage.create_locked(path, partial(_lock, mode=fcntl.LOCK_EX))
    lock = Lock(file)
    try:
        file.truncate(0)
        # After it is locked, so that one of two that start at once sees the other.
        _check_rivals(WHOLE if part else PART.format("*"), work_dir)
    except BaseException:
        lock.release()
        raise
    print(f"{holder}, {_describe_process()}", end="", file=file, flush=True)
    return lock


def _describe_process() -> str:
    """Return the number of this process, its machine and the time."""
    time = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"process {os.getpid()} on {socket.gethostname()}, since {time}"


def _check_rivals(pattern: str, work_dir: str) -> None:
    """Raise a WorkDirBusyError if another process has locked such a file."""
    for rival in storage.list_files(pattern, work_dir):
        with suppress(FileNotFoundError), open(rival, encoding="utf-8") as file:
            _lock(file, fcntl.LOCK_SH)


def _lock(file: TextIO, mode: int) -> None:
    """Lock a file, if its file system can. Raises: WorkDirBusyError."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read() or "another process"
        raise WorkDirBusyError(
            f"'{os.path.dirname(file.name)}' is in use by {process}. Wait until it has "
            "ended, run that notebook to its end, shut its kernel down, or choose "
            "another WORK_DIR."
        ) from None
    except OSError:  # no locks on this file system
        pass
