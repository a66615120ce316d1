"""Perceptual hashes against imagehash, and the bits of rotated images."""

from importlib.resources import files

import imagehash
import numpy as np
from PIL import Image
from support.scenes import list_photos, opened, saved, scene

from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, hash_images
from kaggle_tfr.images.orientation import apply_orientation

HOPPER = files("matplotlib") / "mpl-data" / "sample_data" / "grace_hopper.jpg"
# Printed by imagehash 4.3.2 with Pillow 13. If it changes, saved hashes are worthless.
HOPPER_HEX = "1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def hash_file(data):
    """Return the hashes of a file as 01 computes them."""
    _, luma = check_image(data, bit_depth="stretch")
    [bits], [texture] = hash_images(luma[None])
    return bits, texture


def find_texture(data):
    _, texture = hash_file(data)
    return texture


def reference_hash(data):
    """Return imagehash's four hashes of the whole image, 64 hexadecimal digits."""
    image = opened(data)
    hashes = [
        imagehash.average_hash(image),
        imagehash.phash(image),
        imagehash.dhash(image),
        imagehash.whash(image),
    ]
    return "".join(map(str, hashes))


def count_bits(bits, other_bits):
    differences = bits ^ other_bits
    return int(np.bitwise_count(differences).sum())


def test_bits_of_a_whole_image_are_those_that_imagehash_prints():
    """The four hashes follow each other; a known image's have never changed.

    Rounding changes a few of those of tiny images, which are enlarged.
    """
    hopper = HOPPER.read_bytes()
    limits = {(300, 400): 0, (400, 300): 0, (31, 3000): 0, (9, 8): 8, (1, 3): 8}
    scenes = {saved(scene(*size), "PNG"): limits[size] for size in limits}
    for data, limit in {hopper: 0, **scenes}.items():
        luma = opened(data).convert("L")
        [bits], _ = hash_images(np.asarray(luma)[None])
        expected = np.frombuffer(bytes.fromhex(reference_hash(data)), np.uint8)
        assert count_bits(bits[:32], expected) <= limit
    assert reference_hash(hopper) == HOPPER_HEX


def test_hashes_of_photos_are_hardly_a_bit_from_those_of_imagehash(data_dir):
    """The reduced grey image changes 0.3 of 256 bits on average, five at most."""
    photos = list_photos(data_dir)[::2]
    image = scene(700, 800, seed=1)
    scenes = [saved(image, kind) for kind in ("JPEG", "PNG", "WEBP")]

    differing_bits = []
    for data in photos + scenes:
        digest = bytes.fromhex(reference_hash(data))
        expected = np.frombuffer(digest, np.uint8)
        bits, _ = hash_file(data)
        differing_bits.append(count_bits(bits[:32], expected))

    assert np.mean(differing_bits[: len(photos)]) < 0.3
    assert max(differing_bits) <= 5


def test_hashes_of_a_rotated_image_follow_from_the_stored_bits(data_dir):
    """They are exact for mirror images, and differ by a bit or so for quarter turns.

    Pillow rounds differently along columns.
    """
    differing_bits = []
    for photo in list_photos(data_dir)[::6]:
        _, luma = check_image(photo)
        [bits], _ = hash_images(luma[None])
        stored_bits = np.unpackbits(bits)
        for number, positions in enumerate(BITS_BY_ORIENTATION, 1):
            rotated = apply_orientation(luma, number)
            [rotated_bits], _ = hash_images(rotated[None])
            is_wrong = stored_bits[positions] != np.unpackbits(rotated_bits[:32])
            differing_bits.append(is_wrong.sum())

    by_orientation = np.reshape(differing_bits, (-1, 8))
    assert len(by_orientation) >= 1
    assert by_orientation[:, :4].max() == 0
    assert by_orientation.mean() < 1
    assert by_orientation.max() <= 8


def test_only_images_without_texture_count_as_flat(data_dir):
    """One shade, a ramp, and noise on one shade are flat; no flower or photo is."""
    shape = (300, 400)
    one_shade = np.full(shape, 90.0)
    ramp = np.broadcast_to(np.linspace(0, 255, 400), shape)
    noise = np.random.default_rng(0).normal(128, 12, shape)
    for flat in (one_shade, ramp, ramp.T, noise):
        pixels = flat.clip(0, 255).astype(np.uint8)
        image = Image.fromarray(pixels)
        assert find_texture(saved(image)) < FLAT

    flowers = sorted((data_dir / "flowers").glob("*/*"))[::40]
    photos = [*list_photos(data_dir), *[flower.read_bytes() for flower in flowers]]
    assert min(map(find_texture, photos)) > FLAT


def test_the_fine_hash_is_that_of_imagehash_at_four_times_the_size():
    """It has 16 × 16 cosines of a thumbnail of 64 × 64 pixels."""
    for seed in range(10):
        image = scene(300, 400, seed=seed).convert("L")
        expected = imagehash.phash(image, hash_size=16, highfreq_factor=4)

        [bits], _ = hash_images(np.asarray(image)[None])

        fine = np.unpackbits(bits[80:])
        assert (fine != expected.hash.ravel()).sum() <= 2
