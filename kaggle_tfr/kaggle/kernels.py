"""Kernels: one notebook each, which carries the package; what their cells call on Kaggle."""

import ast
import base64
import hashlib
import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kaggle_tfr import mounts, parameters
from kaggle_tfr.kaggle.metadata import KERNEL_FILE, check_metadata
from kaggle_tfr.mounts import (
    KAGGLE_INPUT,
    OWNER_PLACEHOLDER,
    bundled,
    find_input,
    to_slug,
    work_dir,
)
from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.storage import is_remote, write_atomically

PACKAGE = Path(__file__).resolve().parent.parent
PLANNING = DEFAULT_NOTEBOOKS[:3]
WRITING = DEFAULT_NOTEBOOKS[3]
TRAINING = (DEFAULT_NOTEBOOKS[4], "06_train")

# Where Kaggle mounts each kind of input: metadata key, and the number of names in an input's id.
_MOUNTS = {
    "competitions": ("competition_sources", 1),
    "datasets": ("dataset_sources", 2),
}
_MOUNTS |= {"notebooks": ("kernel_sources", 2)}
Values = Mapping[str, Any]
# What the package imports, and the name under which pip knows it.
_SAME_NAMES = """tensorflow imagehash numpy scipy pandas pyarrow joblib fastprogress tqdm matplotlib
jinja2 markupsafe psutil"""
PIP_NAMES = {name: name for name in _SAME_NAMES.split()}
PIP_NAMES |= {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "faiss": "faiss-cpu",
}
PIP_NAMES |= {"google_crc32c": "google-crc32c", "sklearn": "scikit-learn"}
PIP_NAMES |= {"iterstrat": "iterative-stratification"}
# What functions import that one step alone calls; everything else is needed in every kernel.
ONE_STEP = {"faiss": "02_deduplicate", "sklearn": "03_plan", "iterstrat": "03_plan"}
# Used where they are installed: Kaggle's image lacks both, and they are slower or seldom needed.
OPTIONAL = ("faiss", "iterstrat")
# What is enough for reading and training; Kaggle's TPU image lacks some of the others.
FOR_TRAINING = (
    "tensorflow",
    "numpy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "PIL",
    "yaml",
    "markupsafe",
)
# What papermill and nbconvert leave beside a kernel's own files.
_KAGGLE_FILES = (
    "__notebook__.ipynb",
    "__results__.html",
    "__output__.json",
    "custom.css",
)
# What folds a cell, in JupyterLab and on Kaggle.
_HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
_CARRIER = '''\
# This notebook carries its package, because a push sends the notebook and nothing else.
import base64, glob, hashlib, importlib.util, io, os, subprocess, sys, tempfile, time, zipfile

os.environ.setdefault("KAGGLE_TFR_STARTED", str(time.time()))  # the session's end counts from here
needed = {needed}
lacking = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
if lacking:
    # Wheels in an attached dataset are taken first: they need no internet.
    wheels = glob.glob("/kaggle/input/*/*.whl") + glob.glob("/kaggle/input/datasets/*/*/*.whl")
    folders = sorted({{f"--find-links={{os.path.dirname(wheel)}}" for wheel in wheels}})
    options = ["--no-index", *folders] if wheels else ["--retries=0", "--timeout=15"]
    command, said = [sys.executable, "-m", "pip", "install", "--quiet", *options], ""
    for name in lacking:  # one by one: what cannot be had stops no other
        done = subprocess.run([*command, name], capture_output=True, text=True, check=False)
        said += done.stderr
    importlib.invalidate_caches()
    must = [module for module in needed if module not in {optional}]  # the others are done without
    lacking = [needed[module] for module in must if importlib.util.find_spec(module) is None]
    if lacking:
        raise ImportError(
            f"This image lacks {{', '.join(lacking)}}, and pip could not install that: "
            f"{{said.strip()[-300:]}}\\nTurn the internet on in the notebook's settings, or "
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
here = tempfile.mkdtemp(prefix="kaggle_tfr-")  # no other user can have put code there
zipfile.ZipFile(io.BytesIO(archive)).extractall(here)
sys.path.insert(0, here)
# Worker processes look there as well.
os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
from kaggle_tfr import session

session.prepare()  # before TensorFlow is imported
print(f"kaggle_tfr from {{here}}")'''


