"""Perceptual hashes against imagehash, and the bits of rotated images."""

from importlib.resources import files

import imagehash
import numpy as np
import pytest
from PIL import Image
from support.scenes import opened, record_pixels, saved, scene

from kaggle_tfr.images.convert import ImageSettings, check_image
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, hash_image
from kaggle_tfr.images.orientation import apply_orientation

HOPPER = files("matplotlib") / "mpl-data" / "sample_data" / "grace_hopper.jpg"
# Printed by imagehash 4.3.2 with Pillow 13. If it changes, saved hashes are worthless.
HOPPER_HEX = "1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def hash_file(data):
    """Return the hashes of a file as 01 computes them."""
    return hash_image(check_image(data, bit_depth="stretch")[1])


def reference_hash(data):
    """Return imagehash's four hashes of the whole image, 64 hexadecimal digits."""
    functions = (
        imagehash.average_hash,
        imagehash.phash,
        imagehash.dhash,
        imagehash.whash,
    )
    return "".join(str(function(opened(data))) for function in functions)


def count_differing_bits(data, other):
    return count_bits(hash_file(data)[0], hash_file(other)[0])


def count_bits(bits, other_bits):
    return int(np.bitwise_count(bits ^ other_bits).sum())


def test_bits_of_a_whole_image_are_those_that_imagehash_prints():
    """The four hashes follow each other; a known image's have never changed."""
    for data in (HOPPER.read_bytes(), saved(scene(seed=3), quality=80)):
        bits = hash_image(opened(data).convert("L"))[0]
        assert bits.tobytes().hex() == reference_hash(data)
    assert reference_hash(HOPPER.read_bytes()) == HOPPER_HEX


def test_hashes_of_photos_are_hardly_a_bit_from_those_of_imagehash(data_dir):
    """The reduced grey image changes 0.3 of 256 bits on average, five at most."""
    photos = sorted((data_dir / "photos").iterdir())[::2]
    files = [file.read_bytes() for file in photos]
    for kind in ("JPEG", "PNG", "WEBP"):
        files.append(saved(scene(700, 800, seed=1), kind))

    differing_bits = []
    for data in files:
        expected = np.frombuffer(bytes.fromhex(reference_hash(data)), np.uint8)
        differing_bits.append(count_bits(hash_file(data)[0], expected))

    assert np.mean(differing_bits[: len(photos)]) < 0.3
    assert max(differing_bits) <= 5


def save_special_images():
    """Return pairs: a file that must be converted, and the image that it shows."""
    colors = scene(520, 560, seed=2)
    grey = colors.convert("L")
    white = Image.new("RGB", colors.size, "white")
    ramp = Image.linear_gradient("L").resize(colors.size)
    translucent = colors.copy()
    translucent.putalpha(ramp)
    over_white = Image.composite(colors, white, ramp)
    low_values = np.asarray(grey).astype(np.uint16)
    indexed = grey.quantize(64)
    alpha_of_index = bytes(range(0, 256, 4))
    alpha = Image.fromarray(np.asarray(indexed) * np.uint8(4))
    faded = Image.composite(indexed.convert("RGB"), white, alpha)
    lying = colors.transpose(Image.Transpose.ROTATE_90)
    return [
        (saved(Image.fromarray(low_values * 257), "PNG"), grey),
        (saved(Image.fromarray(low_values), "PNG"), grey),
        (saved(grey.convert("P"), "PNG"), grey),
        (saved(translucent, "PNG"), over_white),
        (saved(translucent.convert("LA"), "PNG"), over_white),
        (saved(indexed, "PNG", transparency=alpha_of_index), faded),
        (saved(lying, orientation=6), colors),
    ]


def test_hash_and_record_see_the_same_image():
    """Both are upright, with alpha over white, 8 of 16 bits and a palette's colours."""
    settings = ImageSettings(None, "none", bit_depth="stretch")
    for data, shown in save_special_images():
        record = saved(Image.fromarray(record_pixels(data, settings)), "PNG")
        assert count_differing_bits(data, saved(shown, "PNG")) <= 3
        assert count_differing_bits(data, record) <= 3
        texture = hash_file(data)[1]
        assert texture == pytest.approx(hash_file(record)[1], abs=0.5)


def test_hashes_of_a_rotated_image_follow_from_the_stored_bits(data_dir):
    """They are exact for mirror images, and differ by a bit or so for quarter turns.

    Pillow rounds differently along columns.
    """
    differing_bits = []
    for photo in sorted((data_dir / "photos").iterdir())[::6]:
        luma = check_image(photo.read_bytes())[1]
        bits, _, rotation_bits = hash_image(luma)
        stored_bits = np.unpackbits(np.append(bits, rotation_bits))
        for number, positions in enumerate(BITS_BY_ORIENTATION, 1):
            rotated = apply_orientation(np.asarray(luma), number).copy()
            expected = np.unpackbits(hash_image(Image.fromarray(rotated))[0])
            differing_bits.append((stored_bits[positions] != expected).sum())

    by_orientation = np.reshape(differing_bits, (-1, 8))
    assert len(by_orientation) >= 1
    assert by_orientation[:, :4].max() == 0
    assert by_orientation.mean() < 1
    assert by_orientation.max() <= 8


def test_only_images_without_texture_count_as_flat(data_dir):
    """One shade, a ramp, and noise on one shade are flat; no flower or photo is."""
    rng = np.random.default_rng(0)
    ramp = np.tile(np.linspace(0, 255, 400), (300, 1))
    one_shade = np.full((300, 400), 90.0)
    for flat in (one_shade, ramp, ramp.T, rng.normal(128, 12, (300, 400))):
        image = Image.fromarray(flat.clip(0, 255).astype(np.uint8))
        assert hash_file(saved(image))[1] < FLAT

    flowers = sorted((data_dir / "flowers").glob("*/*"))[::40]
    for photo in (*(data_dir / "photos").iterdir(), *flowers):
        assert hash_file(photo.read_bytes())[1] > FLAT
    assert hash_file(saved(scene()))[1] > FLAT
