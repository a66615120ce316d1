"""Names and texts in figures, in one line each."""

LONGEST_NAME = 40  # characters of a class name beside bars


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    r"""Return a text in one line; if it is too long, without its middle.

    Control characters become their codes.
    longest: number of characters.

    >>> shorten("a_photograph_of_the_garden.jpg", 16), shorten("two\nlines")
    ('a_photog…den.jpg', 'two\\nlines')
    """
    if not text.isprintable():
        text = text.encode("unicode_escape").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return text[: longest - half] + "…" + text[len(text) - half + 1 :]
