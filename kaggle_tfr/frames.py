"""The frames of records in a shard on a disk, damaged or whole, and the features in them."""

import mmap
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

FRAME_BYTES = (
    16  # around a record: length (8) and its CRC (4) before it, its own CRC (4) after
)
_ZEROS = re.compile(rb"\0\0\0\0+")
_HEADS = rb"\xff\xd8\xff|\x89PNG|GIF8|BM.{4}\0{4}|RIFF.{4}WEBP|II\*\0|MM\0\*|.{4}ftyp"
_PICTURE = re.compile(rb"(?s)" + _HEADS)  # how the files of pictures begin
# Source: TensorFlow's feature.proto and example.proto.
_EXAMPLE = """
name: "kaggle_tfr/example.proto" package: "kaggle_tfr" syntax: "proto3"
message_type {
  name: "BytesList" field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "FloatList" field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED }
}
message_type {
  name: "Int64List" field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED }
}
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: "Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 type_name: "FeatureEntry" label: LABEL_REPEATED }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type_name: "Feature" }
  }
}
message_type { name: "Example" field { name: "features" number: 1 type_name: "Features" } }
"""


def checksum(data: bytes) -> bytes:
    """CRC-32C as a frame holds it: turned, and shifted by a constant, 4 bytes.

    Source: TensorFlow's `record_writer.h`: length (8 bytes), its CRC (4), record, its CRC (4).
    """
    import google_crc32c  # which a machine that only trains lacks

    crc = google_crc32c.value(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def list_frames(path: str | os.PathLike[str]) -> list[int]:
    """Where a file's frames begin, by their heads, and where the last one ends, in bytes.

    One that is cut, or whose own length is damaged, ends where a whole head begins, or the file.
    """
    bounds = [0]
    if size := os.path.getsize(path):  # an empty file cannot be mapped
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data,
        ):
            while bounds[-1] < size:
                bounds.append(
                    _find_end(data, bounds[-1]) or _find_head(data, bounds[-1] + 1)
                )
    return bounds


def _find_end(data: mmap.mmap, offset: int) -> int:
    """Where the frame ends by its head; 0 if that is damaged, or it ends beyond the data."""
    head = data[offset : offset + 12]
    end = offset + FRAME_BYTES + int.from_bytes(head[:8], "little")
    return end if end <= len(data) and head[8:] == checksum(head[:8]) else 0


def _find_head(data: mmap.mmap, offset: int) -> int:
    """Where the next whole head begins, else where the data end."""
    # The upper half of a length is zero; where its lower half is too there is no record.
    for zeros in _ZEROS.finditer(data, offset + 4):
        for head in range(zeros.start() - 4, min(zeros.start(), zeros.end() - 7)):
            if _find_end(data, head):
                return head
    return len(data)


@cache
def example_class() -> Any:
    """`tf.train.Example`, or the same message where TensorFlow is not imported: that takes seconds.

    Cached: the look-up alone would take longer than a small record.
    """
    if "tensorflow" not in sys.modules:
        return _make_example_class()
    import tensorflow as tf

    return tf.train.Example


def _make_example_class() -> Any:
    """A class that reads and writes the bytes of `tf.train.Example`."""
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


def parse_record(record: bytes) -> Mapping[str, Any]:
    """The features of a serialized `tf.train.Example`. Raises: ValueError: it is none."""
    try:
        return example_class().FromString(record).features.feature
    except DecodeError:
        raise ValueError("the record is no tf.train.Example") from None


def list_pictures(features: Mapping[str, Any]) -> list[str]:
    """The features that hold one value which begins as the files of pictures do."""
    held = {name: feature.bytes_list.value for name, feature in features.items()}
    return sorted(
        name for name, v in held.items() if len(v) == 1 and _PICTURE.match(v[0])
    )


def list_values(feature: Any) -> list:
    """The values of a feature, of whatever kind."""
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []
