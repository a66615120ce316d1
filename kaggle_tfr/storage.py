"""Files on a disk and objects in a bucket (gs://…) by the same few calls."""

import contextlib
import fnmatch
import hashlib
import io
import os
import shutil
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import tensorflow as tf

READS_IN_FLIGHT = 32  # a bucket takes 50 ms to answer, and answers many at a time


def is_remote(path):
    """True for an address such as gs://bucket/folder, which goes through `tf.io.gfile`."""
    return "://" in str(path)


def join(folder, *names):
    """Folder and names joined by "/"; an absolute name or address stands for itself.

    >>> join("gs://bucket/", "train", "1.jpg")
    'gs://bucket/train/1.jpg'
    """
    if names and is_remote(names[0]):
        return join(*names)
    head = str(folder).rstrip("/") or "/"
    return head if not names else os.path.join(head, *names)


def read_bytes(path):
    """The whole content of a file or object.

    Raises: FileNotFoundError; TimeoutError when a bucket does not answer; OSError otherwise.
    """
    if is_remote(path):
        return read_object(path)
    with open(path, "rb") as file:
        return file.read()


@contextlib.contextmanager
def on_disk(path):
    """The path of a local file with the same content: itself, or a copy until the block ends.

    For tables that are read piece by piece, and may be larger than the memory.
    """
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = join(folder, "copy")
        copy_object(path, local)
        yield local


def read_many(paths):
    """The bytes of each file or object in order, or the OSError that reading it met.

    Objects of a bucket come with 32 requests in flight. paths: as many as fit in memory at once.

    Raises: TimeoutError when a bucket does not answer.
    """
    if not paths or not is_remote(paths[0]):
        yield from map(_try_to_read, paths)
        return
    with ThreadPoolExecutor(READS_IN_FLIGHT) as threads:
        yield from threads.map(_try_to_read, paths)


def write_atomically(path, data):
    """Writes the bytes so that `path` is either whole or as it was before, whatever happens.

    On a disk: a temporary name beside it, flushed to the device, renamed. A bucket shows an
    object only once its upload is complete.
    """
    if is_remote(path):
        write_object(path, data)
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


def list_files(pattern, folder=""):
    """Sorted paths of the files that match `pattern` below `folder`, whose name is literal.

    pattern: `*`, `?`, `[…]` within one level; hidden files are passed over.
    """
    if is_remote(folder or pattern):
        return sorted(list_objects(join(folder, pattern) if folder else pattern))
    return sorted(entry.path for entry in _match(folder, pattern) if entry.is_file())


def list_folders(pattern, folder=""):
    """Sorted paths of the folders of a disk that match `pattern` below `folder`."""
    return sorted(entry.path for entry in _match(folder, pattern) if entry.is_dir())


def _match(folder, pattern):
    """Directory entries: they know files from folders without asking a slow disk once more each."""
    *above, last = str(pattern).split("/")
    level = [str(folder) or ("/" if str(pattern).startswith("/") else ".")]
    for part in [name for name in above if name]:
        below = (entry for place in level for entry in _entries(place, part))
        level = [entry.path for entry in below if entry.is_dir()]
    for place in level:
        yield from _entries(place, last)


def _entries(folder, pattern):
    with os.scandir(folder) as entries:
        for entry in entries:
            hidden = entry.name.startswith(".") and not pattern.startswith(".")
            if not hidden and fnmatch.fnmatchcase(entry.name, pattern):
                yield entry


def exists(path):
    """True when a file, folder, object or prefix of that name is there."""
    if is_remote(path):
        return ask(gfile().exists, path)
    return os.path.exists(path)


def is_folder(path):
    """True for an existing folder, or a prefix that objects of a bucket share."""
    if is_remote(path):
        return ask(gfile().isdir, path)
    return os.path.isdir(path)


