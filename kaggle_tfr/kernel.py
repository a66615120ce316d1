"""Folders that `kaggle kernels push -p` takes: one kernel, or a planning one and one per part."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kaggle_tfr.bundle import join_notebooks, to_text
from kaggle_tfr.carrier import PACKAGE
from kaggle_tfr.kaggle_folders import KERNEL_FILE
from kaggle_tfr.kaggle_rules import OWNER, check_kernel, to_slug
from kaggle_tfr.mounts import KAGGLE_INPUT, is_address, work_dir
from kaggle_tfr.plan import read_plan
from kaggle_tfr.recipe import BY_NOTEBOOK, EVERYWHERE, PARAMETERS, check_parameters

STEPS = tuple(BY_NOTEBOOK)
PLANNING, WRITING = STEPS[:3], STEPS[3]
SCRATCH = "/kaggle/temp/work"  # outside the output, so that each part's kernel keeps its part only
# Chosen by the kernels themselves.
_OURS = ("WORK_DIR", "OUT_DIR", "PART")
_SAMPLE = """\
from kaggle_tfr.sample import write_sample
from kaggle_tfr.session import scratch_dir

INPUT_DIR = f"{scratch_dir()}/sample"
truth = write_sample(INPUT_DIR)"""
# The same function, but it ends before the session does.
_IN_TIME = {
    "from kaggle_tfr.writer import write_parts": "from kaggle_tfr.session import write_parts"
}


def write_kernels(
    values: Mapping[str, Any],
    out: str,
    *,
    parts: int = 0,
    owner: str = "",
    sources: Sequence[str] = (),
    internet: bool = True,
) -> list[str]:
    """The folders made below `out`, in the order in which to push them.

    values: a recipe's parameters.
    parts: 1 makes one kernel with all steps; more make one that plans and one per part that
        writes. 0 asks the plan in WORK_DIR, and is 1 where there is none.
    owner: the Kaggle user; without one `push` fills it in.
    sources: further inputs to attach, as "competition" or "owner/dataset".
    internet: without it, the first cell needs a dataset of wheels for what the image lacks.

    Raises:
        ValueError: a parameter is wrong, or the inputs are not on Kaggle.
    """
    check_parameters(values)
    parts = parts or _planned_parts(values)
    stem = to_slug(values.get("NAME", PARAMETERS["NAME"]))
    inputs = _find_sources(values, sources, parts, internet=internet)
    settings = {"owner": owner or OWNER, "inputs": inputs, "internet": internet}
    kept = {name: value for name, value in values.items() if name not in _OURS}
    if parts == 1:
        slug = _slug(stem, "tfrecords")
        openings = _open_all(slug, values)
        return [_write(out, slug, STEPS, kept, openings, **settings)]
    plan_slug = _slug(stem, "tfrecords-plan")
    openings = {STEPS[0]: [_again(plan_slug, "WORK_DIR")]}
    folders = [_write(out, plan_slug, PLANNING, kept, openings, **settings)]
    for part in range(1, parts + 1):
        slug = _slug(stem, f"tfrecords-part-{part}")
        own = kept | {"WORK_DIR": SCRATCH, "OUT_DIR": "/kaggle/working", "PART": part}
        bring = f'from kaggle_tfr.session import bring_plan\n\nbring_plan("{plan_slug}", WORK_DIR)'
        openings = {WRITING: [bring, _again(slug, "OUT_DIR"), _check(parts)]}
        folders.append(_write(out, slug, [WRITING], own, openings, after=plan_slug, **settings))
    return folders


def own_kernel() -> tuple[dict, dict]:
    """The notebook and the metadata of the checkout's own kernel: the sample, all steps."""
    slug = "kaggle-tfr-sample"
    openings = _open_all(slug, {})
    notebook = join_notebooks(
        STEPS, {}, title=_title(slug), openings=openings, replacements=_IN_TIME
    )
    return notebook, _describe(slug, "notebooks/kernel.ipynb", OWNER, {}, internet=True)


def write_own_kernel() -> None:
    """Makes kernel-metadata.json and notebooks/kernel.ipynb of the checkout anew."""
    notebook, description = own_kernel()
    (PACKAGE.parent / "notebooks/kernel.ipynb").write_text(to_text(notebook), encoding="utf-8")
    (PACKAGE.parent / KERNEL_FILE).write_text(_to_json(description), encoding="utf-8")
    check_kernel(str(PACKAGE.parent))


