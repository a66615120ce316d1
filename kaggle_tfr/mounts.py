"""Where the inputs lie and where the work goes: on Kaggle, on this machine, in a bucket."""

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

KAGGLE_INPUT = "/kaggle/input"
KAGGLE_WORKING = "/kaggle/working"
# Since 2026 Kaggle mounts by kind and owner as well: competitions/<slug>, datasets/<owner>/<slug>.
KINDS = ("competitions", "datasets", "datasets/*", "notebooks/*")


def project_dir() -> Path:
    """The checkout's top folder when we run there or in its notebooks/, else the current folder."""
    here = Path.cwd()
    if here.name == "notebooks" and (here.parent / "kaggle_tfr").is_dir():
        return here.parent
    return here


def work_dir(folder: str = "") -> str:
    """The folder for everything we make, absolute; a `gs://` address stays as it is.

    folder: "" is /kaggle/working on Kaggle and work/ in the project anywhere else; a relative
        path counts from the project's folder, so that a notebook and the command line agree.
    """
    if is_address(folder):
        return folder.rstrip("/")
    if not folder and os.path.isdir(KAGGLE_WORKING):
        return KAGGLE_WORKING
    return str((project_dir() / Path(folder or "work").expanduser()).absolute())


def is_address(path: str) -> bool:
    """Whether the path names a remote store such as `gs://bucket/folder`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def list_places(source: str) -> list[str]:
    """Every place where the source may lie, likeliest first; `*` stands for an owner.

    source: a path, a slug ("flowers"), or owner and slug ("me/flowers"); folders may follow.
    """
    path = Path(source).expanduser()
    places = [str(path.absolute()), str((project_dir() / path).absolute())]
    if not path.is_absolute():
        slug = source.strip("/")
        places.append(f"{KAGGLE_INPUT}/{slug}")
        places += [f"{KAGGLE_INPUT}/{kind}/{slug}" for kind in KINDS]
        if "/" in slug:  # the old mounts leave the owner out
            places.append(f"{KAGGLE_INPUT}/{slug.partition('/')[2]}")
    return list(dict.fromkeys(places))


def find_input(source: str | os.PathLike, *, bucket: bool = False) -> str:
    """The existing folder that a path or a Kaggle slug stands for; `gs://` addresses stay as given.

    bucket: ask Kaggle for the `gs://` copy first: a TPU on another machine cannot see this disk.
    Raises: FileNotFoundError listing every place looked in; ValueError for an empty source.
    """
    source = os.fspath(source)
    if not source:
        raise ValueError("The input is an empty name. Give a folder, a gs:// address or a slug.")
    if is_address(source):
        return source.rstrip("/")
    places = list_places(source)
    found = [hit for place in places for hit in _existing(place)]
    if found and not bucket:
        return found[0]
    address, said = _ask_kaggle(source)
    if address:
        return address
    if found:
        return found[0]
    raise FileNotFoundError(
        f"'{source}' is neither a folder here nor a Kaggle input. Looked in:\n  "
        + "\n  ".join([*places, said])
        + "\nAttach the dataset to the notebook, or give an absolute path or a gs:// address."
    )


def input_roots(sources: str | Sequence[str], *, bucket: bool = False) -> list[str]:
    """One existing folder, or `gs://` address, for each source, in the order given.

    sources: a source or several, each as `find_input` takes it.
    Raises: FileNotFoundError listing every place looked in.
    """
    sources = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    return [find_input(source, bucket=bucket) for source in sources]


def _existing(place: str) -> list[str]:
    # A folder may have "[1]" in its name, so only our own star is a pattern.
    if "/*/" not in place:
        return [place] if os.path.exists(place) else []
    head, _, tail = place.partition("/*/")
    return sorted(glob.glob(f"{glob.escape(head)}/*/{glob.escape(tail)}"))


def _ask_kaggle(source: str) -> tuple[str, str]:
    """(address, what to say when there is none): Kaggle's own answer, local on its TPU machines."""
    asked = f"KaggleDatasets().get_gcs_path('{source}')"
    try:
        from kaggle_datasets import KaggleDatasets
    except ImportError:
        return "", f"{asked}: no kaggle_datasets here, so this is not a Kaggle session"
    names = source.strip("/").split("/")
    said = f"{asked}: no answer"
    for first in range(
        min(2, len(names))
    ):  # Kaggle wants the slug alone: try without the owner too
        try:
            root = KaggleDatasets().get_gcs_path(names[first])
        except Exception as error:  # noqa: BLE001  # Kaggle's client raises unrelated classes
            said = f"{asked}: {type(error).__name__}: {error}"
        else:
            if root:
                return "/".join([root.rstrip("/"), *names[first + 1 :]]), ""
    return "", said
