"""hashes.parquet keeps what 01 has read of each file, for a rerun and later steps."""

from pathlib import Path

import pandas as pd
import pytest
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr import storage
from kaggle_tfr.explore import cache
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.explore.table import load_hashes, measure
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import hash_images
from kaggle_tfr.records import stream_image_bytes


@pytest.fixture
def images():
    """A table of twelve images on disk, the last of them truncated."""
    for number in range(12):
        data = saved(scene(90, 120, seed=number))
        Path(f"{number:02d}.jpg").write_bytes(data if number < 11 else data[:2000])
    return read(label_column=[])[0]


def save_another_image(path):
    image = scene(90, 120, seed=99)
    Path(path).write_bytes(saved(image, quality=70))


@pytest.fixture
def reads(monkeypatch):
    """The list that the paths of files are added to when they are read."""
    paths = []
    monkeypatch.setattr(cache, "BLOCK", 2)

    def note_and_read(block):
        paths.extend(block)
        return stream_image_bytes(block)

    monkeypatch.setattr("kaggle_tfr.explore.table.stream_image_bytes", note_and_read)
    return paths


def test_rows_keep_their_order_and_problems(images):
    """Each row describes its file; an image with a problem keeps it."""
    images = images[::-1]
    images["problem"] = [""] * 11 + ["no label"]

    measured = measure(images, work_dir=".")
    table = load_hashes(measured, ".")

    assert list(table["image_id"]) == list(images["image_id"])
    assert list(measured["digest"]) == list(table["digest"])
    assert list(table["problem"]) == ["truncated", *[""] * 10, "no label"]
    first, *good, last = table.to_dict("records")
    assert first["digest"] == last["digest"] == ""
    for row in good:
        data = Path(row["path"]).read_bytes()
        assert row["digest"] == storage.digest(data)
        _, luma = check_image(data)
        [bits], _ = hash_images(luma[None])
        assert row["average"] == int.from_bytes(bits[:8])


def test_a_rerun_reads_only_what_changed(images, reads):
    """Only a new, a changed and a rejected file are read again."""
    measure(images, work_dir=".")
    reads.clear()
    for name in ("04.jpg", "new.jpg"):
        save_another_image(name)
    images, _ = read(label_column=[])
    again = measure(images, work_dir=".")

    assert sorted(reads) == list(images["path"][[4, 11, 12]])
    hashes = load_hashes(again, ".")
    Path("hashes.parquet").unlink()
    pd.testing.assert_frame_equal(again, measure(images, work_dir="."))
    pd.testing.assert_frame_equal(hashes, load_hashes(again, "."))


def test_an_interrupted_computation_resumes():
    """Of the rows that were computed before, few are computed again."""
    table = pd.DataFrame({"key": range(3000), "double": 0})
    computed = []
    stops = [2900]

    def compute(rows):
        if stops and stops[0] in rows.index:
            raise KeyboardInterrupt(stops.pop())
        computed.extend(rows.index)
        return [(2 * key,) for key in rows["key"]]

    task = (compute, table, ["double"], ["key"], "cache.parquet")
    with pytest.raises(KeyboardInterrupt):
        compute_columns(*task, label="")
    result = compute_columns(*task, label="")

    assert result["double"].tolist() == [*range(0, 6000, 2)]
    assert 3000 <= len(computed) < 4000
