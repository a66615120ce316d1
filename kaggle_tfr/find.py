"""Find folders of inputs and of output, on Kaggle and elsewhere; make slugs."""

import glob
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kaggle_tfr.storage import AnyPath, digest, exists, explain_os_errors, is_remote

KAGGLE_INPUT = "/kaggle/input"
KAGGLE_WORKING = "/kaggle/working"  # Kaggle keeps its files as output
KAGGLE_TEMP = "/kaggle/temp"  # lost at the end of the session

# The types of Kaggle's downloads, and how many names a slug has.
SLUG_NAMES = {"datasets": 2, "competitions": 1, "models": 4}

# `push` searches a kernel's log for these words.
MISSING_INPUT = "is neither a folder here nor a Kaggle input that can be read"
ADVICE = (
    'Give a folder, a gs:// address, or a slug: "competition", "owner/dataset", or '
    '"competitions/NAME/FOLDER". On Kaggle, attach the input to the notebook. '
    "Elsewhere, a competition needs accepted rules and a token: create one at "
    "https://www.kaggle.com/settings/api and save it in ~/.kaggle/access_token."
)
# The username that the `init` commands of Kaggle's client write.
OWNER_PLACEHOLDER = "INSERT_USERNAME_HERE"


def to_slug(text: str, tail: str = "") -> str:
    """Return the slug that Kaggle makes of a title with this tail.

    A slug has at most 50 characters: a longer text is cut before the tail. In front of
    a tail, a text without Latin letters and digits becomes 8 digits of its digest, so
    that two such texts have different slugs.

    >>> to_slug("Čassava leaves, part 1"), to_slug("Tea leaves", "tfrecords-plan")
    ('cassava-leaves-part-1', 'tea-leaves-tfrecords-plan')
    >>> to_slug("листья", "tfrecords"), to_slug("цветы", "tfrecords")
    ('18829882-tfrecords', '6f9e9e0f-tfrecords')
    """
    title = unicodedata.normalize("NFKD", f"{text[: 49 - len(tail)]} {tail}")
    ascii_title = title.encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_title.lower()).strip("-")
    # Only the tail is left of the title.
    if text and tail and slug == tail:
        return f"{digest(text.encode())[:8]}-{tail}"
    return slug


def bundled(folder: str) -> Path:
    """Return the folder "notebooks" or "recipes" of this project.

    It is in the installed package, or beside it in a checkout.
    """
    package = Path(__file__).resolve().parent
    installed = package / folder
    return installed if installed.is_dir() else package.parent / folder


def output_dir(folder: str) -> str:
    """Return the absolute path of a folder, with the home folder for "~".

    A `gs://` address is kept, without "/" at its end.
    """
    if is_remote(folder):
        return folder.rstrip("/")
    return os.path.abspath(os.path.expanduser(folder))


def work_dir(values: Mapping[str, Any]) -> str:
    """Return the absolute path of the work folder, or its `gs://` address.

    values: parameters. WORK_DIR is relative to the current folder, and may begin with
    "~". Without WORK_DIR the folder is /kaggle/working on Kaggle, else
    work/NAME.
    Raises: ValueError: NAME is not a folder's name.
    """
    if folder := values["WORK_DIR"]:
        return output_dir(folder)
    if os.path.isdir(KAGGLE_WORKING):
        return KAGGLE_WORKING

    name = values["NAME"]
    # Without "/", and not only dots.
    if not re.fullmatch("[^/]*[^/.][^/]*", name):
        raise ValueError(
            f"NAME is '{name}', but the work folder is work/NAME: NAME must be the "
            "name of one folder. Change NAME, or set WORK_DIR."
        )
    return os.path.join(output_dir("work"), name)


