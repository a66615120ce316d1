"""Tables as HTML with every text escaped, and numbers with units."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from html.parser import HTMLParser
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

# The elements of a table. Every other element of a notebook's output is left out.
ELEMENTS = {"table", "thead", "tbody", "tr", "th", "td"}
UNSEEN = {"script", "style"}  # a browser does not show their content
NO_MATH = ("display.html.use_mathjax", False)  # "$" in a name is not a formula


class Table:
    """A table that a notebook shows as HTML, and a terminal as text."""

    def __init__(self, html: Markup, text: str) -> None:
        self.html = html
        self.text = text

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
    options: Any = {"index": index, "formatters": formatters, "na_rep": "–"}
    with pd.option_context(*NO_MATH):
        html = table.to_html(escape=True, border=0, **options)
    return Table(Markup(html), table.to_string(**options))  # noqa: S704


def clean_table(html: str, change: Callable[[str], str] = str) -> Markup:
    """Return the tables of foreign HTML, their texts changed and escaped.

    Attributes are left out, except how many rows or columns a cell spans.
    """
    cleaner = _TableCleaner(change)
    cleaner.feed(html)
    cleaner.close()
    cleaner.end_text()
    return Markup().join(cleaner.pieces)


class _TableCleaner(HTMLParser):
    def __init__(self, change: Callable[[str], str]) -> None:
        super().__init__(convert_charrefs=True)
        self.change = change
        self.pieces = list[Markup]()
        self.text = ""  # of one cell, which may come in several calls
        self.unseen = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self.unseen = tag
        if tag not in ELEMENTS:
            return
        self.end_text()
        spans = Markup()
        for name, value in attrs:
            is_number = re.fullmatch(r"[0-9]{1,6}", value or "")
            if name in ("rowspan", "colspan") and is_number:
                spans += Markup(' {}="{}"').format(name, value)
        self.pieces.append(Markup("<{}{}>").format(tag, spans))

    def handle_endtag(self, tag: str) -> None:
        if tag == self.unseen:
            self.unseen = ""
        if tag in ELEMENTS:
            self.end_text()
            self.pieces.append(Markup("</{}>").format(tag))

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            self.text += data

    def end_text(self) -> None:
        self.pieces.append(escape(self.change(self.text)))
        self.text = ""


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
    return f"{value:.2g} {[*units][-1]}"


format_bytes = partial(
    format_unit, units={"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1}
)
format_seconds = partial(format_unit, units={"h": 3600, "min": 60, "s": 1})
