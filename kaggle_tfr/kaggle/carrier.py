"""The cell of a kernel that brings the package: an attached wheel, or its own copy."""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kaggle_tfr.version import __version__

PACKAGE = Path(__file__).resolve().parent.parent
_SAMPLE = PACKAGE.with_name("kaggle_tfr_sample")  # in a checkout it is sample/
FOLDERS = {
    "kaggle_tfr": PACKAGE,
    "kaggle_tfr_sample": _SAMPLE if _SAMPLE.is_dir() else PACKAGE.with_name("sample"),
}

# The packages that a kernel needs, and their modules.
MODULES = {
    "tensorflow": "tensorflow",
    "opencv-python": "cv2",
    "pillow": "PIL",
    "imagehash": "imagehash",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "google-crc32c": "google_crc32c",
    "joblib": "joblib",
    "filelock": "filelock",
    "threadpoolctl": "threadpoolctl",
    "fastprogress": "fastprogress",
    "tqdm": "tqdm",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
    "markupsafe": "markupsafe",
    "pyyaml": "yaml",
}
# The package's modules and their templates.
SOURCE_TYPES = (".py", ".html", ".js", ".md")
# Prints the sha256 of the package's source, in any folder that contains the package.
CHECK = (
    'cat $(find kaggle_tfr *sample -name "*.py" -o -name "*.html" -o -name "*.js" '
    '-o -name "*.md" | LC_ALL=C sort) | sha256sum'
)

_TEXT = """\
## The package

The steps call the package `kaggle_tfr` {version}, and a push sends only this \
notebook. The folded cell below brings the package in one of two ways, the first if it \
can:

1. **A wheel from an attached dataset**, by `pip install`. Run \
`pip wheel --no-deps --wheel-dir wheels .` in a checkout, make a dataset of the folder \
`wheels`, and attach the dataset to this notebook.
2. **The copy in the cell.** It contains the {count} files of the package, \
{source_bytes:,.0f} kB of text, as a zip archive in base64 text. To check it, run \
`{check}` in the folder that the cell prints and in a checkout of that version: both \
print `{source_sha256}`."""

_CELL = '''\
# Brings the package kaggle_tfr {version}, and the requirements that this image lacks.
import base64, glob, hashlib, importlib.util, io, os, subprocess, sys, tempfile, time
import zipfile

# The session's end is counted from here.
os.environ.setdefault("KAGGLE_TFR_STARTED", str(time.time()))
modules = {modules}
wheels = glob.glob("/kaggle/input/*/*.whl")
wheels += glob.glob("/kaggle/input/datasets/*/*/*.whl")
own_wheels = [wheel for wheel in wheels if "/kaggle_tfr-{version}-" in wheel]


def is_missing(package):
    return importlib.util.find_spec(modules[package]) is None


def install(*arguments):
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


missing = list(filter(is_missing, modules))
if missing:
    # Wheels in an attached dataset come first: they need no internet.
    folders = {{os.path.dirname(wheel) for wheel in wheels if wheel not in own_wheels}}
    links = [f"--find-links={{folder}}" for folder in sorted(folders)]
    options = ["--no-index", *links] if links else ["--retries=0", "--timeout=15"]
    for name in missing:  # one by one, so that one failure does not stop the others
        done = install(*options, name)
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
if own_wheels:
    install("--no-index", "--no-deps", f"--target={{package_dir}}", own_wheels[0])
if not os.path.isdir(f"{{package_dir}}/kaggle_tfr"):
    zipfile.ZipFile(io.BytesIO(archive)).extractall(package_dir)
sys.path.insert(0, package_dir)
# Worker processes import the package too.
python_path = [package_dir, os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
from kaggle_tfr import session

session.prepare()  # before TensorFlow is imported
print(f"kaggle_tfr from {{package_dir}}")'''


def describe_package() -> str:
    """Return the text above the cell: where the package comes from, how to check it."""
    sources = _read_sources()
    source = b"".join(sources.values())
    return _TEXT.format(
        version=__version__,
        count=len(sources),
        source_bytes=len(source) / 1000,
        check=CHECK,
        source_sha256=hashlib.sha256(source).hexdigest(),
    )


def format_carrier(modules: Mapping[str, str] = MODULES) -> str:
    """Return the source of the cell that makes `import kaggle_tfr` work on Kaggle.

    modules: the packages to install where they are missing, with their modules.
    """
    archive = _zip_package()
    return _CELL.format(
        version=__version__,
        modules=json.dumps(modules, indent=4),
        text=base64.encodebytes(archive).decode().rstrip(),
        sha256=hashlib.sha256(archive).hexdigest(),
    )


def _zip_package() -> bytes:
    """Return the package's source as a zip archive; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in _read_sources().items():
            entry = zipfile.ZipInfo(name)  # dated 1980
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _read_sources() -> dict[str, bytes]:
    """Return the source of the package and of the sample, sorted by paths."""
    paths = {
        f"{package}/{path.relative_to(folder).as_posix()}": path
        for package, folder in FOLDERS.items()
        for path in folder.rglob("*.*")
        if path.suffix in SOURCE_TYPES
    }
    return {name: paths[name].read_bytes() for name in sorted(paths)}
