"""Kaggle's rules for kernels and datasets; its client ignores most mistakes."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kaggle_tfr.find import to_slug
from kaggle_tfr.shards import SUMS, find_changed_files, read_sums
from kaggle_tfr.storage import parse_json

# As Kaggle names them. Source: docs/datasets_metadata.md of its client.
LICENSES = """CC0-1.0 CC-BY-3.0 CC-BY-3.0-IGO CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0
CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0-IGO CC-BY-NC-SA-4.0 PDDL
ODC-BY-1.0 ODbL-1.0 DbCL-1.0 CDLA-Permissive-1.0 CDLA-Sharing-1.0 US-Government-Works
EU-ODP-Legal-Notice apache-2.0 GPL-2.0 GPL-3.0 LGPL-3.0 AGPL-3.0 FDL-1.3
copyright-authors other unknown"""
KERNEL_FILE = "kernel-metadata.json"
DATASET_FILE = "dataset-metadata.json"
# The server accepts less than 1 MB, and the client adds a little.
MAX_NOTEBOOK_BYTES = 900_000
MAX_DATASET_FILES = 50  # at the top level
MAX_DATASET_BYTES = 200 * 10**9

# Source: docs/kernels.md of Kaggle's client, without those that it calls retired.
ACCELERATORS = (
    "NvidiaTeslaT4",
    "NvidiaL4",
    "NvidiaL4X1",
    "NvidiaTeslaA100",
    "NvidiaH100",
    "NvidiaRtxPro6000",
    "TpuV5E8",
    "TpuV6E8",
)
_LISTS = (
    "keywords",
    "competition_sources",
    "dataset_sources",
    "kernel_sources",
    "model_sources",
)


def check_metadata(folder: str, file: str) -> dict[str, Any]:
    """Return the content of a kernel's or dataset's metadata file.

    Raises: FileNotFoundError: no such file. ValueError: Kaggle would reject or misread
    the file; the message has one line for each fault.
    """
    path = Path(folder, file)
    values = parse_json(path.read_bytes(), str(path), "Write the file again.")
    check = _check_kernel if file == KERNEL_FILE else _check_dataset
    faults = list(check(values, Path(folder)))
    if faults:
        lines = "\n  ".join(faults)
        raise ValueError(f"Kaggle would not accept '{path}':\n  {lines}")
    return values


def _check_names(values: Mapping[str, Any], min_length: int) -> Iterator[str]:
    """Yield the faults of a kernel's or dataset's id and title."""
    name = str(values.get("id", ""))
    if not re.fullmatch(r"[A-Za-z0-9_-]+/[a-z0-9]+(-[a-z0-9]+)*", name):
        yield f"id: '{name}' is not 'owner/slug', the slug of a-z, 0-9 and single '-'."
    texts = {"id": name.partition("/")[2], "title": str(values.get("title", ""))}
    for key, text in texts.items():
        if not min_length <= len(text) <= 50:
            yield (
                f"{key}: '{text}' has {len(text)} characters; Kaggle requires "
                f"{min_length} to 50."
            )


def _check_kernel(values: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the faults of a kernel."""
    yield from _check_names(values, 5)
    if "enable_internet" not in values:
        # Kaggle's default is not the documented one.
        yield "enable_internet: missing. Set it to true or false."
    yield from _check_title(values)
    shape = str(values.get("machine_shape", ""))
    if shape not in ("", *ACCELERATORS):
        # Kaggle would use another machine without a warning.
        yield f"machine_shape: '{shape}' is not one of {', '.join(ACCELERATORS)}."
    yield from _check_lists(values)
    yield from _check_code(str(values.get("code_file", "")), folder)


