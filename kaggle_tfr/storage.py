"""Files on a disk and objects in a bucket (gs://…) by the same calls, with the same errors."""

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ANSWER_SECONDS = 45
AnyPath = str | os.PathLike[str]
TEMPORARY = re.compile(
    r"\.[0-9a-f]{32}\.tmp$"
)  # the end of a name that `new_file` gives
LOCKLESS_SECONDS = (
    3600  # without locks: the age of an unchanged temporary file that nobody writes
)
PART_LEVELS = 16  # of folders in a part: SHARD_NAME may contain "/"
RESUME_HINT = "Then run the same step again: it goes on from here."
# What to do where a disk fails; where a file to write cannot be written.
FAILING = errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ETIMEDOUT
FIXES = dict.fromkeys(FAILING, "Make room, or mend that disk.")
DENIED = errno.EACCES, errno.EPERM, errno.EROFS
OUTPUT_FIXES = FIXES | dict.fromkeys(
    DENIED, "Choose another OUT_DIR, or allow to write there."
)
OUTPUT_FIXES[errno.EISDIR] = "A file belongs there: move that folder away."
OUTSIDE = re.compile(
    r"^[/\\]|^[A-Za-z]:|://|(^|[/\\])\.\.([/\\]|$)"
)  # of names that lead out
IMAGE_NAME = re.compile(r"(?i)\.(jpe?g?|png|webp|bmp|gif|tiff?|avif)$")
ESCAPED = re.compile(r"\\udc[89a-f][0-9a-f]|\\x00")  # in what `escape` makes of a name


@contextlib.contextmanager
def explain_os_errors(
    path: AnyPath, fixes: Mapping[int, str] = FIXES
) -> Iterator[None]:
    """Lets an error of the disk name its file, by default `path`, and say what to do."""
    try:
        yield
    except OSError as error:
        mend = fixes.get(error.errno or 0)
        if not mend or RESUME_HINT in str(error):
            raise
        what = (
            f"{error.strerror}: '{error.filename2 or error.filename or path}'. {mend}"
        )
        raise OSError(error.errno, f"{what} {RESUME_HINT}") from error


def is_remote(path: AnyPath) -> bool:
    """True for an address such as gs://bucket/folder."""
    return "://" in str(path)


def check_inside(name: str, what: str, where: str) -> None:
    """Raises a ValueError for a name that is absolute, an address, or has a part ".."."""
    if OUTSIDE.search(name):
        mend = "Give a path below the folder, without '..' and without a leading '/'."
        raise ValueError(f"{what} leads out of its folder {where}. {mend}")


def join(folder: AnyPath, *names: str) -> str:
    """The path below the folder, joined by "/". Raises: ValueError: a name leads out of it."""
    head = str(folder).rstrip("/") or "/"
    for name in names:
        check_inside(name, f"the name '{name}'", f"'{head}'")
    return os.path.join(head, *names)


def resolve(folder: AnyPath, name: str) -> str:
    """The path of a file that a user names: in the folder, unless absolute or an address."""
    return name if is_remote(name) else os.path.join(join(folder), name)


def real_path(path: AnyPath) -> str:
    """Return the path with all links followed; "" is the root. Addresses stay."""
    return str(path) if is_remote(path) else os.path.realpath(path or "/")


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path is the folder or below it, with all links followed."""
    root = real_path(folder).rstrip("/")
    return f"{real_path(path)}/".startswith(f"{root}/")


def read_bytes(path: AnyPath) -> bytes:
    """Return the content of a file or object.

    Raises: FileNotFoundError; TimeoutError: the bucket does not respond; OSError.
    """
    if not is_remote(path):
        with explain_os_errors(path):
            _check_regular(path)
            with open(path, "rb") as file:
                return file.read()
    with _bucket(path) as gfile, gfile.GFile(path, "rb") as file:
        return file.read()


class NotAFileError(OSError):
    """A pipe, a socket or a device where a file was expected."""


def _check_regular(path: AnyPath) -> None:
    """Raise NotAFileError: a pipe may wait for ever, a device never end. `open` reports folders."""
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise NotAFileError(errno.EINVAL, "no regular file", str(path))


def read_text(path: AnyPath) -> str:
    """The text of a file, "" where there is none."""
    try:
        return read_bytes(path).decode(errors="replace")
    except (FileNotFoundError, IsADirectoryError, NotAFileError):
        return ""


def parse_json(text: str | bytes, path: str, advice: str) -> dict[str, Any]:
    """The mapping in a JSON file. Raises: ValueError: there is none; it names the file.

    advice: a sentence that says what to do then.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{path}' is not valid JSON: {error}. {advice}") from None
    if not isinstance(values, dict):
        raise ValueError(
            f"'{path}' contains {type(values).__name__} where a mapping is expected. {advice}"
        )
    return values


