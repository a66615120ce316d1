import io
from importlib.resources import files

import imagehash
import numpy as np
import pytest
from PIL import Image
from support.scenes import opened, saved, scene

from kaggle_tfr.deduplicate.hashing import FLAT, hash_and_texture, hash_bits, hex_string

HOPPER = files("matplotlib") / "mpl-data" / "sample_data" / "grace_hopper.jpg"
# What imagehash 4.3.2 with Pillow 13 prints for it; another answer means old hashes are worthless.
HOPPER_HEX = "0x1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def differing(data, other):
    return int(np.bitwise_count(hash_bits(data) ^ hash_bits(other)).sum())


def test_the_hash_of_a_known_picture_is_what_it_has_always_been():
    """
    A new Pillow or imagehash that hashes otherwise is noticed before it spoils a cache.
    """
    assert hex_string(hash_bits(HOPPER.read_bytes(), exact=True)) == HOPPER_HEX


def test_exact_bits_are_those_that_imagehash_prints():
    """
    The string is the cassava notebook's: four imagehash strings after each other, 16 digits each.
    """
    data = saved(scene(seed=3), quality=80)
    image = opened(data)
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, imagehash.whash
    expected = "0x" + "".join(str(function(image)) for function in functions)

    assert hex_string(hash_bits(data, exact=True)) == expected


def test_fast_hashes_of_photos_are_hardly_a_bit_from_exact_ones(data_dir):
    """
    Decoding small, grey and once moves less than 0.3 of 256 bits on average, never more than five.
    """
    photos = [file.read_bytes() for file in sorted((data_dir / "photos").iterdir())[::2]]

    off = [np.bitwise_count(hash_bits(p) ^ hash_bits(p, exact=True)).sum() for p in photos]

    assert np.mean(off) < 0.3
    assert max(off) <= 5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_large_picture_of_any_format_is_hashed_small(kind):
    """
    Reducing before hashing leaves the bits of a 1000-pixel picture as they are, but for five.
    """
    data = saved(scene(700, 800, seed=1), kind)

    assert np.bitwise_count(hash_bits(data) ^ hash_bits(data, exact=True)).sum() <= 5


def test_a_resaved_photo_stays_within_six_bits():
    """
    Saving a photo again at half size and low quality changes its pixels but hardly its hash.
    """
    photo = Image.open(io.BytesIO(HOPPER.read_bytes()))
    half = photo.resize((photo.width // 2, photo.height // 2))

    assert differing(HOPPER.read_bytes(), saved(half, quality=40)) <= 6


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_photo_is_hashed_as_it_is_shown(orientation):
    """
    The same picture stored turned, with the EXIF tag that turns it back, is a duplicate.
    """
    upright = scene(300, 400, seed=5)
    turns = {
        2: (Image.Transpose.FLIP_LEFT_RIGHT,),
        3: (Image.Transpose.ROTATE_180,),
        4: (Image.Transpose.FLIP_TOP_BOTTOM,),
        5: (Image.Transpose.TRANSPOSE,),
        6: (Image.Transpose.ROTATE_90,),
        7: (Image.Transpose.TRANSVERSE,),
        8: (Image.Transpose.ROTATE_270,),
    }
    stored = upright
    for turn in turns[orientation]:
        stored = stored.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation

    assert differing(saved(upright), saved(stored, exif=exif)) <= 3


def test_sixteen_bit_and_palette_pictures_hash_like_their_plain_copies():
    """
    Neither clipping to white nor reducing by index numbers gets in the way.
    """
    grey = scene(600, 800, seed=2).convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)

    assert differing(saved(grey, "PNG"), saved(deep, "PNG")) <= 3
    assert differing(saved(grey, "PNG"), saved(grey.convert("P"), "PNG")) <= 3


def test_only_pictures_without_texture_count_as_flat(data_dir):
    """
    One shade, a ramp, and noise on one shade are flat; no flower, photo or scene is.
    """
    rng = np.random.default_rng(0)
    ramp = np.tile(np.linspace(0, 255, 400), (300, 1))
    flats = [np.full((300, 400), 90.0), ramp, ramp.T, rng.normal(128, 12, (300, 400))]
    photos = [*(data_dir / "photos").iterdir(), *sorted((data_dir / "flowers").glob("*/*"))[::40]]

    for flat in flats:
        assert hash_and_texture(saved(Image.fromarray(flat.clip(0, 255).astype("u1"))))[1] < FLAT
    assert min(hash_and_texture(photo.read_bytes())[1] for photo in photos) > FLAT
    assert hash_and_texture(saved(scene()))[1] > FLAT


@pytest.mark.parametrize("data", [b"", b"<html>", saved(scene())[:9000]])
def test_what_is_no_whole_image_is_an_error(data):
    """
    Empty, foreign and truncated data raise instead of getting some hash.
    """
    with pytest.raises(OSError):
        hash_bits(data)
