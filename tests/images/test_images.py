"""The image path against Pillow, TensorFlow and the textbook."""

import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from unittest import mock

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps, JpegImagePlugin, PngImagePlugin
from support.fuzzing import load, verdict
from support.scenes import (
    grey_profile,
    opened,
    record_pixels,
    saved,
    scene,
    wide_profile,
    wide_to_srgb,
)

from kaggle_tfr.images import convert as pictures
from kaggle_tfr.images import header
from kaggle_tfr.images.convert import (
    ImageSettings,
    check_image,
    convert,
    psnr,
    read_pixels,
)
from kaggle_tfr.images.header import (
    RejectedImage,
    count_channels,
    read_header,
    read_upright,
)
from kaggle_tfr.parameters import PARAMETERS

PASS = ImageSettings(None, resize="none")
KEEP = replace(PASS, pass_through=False)
LANCZOS = Image.Resampling.LANCZOS
CHOICES = {
    name: st.sampled_from(PARAMETERS[name].choices) for name in ("RESIZE", "RESAMPLE")
}
SIDES = st.tuples(st.integers(1, 90), st.integers(1, 90))
OTHER = "unsupported format: TIFF with pixels of mode"
LOSSLESS = {"JPEG": {"subsampling": 0}, "WEBP": {"lossless": True}}


def shown(data):
    """RGB pixels as Pillow shows a file without alpha or profile."""
    return np.asarray(ImageOps.exif_transpose(opened(data)).convert("RGB"))


def read_grey(data, at_least=256):
    with mock.patch.object(pictures, "HASH_SIDE", at_least):
        return check_image(data)[1]


def reduced(data, height, width):
    """Pillow's full decode and Lanczos."""
    return np.asarray(Image.fromarray(shown(data)).resize((width, height), LANCZOS))


def levels_off(pixels, expected):
    assert np.shape(pixels) == expected.shape
    return np.abs(np.asarray(pixels, float) - expected).max()


def run_python(root, *arguments):
    options = {"cwd": root / "tests", "env": {"PYTHONPATH": str(root)}, "text": True}
    return subprocess.check_output([sys.executable, *arguments], **options)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_comes_out_upright(orientation, kind):
    """Full-size pixels and luma are those of Pillow's exif_transpose, as well as builds round."""
    data = saved(scene(90, 130), kind, orientation, **LOSSLESS.get(kind, {}))
    header, pixels = read_header(data), read_pixels(data)
    assert pixels.shape == (header.height, header.width, 3)
    assert levels_off(pixels, shown(data)) <= 2
    assert levels_off(read_upright(data), shown(data)) == 0
    luma = np.asarray(Image.fromarray(shown(data)).convert("L"))
    assert psnr(np.asarray(check_image(data)[1]), luma) > 45


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", ["short_side", "stretch", "fill", "center_crop"])
def test_a_scaled_and_cropped_picture_is_still_upright(orientation, resize):
    """Decoding at half size, resizing, turning and cropping happen in a way that commutes."""
    chosen = ImageSettings(
        (96, 128) if resize != "short_side" else (96, 96), resize=resize
    )
    data = saved(scene(400, 600), orientation=orientation)
    upright = convert(saved(Image.fromarray(shown(data))), chosen)
    turned = convert(data, chosen)
    assert (turned.height, turned.width) == (upright.height, upright.width)
    assert psnr(shown(turned.data), shown(upright.data)) > 32


