"""Datasets, competitions and models of Kaggle: slugs, and downloads by kagglehub."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kaggle_tfr.storage import OUTSIDE, explain_os_errors, make_folder

# The types of inputs, as in addresses and mounts, and how many names a slug has.
SLUG_NAMES = {"datasets": 2, "competitions": 1, "models": 4}
# The name of a user, an organization, a dataset or a competition.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


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
    subfolder: str

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
    types = ["datasets", "competitions"]
    if names[0] in SLUG_NAMES:
        types = [names.pop(0)]

    inputs = []
    for input_type in types:
        n_names = SLUG_NAMES[input_type]
        slug = names[:n_names]
        subfolder = "/".join(names[n_names:])
        is_slug = len(slug) == n_names and all(map(_NAME.fullmatch, slug))
        if is_slug and not OUTSIDE.search(subfolder):
            inputs.append(KaggleInput(input_type, "/".join(slug), subfolder))
    return inputs


def download(kaggle_input: KaggleInput, names: Sequence[str]) -> str:
    """Return the folder of the newest version of an input, downloaded by kagglehub.

    Where Kaggle refuses it or is not reached, the newest version in the cache is used.
    names: of the files to download, below the folder; "" for all files.
    Raises: OSError with a number: of the disk; others: of kagglehub.
    """
    from kagglehub.config import get_cache_folder

    top = os.path.join(get_cache_folder(), kaggle_input.type, kaggle_input.slug)
    parent = os.path.dirname(top)
    with explain_os_errors(parent), _lock_folder(parent):
        try:
            folder = top
            # kagglehub would delete a competition when Kaggle has newer files, or does
            # not date them, perhaps during a run that reads it.
            if not os.path.exists(f"{top}.complete"):
                folder = _call_kagglehub(kaggle_input, "", names, top)
        except OSError as error:
            version = _find_version(top, names)
            if error.errno or not version:
                raise
            folder = _call_kagglehub(kaggle_input, version, names, top)
            print(f"WARNING: an earlier download is used. {kaggle_input.url}: {error}")
    folder = str(Path(folder, kaggle_input.subfolder))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"it has no folder '{kaggle_input.subfolder}'")
    print(f"{kaggle_input.url}: {folder}")
    return folder


@contextlib.contextmanager
def _lock_folder(folder: str) -> Iterator[None]:
    """Wait until no other process downloads to a folder, which is made if missing.

    kagglehub would write over the files that the other process already reads.
    """
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _find_version(top: str, names: Sequence[str]) -> str:
    """Return the newest version in the cache, such as "/versions/3", "" for none."""
    # kagglehub writes a marker when a download is complete.
    pattern = ".complete/[0-9]*" if any(names) else "[0-9]*.complete"
    versions = sorted((marker.stem for marker in Path(top).glob(pattern)), key=int)
    folder = "/versions/" if os.path.isdir(f"{top}/versions") else "/"
    return folder + versions[-1] if versions else ""


def _call_kagglehub(
    kaggle_input: KaggleInput, version: str, names: Sequence[str], top: str
) -> str:
    """Return the folder that kagglehub downloads the files to, all of one version.

    version: "" for the newest. top: the input's folder in kagglehub's cache.
    """
    import kagglehub

    function = getattr(kagglehub, f"{kaggle_input.type.removesuffix('s')}_download")
    for name in names:
        file = os.path.join(kaggle_input.subfolder, name) if name else ""
        path = function(kaggle_input.slug + version, path=file or None)
        folder = path.removesuffix(f"/{file}")
        # The next file must not be of a version that is published meanwhile.
        version = folder.removeprefix(top)
    return folder
