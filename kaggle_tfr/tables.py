"""Tables as CSV, text for Markdown, and numbers with their nouns and units."""

import csv
import re
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

# The characters that begin something in Markdown, in a formula or in HTML.
MARKUP = re.compile(r"[\\`*_\[\]<>&|$~@]")
NO_MATH = ("display.html.use_mathjax", False)  # "$" in a name is not a formula


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


def count_of(number: int, noun: str, ending: str = "s") -> str:
    """Format a number with its noun in the singular or plural.

    >>> count_of(1, "pair"), count_of(4317, "pair"), count_of(2, "class", "es")
    ('1 pair', '4,317 pairs', '2 classes')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def join_words(words: Sequence[str]) -> str:
    """Join words by commas and "and".

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


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