@contextlib.contextmanager
def local_copy(path: AnyPath) -> Iterator[AnyPath]:
    """The path of a local file with the same content: itself, or a copy until the block ends."""
    if not is_remote(path):
        with explain_os_errors(path):
            _check_regular(path)
            yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        with _bucket(path) as gfile:
            gfile.copy(path, join(folder, "copy"))
        yield join(folder, "copy")


def read_pieces(path: AnyPath, offset: int, sizes: Iterable[int]) -> list[bytes]:
    """Return consecutive pieces of a file or object from byte `offset` on."""
    if is_remote(path):
        with _bucket(path) as gfile, gfile.GFile(path, "rb") as file:
            file.seek(offset)
            return [file.read(size) for size in sizes]
    file = os.open(path, os.O_RDONLY)
    try:
        os.lseek(file, offset, os.SEEK_SET)
        return [os.read(file, size) for size in sizes]
    finally:
        os.close(file)


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Writes the bytes so that `path` is either whole or as it was before, whatever happens."""
    with new_file(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def new_file(path: AnyPath) -> Iterator[str]:
    """The path of a local file to write, which becomes `path` when the block ends well."""
    # Workers on other machines may write the same file, and have the same process number.
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    if is_remote(path):
        temporary = os.path.join(tempfile.gettempdir(), os.path.basename(temporary))
    with explain_os_errors(path):
        make_folder(os.path.dirname(temporary))
        try:
            with _lock_new(temporary):
                yield temporary
                publish_file(temporary, str(path))
        finally:
            remove(temporary)


@contextlib.contextmanager
def _lock_new(temporary: str) -> Iterator[None]:
    """Create the file, and lock it: the lock ends with the block, or with the process."""
    while True:
        number = os.open(temporary, os.O_CREAT | os.O_RDWR, 0o666)
        with contextlib.suppress(OSError):  # this file system has no locks
            fcntl.flock(number, fcntl.LOCK_EX)
        if os.fstat(number).st_nlink:
            break
        os.close(number)  # `remove_leftovers` took it before it was locked
    try:
        yield
    finally:
        os.close(number)


def remove_leftovers(folder: AnyPath, depth: int = 1) -> None:
    """Remove the temporary files that killed processes left in a folder of a disk.

    A file that a live process is writing stays. depth: levels of folders inside it to search.
    """
    if is_remote(folder):  # a bucket contains complete objects only
        return
    with explain_os_errors(folder):
        try:
            with os.scandir(str(folder)) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return
        for entry in found:
            if TEMPORARY.search(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_unlocked(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False):
                remove_leftovers(entry.path, depth - 1)


def _remove_unlocked(path: str) -> None:
    """Remove a temporary file unless a process still holds its lock."""
    try:
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (
            errno.ENOENT,
            *DENIED,
        ):  # removed meanwhile, or another user's
            raise
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_used = False
    except BlockingIOError:
        is_used = True
    except OSError:
        is_used = time.time() - os.fstat(number).st_mtime < LOCKLESS_SECONDS
    try:
        if not is_used:
            with contextlib.suppress(PermissionError):
                remove(path)
    finally:
        os.close(number)


def list_files(pattern: str, folder: AnyPath) -> list[str]:
    """Sorted paths of the files, none hidden, that match `pattern` (`*`, `?`, `[…]`) in `folder`.

    The folder is literal, `*` one level. What is called like a picture is listed; see `escape`.
    """
    if not is_remote(folder):
        with explain_os_errors(folder):
            found = _match(folder, pattern)
            return sorted(
                escape(e.path)
                for e in found
                if IMAGE_NAME.search(e.name) or _is(e.is_file)
            )
    with _bucket(address := join(folder, pattern)) as gfile:
        return sorted(path for path in gfile.glob(address) if not path.endswith("/"))


def list_folders(pattern: str, folder: AnyPath) -> list[str]:
    """Sorted paths of the folders of a disk that match `pattern` below `folder`."""
    return sorted(
        escape(entry.path) for entry in _match(folder, pattern) if _is(entry.is_dir)
    )


def escape(name: str) -> str:
    r"""The name, with bytes that are no UTF-8 as "\udce9", and NUL as "\x00": no file has it."""
    return name.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def _is(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise
        return False  # a link that leads nowhere


def _match(folder: AnyPath, pattern: str) -> Iterator[os.DirEntry[str]]:
    """Directory entries: they tell files from folders without one more request to a slow disk."""
    first, _, rest = pattern.lstrip("/").partition("/")
    with os.scandir(str(folder)) as entries:
        for entry in entries:
            hidden = entry.name.startswith(".") and not first.startswith(".")
            if not hidden and fnmatch.fnmatchcase(entry.name, first):
                if not rest:
                    yield entry
                elif _is(entry.is_dir):
                    yield from _match(entry.path, rest)


def exists(path: AnyPath) -> bool:
    """True when a file, folder, object or prefix of that name is there."""
    return _call(path, os.path.exists, "exists")


def is_folder(path: AnyPath) -> bool:
    """True for an existing folder, or a prefix that objects of a bucket share."""
    return _call(path, os.path.isdir, "isdir")


def make_folder(path: str) -> str:
    """The same path, where a folder is now, with its parents; a bucket needs none."""
    if path and not is_remote(path) and not exists(path):
        make_folder(os.path.dirname(path))
        os.makedirs(path, exist_ok=True)
        _keep_names(os.path.dirname(path))
    return path


def _keep_names(folder: str) -> None:
    """Lets what was named, renamed or removed in a folder outlast a power cut, where it can."""
    with contextlib.suppress(
        OSError
    ):  # Windows opens no folder, a network's may not know how
        number = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def remove(path: AnyPath) -> None:
    """Removes the file or object for good; one that is not there is no error."""
    with contextlib.suppress(FileNotFoundError):
        _call(path, os.remove, "remove")
        if not is_remote(path):
            _keep_names(os.path.dirname(path))


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """Return (bytes, ns since 1970 of the last change), equal while a file is unchanged."""
    status = _call(path, os.stat, "stat")
    if is_remote(path):
        return status.length, status.mtime_nsec
    return status.st_size, status.st_mtime_ns


def digest(data: bytes) -> str:
    """16 hexadecimal digits by which a picture's bytes are known again."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def sha256_of(path: AnyPath) -> str:
    """The digest of a file or object, in hexadecimal."""
    with local_copy(path) as local, open(local, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_parquet(path: AnyPath, columns: list[str] | None = None) -> "pd.DataFrame":
    """The table of a parquet file; of `columns`, or all of them."""
    import pandas as pd
    import pyarrow as pa

    # Arrow's own buffer: its threads then hold no Python object when the interpreter ends.
    return pd.read_parquet(pa.BufferReader(read_bytes(path)), columns=columns)


def write_parquet(table: "pd.DataFrame", path: AnyPath) -> None:
    """Writes a table as parquet, without its index, as `write_atomically` does."""
    write_atomically(path, table.to_parquet(index=False))


def scratch_folder(part_dir: str) -> str:
    """Where a part's files are made: in its journal folder; a bucket's, on this machine."""
    return tempfile.gettempdir() if is_remote(part_dir) else join(part_dir, "journal")


def free_bytes(part_dir: str) -> int:
    """Bytes free where the part's shards are made."""
    return shutil.disk_usage(scratch_folder(part_dir)).free


def publish_file(temporary: str, path: str) -> None:
    """Gives a finished local file its final name, on the disk or in a bucket, in one step."""
    if is_remote(path):  # shows the object only once its upload is complete
        with _bucket(path) as gfile:
            gfile.copy(temporary, path, overwrite=True)
        os.remove(temporary)
    else:
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        make_folder(os.path.dirname(path))
        os.replace(temporary, path)
        _keep_names(os.path.dirname(path))


def _call(path: AnyPath, on_disk: Callable[[AnyPath], Any], in_bucket: str) -> Any:
    """The answer of this function for a local path, of that one of `tf.io.gfile` for another."""
    if not is_remote(path):
        with explain_os_errors(path):
            return on_disk(path)
    with _bucket(path) as gfile:
        return getattr(gfile, in_bucket)(path)


def limit_bucket_cache() -> None:
    """Let TensorFlow fill 4 MiB of memory for each object that it opens, not 64 MiB.

    It reads this setting when it is imported. What the environment already has stays.
    """
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")


@contextlib.contextmanager
def _bucket(path: AnyPath) -> Iterator[Any]:
    """`tf.io.gfile`, whose errors become Python's own and name `path`."""
    limit_bucket_cache()
    import tensorflow as tf

    _check_bucket("/".join(str(path).split("/")[:3]))
    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"'{path}' is not there: {error.message}") from None
    except tf.errors.PermissionDeniedError as error:
        mend = "Is the bucket public? Else set GOOGLE_APPLICATION_CREDENTIALS before Python starts."
        raise PermissionError(
            f"'{path}' may not be opened: {error.message}. {mend}"
        ) from None
    except tf.errors.OpError as error:
        raise OSError(
            f"'{path}' could not be reached: {error.message}. {RESUME_HINT}"
        ) from None


@cache
def _check_bucket(bucket: str) -> None:
    """None, once the bucket gave any answer, even "forbidden"; asked once a process."""
    import tensorflow as tf

    def ask() -> None:
        with contextlib.suppress(Exception):  # the call that follows reports it in full
            tf.io.gfile.exists(bucket)

    # TensorFlow's own client retries for many minutes, and cannot be interrupted.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if thread.is_alive():
        what = f"{bucket} did not answer within {ANSWER_SECONDS} s. Are name and network right?"
        keys = "NO_GCE_CHECK=true for a public bucket, GOOGLE_APPLICATION_CREDENTIALS for another"
        raise TimeoutError(
            f"{what} Outside Google's cloud set, before Python starts, {keys}."
        )
