"""Pictures of 16 bits: stretched, kept, or refused by their range, in 01 as in the records."""

import json
import struct
import zlib
from collections import Counter
from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.chain import run_chain
from support.scenes import opened, saved, scene, wide_profile

from kaggle_tfr.explore import measure
from kaggle_tfr.images.convert import ImageSettings, check_image, convert, read_pixels
from kaggle_tfr.images.header import RefusedImage, read_upright, squeeze, turn
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.read import find_shards, read_batches, read_images
from kaggle_tfr.read.display import pair_with_sources
from kaggle_tfr.schema import Labels
from kaggle_tfr.storage import read_bytes
from kaggle_tfr.write.stats import describe_sums
from kaggle_tfr.write.verify import compare_with_source, verify_parts

PASS = ImageSettings(None, resize="none")
KEEP = replace(PASS, format="PNG", pass_through=False)
KEPT = replace(PASS, format="PNG", bit_depth="keep")


def shown(data):
    return np.asarray(opened(data).convert("RGB"))


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
        with pytest.raises(RefusedImage, match=reason):
            call(data)
    record = shown(convert(data, replace(KEEP, bit_depth="stretch")).data)
    expected = np.interp(RADIOGRAPH, [RADIOGRAPH.min(), RADIOGRAPH.max()], [0, 255])
    assert levels_off(record[..., 1], expected) <= 0.51
    assert len(np.unique(record[..., 1])) > 200
    assert np.array_equal(
        read_pixels(data), record
    )  # for the eye, and the source check's:
    assert np.array_equal(read_upright(data, bit_depth="stretch"), record)
    grey = np.asarray(check_image(data, bit_depth="stretch")[1])
    assert levels_off(grey, np.asarray(Image.fromarray(record).convert("L"))) <= 1


def by_tensorflow(data):
    return tf.io.decode_png(data, channels=3, dtype=tf.uint16).numpy()


@pytest.mark.parametrize(
    "data", DEEP, ids=["PNG", "TIFF", "PGM", "I", "F", "RGB", "RGB TIFF"]
)
def test_sixteen_bits_are_kept(data):
    """The record holds all of the 4,096 levels; 01 sees the picture as if it were stretched."""
    record = convert(data, KEPT)
    kept = by_tensorflow(record.data)
    scale = 65535 / 4095 if data[:2] == b"P5" and b"4095" in data[:20] else 1
    assert record.format == "PNG"
    assert levels_off(kept[..., 1], (RADIOGRAPH * scale).round()) == 0
    assert np.array_equal(kept, read_upright(data, bit_depth="keep"))
    assert np.array_equal(kept, read_pixels(record.data, bit_depth="keep"))
    grey, stretched = (
        check_image(data, bit_depth=way)[1] for way in ("keep", "stretch")
    )
    assert grey.tobytes() == stretched.tobytes()


@pytest.mark.parametrize("resample", ["area", "lanczos"])
@pytest.mark.parametrize("side", [40, 130, 200, 250])
def test_sixteen_bits_are_resized_without_aliases(resample, side):
    """As Pillow's Lanczos filter resizes the numbers themselves, at 16 bits."""
    settings = replace(KEPT, size=(side, side), resize="stretch", resample=resample)
    kept = by_tensorflow(convert(DEEP[5], settings).data)
    luma = Image.fromarray(COLOURS[..., 1].astype(np.float32))
    wanted, aliased = (
        np.asarray(luma.resize((side, side), way))
        for way in (Image.Resampling.LANCZOS, Image.Resampling.NEAREST)
    )
    off, of_aliased = (
        np.sqrt(((x - wanted) ** 2).mean()) for x in (kept[..., 1], aliased)
    )
    assert off < (0.5 if resample == "lanczos" else of_aliased / 2)


def test_what_has_8_bits_stays_so_where_16_are_kept():
    """It becomes a PNG, which reads as 257 times its levels."""
    for data in (
        saved(scene(), "PNG"),
        saved(scene()),
        saved(scene().convert("L"), "TIFF"),
    ):
        record = convert(data, KEPT)
        assert (record.format, record.data[24]) == ("PNG", 8)
        kept = by_tensorflow(record.data)
        assert np.array_equal(kept, read_upright(data, bit_depth="keep"))
        assert np.array_equal(kept, read_pixels(record.data, bit_depth="keep"))
        assert levels_off(kept, read_pixels(data) * 257.0) <= 2 * 257
        small = read_pixels(
            convert(data, replace(KEPT, size=(128, 128), resize="short_side")).data
        )
        assert compare_with_source(data, small * np.uint16(257), KEPT)[0] > 35
    with pytest.raises(ValueError, match="format is 'JPEG'; it can be PNG"):
        replace(PASS, bit_depth="keep")


def test_kept_alpha_lies_over_white_and_profiles_are_refused():
    """At 16 bits; Pillow applies no profile to so many."""
    alpha = np.linspace(0, 65535, RADIOGRAPH.size).reshape(RADIOGRAPH.shape).round()
    faded = cv2.imencode(".png", np.dstack([COLOURS, alpha]).astype(np.uint16))[
        1
    ].tobytes()
    over_white = 65535 - (65535 - COLOURS[..., 1]) * alpha / 65535
    assert levels_off(by_tensorflow(convert(faded, KEPT).data)[..., 1], over_white) <= 1
    clear = saved(Image.fromarray(RADIOGRAPH), "PNG", transparency=1000)
    over_white = np.where(RADIOGRAPH == 1000, 65535, RADIOGRAPH)
    assert levels_off(by_tensorflow(convert(clear, KEPT).data)[..., 1], over_white) == 0
    profile = b"iCCPx\0\0" + zlib.compress(wide_profile())
    chunk = (
        struct.pack(">I", len(profile) - 4)
        + profile
        + struct.pack(">I", zlib.crc32(profile))
    )
    profiled = DEEP[5][:33] + chunk + DEEP[5][33:]
    assert convert(profiled, replace(KEEP, bit_depth="stretch")).data
    for call in (
        partial(convert, settings=KEPT),
        partial(check_image, bit_depth="keep"),
    ):
        with pytest.raises(RefusedImage, match="16 bits with a colour profile"):
            call(profiled)