def _check_title(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fault of a title that Kaggle makes another slug of than the id's."""
    slug = str(values.get("id", "")).partition("/")[2]
    title = str(values.get("title", ""))
    if slug != to_slug(title):
        yield (
            f"title: Kaggle makes the slug '{to_slug(title)}' of '{title}', but id has "
            f"'{slug}'."
        )


def _check_lists(values: Mapping[str, Any]) -> Iterator[str]:
    for key in _LISTS:
        names = values.get(key) or []
        is_list = isinstance(names, list)
        if not is_list or not all(isinstance(name, str) for name in names):
            yield f"{key}: {names!r:.60}; Kaggle requires a list of names."


def _check_code(code_file: str, folder: Path) -> Iterator[str]:
    path = folder / code_file
    if not path.resolve().is_relative_to(folder.resolve()):
        yield (
            f"code_file: '{code_file}' is outside the kernel's folder; a push would "
            "send that file to Kaggle. Copy it into the folder."
        )
    elif not path.is_file():
        yield f"code_file: '{code_file}' is not a file in the kernel's folder."
    elif path.stat().st_size >= MAX_NOTEBOOK_BYTES:
        yield (
            f"code_file: {path.stat().st_size:,} bytes; Kaggle accepts less than "
            f"{MAX_NOTEBOOK_BYTES:,}. Put a large parameter, such as a label map, into "
            "an attached dataset."
        )


def _check_dataset(values: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield the faults of a dataset."""
    yield from _check_names(values, 6)
    known = LICENSES.split()
    licenses = values.get("licenses")
    if licenses not in [[{"name": name}] for name in known]:
        yield (
            f"licenses: {licenses!r}; Kaggle requires one of {', '.join(known)}. "
            "Set LICENSE and run 04_write again, which also updates finished parts."
        )
    yield from _check_links(folder)
    yield from _check_size(folder)


def _check_size(folder: Path) -> Iterator[str]:
    """Yield the faults of a dataset of too many bytes or files."""
    n_bytes = sum(path.stat().st_size for path in list_inside(folder))
    if n_bytes > MAX_DATASET_BYTES:
        yield (
            f"{n_bytes:,} bytes; Kaggle accepts {MAX_DATASET_BYTES:,} in a dataset. "
            "Plan smaller parts (PART_LIMIT_GB)."
        )
    n_files = len(list_upload(folder))
    if n_files > MAX_DATASET_FILES:
        yield (
            f"{n_files} files and folders at the top; Kaggle accepts "
            f"{MAX_DATASET_FILES}. Plan again with MAX_PART_FILES = 45 or larger "
            "shards."
        )


def _check_links(folder: Path) -> Iterator[str]:
    """Yield the links to files outside the folder, which would be sent too."""
    for path in sorted(folder.rglob("*")):
        target = path.resolve()
        if path.is_symlink() and not target.is_relative_to(folder.resolve()):
            name = path.relative_to(folder)
            yield f"{name}: a link out of the part, to '{target}'. Remove it."


def list_kernels(folder: str) -> list[str]:
    """Return the folder if it is a kernel's, else the folders of kernels in it.

    Raises: FileNotFoundError: there is none.
    """
    if Path(folder, KERNEL_FILE).exists():
        return [folder]
    files = sorted(Path(folder).glob(f"*/{KERNEL_FILE}"))
    if not files:
        raise FileNotFoundError(
            f"'{folder}' has no kernel. Make one: kaggle-tfr kernel RECIPE --out DIR"
        )
    return [str(file.parent) for file in files]


def list_upload(folder: str | Path) -> list[Path]:
    """Return the files to send, and the folders to send as archives."""
    paths = [path for path in sorted(Path(folder).iterdir()) if _is_data(path)]
    return [path for path in paths if path.is_file() or list_inside(path)]


def list_inside(folder: str | Path) -> list[Path]:
    """Return all files below a folder that are sent as data."""
    paths = sorted(Path(folder).rglob("*"))
    return [path for path in paths if path.is_file() and _is_data(path)]


def _is_data(path: Path) -> bool:
    # The client never sends these as data. Earlier versions of `publish` wrote such a
    # cover.
    is_cover = path.name.startswith("dataset-cover-image.")
    return not is_cover and path.name not in (DATASET_FILE, KERNEL_FILE)


def find_damage(part_dir: str) -> str:
    """Return what is wrong with the first file that differs from SHA256SUMS, or ""."""
    sums = read_sums(part_dir)
    if not sums:
        return f"{SUMS} is missing or damaged"
    for name, problem in find_changed_files(part_dir, sums).items():
        return f"{name}: {problem}"
    return ""


def find_missing_output(output: str) -> str:
    """Return why a kernel's output is not a complete plan, part or model, or ""."""
    parts = sorted(Path(output).glob("part-*/"))
    for part in parts:
        if problem := _find_part_problem(part):
            return problem
        # The previous version of the kernel may have left it.
        shutil.rmtree(part / "journal", ignore_errors=True)
    results = ("plan.json", "model.keras")
    if parts or any(Path(output, name).exists() for name in results):
        return ""
    return "it left neither a plan, a part nor a model"


def _find_part_problem(part: Path) -> str:
    """Return why a downloaded part is not complete, or ""."""
    if not (part / "shards.csv").exists():
        return f"{part.name} is not finished; push again to resume it"
    if damage := find_damage(str(part)):
        return f"{part.name} arrived damaged: {damage}"
    return ""
