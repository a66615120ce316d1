"""Datasets, competitions and models of Kaggle: slugs, and downloads by kagglehub."""

import contextlib
import fcntl
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kaggle_tfr.storage import DENIED, NO_SPACE, check_inside, explain_os_errors

# The types of inputs, as in addresses and mounts, and how many names a slug has.
SLUG_NAMES = {"datasets": 2, "competitions": 1, "models": 4}
# What a name without a type in front can mean; models must have "models/" there.
_IMPLICIT_TYPES = ("datasets", "competitions")
# The name of a user, an organization, a dataset or a competition.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_NO_SUBFOLDERS = {"", ".", ".."}

_DISK_FIXES = dict.fromkeys(
    (*NO_SPACE, *DENIED),
    "Free disk space, or set KAGGLEHUB_CACHE to another folder.",
)
_LOG_IN = (
    "Create a token at https://www.kaggle.com/settings/api and save it in "
    "~/.kaggle/access_token, then run this again."
)


@dataclass(frozen=True)
class KaggleInput:
    """A dataset, a competition or a model of Kaggle, and a folder in it.

    type: "datasets", "competitions" or "models".
    slug: "owner/dataset", the competition's name, or
        "owner/model/framework/variation".
    subfolder: "" for all files.
    """

    type: str
    slug: str
    subfolder: str = ""

    @property
    def url(self) -> str:
        return f"https://www.kaggle.com/{self.type}/{self.slug}"


def parse_slug(name: str) -> list[KaggleInput]:
    """Return the inputs that a name can mean, the likeliest first; none for a path.

    A name without "/" is a competition. Subfolders may follow. "competitions/" or
    "datasets/" in front makes the type explicit; "models/" must be in front.

    >>> [tea.slug for tea in parse_slug("ada/tea")], parse_slug("./tea")
    (['ada/tea', 'ada'], [])
    """
    names = name.rstrip("/").split("/")
    types = list(_IMPLICIT_TYPES)
    if names[0] in SLUG_NAMES:
        types = [names.pop(0)]

    inputs = []
    for input_type in types:
        n_names = SLUG_NAMES[input_type]
        slug = names[:n_names]
        subfolders = names[n_names:]
        is_slug = len(slug) == n_names and all(map(_NAME.fullmatch, slug))
        if is_slug and "\\" not in name and _NO_SUBFOLDERS.isdisjoint(subfolders):
            inputs.append(KaggleInput(input_type, "/".join(slug), "/".join(subfolders)))
    return inputs


def cache_folder() -> str:
    """Return the folder of kagglehub's downloads."""
    default = os.path.expanduser("~/.cache/kagglehub")
    return os.environ.get("KAGGLEHUB_CACHE", default)


def find_cached(kaggle_input: KaggleInput) -> str:
    """Return the folder of an earlier download, "" for none.

    For a dataset or a model it is the newest version that was downloaded.
    """
    top = Path(cache_folder(), kaggle_input.type, kaggle_input.slug)
    # kagglehub writes the marker when all files are there.
    if kaggle_input.type == "competitions":
        complete = [top] if Path(f"{top}.complete").exists() else []
    else:
        versions = [path.stem for path in top.glob("*.complete")]
        numbers = sorted(map(int, filter(str.isdecimal, versions)))
        versions_of = top if kaggle_input.type == "models" else top / "versions"
        complete = [versions_of / str(number) for number in numbers]
    folders = [folder / kaggle_input.subfolder for folder in complete]
    existing = [str(folder) for folder in folders if folder.is_dir()]
    return existing[-1] if existing else ""


def find_cached_files(kaggle_input: KaggleInput, names: Sequence[str]) -> str:
    """Return the folder of an earlier download of these files, "" for none.

    It is of the newest version of the dataset of which all these files were downloaded.
    """
    top = Path(cache_folder(), kaggle_input.type, kaggle_input.slug)
    versions = [path.name for path in top.glob("versions/*")]
    for number in sorted(map(int, filter(str.isdecimal, versions)), reverse=True):
        folder = top / "versions" / str(number) / kaggle_input.subfolder
        markers = top / ".complete" / str(number) / kaggle_input.subfolder
        files = [folder / name for name in names]
        is_whole = Path(f"{top}/{number}.complete").exists()
        is_complete = all(Path(f"{markers}/{name}.complete").exists() for name in names)
        if (is_whole or is_complete) and all(map(Path.is_file, files)):
            return str(folder)
    return ""


def download(kaggle_input: KaggleInput) -> str:
    """Return the folder of the newest version of a dataset or model, or a competition.

    What kagglehub has cached is not downloaded again. Without network, the newest
    cached version of a dataset or model is used.
    Raises: ConnectionError, PermissionError, FileNotFoundError: each is a sentence
    about the input; OSError: the disk, or a damaged download.
    """

    def fetch() -> str:
        folder = _find_or_download(kaggle_input)
        return _find_subfolder(folder, kaggle_input.subfolder)

    return _fetch_or_reuse(kaggle_input, find_cached(kaggle_input), fetch)


def download_files(kaggle_input: KaggleInput, names: Sequence[str]) -> str:
    """Return the folder with these files of the newest version of a dataset.

    Nothing else of the dataset is downloaded. Without network, an earlier download of
    these files is used.
    names: below the subfolder of the input.
    Raises: as `download`; ValueError: a name is outside its folder.
    """
    if kaggle_input.type != "datasets":
        raise FileNotFoundError(
            'parts are published as datasets: give "owner/dataset", and the folder of '
            "the part if it is not at the top."
        )
    for name in names:
        check_inside(name, f"the name '{name}'", f"'{kaggle_input.url}'")
    cached = find_cached_files(kaggle_input, names)
    fetch = partial(_download_files, kaggle_input, names)
    return _fetch_or_reuse(kaggle_input, cached, fetch)


