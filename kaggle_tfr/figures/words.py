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


def count_of(number: int, noun: str, ending: str = "s") -> str:
    """Format a number with its noun in the singular or plural.

    >>> count_of(1, "pair"), count_of(4317, "pair"), count_of(2, "class", "es")
    ('1 pair', '4,317 pairs', '2 classes')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def count_classes(label_names: pd.Series, label_columns: Sequence[str] = ()) -> str:
    """Count the classes of images, or their labels and the combinations of them.

    >>> count_classes(pd.Series(["cat", "dog", ""]))
    '2 classes'
    >>> count_classes(pd.Series(["cat|dog", "dog", ""]), ["cat", "dog"])
    '2 labels in 3 combinations'
    """
    if label_columns:
        combinations = count_of(label_names.nunique(), "combination")
        return f"{count_of(len(label_columns), 'label')} in {combinations}"

    named = label_names[label_names != ""]
    return count_of(named.nunique(), "class", "es")


def list_marks(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Return which labels each image has: bool, one column per label.

    A label column holds 0 and 1, or the code of a mask, which is empty for "no".
    """
    values = table[list(label_columns)]
    return values.notna() & ~values.isin([0, ""])


def count_drawn(number: int, noun: str, most: int = 12) -> str:
    """Format a number of examples, of which a figure shows `most`.

    >>> count_drawn(9, "pair"), count_drawn(15, "pair")
    ('9 pairs', '15 pairs (12 shown)')
    """
    text = count_of(number, noun)
    return f"{text} ({most} shown)" if number > most else text


def list_names(names: Sequence[Any] | pd.Index) -> str:
    """List the first three names, and count the others.

    >>> list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    text = ", ".join(shorten(str(name)) for name in names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3:,} more"
    return text


def join_words(words: Sequence[str]) -> str:
    """Join words by commas and "and".

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


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
