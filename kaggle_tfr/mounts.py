"""Folders of inputs and of output, on Kaggle and elsewhere; slugs."""

import glob
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
MOUNT_FOLDERS = ("", "/competitions", "/datasets", "/datasets/*", "/notebooks/*")

# `push` searches a kernel's log for these words.
MISSING_INPUT = "is neither a folder here nor a Kaggle input that can be read"
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


def find_input(source: AnyPath, *, beside: str = "") -> str:
    """Return the folder of a path or a Kaggle slug; a `gs://` address is kept.

    source: a path, the slug of a competition, or "owner/dataset"; subfolders may
    follow. Folders of this machine come before Kaggle's mounts, and these before
    downloads, which are made where there is no /kaggle/input. An empty mount is not
    ready yet, and does not count.
    beside: a folder that the path may be relative to; the caller has looked there.
    A name that looks like a path here is not downloaded: see `_list_downloads`.
    Raises: FileNotFoundError, PermissionError, ConnectionError: with everything that
    was tried; OSError: a download failed; ValueError: `source` is empty.
    """
    return _find_or_download(source, beside, downloads.download)


def find_part_files(source: AnyPath, names: Sequence[str]) -> str:
    """Return the folder of a published part, which contains these files.

    It is found as `find_input` does. Where it must be downloaded, only these files are.
    names: below the folder. Those of a folder here or a mount may be missing.
    Raises: as `find_input`; ValueError: a name is outside the folder.
    """
    return _find_or_download(source, "", partial(downloads.download_files, names=names))


def _find_or_download(
    source: AnyPath, beside: str, download: Callable[[downloads.KaggleInput], str]
) -> str:
    """Return the folder of an input, see `find_input`.

    download: returns the folder of an input of Kaggle.
    """
    source = _check_name(source)
    if is_remote(source):
        return source.rstrip("/")

    folder = _find_folder(_list_candidates(source))
    if folder:
        return folder

    failures: dict[str, OSError] = {}
    for kaggle_input in _list_downloads(source, beside):
        try:
            return download(kaggle_input)
        except (ConnectionError, FileNotFoundError, PermissionError) as error:
            if error.errno:  # the disk's
                raise
            failures[kaggle_input.url] = error
    raise _explain_missing(source, beside, failures)


def locate_input(source: AnyPath) -> str:
    """Return the folder that `find_input` would return without a download, or ""."""
    source = _check_name(source)
    if is_remote(source):
        return source.rstrip("/")
    folder = _find_folder(_list_candidates(source))
    cached = map(downloads.find_cached, _list_downloads(source))
    return folder or next(filter(None, cached), "")


def find_file(path: str) -> str:
    """Return the absolute path of a file, which need not exist.

    path: of a file here, as `output_dir` takes it, or in a Kaggle input, such as
    "owner/dataset/file.csv".
    """
    local_path = output_dir(path)
    folder, _, name = path.rpartition("/")
    if not folder or is_remote(path) or os.path.exists(local_path):
        return local_path
    input_dir = locate_input(folder)
    return f"{input_dir}/{name}" if input_dir else local_path


def find_beside(path: str, work: str) -> str:
    """Return a path as it is given, or below `work` or KAGGLE_TEMP if it is only there.

    The files of the bundled sample are there, such as sample/overrides.csv.
    """
    if is_remote(path) or os.path.exists(output_dir(path)):
        return path
    places = [os.path.join(folder, path) for folder in (work, KAGGLE_TEMP)]
    return next(filter(exists, places), path)


def name_input(source: str, found: str, folder: str) -> str:
    """Return the name of an input for recipes, which is the same on all machines.

    It is a slug for an input of Kaggle, with the folders below it, otherwise a path.
    found: what `find_input` returned for `source`. folder: the same, or below it.
    """
    if found in _list_local(source):
        return folder
    slug = source.strip("/")
    mount = os.path.relpath(found, KAGGLE_INPUT)
    if mount.startswith("datasets/"):
        slug = mount.removeprefix("datasets/")  # with the owner
    subfolder = os.path.relpath(folder, found)
    if subfolder == ".":
        return slug
    # "a/b" would be a dataset.
    return f"{slug}/{subfolder}" if "/" in slug else f"competitions/{slug}/{subfolder}"


