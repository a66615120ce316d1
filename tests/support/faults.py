"""A disk on which the n-th call fails, and the states after a power cut.

Calls are intercepted in Python: `open`, `os`, and Arrow's files. The last write in C++,
so there a fault comes before the call.
"""

import builtins
import contextlib
import errno
import io
import itertools
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow.parquet as pq

from kaggle_tfr import explore
from kaggle_tfr.parallel import use_backend
from kaggle_tfr.plan import save_plan
from kaggle_tfr.storage import remove_leftovers
from kaggle_tfr.write import verify_parts, write_parts

FULL = "full"  # no room from that call on
OF_PATHS = ("open", "mkdir", "replace", "rename", "remove", "unlink", "rmdir")
OF_PATHS += ("scandir", "stat")
MAKING = {"create", "write", "mkdir"}
FOLDER = -1  # in place of the number of a file
LICENSE = "CC0-1.0"


def run_steps(work, table, plan, planned, *, overwrite):
    """Save what the steps save in `work`, from tables and a plan."""
    use_backend(1)  # so that calls have an order
    remove_leftovers(work)  # as a run does, which locks the folder
    explore.measure(table, plan.labels, work)
    explore.save_images(table, plan.labels, work)
    save_plan(plan, planned, work)
    for _ in range(2):  # the second finds the parts closed
        write_parts(work, f"{work}/out", overwrite=overwrite, license_name=LICENSE)


def write_apart(work, out, pipe):
    """Write and verify the parts in a fork; send the number of faults, or the error."""
    try:
        write_parts(work, out, license_name=LICENSE)
        answer = len(verify_parts([out]).faults)
    except Exception as error:
        answer = str(error)
    pipe.send(answer)


class Disk(contextlib.ExitStack):
    """Count the calls on files below `root` in this block; call number `at` fails.

    fault: an errno, or FULL. calls: (call, path) of all calls so far. failed: those
    that failed.
    """

    def __init__(self, root, at=0, fault=errno.EIO):
        super().__init__()
        self.root, self.at, self.fault = os.path.realpath(root), at, fault
        self.calls, self.failed = [], []

    def call(self, name, path, half=lambda: None, target=""):  # noqa: ARG002
        """Record a call that follows, or let it fail after `half` did a part of it."""
        if not self._is_below(path):
            return
        self.calls.append((name, path))
        n_after = len(self.calls) - self.at
        is_full = self.fault == FULL and name in MAKING and n_after > 0
        if n_after and not is_full:
            return
        self.failed.append((name, path))
        half()
        number = errno.ENOSPC if self.fault == FULL else self.fault
        # The system does not name the file in errors of these calls.
        names = [] if name in ("read", "write") else [path]
        raise OSError(number, os.strerror(number), *names)

    def _is_below(self, path):
        return f"{path}/".startswith(f"{self.root}/")

    def __enter__(self):
        self.open = open
        replacements = {
            (os, name): partial(self._of_path, name, getattr(os, name))
            for name in OF_PATHS
        }
        replacements[os, "fsync"] = self._fsync
        replacements[builtins, "open"] = self._open
        replacements[io, "open"] = self._open
        create_parquet = partial(self._create_parquet, pq.ParquetWriter)
        replacements[pq, "ParquetWriter"] = create_parquet
        for (owner, name), function in replacements.items():
            self.enter_context(mock.patch.object(owner, name, function))
        return self

    def _of_path(self, name, real, path=".", *rest, **options):
        is_new = name == "open" and rest and rest[0] & os.O_CREAT
        target = _find(rest[0]) if name in ("replace", "rename") else ""
        kind = "create" if is_new else name
        self.call(kind, _find(path, options.get("dir_fd")), target=target)
        return real(path, *rest, **options)

    def _fsync(self, number):
        self.call("fsync", _find(number))  # A real one would only take time.

    def _create_parquet(self, real, path, *rest):
        if isinstance(path, str):
            self.call("create", _find(path))
        return real(path, *rest)

    def _open(self, file, mode="r", buffering=-1, *rest, **options):
        if isinstance(file, int) or not self._is_below(_find(file)):
            return self.open(file, mode, buffering, *rest, **options)
        raw = _File(self, _find(file), mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffer = _add_buffer(raw, mode)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, *rest, **options)


