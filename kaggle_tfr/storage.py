"""Read and write files on disk and objects in Google Cloud Storage (gs://…).

The same calls work for both and raise the same errors. A file that has its final name
is complete: it is written under a temporary name first. One run at a time works in a
folder, and removes the temporary files that killed runs left there.
"""

import csv
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

from kaggle_tfr.session import tf

if TYPE_CHECKING:
    import pandas as pd

AnyPath = str | os.PathLike[str]
READ_BYTES = 1 << 20  # 1 MiB at a time
ANSWER_SECONDS = 45  # for a bucket's first response
RESUME_HINT = "Run this step again: it resumes where it stopped."
ERRNO = r"\[Errno \d+\] "  # at the start of an OSError's text
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
FAILING = (*NO_SPACE, errno.EIO, errno.ETIMEDOUT)
OUTSIDE = re.compile(r"^[/\\]|^[A-Za-z]:|://|(^|[/\\])\.\.([/\\]|$)")  # of a folder
IMAGE_NAME = re.compile(
    r"(?i)\.(jpe?g?|jfif|png|webp|bmp|gif|tiff?|avif|heic|heif|ppm|pgm)$"
)
ESCAPED = re.compile(r"\\udc[89a-f][0-9a-f]|\\x00")  # in what `escape` returns
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")  # the end of names of `temporary_file`
# Environment variable: the WORK_DIR that a driver has locked for its kernels.
INSIDE = "KAGGLE_TFR_LOCKED"


@contextmanager
def explain_os_errors(path: AnyPath) -> Iterator[None]:
    """Raise errors of a full or failing disk again, with the path and what to do.

    They are those in FAILING: no space, quota exceeded, failed read or write, timeout.
    Other errors of the block are raised as they are.
    path: for an error that does not name its file.
    """
    try:
        yield
    except OSError as error:
        # An inner block may have added the hint already.
        if error.errno not in FAILING or RESUME_HINT in str(error):
            raise
        file = error.filename or path
        message = f"{error.strerror}: '{file}'. Free disk space. {RESUME_HINT}"
        raise OSError(error.errno, message) from error


def is_remote(path: AnyPath) -> bool:
    """Return whether a path is an address such as gs://bucket/folder."""
    return "://" in str(path)


def join(folder: AnyPath, *names: str) -> str:
    """Return the path below the folder.

    Raises: ValueError: a name may lead outside: "/a", "..", "c:a" or an address.
    """
    for name in names:
        if OUTSIDE.search(name):
            raise ValueError(f"the name '{name}' is outside its folder '{folder}'")
    return os.path.join(folder, *names)


def resolve(folder: AnyPath, name: str) -> str:
    """Return the path of a file in the folder; absolute paths and addresses stay."""
    return name if is_remote(name) else os.path.join(folder, name)


