"""The cell of a kernel that contains the package."""

import base64
import io
import lzma
import tarfile
from pathlib import Path

from kaggle_tfr.version import __version__

PACKAGE = Path(__file__).resolve().parent.parent
_SAMPLE = PACKAGE.with_name("kaggle_tfr_sample")  # in a checkout it is sample/
FOLDERS = {
    "kaggle_tfr": PACKAGE,
    "kaggle_tfr_sample": _SAMPLE if _SAMPLE.is_dir() else PACKAGE.with_name("sample"),
}
# The package's modules and their templates.
SOURCE_TYPES = (".py", ".html", ".js", ".md")

_CELL = '''\
# The package kaggle_tfr {version}: its files as tar.xz in base64 text.
import base64, io, os, sys, tarfile, tempfile, time

# The session's end is counted from here.
os.environ.setdefault("KAGGLE_TFR_STARTED", str(time.time()))
archive = base64.b64decode(
    """
{text}
"""
)
package_dir = tempfile.mkdtemp(prefix="kaggle_tfr-")  # no other user can write there
with tarfile.open(fileobj=io.BytesIO(archive)) as files:
    files.extractall(package_dir, filter="data")
sys.path.insert(0, package_dir)
# Worker processes import the package too.
python_path = [package_dir, os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
from kaggle_tfr import session

session.prepare()  # before TensorFlow is imported
print(f"kaggle_tfr from {{package_dir}}")'''


def format_carrier() -> str:
    """Return the source of the cell that makes `import kaggle_tfr` work on Kaggle.

    It contains the files of the package as text, and unpacks them.
    """
    return _CELL.format(
        version=__version__, text=base64.encodebytes(_pack()).decode().rstrip()
    )


def _pack() -> bytes:
    """Return the package and its sample as a tar.xz; equal files give equal bytes.

    Only modules and templates are in it, in one folder for each of the two.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for package, folder in FOLDERS.items():
            for path in sorted(folder.rglob("*.*")):
                if path.suffix in SOURCE_TYPES:
                    name = f"{package}/{path.relative_to(folder).as_posix()}"
                    source = path.read_bytes()
                    # Dated 1970, without an owner: the bytes depend on files only.
                    entry = tarfile.TarInfo(name)
                    entry.size = len(source)
                    archive.addfile(entry, io.BytesIO(source))
    return lzma.compress(buffer.getvalue())
