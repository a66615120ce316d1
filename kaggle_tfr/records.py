"""TFRecord files: their frames, checksums and features, and random access to records.

A record is found by its number in a shard (`ShardIndex`), or by an address such as
"x.tfrec#17", which can replace the path of an image file (`read_image_bytes`). If
several features may be the image, the address names it: "x.tfrec#image/encoded=17".
"""

import gzip
import os
import re
import tempfile
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any

from google.protobuf.message import DecodeError

from kaggle_tfr import storage
from kaggle_tfr.storage import AnyPath

# Around a record: its length (8) and the length's CRC (4) before it, its CRC (4) after.
FRAME_BYTES = 16
READS_IN_FLIGHT = 32  # a bucket takes 50 ms for a request, and serves many at a time
# How image files begin.
_IMAGE = re.compile(
    rb"(?s)\xff\xd8\xff|\x89PNG|GIF8|BM.{4}\0{4}|RIFF.{4}WEBP|II\*\0|MM\0\*|.{4}ftyp"
)
Features = Mapping[str, Any]  # of a record, by their names
# A shard, the feature of the image if several may be it, and the number of the record.
ADDRESS = re.compile(r"(?s)^(.+)#(?:([^#]+)=)?(\d+)\Z")
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
    DamagedRecord,
)


