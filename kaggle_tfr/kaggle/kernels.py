"""Kernels: notebooks that carry this package and run the steps on Kaggle."""

import base64
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from papermill.translators import translate_parameters

from kaggle_tfr.kaggle.metadata import KERNEL_FILE, check_metadata
from kaggle_tfr.mounts import (
    KAGGLE_INPUT,
    KAGGLE_TEMP,
    KAGGLE_WORKING,
    OWNER_PLACEHOLDER,
    bundled,
    to_slug,
)
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    check_parameters,
    format_cell,
    load_recipe,
    select_parameters,
)
from kaggle_tfr.storage import is_remote

Values = Mapping[str, Any]

PACKAGE = Path(__file__).resolve().parent.parent
PLANNING = DEFAULT_NOTEBOOKS[:3]
EXPLORE = DEFAULT_NOTEBOOKS[0]
WRITE = DEFAULT_NOTEBOOKS[3]
TRAINING = (DEFAULT_NOTEBOOKS[4], "06_train")

# The metadata key of each type of input, and the number of names in an input's id.
_INPUT_TYPES = {
    "competitions": ("competition_sources", 1),
    "datasets": ("dataset_sources", 2),
    "notebooks": ("kernel_sources", 2),
}

# The packages that a kernel needs, and their modules.
MODULES = {
    "tensorflow": "tensorflow",
    "opencv-python": "cv2",
    "pillow": "PIL",
    "imagehash": "imagehash",
    "numpy": "numpy",
    "scipy": "scipy",
    "faiss-cpu": "faiss",
    "scikit-learn": "sklearn",
    "iterative-stratification": "iterstrat",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "google-crc32c": "google_crc32c",
    "joblib": "joblib",
    "threadpoolctl": "threadpoolctl",
    "fastprogress": "fastprogress",
    "tqdm": "tqdm",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "psutil": "psutil",
    "pyyaml": "yaml",
}

# Parameters that each kernel has its own values of.
_SESSION_PARAMETERS = ("WORK_DIR", "OUT_DIR", "PART")
_WORK = "work_dir(WORK_DIR, NAME)"  # where a session finds its work folder

# Folds a cell, in JupyterLab and on Kaggle.
_KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
_HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
_CARRIER = '''\
# This notebook carries its package, because a push sends only the notebook.
import base64, glob, hashlib, importlib.util, io, os, subprocess, sys, tempfile, time
import zipfile

# The session's end is counted from here.
os.environ.setdefault("KAGGLE_TFR_STARTED", str(time.time()))
modules = {modules}


def is_missing(package):
    return importlib.util.find_spec(modules[package]) is None


missing = list(filter(is_missing, modules))
if missing:
    # Wheels in an attached dataset come first: they need no internet.
    wheels = glob.glob("/kaggle/input/*/*.whl")
    wheels += glob.glob("/kaggle/input/datasets/*/*/*.whl")
    folders = sorted({{f"--find-links={{os.path.dirname(wheel)}}" for wheel in wheels}})
    options = ["--no-index", *folders] if wheels else ["--retries=0", "--timeout=15"]
    for name in missing:  # one by one, so that one failure does not stop the others
        command = [sys.executable, "-m", "pip", "install", "--quiet", *options, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    importlib.invalidate_caches()
    missing = list(filter(is_missing, missing))
if missing:
    print(
        f"Warning: this image lacks {{', '.join(missing)}}, and pip could not install "
        f"them: {{done.stderr.strip()[-300:]}}\\nA step that needs one of them stops "
        "with an ImportError. Then turn the internet on in the notebook's settings, or "
        "attach a dataset of wheels, made by: pip download -d wheels "
        f"{{' '.join(missing)}}"
    )

archive = base64.b64decode(
    """
{text}
"""
)
sha256 = "{sha256}"
if hashlib.sha256(archive).hexdigest() != sha256:
    raise ValueError("The package in this cell is damaged. Make the notebook again.")
package_dir = tempfile.mkdtemp(prefix="kaggle_tfr-")  # no other user can write there
zipfile.ZipFile(io.BytesIO(archive)).extractall(package_dir)
sys.path.insert(0, package_dir)
# Worker processes import the package too.
python_path = [package_dir, os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
from kaggle_tfr import session

session.prepare()  # before TensorFlow is imported
print(f"kaggle_tfr from {{package_dir}}")'''


