"""Names and texts in figures, in one line each."""

from unicodedata import east_asian_width

LONGEST_NAME = 40  # characters of a class name beside bars


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    r"""Return a text in one line; if it is too long, without its middle.

    Control characters become their codes.
    longest: number of characters; wide ones, such as Chinese, count twice.

    >>> shorten("a_photograph_of_the_garden.jpg", 16), shorten("two\nlines")
    ('a_photog…den.jpg', 'two\\nlines')
    """
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    if _width(text) <= longest:
        return text

    while _width(text) >= longest:  # the ellipsis has a column, too
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1 :]
    return text[:middle] + "…" + text[middle:]


def _width(text: str) -> int:
    """Return the number of characters; wide ones, such as Chinese, count twice."""
    # W and F: wide and full-width, in Unicode's table.
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)
