"""Files on disk; test_bucket.py makes the same calls on a bucket."""

import os
import time

import pytest
from support.forks import fork
from support.tasks import write_slowly

from kaggle_tfr import storage
from kaggle_tfr.records import stream_image_bytes


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


def test_temporary_files_of_dead_processes_are_removed(tmp_path):
    """Those of a live process stay, and so do other files that end in .tmp."""
    (tmp_path / "notes.tmp").write_text("mine")
    writer = fork(write_slowly, tmp_path / "records" / "a")
    # A new file is locked a moment after it appears, and written after that.
    while not any(path.stat().st_size for path in tmp_path.glob("records/*.tmp")):
        time.sleep(0.005)
    storage.remove_leftovers(tmp_path)
    assert len(list(tmp_path.rglob("*.tmp"))) == 2

    writer.kill()
    writer.join()
    storage.remove_leftovers(tmp_path)

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["notes.tmp", "records"]


def test_folder_names_are_taken_literally(tmp_path):
    """A folder may be called "set [1]*"; only what is below it is a pattern."""
    folder = tmp_path / "set [1]*"
    for name in ("b/2.jpg", "a/1.jpg", "a/1.txt", ".hidden/3.jpg", "a/.4.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")

    found = storage.list_files("*/*.jpg", folder)

    assert found == [str(folder / "a/1.jpg"), str(folder / "b/2.jpg")]


def test_pipes_and_devices_are_errors_at_once(tmp_path):
    """A pipe does not wait for a writer, and an endless device is not read."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match=f"no regular file: '{path}'"):
            storage.read_bytes(path)
        with pytest.raises(storage.NotAFileError), storage.local_copy(path):
            pass  # hashing and reading a CSV would wait here
    assert storage.list_files("*", tmp_path) == []


def test_links_that_lead_nowhere_are_neither_files_nor_folders(tmp_path):
    """With a name of an image they are listed, so that 01 rejects them.

    A name that is not UTF-8 is listed as Python prints it.
    """
    (tmp_path / "there").mkdir()
    for link, to in {"loop": "loop", "through": "a.jpg/x", "long": "x" * 300}.items():
        os.symlink(to, tmp_path / link)
        os.symlink(to, tmp_path / "there" / f"{link}.jpg")
    (tmp_path / "there" / "\udce9.txt").write_bytes(b"x")
    names = ["\\udce9.txt", "long.jpg", "loop.jpg", "through.jpg"]
    assert storage.list_files("*/*", tmp_path) == [
        f"{tmp_path}/there/{name}" for name in names
    ]
    assert storage.list_files("*", tmp_path) == []


def test_a_user_may_name_any_file_but_a_table_may_not():
    """LABELS_CSV may be anywhere; files in the tables of a part must be in the part."""
    assert storage.join("gs://bucket/", "a", "b..c/d.csv") == "gs://bucket/a/b..c/d.csv"
    assert storage.resolve("/data/", "a/b.csv") == "/data/a/b.csv"
    for name in ("gs://bucket/b.csv", "/other/b.csv"):
        assert storage.resolve("/data", name) == name
    for name in (
        "gs://bucket/b.csv",
        "/other/b.csv",
        "../b.csv",
        "a/../../b.csv",
        "a/..",
    ):
        with pytest.raises(ValueError, match=f"'{name}' is outside its folder '/data'"):
            storage.join("/data", "ok", name)


def test_files_are_read_when_their_turn_comes(tmp_path):
    """A missing file is an error in its place, and no file is read early."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    contents = stream_image_bytes([path, tmp_path / "missing", path])

    assert next(contents) == b"old"
    path.write_bytes(b"new")
    assert isinstance(next(contents), FileNotFoundError)
    assert next(contents) == b"new"
