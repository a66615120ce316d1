"""Files on their way into a part: made under a temporary name, hashed, named when whole."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping

import tensorflow as tf

from kaggle_tfr import storage

CHUNK = 8 << 20  # 8 MiB


def scratch_folder(part_dir: str) -> str:
    """Where shards lie until they have their names; a bucket's are made on this machine."""
    remote = storage.is_remote(part_dir)
    return tempfile.gettempdir() if remote else storage.join(part_dir, "journal")


def free_bytes(part_dir: str) -> int:
    """Bytes free where the part's shards are made."""
    remote = storage.is_remote(part_dir)
    return shutil.disk_usage(tempfile.gettempdir() if remote else part_dir).free


def scratch_file(part_dir: str, stem: str) -> str:
    """A new local file to write into: in the part's journal folder, so that a rename is enough."""
    folder = scratch_folder(part_dir)
    handle, path = tempfile.mkstemp(prefix=f"{stem}-", suffix=".tmp", dir=folder)
    os.close(handle)
    os.chmod(path, 0o644)  # mkstemp hides its files from others
    return path


def publish(temporary: str, path: str) -> None:
    """Gives a finished local file its final name, on the disk or in a bucket, in one step."""
    if storage.is_remote(path):
        # A bucket shows the object once its upload is complete.
        tf.io.gfile.copy(temporary, path, overwrite=True)
        os.remove(temporary)
        return
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(temporary, path)


def sha256_of(path: str) -> str:
    """sha256 of a file or object, in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    remote = storage.is_remote(path)
    with tf.io.gfile.GFile(path, "rb") if remote else open(path, "rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def check_shard(row: Mapping, part_dir: str) -> bool:
    """Whether a row's shard is there with the row's size and sha256."""
    path = storage.join(part_dir, row["file"])
    if not storage.exists(path) or storage.size(path) != row["bytes"]:
        return False
    return sha256_of(path) == row["sha256"]
