"""Files on a disk and objects in a bucket (gs://…) by the same calls, with the same errors."""

import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import uuid
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kaggle_tfr import frames

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

READS_IN_FLIGHT = 32  # a bucket takes 50 ms for a request, and serves many at a time
ANSWER_SECONDS = 45
AnyPath = str | os.PathLike[str]
RECORDS = "KAGGLE_TFR_RECORDS"  # the environment variable that says where indices of shards lie
_indices = dict[str, "ShardIndex"]()  # that this process holds, 8 bytes a record
SECONDS_BETWEEN_LOOKS = (
    0.05  # whether a shard has changed: for each picture it takes a while
)
_looked_at = defaultdict[str, float](float)
_locks = defaultdict[str, threading.Lock](threading.Lock)  # of their shards
_folder_lock = threading.Lock()
TEMPORARY = re.compile(
    r"\.[0-9a-f]{32}\.tmp$"
)  # the end of a name that `_new_file` gives
LOCKLESS_SECONDS = (
    3600  # without locks: the age of an unchanged temporary file that nobody writes
)
PART_LEVELS = 16  # of folders in a part: SHARD_NAME may contain "/"
AGAIN = "Then run the same step again: it goes on from here."
# What to do where a disk fails; where a file to write cannot be written.
FAILING = errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ETIMEDOUT
MENDS = dict.fromkeys(FAILING, "Make room, or mend that disk.")
DENIED = errno.EACCES, errno.EPERM, errno.EROFS
MENDS_OF_OUTPUT = MENDS | dict.fromkeys(
    DENIED, "Choose another OUT_DIR, or allow to write there."
)
MENDS_OF_OUTPUT[errno.EISDIR] = "A file belongs there: move that folder away."
OUTSIDE = re.compile(
    r"^[/\\]|^[A-Za-z]:|://|(^|[/\\])\.\.([/\\]|$)"
)  # of names that lead out
PICTURE = re.compile(r"(?i)\.(jpe?g?|png|webp|bmp|gif|tiff?|avif)$")
ESCAPED = re.compile(r"\\udc[89a-f][0-9a-f]|\\x00")  # in what `escape` makes of a name


@contextlib.contextmanager
def naming(path: AnyPath, mends: Mapping[int, str] = MENDS) -> Iterator[None]:
    """Lets an error of the disk name its file, by default `path`, and say what to do."""
    try:
        yield
    except OSError as error:
        mend = mends.get(error.errno or 0)
        if not mend or AGAIN in str(error):
            raise
        what = (
            f"{error.strerror}: '{error.filename2 or error.filename or path}'. {mend}"
        )
        raise OSError(error.errno, f"{what} {AGAIN}") from error


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


def read_bytes(path: AnyPath) -> bytes:
    """The whole content; of a record's address ("x.tfrec#17") its picture.

    Raises: FileNotFoundError; TimeoutError of a silent bucket; OSError.
    """
    if address := _split_address(path):
        return _read_picture(*address)
    if not is_remote(path):
        with naming(path):
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
def on_disk(path: AnyPath) -> Iterator[AnyPath]:
    """The path of a local file with the same content: itself, or a copy until the block ends."""
    if not is_remote(path):
        with naming(path):
            _check_regular(path)
            yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        with _bucket(path) as gfile:
            gfile.copy(path, join(folder, "copy"))
        yield join(folder, "copy")


def read_many(paths: Iterable[AnyPath]) -> Iterator[bytes | OSError]:
    """The bytes of each file or object in order, or the OSError that reading it met.

    Only of a bucket files are read ahead. Raises: TimeoutError: it does not answer.
    """

    def read(path: AnyPath) -> bytes | OSError:
        try:
            return read_bytes(path)
        except TimeoutError:
            raise
        except OSError as error:
            return error

    reads: deque[Callable[[], bytes | OSError]] = deque()
    with ThreadPoolExecutor(READS_IN_FLIGHT) as threads:
        for path in paths:
            ahead = READS_IN_FLIGHT if is_remote(path) else 0
            reads.append(
                threads.submit(read, path).result if ahead else partial(read, path)
            )
            while len(reads) > ahead:
                yield reads.popleft()()
        yield from (result() for result in reads)


def read_frame(path: AnyPath, offset: int, length: int) -> bytes:
    """The record of a shard (not GZIP) whose frame begins at `offset` and is `length` bytes long.

    Raises: ValueError: its length or a checksum does not fit; OSError.
    """
    body = max(0, length - frames.FRAME_BYTES)
    if is_remote(path):
        with _bucket(path) as gfile, gfile.GFile(path, "rb") as shard:
            shard.seek(offset)
            head, record, tail = (shard.read(size) for size in (12, body, 4))
    else:
        file = os.open(path, os.O_RDONLY)
        try:  # apart: cut out of one piece, the record would be copied
            head, record = os.pread(file, 12, offset), os.pread(file, body, offset + 12)
            tail = os.pread(file, 4, offset + 12 + body)
        finally:
            os.close(file)
    size = len(record).to_bytes(8, "little")
    if head != size + frames.checksum(size) or tail != frames.checksum(record):
        raise ValueError(f"'{path}' at byte {offset:,}: the record is damaged")
    return record


