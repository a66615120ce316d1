"""The first cell of a kernel: it carries the package, and names what the image lacks."""

import ast
import base64
import hashlib
import io
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
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
        for path in sorted(PACKAGE.glob("*.py")):
            entry = zipfile.ZipInfo(f"kaggle_tfr/{path.name}")  # dated 1980: the same every time
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
