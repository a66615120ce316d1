"""Records as they lie in a file: each with its byte offset, going on behind a damaged one."""

import os
import shutil
from collections.abc import Iterator, Mapping

import tensorflow as tf
from google.protobuf.message import DecodeError

from kaggle_tfr.images import Converted, Header, ImageSettings, RefusedImage, check
from kaggle_tfr.records import encode_row
from kaggle_tfr.schema import RecordSchema

FRAME_BYTES = 16  # length (8), its CRC (4), then the data, then the data's CRC (4)


def read_frames(
    path: str, compression: str, lengths: Mapping[int, int], scratch: str
) -> Iterator[tuple[int, bytes | None, str]]:
    """(offset, data, "") of each record, or (offset, None, problem), going on behind a fault.

    lengths: of the frames by their offset, from the index, to find the next one by.
    """
    offset, source = 0, path
    while True:
        begun = offset
        try:
            for data in tf.data.TFRecordDataset(source, compression).as_numpy_iterator():
                yield offset, data, ""
                offset += len(data) + FRAME_BYTES
        except tf.errors.OpError as error:
            yield offset, None, f"cannot be read: {_explain(error)}"
        else:
            return
        length = lengths.get(offset) or _read_length(path, offset)
        lost = offset == begun > 0 and not lengths
        if compression or not length or lost:
            return
        offset += length
        source = os.path.join(scratch, "rest")
        with open(path, "rb") as file, open(source, "wb") as rest:
            file.seek(offset)
            shutil.copyfileobj(file, rest)


def _read_length(path: str, offset: int) -> int:
    """Bytes of the frame at an offset as its head says; 0 when that cannot be."""
    with open(path, "rb") as file:
        file.seek(offset)
        length = int.from_bytes(file.read(8), "little") + FRAME_BYTES
    return length if offset + length <= os.path.getsize(path) else 0


def _explain(error: tf.errors.OpError) -> str:
    text = error.message.lower()
    if "truncated" in text:
        return "the file ends in the middle of it"
    return "its checksum does not fit" if "corrupted" in text else error.message.split("\n")[0]


def find_record_problem(
    data: bytes, schema: RecordSchema, wanted: Mapping | None, settings: ImageSettings
) -> str:
    """What is wrong with a record, "" when nothing is.

    wanted: the plan's row. The row and the record's own image must encode to the same bytes.
    """
    try:
        found = tf.train.Example.FromString(data).features.feature
    except DecodeError:
        return "it is no tf.train.Example"
    images = found[schema.image_key].bytes_list.value
    if len(images) != 1:
        return f"'{schema.image_key}' holds {len(images)} images"
    try:
        header = check(images[0])
    except RefusedImage as refusal:
        return f"its image is refused: {refusal}"
    return _find_size_problem(found, header, schema) or _find_difference(
        data, images[0], header, schema, wanted, settings
    )


def _find_size_problem(found, header: Header, schema: RecordSchema) -> str:
    for key, pixels in ((schema.height_key, header.height), (schema.width_key, header.width)):
        said = list(found[key].int64_list.value) if key else [pixels]
        if said != [pixels]:
            return f"'{key}' says {said}, the image has {pixels} pixels"
    turned = header.orientation != 1
    return f"its image lies turned (EXIF orientation {header.orientation})" if turned else ""


def _find_difference(data, image, header: Header, schema, wanted, settings) -> str:  # noqa: PLR0917
    """What the plan's row, encoded with the record's own image, would have been different in."""
    if not wanted:
        return ""
    row = {"height": header.height, "width": header.width, **wanted}
    if "source_height" in row:
        row |= {"height": row["source_height"], "width": row["source_width"]}
    picture = Converted(image, header.height, header.width, header.format, touched=False)
    try:
        return _compare(data, encode_row(row, picture, schema, settings))
    except ValueError as error:
        return f"the plan's row cannot be encoded: {error}"


def _compare(data: bytes, planned: bytes) -> str:
    """The first feature that is not what the plan's row says."""
    if planned == data:
        return ""
    found, right = (tf.train.Example.FromString(x).features.feature for x in (data, planned))
    for name in sorted(set(found) | set(right)):
        if name not in found or name not in right:
            return f"it {'lacks' if name in right else 'has'} the feature '{name}'"
        if found[name] != right[name]:
            return f"'{name}' is {_show(found[name])}, the plan says {_show(right[name])}"
    return "its features are not in the order that the schema writes"


def _show(feature) -> str:
    values = getattr(feature, feature.WhichOneof("kind") or "bytes_list").value
    text = str(list(values) if len(values) != 1 else values[0])
    return text if len(text) <= 60 else f"{text[:57]}…"
