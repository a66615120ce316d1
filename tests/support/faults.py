"""A disk on which the n-th call fails or kills, and the states after a power cut.

Calls are intercepted in Python: `open`, `os`, TensorFlow's writer of records, Arrow's
files. The last two write in C++, so there a fault comes before the call.
"""

import builtins
import contextlib
import errno
import io
import os
import pickle
import signal
from functools import partial
from pathlib import Path
from unittest import mock

KILL, SHORT, FULL = "kill", "short", "full"  # full: no room from that call on
OF_PATHS = ("open", "mkdir", "replace", "rename", "remove", "unlink", "rmdir")
OF_PATHS += ("listdir", "scandir", "stat", "statvfs")
MAKING = {"create", "write", "mkdir"}


def run_steps(root, steps="steps.pickle", out=""):
    """Save what the steps save below `root`, from tables and a plan in that folder."""
    from kaggle_tfr import explore
    from kaggle_tfr.kaggle.upload import _check_parts
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.plan import save_plan
    from kaggle_tfr.write import write_parts

    use_backend(1)  # so that calls have an order
    table, labels, plan, planned, overwrite = pickle.loads(
        Path(root, steps).read_bytes()
    )
    work, parts = f"{root}/run", ["part-1", "part-2"]
    if "://" in out:
        write_parts(work, out)
        return
    out = f"{root}/run/out"
    explore.measure(table, labels, work)
    explore.save_images(table, labels, work)
    save_plan(plan, planned, work)
    for _ in range(2):  # the second finds the parts closed
        write_parts(work, out, overwrite=overwrite, license_name="CC0-1.0")
    _check_parts([f"{out}/{part}" for part in parts], "ada")


