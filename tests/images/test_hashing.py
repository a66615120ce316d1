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
# What imagehash 4.3.2 with Pillow 13 prints for it; another answer means old hashes are worthless.
HOPPER_HEX = "1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def hashed(data):
    return hash_image(check_image(data, bit_depth="stretch")[1])


def reference_hash(data):
    """Return imagehash's four hashes of the whole picture, 64 hexadecimal digits."""
    functions = (
        imagehash.average_hash,
        imagehash.phash,
        imagehash.dhash,
        imagehash.whash,
    )
    return "".join(str(function(opened(data))) for function in functions)


def count_bits(bits, other_bits):
    return int(np.bitwise_count(bits ^ other_bits).sum())


def differing(data, other):
    return count_bits(hashed(data)[0], hashed(other)[0])


def test_bits_of_a_whole_picture_are_those_that_imagehash_prints():
    """The four hashes follow each other; those of a known picture have never changed."""
    for data in (HOPPER.read_bytes(), saved(scene(seed=3), quality=80)):
        bits = hash_image(opened(data).convert("L"))[0]
        assert bits.tobytes().hex() == reference_hash(data)
    assert reference_hash(HOPPER.read_bytes()) == HOPPER_HEX


def test_hashes_of_photos_are_hardly_a_bit_from_those_of_imagehash(data_dir):
    """Decoding small, grey and once moves less than 0.3 of 256 bits on average, five at most."""
    photos = [
        file.read_bytes() for file in sorted((data_dir / "photos").iterdir())[::2]
    ]
    pictures = [
        saved(scene(700, 800, seed=1), kind) for kind in ("JPEG", "PNG", "WEBP")
    ]
    off = []
    for picture in photos + pictures:
        expected = np.frombuffer(bytes.fromhex(reference_hash(picture)), np.uint8)
        off.append(count_bits(hashed(picture)[0], expected))
    assert np.mean(off[: len(photos)]) < 0.3
    assert max(off) <= 5


def test_hash_and_record_see_the_same_picture():
    """Alpha over white, 16 bits as 8, indices as colours, upright: as in the record's image."""
    colours, ramp = (
        scene(520, 560, seed=2),
        Image.linear_gradient("L").resize((560, 520)),
    )
    grey, white = colours.convert("L"), Image.new("RGB", colours.size, "white")
    over_white, with_alpha = Image.composite(colours, white, ramp), colours.copy()
    with_alpha.putalpha(ramp)
    indexed, levels = grey.quantize(64), np.asarray(grey).astype(np.uint16)
    alpha = Image.fromarray(np.asarray(indexed) * np.uint8(4))
    faded = Image.composite(indexed.convert("RGB"), white, alpha)
    shows = [(Image.fromarray(levels * 257), grey), (grey.convert("P"), grey)]
    shows += [(Image.fromarray(levels), grey), (with_alpha, over_white)]
    shows = [(saved(image, "PNG"), plain) for image, plain in shows]
    shows += [(saved(with_alpha.convert("LA"), "PNG"), over_white)]
    shows += [
        (saved(colours.transpose(Image.Transpose.ROTATE_90), orientation=6), colours)
    ]
    shows += [(saved(indexed, "PNG", transparency=bytes(range(0, 256, 4))), faded)]
    settings = ImageSettings(None, "none", bit_depth="stretch")
    for data, plain in shows:
        record = saved(Image.fromarray(record_pixels(data, settings)), "PNG")
        assert (
            max(differing(data, other) for other in (saved(plain, "PNG"), record)) <= 3
        )
        assert hashed(data)[1] == pytest.approx(hashed(record)[1], abs=0.5)


def test_hashes_of_the_turned_picture_follow_from_the_stored_bits(data_dir):
    """Mirrored to the bit; turned on its side, which Pillow rounds otherwise, by a bit or so."""
    off = np.zeros((8, 0))
    for photo in sorted((data_dir / "photos").iterdir())[::6]:
        grey = check_image(photo.read_bytes())[1]
        bits, _, turned = hash_image(grey)
        known = np.unpackbits(np.append(bits, turned))[BITS_BY_ORIENTATION]
        shown = (
            Image.fromarray(apply_orientation(np.asarray(grey), number).copy())
            for number in range(1, 9)
        )
        real = np.unpackbits([hash_image(picture)[0] for picture in shown], axis=1)
        off = np.append(off, (known != real).sum(axis=1)[:, None], axis=1)
    assert off[:4].max() == 0
    assert off.mean() < 1 <= off.shape[1]
    assert off.max() <= 8


def test_only_pictures_without_texture_count_as_flat(data_dir):
    """One shade, a ramp, and noise on one shade are flat; no flower, photo or scene is."""
    rng = np.random.default_rng(0)
    ramp = np.tile(np.linspace(0, 255, 400), (300, 1))
    flats = [np.full((300, 400), 90.0), ramp, ramp.T, rng.normal(128, 12, (300, 400))]
    photos = [
        *(data_dir / "photos").iterdir(),
        *sorted((data_dir / "flowers").glob("*/*"))[::40],
    ]
    for flat in flats:
        assert hashed(saved(Image.fromarray(flat.clip(0, 255).astype("u1"))))[1] < FLAT
    pictures = [saved(scene()), *(photo.read_bytes() for photo in photos)]
    assert min(hashed(picture)[1] for picture in pictures) > FLAT
