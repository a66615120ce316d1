"""Kaggle's rules for kernels and datasets, checked here because its client lets most slips pass."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kaggle_tfr.mounts import to_slug
from kaggle_tfr.naming import near_miss
from kaggle_tfr.parameters import PARAMETERS
from kaggle_tfr.shards import SUMS, find_changed_files, read_sums

KERNEL_FILE, DATASET_FILE = "kernel-metadata.json", "dataset-metadata.json"
MAX_NOTEBOOK_BYTES = (
    900_000  # the server takes less than 1 MB, and the client adds a little
)
MAX_DATASET_FILES, MAX_DATASET_BYTES = 50, 200 * 10**9  # at the top level, in all

# The default of enable_internet is not what the docs say.
_REQUIRED = ("id", "title", "code_file", "language", "kernel_type", "enable_internet")
# Source: docs/kernels.md of Kaggle's client, and its list of retired ones.
ACCELERATORS = [
    "NvidiaTeslaT4",
    "NvidiaL4",
    "NvidiaL4X1",
    "NvidiaTeslaA100",
    "NvidiaH100",
]
ACCELERATORS += ["NvidiaRtxPro6000", "TpuV5E8", "TpuV6E8"]
RETIRED = {"NvidiaTeslaP100": "NvidiaTeslaT4", "NvidiaTeslaK80": "NvidiaTeslaT4"}
RETIRED["NvidiaTeslaT4Highmem"] = (
    "NvidiaTeslaT4"  # two of them, where Kaggle's page says T4 ×2
)
RETIRED |= dict.fromkeys(("TpuV38", "Tpu1VmV38", "TpuV232", "TpuV2256"), "TpuV5E8")
_KERNEL_KEYS = {
    *_REQUIRED,
    "id_no",
    "keywords",
    "is_private",
    "enable_gpu",
    "enable_tpu",
}
_KERNEL_KEYS |= {"machine_shape", "docker_image", "docker_image_pinning_type"}
_KERNEL_KEYS |= {
    f"{kind}_sources" for kind in ("dataset", "competition", "kernel", "model")
}
_DATASET_KEYS = {
    "title",
    "id",
    "id_no",
    "subtitle",
    "description",
    "licenses",
    "keywords",
}
_DATASET_KEYS |= {
    "resources",
    "image",
    "data",
    "expectedUpdateFrequency",
    "userSpecifiedSources",
}
# The client does not send these as data. Earlier versions of `publish` made such a cover.
COVERS = [f"dataset-cover-image.{ending}" for ending in ("png", "jpg", "jpeg", "webp")]
_CLIENT_FILES = (DATASET_FILE, KERNEL_FILE, *COVERS)


def check_metadata(folder: str, file: str) -> dict[str, Any]:
    """What a kernel's or dataset's metadata file says, when Kaggle would do just that.
    Raises: FileNotFoundError: no such file. ValueError: every fault found, one a line.
    """
    try:
        values = dict(json.loads(Path(folder, file).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"'{folder}/{file}' is no JSON object: {error}") from None
    is_kernel = file == KERNEL_FILE
    known, least = (_KERNEL_KEYS, 5) if is_kernel else (_DATASET_KEYS, 6)
    wrong = "no such key, Kaggle would ignore it."
    faults = [
        f"{k}: {wrong}{near_miss(k, known)}" for k in sorted(values.keys() - known)
    ]
    name, title = str(values.get("id", "")), str(values.get("title", ""))
    slug, wanted = name.partition("/")[2], f"characters; Kaggle wants {least} to 50."
    if not re.fullmatch(r"[A-Za-z0-9_-]+/[a-z0-9]+(-[a-z0-9]+)*", name):
        faults.append(
            f"id: '{name}' is not 'owner/slug' with a slug of a-z, 0-9 and single '-'."
        )
    elif not least <= len(slug) <= 50:
        faults.append(f"id: the slug '{slug}' has {len(slug)} {wanted}")
    if not least <= len(title) <= 50:
        faults.append(f"title: '{title}' has {len(title)} {wanted}")
    if is_kernel and slug != to_slug(title):
        faults.append(
            f"title: '{title}' makes the slug '{to_slug(title)}', but id says '{slug}'."
        )
    faults += (_kernel_faults if is_kernel else _dataset_faults)(values, folder)
    if faults:
        raise ValueError(
            "\n  ".join([f"'{folder}/{file}' would not do on Kaggle:", *faults])
        )
    return values


def _kernel_faults(values: Mapping[str, Any], folder: str) -> Iterator[str]:
    yield from (f"{key}: missing." for key in _REQUIRED if key not in values)
    for key in sorted(key for key in _KERNEL_KEYS if key.endswith("_sources")):
        names = values.get(key) or []
        if not isinstance(names, list) or not all(
            isinstance(name, str) for name in names
        ):
            yield f"{key}: {names!r:.60}; Kaggle wants a list of names."
    shape = str(values.get("machine_shape") or "")
    if shape not in ("", *ACCELERATORS):
        hint = near_miss(shape, ACCELERATORS)
        if other := RETIRED.get(shape):
            hint = f" That is retired, Kaggle would run another. Use {other}."
        yield f"machine_shape: '{shape}', which is none of {', '.join(ACCELERATORS)}.{hint}"
    has_tpu = values.get("enable_tpu") in (True, "true") or shape.startswith("Tpu")
    if values.get("docker_image") and has_tpu:  # Source: Kaggle/kaggle-cli, issue 1197
        yield "docker_image: it overrides the TPU, without a word it would run on a CPU. Drop it."
    code_file = str(values.get("code_file", ""))
    code = Path(folder, code_file)
    if (
        not code.resolve().is_relative_to(Path(folder).resolve())
        or Path(code_file).is_absolute()
    ):
        what = f"code_file: '{code_file}' is outside the kernel's folder"
        yield f"{what}; a push would send that file to Kaggle. Copy it into the folder."
    elif code_file and not code.is_file():
        yield f"code_file: '{code_file}' is not a file in the kernel's folder."
    if (size := code.stat().st_size if code.is_file() else 0) >= MAX_NOTEBOOK_BYTES:
        mend = "Put a large parameter, such as a label map, into an attached dataset."
        yield f"code_file: {size:,} bytes; Kaggle takes less than {MAX_NOTEBOOK_BYTES:,}. {mend}"


def _dataset_faults(values: Mapping[str, Any], folder: str) -> Iterator[str]:
    licenses = values.get("licenses")
    only_one = (
        licenses[0] if isinstance(licenses, list) and len(licenses) == 1 else None
    )
    given = only_one.get("name") if isinstance(only_one, dict) else ""
    if given not in (known := PARAMETERS["LICENSE"].choices[1:]):
        what = f"licenses: {licenses!r}; Kaggle wants exactly one.{near_miss(str(given), known)}"
        mend = "Set LICENSE and run 04_write again; it goes into finished parts too."
        yield f"{what} There are {', '.join(known)}. {mend}"
    top = Path(folder).resolve()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(top):
            name = path.relative_to(folder)
            yield f"{name}: a link out of the part, to '{path.resolve()}'. Remove it."
    if (
        size := sum(path.stat().st_size for path in list_inside(folder))
    ) > MAX_DATASET_BYTES:
        mend = "Plan smaller parts (PART_LIMIT_GB)."
        yield f"{size:,} bytes; Kaggle takes {MAX_DATASET_BYTES:,} in a dataset. {mend}"
    n_files = len(list_upload(folder))
    if n_files > MAX_DATASET_FILES:
        yield (
            f"{n_files} files and folders at the top; a Kaggle dataset takes "
            f"{MAX_DATASET_FILES}. Plan again with MAX_PART_FILES = 45 or larger shards."
        )


def list_kernels(folder: str) -> list[str]:
    """The folder itself, when it is a kernel's, else those in it; FileNotFoundError if none."""
    if Path(folder, KERNEL_FILE).exists():
        return [folder]
    if kernels := sorted(
        str(path.parent) for path in Path(folder).glob(f"*/{KERNEL_FILE}")
    ):
        return kernels
    hint = "Make some: python -m kaggle_tfr kernel RECIPE --out DIR"
    raise FileNotFoundError(f"'{folder}' holds no kernel. {hint}")


