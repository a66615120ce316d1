"""List the files of INPUT_DIR once; read splits and classes, and look up names."""

import fnmatch
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from kaggle_tfr import storage
from kaggle_tfr.storage import IMAGE_NAME

# Hidden files, and those of operating systems, NAS devices and archivers.
SYSTEM_NAME = (
    r"\..*|__MACOSX|@eaDir|#recycle|\$RECYCLE\.BIN|System Volume Information"
    r"|lost\+found|__pycache__|Thumbs\.db|desktop\.ini"
)
OF_SYSTEM = re.compile(rf"(^|/)({SYSTEM_NAME})(/|$)")
# A folder outside INPUT_DIR, to which a link leads, has a "/" at its end.
IMAGE = re.compile(rf"{IMAGE_NAME.pattern}|/$")
# A folder with one of these files is a WORK_DIR or an audit.
PRODUCTS = {"images.parquet", "audit.json"}
# Names of folders that are not classes: splits, folders of all images, and masks.
SPLIT = re.compile(
    r"(?i)(.+[ _-])?(train|test|validation|valid|val|dev|evaluation|eval)(ing)?"
    r"([ _-]?(images?|imgs?|jpe?gs?|pngs?|pictures?|photos?|set|data|files|tfrecords?"
    r"|stage|v?\d{1,4}))*"
)
CONTAINER = re.compile(
    r"(?i)((jpeg|unlabell?ed)?(images?|imgs?)|photos?|pictures?|data|jpe?gs?|pngs?)"
    r"([ _-]?\d+)?|(.*[ _-])?(images?|imgs?|part|batch)[ _-]?\d+"
)
SUBJECTS = (
    "patient|subject|person|participant|specimen|animal|donor|case|slide|scene|lesion"
    "|sequence|seq|session|series|study|video|clip|burst|track|recording|rec|run|flight"
)
# Folders of one subject in a class: patient12, P-003, 0017.
SUBJECT_FOLDER = re.compile(rf"(?i)(.*({SUBJECTS})|[a-z]{{0,3}})[ _.-]*\d+")
# What the paths of masks have: masks/, or x_mask.png.
MASK = re.compile(
    r"(?i)(?<![^/])(((train|test|val)\w*[ _-])?(masks|labels|annotations|segmentations"
    r"|gt|ground[ _-]?truth)|(train|test|val)\w*[ _-]mask)/"
    r"|[ _-](masks?|segmentation|gt|label|annotation)([ _-]?\d+)?(?=\.[^/.]+$)"
)

# If more of the ids than this share their folders with files, all ids must.
ENOUGH = 0.05
MOST = 100  # files with one name, which are listed

Found = tuple[str, ...]  # the files that an id may name


@dataclass(frozen=True)
class Files:
    """The files of INPUT_DIR by their paths below it, sorted.

    folder: that was listed. images: with a "/" at the end for links to folders outside.
    others: CSVs, archives, shards, texts. outside: links out of INPUT_DIR.
    splits, classes: of the folders of images; "" for none.
    """

    folder: str
    images: Sequence[str]
    others: Sequence[str]
    outside: Collection[str]
    splits: Mapping[str, str]
    classes: Mapping[str, str]
    _named: dict[int, Mapping[str, Found]] = field(default_factory=dict)

    def split_of(self, image: str) -> str:
        """Return the split of an image by its folders, "" for none."""
        return self.splits.get(os.path.dirname(image), "")

    def is_test(self, image: str) -> bool:
        """Return whether an image is in a test folder."""
        return self.split_of(image) == "test"

    def class_of(self, image: str) -> str:
        """Return the folder of the class of an image, "" for none."""
        return self.classes.get(os.path.dirname(image), "")

    def join(self, ids: Iterable[str]) -> list[Found]:
        """Return the files of each id: none, one, or several with its name.

        ids: paths, ends of paths, names or names without ending. They may begin with
        folders that INPUT_DIR lacks.
        """
        paths = list(map(_clean, ids))
        depths = [path.count("/") + 1 for path in paths]
        found: list[Found] = [()] * len(paths)
        for n_dropped in range(max(depths, default=0)):
            for row, path in enumerate(paths):
                depth = depths[row] - n_dropped
                if depth > 0 and not found[row]:
                    found[row] = self._find(path, depth)
            # Else an id of a missing folder would get a file of its name elsewhere.
            if sum(map(bool, found)) > ENOUGH * len(found):
                break
        return found

    def _find(self, path: str, depth: int) -> Found:
        """Return the files with the last names of a path, as many names as `depth`.

        The whole path of a file comes before the end of one, and equal names before
        similar ones.
        """
        if depth not in self._named:
            self._named[depth] = _index_names([*self.images, *self.others], depth)
        end = _cut(path, depth)
        alike = self._named[depth].get(loosen(end), ())
        if len(alike) > 1:
            whole = tuple(file for file in alike if _clean(file) == end)
            equal = tuple(file for file in alike if _cut(_clean(file), depth) == end)
            return whole or equal or alike
        return alike


