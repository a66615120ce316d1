"""The file of a recipe that `init` writes: names from the data are escaped, and read back."""

import contextlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kaggle_tfr.parameters import PARAMETERS, load_recipe

LONGEST_NAME = 120  # characters of a name or a list of names in a comment


def to_line(text: str) -> str:
    r"""The text as one line of printable characters; what is not printable is escaped.

    >>> print(to_line("a\nOVERWRITE: true"))
    a\nOVERWRITE: true
    """
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def shorten(name: str) -> str:
    """The name for a comment: whole, or its beginning and its end."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


def format_recipe(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    """The text of a recipe: each comment one line, then each parameter one line with its help."""
    lines = [f"# {to_line(comment)}" for comment in comments]
    for key, value in values.items():
        setting = f"{key}: {_to_yaml(value)}"
        lines.append(
            f"{setting:48} # {PARAMETERS[key].description or 'as in the data'}"
        )
    return "\n".join(lines) + "\n"


def check_free(path: str) -> None:
    """Raises an OSError unless its folder exists and nothing has that name."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        example = os.path.join(path, "recipe.yaml")
        raise IsADirectoryError(
            f"'{path}' is a folder. Name the recipe's file: -o {example}"
        )
    if os.path.lexists(path):
        what = f"The recipe '{path}' exists, and init replaces none."
        raise FileExistsError(f"{what} Name another file with -o, or remove this one.")
    if not os.path.isdir(folder):
        what = f"There is no folder '{folder}' for the recipe '{path}'."
        raise FileNotFoundError(
            f"{what} Make the folder, or name another file with -o."
        )


def save_recipe(values: Mapping[str, Any], comments: Sequence[str], path: str) -> None:
    """Write a recipe; it gets its name when it is whole and was read back as `values`.

    Raises: FileExistsError: something has that name; OSError; ValueError: the values cannot be
    parameters.
    """
    check_free(path)
    temporary = os.path.join(os.path.dirname(path), f".{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(format_recipe(values, comments))
            file.flush()
            os.fsync(file.fileno())
        _check_recipe(temporary, values)
        _name_file(temporary, path)
    except FileExistsError:
        check_free(path)  # somebody else made it in the meantime
        raise
    except OSError as error:
        what = f"The recipe '{path}' could not be written: {error.strerror or error}."
        mend = "Make room there and allow to write, or name another file with -o."
        raise OSError(error.errno, f"{what} {mend}") from None
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


def _check_recipe(path: str, values: Mapping[str, Any]) -> None:
    """Raises a ValueError unless the file is read as these values and no others."""
    try:
        read = load_recipe(path)
    except ValueError as error:
        reason = str(error).removeprefix(f"the recipe '{path}': ")
        raise ValueError(
            f"No recipe can be written for this folder: {reason}"
        ) from None
    if read != values:
        names = sorted(
            key for key in {*read, *values} if read.get(key) != values.get(key)
        )
        what = (
            f"The recipe for this folder would be read with another {', '.join(names)}"
        )
        raise ValueError(
            f"{what} than was meant. Rename the columns or folders with odd names."
        )


def _name_file(temporary: str, path: str) -> None:
    """Give a file its name. Raises: FileExistsError: the name is taken."""
    try:
        os.link(temporary, path)  # unlike a renamed file, a link replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        check_free(path)
        os.rename(temporary, path)


def _to_yaml(value: Any) -> str:
    """The value as JSON whose strings are of printable characters, which is YAML too."""
    return to_line(json.dumps(value, ensure_ascii=False))


def _escape(char: str) -> str:
    r"""The character as JSON and YAML write it in a string, such as \n or \u2028."""
    if char in "\n\r\t":
        return json.dumps(char)[1:-1]
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
