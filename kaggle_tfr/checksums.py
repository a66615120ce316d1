"""SHA256SUMS of a part: read, formatted, and compared with the part's files."""

import hashlib
import re
from collections.abc import Mapping

from kaggle_tfr import storage

SUMS = "SHA256SUMS"  # of all that a finished part holds but Kaggle's metadata, for `sha256sum -c`


def sha256_of_text(text: str) -> str:
    """The digest of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> dict[str, str]:
    """The sha256 of each file by its name, as SHA256SUMS has them; {} where it cannot be read."""
    text = storage.read_text(storage.join(part_dir, SUMS))
    pairs = re.findall(r"^([0-9a-f]{64})  (.+)\n", text, re.MULTILINE)
    sums = {name: sha256 for sha256, name in pairs}
    return sums if text == format_sums(sums) else {}


def format_sums(sums: Mapping[str, str]) -> str:
    """The text of SHA256SUMS."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))


def find_changed(part_dir: str, sums: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the part's files, by name; what is as `sums` says is left out."""
    wrong = {}
    for name, sha256 in sums.items():
        try:
            if storage.sha256_of(storage.join(part_dir, name)) != sha256:
                wrong[name] = "it has changed since it was written"
        except FileNotFoundError:
            wrong[name] = "the file is missing"
        except IsADirectoryError:
            wrong[name] = "it is a folder, not a file"
        except storage.NotAFileError:
            wrong[name] = "it is a pipe or a device, not a file"
    return wrong
