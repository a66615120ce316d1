"""File names and paths by template: one place that formats them and parses them back."""

import difflib
import glob
import os
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

# What a shard's name can tell. Numbers count from 0, `part` from 1; `n` is how many files share
# the other fields, `count` how many records the file holds.
SHARD_FIELDS = {
    "name": str,
    "split": str,
    "fold": int,
    "part": int,
    "i": int,
    "n": int,
    "count": int,
}


_FORMATTER = string.Formatter()


def near_miss(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """' Did you mean "SEED"?' when a known word is close to `word`, else ''.

    >>> near_miss("SEDE", ["SEED", "QUALITY"])
    ' Did you mean "SEED"?'
    """
    upper = {str(name).upper(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=cutoff)
    return f' Did you mean "{upper[close[0]]}"?' if close else ""


def template_fields(template: str) -> list[tuple[str, str]]:
    """The fields of a template in their order, as (name, format specification).

    >>> template_fields("Id_df{i:02d}-{count}.tfrec")
    [('i', '02d'), ('count', '')]
    """
    try:
        parts = list(_FORMATTER.parse(template))
    except ValueError as error:
        raise ValueError(f"the template '{template}' cannot be read: {error}.") from None
    return [(field, spec or "") for _, field, spec, _ in parts if field is not None]


def check_template(template: str, fields: Iterable[str] = SHARD_FIELDS) -> None:
    """None, when a shard name template can name every shard of a plan.

    Raises:
        ValueError: an unknown field (the near miss is named), no `{i}`, or a way out of the folder.
    """
    known = list(fields)
    used = [field for field, _ in template_fields(template)]
    for field in used:
        if field not in known:
            raise ValueError(
                f"SHARD_NAME '{template}' has the field '{{{field}}}'.{near_miss(field, known)} "
                f"It can use {', '.join('{' + name + '}' for name in known)}."
            )
    if "i" not in used:
        raise ValueError(
            f"SHARD_NAME '{template}' has no {{i}}, so two shards could get one name. Add {{i}}."
        )
    _stay_inside(template, template, "SHARD_NAME")


def format_name(template: str, **fields: str | int) -> str:
    """The file name that a shard gets.

    >>> format_name("Id_df{i:02d}-{count}.tfrec", i=3, count=1427)
    'Id_df03-1427.tfrec'
    """
    return template.format(**fields)


def parse_name(template: str, file: str) -> dict[str, str | int]:
    """The fields that a file's name holds; only the last folders a template names are looked at.

    >>> parse_name("Id_df{i:02d}-{count}.tfrec", "train/Id_df03-1427.tfrec")
    {'i': 3, 'count': 1427}

    Raises:
        ValueError: the name does not follow the template.
    """
    depth = template.count("/") + 1
    tail = "/".join(str(file).split("/")[-depth:])
    match = re.fullmatch(_pattern(template), tail)
    if match is None:
        raise ValueError(f"the file name '{tail}' does not follow the template '{template}'.")
    return {field: SHARD_FIELDS[field](text) for field, text in match.groupdict().items()}


def fill_path(template: str, row: Mapping[str, object]) -> str:
    """The path of one image below INPUT_DIR.

    >>> fill_path("train/{image_id[0]}/{image_id[1]}/{image_id}.jpg", {"image_id": "a7f"})
    'train/a/7/a7f.jpg'

    Raises:
        ValueError: an unknown column, an index beyond the id's end, or a way out of INPUT_DIR.
    """
    try:
        path = template.format_map(row)
    except KeyError as error:
        column = error.args[0]
        raise ValueError(
            f"PATH_TEMPLATE '{template}' names the column '{column}', which the table does "
            f"not have.{near_miss(column, row)} It has {', '.join(map(str, row))}."
        ) from None
    except (IndexError, AttributeError, TypeError) as error:
        raise ValueError(
            f"PATH_TEMPLATE '{template}' does not fit the row {dict(row)}: {error}."
        ) from None
    _stay_inside(path, template, "PATH_TEMPLATE")
    return path


def _stay_inside(path: str, template: str, parameter: str) -> None:
    pure = PurePosixPath(path.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or re.match(r"[A-Za-z]:|\w+://", path):
        raise ValueError(
            f"{parameter} '{template}' leads out of its folder with '{path}'. "
            "Give a path below the folder, without '..' and without a leading '/'."
        )


def _pattern(template: str) -> str:
    """A regular expression with one named group a field; a repeated field must repeat its text."""
    pattern, seen = "", set()
    for text, field, spec, _ in _FORMATTER.parse(template):
        pattern += re.escape(text)
        if field is None:
            continue
        if field in seen:
            pattern += f"(?P={field})" if SHARD_FIELDS[field] is str else r"-?\d+"
        elif SHARD_FIELDS[field] is str:
            pattern += f"(?P<{field}>[^/]+)"
        else:
            width = re.sub(r"\D", "", spec or "") or "1"
            pattern += rf"(?P<{field}>-?\d{{{int(width)},}}|-\d+)"
        seen.add(field)
    return pattern


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


def candidate_paths(source: str) -> list[str]:
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
    places = candidate_paths(source)
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
