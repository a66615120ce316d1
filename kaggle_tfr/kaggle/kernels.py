"""Kernels: notebooks that carry this package and run the steps on Kaggle."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kaggle_tfr.find import OWNER_PLACEHOLDER, SLUG_NAMES, to_slug
from kaggle_tfr.kaggle.cells import format_notebook
from kaggle_tfr.kaggle.metadata import KERNEL_FILE
from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS, DEFAULTS, Values, check_parameters
from kaggle_tfr.storage import is_remote, write_atomically

# Where a kernel writes, in place of the values of a recipe.
_FOLDERS = {"WORK_DIR": "/kaggle/working", "OUT_DIR": "", "PART": 0}
# The metadata key of each type of input.
_SOURCES = {
    "competitions": "competition_sources",
    "datasets": "dataset_sources",
    "models": "model_sources",
    "notebooks": "kernel_sources",
}


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

    A folder contains kernel.ipynb and kernel-metadata.json.
    values: a recipe's parameters.
    parts: 1 makes one kernel, for 01 to 05; more make one that plans, by 01 to 03, and
        one that writes for each part.
    sources: inputs to attach in place of INPUT_DIR, "competition" or "owner/dataset".
    internet: whether the kernels can use the internet.
    accelerator: for example "TpuV5E8": makes only a kernel that trains there, on
        `sources`, else TFREC_DIRS, else the parts that the other kernels write, with
        the input of WEIGHTS.
    Raises: ValueError: an input is not on Kaggle, or a parameter is wrong.
    """
    check_parameters(values)
    # _FOLDERS are WORK_DIR, OUT_DIR and PART of a kernel: a recipe cannot change them.
    values = {"NAME": DEFAULTS["NAME"], **values, **_FOLDERS}
    write = partial(_write_kernel, out, enable_internet=internet)
    tails = [f"images-to-tfrecords-part-{n}-of-{parts}" for n in range(1, parts + 1)]
    if parts == 1:
        tails = ["images-to-tfrecords"]
    slugs = [to_slug(values["NAME"], tail) for tail in tails]  # of those that write
    if accelerator:
        return [_write_training_kernel(write, values, accelerator, sources, slugs)]
    inputs = _list_inputs(values, sources)
    if parts == 1:
        return [write(slugs[0], DEFAULT_NOTEBOOKS, values, inputs)]

    return _write_part_kernels(write, values, inputs, slugs)


def _write_part_kernels(
    write: Callable[..., str], values: Values, inputs: list[str], slugs: Sequence[str]
) -> list[str]:
    """Write a kernel that plans and one for each part; return their folders.

    The output of the first one, which runs 01 to 03, is an input of the others.
    write: `_write_kernel` with its folder and options. slugs: of the kernels that write
    parts, one each.
    """
    planner = to_slug(values["NAME"], "duplicates-leaks-folds")
    folders = [write(planner, DEFAULT_NOTEBOOKS[:3], values, inputs)]
    inputs = [*inputs, f"notebooks/{OWNER_PLACEHOLDER}/{planner}"]
    # The plan is outside the output, so that a kernel leaves only its part.
    values = {
        **values,
        "WORK_DIR": "/kaggle/temp/work",
        "OUT_DIR": "/kaggle/working",
    }
    for part, slug in enumerate(slugs, 1):
        # Code of the kernel: it copies the plan, and finds the number of its part.
        opening = (
            f'session.copy_output("{planner}", WORK_DIR)\n'
            f"PART = session.choose_part(WORK_DIR, {part}, {len(slugs)})"
        )
        folders.append(write(slug, ["04_write"], values, inputs, opening=opening))
    return folders


def _write_training_kernel(
    write: Callable[..., str],
    values: Values,
    accelerator: str,
    sources: Sequence[str],
    slugs: Sequence[str],
) -> str:
    """Write the kernel that trains, by 05 and 06; return its folder.

    write: `_write_kernel` with its folder and options. accelerator: Kaggle's name of
    the machine. sources: parts to read, in place of TFREC_DIRS. slugs: of the kernels
    that write parts; it reads their output if there are no other parts. The input of
    WEIGHTS is attached as well.
    """
    processor = "tpu" if accelerator.startswith("Tpu") else "gpu"
    dirs = list(sources) or values.get("TFREC_DIRS")
    inputs = dirs or [f"notebooks/{OWNER_PLACEHOLDER}/{slug}" for slug in slugs]
    # Kaggle replaces an unknown machine by another one without a warning. DEVICE makes
    # 06 stop there. In TFREC_DIRS a slug is enough to find an attached output.
    values = {"DEVICE": processor, **values, "TFREC_DIRS": dirs or slugs}
    return write(
        to_slug(values["NAME"], f"training-on-{accelerator.lower()}"),
        ["05_read_and_visualize", "06_train"],
        values,
        [*inputs, values.get("WEIGHTS", "")],
        machine_shape=accelerator,
        **{f"enable_{processor}": True},
    )