def real_path(path: AnyPath) -> str:
    """Return the absolute path with all links followed; addresses stay as they are.

    "" is the root, not the current folder: callers that remove "/" from the end of a
    path make "" of "/".
    """
    return str(path) if is_remote(path) else os.path.realpath(path or "/")


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path is the folder or below it, with all links followed."""
    root = real_path(folder).rstrip("/")
    # With "/" at both ends, "/data2" is not inside "/data".
    return f"{real_path(path)}/".startswith(f"{root}/")


@contextmanager
def open_file(path: AnyPath) -> Iterator[Any]:
    """Yield a file or object that is open to read bytes, without a buffer.

    Raises: FileNotFoundError: there is none, or it is a pipe or a device; OSError.
    """
    if is_remote(path):
        with _bucket(path) as gfile, gfile.GFile(path, "rb") as file:
            yield file
        return
    with explain_os_errors(path):
        mode = os.stat(path).st_mode
        # Reading a pipe or a device may never end. `open` raises an error for a folder.
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
        with open(path, "rb", buffering=0) as file:
            yield file


def read_bytes(path: AnyPath) -> bytes:
    """Return the content of a file or object.

    Raises: FileNotFoundError; TimeoutError: the bucket does not respond; OSError.
    """
    with open_file(path) as file:
        return file.read()


def read_text(path: AnyPath) -> str:
    """Return the text of a file, "" if there is no such file.

    Bytes that are not UTF-8 become "�".
    """
    with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return read_bytes(path).decode(errors="replace")
    return ""


def parse_json(
    text: str | bytes, path: str, advice: str, make: Callable[[Any], Any] = dict
) -> Any:
    """Return the content of a JSON file, converted by `make`; by default a dict.

    text: the file's. path, advice: for the error: its name, and what the user can do.
    Raises: ValueError: the text is not JSON, or `make` does not accept its content.
    """
    try:
        return make(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"'{path}' cannot be used: {error}. {advice}") from None


@contextmanager
def local_copy(path: AnyPath) -> Iterator[AnyPath]:
    """Yield a local file with this content: `path`, or a temporary copy of an object.

    The copy is removed when the block ends.
    """
    if not is_remote(path):
        yield path
        return
    with temporary_file(path) as copy:
        with _bucket(path) as gfile:
            gfile.copy(path, copy)
        yield copy


def write_atomically(path: AnyPath, content: bytes | str) -> None:
    """Write a file, which is either complete or unchanged, whatever happens.

    Text is UTF-8. Missing folders are created. A file that has this content already is
    not written, and keeps its time.
    """
    data = content.encode() if isinstance(content, str) else content
    if exists(path) and read_bytes(path) == data:
        return
    with new_file(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


@contextmanager
def new_file(path: AnyPath) -> Iterator[str]:
    """Yield the path of a local file, which becomes `path` if the block succeeds."""
    with explain_os_errors(path), temporary_file(path) as temporary:
        yield temporary
        publish_file(temporary, str(path))


@contextmanager
def temporary_file(path: AnyPath) -> Iterator[str]:
    """Yield a local path at which the block can create a file; remove it afterwards.

    It is in the folder of `path`, so that the file can be renamed to `path`. For an
    object it is in the temporary folder of this machine.
    """
    # The number of the process is not unique: in a folder on a network, another machine
    # may write the same file.
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    if is_remote(path):
        temporary = os.path.join(tempfile.gettempdir(), os.path.basename(temporary))
    make_folder(os.path.dirname(temporary))
    try:
        yield temporary
    finally:
        remove(temporary)


def publish_file(temporary: str, path: str) -> None:
    """Move a finished local file to its final name, or copy it to a bucket."""
    if is_remote(path):  # an object is visible only once its upload is complete
        with _bucket(path) as gfile:
            gfile.copy(temporary, path, overwrite=True)
        return
    # First the content is on the disk, then the name: a power cut leaves no half file.
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    make_folder(os.path.dirname(path))
    os.replace(temporary, path)
    _sync_folder_of(path)


@contextmanager
def lock(path: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs, then remove that file.

    In a bucket, and on a file system without locks, nothing is locked.
    Raises: RuntimeError: another process holds the lock.
    """
    if is_remote(path):
        yield
        return
    from filelock import FileLock, Timeout

    file_lock = FileLock(path, timeout=0)
    try:
        file_lock.acquire()
    except Timeout:
        raise RuntimeError(
            f"'{path}' is locked by another run. Wait until it has ended, run its "
            "notebook to the end or shut its kernel down, or choose another folder."
        ) from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:  # else the block runs without a lock
            raise
    try:
        yield
    finally:
        # Remove it while it is locked: later, it could be the lock of another process.
        try:
            remove(path)
        finally:
            file_lock.release()


@contextmanager
def lock_work_dir(work_dir: str) -> Iterator[None]:
    """Lock the WORK_DIR while the block runs; remove temporary files of killed runs.

    Raises: RuntimeError: another run works in the WORK_DIR.
    """
    with lock(f"{work_dir}/run.lock"):
        remove_leftovers(work_dir)
        yield


def remove_leftovers(folder: AnyPath) -> None:
    """Remove the temporary files of killed runs from a folder that no other run uses.

    They have the names of `temporary_file`. A bucket is left as it is: it contains
    complete objects only.
    """
    for parent, _, names in os.walk(folder):  # nothing for a bucket's address
        for name in filter(TEMPORARY.search, names):
            remove(os.path.join(parent, name))


