"""The first cell of a kernel: it carries the package, and names what the image lacks."""

import ast
import base64
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr.kaggle.metadata import KERNEL_FILE, MAX_NOTEBOOK_BYTES, OWNER, check_kernel, to_slug
from kaggle_tfr.notebook import SESSION_HOURS, hours_left
from kaggle_tfr.parameters import BY_NOTEBOOK, EVERYWHERE, PARAMETERS, check_parameters
from kaggle_tfr.paths import KAGGLE_INPUT, KAGGLE_WORKING, find_input, work_dir
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.storage import is_remote
from kaggle_tfr.write import parts

PACKAGE = Path(__file__).resolve().parent.parent


# What the package imports, and the name under which pip knows it.
PIP_NAMES = {
    "tensorflow": "tensorflow",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "imagehash": "imagehash",
    "numpy": "numpy",
    "scipy": "scipy",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
    "iterstrat": "iterative-stratification",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "joblib": "joblib",
    "fastprogress": "fastprogress",
    "matplotlib": "matplotlib",
    "yaml": "pyyaml",
}


_CARRIER = '''\
# This notebook carries its package, because a push sends the notebook and nothing else.
import base64
import glob
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

os.environ.setdefault("KAGGLE_TFR_STARTED", str(time.time()))  # the session's end counts from here
needed = {needed}
lacking = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
if lacking:
    # Wheels in an attached dataset are taken first: they need no internet.
    wheels = glob.glob("/kaggle/input/*/*.whl") + glob.glob("/kaggle/input/datasets/*/*/*.whl")
    places = sorted({{f"--find-links={{os.path.dirname(wheel)}}" for wheel in wheels}})
    how = ["--no-index", *places] if wheels else ["--retries=0", "--timeout=15"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *how, *lacking]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    importlib.invalidate_caches()
    lacking = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise ImportError(
            f"This image lacks {{', '.join(lacking)}}, and pip could not install that: "
            f"{{done.stderr.strip()[-300:]}}\\nTurn the internet on in the notebook's settings, or "
            f"attach a dataset of wheels, made by: pip download -d wheels {{' '.join(lacking)}}"
        )

archive = base64.b64decode(
    """
{text}
"""
)
sha256 = "{sha256}"
if hashlib.sha256(archive).hexdigest() != sha256:
    raise ValueError("The package in this cell is damaged. Make the notebook again.")
package = zipfile.ZipFile(io.BytesIO(archive))
spec = importlib.util.find_spec("kaggle_tfr")
here = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""
same = here and all(
    Path(here, name).is_file() and Path(here, name).read_bytes() == package.read(name)
    for name in package.namelist()
)
if not same:
    here = os.path.join(tempfile.gettempdir(), f"kaggle_tfr-{{sha256[:12]}}")
    package.extractall(here)
    sys.path.insert(0, here)
    # Worker processes look there as well.
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
print(f"kaggle_tfr from {{here}}")'''


def zip_package() -> bytes:
    """The package's modules as a zip archive; the same modules give the same names and contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compresslevel=9) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            entry = zipfile.ZipInfo(
                f"kaggle_tfr/{path.relative_to(PACKAGE).as_posix()}"
            )  # dated 1980: the same every time
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def carrier_cell(archive: bytes, needed: Mapping[str, str]) -> str:
    """The source of the cell that makes `import kaggle_tfr` work anywhere.

    It names what the image lacks before any work starts, and leaves an equal package alone.
    needed: pip's name by module.
    """
    text = "\n".join(textwrap.wrap(base64.b64encode(archive).decode(), 96))
    pairs = "\n".join(f'    "{module}": "{name}",' for module, name in needed.items())
    digest = hashlib.sha256(archive).hexdigest()
    return _CARRIER.format(needed=f"{{\n{pairs}\n}}", text=text, sha256=digest)


def find_requirements(sources: Iterable[str]) -> dict[str, str]:
    """The name pip knows, by module, for all that these cells and the modules below them import.

    >>> find_requirements(["from kaggle_tfr.recipe import check_parameters"])
    {'yaml': 'pyyaml'}
    """
    waiting, seen, modules = list(sources), set(), set()
    while waiting:
        for name in _imports(waiting.pop()):
            top, _, rest = name.partition(".")
            modules.add(top)
            own = PACKAGE / f"{rest.partition('.')[0]}.py"
            if top == "kaggle_tfr" and own not in seen and own.is_file():
                seen.add(own)
                waiting.append(own.read_text(encoding="utf-8"))
    return {module: name for module, name in PIP_NAMES.items() if module in modules}


def _imports(source: str) -> set[str]:
    """Full names of what a text imports, inside functions too; standard modules left out."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}


NOTEBOOKS = PACKAGE.parent / "notebooks"


