"""The recipe that `init` writes: names from the data are escaped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kaggle_tfr.explore.files import Files
from kaggle_tfr.parameters import PARAMETERS


@dataclass
class Recipe:
    """Parameters, comments on what they were inferred from, and the files."""

    parameters: dict[str, Any] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    files: Files = field(default_factory=lambda: Files((), ()))


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
        # JSON whose strings are printable is YAML, too.
        setting = f"{name}: {to_line(json.dumps(value, ensure_ascii=False))}"
        description = PARAMETERS[name].description or "as in the data"
        lines.append(f"{setting:48} # {description}")
    return "\n".join(lines) + "\n"