def zip_package() -> bytes:
    """The package's modules as a zip archive; the same modules give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compresslevel=9) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            entry = zipfile.ZipInfo(
                path.relative_to(PACKAGE.parent).as_posix()
            )  # dated 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def carrier_cell(archive: bytes, needed: Mapping[str, str]) -> str:
    """The source of the cell that makes `import kaggle_tfr` work. needed: pip's name by module."""
    text = base64.encodebytes(archive).decode().rstrip()
    digest = hashlib.sha256(archive).hexdigest()
    listed = json.dumps(needed, indent=4)
    return _CARRIER.format(needed=listed, optional=OPTIONAL, text=text, sha256=digest)


def write_kernels(
    values: Values,
    out: str,
    *,
    parts: int = 1,
    sources: Sequence[str] = (),
    internet: bool = True,
    accelerator: str = "",
) -> list[str]:
    """The folders made below `out`, in the order in which to push them, for `push` to name you in.

    values: a recipe's parameters. parts: 1 makes one kernel with all steps, more make one that
    plans and one a part. sources: "competition" or "owner/dataset", in
    place of INPUT_DIR's. internet: without it what the image lacks comes in wheels. accelerator:
    "TpuV5E8", …: one kernel trains there, on `sources`, else TFREC_DIRS, else what those that write
    leave. Raises: ValueError: wrong input.
    """
    parameters.check_parameters(values)
    name = values.get("NAME", parameters.DEFAULTS["NAME"])
    tails = [f"tfrecords-part-{part}" for part in range(1, parts + 1)]
    written = [to_slug(name, tail) for tail in (tails if parts > 1 else ["tfrecords"])]
    kept = {k: v for k, v in values.items() if k not in ("WORK_DIR", "OUT_DIR", "PART")}
    if accelerator:
        dirs = kept["TFREC_DIRS"] = list(sources) or values.get("TFREC_DIRS") or written
        made = {
            slug: f"{KAGGLE_INPUT}/notebooks/{OWNER_PLACEHOLDER}/{slug}"
            for slug in written
        }
        common = _attach(
            [("TFREC_DIRS", made.get(place, place)) for place in dirs], internet
        )
        kind = "enable_tpu" if accelerator.startswith("Tpu") else "enable_gpu"
        common |= {
            "machine_shape": accelerator,
            kind: True,
            "enable_internet": internet,
        }
        slug = to_slug(name, f"training-{accelerator.lower()}")
        return [_write_kernel(Path(out, slug), slug, TRAINING, kept, {}, common)]
    common = _find_sources(values, sources, len(written), internet) | {
        "enable_internet": internet
    }
    if len(written) > 1:
        return _write_parts(out, to_slug(name, "tfrecords-plan"), written, kept, common)
    slug = written[0]
    return [
        _write_kernel(
            Path(out, slug), slug, DEFAULT_NOTEBOOKS, kept, _open_all(slug), common
        )
    ]


def _write_parts(
    out: str, planner: str, written: Sequence[str], values: Values, common: Values
) -> list[str]:
    """The folders of the kernel that plans, and of those that write the parts from its output."""
    opening = {
        DEFAULT_NOTEBOOKS[0]: _call_session(
            f'restore_previous_output("{planner}", WORK_DIR)'
        )
    }
    folders = [
        _write_kernel(Path(out, planner), planner, PLANNING, values, opening, common)
    ]
    common = {
        **common,
        "kernel_sources": [*common["kernel_sources"], f"{OWNER_PLACEHOLDER}/{planner}"],
    }
    for part, slug in enumerate(written, 1):
        calls = (
            f'copy_plan("{planner}", WORK_DIR)',
            f'restore_previous_output("{slug}", OUT_DIR)',
        )
        opening = {
            WRITING: _call_session(*calls, f"check_parts(WORK_DIR, {len(written)})")
        }
        # With the plan outside the output a kernel leaves its part only.
        own = {
            **values,
            "WORK_DIR": f"{mounts.KAGGLE_TEMP}/work",
            "OUT_DIR": mounts.KAGGLE_WORKING,
        }
        own["PART"] = part
        folders.append(
            _write_kernel(Path(out, slug), slug, [WRITING], own, opening, common)
        )
    return folders


def _open_all(slug: str) -> dict[str, str]:
    """Code that goes before the steps of a kernel that does all of them."""
    restore = _call_session(f'restore_previous_output("{slug}", WORK_DIR)')
    return {
        DEFAULT_NOTEBOOKS[0]: restore,
        WRITING: _call_session("check_parts(WORK_DIR, 1)"),
    }


def _call_session(*calls: str) -> str:
    """The source of a cell that the kernels add to the notebooks', which makes these calls."""
    lines = [
        "from kaggle_tfr.kaggle import kernels\n",
        *(f"kernels.{call}" for call in calls),
    ]
    return "\n".join(lines)


