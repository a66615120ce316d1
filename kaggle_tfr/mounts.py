"""Kaggle's folders and slugs: where inputs are mounted, and where output goes."""

import glob
import os
import re
import unicodedata
from pathlib import Path

from kaggle_tfr.naming import near_file
from kaggle_tfr.storage import AnyPath, is_remote

KAGGLE_INPUT = "/kaggle/input"
KAGGLE_WORKING = "/kaggle/working"  # Kaggle keeps its files as output
KAGGLE_TEMP = "/kaggle/temp"  # lost at the end of the session
WORK = "work"  # elsewhere, the folder of the work folders of all recipes
# A folder with one of these files is a WORK_DIR or a part.
PRODUCTS = ("plan.json", "plan.parquet", "images.parquet", "hashes.parquet")

# Since 2026 Kaggle also mounts inputs by type and owner: competitions/<slug>,
# datasets/<owner>/<slug>.
MOUNT_FOLDERS = ("", "/competitions", "/datasets", "/datasets/*", "/notebooks/*")

# `push` searches a kernel's log for these words.
MISSING_INPUT = "is neither a folder here nor a Kaggle input"
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
    Raises: ValueError: NAME is not a folder's name, or work/ itself contains a run.
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
    parent = output_dir(WORK)
    folder = os.path.join(parent, name)
    products = [file for file in PRODUCTS if os.path.exists(f"{parent}/{file}")]
    if products:
        raise ValueError(
            f"'{parent}' itself contains a run ({', '.join(products)}), of an earlier "
            "version of kaggle-tfr or with that WORK_DIR. Now each NAME has a folder "
            f"in it, here '{folder}'. To resume the old run, set WORK_DIR: {WORK}; "
            f"else delete or rename '{parent}'."
        )
    return folder


def find_input(source: AnyPath) -> str:
    """Return the folder of a path or a Kaggle slug; a `gs://` address is kept.

    source: a path, a slug ("flowers"), or an owner and a slug ("me/flowers");
    subfolders may follow. Folders of this machine come before Kaggle's mounts. An
    empty mount is not ready yet, and does not count.
    Raises: FileNotFoundError: with every path that was tried; ValueError: `source` is
    empty.
    """
    source = os.fspath(source)
    if not source:
        raise ValueError(
            "The input is an empty name. Give a folder, a gs:// address or a slug."
        )
    if is_remote(source):
        return source.rstrip("/")

    candidates = _list_candidates(source)
    folder = _find_folder(candidates)
    if folder:
        return folder
    paths = "\n  ".join(candidates)
    raise FileNotFoundError(
        f"'{source}' {MISSING_INPUT}.{near_file(source)} Looked in:\n  {paths}\n"
        "Attach the dataset to the notebook, or give an absolute path or a gs:// "
        "address."
    )


def _find_folder(candidates: list[str]) -> str:
    """Return the first of these folders that exists, "" for none."""
    for candidate in candidates:
        # A folder may have "[1]" in its name: only the star of an owner is a pattern.
        pattern = glob.escape(candidate).replace("/[*]/", "/*/")
        for folder in sorted(glob.glob(pattern)):
            # A mount that is not ready yet is an empty folder.
            if not folder.startswith(KAGGLE_INPUT) or os.listdir(folder):
                return folder
    return ""


def _list_candidates(source: str) -> list[str]:
    """Return the folders that may hold the input, the likeliest first."""
    path = Path(source).expanduser()
    candidates = [str(path.absolute()), str((project_dir() / path).absolute())]
    if not path.is_absolute():
        slug = source.strip("/")
        candidates += [f"{KAGGLE_INPUT}{folder}/{slug}" for folder in MOUNT_FOLDERS]
        if "/" in slug:  # the oldest mounts leave the owner out
            candidates.append(f"{KAGGLE_INPUT}/{slug.partition('/')[2]}")
    return list(dict.fromkeys(candidates))
