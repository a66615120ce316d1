"""Folders of inputs and of output, on Kaggle and elsewhere; slugs."""

import glob
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from kaggle_tfr import downloads
from kaggle_tfr.storage import AnyPath, exists, explain_os_errors, is_remote

KAGGLE_INPUT = "/kaggle/input"
KAGGLE_WORKING = "/kaggle/working"  # Kaggle keeps its files as output
KAGGLE_TEMP = "/kaggle/temp"  # lost at the end of the session
WORK = "work"  # elsewhere, the folder of the work folders of all recipes
# A folder with one of these files is a WORK_DIR, a part or an audit.
PRODUCTS = (
    "plan.json",
    "plan.parquet",
    "images.parquet",
    "hashes.parquet",
    "audit.json",
)

EXECUTED_LINK = re.compile(r" · \[executed\]\([^)]*\)")  # in a notebook's header

# Since 2026 Kaggle also mounts inputs by type and owner: competitions/<slug>,
# datasets/<owner>/<slug>.
MOUNT_FOLDERS = (
    "",
    "competitions/",
    "datasets/",
    "datasets/*/",
    "models/",
    "notebooks/*/",
)

# `push` searches a kernel's log for these words.
MISSING_INPUT = "is neither a folder here nor a Kaggle input that can be read"
ADVICE = (
    'Give a folder, a gs:// address, or a slug: "competition" or "owner/dataset", '
    'or "datasets/owner/dataset" if a folder here is named like the owner. On Kaggle, '
    "attach the input to the notebook. Elsewhere, a competition needs accepted rules "
    "and a token: create one at https://www.kaggle.com/settings/api and save it in "
    "~/.kaggle/access_token."
)
# The username that the `init` commands of Kaggle's client write.
OWNER_PLACEHOLDER = "INSERT_USERNAME_HERE"