class Disk(contextlib.ExitStack):
    """Count the calls on files below `root` in this block; call number `at` fails.

    fault: an errno, or one of the constants above. calls: (call, path) of all calls so
    far. failed: those that failed.
    """

    def __init__(self, root, at=0, fault=errno.EIO):
        super().__init__()
        self.root, self.at, self.fault = os.path.realpath(root), at, fault
        self.calls, self.failed = [], []

    def call(self, name, path, half=lambda: None, target=None):  # noqa: ARG002
        """Record a call that follows; `half` does a part of it before it fails."""
        if path is None or not f"{path}/".startswith(f"{self.root}/"):
            return False
        self.calls.append((name, path))
        after, kind = len(self.calls) - self.at, self.fault
        again = kind == FULL and after > 0 and name in MAKING
        never = (kind == SHORT and name != "write") or (
            kind == FULL and name not in MAKING
        )
        if not self.at or never or (after != 0 and not again):
            return False
        self.failed.append((name, path))
        half()
        if kind == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == SHORT:
            return True
        number = errno.ENOSPC if kind == FULL else kind
        raise OSError(
            number, os.strerror(number), *([] if name in ("read", "write") else [path])
        )

    def __enter__(self):
        import numpy as np
        import pyarrow.parquet as pq
        import tensorflow as tf

        self.real, put = (
            {name: getattr(os, name) for name in [*OF_PATHS, "fsync", "pread"]},
            {},
        )
        put |= {(os, name): partial(self._of_path, name) for name in OF_PATHS}
        put |= {(os, "fsync"): self._fsync, (os, "pread"): self._pread}
        put |= {(owner, "open"): self._open for owner in (builtins, io)}
        put |= {(tf.io, "TFRecordWriter"): partial(_Writer, self, tf.io.TFRecordWriter)}
        put |= {(pq, "ParquetFile"): partial(self._of_parquet, pq.ParquetFile)}
        self.open = open
        for (owner, name), function in put.items():
            self.enter_context(mock.patch.object(owner, name, function))
        openers = np.lib._datasource._file_openers._file_openers
        self.enter_context(mock.patch.dict(openers, {None: self._open}))
        return self

    def _find(self, path, dir_fd=None):
        """The absolute path of a path or an open file."""
        link = path if isinstance(path, int) else dir_fd
        folder = (
            os.readlink(f"/proc/self/fd/{link}") if link is not None else os.getcwd()
        )
        return os.path.abspath(
            os.path.join(folder, "" if path is link else os.fspath(path))
        )

    def _of_path(self, name, path=".", *rest, dir_fd=None, **options):
        kind = "create" if name == "open" and rest and rest[0] & os.O_CREAT else name
        target = self._find(rest[0]) if name in ("replace", "rename") else None
        self.call(kind, self._find(path, dir_fd), target=target)
        options |= {} if dir_fd is None else {"dir_fd": dir_fd}
        return self.real[name](path, *rest, **options)

    def _fsync(self, number):
        self.call("fsync", self._find(number))  # in earnest it would only take its time

    def _pread(self, number, *rest):
        self.call("read", self._find(number))
        return self.real["pread"](number, *rest)

    def _of_parquet(self, real, path):
        if isinstance(path, str):
            self.call("open", os.path.abspath(path))
        return real(path)

    def _open(  # noqa: PLR0917
        self,
        file,
        mode="r",
        buffering=-1,
        encoding=None,
        errors=None,
        newline=None,
        *rest,
    ):
        path = None if isinstance(file, int) else os.path.abspath(os.fspath(file))
        if rest or path is None or not path.startswith(f"{self.root}/"):
            return self.open(file, mode, buffering, encoding, errors, newline, *rest)
        raw = _File(self, path, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        writes = io.BufferedRandom if "+" in mode else io.BufferedWriter
        buffer = (io.BufferedReader if mode[0] == "r" and "+" not in mode else writes)(
            raw
        )
        return (
            buffer
            if "b" in mode
            else io.TextIOWrapper(buffer, encoding, errors, newline)
        )


class Power(Disk):
    """Record the calls of a run, for the states after a power cut.

    The content of a file lasts once the file was synced; the name of a file or
    folder, once its parent folder was. Before, each name and removal may be lost, and
    a file may be empty, truncated, zeros or whole.
    """

    def __init__(self, root):
        super().__init__(root)
        paths = [Path(self.root), *Path(self.root).rglob("*")]
        self.folders = {str(path) for path in paths if path.is_dir()}
        self.names = {
            str(path): number for number, path in enumerate(paths) if path.is_file()
        }
        self.begun = set(self.folders), dict(self.names)
        self.synced = {self.names[name]: Path(name).read_bytes() for name in self.names}
        self.events = [("sync", number, data) for number, data in self.synced.items()]
        self.first = len(self.events)

    def call(self, name, path, half=None, target=None):  # noqa: ARG002
        super().call(name, path)
        number, event = self.names.get(path), None
        if name == "create" and number is None:
            number = self.names[path] = len(self.events) + (1 << 20)
            event = "name", path, number
        elif name == "mkdir" and path not in self.folders:
            self.folders.add(path)
            event = "folder", path, 0
        elif name in ("replace", "rename"):
            self.names[target] = self.names.pop(path)
            with self.open(path, "rb") as file:
                self.events.append(("hold", number, file.read()))
            event = "move", path, number, target
        elif name in ("remove", "unlink") and number is not None:
            del self.names[path]
            event = "remove", path, number
        elif name == "rmdir":
            self.folders.discard(path)
            event = "rmdir", path, 0
        elif name == "fsync" and number is None:
            event = "keep", path, 0
        elif name == "fsync":
            with self.open(path, "rb") as file:
                event = "sync", number, file.read()
        self.events += [event] if event else []

    def cut(self, at, rng):
        """(folders, {path: bytes}) that a power cut before event `at` may leave."""
        folders, names, held, synced = set(self.begun[0]), dict(self.begun[1]), {}, {}
        share, last = rng.choice([0.0, 0.3, 0.7, 1.0]), {}
        for index, (kind, path, *_) in enumerate(self.events[:at]):
            last |= {path: index} if kind == "keep" else {}
        for index, (kind, path, number, *target) in enumerate(self.events[:at]):
            place = target[0] if target else path
            around = os.path.dirname(str(place))
            if kind in ("hold", "sync"):
                (held if kind == "hold" else synced)[path] = number
            elif kind == "keep" or (
                index > last.get(around, -1) and rng.random() >= share
            ):
                continue
            elif kind in ("remove", "rmdir"):
                names.pop(path, None)
                folders.discard(path)
            else:
                if kind == "move" and names.get(path) == number:
                    del names[path]
                folders |= {place} if kind == "folder" else set()
                names |= {place: number} if kind != "folder" else {}
        existing = {self.root}
        for folder in sorted(folders):  # a lost folder is lost with its content
            if os.path.dirname(folder) in existing:
                existing.add(folder)
        files = {}
        for name, number in names.items():
            data = held.get(number, b"")
            lost = rng.choice([b"", data[: len(data) // 2], bytes(len(data)), data])
            if os.path.dirname(name) in existing:
                files[name] = synced.get(number, lost)
        return existing, files


class _File(io.FileIO):
    """A file as the disk has it, below all buffers."""

    def __init__(self, disk, path, mode):
        self.disk, self.path = disk, path
        disk.call("open" if mode[0] == "r" else "create", path)
        super().__init__(path, mode)

    def write(self, data):
        half, write = memoryview(data)[: len(data) // 2], super().write
        if self.disk.call("write", self.path, lambda: write(half)):
            return len(half)
        return write(data)

    def readinto(self, buffer):
        self.disk.call("read", self.path)
        return super().readinto(buffer)

    def readall(self):
        self.disk.call("read", self.path)
        return super().readall()


class _Writer:
    """TensorFlow's writer of records, with its kind of errors."""

    def __init__(self, disk, real, path, options):
        self.disk, self.path = disk, path
        self._call("create")
        self.real = real(path, options)

    def _call(self, name):
        import tensorflow as tf

        try:
            self.disk.call(name, self.path)
        except OSError as error:
            full = error.errno == errno.ENOSPC
            kind = tf.errors.ResourceExhaustedError if full else tf.errors.UnknownError
            raise kind(None, None, f"{self.path}; {error.strerror}") from None

    def write(self, record):
        self._call("write")
        self.real.write(record)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.real.close()
        self._call("write")


def run_apart(root, out, number, pipe):
    """Run the steps in a fork that call `number` kills (0: none); send the error."""
    import kaggle_tfr.kaggle.upload
    import kaggle_tfr.write  # noqa: F401

    message = ""
    with Disk(f"{root}/run", number, KILL):
        try:
            run_steps(root, out=out)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
    pipe.send(message)