def _check_name(source: AnyPath) -> str:
    """Return the name of an input as text. Raises: ValueError: it is empty."""
    name = os.fspath(source)
    if not name:
        raise ValueError(
            "The input is an empty name. Give a folder, a gs:// address or a slug."
        )
    return name


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
    candidates = _list_local(source)
    if _has_mounts() and not os.path.isabs(source):
        candidates += _list_mounts(source.strip("/"))
    return list(dict.fromkeys(candidates))


def _has_mounts() -> bool:
    """Return whether this is Kaggle, where inputs are attached, not downloaded."""
    return os.path.isdir(KAGGLE_INPUT)


def _list_local(source: str, beside: str = "") -> list[str]:
    """Return the paths that a name can mean on this machine."""
    path = Path(source).expanduser()
    tops = [Path.cwd(), project_dir()]
    if beside and not is_remote(beside):
        tops.append(Path(beside))
    return [str((top / path).absolute()) for top in tops]


def _list_mounts(slug: str) -> list[str]:
    """Return the folders where Kaggle may mount an input."""
    input_type, _, names = slug.partition("/")
    if input_type in downloads.SLUG_NAMES:
        mounts = [slug, names]
        has_owner = input_type != "competitions"
    else:
        names = slug
        mounts = [f"{folder}/{slug}".strip("/") for folder in MOUNT_FOLDERS]
        has_owner = "/" in slug
    if has_owner:  # the oldest mounts leave the owner out
        mounts.append(names.partition("/")[2])
    return [f"{KAGGLE_INPUT}/{mount}" for mount in mounts if mount]


def _list_downloads(source: str, beside: str = "") -> list[downloads.KaggleInput]:
    """Return what can be downloaded under this name, the likeliest first.

    There is nothing on Kaggle, where inputs are attached, and for what looks like a
    path: a name whose first folder exists here.
    """
    if _has_mounts():
        return []
    first, _, others = source.rstrip("/").partition("/")
    begins_here = any(map(os.path.isdir, _list_local(first, beside)))
    return [] if others and begins_here else downloads.parse_slug(source)


def _explain_missing(
    source: str, beside: str, failures: Mapping[str, OSError]
) -> OSError:
    """Return the error for an input that was not found, with all that was tried.

    failures: the error of each address. Its type is that of the first one that is not
    a missing file: Kaggle may have the input.
    """
    paths = [*_list_local(source, beside), *_list_candidates(source)]
    tried = [f"  {path}" for path in dict.fromkeys(paths)]
    tried += [f"  {url}: {error}" for url, error in failures.items()]

    advice = _advise(source, is_requested=bool(failures))
    types = [type(error) for error in failures.values()]
    types = [error for error in types if error is not FileNotFoundError]
    error_type = types[0] if types else FileNotFoundError
    lines = "\n".join(tried)
    return error_type(f"'{source}' {MISSING_INPUT}. Looked in:\n{lines}\n{advice}")


def _advise(source: str, *, is_requested: bool) -> str:
    """Return what to do about an input that was not found."""
    kaggle_inputs = downloads.parse_slug(source)
    if _has_mounts():
        return (
            "Attach the dataset to the notebook, or give an absolute path or a gs:// "
            "address."
        )
    if is_requested or not kaggle_inputs:
        return (
            'Give a folder, a gs:// address, or a slug: "competition" or '
            '"owner/dataset".'
        )
    folder = source.partition("/")[0]
    address = f"{kaggle_inputs[0].type}/{kaggle_inputs[0].slug}"
    return (
        f"The folder '{folder}' is here, so nothing was downloaded. For Kaggle's "
        f'input, write "{address}", or rename the folder.'
    )
