"""Folders of this machine that kernels read: the datasets to create of them."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaggle_tfr.find import KAGGLE_INPUT, OWNER_PLACEHOLDER, output_dir, to_slug
from kaggle_tfr.kaggle.metadata import DATASET_FILE
from kaggle_tfr.kaggle.upload import KaggleError, get_username
from kaggle_tfr.storage import is_remote, write_atomically

STAGED = "datasets"  # below the folder of the kernels


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine, and the dataset to create of it.

    path: absolute. slug, owner: of the dataset; the owner may be the placeholder.
    """

    path: Path
    slug: str
    owner: str

    @property
    def dataset(self) -> str:
        """Return the name of the dataset, "owner/slug"."""
        return f"{self.owner}/{self.slug}"

    @property
    def name(self) -> str:
        """Return the name of the folder in the dataset: a-z, 0-9 and "-"."""
        return to_slug(self.path.name) or "images"

    @property
    def input_dir(self) -> str:
        """Return the name by which a kernel finds the folder in the dataset."""
        # Mounts are found without their owner, but not by a wrong one.
        dataset = self.slug if self.owner == OWNER_PLACEHOLDER else self.dataset
        return f"{dataset}/{self.name}"


def find_local_folders(names: Sequence[str]) -> dict[str, LocalFolder]:
    """Return the names that are folders of this machine, with their datasets."""
    paths = {name: path for name in names if (path := _find_folder(name))}
    owner = _find_owner() if paths else ""
    folders: dict[str, LocalFolder] = {}
    slugs: dict[str, Path] = {}
    for name, path in paths.items():
        slug = to_slug(path.name, "images")
        number = 2
        while slugs.setdefault(slug, path) != path:
            slug = to_slug(path.name, f"images-{number}")
            number += 1
        folders[name] = LocalFolder(path, slug, owner)
    return folders


def _find_folder(name: str) -> Path | None:
    """Return the folder of this machine that has this name, as 01 would find it."""
    if not name or is_remote(name) or name.startswith(f"{KAGGLE_INPUT}/"):
        return None
    path = Path(name).expanduser()
    for folder in (path.absolute(), Path(output_dir(name))):
        if folder.is_dir():
            return Path(os.path.normpath(folder))
    return None


def _find_owner() -> str:
    """Return the user of Kaggle's client, or the placeholder."""
    try:
        return get_username()
    except (ImportError, KaggleError, OSError):
        return OWNER_PLACEHOLDER


def replace_inputs(
    values: Mapping[str, Any], replacements: Mapping[str, str]
) -> dict[str, Any]:
    """Return parameters with other names of the inputs."""
    values = dict(values)
    if "INPUT_DIR" in values:
        name = values["INPUT_DIR"]
        values["INPUT_DIR"] = replacements.get(name, name)
    if "MORE_INPUTS" in values:
        values["MORE_INPUTS"] = [
            replace_inputs(settings, replacements) for settings in values["MORE_INPUTS"]
        ]
    return values


def stage_folder(folder: LocalFolder, out: str, license_name: str) -> None:
    """Write the folder that Kaggle's client uploads.

    It has the metadata of the dataset, and a link to the folder, which the client packs
    into one archive: Kaggle accepts few files beside each other, but any in a folder.
    """
    staged = Path(out, STAGED, folder.slug)
    staged.mkdir(parents=True, exist_ok=True)
    link = staged / folder.name
    if link.is_symlink():
        link.unlink()
    link.symlink_to(folder.path)
    metadata = {
        "title": folder.slug.replace("-", " ").capitalize(),
        "id": folder.dataset,
        "licenses": [{"name": license_name or "unknown"}],
    }
    text = json.dumps(metadata, indent=2) + "\n"
    write_atomically(staged / DATASET_FILE, text.encode())


def list_commands(folder: LocalFolder, out: str) -> list[str]:
    """Return the commands that create the dataset, and show when it is ready."""
    staged = shlex.quote(os.path.join(out, STAGED, folder.slug))
    return [
        f"kaggle datasets create -p {staged} -r tar",
        f"kaggle datasets status {folder.dataset}",
    ]


def describe_creation(folder: LocalFolder, out: str) -> str:
    """Return what to do on this machine before the kernels are pushed."""
    create, status = list_commands(folder, out)
    text = (
        f"'{folder.path}' is a folder of this machine. Before you push, create a "
        f"private dataset of it:\n  {create}\n  {status}   # until it prints: ready\n"
        f"The kernels attach {folder.dataset} and read {folder.input_dir}. If the "
        "folder is on Kaggle already, run this command again with --source and its "
        "name there."
    )
    if folder.owner == OWNER_PLACEHOLDER:
        file = os.path.join(out, STAGED, folder.slug, DATASET_FILE)
        text += (
            f"\nKaggle's client has no user name here: replace {OWNER_PLACEHOLDER} in "
            f"'{file}' and in the second command by yours. `kaggle-tfr push` inserts "
            "it into the kernels."
        )
    return text
