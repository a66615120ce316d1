"""Disks and buckets by the same calls."""

import json
import os
import time

import pytest
from support.gcs import serve_bucket

from kaggle_tfr import storage


def test_a_file_is_whole_or_as_before(tmp_path, monkeypatch):
    """
    A write that fails half way leaves the old content and no temporary file.
    """
    path = tmp_path / "a.json"
    storage.write_atomically(path, b"old")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        storage.write_atomically(path, b"new")

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_folder_names_are_taken_literally(tmp_path):
    """
    A folder called "set [1]*" is no pattern; only the pattern below it is.
    """
    folder = tmp_path / "set [1]*"
    for name in ("b/2.jpg", "a/1.jpg", "a/1.txt", ".hidden/3.jpg", "a/.4.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")

    found = storage.list_files("*/*.jpg", folder)

    assert found == [str(folder / "a/1.jpg"), str(folder / "b/2.jpg")]
    assert storage.list_folders("*", folder) == [str(folder / "a"), str(folder / "b")]


def test_joining_keeps_addresses_whole():
    """
    A name that is an address or absolute stands for itself.
    """
    assert storage.join("gs://bucket/", "a", "b.csv") == "gs://bucket/a/b.csv"
    assert storage.join("/data", "gs://bucket/b.csv") == "gs://bucket/b.csv"
    assert storage.join("/data", "/other/b.csv") == "/other/b.csv"


def test_removing_twice_is_no_error(tmp_path):
    """
    What is not there is as good as removed.
    """
    (tmp_path / "a").write_bytes(b"x")

    storage.remove(tmp_path / "a")
    storage.remove(tmp_path / "a")

    assert not storage.exists(tmp_path / "a")


QUESTIONS = """
import json

def tell(function, *args):
    try:
        answer = function(*args)
    except Exception as error:
        answer = type(error).__name__ + ": " + str(error)
    return answer.decode() if isinstance(answer, bytes) else answer

many = storage.list_files("*.jpg", "gs://flowers/many")
print(json.dumps({
    "files": tell(storage.list_files, "*/*.jpg", "gs://flowers/set"),
    "bytes": tell(storage.read_bytes, "gs://flowers/set/rose/1 ö.jpg"),
    "size": tell(storage.size, "gs://flowers/set/rose/1 ö.jpg"),
    "folder": tell(storage.is_folder, "gs://flowers/set"),
    "no folder": tell(storage.is_folder, "gs://flowers/tulips"),
    "no object": tell(storage.read_bytes, "gs://flowers/set/rose/2.jpg"),
    "many": [len(data) for data in storage.read_many(many)],
    "no bucket": tell(storage.list_files, "*", "gs://nowhere"),
}))
"""


def test_a_bucket_answers_like_a_disk(tmp_path):
    """
    TensorFlow's own client lists and reads; what is missing is a FileNotFoundError with its name.
    """
    (tmp_path / "f" / "set" / "rose").mkdir(parents=True)
    (tmp_path / "f" / "set" / "rose" / "1 ö.jpg").write_bytes(b"petal")
    (tmp_path / "f" / "many").mkdir()
    for k in range(1, 65):
        (tmp_path / "f" / "many" / f"{k:02d}.jpg").write_bytes(b"x" * k)
    with serve_bucket(tmp_path, latency=0.2) as gcs:
        gcs.seed_objects("flowers", tmp_path / "f")
        done = gcs.run(QUESTIONS)

    said = json.loads(done.stdout)
    assert said["files"] == ["gs://flowers/set/rose/1 ö.jpg"]
    assert said["bytes"] == "petal"
    assert said["size"] == 5
    assert said["folder"] is True
    assert said["no folder"] is False
    assert said["no object"].startswith("FileNotFoundError: 'gs://flowers/set/rose/2.jpg'")
    assert said["many"] == list(range(1, 65))
    assert gcs.peak > 8, "reads wait for one another"
    assert said["no bucket"].startswith("FileNotFoundError: 'gs://nowhere/*'")


def test_a_silent_bucket_is_an_error_soon(tmp_path):
    """
    A bucket that takes requests and never answers is named, with what to set, and no hang.
    """
    with serve_bucket(tmp_path) as gcs:
        gcs.silent = True
        start = time.monotonic()
        done = gcs.run(
            "from kaggle_tfr import buckets, storage\n"
            "buckets.ANSWER_SECONDS = 2\n"
            "storage.list_files('*', 'gs://flowers')"
        )

    assert done.returncode == 1
    assert "TimeoutError: gs://flowers did not answer within 2 s" in done.stderr
    assert "NO_GCE_CHECK=true" in done.stderr
    assert time.monotonic() - start < 40
    assert storage.ANSWER_SECONDS < 60
