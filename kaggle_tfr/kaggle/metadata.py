"""Kaggle's rules for kernels and datasets, checked here because its client lets most slips pass."""

import csv
import hashlib
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from kaggle_tfr.paths import near_miss

OWNER = "INSERT_USERNAME_HERE"  # as the client's own `init` commands write it


MAX_NOTEBOOK_BYTES = 900_000  # the server takes less than 1 MB, and the client adds a little


MAX_DATASET_FILES = 50  # at the top level


MAX_DATASET_BYTES = 200 * 10**9


_REQUIRED = ("id", "title", "code_file", "language", "kernel_type", "enable_internet")


_FLAGS = ("is_private", "enable_gpu", "enable_tpu", "enable_internet")


_SLUG = r"[a-z0-9]+(?:-[a-z0-9]+)*"


_OWNED = r"[A-Za-z0-9_-]+/" + _SLUG


_SOURCES = {
    "dataset_sources": (_OWNED + r"(/\d+)?", "owner/dataset"),
    "competition_sources": (r"[a-z0-9_-]+", "competition"),
    "kernel_sources": (_OWNED + r"(/\d+)?", "owner/kernel"),
    "model_sources": (r"[\w-]+(/[\w.-]+){3,4}", "owner/model/framework/variation/version"),
}


_KERNEL_KEYS = (*_REQUIRED, *_FLAGS, *_SOURCES, "id_no", "keywords", "machine_shape")


_KERNEL_KEYS += ("docker_image", "docker_image_pinning_type")


# Source: docs/kernels.md of Kaggle's client, and its list of retired ones.
ACCELERATORS = (
    *("NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1", "NvidiaTeslaA100", "NvidiaH100"),
    *("NvidiaRtxPro6000", "TpuV5E8", "TpuV6E8"),
)


RETIRED = {
    "NvidiaTeslaP100": "NvidiaTeslaT4",
    "NvidiaTeslaK80": "NvidiaTeslaT4",
    "TpuV38": "TpuV5E8",
    "Tpu1VmV38": "TpuV5E8",
}


_DATASET_KEYS = ("title", "id", "id_no", "subtitle", "description", "licenses", "keywords")


_DATASET_KEYS += ("resources", "expectedUpdateFrequency", "userSpecifiedSources", "image", "data")


def to_slug(title: str) -> str:
    """The slug that Kaggle makes of a title.

    >>> to_slug("Čassava leaves, part 1")
    'cassava-leaves-part-1'
    """
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def check_kernel(folder: str) -> dict:
    """The kernel metadata of a folder, when Kaggle would take it and do what it says.

    Raises:
        FileNotFoundError: no kernel-metadata.json.
        ValueError: every fault that was found, one a line.
    """
    values = read_json(folder, KERNEL_FILE)
    faults = [*_kernel_faults(values), *_source_faults(values), *_code_faults(values, folder)]
    _raise_faults(faults, os.path.join(folder, KERNEL_FILE))
    return values


def check_dataset(folder: str) -> dict:
    """The dataset metadata of a folder, when Kaggle would take it with all that lies beside it.

    Raises:
        FileNotFoundError: no dataset-metadata.json.
        ValueError: every fault that was found, one a line.
    """
    values = read_json(folder, DATASET_FILE)
    _raise_faults(
        [*_dataset_faults(values), *_content_faults(folder)], os.path.join(folder, DATASET_FILE)
    )
    return values


def _raise_faults(faults: list[str], path: str) -> None:
    if faults:
        raise ValueError(f"'{path}' would not do on Kaggle:\n  " + "\n  ".join(faults))


def _unknown(values: Mapping, known: tuple) -> Iterator[str]:
    for key in values:
        if key not in known:
            yield f"{key}: no such key, Kaggle would ignore it.{near_miss(key, known)}"


def _check_id(values: Mapping, shortest: int) -> Iterator[str]:
    name, title = str(values.get("id", "")), str(values.get("title", ""))
    slug = name.partition("/")[2]
    if not re.fullmatch(_OWNED, name):
        yield f"id: '{name}' is not 'owner/slug' with a slug of a-z, 0-9 and single '-'."
    elif not shortest <= len(slug) <= 50:
        yield f"id: the slug '{slug}' has {len(slug)} characters; Kaggle wants {shortest} to 50."
    if not shortest <= len(title) <= 50:
        yield f"title: '{title}' has {len(title)} characters; Kaggle wants {shortest} to 50."


def _kernel_faults(values: Mapping) -> Iterator[str]:
    yield from _unknown(values, _KERNEL_KEYS)
    for key in _REQUIRED:
        if key not in values:
            default = " (its default is not what the docs say)" if key == "enable_internet" else ""
            yield f"{key}: missing{default}."
    yield from _check_id(values, 5)
    slug, title = str(values.get("id", "")).partition("/")[2], str(values.get("title", ""))
    if slug != to_slug(title):
        yield f"title: '{title}' makes the slug '{to_slug(title)}', but id says '{slug}'."
    for key, wanted in {"language": "python", "kernel_type": "notebook"}.items():
        if values.get(key) != wanted:
            yield f"{key}: {values.get(key)!r}, not '{wanted}'."
    for key in _FLAGS:
        if key in values and values[key] not in (True, False, "true", "false"):
            yield f"{key}: {values[key]!r}, neither true nor false."
    if all(values.get(key) in (True, "true") for key in ("enable_gpu", "enable_tpu")):
        yield "enable_gpu, enable_tpu: both on; a session has one kind of accelerator."
    shape = values.get("machine_shape") or ""
    if shape in RETIRED:
        yield f"machine_shape: {shape} is retired, Kaggle would run another. Use {RETIRED[shape]}."
    elif shape and shape not in ACCELERATORS:
        yield f"machine_shape: no accelerator '{shape}'.{near_miss(shape, ACCELERATORS)}"


