"""Kernels: notebooks that carry this package and run the steps on Kaggle."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kaggle_tfr.find import (
    KAGGLE_INPUT,
    KAGGLE_TEMP,
    KAGGLE_WORKING,
    OWNER_PLACEHOLDER,
    bundled,
    output_dir,
    to_slug,
)
from kaggle_tfr.kaggle.carrier import PACKAGE
from kaggle_tfr.kaggle.cells import EXPLORE, Kernel, format_notebook
from kaggle_tfr.kaggle.folders import (
    LocalFolder,
    describe_creation,
    find_local_folders,
    replace_inputs,
    stage_folder,
)
from kaggle_tfr.kaggle.metadata import KERNEL_FILE, check_metadata
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    Values,
    check_parameters,
    load_recipe,
)
from kaggle_tfr.storage import is_remote

PLANNING = DEFAULT_NOTEBOOKS[:3]
WRITE = "04_write"
TRAINING = ("05_read_and_visualize", "06_train")
# The metadata key of each type of input, and the number of names in an input's id.
_INPUT_TYPES = {
    "competitions": ("competition_sources", 1),
    "datasets": ("dataset_sources", 2),
    "notebooks": ("kernel_sources", 2),
}

# Parameters that name published parts: a name, or a list of names.
_PARTS_PARAMETERS = ("COMPARE_WITH", "FOLDS_FROM")
# Parameters that each kernel has its own values of.
_SESSION_PARAMETERS = ("WORK_DIR", "OUT_DIR", "PART")
_WORK = "work_dir(WORK_DIR, NAME)"  # where a session finds its work folder
_MAX_TITLE = 50
_OWN_TITLE = "Find duplicates and leaks, then write TFRecords"
# Tags of Kaggle; its client prints those that the server does not know.
_KEYWORDS = ["computer vision", "image", "tensorflow"]


def write_kernels(
    values: Values,
    out: str,
    *,
    parts: int = 1,
    sources: Sequence[str] = (),
    internet: bool = True,
    accelerator: str = "",
) -> list[str]:
    """Write the folders of kernels below `out`; return them in the order of pushing.

    values: a recipe's parameters.
    parts: 1 makes one kernel for all steps; more make one that plans, and one for each
    part.
    sources: inputs to attach in place of INPUT_DIR, "competition" or "owner/dataset".
    internet: False where pip must install missing packages from an attached dataset of
    wheels.
    accelerator: for example "TpuV5E8": makes one kernel that trains there, on
        `sources`, else TFREC_DIRS, else the parts that the other kernels write.
    An input that is a folder of this machine becomes a dataset: what to do for this is
    printed, and is part of the kernel's first cell.
    Raises: ValueError: an input that Kaggle could not mount, or metadata that it would
    reject.
    """
    check_parameters(values)
    values = {
        key: value for key, value in values.items() if key not in _SESSION_PARAMETERS
    }
    name = values.get("NAME", DEFAULTS["NAME"])
    titles = _name_kernels(name, parts)
    new_datasets: Sequence[LocalFolder] = ()

    if accelerator:
        slugs = [to_slug(title) for title in titles]
        dirs = list(sources) or values.get("TFREC_DIRS") or slugs
        kernels = [_make_training_kernel(name, dirs, values, accelerator)]
        inputs = [_find_output(path) if path in slugs else path for path in dirs]
    else:
        values, inputs, new_datasets = _prepare_inputs(values, sources, out)
        inputs += _find_overrides(values)
        inputs += _find_parts(values)
        kernels = _make_kernels(name, titles, values)

    folders = []
    for kernel in kernels:
        folder = Path(out, kernel.slug)
        kernel.metadata["enable_internet"] = internet
        _attach(kernel, inputs)
        _write_kernel(folder, replace(kernel, new_datasets=new_datasets))
        folders.append(str(folder))
    return folders


def _prepare_inputs(
    values: Values, sources: Sequence[str], out: str
) -> tuple[Values, list[str], list[LocalFolder]]:
    """Return the parameters for Kaggle, the inputs to attach, and those to create.

    sources replace the folders of this machine, in their order; of the others datasets
    have to be created.
    """
    names = _list_inputs(values)
    folders = find_local_folders(names)
    replacements = {name: folder.input_dir for name, folder in folders.items()}
    replacements |= zip(folders, sources, strict=False)
    values = replace_inputs(values, replacements)

    new_datasets = list(folders.values())[len(sources) :]
    inputs = list(sources) or [name for name in names if name not in folders]
    for folder in new_datasets:
        inputs.append(folder.dataset)
        stage_folder(folder, out, values.get("LICENSE", ""))
        print(describe_creation(folder, out))
    return values, inputs, new_datasets


def write_own_kernel(folder: str = str(PACKAGE.parent)) -> None:
    """Write kernel-metadata.json and notebooks/kernel.ipynb of the checkout."""
    values = load_recipe(str(bundled("recipes") / "sample.yaml"))
    kernel = _make_whole_kernel(_OWN_TITLE, values)
    kernel.metadata["code_file"] = "notebooks/kernel.ipynb"
    _write_kernel(Path(folder), kernel)


def _is_bundled(name: str, values: Values) -> bool:
    """Return whether a file or folder is of the sample, which the kernel writes."""
    return not values.get("INPUT_DIR") and name.startswith("sample/")


def _find_overrides(values: Values) -> list[str]:
    """Return the folder of the file of OVERRIDES on Kaggle, [] without a file.

    Raises: ValueError: the file is not on Kaggle.
    """
    file = values.get("OVERRIDES", "")
    if not file or _is_bundled(file, values):
        return []
    folder = os.path.dirname(file)
    if "/" not in folder or os.path.exists(output_dir(file)):
        raise ValueError(
            f"OVERRIDES '{file}' is a file of this machine. Upload it to Kaggle as a "
            'dataset, and set OVERRIDES to its name there, "owner/dataset/file.csv".'
        )
    return [folder]


def _find_parts(values: Values) -> list[str]:
    """Return the published parts that the steps read, to attach.

    Raises: ValueError: a part is on this machine, or is not a dataset.
    """
    parts = []
    for parameter in _PARTS_PARAMETERS:
        names = values.get(parameter, [])
        for name in [names] if isinstance(names, str) else names:
            if name and not _is_bundled(name, values):
                _check_part(parameter, name)
                parts.append(name)
    return parts


def _check_part(parameter: str, name: str) -> None:
    """Raise a ValueError unless a part can be on Kaggle or in a bucket."""
    if is_remote(name):
        return
    is_mount = name.startswith(f"{KAGGLE_INPUT}/")
    if not is_mount and os.path.exists(output_dir(name)):
        raise ValueError(
            f"{parameter} '{name}' is on this machine, which a kernel cannot read. "
            f"Publish it first (kaggle-tfr publish PART), then set {parameter} to its "
            'name on Kaggle, "owner/dataset".'
        )
    if not is_mount and "/" not in name.strip("/"):
        raise ValueError(
            f"{parameter} '{name}' is not the name of a dataset. Set it to that of a "
            'published part, "owner/dataset".'
        )


def _name_kernels(name: str, parts: int) -> list[str]:
    """Return the titles of the kernels that write the parts."""
    if parts == 1:
        return [_make_title(name, " images to TFRecords")]
    endings = [f", part {number} of {parts}" for number in range(1, parts + 1)]
    return [_make_title(name, f" images to TFRecords{ending}") for ending in endings]


def _make_title(name: str, ending: str) -> str:
    """Return a title that Kaggle makes a slug of as `to_slug` does.

    >>> _make_title("Čassava leaves", ": duplicates, leaks, folds")
    'Cassava leaves: duplicates, leaks, folds'
    """
    words = to_slug(name)[: _MAX_TITLE - len(ending)].strip("-").replace("-", " ")
    title = f"{words}{ending}".strip(" :")
    return title[0].upper() + title[1:]


def _make_training_kernel(
    name: str, dirs: Sequence[str], values: Values, accelerator: str
) -> Kernel:
    title = _make_title(name, f": training on {accelerator}")
    machine = "tpu" if accelerator.startswith("Tpu") else "gpu"
    metadata = {
        "machine_shape": accelerator,
        f"enable_{machine}": True,
        "keywords": [*_KEYWORDS, "image classification", machine],
    }
    return Kernel(title, TRAINING, {**values, "TFREC_DIRS": dirs}, metadata)


def _find_output(slug: str) -> str:
    """Return the folder where the output of another kernel of the user is mounted."""
    return f"{KAGGLE_INPUT}/notebooks/{OWNER_PLACEHOLDER}/{slug}"


def _make_whole_kernel(title: str, values: Values) -> Kernel:
    """Return the kernel that runs all steps from 01 to 05."""
    openings = {
        EXPLORE: [f'session.restore_previous_output("{to_slug(title)}", {_WORK})'],
        WRITE: [f"session.check_parts({_WORK}, 1)"],
    }
    return Kernel(title, DEFAULT_NOTEBOOKS, values, openings=openings)


def _make_kernels(name: str, titles: Sequence[str], values: Values) -> list[Kernel]:
    """Return one kernel for all steps, or one that plans and one for each part."""
    if len(titles) == 1:
        return [_make_whole_kernel(titles[0], values)]
    if not values.get("INPUT_DIR"):
        raise ValueError(
            "A kernel cannot read the bundled sample of another kernel. Set INPUT_DIR "
            "to the slug of a competition or dataset, or make one kernel (--parts 1)."
        )
    title = _make_title(name, ": duplicates, leaks, folds")
    planner = to_slug(title)
    family = f"kaggle-tfr kernel RECIPE --parts {len(titles)} --out DIR"
    # A new version of a kernel resumes what its previous version wrote.
    openings = {EXPLORE: [f'session.restore_previous_output("{planner}", {_WORK})']}
    kernels = [Kernel(title, PLANNING, values, openings=openings, family=family)]
    for part in range(1, len(titles) + 1):
        kernel = _make_part_kernel(part, titles, planner, values)
        kernels.append(replace(kernel, family=family))
    return kernels


def _make_part_kernel(
    part: int, titles: Sequence[str], planner: str, values: Values
) -> Kernel:
    """Return the kernel that writes one part of the plan of another kernel."""
    title = titles[part - 1]
    calls = [
        f'session.copy_plan("{planner}", WORK_DIR)',
        f'session.restore_previous_output("{to_slug(title)}", OUT_DIR)',
        f"PART = session.choose_part(WORK_DIR, {part}, {len(titles)})",
    ]
    # The plan is outside the output, so that a kernel leaves only its part.
    folders = {"WORK_DIR": f"{KAGGLE_TEMP}/work", "OUT_DIR": KAGGLE_WORKING}
    metadata = {"kernel_sources": [f"{OWNER_PLACEHOLDER}/{planner}"]}
    part_values = {**values, **folders, "PART": part}
    return Kernel(title, [WRITE], part_values, metadata, {WRITE: calls})


def _write_kernel(folder: Path, kernel: Kernel) -> None:
    """Write a kernel's metadata and notebook, and check them."""
    metadata = _complete_metadata(kernel)
    notebook = folder / metadata["code_file"]
    notebook.parent.mkdir(parents=True, exist_ok=True)
    notebook.write_text(format_notebook(kernel), encoding="utf-8")
    text = json.dumps(metadata, indent=2) + "\n"
    (folder / KERNEL_FILE).write_text(text, encoding="utf-8")
    check_metadata(str(folder), KERNEL_FILE)