def test_scaled_pixels_are_never_smaller_than_asked():
    """read_pixels(at_least) halves while it may, turned pictures included; so does read_grey."""
    for orientation in (1, 6):
        data = saved(scene(400, 600), orientation=orientation)
        height, width = shown(data).shape[:2]
        for part in (height, 8, 3, 1):
            least = (height // part, width // part)
            assert (np.array(read_pixels(data, least).shape[:2]) >= least).all()
        assert read_pixels(data, (height // 4, width // 4)).shape[:2] == (
            height // 4,
            width // 4,
        )
        assert min(read_grey(data, 100).size) == 100
        assert min(read_grey(data, 101).size) >= 101


PICTURE, FILES = (
    scene(40, 60),
    [saved(scene(), kind) for kind in ("JPEG", "PNG", "WEBP")],
)
FILES += [saved(scene(), progressive=True)]
MODES = {"JPEG": "L CMYK", "PNG": "1 L P RGB", "WEBP": "RGB", "GIF": "P", "BMP": "RGB"}
MODES |= {"TIFF": "RGB CMYK", "PPM": "RGB"}
KINDS = [(kind, mode, {}) for kind, modes in MODES.items() for mode in modes.split()]
KINDS += [
    ("JPEG", "RGB", option) for option in ({"progressive": True}, {"keep_rgb": True})
]


@pytest.mark.parametrize(("kind", "mode", "options"), KINDS)
def test_every_kind_becomes_the_rgb_that_pillow_and_tensorflow_read(
    kind, mode, options
):
    """Lossless kinds exactly, JPEG within 2 levels; so does TensorFlow the record, its channels."""
    import tensorflow as tf

    data = saved(PICTURE.convert(mode), kind, **options)
    record = convert(
        data, ImageSettings((256, 256), quality=95, subsampling="4:4:4")
    ).data
    assert levels_off(read_pixels(data), shown(data)) <= (2 if kind == "JPEG" else 0)
    assert levels_off(read_upright(data), shown(data)) == 0
    if kind != "JPEG":
        assert np.array_equal(record_pixels(data, KEEP), shown(data))
    exact = tf.io.decode_jpeg(record, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    assert levels_off(exact, shown(record)) <= 3
    assert psnr(tf.io.decode_jpeg(record, channels=3).numpy(), shown(data)) > 34
    for file in (record, data) if kind in ("JPEG", "PNG") else (record,):
        assert count_channels(file) == tf.io.decode_image(file).shape[2]


def with_alpha(mode):
    """A PNG and its pixels over white, by the arithmetic."""
    image = PICTURE.quantize(16) if mode == "P" else PICTURE.convert(mode)
    if mode != "P":
        image.putalpha(
            Image.fromarray(np.tile(np.arange(0, 240, 4, dtype=np.uint8), (40, 1)))
        )
    data = saved(image, "PNG", **{"transparency": 3} if mode == "P" else {})
    rgba = np.asarray(opened(data).convert("RGBA"), float)
    return data, 255 + (rgba[..., :3] - 255) * rgba[..., 3:] / 255


def sixteen_bits(channels, above=65536):
    """A 16-bit PNG and the high bytes of its values, which is how Pillow and TensorFlow show it."""
    values = np.random.default_rng(1).integers(0, above, (40, 60, channels), np.uint16)
    data = cv2.imencode(".png", values[..., ::-1])[1].tobytes()
    return data, np.broadcast_to(values >> 8, (40, 60, 3))


MADE = [(with_alpha, (mode,), 1) for mode in ("RGBA", "LA", "P")]
MADE += [(sixteen_bits, values, 0) for values in ((1,), (3,))]


@pytest.mark.parametrize(("make", "values", "limit"), MADE)
def test_alpha_lies_over_white_and_sixteen_bits_keep_their_high_byte(
    make, values, limit
):
    """Records, hashes and the source check see one picture, within a level of the arithmetic."""
    data, expected = make(*values)
    record = Image.fromarray(record_pixels(data, KEEP))
    grey = np.asarray(check_image(data)[1])
    assert (
        max(levels_off(pixels, expected) for pixels in (record, read_upright(data)))
        <= limit
    )
    assert levels_off(grey, np.asarray(record.convert("L"))) <= 1
    assert convert(data, PASS).data != data


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_wide_gamut_profile_is_converted_to_srgb(kind):
    """The colours are those of the textbook's matrices, within 2 levels in every pixel."""
    data = saved(PICTURE, kind, icc_profile=wide_profile(), **LOSSLESS.get(kind, {}))
    expected = wide_to_srgb(opened(data).convert("RGB"))
    assert (
        max(levels_off(read(data), expected) for read in (read_pixels, read_upright))
        <= 2
    )


def test_a_wide_gamut_photo_is_converted_when_it_shrinks():
    """The record is the textbook's, made small, at 31 dB; untouched colours would be far off."""
    data = saved(scene(800, 1200), icc_profile=wide_profile())
    right = Image.fromarray(wide_to_srgb(opened(data))).resize((288, 192), LANCZOS)
    record = shown(convert(data, ImageSettings((192, 192), quality=95)).data)
    assert psnr(record, np.asarray(right)) > 31
    assert psnr(record, reduced(data, 192, 288)) < 28


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize(("resample", "limit"), [("area", 25), ("lanczos", 3)])
def test_fine_stripes_become_grey_below_half_size(kind, resample, limit):
    """Of 127 levels, Lanczos leaves none and area steps 24; OpenCV's default leaves 70 and more."""
    stripes = np.zeros((1024, 1024, 3), np.uint8)
    stripes[:, ::2] = 255
    data = saved(Image.fromarray(stripes), kind)
    for side in (64, 100, 200, 255, 256, 300, 341, 400, 500, 512):
        chosen = ImageSettings((side, side), resample=resample)
        assert record_pixels(data, chosen)[8:-8, 8:-8].std() < limit, side


LOSSES = {1.31: 0.5, 1.4: 1.0, 1.49: 1.5} | dict.fromkeys((2.0, 2.6, 3.5), 0.1)
LOSSES |= dict.fromkeys((1.2, 1.29, 1.51, 1.9, 2.2), 0.0)


@pytest.mark.parametrize(("ratio", "loss"), sorted(LOSSES.items()))
def test_the_steps_are_as_near_to_lanczos_as_an_area_step(ratio, loss, data_dir):
    """On real photos, but for ratios of 1.3 to 1.5, where speed costs half a dB at quality 70."""
    losses = []
    for file in sorted((data_dir / "photos").iterdir())[:24:2]:
        data = saved(Image.fromarray(shown(file.read_bytes())), "PNG", compress_level=0)
        side = round(min(opened(data).size) / ratio)
        ours = record_pixels(data, ImageSettings((side, side)))
        expected = reduced(data, *ours.shape[:2])
        area = cv2.resize(shown(data), ours.shape[1::-1], interpolation=cv2.INTER_AREA)
        jpegs = [
            shown(saved(Image.fromarray(pixels), quality=70)) for pixels in (ours, area)
        ]
        ratios = [psnr(pixels, expected) for pixels in (ours, area, *jpegs)]
        losses.append((ratios[1] - ratios[0], ratios[3] - ratios[2]))
    assert (np.mean(losses, axis=0) < (loss, min(loss, 0.5))).all()


def test_lanczos_is_pillows(data_dir):
    """A scaled decode loses less than 0.2 dB, at quality 70 and the ratio of 1500 to 384."""
    chosen = ImageSettings((192, 192), quality=70, resample="lanczos")
    files = sorted((data_dir / "photos").iterdir())
    losses = []
    for four in (files[k : k + 4] for k in range(0, 40, 4)):
        tiles = [
            ImageOps.fit(Image.open(file).convert("RGB"), (500, 375)) for file in four
        ]
        data = saved(
            Image.fromarray(np.vstack([np.hstack(tiles[:2]), np.hstack(tiles[2:])]))
        )
        expected = reduced(data, 192, 256)
        full = shown(saved(Image.fromarray(expected), quality=70))
        losses.append(
            psnr(full, expected) - psnr(shown(convert(data, chosen).data), expected)
        )
    assert np.mean(losses) < 0.2


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 600))
def test_short_side_shrinks_to_the_side_and_keeps_the_shape(height, width, side):
    """The short side is exact, the long within half a pixel of the shape; nothing is enlarged."""
    short, long = sorted(
        pictures.output_size(height, width, ImageSettings((side, side)))
    )
    assert short == min(side, height, width)
    assert long == pytest.approx(
        max(height, width) * short / min(height, width), abs=0.5
    )


@settings(max_examples=40)
@given(SIDES, SIDES, CHOICES["RESIZE"], CHOICES["RESAMPLE"])
def test_the_record_has_the_announced_size(shape, size, resize, resample):
    """output_size, EncodedImage and the pixels in the record agree, for any picture and setting."""
    size = {"none": None, "short_side": (size[0],) * 2}.get(resize, size)
    chosen = ImageSettings(size, resize=resize, resample=resample)
    record = convert(saved(scene(*shape)), chosen)
    expected = pictures.output_size(*shape, chosen)
    assert (record.height, record.width) == expected == opened(record.data).size[::-1]
    if resize in ("stretch", "fill", "center_crop"):
        assert expected == size


@pytest.mark.parametrize("size", [(100, 100), (60, 150), (150, 60)])
def test_the_middle_is_kept_as_pillow_does(size):
    """Fill is ImageOps.fit; center_crop takes the middle of a picture of the longer short side."""
    data = saved(scene(300, 500), "PNG")
    fill, short = ImageSettings(size, "fill", resample="lanczos"), max(size)
    left, top = (short * 5 // 3 - size[1]) // 2, (short - size[0]) // 2
    small = opened(data).resize((round(short * 5 / 3), short), LANCZOS)
    cropped = small.crop((left, top, left + size[1], top + size[0]))
    fitted = ImageOps.fit(opened(data), size[::-1], LANCZOS)
    filled = record_pixels(data, fill)
    middle = record_pixels(data, replace(fill, resize="center_crop"))
    assert psnr(np.ascontiguousarray(filled), np.asarray(fitted)) > 26
    assert np.array_equal(middle, np.asarray(cropped))


@pytest.mark.parametrize("resize", PARAMETERS["RESIZE"].choices)
def test_a_mask_follows_its_picture(resize):
    """A mask resized alone marks the pixels of the picture it is drawn in, with no new value."""
    mask = np.zeros((300, 400), np.uint8)
    cv2.circle(mask, (130, 170), 90, 7, -1)
    size = {"none": None, "short_side": (96, 96)}.get(resize, (96, 112))
    chosen = ImageSettings(size, resize=resize)
    drawn = saved(Image.fromarray(mask * 36).convert("RGB"), "PNG")
    pixels = record_pixels(drawn, chosen)
    made = pictures.resize_mask(mask, chosen)
    assert set(np.unique(made)) == {0, 7}
    assert made.shape == pixels.shape[:2]
    assert np.mean((made > 0) == (pixels[..., 0] > 126)) > 0.995


def test_a_grey_profile_with_the_curve_of_srgb_changes_nothing():
    """So a grey JPEG keeps its bytes, as one of colours does; another curve is applied."""
    grey, chosen = scene(100, 150).convert("L"), ImageSettings((128, 128))
    same, other = (
        saved(grey, icc_profile=grey_profile(gamma)) for gamma in (None, 1.8)
    )
    assert convert(same, chosen).data == same
    assert convert(other, chosen).data != other


def test_what_needs_nothing_done_keeps_its_own_bytes():
    """A JPEG small enough, also with a profile of sRGB; with "none" a JPEG or PNG; only those."""
    small, chosen = scene(100, 150), ImageSettings((128, 128))
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profiled = [
        saved(small, icc_profile=profile) for profile in (srgb, b"no profile at all")
    ]
    kept = [
        (saved(scene()), PASS),
        *((data, chosen) for data in (saved(small), *profiled)),
    ]
    kept += [(saved(scene().convert(mode), "PNG"), PASS) for mode in ("RGB", "L")]
    other = [
        saved(scene(129, 150)),
        saved(small, orientation=6),
        saved(small.convert("CMYK")),
    ]
    other += [saved(small, icc_profile=wide_profile()), saved(small, "PNG")]
    touched = [(data, chosen) for data in other]
    touched += [
        (saved(small), replace(chosen, pass_through=False)),
        (saved(small), ImageSettings((100, 150), "stretch")),
    ]
    touched += [(saved(small, orientation=3), PASS), (saved(small, "BMP"), PASS)]
    assert all(convert(*pair).data == pair[0] for pair in kept)
    assert all(levels_off(read_pixels(data), shown(data)) <= 2 for data in profiled)
    assert all(convert(*pair).data != pair[0] for pair in touched)
    assert convert(*touched[-1]).format == "JPEG"


@pytest.mark.parametrize(("subsampling", "pillows"), [("4:2:0", 2), ("4:4:4", 0)])
@pytest.mark.parametrize("quality", [30, 70, 95, 100])
def test_the_encoder_does_as_told(subsampling, pillows, quality):
    """Quantisation tables are libjpeg's for that quality, chroma as asked, and not progressive."""
    chosen = ImageSettings((128, 128), quality=quality, subsampling=subsampling)
    image = opened(convert(saved(scene()), chosen).data)
    like = opened(saved(scene(), quality=quality, subsampling=pillows))
    assert image.quantization == like.quantization
    assert (
        JpegImagePlugin.get_sampling(image)
        == JpegImagePlugin.get_sampling(like)
        == pillows
    )
    assert "progressive" not in image.info


def test_huffman_tables_are_optimised_unless_told_otherwise():
    """The record is as small as Pillow's optimised file, within 1 %; a plain one shows the same."""
    chosen = ImageSettings((128, 128), quality=70, resample="lanczos")
    ways = (chosen, replace(chosen, optimize=False))
    record, plain = (convert(saved(scene(), "PNG"), way).data for way in ways)
    small = scene().resize(opened(record).size, LANCZOS)
    best, usual = (len(saved(small, quality=70, optimize=way)) for way in (True, False))
    assert len(record) == pytest.approx(best, rel=0.01)
    assert len(record) < min(usual, len(plain))
    assert np.array_equal(shown(plain), shown(record))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><title>404</title>", "not an image"),
        (b"\xff\xd8\xff", "truncated"),
        *((data[:end], "truncated") for data in FILES for end in (200, -300)),
        (
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
            "unsupported format: heic (HEIF family)",
        ),
        (saved(scene(16, 16), "ICO"), "unsupported format: ICO"),
        (saved(Image.new("F", (9, 9), 0.5), "TIFF"), f"{OTHER} F"),
        (saved(Image.new("I", (9, 9), -1), "TIFF"), f"{OTHER} I"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_bad_files_are_refused_with_a_short_reason(data, reason):
    """All ways in say the same, and the text is fit for a table; nothing bad passes through."""
    calls = [
        check_image,
        read_pixels,
        *(partial(convert, settings=way) for way in (KEEP, PASS)),
    ]
    if data and "ICO" not in reason:  # which Pillow alone would show
        calls += [read_upright, read_grey]
    for call in calls:
        with pytest.raises(RejectedImage) as refused:
            call(data)
        assert str(refused.value) == reason


def test_too_many_pixels_are_rejected_by_the_header(monkeypatch):
    """The limit is ours, also where Pillow's is switched off for the whole process."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    reason = "over MAX_PIXELS: 100 × 100 pixels, at most 9999"
    for data in (saved(scene(100, 100), kind) for kind in ("JPEG", "PNG")):
        monkeypatch.setattr(header, "MAX_PIXELS", 10_000)
        assert check_image(data)[0].height == 100
        assert convert(data, KEEP).height == 100
        monkeypatch.setattr(header, "MAX_PIXELS", 9_999)
        for call in (check_image, read_header, partial(convert, settings=KEEP)):
            with pytest.raises(RejectedImage, match=reason):
                call(data)


def test_a_bomb_is_refused_before_it_is_unpacked():
    """A PNG's pixels are not touched for its size: 200 MB of them, were they read."""
    bomb = saved(Image.new("1", (20_000, 10_000)), "PNG")
    tracemalloc.start()
    with mock.patch.object(
        PngImagePlugin.PngImageFile, "load", side_effect=AssertionError
    ):
        with pytest.raises(RejectedImage, match="over MAX_PIXELS: "):
            read_header(bomb)
        assert read_header(saved(scene(64, 64), "PNG")).plain
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("size", "resize", "target", "reason"),
    [
        ((60_000, 1), "fill", (512, 512), "over MAX_PIXELS: 30720000 × 512 pixels"),
        (
            (60_000, 1),
            "center_crop",
            (512, 512),
            "over MAX_PIXELS: 30720000 × 512 pixels",
        ),
        (
            (66_000, 2),
            "short_side",
            (2, 2),
            "JPEG holds no image of 66000 × 2 pixels",
        ),
    ],
)
def test_a_thread_of_pixels_that_would_grow_too_large_is_refused(
    size, resize, target, reason
):
    with pytest.raises(RejectedImage, match=reason):
        convert(
            saved(Image.new("RGB", size, "teal"), "PNG"), ImageSettings(target, resize)
        )


def test_a_wrong_extension_is_read_all_the_same_and_noted():
    """The bytes decide, the name is only compared."""
    data = saved(scene(), "PNG")
    assert read_header(data, name="a/b.jpg").note == "wrong extension: .jpg holds PNG"
    assert (
        read_header(data, name="a/b.PNG").note
        == read_header(data, name="a/b").note
        == ""
    )
    assert read_header(saved(scene()), name="n0144.JPEG").note == ""


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_is_taken(kind):
    """The first frame is the record, the note says so, and the file does not pass through."""
    frames = [scene(40, 60, seed).quantize(64) for seed in range(3)]
    data = saved(
        frames[0],
        kind,
        save_all=True,
        append_images=frames[1:],
        **LOSSLESS.get(kind, {}),
    )
    assert read_header(data).note == "several frames: the first is used"
    assert convert(data, PASS).data != data
    assert psnr(read_pixels(data), np.asarray(frames[0].convert("RGB"))) > 40


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}, None]
)
def test_every_cut_is_noticed_when_pillow_notices_it(options):
    """A JPEG cut anywhere, grey or in colour, is refused if, and only if, Pillow refuses it."""
    data = saved(
        scene(24, 40).convert("L" if options is None else "RGB"), **options or {}
    )
    for end in range(2, len(data)):
        refused = {
            bool(verdict(call, data[:end])) for call in (check_image, read_pixels, load)
        }
        assert len(refused) == 1, end