def _fetch_or_reuse(
    kaggle_input: KaggleInput, cached: str, fetch: Callable[[], str]
) -> str:
    """Return the folder that `fetch` returns, or without network the cached one.

    cached: the folder of an earlier download, "" for none.
    """
    url = kaggle_input.url
    if not cached:
        print(f"Requesting {url}; downloads are kept in {cache_folder()}", flush=True)
    try:
        folder = fetch()
    except ConnectionError as error:
        if not cached:
            raise
        print(f"WARNING: {url}: {error} An earlier download is used: {cached}")
        return cached

    date = datetime.fromtimestamp(os.path.getmtime(folder), UTC)
    print(f"{url}, downloaded on {date:%Y-%m-%d}: {folder}")
    return folder


def _find_subfolder(folder: str, subfolder: str) -> str:
    """Return the path of a folder in a download. Raises: FileNotFoundError."""
    path = str(Path(folder, subfolder))
    if not os.path.exists(path):
        names = ", ".join(sorted(os.listdir(folder))[:5])
        raise FileNotFoundError(
            f"it has no folder '{subfolder}'. It contains: {names}."
        )
    return path


def _download_files(kaggle_input: KaggleInput, names: Sequence[str]) -> str:
    """Return the folder of these files, all of one version of the dataset.

    Raises: as `download`.
    """
    parent = Path(cache_folder(), kaggle_input.type, kaggle_input.slug).parent
    version_of = kaggle_input
    version_dir = ""
    with explain_os_errors(parent, _DISK_FIXES), _lock_folder(parent):
        for name in names:
            file = os.path.join(kaggle_input.subfolder, name)
            path = _call_kagglehub(version_of, file)
            version_dir = path.removesuffix(f"/{file}")
            # The next file must not be of a version that is published meanwhile.
            version = os.path.basename(version_dir)
            slug = f"{kaggle_input.slug}/versions/{version}"
            version_of = replace(kaggle_input, slug=slug)
    return str(Path(version_dir, kaggle_input.subfolder))


def _find_or_download(kaggle_input: KaggleInput) -> str:
    """Return the folder of all files of the input, which is downloaded if needed.

    Raises: as `download`.
    """
    whole = replace(kaggle_input, subfolder="")
    parent = Path(cache_folder(), whole.type, whole.slug).parent
    with explain_os_errors(parent, _DISK_FIXES), _lock_folder(parent):
        cached = find_cached(whole)
        # kagglehub deletes a competition when Kaggle has newer files, perhaps during
        # a run that reads it.
        is_final = cached and whole.type == "competitions"
        return cached if is_final else _call_kagglehub(whole)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Wait until no other process downloads to a folder, which is made if missing.

    kagglehub would write over the files that the other process already reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _call_kagglehub(kaggle_input: KaggleInput, file: str = "") -> str:
    """Return the path in kagglehub's cache of one file, or of the folder of all files.

    Raises: as `download`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tqdm, in notebooks without ipywidgets
            import kagglehub
        from kagglehub.exceptions import DataCorruptionError, UnauthenticatedError
    except ImportError:
        raise FileNotFoundError(
            "nothing was downloaded, because kagglehub is not installed. "
            "Run `pip install kagglehub`."
        ) from None
    functions = {
        "competitions": kagglehub.competition_download,
        "datasets": kagglehub.dataset_download,
        "models": kagglehub.model_download,
    }
    try:
        return functions[kaggle_input.type](kaggle_input.slug, path=file or None)
    except UnauthenticatedError:
        raise PermissionError(
            f"Kaggle needs credentials for a competition. {_LOG_IN}"
        ) from None
    except OSError as error:
        # Errors of requests have no number, those of the disk have one.
        if error.errno:
            raise
        raise _translate(error, kaggle_input, file) from None
    except (DataCorruptionError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).strip().rstrip(".")
        folder = os.path.join(cache_folder(), kaggle_input.type, kaggle_input.slug)
        is_dataset = kaggle_input.type == "datasets"
        archive = folder if is_dataset else f"{folder}.archive"
        raise OSError(
            f"The download of {kaggle_input.url} failed: {reason}. If the archive is "
            f"damaged, remove '{archive}'. Then run this again."
        ) from None


def _translate(error: OSError, kaggle_input: KaggleInput, file: str) -> OSError:
    """Return an error of requests as one of Python's, with what to do.

    file: that was requested, "" for all files.
    """
    response = getattr(error, "response", None)
    if response is None:
        return ConnectionError(
            f"Kaggle was not reached ({type(error).__name__}). "
            "Check the network, then run this again."
        )
    status = response.status_code
    is_competition = kaggle_input.type == "competitions"
    if status == 401:
        return PermissionError(f"Kaggle needs valid credentials. {_LOG_IN}")
    if status == 403 and is_competition:
        return PermissionError(
            "its rules are not accepted, or it does not exist. Accept them at "
            f"{kaggle_input.url}/rules, then run this again."
        )
    if status == 403:
        return PermissionError(
            "it is private, or does not exist. Check the name; if it is private, "
            "use a token of somebody who can see it."
        )
    if status == 404 and is_competition:
        return FileNotFoundError(
            "there is no such competition. The slug of a dataset begins with its owner."
        )
    if status == 404 and file:
        return FileNotFoundError(
            f"there is no file '{file}' in it, or there is no such dataset. Check the "
            "name, which must be that of a part."
        )
    if status == 404:
        noun = kaggle_input.type.removesuffix("s")
        return FileNotFoundError(f"there is no such {noun}. Check the name.")
    return ConnectionError(f"Kaggle answered with status {status}. Try again later.")
