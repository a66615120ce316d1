"""Read and write files on disk and objects in Google Cloud Storage (gs://…).

The same calls work for both and raise the same errors. A file that has its final name
is complete: it is written under a temporary name first.
"""

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import pandas as pd

AnyPath = str | os.PathLike[str]
ANSWER_SECONDS = 45  # for a bucket's first response
PART_LEVELS = 16  # of folders in a part: SHARD_NAME may contain "/"
RESUME_HINT = "Then run this step again; it resumes where it stopped."
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
FAILING = (*NO_SPACE, errno.EIO, errno.ETIMEDOUT)
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
# What to do about an error number: when reading, and when writing output.
FIXES = dict.fromkeys(FAILING, "Free disk space or check the disk.")
OUTPUT_FIXES = {
    **FIXES,
    **dict.fromkeys(DENIED, "Choose another folder, or allow writing there."),
    errno.EISDIR: "A file belongs there: move that folder away.",
}
OUTSIDE = re.compile(r"^[/\\]|^[A-Za-z]:|://|(^|[/\\])\.\.([/\\]|$)")  # of a folder
IMAGE_NAME = re.compile(
    r"(?i)\.(jpe?g?|jfif|png|webp|bmp|gif|tiff?|avif|heic|heif|ppm|pgm)$"
)
ESCAPED = re.compile(r"\\udc[89a-f][0-9a-f]|\\x00")  # in what `escape` returns
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")  # the end of names of `new_file`


@contextlib.contextmanager
def explain_os_errors(
    path: AnyPath, fixes: Mapping[int, str] = FIXES
) -> Iterator[None]:
    """Add the path and a suggested fix to an OSError that the block raises.

    path: for an error that does not name its file. fixes: by error number; other
        errors, and those that an inner block has explained, are left as they are.
    """
    try:
        yield
    except OSError as error:
        fix = fixes.get(error.errno or 0)
        if not fix or RESUME_HINT in str(error):
            raise
        file = error.filename2 or error.filename or path
        message = f"{error.strerror}: '{file}'. {fix} {RESUME_HINT}"
        raise OSError(error.errno, message) from error


def is_remote(path: AnyPath) -> bool:
    """Return whether a path is an address such as gs://bucket/folder."""
    return "://" in str(path)


def check_inside(name: str, description: str, folder: str) -> None:
    """Raise a ValueError if a name is absolute, an address, or contains ".."."""
    if OUTSIDE.search(name):
        raise ValueError(
            f"{description} is outside its folder {folder}. Use a path below it, "
            "without '..' and without a leading '/'."
        )


def join(folder: AnyPath, *names: str) -> str:
    """Return the path below the folder. Raises: ValueError: a name is outside it."""
    top = str(folder).rstrip("/") or "/"
    for name in names:
        check_inside(name, f"the name '{name}'", f"'{top}'")
    return os.path.join(top, *names)


def resolve(folder: AnyPath, name: str) -> str:
    """Return the path of a file in the folder; absolute paths and addresses stay."""
    return name if is_remote(name) else os.path.join(folder, name)


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
    if is_remote(path):
        with _bucket(path) as gfile, gfile.GFile(path, "rb") as file:
            return file.read()
    with explain_os_errors(path):
        _check_regular(path)
        with open(path, "rb") as file:
            return file.read()


class NotAFileError(OSError):
    """A pipe, a socket or a device where a file was expected."""


def _check_regular(path: AnyPath) -> None:
    """Raise NotAFileError: a pipe may block for ever, a device may never end.

    `open` reports folders.
    """
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise NotAFileError(errno.EINVAL, "no regular file", str(path))


def read_text(path: AnyPath) -> str:
    """Return the text of a file, "" if there is none."""
    try:
        return read_bytes(path).decode(errors="replace")
    except (FileNotFoundError, IsADirectoryError, NotAFileError):
        return ""


def read_pieces(path: AnyPath, offset: int, sizes: Iterable[int]) -> list[bytes]:
    """Return consecutive pieces of a file or object from byte `offset` on."""
    if is_remote(path):
        with _bucket(path) as gfile, gfile.GFile(path, "rb") as file:
            file.seek(offset)
            return [file.read(size) for size in sizes]
    # Without Python's file object, whose checks cost a fifth of the time of a record.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return [os.read(descriptor, size) for size in sizes]
    finally:
        os.close(descriptor)


