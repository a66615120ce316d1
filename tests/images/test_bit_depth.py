"""16-bit images: stretched, or rejected for their range, by 01 as for the records."""

import struct
from dataclasses import replace

import cv2
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.chain import run_chain
from support.scenes import record_pixels, saved, scene

from kaggle_tfr.explore import measure
from kaggle_tfr.images.convert import ImageSettings, check_image, convert, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_upright
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.schema import Labels
from kaggle_tfr.write.verify import verify_parts

UNCHANGED = ImageSettings(None, resize="none")
STRETCH = replace(UNCHANGED, bit_depth="stretch")
KINDS = ["PNG", "TIFF", "PGM", "I", "F", "RGB", "RGB TIFF"]

GREY = np.asarray(scene().convert("L"), np.uint16)
RADIOGRAPH = (GREY << 4) + np.arange(400, dtype=np.uint16) % 16  # all of 12 bits
COLORS = np.dstack([RADIOGRAPH, RADIOGRAPH, RADIOGRAPH[::-1]])


def save_radiographs():
    """Return the same 12-bit image as files of each of KINDS, grey or in colours."""
    files = [
        saved(Image.fromarray(RADIOGRAPH), kind) for kind in ("PNG", "TIFF", "PPM")
    ]
    for dtype in (np.int32, np.float32):
        files.append(saved(Image.fromarray(RADIOGRAPH.astype(dtype)), "TIFF"))
    for extension in (".png", ".tiff"):
        files.append(cv2.imencode(extension, COLORS)[1].tobytes())
    return files


RADIOGRAPHS = save_radiographs()


def largest_difference(pixels, expected):
    assert np.shape(pixels) == expected.shape
    return np.abs(np.asarray(pixels, float) - expected).max()


@pytest.mark.parametrize("data", RADIOGRAPHS, ids=KINDS)
def test_a_12_bit_image_is_rejected_with_its_range(data):
    """With "scale" it would be black, so the reason names its values and the fix."""
    reason = f"dark: values {RADIOGRAPH.min()} to {RADIOGRAPH.max()} of 65535; set BIT"

    with pytest.raises(RejectedImage, match=reason):
        convert(data, UNCHANGED)
    with pytest.raises(RejectedImage, match=reason):
        check_image(data, bit_depth="scale")


@pytest.mark.parametrize("data", RADIOGRAPHS, ids=KINDS)
def test_a_12_bit_image_is_stretched_to_all_levels(data):
    """All readers show the darkest to the brightest value as 0 to 255."""
    pixels = record_pixels(data, STRETCH)

    expected = np.interp(RADIOGRAPH, [RADIOGRAPH.min(), RADIOGRAPH.max()], [0, 255])
    assert largest_difference(pixels[..., 1], expected) <= 0.51
    assert len(np.unique(pixels[..., 1])) > 200
    assert np.array_equal(read_pixels(data), pixels)
    assert np.array_equal(read_upright(data, bit_depth="stretch"), pixels)
    luma = np.asarray(check_image(data, bit_depth="stretch")[1])
    assert (
        largest_difference(luma, np.asarray(Image.fromarray(pixels).convert("L"))) <= 1
    )


