"""Disks and buckets by the same calls."""

import hashlib
import itertools
import json
import os

import pytest
from support.gcs import serve_bucket

from kaggle_tfr import storage


def test_a_file_is_whole_or_as_before(tmp_path, monkeypatch):
    """A write that fails half way leaves the old content and no temporary file."""
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
    """A folder called "set [1]*" is no pattern; only the pattern below it is."""
    folder = tmp_path / "set [1]*"
    for name in ("b/2.jpg", "a/1.jpg", "a/1.txt", ".hidden/3.jpg", "a/.4.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")

    found = storage.list_files("*/*.jpg", folder)

    assert found == [str(folder / "a/1.jpg"), str(folder / "b/2.jpg")]
    assert storage.list_folders("*", folder) == [str(folder / "a"), str(folder / "b")]


def test_a_user_may_name_any_file_but_a_table_may_not():
    """LABELS_CSV may lie anywhere; what a part's tables name lies in the part, or is an error."""
    assert storage.join("gs://bucket/", "a", "b..c/d.csv") == "gs://bucket/a/b..c/d.csv"
    assert storage.resolve("/data/", "a/b.csv") == "/data/a/b.csv"
    for name in ("gs://bucket/b.csv", "/other/b.csv"):
        assert storage.resolve("/data", name) == name
    for name in ("gs://bucket/b.csv", "/other/b.csv", "../b.csv", "a/../../b.csv", "a/.."):
        with pytest.raises(ValueError, match=f"'{name}' leads out of its folder '/data'"):
            storage.join("/data", "ok", name)


def test_files_are_read_when_their_turn_comes(tmp_path):
    """Of endless paths only those asked for are opened; a missing file is an error in its place."""
    (tmp_path / "a").write_bytes(b"here")
    taken = []
    names = itertools.cycle(["a", "missing"])
    endless = (taken.append(name) or str(tmp_path / name) for name in names)

    content = list(itertools.islice(storage.read_many(endless), 3))

    assert content[::2] == [b"here", b"here"]
    assert isinstance(content[1], FileNotFoundError)
    assert taken == ["a", "missing", "a"]


QUESTIONS = """
import itertools, json
from kaggle_tfr import storage

def tell(function, *args):
    try:
        answer = function(*args)
    except Exception as error:
        answer = type(error).__name__ + ": " + str(error)
    return answer.decode() if isinstance(answer, bytes) else answer

taken, many = [], itertools.cycle(storage.list_files("*.jpg", "gs://flowers/many"))
endless = (taken.append(path) or path for path in many)
rose = "gs://flowers/set/rose/1 ö.jpg"
print(json.dumps({
    "files": tell(storage.list_files, "*/*.jpg", "gs://flowers/set"),
    "bytes": [tell(storage.read_bytes, rose), storage.size_and_time(rose)[0]],
    "sha256": storage.sha256_of(rose),
    "folders": [storage.is_folder("gs://flowers/" + name) for name in ("set", "tulips")],
    "no object": tell(storage.read_bytes, "gs://flowers/set/rose/2.jpg"),
    "many": [len(data) for data in itertools.islice(storage.read_many(endless), 64)],
    "taken": len(taken),
    "removed": [storage.remove(rose), storage.remove(rose), storage.exists(rose)],
    "no bucket": tell(storage.list_files, "*", "gs://nowhere"),
}))
"""


def test_a_bucket_answers_like_a_disk(tmp_path):
    """It is read 32 objects at a time; what is missing is a FileNotFoundError with its name."""
    files = {f"many/{k:02d}.jpg": b"x" * k for k in range(1, 65)}
    for name, data in {"set/rose/1 ö.jpg": b"petal", **files}.items():
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_bytes(data)
    with serve_bucket(tmp_path, latency=0.2) as gcs:
        gcs.seed_objects("flowers", tmp_path / "f")
        done = gcs.run(QUESTIONS)

    said = json.loads(done.stdout)
    assert said["files"] == ["gs://flowers/set/rose/1 ö.jpg"]
    assert said["bytes"] == ["petal", 5]
    assert said["sha256"] == hashlib.sha256(b"petal").hexdigest()
    assert said["folders"] == [True, False]
    assert said["no object"].startswith("FileNotFoundError: 'gs://flowers/set/rose/2.jpg'")
    assert said["many"] == list(range(1, 65))
    assert said["taken"] == 64 + 32
    assert gcs.peak > 8, "reads wait for one another"
    assert said["removed"] == [None, None, False]
    assert said["no bucket"].startswith("FileNotFoundError: 'gs://nowhere/*'")


def test_a_silent_bucket_is_an_error_soon(tmp_path):
    """A bucket that takes requests and never answers is named, with what to set, and no hang."""
    with serve_bucket(tmp_path) as gcs:
        gcs.silent = True
        done = gcs.run(
            "from kaggle_tfr import storage\n"
            "storage.ANSWER_SECONDS = 2\n"
            "next(storage.read_many(['gs://flowers/a.jpg', 'gs://flowers/b.jpg']))"
        )

    assert done.returncode == 1
    assert "TimeoutError: gs://flowers did not answer within 2 s" in done.stderr
    assert "NO_GCE_CHECK=true" in done.stderr
    assert storage.ANSWER_SECONDS < 60
