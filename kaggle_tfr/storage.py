"""Files on a disk and objects in a bucket (gs://…) by the same calls, with the same errors."""

import contextlib
import fnmatch
import hashlib
import io
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

READS_IN_FLIGHT = 32  # a bucket takes 50 ms for a request, and serves many at a time
ANSWER_SECONDS = 45
CHUNK_BYTES = 8 << 20  # 8 MiB

AnyPath = str | os.PathLike[str]

_OUTSIDE = re.compile(r"^[/\\]|^[A-Za-z]:|://|(^|[/\\])\.\.([/\\]|$)")


def is_remote(path: AnyPath) -> bool:
    """True for an address such as gs://bucket/folder."""
    return "://" in str(path)


def leads_out(name: str) -> bool:
    """True for a name that leaves its folder: absolute, an address, or with a part ".."."""
    return _OUTSIDE.search(name) is not None


def join(folder: AnyPath, *names: str) -> str:
    """The path of what lies in the folder under these names, joined by "/".

    >>> join("gs://bucket/", "train", "1.jpg")
    'gs://bucket/train/1.jpg'

    Raises:
        ValueError: a name leads out of the folder.
    """
    head = str(folder).rstrip("/") or "/"
    for name in names:
        if leads_out(name):
            raise ValueError(
                f"the name '{name}' leads out of its folder '{head}'. "
                "Give a name below the folder, without '..' and without a leading '/'."
            )
    return os.path.join(head, *names) if names else head


def resolve(folder: AnyPath, name: str) -> str:
    """The path of a file that a user names: in the folder, unless absolute or an address.

    >>> resolve("/data/", "labels.csv"), resolve("/data", "gs://bucket/labels.csv")
    ('/data/labels.csv', 'gs://bucket/labels.csv')
    """
    return name if is_remote(name) else os.path.join(join(folder), name)


def read_bytes(path: AnyPath) -> bytes:
    """The whole content of a file or object.

    Raises: FileNotFoundError; TimeoutError when a bucket does not answer; OSError otherwise.
    """
    with _open(path, "rb") as file:
        return file.read()


@contextlib.contextmanager
def on_disk(path: AnyPath) -> Iterator[AnyPath]:
    """The path of a local file with the same content: itself, or a copy until the block ends.

    For tables that are read piece by piece, and may be larger than the memory.
    """
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = join(folder, "copy")
        with _bucket(path) as gfile:
            gfile.copy(path, local)
        yield local


def read_many(paths: Iterable[AnyPath]) -> Iterator[bytes | OSError]:
    """The bytes of each file or object in order, or the OSError that reading it met.

    A file is read when its turn comes; of a bucket's objects 32 are read ahead.

    Raises: TimeoutError when a bucket does not answer.
    """
    reads: deque[Callable[[], bytes | OSError]] = deque()
    with ThreadPoolExecutor(READS_IN_FLIGHT) as threads:
        for path in paths:
            read = partial(_try_to_read, path)
            ahead = READS_IN_FLIGHT if is_remote(path) else 0
            reads.append(threads.submit(read).result if ahead else read)
            while len(reads) > ahead:
                yield reads.popleft()()
        while reads:
            yield reads.popleft()()


def _try_to_read(path: AnyPath) -> bytes | OSError:
    try:
        return read_bytes(path)
    except TimeoutError:
        raise
    except OSError as error:
        return error


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Writes the bytes so that `path` is either whole or as it was before, whatever happens.

    On a disk: a temporary name beside it, flushed to the device, renamed. A bucket shows an
    object only once its upload is complete.
    """
    if is_remote(path):
        with _open(path, "wb") as file:
            file.write(data)
        return
    # Workers on other machines may write the same file, and have the same process number.
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def list_files(pattern: str, folder: AnyPath) -> list[str]:
    """Sorted paths of the files that match `pattern` below `folder`, whose name is literal.

    pattern: `*`, `?`, `[…]` within one level; hidden files are passed over.
    """
    if is_remote(folder):
        address = join(folder, pattern)
        with _bucket(address) as gfile:
            return sorted(path for path in gfile.glob(address) if not path.endswith("/"))
    return sorted(entry.path for entry in _match(folder, pattern) if entry.is_file())


def list_folders(pattern: str, folder: AnyPath) -> list[str]:
    """Sorted paths of the folders of a disk that match `pattern` below `folder`."""
    return sorted(entry.path for entry in _match(folder, pattern) if entry.is_dir())


def _match(folder: AnyPath, pattern: str) -> Iterator[os.DirEntry[str]]:
    """Directory entries: they tell files from folders without one more request to a slow disk."""
    first, _, rest = pattern.lstrip("/").partition("/")
    with os.scandir(str(folder)) as entries:
        for entry in entries:
            hidden = entry.name.startswith(".") and not first.startswith(".")
            if not hidden and fnmatch.fnmatchcase(entry.name, first):
                if not rest:
                    yield entry
                elif entry.is_dir():
                    yield from _match(entry.path, rest)


def exists(path: AnyPath) -> bool:
    """True when a file, folder, object or prefix of that name is there."""
    if not is_remote(path):
        return os.path.exists(path)
    with _bucket(path) as gfile:
        return gfile.exists(path)


def is_folder(path: AnyPath) -> bool:
    """True for an existing folder, or a prefix that objects of a bucket share."""
    if not is_remote(path):
        return os.path.isdir(path)
    with _bucket(path) as gfile:
        return gfile.isdir(path)


def make_folder(path: str) -> str:
    """The same path, where a folder is now, with its parents; a bucket needs none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
    return path