def to_slug(text: str, tail: str = "") -> str:
    """Return the slug that Kaggle makes of a title; with a tail it has at most 50
    characters.

    >>> to_slug("Čassava leaves, part 1"), to_slug("Tea leaves", "tfrecords-plan")
    ('cassava-leaves-part-1', 'tea-leaves-tfrecords-plan')
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")
    head = slug[: 49 - len(tail)].strip("-") if tail else slug
    return f"{head}-{tail}".strip("-")


def bundled(folder: str) -> Path:
    """Return the folder of our "notebooks" or "recipes"."""
    package = Path(__file__).resolve().parent
    installed = package / folder
    return installed if installed.is_dir() else package.parent / folder


def copy_notebook(name: str, folder: AnyPath) -> Path:
    """Copy a notebook without the link to its executed copy, which stays behind."""
    text = (bundled("notebooks") / f"{name}.ipynb").read_text(encoding="utf-8")
    path = Path(folder, f"{name}.ipynb")
    with explain_os_errors(path):
        path.write_text(EXECUTED_LINK.sub("", text), encoding="utf-8")
    return path


def project_dir() -> Path:
    """Return the current folder, or the checkout if that is its notebooks/."""
    current = Path.cwd()
    is_checkout = (current.parent / "kaggle_tfr").is_dir()
    return current.parent if is_checkout and current.name == "notebooks" else current


def output_dir(folder: str) -> str:
    """Return the absolute path of a folder for output; a `gs://` address is kept.

    Relative paths start at `project_dir`.
    """
    if is_remote(folder):
        return folder.rstrip("/")
    return os.path.abspath(project_dir() / Path(folder).expanduser())


def work_dir(folder: str, name: str) -> str:
    """Return the absolute path of WORK_DIR, as `output_dir` does.

    folder: "" is /kaggle/working on Kaggle, else work/NAME. name: NAME.
    Raises: ValueError: NAME is not a folder's name.
    """
    if folder:
        return output_dir(folder)
    if os.path.isdir(KAGGLE_WORKING):
        return KAGGLE_WORKING

    if name in ("", ".", "..") or "/" in name:
        raise ValueError(
            f"NAME is '{name}', but the work folder is {WORK}/NAME: NAME must be the "
            "name of one folder. Change NAME, or set WORK_DIR."
        )
    return os.path.join(output_dir(WORK), name)


def find_input(
    source: AnyPath, *, beside: str = "", names: Sequence[str] = ("",)
) -> str:
    """Return the folder of a path or a Kaggle slug; a `gs://` address is kept.

    source: a path, the slug of a competition, or "owner/dataset"; subfolders may
    follow. Folders of this machine come before Kaggle's mounts, and these before
    downloads, which are made where there is no /kaggle/input.
    beside: a further folder that the path may be relative to.
    names: of the files to download, below the folder; "" for all files.
    A name that looks like a path here is not downloaded: see `_list_downloads`.
    Raises: FileNotFoundError: with everything that was tried; OSError: of the disk;
    ValueError: `source` is empty.
    """
    source = os.fspath(source)
    if not source:
        raise ValueError(
            "The input is an empty name. Give a folder, a gs:// address or a slug."
        )
    folder = find_folder(source, beside)
    if folder:
        return folder

    tried = _list_folders(source, beside)
    for kaggle_input in _list_downloads(source, beside):
        try:
            return downloads.download(kaggle_input, names)
        except Exception as error:  # of kagglehub, requests, zipfile
            if getattr(error, "errno", None):  # the disk's
                raise
            reason = " ".join(str(error).split())
            tried.append(f"{kaggle_input.url}: {type(error).__name__}: {reason}")
    lines = "".join(f"\n  {place}" for place in tried)
    raise FileNotFoundError(f"'{source}' {MISSING_INPUT}. Looked in:{lines}\n{ADVICE}")


def find_folder(source: str, beside: str = "") -> str:
    """Return the folder that `find_input` finds without a download, "" for none."""
    if is_remote(source):
        return source.rstrip("/")
    for path in _list_folders(source, beside):
        # A folder may have "[1]" in its name: only the star of an owner is a pattern.
        pattern = glob.escape(path).replace("/[*]/", "/*/")
        for folder in sorted(glob.glob(pattern)):
            # A mount that is not ready yet is an empty folder.
            if not folder.startswith(KAGGLE_INPUT) or os.listdir(folder):
                return folder
    return ""


def _list_folders(source: str, beside: str) -> list[str]:
    """Return the folders that may hold the input, the likeliest first."""
    folders = _list_local(source, beside)
    if os.path.isdir(KAGGLE_INPUT) and not os.path.isabs(source):
        slug = source.strip("/")
        for input_type in downloads.SLUG_NAMES:
            slug = slug.removeprefix(f"{input_type}/")
        _, _, without_owner = slug.partition("/")
        folders += [f"{KAGGLE_INPUT}/{folder}{slug}" for folder in MOUNT_FOLDERS]
        if without_owner:  # the oldest mounts leave it out
            folders.append(f"{KAGGLE_INPUT}/{without_owner}")
    return list(dict.fromkeys(folders))


def _list_local(source: str, beside: str = "") -> list[str]:
    """Return the paths that a name can mean on this machine."""
    path = Path(source).expanduser()
    tops = (beside, "", project_dir())
    return [str(Path(top, path).absolute()) for top in tops]


def _list_downloads(source: str, beside: str) -> list[downloads.KaggleInput]:
    """Return what can be downloaded under this name, the likeliest first.

    There is nothing on Kaggle, where inputs are attached, and for what looks like a
    path: a name whose first folder exists here.
    """
    first, _, others = source.rstrip("/").partition("/")
    is_path = others and find_folder(first, beside)
    if is_path or os.path.isdir(KAGGLE_INPUT):
        return []
    return downloads.parse_slug(source)


def find_file(path: str) -> str:
    """Return the absolute path of a file, which need not exist in a folder here.

    path: of a file here, as `output_dir` takes it, or in a Kaggle input, such as
    "owner/dataset/file.csv". Of an input only this file is downloaded.
    Raises: as `find_input`.
    """
    local_path = output_dir(path)
    folder, _, name = path.rpartition("/")
    if not folder or is_remote(path) or os.path.exists(local_path):
        return local_path
    return f"{find_input(folder, names=[name])}/{name}"


def find_beside(path: str, work: str) -> str:
    """Return a path as it is given, or below `work` or KAGGLE_TEMP if it is only there.

    The files of the bundled sample are there, such as sample/overrides.csv.
    """
    if not path or is_remote(path):
        return path
    places = [path, f"{work}/{path}", f"{KAGGLE_TEMP}/{path}"]
    return next(filter(exists, places), path)


def name_input(source: str, folder: str) -> str:
    """Return the name of an input for recipes, which is the same on all machines.

    It is a slug for an input of Kaggle, otherwise a path.
    folder: what `find_input` returned for `source`.
    """
    if folder in _list_local(source):
        return folder
    mounts_of_datasets = f"{KAGGLE_INPUT}/datasets/"
    if folder.startswith(mounts_of_datasets):
        return folder.removeprefix(mounts_of_datasets)  # with the owner
    return source.strip("/")