def find_input(source: AnyPath, *, names: Sequence[str] = ("",)) -> str:
    """Return the folder of a path or a Kaggle slug; a `gs://` address is kept.

    source: a path, the slug of a competition, or "owner/dataset"; subfolders may
    follow. "competitions/", "datasets/" or "models/" in front gives the type.
    The first of these is returned: a folder of this machine, a mount below
    /kaggle/input, a download by kagglehub. Nothing is downloaded on Kaggle, or if the
    first folder of `source` exists: then the rest of the path is misspelt.
    names: of the files to download, below the folder; "" for all files.
    Raises: FileNotFoundError: it names the places searched; OSError: of the disk;
    ValueError: `source` is empty.
    """
    source = os.fspath(source)
    if not source:
        raise ValueError("The name of an input is empty.")
    if folder := find_folder(source):
        return folder

    places = f"{os.path.abspath(source)} and {KAGGLE_INPUT}"
    # "name" or "owner/name", but not "/a", "./a" or "a//b".
    is_slug = re.match(r"[\w-]+(/\w|/?$)", source)
    # On Kaggle, nothing is downloaded. Below a folder that exists, a name is misspelt.
    is_here = os.path.isdir(KAGGLE_INPUT) or find_folder(source.split("/")[0])
    if is_slug and not is_here:
        try:
            return _download(source, names)
        except Exception as error:  # of kagglehub, requests, zipfile
            if getattr(error, "errno", None):  # the disk's
                raise
            places += f", and asked Kaggle: {error}"
    raise FileNotFoundError(f"'{source}' {MISSING_INPUT}. Looked in {places}. {ADVICE}")


def find_folder(source: str) -> str:
    """Return the folder of a path or a mounted Kaggle slug, "" if there is none.

    A `gs://` address is returned, too, whether it exists or not.
    """
    folder = output_dir(source)
    if is_remote(source) or os.path.isdir(folder):
        return folder

    name = glob.escape(source.strip("/"))
    # A mount is /kaggle/input/TYPE/OWNER/NAME, or TYPE/NAME of a competition; the slug
    # may lack the type. Until 2026 it was /kaggle/input/NAME, without type and owner.
    short_name = re.sub("^(datasets/|models/)?[^/]+/", "", name)
    for mount in (name, f"*/{name}", f"*/*/{name}", short_name):
        # A mount that is not ready yet is empty, and a file has nothing inside.
        for inside in sorted(glob.glob(f"{KAGGLE_INPUT}/{mount}/*")):
            return os.path.dirname(inside)
    return ""


def _download(source: str, names: Sequence[str]) -> str:
    """Return the folder of an input that kagglehub downloads, or has downloaded.

    source: as in `find_input`: TYPE/ or nothing, the names of the slug, subfolders.
    names: of the files to download, below the subfolders; "" for all files.
    """
    import kagglehub

    parts = source.strip("/").split("/")
    input_type = "datasets" if parts[1:] else "competitions"
    # SLUG_NAMES has the types, each with the number of names in a slug.
    if parts[0] in SLUG_NAMES:
        input_type = parts.pop(0)
    n_names = SLUG_NAMES[input_type]  # 2 for "owner/dataset"
    download = getattr(kagglehub, f"{input_type.removesuffix('s')}_download")
    subfolders = parts[n_names:]
    with explain_os_errors(source):
        for name in names:
            file = "/".join([*subfolders, name]) if name else ""
            path = download("/".join(parts[:n_names]), path=file or None)
    # `path` is that of the last file, which ends with its subfolders and its name; with
    # "" as its name, it is the folder of the whole input.
    return str(Path(path.removesuffix(file), *subfolders))


def find_file(path: str) -> str:
    """Return the path of a file of this machine or of a Kaggle input.

    The folder must exist; whether it has the file is not checked.
    path: for a Kaggle input such as "owner/dataset/file.csv", of which only this file
    is downloaded.
    Raises: as `find_input`, for the folder.
    """
    folder, name = os.path.split(path)
    return os.path.join(find_input(folder or ".", names=[name]), name)


def find_beside(path: str, *folders: str) -> str:
    """Return the path in the first of the folders that has it, else the path as it is.

    path: "" is returned as it is. folders: "" is the current one.
    """
    places = [os.path.join(folder, path) for folder in folders]
    return next(filter(exists, places), path) if path else ""
