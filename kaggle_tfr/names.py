"""File names and paths by template: one place that formats them and parses them back."""

import difflib
import re
import string
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

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


def near_miss(word: str, known: Iterable[str]) -> str:
    """' Did you mean "SEED"?' when a known word is close to `word`, else ''.

    >>> near_miss("SEDE", ["SEED", "QUALITY"])
    ' Did you mean "SEED"?'
    """
    upper = {str(name).upper(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=0.6)
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