def list_upload(folder: str) -> list[Path]:
    """Files to send, and folders to send as archives."""
    paths = [
        path
        for path in sorted(Path(folder).iterdir())
        if path.name not in _CLIENT_FILES
    ]
    return [path for path in paths if path.is_file() or list_inside(path)]


def list_inside(folder: str | Path) -> list[Path]:
    """The files below a folder, without those that the client takes for itself."""
    found = sorted(Path(folder).rglob("*"))
    return [path for path in found if path.is_file() and path.name not in _CLIENT_FILES]


def find_damage(part_dir: str) -> str:
    """What is wrong with the first file that is not as the part's SHA256SUMS says; "" if none."""
    if not (sums := read_sums(part_dir)):
        return f"{SUMS} is missing or broken"
    wrong = find_changed_files(part_dir, sums)
    return next((f"{name}: {problem}" for name, problem in wrong.items()), "")


def find_missing_output(output: str) -> str:
    """What a kernel's output lacks of a finished plan, part or training; "" for nothing."""
    parts = sorted(path for path in Path(output).glob("part-*") if path.is_dir())
    for part in parts:
        if not (part / "shards.csv").exists():
            return f"{part.name} is not finished; push again, and it goes on where it stopped"
        if damage := find_damage(str(part)):
            return f"{part.name} arrived damaged: {damage}"
        shutil.rmtree(
            part / "journal", ignore_errors=True
        )  # of a version that went before
    left = parts or any(
        Path(output, name).exists() for name in ("plan.json", "model.keras")
    )
    return "" if left else "it left neither a plan, a part nor a model"