def list_names(folder: AnyPath) -> list[str]:
    """Return the sorted names in a folder, those of folders with a "/" at the end.

    [] if it is not a folder.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(_call(folder, _list_folder, "listdir"))
    return []


def _list_folder(folder: AnyPath) -> list[str]:
    """Return the names in a local folder, those of folders with "/", as gfile does."""
    with os.scandir(folder) as entries:
        return [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]


def escape(name: str) -> str:
    r"""Return a file's name as text that can be saved as UTF-8; valid names stay.

    A byte that is not UTF-8 (a surrogate in Python) becomes six characters such as
    "\udce9"; NUL becomes "\x00".
    """
    return name.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def exists(path: AnyPath) -> bool:
    """Return whether there is a file, folder, object or prefix of that name."""
    return _call(path, os.path.exists, "exists")


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """Return (bytes, ns since 1970 of the last change); equal if nothing changed."""
    status = _call(path, os.stat, "stat")
    if is_remote(path):
        return status.length, status.mtime_nsec
    return status.st_size, status.st_mtime_ns


def remove(path: AnyPath) -> None:
    """Remove a file or object, if it exists."""
    with suppress(FileNotFoundError):
        _call(path, os.remove, "remove")
        _sync_folder_of(path)


def make_folder(path: str) -> None:
    """Create a folder with its parents; a bucket needs none."""
    # One after the other, because each name must be saved in its parent.
    if path and not is_remote(path) and not exists(path):
        make_folder(os.path.dirname(path))
        os.makedirs(path, exist_ok=True)
        _sync_folder_of(path)


def _sync_folder_of(path: AnyPath) -> None:
    """Save on disk that `path` was created, renamed or removed.

    Its folder has the name: unless that is synced, a power cut may undo the change.
    Nothing is done for an object of a bucket.
    """
    # A network file system may not support it, and gs://… is not a folder here.
    with suppress(OSError):
        descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def digest(data: bytes) -> str:
    """Return 16 hexadecimal digits that identify bytes, such as those of an image."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def sha256_of(path: AnyPath) -> str:
    """Return the SHA-256 of a file or object in hexadecimal."""
    sha256 = hashlib.sha256()
    with open_file(path) as file:
        while data := file.read(READ_BYTES):
            sha256.update(data)
    return sha256.hexdigest()


def read_parquet(path: AnyPath, columns: list[str] | None = None) -> "pd.DataFrame":
    """Return the table in a parquet file. columns: None for all."""
    import pandas as pd
    import pyarrow as pa

    # A buffer of Arrow, not of Python: Arrow's threads then hold no Python object when
    # Python exits.
    return pd.read_parquet(pa.BufferReader(read_bytes(path)), columns=columns)


def write_parquet(table: "pd.DataFrame", path: AnyPath) -> None:
    """Write a table without its index, as `write_atomically` does."""
    write_atomically(path, table.to_parquet(index=False))


def format_csv(table: "pd.DataFrame", *, header: bool = True) -> str:
    """Return the table as CSV, without its index; readers get each text unchanged.

    header: whether the first line has the names of the columns.
    """
    text = table.to_csv(header=header, index=False)
    # Readers end a row at "\r" unless it is quoted. Before Python 3.13 it is not, so
    # all texts are quoted then.
    if "\r" in text:
        text = table.to_csv(header=header, index=False, quoting=csv.QUOTE_NONNUMERIC)
    return text


def _call(path: AnyPath, function: Callable[[AnyPath], Any], gfile_name: str) -> Any:
    """Return `function(path)`, or for an address, what `tf.io.gfile` returns for it.

    gfile_name: the function of `tf.io.gfile` that does the same as `function`.
    """
    if is_remote(path):
        with _bucket(path) as gfile:
            return getattr(gfile, gfile_name)(path)
    return function(path)


@contextmanager
def _bucket(path: AnyPath) -> Iterator[Any]:
    """Yield `tf.io.gfile`; TensorFlow's errors become Python's, with the path.

    Raises: TimeoutError: the bucket does not respond; FileNotFoundError; OSError.
    """
    # The bucket is "gs://NAME" of "gs://NAME/folder/file".
    _check_bucket(re.sub(r"(?s)(\w+://[^/]*).*", r"\1", str(path)))
    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError:
        raise FileNotFoundError(f"'{path}' is missing. Check the address.") from None
    except tf.errors.OpError as error:
        raise OSError(
            f"'{path}': {error.message}. If the bucket is private, set "
            f"GOOGLE_APPLICATION_CREDENTIALS before Python starts. {RESUME_HINT}"
        ) from None


@cache
def _check_bucket(bucket: str) -> None:
    """Raise a TimeoutError if the bucket does not respond.

    An error is a response, too: the next request to the bucket raises it. A bucket that
    has responded is not checked again.
    bucket: such as "gs://NAME".
    """
    # TensorFlow's own client retries for many minutes, and cannot be interrupted. This
    # pool does not wait for its thread when the block ends.
    with ThreadPool(1) as threads:
        answer = threads.apply_async(tf.io.gfile.exists, [bucket])
        answer.wait(ANSWER_SECONDS)
    if not answer.ready():
        raise TimeoutError(
            f"{bucket} did not answer within {ANSWER_SECONDS} s. Check its name and "
            "the network. Outside Google's cloud set, before Python starts, "
            "NO_GCE_CHECK=true for a public bucket, or GOOGLE_APPLICATION_CREDENTIALS "
            "for a private one."
        )