@dataclass(frozen=True)
class Kernel:
    """A kernel to write.

    steps: its notebooks. values: the recipe's parameters.
    metadata: keys of kernel-metadata.json that replace the usual values.
    openings: calls of kaggle.session before a step, by step.
    """

    slug: str
    steps: Sequence[str]
    values: Values
    metadata: dict[str, Any] = field(default_factory=dict)
    openings: Mapping[str, Sequence[str]] = field(default_factory=dict)


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
    Raises: ValueError: an input that Kaggle could not mount, or metadata that it would
    reject.
    """
    check_parameters(values)
    values = {
        key: value for key, value in values.items() if key not in _SESSION_PARAMETERS
    }
    name = values.get("NAME", DEFAULTS["NAME"])
    slugs = _name_kernels(name, parts)

    if accelerator:
        dirs = list(sources) or values.get("TFREC_DIRS") or slugs
        kernels = [_make_training_kernel(name, dirs, values, accelerator)]
        inputs = [_find_output(path) if path in slugs else path for path in dirs]
    else:
        kernels = _make_kernels(to_slug(name, "tfrecords-plan"), slugs, values)
        inputs = list(sources) or _list_inputs(values)

    folders = []
    for kernel in kernels:
        folder = Path(out, kernel.slug)
        kernel.metadata["enable_internet"] = internet
        _attach(kernel, inputs)
        _write_kernel(folder, kernel)
        folders.append(str(folder))
    return folders


def write_own_kernel(folder: str = str(PACKAGE.parent)) -> None:
    """Write kernel-metadata.json and notebooks/kernel.ipynb of the checkout."""
    values = load_recipe(str(bundled("recipes") / "sample.yaml"))
    kernel = _make_whole_kernel("kaggle-tfr-sample", values)
    kernel.metadata["code_file"] = "notebooks/kernel.ipynb"
    _write_kernel(Path(folder), kernel)


def _name_kernels(name: str, parts: int) -> list[str]:
    """Return the slugs of the kernels that write the parts."""
    if parts == 1:
        return [to_slug(name, "tfrecords")]
    numbers = range(1, parts + 1)
    return [to_slug(name, f"tfrecords-part-{number}") for number in numbers]


def _make_training_kernel(
    name: str, dirs: Sequence[str], values: Values, accelerator: str
) -> Kernel:
    slug = to_slug(name, f"training-{accelerator.lower()}")
    key = "enable_tpu" if accelerator.startswith("Tpu") else "enable_gpu"
    metadata = {"machine_shape": accelerator, key: True}
    return Kernel(slug, TRAINING, {**values, "TFREC_DIRS": dirs}, metadata)


def _find_output(slug: str) -> str:
    """Return the folder where the output of another kernel of the user is mounted."""
    return f"{KAGGLE_INPUT}/notebooks/{OWNER_PLACEHOLDER}/{slug}"


def _make_whole_kernel(slug: str, values: Values) -> Kernel:
    """Return the kernel that runs all steps from 01 to 05."""
    openings = {
        EXPLORE: [f'restore_previous_output("{slug}", {_WORK})'],
        WRITE: [f"check_parts({_WORK}, 1)"],
    }
    return Kernel(slug, DEFAULT_NOTEBOOKS, values, openings=openings)


def _make_kernels(planner: str, slugs: Sequence[str], values: Values) -> list[Kernel]:
    """Return one kernel for all steps, or one that plans and one for each part."""
    if len(slugs) == 1:
        return [_make_whole_kernel(slugs[0], values)]
    if not values.get("INPUT_DIR"):
        raise ValueError(
            "A kernel cannot read the bundled sample of another kernel. Set INPUT_DIR "
            "to the slug of a competition or dataset, or make one kernel (--parts 1)."
        )
    # A new version of a kernel resumes what its previous version wrote.
    openings = {EXPLORE: [f'restore_previous_output("{planner}", {_WORK})']}
    kernels = [Kernel(planner, PLANNING, values, openings=openings)]
    for part in range(1, len(slugs) + 1):
        kernels.append(_make_part_kernel(part, slugs, planner, values))
    return kernels


def _make_part_kernel(
    part: int, slugs: Sequence[str], planner: str, values: Values
) -> Kernel:
    """Return the kernel that writes one part of the plan of another kernel."""
    slug = slugs[part - 1]
    calls = [
        f'copy_plan("{planner}", WORK_DIR)',
        f'restore_previous_output("{slug}", OUT_DIR)',
        f"check_parts(WORK_DIR, {len(slugs)})",
    ]
    # The plan is outside the output, so that a kernel leaves only its part.
    folders = {"WORK_DIR": f"{KAGGLE_TEMP}/work", "OUT_DIR": KAGGLE_WORKING}
    metadata = {"kernel_sources": [f"{OWNER_PLACEHOLDER}/{planner}"]}
    part_values = {**values, **folders, "PART": part}
    return Kernel(slug, [WRITE], part_values, metadata, {WRITE: calls})


def _write_kernel(folder: Path, kernel: Kernel) -> None:
    """Write a kernel's metadata and notebook, and check them."""
    metadata = _complete_metadata(kernel)
    notebook = folder / metadata["code_file"]
    notebook.parent.mkdir(parents=True, exist_ok=True)
    notebook.write_text(_format_notebook(metadata["title"], kernel), encoding="utf-8")
    text = json.dumps(metadata, indent=2) + "\n"
    (folder / KERNEL_FILE).write_text(text, encoding="utf-8")
    check_metadata(str(folder), KERNEL_FILE)


