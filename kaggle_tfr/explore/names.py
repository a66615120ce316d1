"""Join ids to files by their names, whatever folders, endings and case they have."""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

from kaggle_tfr.storage import IMAGE_NAME

# If more of the ids than this share their folders with files, all ids must.
ENOUGH = 0.05
WHOLE = 1_000  # more names than a path has
MOST = 100  # files with one name, which are listed

Found = tuple[str, ...]  # the files that an id may name


class FileNames:
    """The names of files, in which ids are looked up.

    files: unique paths below INPUT_DIR.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._paths = {file: _clean(file) for file in files}
        self._files_of = cache(self._list_files)

    def join(self, ids: Iterable[str]) -> list[Found]:
        """Return the files of each id: none, one, or several with its name.

        ids: paths, ends of paths, names or names without ending. They may begin with
        folders that INPUT_DIR lacks.
        """
        paths = list(map(_clean, ids))
        found: list[Found] = [()] * len(paths)
        n_folders = max((path.count("/") for path in paths), default=0)
        for n_dropped in range(n_folders + 1):
            for row, path in enumerate(paths):
                depth = path.count("/") + 1 - n_dropped
                if depth > 0 and not found[row]:
                    found[row] = self._find(_cut(path, depth), depth)
            # Else an id of a missing folder would get a file of its name elsewhere.
            if sum(map(bool, found)) > ENOUGH * len(found):
                break
        return found

    def _find(self, end: str, depth: int) -> Found:
        """Return the files with these last names, as many names as `depth`.

        The whole path of a file comes before the end of one, and equal names before
        similar ones.
        """
        for n_names, form in ((WHOLE, str), (depth, str), (depth, loosen)):
            files = self._files_of(n_names, form).get(form(end))
            if files:
                return files
        return ()

    def _list_files(self, depth: int, form: Callable) -> dict[str, Found]:
        """Return the files by a form of the last names of their paths."""
        files_of: dict[str, Found] = {}
        for file, path in self._paths.items():
            key = form(_cut(path, depth))
            files_of[key] = (*files_of.get(key, ()), file)[:MOST]
        return files_of


def _clean(text: str) -> str:
    """Return a path with composed letters and with slashes."""
    path = unicodedata.normalize("NFC", text).replace("\\", "/")
    return path.strip("/").removeprefix("./")


def _cut(path: str, depth: int) -> str:
    """Return the last names of a path, as many as `depth`."""
    return "/".join(path.rsplit("/", depth)[-depth:])


def remove_ending(text: str) -> str:
    """Return a name without the ending of an image."""
    return IMAGE_NAME.sub("", text)


def loosen(text: str) -> str:
    """Return a path in lower case without ending and zeros that begin its number."""
    folders, slash, name = remove_ending(text.casefold().strip()).rpartition("/")
    if name.isdecimal():
        name = name.lstrip("0") or "0"
    return folders + slash + name