def join_notebooks(
    names: Sequence[str],
    values: Mapping[str, Any],
    *,
    title: str,
    openings: Mapping[str, Sequence[str]] | None = None,
    replacements: Mapping[str, str] | None = None,
) -> dict:
    """A notebook with the cells of several, one parameters cell, and the package in its first cell.

    values: parameters to fill in, as papermill does it.
    openings: cells to run before a notebook's own, by notebook.
    replacements: text to put in place of another; each must occur.

    Raises:
        ValueError: the notebook is larger than Kaggle takes, or a text to replace is not there.
    """
    body, parameters, metadata = [], [], {}
    for name in names:
        step = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
        metadata = step["metadata"]
        cells = [dict(cell) | {"source": "".join(cell["source"])} for cell in step["cells"]]
        parameters += [cell["source"] for cell in cells if _is_parameters(cell)]
        body += [_code(source) for source in (openings or {}).get(name, [])]
        body += [cell for cell in cells if not _is_frame(cell)]
    _replace(body, replacements or {})
    sources = [cell["source"] for cell in body if cell["cell_type"] == "code"]
    joined = [
        _markdown(f"# {title}\n\nMade by `python -m kaggle_tfr kernel` out of {_list(names)}."),
        _code(carrier_cell(zip_package(), find_requirements(sources))),
        _markdown("## Parameters\n\nThe defaults, and below them what the recipe sets."),
        _code(_merge_parameters(parameters), ["parameters"]),
        *([_code(_injected(values), ["injected-parameters"])] if values else []),
        *body,
    ]
    notebook = {
        "cells": [cell | {"id": f"cell-{number:02d}"} for number, cell in enumerate(joined)],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    _check_size(notebook)
    return notebook


def to_text(notebook: Mapping) -> str:
    """The notebook as the text of its file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _is_parameters(cell: Mapping) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def _is_frame(cell: Mapping) -> bool:
    """Whether a cell is a single notebook's own frame: its parameters and what comes next."""
    headings = ("## Parameters", "## Next")
    is_heading = cell["cell_type"] == "markdown" and cell["source"].startswith(headings)
    return is_heading or _is_parameters(cell)


def _replace(cells: Iterable[dict], replacements: Mapping[str, str]) -> None:
    cells = list(cells)
    for old, new in replacements.items():
        found = [cell for cell in cells if old in cell["source"]]
        if not found:
            raise ValueError(f"No notebook holds the line '{old}', which a kernel has to replace.")
        for cell in found:
            cell["source"] = cell["source"].replace(old, new)


def _check_size(notebook: Mapping) -> None:
    size = len(to_text(notebook).encode())
    if size >= MAX_NOTEBOOK_BYTES:
        raise ValueError(
            f"The notebook has {size:,} bytes and Kaggle takes less than {MAX_NOTEBOOK_BYTES:,}. "
            "Put a large parameter, such as a label map, into an attached dataset."
        )


def _merge_parameters(sources: Iterable[str]) -> str:
    """Every parameter once, with its comment, in the order of the notebooks."""
    lines = {}
    for source in sources:
        for line in source.splitlines():
            lines.setdefault(line.split("=")[0].strip(), line)
    return "\n".join(lines.values())


def _injected(values: Mapping[str, Any]) -> str:
    from papermill.translators import PythonTranslator

    return PythonTranslator.codify(dict(values), "From the recipe").rstrip()


def _code(source: str, tags: Sequence[str] = ()) -> dict:
    metadata = {"tags": list(tags)} if tags else {}
    empty = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": metadata, "source": source, **empty}


def _markdown(source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


STEPS = tuple(BY_NOTEBOOK)


PLANNING, WRITING = STEPS[:3], STEPS[3]


SCRATCH = "/kaggle/temp/work"  # outside the output, so that each part's kernel keeps its part only


# Chosen by the kernels themselves.
_OURS = ("WORK_DIR", "OUT_DIR", "PART")


_SAMPLE = """\
from kaggle_tfr.explore.sample import write_sample

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
        slug = _kernel_slug(stem, "tfrecords")
        openings = _open_all(slug, values)
        return [_write_kernel(out, slug, STEPS, kept, openings, **settings)]
    plan_slug = _kernel_slug(stem, "tfrecords-plan")
    openings = {STEPS[0]: [_again(plan_slug, "WORK_DIR")]}
    folders = [_write_kernel(out, plan_slug, PLANNING, kept, openings, **settings)]
    for part in range(1, parts + 1):
        slug = _kernel_slug(stem, f"tfrecords-part-{part}")
        own = kept | {"WORK_DIR": SCRATCH, "OUT_DIR": "/kaggle/working", "PART": part}
        bring = f'from kaggle_tfr.session import copy_plan\n\nbring_plan("{plan_slug}", WORK_DIR)'
        openings = {WRITING: [bring, _again(slug, "OUT_DIR"), _check_parts_cell(parts)]}
        folders.append(
            _write_kernel(out, slug, [WRITING], own, openings, after=plan_slug, **settings)
        )
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


def _write_kernel(out, slug, steps, values, openings, *, owner, inputs, internet, after="") -> str:
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


def _kernel_slug(stem: str, tail: str) -> str:
    return f"{stem[: 49 - len(tail)].strip('-')}-{tail}".strip("-")


def _title(slug: str) -> str:
    """A title that makes this very slug: Kaggle would otherwise choose another."""
    return slug.replace("-", " ")


def _open_all(slug: str, values: Mapping) -> dict[str, list[str]]:
    """Code that goes before the steps of a kernel that does all of them."""
    sample = [] if values.get("INPUT_DIR") else [_SAMPLE]
    return {STEPS[0]: [_again(slug, "WORK_DIR"), *sample], WRITING: [_check_parts_cell(1)]}


def _again(slug: str, parameter: str) -> str:
    """Code that takes over what an earlier version of the kernel has left."""
    return (
        "from kaggle_tfr.mounts import work_dir\nfrom kaggle_tfr.session import restore_previous_output\n\n"
        f'restore_previous_output("{slug}", work_dir({parameter}))'
    )


def _check_parts_cell(n_parts: int) -> str:
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
    if is_remote(folder) and not internet:
        raise ValueError(f"INPUT_DIR '{folder}' cannot be read with the internet off.")
    named, inside = list(sources), folder.removeprefix(f"{KAGGLE_INPUT}/")
    if folder and not is_remote(folder):
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


# What papermill and nbconvert leave beside a kernel's own files.
_KAGGLES_OWN = ("__notebook__.ipynb", "__results__.html", "__output__.json", "custom.css")


def scratch_dir() -> str:
    """A folder whose contents do not become output: the sample, and the plan of another kernel."""
    return "/kaggle/temp" if os.path.isdir(KAGGLE_WORKING) else tempfile.gettempdir()


def copy_plan(kernel: str, work: str) -> None:
    """Copies what the planning kernel left, so that the writing steps find it in `work`.

    kernel: the slug of the planning kernel, attached as a source.

    Raises:
        FileNotFoundError: it is not attached, or has left no plan.
    """
    source = Path(find_input(kernel))
    if not (source / "plan.json").is_file():
        raise FileNotFoundError(
            f"'{source}' holds no plan.json. Has the kernel '{kernel}' run to its end?"
        )
    _copy_files([path for path in source.iterdir() if path.is_file()], source, Path(work))


def restore_previous_output(kernel: str, folder: str) -> int:
    """How many files of this kernel's earlier version were copied, so that it goes on from there.

    0 where the kernel has no earlier output attached, and for files that are there already.
    """
    try:
        source = Path(find_input(kernel))
    except FileNotFoundError:
        return 0
    return _copy_files([path for path in source.rglob("*") if path.is_file()], source, Path(folder))


def check_parts(work: str, n_parts: int) -> None:
    """None, when the plan has as many parts as there are kernels to write them.

    Raises:
        ValueError: it has others.
    """
    planned = read_plan(work).n_parts
    if planned != n_parts:
        raise ValueError(
            f"The plan has {planned} parts, and the kernels were made for {n_parts}. Make them "
            f"again: python -m kaggle_tfr kernel RECIPE --parts {planned}, or set PART_LIMIT_GB."
        )


def write_parts_in_session(
    work_dir: str, out_dir: str = "", part: int = 0, **settings
) -> pd.DataFrame:
    """What `parts.write_parts` gives, when the session is long enough for it.

    Otherwise the notebook ends here without an error, because Kaggle keeps the output of a run
    that has ended well: its next version takes that and goes on.

    Raises:
        ValueError, OSError: as `parts.write_parts`.
        SystemExit: the time is over; papermill takes code 0 for a good end.
    """
    left = hours_left()
    limit = 0 if left == float("inf") else max(left, 1e-9)
    try:
        return parts.write_parts(work_dir, out_dir, part, **settings, stop_after_hours=limit)
    except OSError as error:
        if "stop_after_hours" not in str(error):
            raise
        print(
            f"{error}\nThe session's {SESSION_HOURS} hours are nearly over, so the notebook ends "
            "here. Push the kernel again with its own output as a source "
            "(`python -m kaggle_tfr push` does): it goes on from the last finished shard."
        )
        raise SystemExit(0) from None


def _copy_files(paths: Sequence[Path], source: Path, folder: Path) -> int:
    copied = 0
    # The plan last: one that is there is whole.
    for path in sorted(paths, key=lambda path: (path.name == "plan.json", path)):
        target = folder / path.relative_to(source)
        if path.name in _KAGGLES_OWN or path.suffix == ".tmp" or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.tmp")
        shutil.copyfile(path, temporary)
        temporary.replace(target)
        copied += 1
    return copied