def _complete_metadata(kernel: Kernel) -> dict[str, Any]:
    """Return the kernel's metadata with the usual values of all other keys."""
    return {
        "id": f"{OWNER_PLACEHOLDER}/{kernel.slug}",
        # A title that makes this very slug: Kaggle would otherwise choose another.
        "title": kernel.slug.replace("-", " "),
        "code_file": "kernel.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_internet": True,
        **kernel.metadata,
    }


def _format_notebook(title: str, kernel: Kernel) -> str:
    """Return a notebook that carries the package and has the cells of all steps."""
    cells = _make_first_cells(title, kernel.steps)
    cells.append(_make_recipe_cell(kernel))
    for step in kernel.steps:
        if calls := kernel.openings.get(step):
            cells.append(_make_opening_cell(calls))
        cells += _read_cells(step)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"  # equal inputs give equal notebooks
    notebook = new_notebook(cells=cells, metadata={"kernelspec": _KERNELSPEC})
    # Whole sources instead of lists of lines: the archive's text stays smaller.
    return nbformat.writes(notebook, split_lines=False) + "\n"


def _make_first_cells(title: str, steps: Sequence[str]) -> list[Any]:
    """Return the cells of the title, the package, and the defaults of the steps."""
    names = ", ".join(f"`{step}`" for step in steps)
    lines = [line for step in steps for line in format_cell(step).splitlines()]
    # A parameter of several notebooks is listed once.
    defaults = "\n".join(dict.fromkeys(lines))
    return [
        new_markdown_cell(f"# {title}\n\nMade by `kaggle-tfr kernel` from {names}."),
        new_code_cell(format_carrier(), metadata=_HIDDEN),
        new_markdown_cell(
            "## Parameters\n\nThe defaults, and below them the values of the recipe."
        ),
        new_code_cell(defaults, metadata={"tags": ["parameters"]}),
    ]


def _make_recipe_cell(kernel: Kernel) -> Any:
    """Return the cell of the recipe's values, as papermill adds it."""
    known = {p.name for step in kernel.steps for p in select_parameters(step)}
    values = {name: value for name, value in kernel.values.items() if name in known}
    source = translate_parameters("python3", "python", values, "From the recipe")
    return new_code_cell(source, metadata={"tags": ["injected-parameters"]})


def _make_opening_cell(calls: Sequence[str]) -> Any:
    """Return the cell that prepares the session for a step."""
    lines = [f"session.{call}" for call in calls]
    imports = [
        "from kaggle_tfr.kaggle import session",
        "from kaggle_tfr.mounts import work_dir\n",
    ]
    return new_code_cell("\n".join(imports + lines))


def _read_cells(step: str) -> list[Any]:
    """Return the cells of a notebook, without its parameters and links."""
    notebook = nbformat.read(bundled("notebooks") / f"{step}.ipynb", as_version=4)
    cells = []
    for cell in notebook.cells:
        is_parameters = "parameters" in cell.metadata.get("tags", [])
        is_left_out = cell.source.startswith(("## Parameters", "## Next"))
        if not is_parameters and not is_left_out:
            cells.append(cell)
    return cells


def format_carrier(modules: Mapping[str, str] = MODULES) -> str:
    """Return the source of the cell that makes `import kaggle_tfr` work on Kaggle.

    modules: the packages to install where they are missing, with their modules.
    """
    archive = _zip_package()
    return _CARRIER.format(
        modules=json.dumps(modules, indent=4),
        text=base64.encodebytes(archive).decode().rstrip(),
        sha256=hashlib.sha256(archive).hexdigest(),
    )


def _zip_package() -> bytes:
    """Return the package's modules as a zip archive; equal modules give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            name = path.relative_to(PACKAGE.parent).as_posix()
            entry = zipfile.ZipInfo(name)  # dated 1980
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


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
            f"'{folder}' is a folder of this machine. Set INPUT_DIR, TFREC_DIRS or "
            '--source to the slug on Kaggle, "competition" or "owner/dataset".'
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
