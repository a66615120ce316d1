"""Locks of a WORK_DIR, so that one run at a time works in it.

A whole run locks `run.lock`. A run that only writes or reads part k locks
`run-part-k.lock`, so that several runs can write different parts at the same time. The
operating system releases a lock when its process ends. A WORK_DIR in a bucket, or on a
file system without locks, is not locked.
"""

import errno
import glob
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from kaggle_tfr import storage

# Environment variable: the WORK_DIR that `run` has locked for its kernels.
INSIDE = "KAGGLE_TFR_LOCKED"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def take(work_dir: str, part: int = 0) -> ExitStack:
    """Lock the WORK_DIR, or one part of it (from 1), until the result is closed.

    Raises: RuntimeError: another process works in the WORK_DIR, or in that part.
    """
    message = (
        f"'{work_dir}' is in use. Wait until that run has ended, run that notebook to "
        "its end, shut its kernel down, or choose another WORK_DIR."
    )
    whole_run = hold(f"{work_dir}/run.lock", message)
    with ExitStack() as locks:
        if part:
            with whole_run:  # no whole run begins meanwhile
                path = f"{work_dir}/run-part-{part}.lock"
                locks.enter_context(hold(path, message))
        else:
            locks.enter_context(whole_run)
            for name in glob.glob("run-part-*.lock", root_dir=work_dir):
                locks.enter_context(hold(f"{work_dir}/{name}", message))
        return locks.pop_all()


@contextmanager
def hold(path: str, message: str) -> Iterator[None]:
    """Hold the lock of a file while the block runs, then remove the file.

    message: what is in use and what to do, if another process holds the lock.
    Raises: RuntimeError: with the message, and the process that holds it.
    """
    if storage.is_remote(path):
        yield
        return
    from filelock import FileLock, Timeout

    storage.make_folder(os.path.dirname(path))
    # Where there is no flock, the lock's own content shows whether its process lives.
    holder_path = f"{path}.tmp"
    lock = FileLock(path, timeout=1)  # runs of two parts may start at once
    try:
        lock.acquire()
    except Timeout:
        holder = storage.read_text(holder_path) or "another process"
        raise RuntimeError(f"{message} '{path}' is locked by {holder}.") from None
    except NotImplementedError:  # of versions of filelock without such locks
        pass
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    with ExitStack() as cleanup:  # which does all, also after an error
        cleanup.callback(lock.release)
        for name in (path, holder_path):
            cleanup.callback(storage.remove, name)
        with suppress(OSError):  # of a full disk
            Path(holder_path).write_text(
                f"process {os.getpid()} on {socket.gethostname()}, "
                f"since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
        yield