def zeros_in(data):
    return data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :]


@pytest.mark.parametrize(
    "options", [{}, {"optimize": True}, {"restart_marker_rows": 1}, None]
)
def test_half_a_jpeg_with_an_end_marker_is_refused(options):
    """Grey for lack of data is noticed, which Pillow does not; coded grey and bytes behind stay."""
    picture = scene().convert("L" if options is None else "RGB")
    data = saved(picture, **options or {})
    half = data[: len(data) // 2] + b"\xff\xd9"
    for call in (
        check_image,
        read_pixels,
        *(partial(convert, settings=way) for way in (KEEP, PASS)),
    ):
        assert verdict(load, half) == ""
        with pytest.raises(RejectedImage, match="truncated: grey to its end"):
            call(half)
    for behind in (
        bytes(100),
        saved(Image.new("RGB", (90, 90)), "BMP"),
        zeros_in(data),
    ):
        assert psnr(read_pixels(data + behind), read_pixels(data)) == float("inf")
    zeros = zeros_in(data)
    with pytest.raises(RejectedImage, match="damaged: zeros in its scan"):
        check_image(zeros)
    for top, grey in ((0, 128), (150, 128), (150, 127), (150, 0), (290, 128)):
        flat = np.asarray(picture).copy()
        flat[top:] = grey
        for quality in (20, 75, 100):
            read_pixels(saved(Image.fromarray(flat), quality=quality, **options or {}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resize": "crop"}, "RESIZE is 'crop'.*'short_side', 'stretch'"),
        ({"resample": "cubic"}, "It can be 'area', 'lanczos'"),
        ({"quality": 0}, "QUALITY is 0; it must be from 1 to 100"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    """An impossible setting is an error before the first picture."""
    with pytest.raises(ValueError, match=message):
        ImageSettings(**{"size": (9, 9)} | wrong)


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.heavy)])
def test_mutated_pictures_are_survived(root, count):
    """Each becomes a readable record or a refusal in seconds, never a record if truncated."""
    found = json.loads(run_python(root, "-m", "support.fuzzing", str(count), "1"))
    assert found.pop("truncated to Pillow") > count / 20
    assert (
        found.pop("slowest") < 10 < found.pop("refused by Pillow")
    )  # on a busy machine too
    assert not any(found.values()), found


FAULTS = """
import resource
from concurrent.futures import ThreadPoolExecutor
from kaggle_tfr.images.convert import ImageSettings, convert
from support.scenes import saved, scene
data, settings = saved(scene(1500, 2000)), ImageSettings((1000, 1000))
def work(rounds):
    for _ in range(rounds):
        convert(data, settings)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def in_threads(rounds):
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, [rounds] * 2))
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before = in_threads(0)
window = in_threads(2) - before
faults = (-work(3) + work(8)) / 8
print(faults, window, [in_threads(4) for _ in range(4)][-1] - before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="glibc's allocator is meant"
)
def test_buffers_are_kept_and_memory_does_not_grow(root):
    """Few new pages after the first pictures; 47 on threads hold what three at once need."""
    faults, window, later = map(float, run_python(root, "-c", FAULTS).split())
    assert faults < 300
    # A picture in work: 9 MB decoded, 16 MB at twice the target, 4 MB at the target, the codecs.
    assert window < 2 * 45
    assert later < 3 * 45
