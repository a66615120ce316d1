"""16-bit images: stretched, or rejected for their range, by 01 as for the records."""

import struct
from dataclasses import replace
from functools import partial

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

PASS = ImageSettings(None, resize="none")
STRETCH = replace(PASS, bit_depth="stretch")


def levels_off(pixels, expected):
    assert np.shape(pixels) == expected.shape
    return np.abs(np.asarray(pixels, float) - expected).max()


LUMA = np.asarray(scene().convert("L"), np.uint16)
RADIOGRAPH = (LUMA << 4) + np.arange(400, dtype=np.uint16) % 16  # all of 12 bits
DEEP = [saved(Image.fromarray(RADIOGRAPH), kind) for kind in ("PNG", "TIFF", "PPM")]
DEEP += [
    saved(Image.fromarray(RADIOGRAPH.astype(t)), "TIFF") for t in (np.int32, np.float32)
]
COLOURS = np.dstack([RADIOGRAPH, RADIOGRAPH, RADIOGRAPH[::-1]])
DEEP += [cv2.imencode(kind, COLOURS)[1].tobytes() for kind in (".png", ".tiff")]


@pytest.mark.parametrize(
    "data", DEEP, ids=["PNG", "TIFF", "PGM", "I", "F", "RGB", "RGB TIFF"]
)
def test_twelve_bits_in_sixteen_are_stretched_or_refused_by_their_range(data):
    """Never black: "scale" names the values, "stretch" shows them in 200 grey levels or more."""
    reason = rf"dark: values {RADIOGRAPH.min()} to {RADIOGRAPH.max()} of 65535; set BIT_DEPTH"
    for call in (
        partial(convert, settings=PASS),
        partial(check_image, bit_depth="scale"),
    ):
        with pytest.raises(RejectedImage, match=reason):
            call(data)
    record = record_pixels(data, STRETCH)
    expected = np.interp(RADIOGRAPH, [RADIOGRAPH.min(), RADIOGRAPH.max()], [0, 255])
    assert levels_off(record[..., 1], expected) <= 0.51
    assert len(np.unique(record[..., 1])) > 200
    assert np.array_equal(
        read_pixels(data), record
    )  # for the eye, and the source check's:
    assert np.array_equal(read_upright(data, bit_depth="stretch"), record)
    grey = np.asarray(check_image(data, bit_depth="stretch")[1])
    assert levels_off(grey, np.asarray(Image.fromarray(record).convert("L"))) <= 1


@pytest.mark.parametrize("way", ["scale", "stretch"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_tiff_of_16_bits_in_planes_is_refused(way, orientation):
    """OpenCV and Pillow mix its colours up; pixel by pixel they read it, and turn it."""
    colours = COLOURS * np.uint16(16)
    settings = replace(PASS, bit_depth=way)
    whole = record_pixels(deep_tiff(colours, orientation=orientation), settings)
    upright = colours if orientation == 1 else np.rot90(colours, -1)
    low, high = (0, 65535) if way == "scale" else (colours.min(), colours.max())
    expected = np.interp(upright, [low, high], [0, 255])
    assert levels_off(whole, expected) <= 1
    for call in (
        partial(convert, settings=settings),
        partial(check_image, bit_depth=way),
    ):
        with pytest.raises(
            RejectedImage, match="unsupported format: 16 bits in planes"
        ):
            call(deep_tiff(colours, planes=True, orientation=orientation))


def deep_tiff(pixels, *, planes=False, orientation=1):
    """A TIFF of uint16 RGB pixels, or of a strip for each colour."""
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


def test_stretching_knows_one_shade_and_alpha():
    """One shade is black; alpha and a transparent value lie over white, their levels stretched."""
    alpha = np.where(RADIOGRAPH % 2, 65535, 0)
    one = saved(Image.fromarray(np.full((9, 9), 700, np.uint16)), "PNG")
    assert not record_pixels(one, STRETCH).any()
    plain = record_pixels(DEEP[0], STRETCH)
    faded = cv2.imencode(
        ".png", np.dstack([RADIOGRAPH] * 3 + [alpha]).astype(np.uint16)
    )[1]
    over_white = np.where(alpha[..., None], plain, 255)
    assert levels_off(record_pixels(faded.tobytes(), STRETCH), over_white) <= 1
    clear = saved(Image.fromarray(RADIOGRAPH), "PNG", transparency=1000)
    over_white = np.where(RADIOGRAPH[..., None] == 1000, 255, plain)
    assert levels_off(record_pixels(clear, STRETCH), over_white) == 0


def test_01_reads_again_what_it_read_at_another_depth(tmp_path):
    """hashes.parquet is no answer to another BIT_DEPTH: refused, stretched, and refused again."""
    (tmp_path / "a.png").write_bytes(DEEP[0])
    row = {"image_id": "a", "path": str(tmp_path / "a.png"), "problem": ""}
    for way, refused in (("scale", True), ("stretch", False), ("scale", True)):
        table = measure(pd.DataFrame([row]), Labels(bit_depth=way), str(tmp_path))
        assert table["problem"].str.startswith("dark: ").tolist() == [refused]


def test_the_choice_of_01_reaches_the_records(tmp_path):
    """Every 12-bit image is written, and fits its source."""
    for k in range(12):
        path = tmp_path / "in" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = np.asarray(scene(80, 100, k).convert("L"), np.uint16) << 4
        path.write_bytes(saved(Image.fromarray(picture), "PNG"))
    work, given = (
        str(tmp_path / "work"),
        {"INPUT_DIR": str(tmp_path / "in"), "IMAGE_SIZE": 64},
    )
    given |= {
        "RESIZE": "short_side",
        "BIT_DEPTH": "stretch",
        "N_FOLDS": 0,
        "VALIDATION_SIZE": 0.2,
    }
    *_, shards = run_chain("flowers", work, **given)
    assert shards["count"].sum() == 12
    checked = verify_parts([f"{work}/part-1"], work)
    assert checked.faults.empty
    assert checked.sources["psnr"].min() > 30
    plan = read_plan(work)
    assert plan.labels.bit_depth == plan.image.bit_depth == "stretch"