def _complete_metadata(kernel: Kernel) -> dict[str, Any]:
    """Return the kernel's metadata with the usual values of all other keys."""
    return {
        "id": f"{OWNER_PLACEHOLDER}/{kernel.slug}",
        # It makes this very slug: Kaggle would otherwise choose another.
        "title": kernel.title,
        "code_file": "kernel.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_internet": True,
        "keywords": [*_KEYWORDS, "data cleaning"],
        **kernel.metadata,
    }


def _list_inputs(values: Values) -> list[str]:
    """Return the inputs to attach."""
    more = [settings["INPUT_DIR"] for settings in values.get("MORE_INPUTS", [])]
    # A plain name is a folder below INPUT_DIR.
    inputs = [values.get("INPUT_DIR", ""), *(name for name in more if "/" in name)]
    return [name for name in inputs if name]


def _attach(kernel: Kernel, inputs: Sequence[str]) -> None:
    """Add the inputs to a kernel's metadata; a bucket needs the internet instead."""
    for folder in inputs:
        if not is_remote(folder):
            key, name = _find_source(folder)
            names = kernel.metadata.get(key, [])
            kernel.metadata[key] = sorted({*names, name})
        elif not kernel.metadata["enable_internet"]:
            raise ValueError(
                f"'{folder}' cannot be read with the internet off. "
                "Leave out --no-internet, or attach a dataset."
            )


