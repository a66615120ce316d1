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
import pickle
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

FULL = "full"  # no room from that call on
OF_PATHS = ("open", "mkdir", "replace", "rename", "remove", "unlink", "rmdir")
OF_PATHS += ("scandir", "stat")
MAKING = {"create", "write", "mkdir"}


def run_steps(root, steps="steps.pickle", out=""):
    """Save what the steps save below `root`, from tables and a plan in that folder."""
    from kaggle_tfr import explore
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.plan import save_plan
    from kaggle_tfr.storage import remove_leftovers
    from kaggle_tfr.write import write_parts

    use_backend(1)  # so that calls have an order
    table, labels, plan, planned, overwrite = pickle.loads(
        Path(root, steps).read_bytes()
    )
    work = f"{root}/run"
    remove_leftovers(work)  # as a run does, which locks the folder
    if "://" in out:
        write_parts(work, out)
        return
    out = f"{root}/run/out"
    explore.measure(table, labels, work)
    explore.save_images(table, labels, work)
    save_plan(plan, planned, work)
    for _ in range(2):  # the second finds the parts closed
        write_parts(work, out, overwrite=overwrite, license_name="CC0-1.0")


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
        """Record a call that follows, or let it fail after `half` did a part of it."""
        if not self._is_below(path):
            return
        self.calls.append((name, path))
        if not self._fails(name):
            return
        self.failed.append((name, path))
        half()
        number = errno.ENOSPC if self.fault == FULL else self.fault
        # The system does not name the file in errors of these calls.
        names = [] if name in ("read", "write") else [path]
        raise OSError(number, os.strerror(number), *names)

    def _fails(self, name):
        """Return whether the last call, of this name, should fail."""
        n_after = len(self.calls) - self.at
        if not self.at:
            return False
        if self.fault == FULL:
            return name in MAKING and n_after >= 0
        return n_after == 0

    def _is_below(self, path):
        return path is not None and f"{path}/".startswith(f"{self.root}/")

    def __enter__(self):
        self.open = open
        self.real = {name: getattr(os, name) for name in OF_PATHS}
        for (owner, name), function in self._list_replacements().items():
            self.enter_context(mock.patch.object(owner, name, function))
        return self

    def _list_replacements(self):
        """Return {(module, name): function} of all calls that are intercepted."""
        import pyarrow.parquet as pq

        of_paths = {(os, name): partial(self._of_path, name) for name in OF_PATHS}
        return {
            **of_paths,
            (os, "fsync"): self._fsync,
            (builtins, "open"): self._open,
            (io, "open"): self._open,
            (pq, "ParquetWriter"): partial(self._create_parquet, pq.ParquetWriter),
        }

    def _find(self, path, dir_fd=None):
        """Return the absolute path of a path or an open file."""
        if isinstance(path, int):
            return os.path.abspath(_name_of(path))
        folder = os.getcwd() if dir_fd is None else _name_of(dir_fd)
        return os.path.abspath(os.path.join(folder, os.fspath(path)))

    def _of_path(self, name, path=".", *rest, dir_fd=None, **options):
        is_new = name == "open" and rest and rest[0] & os.O_CREAT
        target = self._find(rest[0]) if name in ("replace", "rename") else None
        kind = "create" if is_new else name
        self.call(kind, self._find(path, dir_fd), target=target)
        if dir_fd is not None:
            options["dir_fd"] = dir_fd
        return self.real[name](path, *rest, **options)

    def _fsync(self, number):
        self.call("fsync", self._find(number))  # A real one would only take time.

    def _create_parquet(self, real, path, *rest):
        if isinstance(path, str):
            self.call("create", os.path.abspath(path))
        return real(path, *rest)

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
        buffer = _add_buffer(raw, mode)
        if "b" in mode:
            return buffer
        return io.TextIOWrapper(buffer, encoding, errors, newline)


def _name_of(number):
    """Return the path of an open file."""
    return os.readlink(f"/proc/self/fd/{number}")


def _add_buffer(raw, mode):
    if "+" in mode:
        return io.BufferedRandom(raw)
    return io.BufferedReader(raw) if mode[0] == "r" else io.BufferedWriter(raw)


