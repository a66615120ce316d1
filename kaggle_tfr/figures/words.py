"""Words and names in figures, and in what the notebooks print."""

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any
from unicodedata import east_asian_width

import pandas as pd
from matplotlib import font_manager

from kaggle_tfr.figures.style import STYLE

NO_LABEL = "(no label)"
LONGEST_NAME = 40  # characters of a class name beside bars


def list_marks(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Return which labels each image has: bool, one column per label.

    A label column holds 0 and 1, or the code of a mask, which is empty for "no".
    """
    values = table[list(label_columns)]
    return values.notna() & ~values.isin([0, ""])


def list_names(names: Sequence[Any] | pd.Index) -> str:
    """List the first three names, and count the others.

    >>> list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    text = ", ".join(shorten(str(name)) for name in names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3:,} more"
    return text


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    r"""Cut the middle out of a long text; wide characters count twice.

    Control characters, and those that no installed font has, become their codes.

    >>> shorten("a_photograph_of_the_garden.jpg", 16), shorten("two\nlines")
    ('a_photog…den.jpg', 'two\\nlines')
    """
    text = "".join(map(_replace_undrawable, text))
    if _width(text) <= longest:
        return text

    while _width(text) >= longest:  # the ellipsis has a column, too
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1 :]
    return text[:middle] + "…" + text[middle:]


def _replace_undrawable(character: str) -> str:
    if ord(character) in _drawable_characters():
        return character
    return character.encode("unicode_escape").decode()


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


@cache
def _drawable_characters() -> frozenset[int]:
    """Return the printable characters that the fonts of this module's style have."""
    codes = set[int]()
    for family in STYLE["font.family"]:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        codes.update(font_manager.get_font(path).get_charmap())
    return frozenset(code for code in codes if chr(code).isprintable())


def wrap(text: str, longest: int) -> str:
    """Break a text into at most six lines of at most `longest` columns."""
    lines = list[str]()
    for line in text.splitlines():
        lines += textwrap.wrap(line, longest, break_long_words=False)
    return "\n".join(shorten(line, longest) for line in lines[:6])