def write_own_kernel(folder: str = str(PACKAGE.parent)) -> None:
    """Makes kernel-metadata.json and notebooks/kernel.ipynb of the checkout anew."""
    slug, place = "kaggle-tfr-sample", {"code_file": "notebooks/kernel.ipynb"}
    values = parameters.load_recipe(str(bundled("recipes") / "sample.yaml"))
    _write_kernel(Path(folder), slug, DEFAULT_NOTEBOOKS, values, _open_all(slug), place)


def _write_kernel(  # noqa: PLR0917
    folder: Path,
    slug: str,
    steps: Sequence[str],
    values: Values,
    openings: Values,
    common: Values,
) -> str:
    """The folder of a kernel, checked. openings: code before a step's, by step."""
    # A title that makes this very slug: Kaggle would otherwise choose another.
    title = slug.replace("-", " ")
    description: dict[str, Any] = {"id": f"{OWNER_PLACEHOLDER}/{slug}", "title": title}
    description |= {
        "code_file": "kernel.ipynb",
        "language": "python",
        "kernel_type": "notebook",
    }
    description |= {"is_private": True, "enable_gpu": False, "enable_tpu": False}
    lists = ("keywords", "dataset_sources", "competition_sources", "kernel_sources")
    description |= {
        "enable_internet": True,
        **{key: [] for key in (*lists, "model_sources")},
    }
    description |= common
    code = folder / description["code_file"]
    code.parent.mkdir(parents=True, exist_ok=True)
    code.write_text(_join_notebooks(title, steps, values, openings), encoding="utf-8")
    (folder / KERNEL_FILE).write_text(
        json.dumps(description, indent=2) + "\n", encoding="utf-8"
    )
    check_metadata(str(folder), KERNEL_FILE)
    return str(folder)


def _join_notebooks(
    title: str, steps: Sequence[str], values: Values, openings: Values
) -> str:
    """A notebook with the cells of several, one parameters cell, and the package in its first."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    from papermill.parameterize import parameterize_notebook

    body = []
    for step in steps:
        source = nbformat.read(bundled("notebooks") / f"{step}.ipynb", as_version=4)
        body += [new_code_cell(openings[step])] if step in openings else []
        cells = [
            c for c in source.cells if "parameters" not in c.metadata.get("tags", [])
        ]
        body += [
            c for c in cells if not c.source.startswith(("## Parameters", "## Next"))
        ]
    lines = dict.fromkeys(
        line for step in steps for line in parameters.format_cell(step).splitlines()
    )
    defaults = new_code_cell("\n".join(lines), metadata={"tags": ["parameters"]})
    frame = new_notebook(
        cells=[defaults], metadata={**source.metadata, "papermill": {}}
    )
    known = {
        parameter.name
        for step in steps
        for parameter in parameters.select_parameters(step)
    }
    if filled_in := {name: value for name, value in values.items() if name in known}:
        frame = parameterize_notebook(frame, filled_in, comment="From the recipe")
    made_of = ", ".join(f"`{step}`" for step in steps)
    needed = {
        m: name for m, name in PIP_NAMES.items() if ONE_STEP.get(m, steps[0]) in steps
    }
    if steps == TRAINING:
        needed = {module: PIP_NAMES[module] for module in FOR_TRAINING}
    cells = [
        new_markdown_cell(
            f"# {title}\n\nMade by `python -m kaggle_tfr kernel` out of {made_of}."
        ),
        new_code_cell(carrier_cell(zip_package(), needed), metadata=_HIDDEN),
        new_code_cell(_take_imports(body)),
        new_markdown_cell(
            "## Parameters\n\nThe defaults, and below them what the recipe sets."
        ),
        *frame.cells,
        *(cell for cell in body if cell.source),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"  # instead of random ones: the same every time
    notebook = new_notebook(cells=cells, metadata=source.metadata)
    nbformat.validate(notebook)
    # Whole sources in place of lists of lines: the archive's text stays smaller.
    return nbformat.writes(notebook, split_lines=False) + "\n"


def _take_imports(cells: Sequence[Any]) -> str:
    """The imports of all cells, each name once; the cells lose them, and a checkout's sys.path."""
    names = defaultdict[str, set[str]](set)
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        lines = cell.source.splitlines()
        for node in ast.parse(cell.source).body:
            head, word, listed = ast.unparse(node).rpartition("import ")
            if isinstance(node, ast.Import | ast.ImportFrom):
                names[head + word] |= set(listed.split(", ")) - {"sys"}
            elif not listed.startswith("sys.path"):
                continue
            lines[node.lineno - 1 : node.end_lineno] = [""] * (
                node.end_lineno - node.lineno + 1
            )
        cell.source = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return "\n".join(
        f"{head}{', '.join(sorted(names[head]))}"
        for head in sorted(names)
        if names[head]
    )


