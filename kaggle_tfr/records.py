"""TFRecord files: their frames, checksums and features, and random access to records.

A record is found by its number in a shard (`ShardIndex`), or by an address such as
"x.tfrec#17", which can replace the path of an image file (`read_image_bytes`).
"""

import atexit
import contextlib
import gzip
import hashlib
import json
import mmap
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from kaggle_tfr import storage
from kaggle_tfr.storage import AnyPath

# Around a record: its length (8) and the length's CRC (4) before it, its CRC (4) after.
FRAME_BYTES = 16
# Environment variable: the folder that keeps the indexes of shards for all processes.
RECORDS_FOLDER = "KAGGLE_TFR_RECORDS"
READS_IN_FLIGHT = 32  # a bucket takes 50 ms for a request, and serves many at a time
# A length of 8 bytes that is below 4 GiB and not 0, at any byte.
_LENGTH = re.compile(rb"(?s)(?=(?!\0{4}).{4}\0{4})")
_HEADS = rb"\xff\xd8\xff|\x89PNG|GIF8|BM.{4}\0{4}|RIFF.{4}WEBP|II\*\0|MM\0\*|.{4}ftyp"
_IMAGE = re.compile(rb"(?s)" + _HEADS)  # how image files begin
Features = Mapping[str, Any]  # of a record, by their names
Status = tuple[int, int]  # size and time, of `storage.size_and_time`
# Source: TensorFlow's feature.proto and example.proto.
_EXAMPLE = """
name: "kaggle_tfr/example.proto" package: "kaggle_tfr" syntax: "proto3"
message_type {
  name: "BytesList"
  field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "FloatList"
  field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED }
}
message_type {
  name: "Int64List"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED }
}
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: "Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field {
    name: "feature" number: 1 type_name: "FeatureEntry" label: LABEL_REPEATED
  }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type_name: "Feature" }
  }
}
message_type {
  name: "Example" field { name: "features" number: 1 type_name: "Features" }
}
"""


class DamagedRecord(OSError, ValueError):  # noqa: N818 - an input, not the run, is bad
    """A record whose checksums, features or image are not as they should be."""


# What is wrong with one input while the disk works.
PER_IMAGE_ERRORS = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    storage.NotAFileError,
    DamagedRecord,
)


def checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of a frame: 4 bytes, little-endian.

    Source: TensorFlow's `record_writer.h`.
    """
    import google_crc32c  # which a machine that only trains lacks

    crc = google_crc32c.value(data)
    rotated = crc >> 15 | crc << 17
    return ((rotated + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def is_record_file(path: AnyPath) -> bool:
    """Return whether a file begins with the head of a frame, as TFRecord files do."""
    head = storage.read_pieces(path, 0, [12])[0]
    return len(head) == 12 and head[8:] == checksum(head[:8])


def list_frames(path: AnyPath) -> list[int]:
    """Return the offset of each frame of a local file, then the end of the last one.

    A truncated frame, or one with a damaged length, ends where the next valid head
    begins, or at the end of the file.
    """
    bounds = [0]
    size = os.path.getsize(path)
    if not size:  # an empty file cannot be mapped
        return bounds
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data,
    ):
        while bounds[-1] < size:
            start = bounds[-1]
            bounds.append(_find_end(data, start) or _find_head(data, start + 1))
    return bounds


def _find_end(data: mmap.mmap, offset: int) -> int:
    """Return the end of a frame, 0 if its head is damaged or the data is shorter."""
    head = data[offset : offset + 12]
    end = offset + FRAME_BYTES + int.from_bytes(head[:8], "little")
    return end if end <= len(data) and head[8:] == checksum(head[:8]) else 0


def _find_head(data: mmap.mmap, offset: int) -> int:
    """Return the offset of the next valid head, or the end of the data."""
    for length in _LENGTH.finditer(data, offset):
        head = length.start()
        if _find_end(data, head):
            return head
    return len(data)


def read_frame(path: AnyPath, offset: int, length: int, *, shard: str = "") -> bytes:
    """Return the record in the frame at `offset` that is `length` bytes long.

    shard: the name for errors, if `path` is a copy.
    Raises: DamagedRecord: the length or a checksum does not match; OSError.
    """
    # Slicing one read would copy the record, which takes 20 × as long for 500 kB.
    sizes = (12, max(0, length - FRAME_BYTES), 4)
    head, record, tail = storage.read_pieces(path, offset, sizes)
    length_bytes = len(record).to_bytes(8, "little")
    if head != length_bytes + checksum(length_bytes) or tail != checksum(record):
        raise DamagedRecord(
            f"'{shard or path}' at byte {offset:,}: the record is damaged"
        )
    return record


@cache
def example_class() -> Any:
    """Return a class with the methods and the bytes of `tf.train.Example`.

    It is made without TensorFlow, whose import takes seconds.
    """
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        text_format,
    )

    file = text_format.Parse(_EXAMPLE, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("kaggle_tfr.Example")
    return message_factory.GetMessageClass(descriptor)


def parse_record(record: bytes) -> Features:
    """Return the features of a serialized `tf.train.Example` by name.

    Raises: ValueError: the bytes are something else.
    """
    try:
        return example_class().FromString(record).features.feature
    except DecodeError:
        raise ValueError("the record is not a tf.train.Example") from None


def list_image_features(features: Features) -> list[str]:
    """Return the names of the features with one value that is like an image file."""
    names = []
    for name in sorted(features):
        values = features[name].bytes_list.value
        if len(values) == 1 and _IMAGE.match(values[0]):
            names.append(name)
    return names


def list_values(feature: Any) -> list:
    """Return the values of a feature of any type."""
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def is_gzip(shard: AnyPath) -> bool:
    """Return whether a shard is compressed by GZIP."""
    (head,) = storage.read_pieces(shard, 0, (10,))
    # A plain shard starts with these bytes only if its first record has one exact
    # length and a matching CRC, which is practically impossible.
    return head[:3] == b"\x1f\x8b\x08" and head[8:9] in b"\x00\x02\x04"


def decompress(shard: AnyPath, path: str) -> str:
    """Decompress a GZIP shard of one or several members to `path`, and return `path`.

    If the shard is truncated or damaged, the file ends with an invalid record, so that
    readers report it.
    """
    with gzip.open(shard) as source, open(path, "wb") as file:
        try:
            while chunk := source.read1():  # `read` loses bytes at an error
                file.write(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            file.write(b"?")
    return path


def read_index(path: str) -> list[int]:
    """Return the bounds in an `.idx` file, as `list_frames` does.

    [0] without a file, [-1] if its content is not an index.
    """
    text = storage.read_text(path)
    lengths = list(map(int, re.findall(r" (\d{1,18})\n", text)))
    bounds = list(accumulate(lengths, initial=0))
    is_valid = min(lengths, default=FRAME_BYTES) >= FRAME_BYTES
    return bounds if is_valid and text == format_index(bounds) else [-1]


def format_index(bounds: Sequence[int]) -> str:
    """Return the text of an `.idx` file.

    One line per record, "offset bytes" of its frame, for DALI and readers in PyTorch.
    bounds: as `list_frames` returns them.
    Source: https://github.com/NVIDIA/DALI/blob/main/tools/tfrecord2idx
    """
    return "".join(f"{start} {end - start}\n" for start, end in pairwise(bounds))


@dataclass(frozen=True)
class ShardIndex:
    """Random access to the records of one shard by number.

    shard: its path, for errors.
    file: the file that contains the frames: the shard, or a decompressed or local copy.
    bounds: int64, in bytes of `file`: offset of each frame, then the end of the last.
    image_key: feature of the images, "" if each record has only one image.
    status: size and time of the shard when it was indexed.
    """

    shard: str
    file: str
    bounds: np.ndarray
    image_key: str = ""
    status: Status = (0, 0)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def find_frame(self, number: int) -> tuple[int, int]:
        """Return offset and length of a frame in bytes. Raises: FileNotFoundError."""
        if number >= len(self):
            raise FileNotFoundError(
                f"'{self.shard}#{number}' is not there: the shard has {len(self):,} "
                "records."
            )
        start, end = self.bounds[number : number + 2].tolist()
        return start, end - start

    def read_record(self, number: int) -> bytes:
        """Return a serialized record. Raises: DamagedRecord, OSError."""
        return read_frame(self.file, *self.find_frame(number), shard=self.shard)

    def read_features(self, number: int) -> Features:
        """Return the features of a record by name. Raises: DamagedRecord, OSError."""
        record = self.read_record(number)
        with self.name_record(number):
            return parse_record(record)

    @contextlib.contextmanager
    def name_record(self, number: int) -> Iterator[None]:
        """Raise DamagedRecord, with shard and byte, for a ValueError in this block."""
        try:
            yield
        except ValueError as error:
            offset, _ = self.find_frame(number)
            raise DamagedRecord(f"'{self.shard}' at byte {offset:,}: {error}") from None


# The indexes that this process has used, 8 bytes a record.
_indexes: dict[str, ShardIndex] = {}
_locks = defaultdict[str, threading.Lock](threading.Lock)  # of their shards


def index_shard(shard: str, image_key: str = "") -> ShardIndex:
    """Return the index of a shard, also of one in GZIP or in a bucket.

    The folder RECORDS_FOLDER keeps it for all processes until the shard changes.
    image_key: the feature of the images, "" for the one that was kept.
    """
    status = storage.size_and_time(shard)
    with _locks[shard]:  # one of many threads makes the index
        index = _indexes.get(shard)
        if index is None or not _is_current(index, image_key, status):
            index = _load_index(shard, image_key, status)
            _indexes[shard] = index
    return index


def _is_current(index: ShardIndex, image_key: str, status: Status) -> bool:
    """Return whether an index is of this feature and this state of its shard."""
    return (
        index.status == status
        and image_key in ("", index.image_key)
        and os.path.exists(index.file)  # else `forget_records` removed the copy
    )


def _load_index(shard: str, image_key: str, status: Status) -> ShardIndex:
    """Return the kept index if the shard is unchanged, else make and keep one."""
    folder = os.environ.get(RECORDS_FOLDER) or _temporary_folder()
    path = storage.join(folder, f"{_name_files(shard)}.frames")
    kept = json.loads(storage.read_text(path) or "{}")
    # The key of a shard with another time is kept too: it may be on another machine.
    image_key = image_key or kept.get("image_key", "")
    file = _copy_if_needed(shard, folder, status)
    state = {"status": list(status), "image_key": image_key}
    if not state.items() <= kept.items():
        kept = state | {"bounds": list_frames(file)}
        storage.write_atomically(path, json.dumps(kept).encode())
    bounds = np.array(kept["bounds"], np.int64)
    return ShardIndex(shard, file, bounds, image_key, status)


@cache
def _temporary_folder() -> str:
    """Return the folder for copies of shards, removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="records-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _copy_if_needed(shard: str, folder: str, status: Status) -> str:
    """Return the shard, or its plain local copy if it is in GZIP or in a bucket."""
    # TensorFlow reads 4 MiB from a bucket for any record, so a whole copy is less.
    if not storage.is_remote(shard) and not is_gzip(shard):
        return shard
    # Files in Kaggle's working folder become output, which has a limit.
    if storage.is_remote(folder) or folder.startswith("/kaggle/"):
        folder = _temporary_folder()
    copy = storage.join(folder, _name_copy(shard, status))
    if not os.path.exists(copy):
        with storage.new_file(copy) as temporary, storage.local_copy(shard) as local:
            if is_gzip(local):
                decompress(local, temporary)
            else:
                shutil.copyfile(local, temporary)
    return copy