class Change(NamedTuple):
    """A change of the disk.

    kind: create, mkdir, move, remove or rmdir of a name; "sync folder"; "sync file";
    "content", of a file that is moved without a sync.
    """

    kind: str
    path: str
    file: int = -1  # its number, which it keeps when it is moved
    target: str = ""
    data: bytes = b""


class Power(Disk):
    """Record the changes of a run, for the states after a power cut.

    The content of a file lasts once the file was synced; the name of a file or
    folder, once its parent folder was. Before, each name and removal may be lost, and
    a file may be empty, truncated, zeros or whole.

    changes: those of the run follow `n_before`, which are the files there before it.
    """

    def __init__(self, root):
        super().__init__(root)
        paths = [Path(self.root), *Path(self.root).rglob("*")]
        files = [path for path in paths if path.is_file()]
        self.numbers = itertools.count()
        self.folders = {str(path) for path in paths if path.is_dir()}
        self.names = {str(path): next(self.numbers) for path in files}
        self.folders_before, self.names_before = set(self.folders), dict(self.names)
        self.changes = [
            Change("sync file", path, number, data=Path(path).read_bytes())
            for path, number in self.names.items()
        ]
        self.n_before = len(self.changes)

    def call(self, name, path, half=None, target=None):  # noqa: ARG002
        super().call(name, path)
        self.changes += self._list_changes(name, path, target)

    def _list_changes(self, name, path, target):
        """Return the changes by a call that follows."""
        file = self.names.get(path)
        if name == "create" and file is None:
            self.names[path] = next(self.numbers)
            return [Change("create", path, self.names[path])]
        if name == "mkdir" and path not in self.folders:
            self.folders.add(path)
            return [Change("mkdir", path)]
        if name in ("replace", "rename"):
            self.names[target] = self.names.pop(path)
            content = self._read("content", path, file)
            return [content, Change("move", path, file, target)]
        if name in ("remove", "unlink") and file is not None:
            del self.names[path]
            return [Change("remove", path, file)]
        if name == "rmdir":
            self.folders.discard(path)
            return [Change("rmdir", path)]
        if name == "fsync" and file is None:
            return [Change("sync folder", path)]
        if name == "fsync":
            return [self._read("sync file", path, file)]
        return []

    def _read(self, kind, path, number):
        with self.open(path, "rb") as file:
            return Change(kind, path, number, data=file.read())

    def cut(self, at, rng):
        """Return the folders and {path: bytes} after a power cut before change `at`."""
        changes = self.changes[:at]
        folders, names = self._draw_names(changes, rng)
        existing = {self.root}
        for folder in sorted(folders):  # A lost folder is lost with its content.
            if os.path.dirname(folder) in existing:
                existing.add(folder)
        contents = {row.file: row.data for row in changes if row.kind == "content"}
        synced = {row.file: row.data for row in changes if row.kind == "sync file"}
        files = {}
        for name, number in names.items():
            data = contents.get(number, b"")
            torn = rng.choice([b"", data[: len(data) // 2], bytes(len(data)), data])
            if os.path.dirname(name) in existing:
                files[name] = synced.get(number, torn)
        return existing, files

    def _draw_names(self, changes, rng):
        """Return the folders and {path: number of file} without the lost changes."""
        folders, names = set(self.folders_before), dict(self.names_before)
        share_kept = rng.choice([0.0, 0.3, 0.7, 1.0])
        synced_at = {
            change.path: index
            for index, change in enumerate(changes)
            if change.kind == "sync folder"
        }
        for index, change in enumerate(changes):
            if change.kind in ("sync folder", "sync file", "content"):
                continue
            folder = os.path.dirname(change.target or change.path)
            is_synced = index <= synced_at.get(folder, -1)
            if is_synced or rng.random() < share_kept:
                _apply(change, folders, names)
        return folders, names


def _apply(change, folders, names):
    """Make a change in the folders, and in the numbers of files by name."""
    if change.kind == "create":
        names[change.path] = change.file
    elif change.kind == "mkdir":
        folders.add(change.path)
    elif change.kind == "move":
        # Another file may have the name, if a removal was lost.
        if names.get(change.path) == change.file:
            del names[change.path]
        names[change.target] = change.file
    else:
        names.pop(change.path, None)
        folders.discard(change.path)


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


def run_apart(root, out, pipe):
    """Run the steps in a fork; send the error."""
    message = ""
    try:
        run_steps(root, out=out)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    pipe.send(message)