def _index_names(files: Iterable[str], depth: int) -> Mapping[str, Found]:
    """Return the files by the last names of their paths, in the loose form."""
    files_of: dict[str, Found] = {}
    for file in files:
        key = loosen(_cut(_clean(file), depth))
        files_of[key] = (*files_of.get(key, ()), file)[:MOST]
    return files_of


def _clean(text: str) -> str:
    """Return a path with composed letters and with slashes."""
    path = unicodedata.normalize("NFC", text).replace("\\", "/")
    return path.strip("/").removeprefix("./")


def _cut(path: str, depth: int) -> str:
    """Return the last names of a path, as many as `depth`."""
    return "/".join(path.rsplit("/", depth)[-depth:])


def list_texts(value: str | Sequence[str]) -> list[str]:
    """Return the texts of a parameter that takes one or several, none for ""."""
    listed = [value] if isinstance(value, str) else value
    return [text for text in listed if text]


def remove_ending(text: str) -> str:
    """Return a name without the ending of an image."""
    return IMAGE_NAME.sub("", text)


def loosen(text: str) -> str:
    """Return a path in lower case without ending and zeros that begin its number."""
    folders, slash, name = remove_ending(text.casefold().strip()).rpartition("/")
    if name.isdecimal():
        name = name.lstrip("0") or "0"
    return folders + slash + name


def list_files(
    folder: str,
    patterns: Sequence[str] = (),
    excluded: Iterable[str] = (),
) -> Files:
    """Return the files of a folder, without hidden ones and those of the system.

    patterns: images that match none of them are left out; "*" also matches "/".
    excluded: folders of output.
    """
    outside: set[str] = set()
    if storage.is_remote(folder):
        paths = _list_bucket(folder, excluded)
    else:
        skipped = set(map(storage.real_path, excluded))
        paths = _walk(folder, skipped, outside)
    images = sorted(filter(IMAGE.search, paths))
    others = sorted(set(paths).difference(images))
    if patterns:
        regex = "|".join(map(fnmatch.translate, patterns))
        images = list(filter(re.compile(regex).match, images))
    else:
        images = _leave_out_masks(images)
    splits, classes = read_folders(set(map(os.path.dirname, images)))
    return Files(folder, images, others, outside, splits, classes)


def _list_bucket(folder: str, excluded: Iterable[str]) -> list[str]:
    """Return the paths of all objects in a folder of a bucket."""
    outputs = {f"{output}/" for output in excluded}
    paths = []
    pending = [f"{folder}/"]
    while pending:
        parent = pending.pop()
        for name in storage.list_names(parent):
            address = parent + name
            if address in outputs or OF_SYSTEM.search(name):
                continue
            if name.endswith("/"):
                pending.append(address)
            else:
                paths.append(address.removeprefix(f"{folder}/"))
    return paths