@pytest.mark.parametrize(
    ("bit_depth", "low", "high"),
    [
        ("scale", 0, 65535),
        ("stretch", COLORS.min() * 16, COLORS.max() * 16),
    ],
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_16_bit_tiff_is_read_by_pixels_and_rejected_in_planes(
    bit_depth, low, high, orientation
):
    """OpenCV and Pillow mix up the colours of planes; other files are read upright."""
    values = COLORS * np.uint16(16)
    settings = replace(UNCHANGED, bit_depth=bit_depth)

    pixels = record_pixels(deep_tiff(values, orientation=orientation), settings)

    upright = values if orientation == 1 else np.rot90(values, -1)
    assert largest_difference(pixels, np.interp(upright, [low, high], [0, 255])) <= 1
    in_planes = deep_tiff(values, planes=True, orientation=orientation)
    reason = "unsupported format: 16 bits in planes"
    with pytest.raises(RejectedImage, match=reason):
        convert(in_planes, settings)
    with pytest.raises(RejectedImage, match=reason):
        check_image(in_planes, bit_depth=bit_depth)


def deep_tiff(pixels, *, planes=False, orientation=1):
    """Return a TIFF of uint16 RGB pixels, or of one strip for each colour."""
    height, width, _ = pixels.shape
    parts = np.moveaxis(pixels, 2, 0) if planes else pixels[None]
    size, count = parts[0].nbytes, len(parts)
    end = 8 + count * size  # of the pixels; then bits, offsets and lengths
    lists = struct.pack("<3H", 16, 16, 16)
    lists += struct.pack(
        f"<{2 * count}I", *(8 + size * k for k in range(count)), *[size] * count
    )
    places = (end + 6, end + 6 + 4 * count) if planes else (8, size)
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, end), (259, 3, 1, 1)]
    tags += [(262, 3, 1, 2), (273, 4, count, places[0]), (274, 3, 1, orientation)]
    tags += [(277, 3, 1, 3), (278, 4, 1, height), (279, 4, count, places[1])]
    tags += [(284, 3, 1, 2 if planes else 1)]
    table = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    head = b"II*\0" + struct.pack("<I", end + len(lists))
    return (
        head + parts.tobytes() + lists + struct.pack("<H", len(tags)) + table + bytes(4)
    )


def test_an_image_of_one_shade_is_stretched_to_black():
    """Its darkest value is its brightest, and 0 stays the darkest level."""
    one_shade = saved(Image.fromarray(np.full((9, 9), 700, np.uint16)), "PNG")
    assert not record_pixels(one_shade, STRETCH).any()


def test_transparency_of_a_stretched_image_is_over_white():
    """An alpha channel and a transparent value have the same effect."""
    opaque = record_pixels(RADIOGRAPHS[0], STRETCH)
    alpha = np.where(RADIOGRAPH % 2, 65535, 0)
    channels = np.dstack([RADIOGRAPH, RADIOGRAPH, RADIOGRAPH, alpha]).astype(np.uint16)
    with_alpha = cv2.imencode(".png", channels)[1].tobytes()
    with_value = saved(Image.fromarray(RADIOGRAPH), "PNG", transparency=1000)

    over_white = np.where(alpha[..., None], opaque, 255)
    assert largest_difference(record_pixels(with_alpha, STRETCH), over_white) <= 1
    over_white = np.where(RADIOGRAPH[..., None] == 1000, 255, opaque)
    assert largest_difference(record_pixels(with_value, STRETCH), over_white) == 0


def test_01_reads_again_what_it_read_at_another_depth(tmp_path):
    """The rows of hashes.parquet are valid for one BIT_DEPTH only."""
    path = tmp_path / "a.png"
    path.write_bytes(RADIOGRAPHS[0])
    images = pd.DataFrame([{"image_id": "a", "path": str(path), "problem": ""}])
    for bit_depth, is_rejected in (
        ("scale", True),
        ("stretch", False),
        ("scale", True),
    ):
        table = measure(images, Labels(bit_depth=bit_depth), str(tmp_path))
        assert table["problem"].str.startswith("dark: ").tolist() == [is_rejected]


def test_the_choice_of_01_reaches_the_records(tmp_path):
    """Every 12-bit image is written, and its record equals its source."""
    for number in range(12):
        path = tmp_path / "in" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.asarray(scene(80, 100, number).convert("L"), np.uint16) << 4
        path.write_bytes(saved(Image.fromarray(values), "PNG"))
    work_dir = str(tmp_path / "work")
    *_, shards = run_chain(
        "flowers",
        work_dir,
        INPUT_DIR=str(tmp_path / "in"),
        IMAGE_SIZE=64,
        RESIZE="short_side",
        BIT_DEPTH="stretch",
        N_FOLDS=0,
        VALIDATION_SIZE=0.2,
    )

    assert shards["count"].sum() == 12
    verification = verify_parts([f"{work_dir}/part-1"], work_dir)
    assert verification.faults.empty
    assert verification.sources["psnr"].min() > 30
    plan = read_plan(work_dir)
    assert plan.labels.bit_depth == plan.image.bit_depth == "stretch"
