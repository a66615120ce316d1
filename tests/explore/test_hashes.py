"""hashes.parquet keeps what 01 has read of each file, for a rerun and later steps."""

import pandas as pd
import pytest
from support.scenes import saved, scene

from kaggle_tfr import storage
from kaggle_tfr.explore import cache
from kaggle_tfr.explore.table import load_hashes, measure
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import HASHES, hash_image
from kaggle_tfr.records import stream_image_bytes
from kaggle_tfr.storage import read_bytes


@pytest.fixture
def images(tmp_path):
    """A table of twelve pictures on disk, the last of them cut short."""
    paths = [tmp_path / f"{number:02d}.jpg" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_bytes(
            saved(scene(90, 120, seed=number))[: 2000 if number == 11 else None]
        )
    names = [path.name for path in paths]
    return pd.DataFrame({"image_id": names, "path": map(str, paths), "problem": ""})


@pytest.fixture
def reads(monkeypatch):
    """The paths of the files that were read, as it happens."""
    paths = []
    monkeypatch.setattr(cache, "BLOCK", 2)

    def note_and_read(block):
        paths.extend(block)
        return stream_image_bytes(block)

    monkeypatch.setattr("kaggle_tfr.explore.table.stream_image_bytes", note_and_read)
    return paths


def test_rows_keep_their_order_and_bad_files_say_why(images, tmp_path):
    """Each row describes its file; an image with a problem keeps it."""
    images = measure(
        images[::-1].assign(problem=[""] * 11 + ["no label"]), work_dir=str(tmp_path)
    )
    table = load_hashes(images, str(tmp_path))
    assert table["image_id"].tolist() == images["image_id"].tolist()
    expected = [
        hash_image(check_image(read_bytes(path))[1])[0] for path in table["path"][1:11]
    ]
    assert (
        table.loc[1:10, list(HASHES)].to_numpy(">u8").copy().view("u1") == expected
    ).all()
    assert table["problem"].tolist() == ["truncated"] + [""] * 10 + ["no label"]
    assert (table["digest"] == "").tolist() == (table["problem"] != "").tolist()
    assert images["digest"].tolist() == table["digest"].tolist()
    digests = [storage.digest(read_bytes(path)) for path in table["path"][1:11]]
    assert images["digest"].tolist()[1:11] == digests
    good = images.loc[1, ["height", "width", "n_bytes", "format"]].tolist()
    assert good == [90, 120, len(read_bytes(table["path"][10])), "JPEG"]
    assert images.loc[11, ["height", "n_bytes"]].tolist() == [0, 2000]


def test_a_rerun_reads_only_what_changed(images, reads, tmp_path):
    """Only a new, a changed and a rejected file are read again."""
    work = str(tmp_path)
    measure(images, work_dir=work)
    reads.clear()
    changed, new = images["path"][4], str(tmp_path / "new.jpg")
    for name in ("04.jpg", "new.jpg"):
        (tmp_path / name).write_bytes(saved(scene(90, 120, seed=99), quality=70))
    images.loc[len(images)] = ["new.jpg", new, ""]
    with pytest.raises(
        ValueError, match=r"lacks 2 images, such as '.*11.jpg'. Run 01_explore"
    ):
        load_hashes(images, work)
    again = measure(images, work_dir=work)
    assert sorted(reads) == sorted([changed, new, images["path"][11]])
    hashes = load_hashes(again, work)
    (tmp_path / "hashes.parquet").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"no '.*hashes.parquet'. Run 01_explore"
    ):
        load_hashes(again, work)
    pd.testing.assert_frame_equal(again, measure(images, work_dir=work))
    pd.testing.assert_frame_equal(hashes, load_hashes(again, work))


def test_a_file_of_an_earlier_version_is_made_anew(images, tmp_path):
    """A hashes.parquet that lacks a column is ignored, without an error."""
    measured = measure(images, work_dir=str(tmp_path))
    old = pd.read_parquet(tmp_path / "hashes.parquet")
    old.drop(columns="height").to_parquet(tmp_path / "hashes.parquet")
    pd.testing.assert_frame_equal(measure(images, work_dir=str(tmp_path)), measured)


def test_what_was_done_before_a_stop_is_not_done_again(
    images, reads, monkeypatch, tmp_path
):
    """The next run keeps the hashes of a run that was killed, and computes the rest."""

    def die_half_way(function, items, **_):
        for item in items:
            if len(reads) == 6:
                raise KeyboardInterrupt
            yield function(item)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "SECONDS_BETWEEN_SAVES", -100)
        patch.setattr(cache, "run", die_half_way)
        with pytest.raises(KeyboardInterrupt):
            measure(images, work_dir=str(tmp_path))

    table = measure(images, work_dir=str(tmp_path))

    assert sorted(reads) == sorted(images["path"])
    assert (table["problem"] == "").sum() == 11


def test_a_run_over_some_rows_forgets_none_of_the_others(images, reads, tmp_path):
    """After a LIMIT, the next full run opens only what has changed."""
    work = str(tmp_path)
    measured = measure(images, work_dir=work)
    (tmp_path / "03.jpg").write_bytes(saved(scene(90, 120, seed=99)))
    measure(images[2:5].reset_index(drop=True), work_dir=work)
    reads.clear()

    measure(images, work_dir=work)

    assert reads == [images["path"][11]]  # which has a problem, and is read each time
    kept = pd.read_parquet(tmp_path / "hashes.parquet")
    assert kept["path"].tolist() == images["path"].tolist()
    assert (kept["digest"] == measured["digest"]).tolist() == [
        n != 3 for n in range(12)
    ]
