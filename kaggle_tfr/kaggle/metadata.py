"""The metadata files of kernels and datasets, and the files of a part."""

import json
from pathlib import Path
from typing import Any

from kaggle_tfr.find import OWNER_PLACEHOLDER
from kaggle_tfr.shards import SUMS, find_changed_files, read_sums
from kaggle_tfr.storage import parse_json, read_text, write_atomically

KERNEL_FILE = "kernel-metadata.json"
DATASET_FILE = "dataset-metadata.json"


def read_metadata(path: Path, username: str) -> dict[str, Any]:
    """Return the content of a metadata file, with the user in place of a placeholder.

    Raises: ValueError: it is not JSON.
    """
    # A file that was written without a login has INSERT_USERNAME_HERE as owner.
    return parse_json(
        read_text(path).replace(OWNER_PLACEHOLDER, username),
        str(path),
        "Write the file again.",
    )


def read_kernel(folder: str, username: str) -> dict[str, Any]:
    """Return kernel-metadata.json of a kernel's folder, with the user as owner.

    Its code_file, a name in the folder, becomes an absolute path.
    Raises: ValueError: it is not JSON.
    """
    metadata = read_metadata(Path(folder, KERNEL_FILE), username)
    metadata["code_file"] = str(Path(folder, metadata["code_file"]).resolve())
    return metadata


def prepare_dataset(folder: str, username: str) -> str:
    """Check a part and write its owner into its metadata; return the dataset's name.

    The name is "owner/slug". Only dataset-metadata.json is changed, which SHA256SUMS
    does not list.
    Raises: ValueError: a file has changed or does not belong to the part, or the
    license is missing.
    """
    if changed := _find_changes(folder):
        raise ValueError(
            f"'{folder}': {', '.join(changed)} and {SUMS} do not agree. Run 04_write "
            "again, and remove what it has not written."
        )
    path = Path(folder, DATASET_FILE)
    metadata = read_metadata(path, username)
    if not metadata.get("licenses"):
        raise ValueError(
            f"'{path}' has no license, which Kaggle requires. Set LICENSE and run "
            "04_write again, which also updates finished parts."
        )
    write_atomically(path, json.dumps(metadata, indent=2) + "\n")
    return metadata["id"]


def _find_changes(part_dir: str) -> list[str]:
    """Return the names of a part's files that are missing, changed, or not its own.

    The files of a part are those that SHA256SUMS lists. A link counts as a file,
    whatever it leads to.
    """
    sums = read_sums(part_dir)
    names = {
        str(path.relative_to(part_dir))
        for path in Path(part_dir).rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    # SHA256SUMS lists neither itself nor the metadata, which the user may change.
    unlisted = names - {*sums, SUMS, DATASET_FILE}
    return [*find_changed_files(part_dir, sums), *sorted(unlisted)]


def list_kernels(folder: str) -> list[str]:
    """Return [folder] if it is a kernel's, else the sorted folders of kernels in it.

    Raises: FileNotFoundError: there is none.
    """
    top = Path(folder)
    files = list(top.glob(KERNEL_FILE)) or sorted(top.glob(f"*/{KERNEL_FILE}"))
    if not files:
        raise FileNotFoundError(
            f"'{folder}' has no kernel. Make one: kaggle-tfr kernel RECIPE --out DIR"
        )
    return [str(file.parent) for file in files]