class DamagedRecord(OSError):  # noqa: N818 - it names the record, the run goes on
    """A record whose checksums do not fit, or that is no `tf.train.Example`."""


# What is wrong with one input, while the disk is well.
GONE = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    NotAFileError,
    DamagedRecord,
)


class ShardIndex(NamedTuple):
    """Where the records of a shard are.

    file: the shard, or its copy on this machine when it is packed or in a bucket.
    bounds: int64, in bytes of that file, where each frame begins and where the last one ends.
    image: the pictures' feature; "" where each record's one picture counts.
    """

    shard: str
    status: tuple[int, int]
    file: str
    bounds: "np.ndarray"
    image: str

    def find_frame(self, number: int) -> tuple[int, int]:
        """Offset and length of a record's frame, in bytes. Raises: FileNotFoundError."""
        if (count := len(self.bounds) - 1) <= number:
            what = f"'{self.shard}#{number}' is not there: the shard has {count:,} records."
            raise FileNotFoundError(what)
        begin, end = self.bounds[number : number + 2].tolist()
        return begin, end - begin

    def read_features(self, number: int) -> Mapping[str, Any]:
        """The features of a record. Raises: DamagedRecord: shard and byte are named; OSError."""
        place = self.find_frame(number)
        try:
            return frames.parse_record(read_frame(self.file, *place))
        except ValueError as error:
            reason = str(error).rpartition(": ")[2]
            raise DamagedRecord(
                f"'{self.shard}' at byte {place[0]:,}: {reason}"
            ) from None


def index_shard(shard: str, image: str = "") -> ShardIndex:
    """The index of a shard, which RECORDS keeps for all processes until the shard changes.

    image: the pictures' feature, "" for the kept one.
    """
    status = _read_status(shard)
    with _locks[shard]:  # of many readers of a new one, one makes it
        index = _indices.get(shard)
        is_gone = index is not None and not os.path.exists(
            index.file
        )  # by `forget_records`
        if (
            index is None
            or is_gone
            or index.status != status
            or image not in ("", index.image)
        ):
            index = _indices[shard] = _load_index(shard, image, status)
    return index


def _temporary_folder() -> str:
    """Return the folder for copies of shards, which this process removes when it ends."""
    # Without the lock, two threads would create two folders, and the first be removed.
    with _folder_lock:
        return _create_folder().name


@cache
def _create_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="records-")


def _load_index(shard: str, image: str, status: tuple[int, int]) -> ShardIndex:
    import numpy as np

    folder = os.environ.get(RECORDS) or _temporary_folder()
    # What lies in Kaggle's working folder becomes output, and has a limit.
    large = is_remote(folder) or folder.startswith("/kaggle/")
    file, stem = shard, _name_records(shard)
    # TensorFlow takes 4 MiB out of a bucket for any record, so all at once is less.
    if is_remote(shard) or looks_packed(shard):
        copy = f"{stem}-{status[0]}-{status[1]}.copy"
        file = join(_temporary_folder() if large else folder, copy)
        if not os.path.exists(file):
            with _new_file(file) as temporary, on_disk(shard) as local:
                (unpack if looks_packed(local) else shutil.copyfile)(local, temporary)
    kept, path = dict[str, Any](status=(), image=""), join(folder, f"{stem}.frames")
    if exists(path):
        kept |= np.load(io.BytesIO(read_bytes(path)))
    image = image or str(kept["image"])
    if tuple(kept["status"]) != status or kept["image"] != image:
        kept["bounds"] = np.array(frames.list_frames(file), np.int64)
        np.savez(
            written := io.BytesIO(), status=status, bounds=kept["bounds"], image=image
        )
        write_atomically(path, written.getvalue())
    return ShardIndex(shard, status, file, kept["bounds"], image)


def _name_records(shard: str) -> str:
    """The beginning of the names of a shard's files in the folder RECORDS."""
    digest = hashlib.sha256(shard.encode()).hexdigest()
    return f"{os.path.basename(shard)}-{digest[:16]}"


def forget_records(folder: str, shards: Iterable[str]) -> None:
    """Remove the indices and copies that do not belong to the present state of these shards.

    folder: the one that RECORDS names. shards: all shards of the input.
    """
    if not is_folder(folder):
        return
    shard_of = {_name_records(shard): shard for shard in shards}
    for path in list_files("*.frames", folder):
        if os.path.basename(path).removesuffix(".frames") not in shard_of:
            remove(path)
    for path in list_files("*.copy", folder):
        stem, *status = os.path.basename(path).removesuffix(".copy").rsplit("-", 2)
        is_current = False
        with contextlib.suppress(KeyError, FileNotFoundError):
            is_current = status == list(map(str, _read_status(shard_of[stem])))
        if not is_current:
            remove(path)


