"""Perceptual hashes against imagehash, and the bits of rotated images."""

from importlib.resources import files

import imagehash
import numpy as np
from support.scenes import list_photos, opened, save_pixels, saved, scene

from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, hash_images
from kaggle_tfr.images.orientation import apply_orientation

HOPPER = files("matplotlib") / "mpl-data" / "sample_data" / "grace_hopper.jpg"
# Printed by imagehash 4.3.2 with Pillow 13. If it changes, saved hashes are worthless.
HOPPER_HEX = "1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def hash_file(data):
    """Return the luma, the hashes and the texture of a file as 01 computes them."""
    _, luma = check_image(data, bit_depth="stretch")
    return luma, *hash_luma(luma)


def hash_luma(luma):
    [bits], [texture] = hash_images(np.asarray(luma)[None])
    return bits, texture


def refer(image):
    """Return the four hashes of imagehash and its fine one: uint8 (64,)."""
    hashes = [
        imagehash.average_hash(image),
        imagehash.phash(image),
        imagehash.dhash(image),
        imagehash.whash(image),
        imagehash.phash(image, hash_size=16),
    ]
    return np.packbits(np.concatenate([one.hash.ravel() for one in hashes]))


def count_bits(bits, other_bits):
    differences = bits ^ other_bits
    return int(np.bitwise_count(differences).sum())


def test_bits_of_a_whole_image_are_those_that_imagehash_prints():
    """The hashes follow each other; those of a known image have never changed.

    Rounding changes a few of those of tiny images, which are enlarged.
    """
    hopper = opened(HOPPER.read_bytes()).convert("L")
    sizes = [(300, 400), (400, 300), (31, 3000), (9, 8), (1, 3)]
    images = [hopper, *[scene(*size).convert("L") for size in sizes]]
    for image, limit in zip(images, [0, 0, 0, 0, 8, 8], strict=True):
        bits, _ = hash_luma(image)
        expected = refer(image)
        assert count_bits(bits[:32], expected[:32]) <= limit
        assert count_bits(bits[80:], expected[32:]) <= limit + 2
    assert refer(hopper)[:32].tobytes().hex() == HOPPER_HEX


def test_hashes_of_photos_are_hardly_a_bit_from_those_of_imagehash(data_dir):
    """The reduced grey image changes 0.3 of 256 bits on average, five at most."""
    photos = list_photos(data_dir)[::2]
    image = scene(512, 600, seed=1)
    scenes = [saved(image, kind) for kind in ("JPEG", "PNG", "WEBP")]

    differing_bits = []
    for data in photos + scenes:
        luma, bits, _ = hash_file(data)
        differing_bits.append(count_bits(bits[:32], refer(opened(data))[:32]))

    assert luma.shape == (256, 300)
    assert np.mean(differing_bits[: len(photos)]) < 0.3
    assert max(differing_bits) <= 5


def test_hashes_of_a_rotated_image_follow_from_the_stored_bits(data_dir):
    """They are exact for mirror images, and differ by a bit or so for quarter turns.

    Pillow rounds differently along columns.
    """
    differing_bits = []
    for photo in list_photos(data_dir)[::6]:
        luma, bits, _ = hash_file(photo)
        for number, positions in enumerate(BITS_BY_ORIENTATION, 1):
            expected, _ = hash_luma(apply_orientation(luma, number))
            rotated = np.packbits(np.unpackbits(bits)[positions])
            differing_bits.append(count_bits(rotated, expected[:32]))

    by_orientation = np.reshape(differing_bits, (-1, 8))
    assert by_orientation[:, :4].max() == 0
    assert by_orientation.mean() < 1
    assert by_orientation.max() <= 8


def test_only_images_without_texture_count_as_flat(data_dir):
    """One shade, a ramp, and noise on one shade are flat; no photo is."""
    shape = (300, 400)
    one_shade = np.full(shape, 90.0)
    ramp = np.broadcast_to(np.linspace(0, 255, 400), shape)
    noise = np.random.default_rng(0).normal(128, 12, shape)
    for flat in (one_shade, ramp, ramp.T, noise):
        pixels = flat.clip(0, 255).astype(np.uint8)
        *_, texture = hash_file(save_pixels(pixels))
        assert texture < FLAT

    assert min(hash_file(photo)[-1] for photo in list_photos(data_dir)) > FLAT
