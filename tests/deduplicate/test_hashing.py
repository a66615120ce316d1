import os

import numpy as np
import pandas as pd
import pytest
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import hashing
from kaggle_tfr.deduplicate.hashing import HASHES, hash_bits, hash_images
from kaggle_tfr.storage import read_bytes


@pytest.fixture
def images(tmp_path):
    """A table of twelve pictures on disk, the last of them cut short."""
    paths = [tmp_path / f"{number:02d}.jpg" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_bytes(saved(scene(90, 120, seed=number)))
    paths[-1].write_bytes(paths[-1].read_bytes()[:2000])
    return pd.DataFrame(
        {"image_id": [p.name for p in paths], "path": [str(p) for p in paths], "problem": ""}
    )


@pytest.fixture
def reads(monkeypatch):
    """The paths of the files that were read and hashed, as it happens."""
    paths = []
    read = hashing._hash_file
    monkeypatch.setattr(hashing, "_hash_file", lambda p, exact: paths.append(p) or read(p, exact))
    monkeypatch.setattr(hashing, "BLOCK", 2)
    return paths


def test_rows_keep_their_order_and_bad_files_say_why(images, tmp_path):
    """
    Each row holds the hash of its own file; the truncated one has a problem, and the run goes on.
    """
    table = hash_images(images, str(tmp_path))

    assert table["image_id"].tolist() == images["image_id"].tolist()
    for row in (0, 5, 10):
        bits = hash_bits(read_bytes(images["path"][row]))
        words = table.loc[row, list(HASHES)].to_numpy(np.uint64)
        assert words.astype(">u8").tobytes() == bits.tobytes()
    assert (table["problem"][:11] == "").all()
    assert "truncated" in table["problem"][11]


def test_a_refused_image_is_not_read_again(images, reads, tmp_path):
    """
    A row that came with a problem keeps it.
    """
    images.loc[3, "problem"] = "not an image"

    table = hash_images(images, str(tmp_path))

    assert table["problem"][3] == "not an image"
    assert images["path"][3] not in reads


def test_a_rerun_hashes_only_what_changed(images, reads, tmp_path):
    """
    Same path, size and time of change: taken from the cache. A new file, a changed one, and one
    that could not be read are done again, and the answer is as from a fresh start.
    """
    hash_images(images, str(tmp_path))
    reads.clear()
    changed, new = images["path"][4], str(tmp_path / "new.jpg")
    for path in (changed, new):
        with open(path, "wb") as file:
            file.write(saved(scene(90, 120, seed=99), quality=70))
    images.loc[len(images)] = ["new.jpg", new, ""]

    table = hash_images(images, str(tmp_path))

    assert sorted(reads) == sorted([changed, new, images["path"][11]])
    os.remove(tmp_path / "hashes.parquet")
    pd.testing.assert_frame_equal(table, hash_images(images, str(tmp_path)))


def test_exact_hashes_are_not_taken_from_fast_ones(images, reads, tmp_path):
    """
    EXACT_HASHES=True after a run without it hashes everything anew.
    """
    hash_images(images, str(tmp_path))
    reads.clear()

    hash_images(images, str(tmp_path), exact=True)

    assert len(reads) == 12


def test_what_was_done_before_a_stop_is_not_done_again(images, reads, monkeypatch, tmp_path):
    """
    A run that dies half-way leaves its hashes behind, and the next ends as if nothing had been.
    """
    monkeypatch.setattr(hashing, "SECONDS_BETWEEN_SAVES", -100)
    hash_block, done = hashing._hash_block, []

    def die_half_way(item, exact):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(item)
        return hash_block(item, exact)

    monkeypatch.setattr(hashing, "_hash_block", die_half_way)
    monkeypatch.setattr(hashing.progress, "run", lambda f, items, **_: map(f, items))
    with pytest.raises(KeyboardInterrupt):
        hash_images(images, str(tmp_path))
    assert len(reads) == 6
    monkeypatch.setattr(hashing, "_hash_block", hash_block)

    table = hash_images(images, str(tmp_path))

    assert sorted(reads) == sorted(images["path"])
    assert (table["problem"] == "").sum() == 11