def _find(path, dir_fd=None):
    """Return the absolute path of a path, or of the number of an open file."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    folder = "" if dir_fd is None else _find(dir_fd)
    return os.path.abspath(os.path.join(folder, path))


def _add_buffer(raw, mode):
    if "+" in mode:
        return io.BufferedRandom(raw)
    return io.BufferedReader(raw) if mode[0] == "r" else io.BufferedWriter(raw)


class Change(NamedTuple):
    """A change of the disk.

    kind: make, move or remove a name; "sync folder"; "sync file"; "content", of a file
    that is moved without a sync.
    """

    kind: str
    path: str
    file: int  # its number, which it keeps when it is moved
    target: str = ""
    data: bytes = b""


class Power(Disk):
    """Record the changes of a run, for the states after a power cut.

    The content of a file lasts once the file was synced; the name of a file or
    folder, once its parent folder was. Before, each name and removal may be lost, and
    a file may be empty, truncated, zeros or whole.

    changes: those of the run follow `n_before`, which make the files there before it.
    """

    def __init__(self, root):
        super().__init__(root)
        self.numbers = itertools.count()
        self.names = {self.root: FOLDER}
        self.changes = []
        for path in Path(self.root).rglob("*"):
            self.call("mkdir" if path.is_dir() else "create", str(path))
        for path in self.names:
            self.call("fsync", path)
        self.n_before = len(self.changes)

    def call(self, name, path, half=None, target=""):  # noqa: ARG002
        super().call(name, path)
        if self._is_below(path):
            self.changes += self._list_changes(name, path, target)

    def _list_changes(self, name, path, target):
        """Return the changes by a call that follows."""
        file = self.names.get(path)
        if name in ("create", "mkdir") and file is None:
            file = next(self.numbers) if name == "create" else FOLDER
            self.names[path] = file
            return [Change("make", path, file)]
        if name in ("replace", "rename"):
            self.names[target] = self.names.pop(path)
            content = _read("content", path, file)
            return [content, Change("move", path, file, target)]
        if name in ("remove", "unlink", "rmdir") and file is not None:
            del self.names[path]
            return [Change("remove", path, file)]
        if name == "fsync" and file == FOLDER:
            return [Change("sync folder", path, file)]
        if name == "fsync":
            return [_read("sync file", path, file)]
        return []

    def cut(self, at, rng):
        """Return the folders and {path: bytes} after a power cut before change `at`."""
        changes = self.changes[:at]
        contents = {row.file: row.data for row in changes if row.kind == "content"}
        synced = {row.file: row.data for row in changes if row.kind == "sync file"}
        folders = {self.root}
        files = {}
        for name, number in sorted(_draw_names(changes, rng).items()):
            if os.path.dirname(name) not in folders:
                continue  # A lost folder is lost with its content.
            if number == FOLDER:
                folders.add(name)
                continue
            data = contents.get(number, b"")
            torn = rng.choice([b"", data[: len(data) // 2], bytes(len(data)), data])
            files[name] = synced.get(number, torn)
        return folders, files


def _read(kind, path, number):
    return Change(kind, path, number, data=Path(path).read_bytes())


def _draw_names(changes, rng):
    """Return {path: number of file} after changes of which some are lost."""
    names = {}
    share_kept = rng.choice([0.0, 0.3, 0.7, 1.0])
    synced_at = {
        change.path: index
        for index, change in enumerate(changes)
        if change.kind == "sync folder"
    }
    for index, change in enumerate(changes):
        folder = os.path.dirname(change.target or change.path)
        is_synced = index <= synced_at.get(folder, -1)
        if is_synced or rng.random() < share_kept:
            _apply(change, names)
    return names


def _apply(change, names):
    """Make a change in the numbers of files by name."""
    if change.kind == "make":
        names[change.path] = change.file
    elif change.kind == "remove":
        names.pop(change.path, None)
    elif change.kind == "move":
        # Another file may have the name, if a removal was lost.
        if names.get(change.path) == change.file:
            del names[change.path]
        names[change.target] = change.file


class _File(io.FileIO):
    """A file as the disk has it, below all buffers."""

    def __init__(self, disk, path, mode):
        self.disk, self.path = disk, path
        disk.call("open" if mode[0] == "r" else "create", path)
        super().__init__(path, mode)

    def write(self, data):
        half, write = memoryview(data)[: len(data) // 2], super().write
        self.disk.call("write", self.path, lambda: write(half))
        return write(data)

    def readinto(self, buffer):
        self.disk.call("read", self.path)
        return super().readinto(buffer)

    def readall(self):
        self.disk.call("read", self.path)
        return super().readall()