def make_folder(path):
    """Makes the folder with its parents, if need be, and returns its path. A bucket needs none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
    return path


def remove(path):
    """Removes the file or object; one that is not there is no error."""
    if is_remote(path):
        if exists(path):
            ask(gfile().remove, path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def size(path):
    """Bytes of the file or object."""
    return size_and_time(path)[0]


def size_and_time(path):
    """(bytes, nanoseconds since 1970 of the last change): equal when a file has not changed."""
    if is_remote(path):
        status = ask(gfile().stat, path)
        return int(status.length), int(status.mtime_nsec)
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def read_parquet(path, columns=None):
    """The table of a parquet file, its attrs with it; of `columns`, or all of them."""
    import pandas as pd
    import pyarrow as pa

    # Arrow's own buffer: its threads then hold no Python object when the interpreter ends.
    return pd.read_parquet(pa.BufferReader(read_bytes(path)), columns=columns)


def write_parquet(table, path):
    """Writes a table as parquet, without its index, as `write_atomically` does."""
    stream = io.BytesIO()
    table.to_parquet(stream, index=False)
    write_atomically(path, stream.getvalue())


def _try_to_read(path):
    try:
        return read_bytes(path)
    except TimeoutError:
        raise
    except OSError as error:
        return error


ANSWER_SECONDS = 45


def read_object(path: str) -> bytes:
    """The whole content of an object."""
    return ask(_read_object, path)


def write_object(path: str, data: bytes) -> None:
    """Writes an object, which shows once its upload is complete."""
    ask(_write_object, path, data)


def copy_object(path: str, local: str) -> None:
    """Copies an object to a local file, piece by piece."""
    ask(gfile().copy, path, local)


def list_objects(pattern: str) -> list[str]:
    """Addresses of the objects that match, unsorted."""
    return [path for path in ask(gfile().glob, pattern) if not path.endswith("/")]


def gfile():
    """`tf.io.gfile`, imported when a bucket is first asked for."""
    import tensorflow as tf

    return tf.io.gfile


def ask(function, path: str, *args):
    """function(path, *args), with TensorFlow's errors told as Python's own.

    Raises: FileNotFoundError, PermissionError; TimeoutError when the bucket is silent; OSError.
    """
    _check_answers("/".join(str(path).split("/")[:3]))
    import tensorflow as tf

    try:
        return function(path, *args)
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
def _check_answers(bucket):
    """Asks the bucket anything, once a process: any answer will do, silence will not.

    TensorFlow's own client retries for many minutes, and cannot be interrupted.
    """
    answered = threading.Event()
    exists = gfile().exists

    def wait_for_any():
        # An answer such as "forbidden" is still one; the call that follows reports it in full.
        with contextlib.suppress(Exception):
            exists(bucket)
        answered.set()

    threading.Thread(target=wait_for_any, daemon=True).start()
    if not answered.wait(ANSWER_SECONDS):
        raise TimeoutError(
            f"{bucket} did not answer within {ANSWER_SECONDS} s. Is the name right and the network "
            "up? Outside Google's cloud a public bucket needs NO_GCE_CHECK=true in the environment "
            "before Python starts, a private one GOOGLE_APPLICATION_CREDENTIALS."
        )


def _read_object(path):
    with gfile().GFile(path, "rb") as file:
        return file.read()


def _write_object(path, data):
    with gfile().GFile(path, "wb") as file:
        file.write(data)


CHUNK = 8 << 20  # 8 MiB


def scratch_folder(part_dir: str) -> str:
    """Where shards lie until they have their names; a bucket's are made on this machine."""
    remote = is_remote(part_dir)
    return tempfile.gettempdir() if remote else join(part_dir, "journal")


def free_bytes(part_dir: str) -> int:
    """Bytes free where the part's shards are made."""
    remote = is_remote(part_dir)
    return shutil.disk_usage(tempfile.gettempdir() if remote else part_dir).free


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
        tf.io.gfile.copy(temporary, path, overwrite=True)
        os.remove(temporary)
        return
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(temporary, path)


def sha256_of(path: str) -> str:
    """sha256 of a file or object, in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    remote = is_remote(path)
    with tf.io.gfile.GFile(path, "rb") if remote else open(path, "rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()
