"""Tables as HTML with every text escaped and as CSV, and numbers with units."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

# The characters that begin something in Markdown, in a formula or in HTML.
MARKUP = re.compile(r"[\\`*_\[\]<>&|$~@]")
NO_MATH = ("display.html.use_mathjax", False)  # "$" in a name is not a formula


@dataclass(frozen=True)
class Table:
    """A table that a notebook shows as HTML, and a terminal as text."""

    html: Markup
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def show_table(
    table: pd.DataFrame,
    formats: Mapping[str, str] | None = None,
    *,
    index: bool = False,
) -> Table:
    """Return the table with every text escaped; pandas's `table.style` does not.

    formats: the format of a column's numbers by its name, such as {"share": "{:.0%}"}.
    """
    formatters = {name: text.format for name, text in (formats or {}).items()}
    options: Any = {
        "index": index,
        "formatters": formatters,
        "na_rep": "–",
    }
    with pd.option_context(*NO_MATH):
        html = table.to_html(**options)
    return Table(Markup(html), table.to_string(**options))  # noqa: S704


def escape_markdown(text: str) -> str:
    r"""Return a text as one line of Markdown that shows it as it is.

    >>> escape_markdown("`a`\n<img>")
    '\\`a\\` \\<img\\>'
    """
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def format_csv(table: pd.DataFrame, *, header: bool = True) -> str:
    """Return the table as CSV, without its index. Every text is read as it is here."""
    text = table.to_csv(header=header, index=False, lineterminator="\n")
    # Readers end a row at "\r" unless it is quoted; Python before 3.13 does not.
    if "\r" in text:
        return table.to_csv(
            header=header,
            index=False,
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC,
        )
    return text


def format_unit(value: float, units: Mapping[str, float]) -> str:
    """Return three digits in the largest unit that gives one or more.

    >>> format_bytes(8_812_345), format_bytes(512)
    ('8.81 MB', '512 B')
    >>> format_seconds(43_200), format_seconds(0.7)
    ('12 h', '0.7 s')
    """
    for unit, size in units.items():
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.2g} {unit}"


BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1}
SECONDS = {"h": 3600, "min": 60, "s": 1}
format_bytes = partial(format_unit, units=BYTES)
format_seconds = partial(format_unit, units=SECONDS)
