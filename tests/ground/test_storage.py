"""Files on disk; test_bucket.py makes the same calls on a bucket."""

import os

import pytest

from kaggle_tfr import storage


def test_a_file_is_whole_or_as_before(tmp_path, monkeypatch):
    """A write that fails half way leaves the old content and no temporary file.

    The error has the name of the file, and what to do.
    """
    path = tmp_path / "a.json"
    storage.write_atomically(path, b"old")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"device: '{path}'. Free disk space"):
        storage.write_atomically(path, b"new")

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_user_may_name_any_file_but_a_table_may_not():
    """LABELS_CSV may be anywhere; files in the tables of a part must be in the part."""
    assert storage.join("gs://bucket/", "a", "b..c/d.csv") == "gs://bucket/a/b..c/d.csv"
    assert storage.resolve("/data/", "a/b.csv") == "/data/a/b.csv"
    names = ["gs://bucket/b.csv", "/other/b.csv", "../b.csv", "a/../../b.csv", "a/.."]
    for name in names[:2]:
        assert storage.resolve("/data", name) == name
    for name in names:
        with pytest.raises(ValueError, match=f"'{name}' is outside its folder '/data'"):
            storage.join("/data", "ok", name)
