"""Join ids to files by their names, whatever folders, endings and case they have."""

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from kaggle_tfr.storage import IMAGE_NAME

NOT_FOUND = -1
AMBIGUOUS = -2  # several files have the name
# If more of the ids than this share their folders with files, all ids must.
ENOUGH = 0.05


class FileNames:
    """The names of files, in which ids are looked up.

    files: unique paths below INPUT_DIR.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.paths = list(map(_clean, files))
        self._positions: dict[int, dict[str, int]] = {}

    def find_position(self, depth: int) -> dict[str, int]:
        """Return the position of each loose name of `depth` folders and file."""
        if depth not in self._positions:
            ends = (_cut(path, depth) for path in self.paths)
            self._positions[depth] = _number(map(loosen, ends))
        return self._positions[depth]


def join_names(ids: Iterable[str], files: FileNames | Iterable[str]) -> np.ndarray:
    """Return int (n,): the position of the file of each id, `NOT_FOUND` or `AMBIGUOUS`.

    ids: paths, ends of paths, names or names without ending. They may begin with
    folders that INPUT_DIR lacks.
    """
    names = files if isinstance(files, FileNames) else FileNames(files)
    # An array of texts of pandas is slow to walk.
    id_paths = list(map(_clean, np.asarray(ids, object)))
    found = np.full(len(id_paths), NOT_FOUND)
    n_names = np.array([1 + path.count("/") for path in id_paths], int)
    for n_dropped in range(n_names.max(initial=0)):
        depths = n_names - n_dropped
        for depth in set(depths[depths > 0].tolist()):
            rows = np.flatnonzero((depths == depth) & (found == NOT_FOUND))
            ends = [_cut(id_paths[row], depth) for row in rows.tolist()]
            found[rows] = _join_ends(ends, names, depth)
        # Else an id of a missing folder would get a file of the same name elsewhere.
        if (found != NOT_FOUND).sum() > ENOUGH * len(id_paths):
            break
    return found


def _clean(text: str) -> str:
    """Return a path with composed letters and with slashes."""
    path = unicodedata.normalize("NFC", text).replace("\\", "/")
    return path.lstrip("/").removeprefix("./")


def _cut(path: str, depth: int) -> str:
    """Return the last names of a path, as many as `depth`."""
    if path.count("/") < depth:  # as most ids
        return path
    return "/".join(path.rsplit("/", depth)[-depth:])


def _join_ends(ids: Sequence[str], names: FileNames, depth: int) -> np.ndarray:
    """Return the positions of the ids by the last `depth` names of the files' paths."""
    position_of = names.find_position(depth)
    id_keys = list(map(loosen, ids))
    found = np.array([position_of.get(key, NOT_FOUND) for key in id_keys], int)

    tied = np.flatnonzero(found == AMBIGUOUS).tolist()
    if not tied:
        return found
    tied_keys = {id_keys[row] for row in tied}
    ends = [_cut(path, depth) for path in names.paths]
    alike = [place for place, end in enumerate(ends) if loosen(end) in tied_keys]
    paths = [names.paths[place] for place in alike]
    ends = [ends[place] for place in alike]
    # Of several files with the loose name, the only one in one of these forms counts.
    forms = ((str, paths), (str, ends), (_fold, ends), (remove_ending, ends))
    for form, keys in forms:
        position_of = _number(map(form, keys))
        for row in tied:
            position = position_of.get(form(ids[row]), NOT_FOUND)
            if position >= 0 and found[row] == AMBIGUOUS:
                found[row] = alike[position]
    return found


def _number(keys: Iterable[str]) -> dict[str, int]:
    """Return the position of each key, `AMBIGUOUS` for a repeated one."""
    positions: dict[str, int] = {}
    for position, key in enumerate(keys):
        if positions.setdefault(key, position) != position:
            positions[key] = AMBIGUOUS
    return positions


def _fold(text: str) -> str:
    return text.casefold().strip()


def remove_ending(text: str) -> str:
    """Return a name without the ending of an image."""
    return IMAGE_NAME.sub("", text)


def loosen(text: str) -> str:
    """Return a path in lower case without ending and zeros that begin its number."""
    # Not by the functions above: for millions of names, their calls take a second.
    folded = IMAGE_NAME.sub("", text.casefold().strip())
    folders, slash, name = folded.rpartition("/")
    if name.isdecimal():
        name = name.lstrip("0") or "0"
    return folders + slash + name