def checksum(data: bytes) -> bytes:
    """Return the checksum of data in a TFRecord file: a masked CRC-32C.

    It has 4 bytes, little-endian.

    Source: TensorFlow's `record_writer.h`.
    """
    import google_crc32c  # which a machine that only trains lacks

    crc = google_crc32c.value(data)
    rotated = crc >> 15 | crc << 17
    return ((rotated + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def list_frames(path: AnyPath) -> "array[int]":
    """Return the offset of each frame of a local file, then the end of the last one.

    A frame is a record with its length and checksums. One that is truncated, or has a
    damaged length, ends with the file, and `check_frame` rejects it. An empty file has
    no frame: [0].
    """
    bounds = array("q", [0])
    size = os.path.getsize(path)
    with storage.open_file(path) as file:
        while bounds[-1] < size:
            offset = file.seek(bounds[-1])
            head = file.read(12)  # the length and its CRC
            length = int.from_bytes(head[:8], "little")
            is_damaged = head != _make_head(length)
            # FRAME_BYTES are the length and the checksums around the record.
            bounds.append(size if is_damaged else offset + FRAME_BYTES + length)
    bounds[-1] = size  # a truncated last frame would end beyond the file
    return bounds


def _make_head(length: int) -> bytes:
    """Return the 12 bytes before a record of this length: the length and its CRC."""
    head = length.to_bytes(8, "little")
    return head + checksum(head)


def make_frame(record: bytes) -> bytes:
    """Return the record with its length and checksums, as it is in a file."""
    return _make_head(len(record)) + record + checksum(record)


def check_frame(frame: bytes) -> bytes:
    """Return the record in a frame.

    Raises: DamagedRecord: its length or a checksum is wrong.
    """
    # Its length with a CRC is before it, its own CRC after it.
    record = frame[12:-4]
    if frame != make_frame(record):
        raise DamagedRecord("the record is damaged")
    return record


@cache
def example_class() -> Any:
    """Return a class like `tf.train.Example`, made without TensorFlow.

    It has the same methods and the same serialized form. TensorFlow's import takes
    seconds.
    """
    from google.protobuf import descriptor_pb2, message_factory, text_format

    file = text_format.Parse(_EXAMPLE, descriptor_pb2.FileDescriptorProto())
    return message_factory.GetMessages([file])["kaggle_tfr.Example"]


def parse_record(record: bytes) -> Features:
    """Return the features of a serialized `tf.train.Example` by name.

    Raises: ValueError: the bytes are something else.
    """
    try:
        return example_class().FromString(record).features.feature
    except DecodeError:
        raise ValueError("the record is not a tf.train.Example") from None


def list_image_features(features: Features) -> list[str]:
    """Return the sorted names of features whose one value begins like an image file."""
    names = []
    for name in sorted(features):
        values = features[name].bytes_list.value
        if len(values) == 1 and _IMAGE.match(values[0]):
            names.append(name)
    return names


def list_values(feature: Any) -> list:
    """Return the values of a feature of any type, [] for an empty one."""
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def is_gzip(shard: AnyPath) -> bool:
    """Return whether a shard is compressed by GZIP."""
    with storage.open_file(shard) as file:
        head = file.read(9)
    # GZIP's first three bytes; the ninth has a flag of the compression's level. A plain
    # shard starts with these bytes only if its first record has one exact length and a
    # matching CRC, which is practically impossible.
    return head[:3] == b"\x1f\x8b\x08" and head[8:] in b"\x00\x02\x04"


@contextmanager
def plain_file(shard: AnyPath) -> Iterator[AnyPath]:
    """Yield a local file with the frames: the shard, or a copy while the block runs.

    A shard in GZIP is decompressed. If it is truncated or damaged, the copy ends with
    an invalid record after the good ones, so that readers report it.
    """
    with storage.local_copy(shard) as local:
        if not is_gzip(local):
            yield local
            return
        with gzip.open(local) as source, tempfile.NamedTemporaryFile() as copy:
            try:
                # `read1` returns all bytes before the damage; `read` loses some.
                copy.writelines(iter(source.read1, b""))
            except (EOFError, gzip.BadGzipFile, zlib.error):
                copy.write(b"?")  # not a frame
            copy.flush()
            yield copy.name


def read_index(folder: str, name: str) -> "array[int]":
    """Return the offset of each frame of a shard, then the end, from its .idx file.

    They are as `list_frames` finds them in the shard; [0] if there is no .idx file.
    folder: of the part. name: of the shard, below it.
    """
    text = storage.read_text(os.path.join(folder, "index", f"{name}.idx"))
    # A line is "offset length". Frames have no gaps, so the lengths are enough.
    lengths = re.findall(r" (\d{1,18})\n", text)
    return array("q", accumulate(map(int, lengths), initial=0))


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
    bounds: in bytes of `file`: offset of each frame, then the end of the last.
    """

    shard: str
    file: AnyPath
    bounds: "array[int]"

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.bounds) - 1  # the last bound is only an end

    @contextmanager
    def open_record(self, number: int) -> Iterator[Features]:
        """Yield the features of a record by name.

        number: of the record in the shard, from 0.
        Raises: DamagedRecord, with shard and byte, also for a ValueError in the block;
        FileNotFoundError: the shard has fewer records; OSError.
        """
        if number >= len(self):
            raise FileNotFoundError(f"'{self.shard}' has only {len(self):,} records.")
        offset, end = self.bounds[number : number + 2]
        try:
            with storage.open_file(self.file) as file:
                file.seek(offset)
                frame = file.read(end - offset)
            # The block is inside `try`: what it cannot use is damaged, too.
            yield parse_record(check_frame(frame))
        except ValueError as error:
            raise DamagedRecord(f"'{self.shard}' at byte {offset:,}: {error}") from None


_locks = defaultdict[str, Lock](Lock)  # of shards
_copies = ExitStack()  # of shards in GZIP or in a bucket, until Python ends


def index_shard(shard: str) -> ShardIndex:
    """Return the index of a shard, also of one in GZIP or in a bucket.

    It finds records by number. It is made once, and again if a file on disk has
    changed.
    """
    # Another status makes another index. An object in a bucket is copied once, even if
    # it changes: to request its status takes as long as to read it.
    status = (0, 0) if storage.is_remote(shard) else storage.size_and_time(shard)
    with _locks[shard]:  # one of many threads makes the index, the others wait
        return _make_index(shard, status)


@cache
def _make_index(shard: str, status: tuple[int, int]) -> ShardIndex:  # noqa: ARG001
    """Return the index of a shard; the cache keeps it, and the plain copy of the shard.

    status: size and time of the shard. A change makes it another key of the cache.
    """
    # From a bucket, TensorFlow loads 4 MiB for each record that is read alone: for many
    # records that is more than a copy of the shard. It is removed when Python ends.
    file = _copies.enter_context(plain_file(shard))
    return ShardIndex(shard, file, find_frames(shard, file))


def find_frames(shard: str, file: AnyPath) -> "array[int]":
    """Return the offset of each frame of a shard, then the end of the last one.

    They are read from index/ of the shard's part if they end where the file ends, else
    found by `list_frames`, which scans the file.
    shard: its path. file: the shard, or its plain copy on this machine.
    """
    folder, name = os.path.split(shard)
    parent, subfolder = os.path.split(folder)
    # The shard is in the folder of its part, or in a folder below it, such as test/.
    for part, path in ((folder, name), (parent, f"{subfolder}/{name}")):
        bounds = read_index(part, path)
        if bounds[-1] == os.path.getsize(file):
            return bounds
    return list_frames(file)


def read_image_bytes(path: AnyPath) -> bytes:
    """Return the bytes of an image file, or of the image in a record.

    path: of a file, or the address of a record: "x.tfrec#17" (the 18th record), or
    "x.tfrec#image/encoded=17" if several of its features may be the image.
    Raises: DamagedRecord: also if no feature or several may be the image; TimeoutError:
    the bucket does not respond; OSError.
    """
    address = ADDRESS.match(str(path))
    if address is None:
        return storage.read_bytes(path)
    shard, feature, number = address.groups()
    with index_shard(shard).open_record(int(number)) as features:
        # Each of these lists must have one item; a ValueError becomes a DamagedRecord.
        (name,) = [feature] if feature else list_image_features(features)
        (image,) = features[name].bytes_list.value
        return image


def size_and_time(path: AnyPath) -> tuple[int, int]:
    """Return `storage.size_and_time` of an image file, or of the shard of a record.

    path: as in `read_image_bytes`.
    """
    # The first group of an address is the path of its shard.
    return storage.size_and_time(ADDRESS.sub(r"\1", str(path)))


def stream_image_bytes(paths: Iterable[AnyPath]) -> Iterator[bytes | OSError]:
    """Yield the bytes of each image in order, or the OSError that reading it raised.

    paths: as in `read_image_bytes`. If one is in a bucket, all images are read ahead
    into memory; otherwise each is read when it is requested.
    """
    paths = list(paths)
    with ThreadPoolExecutor(READS_IN_FLIGHT) as threads:
        is_remote = any(map(storage.is_remote, paths))
        read_in_order = threads.map if is_remote else map
        yield from read_in_order(_read_or_error, paths)


def _read_or_error(path: AnyPath) -> bytes | OSError:
    """Return the bytes of an image, or the error in place of them."""
    try:
        return read_image_bytes(path)
    except OSError as error:
        return error