def _name_files(shard: str) -> str:
    """Return how the names of a shard's files in RECORDS_FOLDER begin."""
    digest = hashlib.sha256(shard.encode()).hexdigest()
    return f"{os.path.basename(shard)}-{digest[:16]}"


def _name_copy(shard: str, status: Status) -> str:
    """Return the name of the copy of a shard with this size and time."""
    return f"{_name_files(shard)}-{status[0]}-{status[1]}.copy"


def forget_records(folder: str, shards: Iterable[str]) -> None:
    """Remove indexes and copies that are not of the present state of these shards.

    folder: of RECORDS_FOLDER. shards: all shards of the input.
    """
    if not storage.is_folder(folder):
        return
    current = set()
    for shard in shards:
        current.add(f"{_name_files(shard)}.frames")
        with contextlib.suppress(FileNotFoundError):
            current.add(_name_copy(shard, storage.size_and_time(shard)))
    for pattern in ("*.frames", "*.copy"):
        for path in storage.list_files(pattern, folder):
            if os.path.basename(path) not in current:
                storage.remove(path)


def _split_address(path: AnyPath) -> tuple[str, int] | None:
    """Return shard and number of an address such as "x.tfrec#17", None for a path."""
    shard, _, number = str(path).rpartition("#")
    if not (shard and number.isdecimal()):
        return None
    if shard not in _indexes and (storage.exists(path) or storage.is_folder(shard)):
        return None
    return shard, int(number)


def read_image_bytes(path: AnyPath) -> bytes:
    """Return the bytes of an image file, or of the image in a record ("x.tfrec#17").

    Raises: DamagedRecord; TimeoutError: the bucket does not respond; OSError.
    """
    address = _split_address(path)
    if address is None:
        return storage.read_bytes(path)
    shard, number = address
    index = _indexes.get(shard) or index_shard(shard)
    try:
        features = index.read_features(number)
    except OSError:  # the shard may have changed since
        index = index_shard(shard)
        features = index.read_features(number)
    keys = [index.image_key] if index.image_key else list_image_features(features)
    images = [image for key in keys for image in features[key].bytes_list.value]
    if len(images) == 1:
        return images[0]
    raise OSError(
        f"'{path}': the feature of its image is unknown (candidates: {keys}). Set "
        f"{RECORDS_FOLDER} to the folder records/ of the WORK_DIR in which 01_explore "
        "ran."
    )


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """Return (bytes, ns since 1970 of the last change) of an image file or a record.

    For a record: the bytes of its frame, and the time of its shard.
    """
    address = _split_address(path)
    if address is None:
        return storage.size_and_time(path)
    shard, number = address
    index = index_shard(shard)
    return index.find_frame(number)[1], index.status[1]


def stream_image_bytes(paths: Iterable[AnyPath]) -> Iterator[bytes | OSError]:
    """Yield the bytes of each image in order, or the OSError that reading it raised.

    Only objects of a bucket are read ahead.
    Raises: TimeoutError: the bucket does not respond.
    """
    pending = deque[Callable[[], bytes | OSError]]()
    with ThreadPoolExecutor(READS_IN_FLIGHT) as threads:
        for path in paths:
            read = partial(_read_or_error, path)
            is_remote = storage.is_remote(path)
            pending.append(threads.submit(read).result if is_remote else read)
            while len(pending) > (READS_IN_FLIGHT if is_remote else 0):
                yield pending.popleft()()
        for read_next in pending:
            yield read_next()


def _read_or_error(path: AnyPath) -> bytes | OSError:
    try:
        return read_image_bytes(path)
    except TimeoutError:
        raise
    except OSError as error:
        return error