def unpack(shard: AnyPath, path: str) -> str:
    """Decompress a GZIP shard of one or several members to `path`, and return `path`.

    Where the shard is cut or damaged, the file ends with a damaged record, so readers report it.
    """
    size = os.path.getsize(shard)
    is_whole = False
    with open(shard, "rb") as source, open(path, "wb") as file:
        while _skip_member_header(source):
            # Raw data: a wrong checksum of a member costs nothing, since records have their own.
            unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            with contextlib.suppress(zlib.error):  # loses the bytes of one small chunk
                while not unpacker.eof and (chunk := source.read(4096)):
                    file.write(unpacker.decompress(chunk))
            end = (
                source.tell() - len(unpacker.unused_data) + 8
            )  # with checksum and length
            is_whole = unpacker.eof and end <= size
            if not is_whole:
                break
            source.seek(end)
        # Zeros after the last member are padding, as gzip has it.
        if not is_whole or source.read(1 << 16).strip(b"\0"):
            file.write(b"?")
    return path


def _skip_member_header(source: BinaryIO) -> bool:
    """Read a header of GZIP; where there is none the position stays, and the answer is False.

    Source: RFC 1952, section 2.3.
    """
    start = source.tell()
    head = source.read(10)
    if len(head) < 10 or head[:3] != b"\x1f\x8b\x08":
        source.seek(start)
        return False
    flags = head[3]
    if flags & 4:  # FEXTRA
        source.read(int.from_bytes(source.read(2), "little"))
    for text in (8, 16):  # FNAME, FCOMMENT
        while flags & text and source.read(1) not in (b"\0", b""):
            pass
    if flags & 2:  # FHCRC
        source.read(2)
    return True


def looks_packed(shard: AnyPath) -> bool:
    """True for a shard that GZIP has packed."""
    bucket = _bucket(shard) if is_remote(shard) else contextlib.nullcontext()
    with (
        bucket as gfile,
        gfile.GFile(shard, "rb") if gfile else open(shard, "rb") as file,
    ):
        head = file.read(10)
    # As the head of a plain shard the same bytes would be a record of 559,903 bytes, or that and
    # some 16 MiB, with a checksum to match, one in a million of those.
    return head[:3] == b"\x1f\x8b\x08" and head[3] < 32 and head[8:9] in b"\x00\x02\x04"


def _split_address(path: AnyPath) -> tuple[str, int] | None:
    """(shard, record's number) of an address such as "x.tfrec#17"; None for other paths."""
    shard, _, number = str(path).rpartition("#")
    if not shard or not number.isdecimal():
        return None
    if shard not in _indices and (
        exists(path) or not exists(shard) or is_folder(shard)
    ):
        return None
    return shard, int(number)


def _read_picture(shard: str, number: int) -> bytes:
    """The picture of a record. Raises: DamagedRecord; OSError: it has none."""
    now, index = time.monotonic(), _indices.get(shard)
    if index is None or now - _looked_at[shard] > SECONDS_BETWEEN_LOOKS:
        index, _looked_at[shard] = index_shard(shard), now
    try:
        features = index.read_features(number)
    except OSError:  # the shard may have changed since
        index = index_shard(shard)
        features = index.read_features(number)
    names = [index.image] if index.image else frames.list_pictures(features)
    if len(names) == 1 and (values := features[names[0]].bytes_list.value):
        return values[0]
    mend = (
        f"Set {RECORDS} to the folder records/ of the WORK_DIR in which 01_explore ran."
    )
    raise OSError(
        f"'{shard}#{number}': no one feature holds its picture ({names}). {mend}"
    )


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Writes the bytes so that `path` is either whole or as it was before, whatever happens."""
    with _new_file(path) as temporary, open(temporary, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def _new_file(path: AnyPath) -> Iterator[str]:
    """The path of a local file to write, which becomes `path` when the block ends well."""
    # Workers on other machines may write the same file, and have the same process number.
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    if is_remote(path):
        temporary = os.path.join(tempfile.gettempdir(), os.path.basename(temporary))
    with naming(path):
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
    with naming(folder):
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
        with naming(folder):
            found = _match(folder, pattern)
            return sorted(
                escape(e.path)
                for e in found
                if PICTURE.search(e.name) or _is(e.is_file)
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
    """(bytes, nanoseconds since 1970 of the last change): equal when a file has not changed.

    Of a record: the bytes of its frame, and its shard's time.
    """
    if address := _split_address(path):
        index = index_shard(address[0])
        return index.find_frame(address[1])[1], index.status[1]
    return _read_status(path)


def _read_status(path: AnyPath) -> tuple[int, int]:
    status = _call(path, os.stat, "stat")
    if is_remote(path):
        return status.length, status.mtime_nsec
    return status.st_size, status.st_mtime_ns


def digest(data: bytes) -> str:
    """16 hexadecimal digits by which a picture's bytes are known again."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def sha256_of(path: AnyPath) -> str:
    """The digest of a file or object, in hexadecimal."""
    with on_disk(path) as local, open(local, "rb") as file:
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
        with naming(path):
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
            f"'{path}' could not be reached: {error.message}. {AGAIN}"
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