def _source_faults(values: Mapping) -> Iterator[str]:
    for key, (pattern, form) in _SOURCES.items():
        sources = values.get(key, [])
        if not isinstance(sources, list):
            yield f"{key}: {sources!r} is no list."
            continue
        for source in sources:
            if not re.fullmatch(pattern, str(source)):
                yield f"{key}: '{source}' is not '{form}'."
        if len(set(map(str, sources))) < len(sources):
            yield f"{key}: a source stands there twice."


def _code_faults(values: Mapping, folder: str) -> Iterator[str]:
    name = str(values.get("code_file", ""))
    path = os.path.join(folder, name)
    if not name or not os.path.isfile(path):
        yield f"code_file: there is no '{name}' in the folder."
        return
    size = os.path.getsize(path)
    if size >= MAX_NOTEBOOK_BYTES:
        yield f"code_file: {size:,} bytes; Kaggle takes less than {MAX_NOTEBOOK_BYTES:,}."
    try:
        with open(path, encoding="utf-8") as file:
            if "cells" not in json.load(file):
                yield f"code_file: '{name}' is no notebook."
    except ValueError:
        yield f"code_file: '{name}' is no notebook."


def _dataset_faults(values: Mapping) -> Iterator[str]:
    yield from _unknown(values, _DATASET_KEYS)
    yield from _check_id(values, 6)
    subtitle, licenses = str(values.get("subtitle") or ""), values.get("licenses")
    if subtitle and not 20 <= len(subtitle) <= 80:
        yield f"subtitle: {len(subtitle)} characters; Kaggle wants 20 to 80."
    if not isinstance(licenses, list) or len(licenses) != 1 or "name" not in licenses[0]:
        yield f'licenses: {licenses!r}; Kaggle wants exactly one, as [{{"name": "CC0-1.0"}}].'


def _content_faults(folder: str) -> Iterator[str]:
    files = list_upload(folder)
    count, size = len(files) + len(list_folders(folder)), sum(files.values())
    if not files:
        yield "there are no files to send."
    if count > MAX_DATASET_FILES:
        yield (
            f"{count} files; Kaggle takes {MAX_DATASET_FILES} at the top. Plan larger shards "
            "(SHARD_MB), or put {split}/ before SHARD_NAME: a folder counts as one."
        )
    if size > MAX_DATASET_BYTES:
        yield f"{size / 1e9:,.1f} GB; Kaggle takes {MAX_DATASET_BYTES // 10**9} GB."


KERNEL_FILE, DATASET_FILE = "kernel-metadata.json", "dataset-metadata.json"


# Never uploaded as data: the client takes them for itself.
_CLIENTS_OWN = (DATASET_FILE, KERNEL_FILE, "dataset-cover-image.png", "dataset-cover-image.jpg")


def read_json(folder: str, name: str) -> dict:
    """The metadata in a folder.

    Raises:
        FileNotFoundError, ValueError: it is missing, or no JSON object.
    """
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {name} in '{folder}'.") from None
    except ValueError as error:
        raise ValueError(f"'{path}' is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"'{path}' is no JSON object.")
    return values


def list_kernels(folder: str) -> list[str]:
    """The folder itself, when it is a kernel's, else the kernels' folders in it.

    Raises:
        FileNotFoundError: there is none.
    """
    if os.path.exists(os.path.join(folder, KERNEL_FILE)):
        return [folder]
    found = sorted(str(path.parent) for path in Path(folder).glob(f"*/{KERNEL_FILE}"))
    if not found:
        raise FileNotFoundError(
            f"'{folder}' holds no kernel. Make some: python -m kaggle_tfr kernel RECIPE --out DIR"
        )
    return found


def list_upload(folder: str) -> dict[str, int]:
    """Bytes by name of every file of a folder that becomes part of the dataset."""
    with os.scandir(folder) as entries:
        files = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    return {name: size for name, size in sorted(files.items()) if name not in _CLIENTS_OWN}


def list_folders(folder: str) -> list[str]:
    """Names of the folders in a folder."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def find_damage(part_dir: str) -> str:
    """The first file that is not as the part's shards.csv says; "" when all are."""
    with open(os.path.join(part_dir, "shards.csv"), encoding="utf-8", newline="") as listing:
        rows = list(csv.DictReader(listing))
    for row in rows:
        path = os.path.join(part_dir, row["file"])
        if not os.path.exists(path):
            return f"{row['file']} is missing"
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != row["sha256"]:
                return f"{row['file']} has another sha256 than shards.csv says"
    return ""


def find_missing_output(output: str) -> str:
    """What a kernel's output lacks of a finished plan or part; "" for nothing."""
    root = Path(output)
    parts = sorted(path for path in root.glob("part-*") if path.is_dir())
    for part in parts:
        if not (part / "shards.csv").exists():
            return f"{part.name} is not finished; push again, and it goes on where it stopped"
        damage = find_damage(str(part))
        if damage:
            return f"{part.name} arrived damaged: {damage}"
        shutil.rmtree(part / "journal", ignore_errors=True)  # of a version that went before
    if not parts and not (root / "plan.json").exists():
        return "it left neither a plan nor a part"
    return ""