def _write(out, slug, steps, values, openings, *, owner, inputs, internet, after="") -> str:
    """The folder of one kernel, written and checked."""
    folder = Path(out) / slug
    folder.mkdir(parents=True, exist_ok=True)
    known = {name for step in steps for name in BY_NOTEBOOK[step]} | set(EVERYWHERE)
    values = {name: value for name, value in values.items() if name in known}
    replacements = _IN_TIME if WRITING in steps else {}
    notebook = join_notebooks(
        steps, values, title=_title(slug), openings=openings, replacements=replacements
    )
    description = _describe(slug, "kernel.ipynb", owner, inputs, internet=internet)
    description["kernel_sources"] = [f"{owner}/{after}"] if after else []
    (folder / "kernel.ipynb").write_text(to_text(notebook), encoding="utf-8")
    (folder / KERNEL_FILE).write_text(_to_json(description), encoding="utf-8")
    check_kernel(str(folder))
    return str(folder)


def _describe(slug: str, code_file: str, owner: str, inputs: Mapping, *, internet: bool) -> dict:
    return {
        "id": f"{owner}/{slug}",
        "title": _title(slug),
        "code_file": code_file,
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_gpu": False,
        "enable_tpu": False,
        "enable_internet": internet,
        "keywords": [],
        "dataset_sources": inputs.get("datasets", []),
        "competition_sources": inputs.get("competitions", []),
        "kernel_sources": [],
        "model_sources": [],
    }


def _to_json(description: Mapping) -> str:
    return json.dumps(description, indent=2) + "\n"


def _slug(stem: str, tail: str) -> str:
    return f"{stem[: 49 - len(tail)].strip('-')}-{tail}".strip("-")


def _title(slug: str) -> str:
    """A title that makes this very slug: Kaggle would otherwise choose another."""
    return slug.replace("-", " ")


def _open_all(slug: str, values: Mapping) -> dict[str, list[str]]:
    """Code that goes before the steps of a kernel that does all of them."""
    sample = [] if values.get("INPUT_DIR") else [_SAMPLE]
    return {STEPS[0]: [_again(slug, "WORK_DIR"), *sample], WRITING: [_check(1)]}


def _again(slug: str, parameter: str) -> str:
    """Code that takes over what an earlier version of the kernel has left."""
    return (
        "from kaggle_tfr.mounts import work_dir\nfrom kaggle_tfr.session import bring_earlier\n\n"
        f'bring_earlier("{slug}", work_dir({parameter}))'
    )


def _check(n_parts: int) -> str:
    return (
        "from kaggle_tfr.mounts import work_dir\nfrom kaggle_tfr.session import check_parts\n\n"
        f"check_parts(work_dir(WORK_DIR), {n_parts})"
    )


def _planned_parts(values: Mapping[str, Any]) -> int:
    try:
        plan = read_plan(work_dir(values.get("WORK_DIR", "")))
    except (OSError, ValueError):
        return 1
    return plan.n_parts if plan.name == values.get("NAME", PARAMETERS["NAME"]) else 1


def _find_sources(values: Mapping, sources: Sequence[str], parts: int, *, internet: bool) -> dict:
    """Competitions and datasets to attach, INPUT_DIR's among them."""
    folder = values.get("INPUT_DIR", "")
    if not folder and parts > 1:
        raise ValueError(
            "The bundled sample is made inside a kernel, so others could not read it. Set "
            "INPUT_DIR to the slug of a competition or a dataset, or make one kernel (--parts 1)."
        )
    if is_address(folder) and not internet:
        raise ValueError(f"INPUT_DIR '{folder}' cannot be read with the internet off.")
    named, inside = list(sources), folder.removeprefix(f"{KAGGLE_INPUT}/")
    if folder and not is_address(folder):
        if not re.fullmatch(r"[\w-]+(/[\w.-]+)*", inside):
            raise ValueError(
                f"INPUT_DIR '{folder}' is a folder of this machine. Give the slug under which it "
                'is on Kaggle, "competition" or "owner/dataset": -p INPUT_DIR SLUG.'
            )
        named = named or ["/".join(inside.split("/")[:2])]
    return {
        "competitions": sorted({name for name in named if "/" not in name}),
        "datasets": sorted({name for name in named if "/" in name}),
    }