@pytest.mark.parametrize("way", ["scale", "stretch", "keep"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_tiff_of_16_bits_in_planes_is_refused(way, orientation):
    """OpenCV and Pillow mix its colours up; pixel by pixel they read it, and turn it."""
    colours = COLOURS * np.uint16(16)
    settings = replace(KEPT if way == "keep" else KEEP, bit_depth=way)
    whole = convert(deep_tiff(colours, orientation=orientation), settings).data
    assert opened(whole).size == ((400, 300) if orientation == 1 else (300, 400))
    if way == "keep":
        assert np.array_equal(by_tensorflow(whole), turn(colours, orientation))
    for call in (
        partial(convert, settings=settings),
        partial(check_image, bit_depth=way),
    ):
        with pytest.raises(RefusedImage, match="unsupported kind: 16 bits in planes"):
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
    stretch, alpha = (
        replace(KEEP, bit_depth="stretch"),
        np.where(RADIOGRAPH % 2, 65535, 0),
    )
    one = saved(Image.fromarray(np.full((9, 9), 700, np.uint16)), "PNG")
    assert not shown(convert(one, stretch).data).any()
    plain = shown(convert(DEEP[0], stretch).data)
    faded = cv2.imencode(
        ".png", np.dstack([RADIOGRAPH] * 3 + [alpha]).astype(np.uint16)
    )[1]
    over_white = np.where(alpha[..., None], plain, 255)
    assert levels_off(shown(convert(faded.tobytes(), stretch).data), over_white) <= 1
    clear = saved(Image.fromarray(RADIOGRAPH), "PNG", transparency=1000)
    over_white = np.where(RADIOGRAPH[..., None] == 1000, 255, plain)
    assert levels_off(shown(convert(clear, stretch).data), over_white) == 0


def test_01_reads_again_what_it_read_at_another_depth(tmp_path):
    """hashes.parquet is no answer to another BIT_DEPTH: refused, stretched, and refused again."""
    (tmp_path / "a.png").write_bytes(DEEP[0])
    row = {"image_id": "a", "path": str(tmp_path / "a.png"), "problem": ""}
    for way, refused in (("scale", True), ("stretch", False), ("scale", True)):
        table = measure(pd.DataFrame([row]), Labels(bit_depth=way), str(tmp_path))
        assert table["problem"].str.startswith("dark: ").tolist() == [refused]


@pytest.mark.parametrize("way", ["stretch", "keep"])
def test_the_choice_of_01_reaches_the_records(tmp_path, way):
    """Every 12-bit picture is written, and fits its source; kept ones are read as uint16."""
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
        "BIT_DEPTH": way,
        "N_FOLDS": 0,
        "VALIDATION_SIZE": 0.2,
    }
    *_, shards = run_chain("flowers", work, **given)
    assert shards["count"].sum() == 12
    checked = verify_parts([f"{work}/part-1"], work)
    assert checked.faults.empty
    assert checked.sources["psnr"].min() > 30
    plan = read_plan(work)
    assert plan.labels.bit_depth == plan.image.bit_depth == way
    if way == "keep":
        check_kept(work, plan, checked)


def check_kept(work, plan, checked):
    """What says that pictures have 16 bits, and who reads them so."""
    part = f"{work}/part-1"
    held = (
        json.loads(read_bytes(f"{part}/{name}"))
        for name in ("schema.json", "plan.json")
    )
    assert next(held)["image_dtype"] == "uint16"
    assert next(held)["image"]["format"] == plan.image.format == "PNG"
    shards = find_shards(part)
    pixels = [
        record[plan.schema.image_key]
        for record in read_images(shards).as_numpy_iterator()
    ]
    assert {(one.dtype.name, min(one.shape[:2])) for one in pixels} == {("uint16", 64)}
    assert 3000 < max(one.max() for one in pixels) < 4200
    given = {"image_size": 64, "batch_size": 4}
    ((images, _),) = read_batches(shards, training=True, seed=0, **given).take(1)
    assert images.dtype == tf.uint16
    assert len(np.unique(images)) > 1000
    sums = describe_sums(sum(checked.stats[part].values(), Counter()))
    every = np.concatenate([one.reshape(-1, 3) for one in pixels]) / 257
    mean, std = every.mean(0), every.std(0)
    assert np.allclose([*sums["mean"].values(), *sums["std"].values()], [*mean, *std])
    normal = {"mean_std": (mean / 255, std / 255)}
    ((images, *_),) = read_batches(shards, **given | {"batch_size": 12}, **normal)
    assert abs(float(tf.reduce_mean(images))) < 0.1
    (source, record), *_ = pair_with_sources(shards, work, 2)[0]
    assert source.dtype == record.dtype == np.uint16
    assert squeeze(source).max() == squeeze(record).max() == 255
