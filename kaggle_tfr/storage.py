"""Files on a disk and objects in a bucket (gs://…) by the same few calls."""

import contextlib
import fnmatch
import io
import os
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from kaggle_tfr import buckets

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
        return buckets.read_object(path)
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
        buckets.copy_object(path, local)
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
        buckets.write_object(path, data)
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
        return sorted(buckets.list_objects(join(folder, pattern) if folder else pattern))
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
        return buckets.ask(buckets.gfile().exists, path)
    return os.path.exists(path)


def is_folder(path):
    """True for an existing folder, or a prefix that objects of a bucket share."""
    if is_remote(path):
        return buckets.ask(buckets.gfile().isdir, path)
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
            buckets.ask(buckets.gfile().remove, path)
        return
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def size(path):
    """Bytes of the file or object."""
    return size_and_time(path)[0]


def size_and_time(path):
    """(bytes, nanoseconds since 1970 of the last change): equal when a file has not changed."""
    if is_remote(path):
        status = buckets.ask(buckets.gfile().stat, path)
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
