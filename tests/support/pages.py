"""Pages as a browser reads them, and names that try to be more than text."""

from html.parser import HTMLParser

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "</td></table><!--",
    "--><p onclick='alert(1)'>",
    "$\\href{javascript:alert(1)}{a}$",
    "\"'>&amp;",
)


class Elements(HTMLParser):
    """The elements of a page with their attributes' names, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.texts, self.comments = [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data):
        self.texts += data

    def handle_comment(self, data):
        self.comments.append(data)
