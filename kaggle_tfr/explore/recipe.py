"""The recipe that `init` writes: names from the data are escaped, and read back."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from kaggle_tfr.parameters import PARAMETERS, check_parameters
from kaggle_tfr.storage import write_atomically


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

    YAML reads these escapes in double quotes.

    >>> print(to_line("a\nOVERWRITE: true"))
    a\nOVERWRITE: true
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def format_recipe(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    """Return the text of a recipe: a line for each comment and for each parameter."""
    lines = [f"# {to_line(comment)}" for comment in comments]
    for name, value in values.items():
        setting = f"{name}: {_to_yaml(value)}"
        description = PARAMETERS[name].description or "as in the data"
        lines.append(f"{setting:48} # {description}")
    return "\n".join(lines) + "\n"


def _to_yaml(value: Any) -> str:
    """Return the value as JSON whose strings are printable, which is YAML too."""
    return to_line(json.dumps(value, ensure_ascii=False))


def save_recipe(values: Mapping[str, Any], comments: Sequence[str], path: str) -> None:
    """Write a recipe, after a check that it is read back as `values`.

    Raises: FileExistsError: `path` exists; OSError; ValueError: the values cannot be
    parameters.
    """
    if os.path.lexists(path):
        raise FileExistsError(
            f"'{path}' exists, and init replaces nothing. "
            "Name another file for the recipe with -o."
        )
    check_parameters(values)
    text = format_recipe(values, comments)
    loaded = yaml.safe_load(text)
    if loaded != values:
        names = {*loaded, *values}
        different = [name for name in names if loaded.get(name) != values.get(name)]
        raise ValueError(
            "The recipe for this folder would be read with another "
            f"{', '.join(sorted(different))} than intended. "
            "Rename the columns or folders with odd names."
        )
    write_atomically(path, text.encode())
