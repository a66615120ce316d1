"""hashes.parquet keeps what 01 has read of each file, for a rerun and later steps."""

from pathlib import Path

import pandas as pd
import pytest
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr import storage
from kaggle_tfr.explore import cache, table
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.explore.table import load_hashes, measure
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import ALL_HASHES, hash_images
from kaggle_tfr.records import stream_image_bytes


@pytest.fixture
def images():
    """A table of six images on disk, the last of them truncated."""
    for number in range(6):
        data = saved(scene(90, 120, seed=number))
        Path(f"{number}.jpg").write_bytes(data if number < 5 else data[:2000])
    return read(label_column=[])[0]


def test_rows_keep_their_order_and_problems(images):
    """Each row describes its file; an image with a problem keeps it."""
    images = images[::-1]
    images["problem"] = [""] * 5 + ["no label"]

    measured = measure(images, work_dir=".")
    hashes = load_hashes(measured, ".")

    assert list(hashes["image_id"]) == list(images["image_id"])
    assert list(measured["digest"]) == list(hashes["digest"])
    assert list(hashes["problem"]) == ["truncated", *[""] * 4, "no label"]
    first, *good, last = hashes.to_dict("records")
    assert first["digest"] == last["digest"] == ""
    for row in good:
        data = Path(row["path"]).read_bytes()
        assert row["digest"] == storage.digest(data)
        _, luma = check_image(data)
        bits, _ = hash_images(luma[None])
        assert [row[name] for name in ALL_HASHES] == bits.view(">u8")[0].tolist()


def test_a_rerun_reads_only_what_changed(images, monkeypatch):
    """Only a new, a changed and a rejected file are read again."""
    measure(images, work_dir=".")
    reads = []

    def note_and_read(paths):
        reads.extend(paths)
        return stream_image_bytes(paths)

    monkeypatch.setattr(cache, "BLOCK", 2)
    monkeypatch.setattr(table, "stream_image_bytes", note_and_read)
    for name in ("2.jpg", "new.jpg"):
        Path(name).write_bytes(saved(scene(90, 120, seed=9)))
    images, _ = read(label_column=[])
    again = measure(images, work_dir=".")

    assert sorted(reads) == list(images["path"][[2, 5, 6]])
    hashes = load_hashes(again, ".")
    Path("hashes.parquet").unlink()
    pd.testing.assert_frame_equal(again, measure(images, work_dir="."))
    pd.testing.assert_frame_equal(hashes, load_hashes(again, "."))


def test_an_interrupted_computation_resumes():
    """Of the rows that were computed before, few are computed again."""
    table = pd.DataFrame({"key": range(3000), "double": 0})
    computed = []

    def compute(rows):
        if 2900 in rows.index and len(computed) < 3000:
            raise KeyboardInterrupt
        computed.extend(rows.index)
        return [(2 * key,) for key in rows["key"]]

    task = (compute, table, ["double"], ["key"], "cache.parquet")
    with pytest.raises(KeyboardInterrupt):
        compute_columns(*task, label="")
    result = compute_columns(*task, label="")

    assert result["double"].tolist() == [*range(0, 6000, 2)]
    assert 3000 <= len(computed) < 4000