def _list_inputs(values: Values, sources: Sequence[str]) -> list[str]:
    """Return the inputs that the steps read: slugs, or paths and addresses of a recipe.

    They are INPUT_DIR, MORE_INPUTS, OVERRIDES, COMPARE_WITH and FOLDS_FROM, "" where
    one is not set.
    sources: in place of INPUT_DIR and MORE_INPUTS, if there are any.
    """
    input_dir = values.get("INPUT_DIR")
    if not input_dir:  # the bundled sample, of which all other inputs are parts
        return list(sources)
    # A plain name is a folder below INPUT_DIR, which is attached as a whole.
    further = [
        settings["INPUT_DIR"]
        for settings in values.get("MORE_INPUTS", [])
        if "/" in settings["INPUT_DIR"]
    ]
    inputs = list(sources) or [input_dir, *further]
    for parameter in ("OVERRIDES", "COMPARE_WITH", "FOLDS_FROM"):
        names = values.get(parameter, [])
        inputs += [names] if isinstance(names, str) else names
    return inputs


def _write_kernel(
    out: str,
    slug: str,
    steps: Sequence[str],
    values: Values,
    inputs: Sequence[str],
    *,
    opening: str = "",
    **metadata: Any,
) -> str:
    """Write a kernel's metadata and notebook; return its folder, out/slug.

    steps: names of notebooks. values: parameters. inputs: names of inputs, such as
    those of `_list_inputs`; those on Kaggle become sources in the metadata. opening:
    code before the first step.
    metadata: more entries of kernel-metadata.json.
    Raises: ValueError: an input is not on Kaggle.
    """
    metadata |= {
        # `push` puts the user's name in place of the placeholder.
        "id": f"{OWNER_PLACEHOLDER}/{slug}",
        # Kaggle makes a slug from the title: from this one, the same as in the id.
        "title": slug.replace("-", " ").capitalize(),
        "code_file": "kernel.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
    }
    for name in inputs:
        # Keras downloads "imagenet", and a bucket needs the internet instead.
        if name not in ("", "imagenet") and not is_remote(name):
            key, source = _find_source(name)
            metadata[key] = sorted({*metadata.get(key, []), source})

    folder = f"{out}/{slug}"
    write_atomically(f"{folder}/{KERNEL_FILE}", json.dumps(metadata, indent=2) + "\n")
    write_atomically(
        f"{folder}/kernel.ipynb", format_notebook(metadata, steps, values, opening)
    )
    return folder


def _find_source(name: str) -> tuple[str, str]:
    """Return the metadata key and the name of the Kaggle input that contains a folder.

    >>> _find_source("/kaggle/input/datasets/ada/tea/train")
    ('dataset_sources', 'ada/tea')

    The name can begin with its type: "competitions", "datasets", "models" or
    "notebooks". Without it, "a" is a competition, and "a/b" a dataset. Of a model, the
    version in the path is named, else the first one.
    Raises: ValueError: it is not the name of a Kaggle input.
    """
    path = name.removeprefix("/kaggle/input/").rstrip("/")
    if not re.fullmatch(r"[\w-]+(/[\w.-]+)*", path):
        raise ValueError(
            f"'{name}' is not the name of an input on Kaggle. Upload it (a part by "
            "`kaggle-tfr publish`, another folder by `kaggle datasets create -r tar`), "
            'and set the parameter to its name there, "competition" or "owner/dataset".'
        )
    words = path.split("/")
    input_type = "datasets" if words[1:] else "competitions"
    # The types, each with its key in the metadata.
    if words[0] in _SOURCES:
        input_type = words.pop(0)
    names = words[: SLUG_NAMES.get(input_type, 2)]  # of "owner/dataset"
    if input_type == "models":  # Kaggle attaches one of their versions
        names.append(next(filter(str.isdigit, words[4:]), "1"))
    return _SOURCES[input_type], "/".join(names)