def remove(path: AnyPath) -> None:
    """Removes the file or object; one that is not there is no error."""
    with contextlib.suppress(FileNotFoundError):
        if not is_remote(path):
            os.remove(path)
            return
        with _bucket(path) as gfile:
            gfile.remove(path)


def size(path: AnyPath) -> int:
    """Bytes of the file or object."""
    return size_and_time(path)[0]


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """(bytes, nanoseconds since 1970 of the last change): equal when a file has not changed."""
    if is_remote(path):
        with _bucket(path) as gfile:
            status = gfile.stat(path)
        return int(status.length), int(status.mtime_nsec)
    local = os.stat(path)
    return local.st_size, local.st_mtime_ns


def sha256_of(path: AnyPath) -> str:
    """sha256 of a file or object, in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    with _open(path, "rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def read_parquet(path: AnyPath, columns: list[str] | None = None) -> "pd.DataFrame":
    """The table of a parquet file; of `columns`, or all of them."""
    import pandas as pd
    import pyarrow as pa

    # Arrow's own buffer: its threads then hold no Python object when the interpreter ends.
    return pd.read_parquet(pa.BufferReader(read_bytes(path)), columns=columns)


def write_parquet(table: "pd.DataFrame", path: AnyPath) -> None:
    """Writes a table as parquet, without its index, as `write_atomically` does."""
    stream = io.BytesIO()
    table.to_parquet(stream, index=False)
    write_atomically(path, stream.getvalue())


def scratch_folder(part_dir: str) -> str:
    """Where shards lie until they have their names; a bucket's are made on this machine."""
    return tempfile.gettempdir() if is_remote(part_dir) else join(part_dir, "journal")


def free_bytes(part_dir: str) -> int:
    """Bytes free where the part's shards are made."""
    return shutil.disk_usage(tempfile.gettempdir() if is_remote(part_dir) else part_dir).free


def scratch_file(part_dir: str, stem: str) -> str:
    """A new local file to write into: in the part's journal folder, so that a rename is enough."""
    folder = scratch_folder(part_dir)
    handle, path = tempfile.mkstemp(prefix=f"{stem}-", suffix=".tmp", dir=folder)
    os.close(handle)
    os.chmod(path, 0o644)  # mkstemp hides its files from others
    return path


def publish_file(temporary: str, path: str) -> None:
    """Gives a finished local file its final name, on the disk or in a bucket, in one step."""
    if is_remote(path):
        # A bucket shows the object once its upload is complete.
        with _bucket(path) as gfile:
            gfile.copy(temporary, path, overwrite=True)
        os.remove(temporary)
        return
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(temporary, path)


@contextlib.contextmanager
def _open(path: AnyPath, mode: str) -> Iterator[Any]:
    """A binary file, local or in a bucket, closed when the block ends."""
    if not is_remote(path):
        with open(path, mode) as file:
            yield file
        return
    with _bucket(path) as gfile, gfile.GFile(path, mode) as file:
        yield file


@contextlib.contextmanager
def _bucket(path: AnyPath) -> Iterator[Any]:
    """`tf.io.gfile`, whose errors become Python's own and name `path`.

    Raises: FileNotFoundError, PermissionError; TimeoutError when the bucket is silent; OSError.
    """
    import tensorflow as tf

    _check_bucket("/".join(str(path).split("/")[:3]))
    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"'{path}' is not there: {error.message}") from None
    except tf.errors.PermissionDeniedError as error:
        raise PermissionError(
            f"'{path}' may not be opened: {error.message}. Is the bucket public? Otherwise set "
            "GOOGLE_APPLICATION_CREDENTIALS before Python starts."
        ) from None
    except tf.errors.OpError as error:
        raise OSError(f"'{path}' could not be reached: {error.message}") from None


@cache
def _check_bucket(bucket: str) -> None:
    """None, once the bucket gave any answer, even "forbidden"; asked once a process.

    TensorFlow's own client retries for many minutes, and cannot be interrupted.
    """
    import tensorflow as tf

    def ask() -> None:
        with contextlib.suppress(Exception):  # the call that follows reports it in full
            tf.io.gfile.exists(bucket)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if thread.is_alive():
        raise TimeoutError(
            f"{bucket} did not answer within {ANSWER_SECONDS} s. Is the name right and the network "
            "up? Outside Google's cloud a public bucket needs NO_GCE_CHECK=true in the environment "
            "before Python starts, a private one GOOGLE_APPLICATION_CREDENTIALS."
        )