def _find_source(folder: str) -> tuple[str, str]:
    """Return the metadata key and the name of the Kaggle input that contains a folder.

    >>> _find_source("/kaggle/input/datasets/ada/tea/train")
    ('dataset_sources', 'ada/tea')
    """
    folder = folder.rstrip("/")
    input_type, names = _split_input(folder)
    key, n_names = _INPUT_TYPES[input_type]
    is_path = re.fullmatch(r"[\w-]+(/[\w.-]+)*", "/".join(names))
    if not is_path or len(names) < n_names:
        raise ValueError(
            f"'{folder}' is not on Kaggle. Set INPUT_DIR, TFREC_DIRS, COMPARE_WITH or "
            '--source to the name there, "competition" or "owner/dataset". INPUT_DIR '
            "may also be a folder of this machine, if it exists; `kaggle-tfr publish` "
            "uploads parts."
        )
    return key, "/".join(names[:n_names])


def _split_input(folder: str) -> tuple[str, list[str]]:
    """Return the type of the Kaggle input that contains a folder, and its names.

    >>> _split_input("/kaggle/input/datasets/ada/tea/train")
    ('datasets', ['ada', 'tea', 'train'])
    """
    path = folder.removeprefix(f"{KAGGLE_INPUT}/")
    names = path.split("/")
    if names[0] in _INPUT_TYPES:
        return names[0], names[1:]
    # The oldest mounts, directly below /kaggle/input, leave the owner out.
    has_owner = len(names) > 1 and path == folder
    return ("datasets" if has_owner else "competitions"), names