def _find_sources(
    values: Values, sources: Sequence[str], parts: int, internet: bool
) -> dict[str, Any]:
    """Names of the inputs to attach, INPUT_DIR's among them, by metadata key."""
    folder = values.get("INPUT_DIR", "")
    if not folder and parts > 1:
        mend = "Set INPUT_DIR to a competition's or dataset's slug, or make one kernel (--parts 1)."
        raise ValueError(
            f"One kernel cannot read the bundled sample of another. {mend}"
        )
    more = [
        one["INPUT_DIR"] for one in values.get("MORE_INPUTS", [])
    ]  # a bare name lies below it
    places = [("MORE_INPUTS", place) for place in more if "/" in place]
    found = _attach([("INPUT_DIR", folder), *places] if folder else places, internet)
    return (
        _attach([("--source", one) for one in sources], internet) if sources else found
    )


def _attach(places: Sequence[tuple[str, str]], internet: bool) -> dict[str, Any]:
    """The lists of a kernel's metadata that name its inputs. places: parameter and its folder."""
    found: dict[str, Any] = {key: [] for key, _ in _MOUNTS.values()}
    for parameter, folder in places:
        if not is_remote(folder):
            key, name = _find_source(folder, parameter)
            found[key] = sorted({*found[key], name})
        elif not internet:
            raise ValueError(
                f"{parameter} '{folder}' cannot be read with the internet off."
            )
    return found


def _find_source(folder: str, parameter: str) -> tuple[str, str]:
    """Metadata key and name of the Kaggle input that a folder lies in.

    >>> _find_source("/kaggle/input/datasets/ada/tea/train", "INPUT_DIR")
    ('dataset_sources', 'ada/tea')
    """
    folder = folder.rstrip("/")
    inside = folder.removeprefix(f"{KAGGLE_INPUT}/")
    kind, *names = inside.split("/")
    if kind not in _MOUNTS:
        names = [kind, *names]
        # The oldest mounts, right below /kaggle/input, leave the owner out.
        kind = "datasets" if len(names) > 1 and inside == folder else "competitions"
    key, count = _MOUNTS[kind]
    if not re.fullmatch(r"[\w-]+(/[\w.-]+)*", inside) or len(names) < count:
        option = parameter if parameter.startswith("--") else f"-p {parameter}"
        mend = (
            f'Give its slug on Kaggle, "competition" or "owner/dataset": {option} SLUG.'
        )
        raise ValueError(f"{parameter} '{folder}' is a folder of this machine. {mend}")
    return key, "/".join(names[:count])


def copy_plan(kernel: str, work: str) -> None:
    """Copies the planning kernel's output; FileNotFoundError: not attached, or without a plan."""
    source = find_input(kernel)
    if not Path(source, "plan.json").is_file():
        hint = f"Has the kernel '{kernel}' run to its end?"
        raise FileNotFoundError(f"'{source}' holds no plan.json. {hint}")
    _copy_files(source, work)


def restore_previous_output(kernel: str, folder: str) -> int:
    """Number of files copied from this kernel's earlier version; it continues from there."""
    try:
        source = find_input(kernel)
    except FileNotFoundError:
        return 0
    return _copy_files(source, folder)


def check_parts(work: str, n_parts: int) -> None:
    """Raises a ValueError unless the plan has as many parts as kernels were made to write them."""
    planned = read_plan(work_dir(work)).n_parts
    if planned != n_parts:
        fault = f"The plan has {planned} parts, and the kernels were made for {n_parts}. Make them"
        mend = f"again: python -m kaggle_tfr kernel RECIPE --parts {planned}, or set PART_LIMIT_GB."
        raise ValueError(f"{fault} {mend}")


def _copy_files(source: str, folder: str) -> int:
    copied = 0
    # plan.json comes last: where it exists, the rest of the plan does too.
    paths = sorted(
        Path(source).rglob("*"), key=lambda path: (path.name == "plan.json", path)
    )
    for path in paths:
        target = Path(work_dir(folder), path.relative_to(source))
        left_over = path.suffix in (".tmp", ".lock")  # of a session that was killed
        skipped = path.name in _KAGGLE_FILES or left_over or target.exists()
        if path.is_file() and not skipped:
            write_atomically(target, path.read_bytes())
            copied += 1
    return copied