def _walk(folder: str, skipped: set[str], outside: set[str]) -> list[str]:
    """Return the paths of all files; add to `outside` the links that lead out.

    A link to a folder in INPUT_DIR is left out, since that is listed anyway.
    """
    root = storage.real_path(folder)
    paths = []
    pending = [""]
    while pending:
        parent = pending.pop()
        with os.scandir(os.path.join(root, parent)) as entries:
            visible = [entry for entry in entries if not OF_SYSTEM.search(entry.name)]
        if parent and not PRODUCTS.isdisjoint(entry.name for entry in visible):
            continue
        for entry in visible:
            path = os.path.join(parent, entry.name)
            name = storage.escape(path)
            # Only a link needs a request of its own, which is slow on a network.
            if entry.is_symlink():
                is_folder = os.path.isdir(entry.path)
                if not storage.is_inside(entry.path, root):
                    name = f"{name}/" if is_folder else name
                    outside.add(name)
                elif is_folder:
                    continue
                paths.append(name)
            elif not entry.is_dir():
                paths.append(name)
            elif entry.path not in skipped:
                pending.append(path)
    return paths


def _leave_out_masks(images: Sequence[str]) -> list[str]:
    """Return the images that are not masks of other images; print how many are.

    Masks are called like another image and "_mask", or are in a folder such as masks/
    and called like an image elsewhere.
    """
    stems = set(map(_read_stem, filterfalse(MASK.search, images)))
    masks = [
        image
        for image in filter(MASK.search, images)
        if _read_stem(MASK.sub("", image)) in stems
    ]
    if masks:
        print(
            f"{len(masks):,} files are called like masks, such as '{masks[0]}', and "
            'are left out. PATTERN: "*" reads them, too.'
        )
    return sorted(set(images).difference(masks))


def _read_stem(image: str) -> str:
    """Return the name of an image without folders and ending."""
    return remove_ending(os.path.basename(image))


def is_generic(folder: str) -> bool:
    """Return whether a folder's name is that of a split or a folder of all images."""
    return bool(SPLIT.fullmatch(folder) or CONTAINER.fullmatch(folder))


def name_split(word: str) -> str:
    """Return the split that a word means, "" for none.

    The names of validation splits stay, because output files use them.

    >>> name_split("Test_images"), name_split("stage_1_train"), name_split("val2017")
    ('test', 'train', 'val')
    >>> name_split("evaluation"), name_split("testosterone")
    ('validation', '')
    """
    match = SPLIT.fullmatch(word.strip().lower())
    split = match[2] if match else ""
    return "validation" if split.startswith("eval") else split


def read_folders(folders: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the split and the class of each folder of images, "" for none.

    The folders in a folder are classes unless at least half of them are called like
    splits, like folders of all images or, in a class, like subjects.
    """
    children = _list_children(folders)
    splits = {"": ""}
    classes = {"": ""}
    # A folder comes after the one above it.
    for parent in sorted(children):
        names = children[parent]
        generic = set(filter(is_generic, names))
        if classes[parent] and len(children[os.path.dirname(parent)]) > 1:
            generic.update(filter(SUBJECT_FOLDER.fullmatch, names))
        are_classes = 2 * len(generic) < len(names)
        for name in names:
            folder = os.path.join(parent, name)
            split = name_split(name)
            # A class can be called train, but hardly test.
            is_class = are_classes and split in ("", "train")
            splits[folder] = splits[parent] or ("" if is_class else split)
            classes[folder] = name if is_class else classes[parent]
    return splits, classes


def _list_children(folders: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of the folders in each folder."""
    children = defaultdict[str, set[str]](set)
    for folder in folders:
        above = folder
        while above:
            above, name = os.path.split(above)
            children[above].add(name)
    return children


def check_images(files: Files) -> None:
    """Raise a FileNotFoundError if there are no images."""
    if not files.images:
        raise FileNotFoundError(
            f"{files.folder!r} has no image that can be used. Set INPUT_DIR to a "
            f"folder of images, or unpack archives among its files: {files.others[:5]}."
        )


def explain_unreadable(error: OSError) -> str:
    """Return the problem of an image or shard that cannot be read.

    Raises: OSError: the input may be good, but its bucket does not answer, or the disk
    for copies of shards in GZIP is full.
    """
    if isinstance(error, TimeoutError) or error.errno in storage.NO_SPACE:
        raise error
    if isinstance(error, FileNotFoundError):
        return "missing file"
    return f"unreadable: {error.strerror or error}"
