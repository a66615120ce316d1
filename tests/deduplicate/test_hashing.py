from importlib.resources import files

import imagehash
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.scenes import opened, saved, scene

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate import hashing
from kaggle_tfr.deduplicate.clusters import (
    LEAK_COLUMNS,
    DuplicateSettings,
    load_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.hashing import FLAT, HASHES, hash_images, hash_picture
from kaggle_tfr.images.convert import ImageSettings, convert
from kaggle_tfr.images.header import RefusedImage
from kaggle_tfr.storage import read_bytes

HOPPER = files("matplotlib") / "mpl-data" / "sample_data" / "grace_hopper.jpg"
# What imagehash 4.3.2 with Pillow 13 prints for it; another answer means old hashes are worthless.
HOPPER_HEX = "1f0b1f3f3f1800009d8a745883d71ea571327254f33354543f4bbf3f3f180800"


def differing(data, other, **exact):
    return int(np.bitwise_count(hash_picture(data)[0] ^ hash_picture(other, **exact)[0]).sum())


def test_exact_bits_are_those_that_imagehash_prints():
    """Four imagehash strings after each other; of a known picture what they have always been."""
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, imagehash.whash
    for data in (HOPPER.read_bytes(), saved(scene(seed=3), quality=80)):
        expected = "".join(str(function(opened(data))) for function in functions)
        assert hash_picture(data, exact=True)[0].tobytes().hex() == expected
    assert hash_picture(HOPPER.read_bytes(), exact=True)[0].tobytes().hex() == HOPPER_HEX


def test_fast_hashes_of_photos_are_hardly_a_bit_from_exact_ones(data_dir):
    """Decoding small, grey and once moves less than 0.3 of 256 bits on average, five at most."""
    photos = [file.read_bytes() for file in sorted((data_dir / "photos").iterdir())[::2]]
    pictures = [saved(scene(700, 800, seed=1), kind) for kind in ("JPEG", "PNG", "WEBP")]
    off = [differing(picture, picture, exact=True) for picture in photos + pictures]
    assert np.mean(off[: len(photos)]) < 0.3
    assert max(off) <= 5


def test_hash_and_record_see_the_same_picture():
    """Alpha over white, 16 bits as 8, indices as colours, upright: as in the record's image."""
    colours, ramp = scene(520, 560, seed=2), Image.linear_gradient("L").resize((560, 520))
    grey, white = colours.convert("L"), Image.new("RGB", colours.size, "white")
    over_white, with_alpha = Image.composite(colours, white, ramp), colours.copy()
    with_alpha.putalpha(ramp)
    indexed, levels = grey.quantize(64), np.asarray(grey).astype(np.uint16)
    alpha = Image.fromarray(np.asarray(indexed) * np.uint8(4))
    faded = Image.composite(indexed.convert("RGB"), white, alpha)
    shows = [(Image.fromarray(levels * 257), grey), (grey.convert("P"), grey)]
    shows += [(Image.fromarray(levels), white.point(lambda _: 0)), (with_alpha, over_white)]
    shows = [(saved(image, "PNG"), plain) for image, plain in shows]
    shows += [(saved(with_alpha.convert("LA"), "PNG"), over_white)]
    shows += [(saved(colours.transpose(Image.Transpose.ROTATE_90), orientation=6), colours)]
    shows += [(saved(indexed, "PNG", transparency=bytes(range(0, 256, 4))), faded)]
    for data, plain in shows:
        record = convert(data, ImageSettings(None, "none", format="PNG")).data
        assert max(differing(data, other) for other in (saved(plain, "PNG"), record)) <= 3
        assert hash_picture(data)[1] == pytest.approx(hash_picture(record)[1], abs=0.5)


def test_only_pictures_without_texture_count_as_flat(data_dir):
    """One shade, a ramp, and noise on one shade are flat; no flower, photo or scene is."""
    rng = np.random.default_rng(0)
    ramp = np.tile(np.linspace(0, 255, 400), (300, 1))
    flats = [np.full((300, 400), 90.0), ramp, ramp.T, rng.normal(128, 12, (300, 400))]
    photos = [*(data_dir / "photos").iterdir(), *sorted((data_dir / "flowers").glob("*/*"))[::40]]
    for flat in flats:
        assert hash_picture(saved(Image.fromarray(flat.clip(0, 255).astype("u1"))))[1] < FLAT
    pictures = [saved(scene()), *(photo.read_bytes() for photo in photos)]
    assert min(hash_picture(picture)[1] for picture in pictures) > FLAT


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("data", [b"", b"<html>", saved(scene())[:9000]])
def test_what_is_no_whole_image_is_an_error(data, exact):
    """Empty, foreign and truncated data raise instead of getting some hash."""
    with pytest.raises(OSError if exact else RefusedImage):
        hash_picture(data, exact=exact)


@pytest.fixture
def images(tmp_path):
    """A table of twelve pictures on disk, the last of them cut short."""
    paths = [tmp_path / f"{number:02d}.jpg" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_bytes(saved(scene(90, 120, seed=number))[: 2000 if number == 11 else None])
    names = [path.name for path in paths]
    return pd.DataFrame({"image_id": names, "path": map(str, paths), "problem": ""})


@pytest.fixture
def reads(monkeypatch):
    """The paths of the files that were read and hashed, as it happens."""
    paths, hash_block = [], hashing._hash_block
    monkeypatch.setattr(hashing, "BLOCK", 2)
    monkeypatch.setattr(hashing, "_hash_block", lambda b: paths.extend(b["path"]) or hash_block(b))
    return paths


def test_rows_keep_their_order_and_bad_files_say_why(images, tmp_path):
    """Each row is of its own file; a truncated one gets a problem, a refused one keeps its own."""
    images = images[::-1].assign(problem=[""] * 11 + ["not an image"])
    table = hash_images(images, str(tmp_path))
    assert table["image_id"].tolist() == images["image_id"].tolist()
    expected = [hash_picture(read_bytes(path))[0] for path in table["path"][1:11]]
    assert (table.loc[1:10, list(HASHES)].to_numpy(">u8").copy().view("u1") == expected).all()
    assert "truncated" in table["problem"][0]
    assert table["problem"][1:].tolist() == [""] * 10 + ["not an image"]
    assert table["digest"][11] == ""


def test_a_rerun_hashes_only_what_changed(images, reads, tmp_path):
    """A new, a changed and an unreadable file are done again; the rest come from the cache."""
    hash_images(images, str(tmp_path))
    reads.clear()
    changed, new = images["path"][4], str(tmp_path / "new.jpg")
    for name in ("04.jpg", "new.jpg"):
        (tmp_path / name).write_bytes(saved(scene(90, 120, seed=99), quality=70))
    images.loc[len(images)] = ["new.jpg", new, ""]
    table = hash_images(images, str(tmp_path))
    assert sorted(reads) == sorted([changed, new, images["path"][11]])
    (tmp_path / "hashes.parquet").unlink()
    pd.testing.assert_frame_equal(table, hash_images(images, str(tmp_path)))


def test_hashes_are_those_that_the_clusters_were_made_with(images, reads, tmp_path):
    """A later step finds every exact hash again, though fast ones were made in between."""
    images, work = images[:11], str(tmp_path)
    exact = hash_images(images, work, exact=True)
    with pytest.raises(FileNotFoundError, match="Run 02_deduplicate with this WORK_DIR first"):
        load_clusters(work)
    save_clusters(
        pd.DataFrame(), pd.DataFrame(columns=LEAK_COLUMNS), DuplicateSettings(20, True), work
    )
    assert not hash_images(images, work)[list(HASHES)].equals(exact[list(HASHES)])
    files = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    reads.clear()

    settings = load_clusters(work)[1]

    assert settings == DuplicateSettings(20, True)
    pd.testing.assert_frame_equal(hash_images(images, work, exact=settings.exact_hashes), exact)
    assert reads == []
    assert files == {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}


def test_what_was_done_before_a_stop_is_not_done_again(images, reads, monkeypatch, tmp_path):
    """A run that dies half-way leaves its hashes behind, and the next does the rest alone."""

    def die_half_way(function, items, **_):
        for item in items:
            if len(reads) == 6:
                raise KeyboardInterrupt
            yield function(item)

    with monkeypatch.context() as patch:
        patch.setattr(hashing, "SECONDS_BETWEEN_SAVES", -100)
        patch.setattr(parallel, "run", die_half_way)
        with pytest.raises(KeyboardInterrupt):
            hash_images(images, str(tmp_path))

    table = hash_images(images, str(tmp_path))

    assert sorted(reads) == sorted(images["path"])
    assert (table["problem"] == "").sum() == 11