def parse_json(text: str | bytes, path: str, advice: str) -> dict[str, Any]:
    """Return the mapping in a JSON file.

    advice: what to do if there is none, for the error.
    Raises: ValueError: it names the file.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{path}' is not valid JSON: {error}. {advice}") from None
    if not isinstance(values, dict):
        raise ValueError(
            f"'{path}' contains {type(values).__name__} where a mapping is expected. "
            f"{advice}"
        )
    return values


@contextlib.contextmanager
def local_copy(path: AnyPath) -> Iterator[AnyPath]:
    """Yield a local file with the content: itself, or a copy while the block runs."""
    if not is_remote(path):
        with explain_os_errors(path):
            _check_regular(path)
            yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = join(folder, "copy")
        with _bucket(path) as gfile:
            gfile.copy(path, copy)
        yield copy


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Write a file, which is either complete or unchanged, whatever happens."""
    with new_file(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


def update(path: AnyPath, data: bytes) -> None:
    """Write a file as `write_atomically` does, unless it has this content."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotAFileError):
        if read_bytes(path) == data:
            return
    write_atomically(path, data)


@contextlib.contextmanager
def new_file(path: AnyPath) -> Iterator[str]:
    """Yield the path of a local file, which becomes `path` if the block succeeds."""
    # A number of the process would not do: other machines may write the same file.
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    if is_remote(path):
        temporary = os.path.join(tempfile.gettempdir(), os.path.basename(temporary))
    with explain_os_errors(path):
        make_folder(os.path.dirname(temporary))
        try:
            with _create_locked(temporary):
                yield temporary
                publish_file(temporary, str(path))
        finally:
            remove(temporary)


def _create_locked(path: str) -> TextIO:
    """Return a new file that is locked, if its file system can; closing it unlocks."""
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
        with contextlib.suppress(OSError):  # this file system has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def publish_file(temporary: str, path: str) -> None:
    """Move a finished local file to its final name, or copy it to a bucket."""
    if is_remote(path):  # an object is visible only once its upload is complete
        with _bucket(path) as gfile:
            gfile.copy(temporary, path, overwrite=True)
        return
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    folder = os.path.dirname(path)
    make_folder(folder)
    os.replace(temporary, path)
    _sync_folder(folder)


def remove_leftovers(folder: AnyPath, depth: int = 1) -> None:
    """Remove the temporary files of killed processes from a folder on disk.

    depth: levels of folders below it to search.
    """
    if is_remote(folder):  # a bucket contains complete objects only
        return
    top = os.path.abspath(folder)
    for parent, folders, names in os.walk(top):
        if parent.count("/") - top.count("/") == depth:
            folders.clear()
        for name in filter(TEMPORARY.search, names):
            _remove_unlocked(os.path.join(parent, name))


def _remove_unlocked(path: str) -> None:
    """Remove a temporary file unless a process, or another user, is writing it."""
    with (
        contextlib.suppress(FileNotFoundError, PermissionError),
        open(path, "rb+") as file,
    ):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is locked, or this file system has no locks
            return
        remove(path)


def list_files(pattern: str, folder: AnyPath) -> list[str]:
    """Return the sorted paths of the files in a folder that match a pattern.

    pattern: `*` is one level; hidden files do not match. The folder's name is literal.
    A path with the name of an image is listed even if it is not a file, so that
    01_explore rejects it. Names that are not text are escaped, see `escape`.
    """
    if is_remote(folder):
        address = join(folder, pattern)
        with _bucket(address) as gfile:
            return sorted(path for path in gfile.glob(address) if path[-1] != "/")
    with explain_os_errors(folder):
        return sorted(
            escape(entry.path)
            for entry in _match(folder, pattern)
            if IMAGE_NAME.search(entry.name) or _is_true(entry.is_file)
        )


def escape(name: str) -> str:
    r"""Return the name with bytes that are not UTF-8 as "\udce9", and NUL as "\x00"."""
    return name.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def _match(folder: AnyPath, pattern: str) -> Iterator[os.DirEntry[str]]:
    """Yield directory entries, whose type needs no more requests to a slow disk."""
    first, _, rest = pattern.lstrip("/").partition("/")
    with os.scandir(str(folder)) as entries:
        for entry in entries:
            if not _is_match(entry.name, first):
                continue
            if not rest:
                yield entry
            elif _is_true(entry.is_dir):
                yield from _match(entry.path, rest)


def _is_match(name: str, pattern: str) -> bool:
    """Return whether a name matches; only a pattern with a dot lists hidden names."""
    is_hidden = name.startswith(".") and not pattern.startswith(".")
    return not is_hidden and fnmatch.fnmatchcase(name, pattern)


def _is_true(check: Callable[[], bool]) -> bool:
    """Return the result of a check, False for a broken link."""
    try:
        return check()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
            return False
        raise


def exists(path: AnyPath) -> bool:
    """Return whether there is a file, folder, object or prefix of that name."""
    return _call(path, os.path.exists, "exists")


def is_folder(path: AnyPath) -> bool:
    """Return whether a path is a folder, or a prefix of objects in a bucket."""
    return _call(path, os.path.isdir, "isdir")


def make_folder(path: str) -> None:
    """Create a folder with its parents; a bucket needs none."""
    if path and not is_remote(path) and not exists(path):
        parent = os.path.dirname(path)
        make_folder(parent)
        os.makedirs(path, exist_ok=True)
        _sync_folder(parent)


def _sync_folder(folder: str) -> None:
    """Make new names, renames and removals in a folder survive a power cut."""
    with contextlib.suppress(OSError):  # a network file system may not support it
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: AnyPath) -> None:
    """Remove a file or object, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        _call(path, os.remove, "remove")
        if not is_remote(path):
            _sync_folder(os.path.dirname(path))


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """Return (bytes, ns since 1970 of the last change); equal if nothing changed."""
    status = _call(path, os.stat, "stat")
    if is_remote(path):
        return status.length, status.mtime_nsec
    return status.st_size, status.st_mtime_ns


def digest(data: bytes) -> str:
    """Return 16 hexadecimal digits that identify the bytes of an image."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def sha256_of(path: AnyPath) -> str:
    """Return the SHA-256 of a file or object in hexadecimal."""
    with local_copy(path) as local, open(local, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_parquet(path: AnyPath, columns: list[str] | None = None) -> "pd.DataFrame":
    """Return the table in a parquet file. columns: None for all."""
    import pandas as pd
    import pyarrow as pa

    # With Arrow's own buffer its threads hold no Python object when Python exits.
    return pd.read_parquet(pa.BufferReader(read_bytes(path)), columns=columns)


def write_parquet(table: "pd.DataFrame", path: AnyPath) -> None:
    """Write a table without its index, as `write_atomically` does."""
    write_atomically(path, table.to_parquet(index=False))


def scratch_folder(part_dir: str) -> str:
    """Return the local folder in which a part's files are written first."""
    return tempfile.gettempdir() if is_remote(part_dir) else join(part_dir, "journal")


def _call(path: AnyPath, function: Callable[[AnyPath], Any], gfile_name: str) -> Any:
    """Return what a function, or that of `tf.io.gfile` for an address, returns."""
    if is_remote(path):
        with _bucket(path) as gfile:
            return getattr(gfile, gfile_name)(path)
    with explain_os_errors(path):
        return function(path)


def limit_bucket_cache() -> None:
    """Let TensorFlow allocate 4 MiB for each object that it opens instead of 64 MiB.

    TensorFlow reads this setting when it is imported. A value that is set stays.
    """
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")


@contextlib.contextmanager
def _bucket(path: AnyPath) -> Iterator[Any]:
    """Yield `tf.io.gfile`; its errors become Python's, with the path."""
    limit_bucket_cache()
    import tensorflow as tf

    _check_bucket("/".join(str(path).split("/")[:3]))
    try:
        yield tf.io.gfile
    except tf.errors.OpError as error:
        error_types = {
            tf.errors.NotFoundError: FileNotFoundError,
            tf.errors.PermissionDeniedError: PermissionError,
        }
        raise error_types.get(type(error), OSError)(
            f"'{path}' could not be opened: {error.message}. Check the address. If the "
            "bucket is private, set GOOGLE_APPLICATION_CREDENTIALS before Python "
            f"starts. {RESUME_HINT}"
        ) from None


@cache
def _check_bucket(bucket: str) -> None:
    """Raise a TimeoutError if the bucket does not respond, not even by an error."""
    import tensorflow as tf

    def request() -> None:
        with contextlib.suppress(Exception):  # the caller's request reports it in full
            tf.io.gfile.exists(bucket)

    # TensorFlow's own client retries for many minutes, and cannot be interrupted.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if thread.is_alive():
        raise TimeoutError(
            f"{bucket} did not answer within {ANSWER_SECONDS} s. Check its name and "
            "the network. Outside Google's cloud set, before Python starts, "
            "NO_GCE_CHECK=true for a public bucket, or GOOGLE_APPLICATION_CREDENTIALS "
            "for a private one."
        )
