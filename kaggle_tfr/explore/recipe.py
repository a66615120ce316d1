"""The recipe that `init` writes: names from the data are escaped, and read back."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_tfr.parameters import PARAMETERS, load_recipe
from kaggle_tfr.storage import write_atomically

LONGEST_COMMENT = 400  # characters


@dataclass
class Recipe:
    """Parameters, and comments on what they were inferred from."""

    parameters: dict[str, Any] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    def note(self, comment: str) -> None:
        """Add a comment."""
        self.comments.append(comment)

    def doubt(self, comment: str) -> None:
        """Add a comment on something that the user should check."""
        self.comments.append(f"not sure: {comment}")


def to_line(text: str) -> str:
    r"""Return the text as one line of printable characters; others are escaped.

    >>> print(to_line("a\nOVERWRITE: true"))
    a\nOVERWRITE: true
    """
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    r"""Return the character as JSON and YAML write it, such as \n or \u2028."""
    if char in "\n\r\t":
        return json.dumps(char)[1:-1]
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def to_comment(text: str) -> str:
    """Return a comment as one line; of a long one the beginning and the end."""
    half = LONGEST_COMMENT // 2
    if len(text) > LONGEST_COMMENT:
        text = f"{text[:half]}…{text[-half:]}"
    return to_line(text)


def format_recipe(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    """Return the text of a recipe: a line for each comment and for each parameter."""
    lines = [f"# {to_comment(comment)}" for comment in comments]
    for key, value in values.items():
        setting = f"{key}: {_to_yaml(value)}"
        lines.append(
            f"{setting:48} # {PARAMETERS[key].description or 'as in the data'}"
        )
    return "\n".join(lines) + "\n"


def _to_yaml(value: Any) -> str:
    """Return the value as JSON whose strings are printable, which is YAML too."""
    return to_line(json.dumps(value, ensure_ascii=False))


def check_free(path: str) -> None:
    """Raise a FileExistsError if `path` exists."""
    if os.path.lexists(path):
        raise FileExistsError(
            f"'{path}' exists, and init replaces nothing. "
            f"Name another file for the recipe with -o."
        )


def save_recipe(values: Mapping[str, Any], comments: Sequence[str], path: str) -> None:
    """Write a recipe, after a check that it is read back as `values`.

    Raises: FileExistsError: `path` exists; OSError; ValueError: the values cannot be
    parameters.
    """
    check_free(path)
    text = format_recipe(values, comments)
    _check_recipe(text, values)
    write_atomically(path, text.encode())


def _check_recipe(text: str, values: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the text is read as these values and no others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            loaded = load_recipe(str(path))
        except ValueError as error:
            reason = str(error).removeprefix(f"the recipe '{path}': ")
            raise ValueError(
                f"No recipe can be written for this folder: {reason}"
            ) from None
    if loaded != values:
        names = {*loaded, *values}
        different = [key for key in names if loaded.get(key) != values.get(key)]
        raise ValueError(
            f"The recipe for this folder would be read with another "
            f"{', '.join(sorted(different))} than intended. "
            f"Rename the columns or folders with odd names."
        )
