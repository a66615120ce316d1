"""List the files of INPUT_DIR once, and read splits and classes from their folders."""

import fnmatch
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kaggle_tfr import storage
from kaggle_tfr.explore.names import FileNames
from kaggle_tfr.mounts import PRODUCTS

# Written by operating systems, NAS devices and archivers beside the user's own files.
SYSTEM_NAMES = {
    "__MACOSX",
    "@eaDir",
    "#recycle",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "__pycache__",
    "Thumbs.db",
    "desktop.ini",
}
BUCKET_LEVELS = 6
ARCHIVE = re.compile(r"(?i)\.(zip|tar|tgz|gz|7z|rar)$")
# Names of folders that are not classes: splits, folders of all images, and masks.
SPLIT = re.compile(
    r"(?i)(?P<prefix>(.+[ _-])?)(?P<word>train|test|valid|val|dev|eval)"
    r"(?P<ending>ing|ation|uation)?"
    r"([ _-]?(images?|imgs?|jpe?gs?|pngs?|photos?|set|data|files|tfrecords?|stage"
    r"|v?\d{1,4}))*"
)
CONTAINER = re.compile(
    r"(?i)((jpeg|unlabell?ed)?(images?|imgs?)|photos?|pictures?|data|jpe?gs?|pngs?)"
    r"([ _-]?\d+)?|(.*[ _-])?(images?|imgs?|part|batch)[ _-]?\d+"
)
MASK_FOLDER = re.compile(
    r"(?i)(.*[ _-])?(masks?|labels?|annotations?|segmentations?|gt|ground[ _-]?truth)"
)
MASK_NAME = re.compile(
    r"(?i)(.+?)[ _-](masks?|segmentation|gt|label|annotation)([ _-]?\d+)?"
)
MASK_WORD = re.compile(r"(?i)mask|segment|gt|truth|label|annot")


@dataclass(frozen=True)
class Files:
    """The files of INPUT_DIR by their paths below it, sorted.

    others: CSVs, archives, shards, texts. masks: images that are left out as masks.
    outside: images that links lead to, out of INPUT_DIR.
    splits, classes: of the folders of images; "" for none. folder: that was listed.
    """

    images: Sequence[str]
    others: Sequence[str]
    masks: Sequence[str] = ()
    outside: Collection[str] = ()
    splits: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def has_no_names(self) -> bool:
        """Whether no file has the name of an image."""
        return not any(map(storage.IMAGE_NAME.search, self.images))

    @cached_property
    def names(self) -> FileNames:
        """The names of the images, in which ids are looked up."""
        return FileNames(self.images)

    def split_of(self, image: str) -> str:
        """Return the split of an image by its folders, "" for none."""
        return self.splits.get(os.path.dirname(image), "")

    def class_of(self, image: str) -> str:
        """Return the folder of the class of an image, "" for none."""
        return self.classes.get(os.path.dirname(image), "")


def list_files(
    input_dir: str,
    patterns: Sequence[str] = (),
    excluded: Iterable[str] = (),
    *,
    with_products: bool = False,
) -> Files:
    """Return the files of a folder, without hidden ones and those of the system.

    patterns: images that match none of them are left out; "*" also matches "/".
    excluded: folders of output. with_products: list what kaggle-tfr wrote, too.
    """
    outside = set[str]()
    if storage.is_remote(input_dir):
        paths = _list_bucket(input_dir)
    else:
        skipped = set(map(storage.real_path, excluded))
        products = () if with_products else PRODUCTS
        paths = _walk(input_dir, skipped, products, outside)
    paths.sort()
    images = [path for path in paths if storage.IMAGE_NAME.search(path)]
    if not images or patterns:
        # Files without an ending can be images, too.
        images = [path for path in paths if _may_be_image(path)]
    others = sorted(set(paths).difference(images))

    masks: list[str] = []
    if patterns:
        matches = (fnmatch.filter(images, pattern) for pattern in patterns)
        images = sorted(set().union(*matches))
    else:
        masks = _find_masks(images)
        images = sorted(set(images).difference(masks))
    splits, classes = read_folders(map(os.path.dirname, images))
    return Files(images, others, masks, outside, splits, classes, input_dir)


def _may_be_image(path: str) -> bool:
    """Return whether a file has the ending of an image, or none."""
    _, ending = os.path.splitext(path)
    return not ending or storage.IMAGE_NAME.search(path) is not None


def _list_bucket(input_dir: str) -> list[str]:
    """Return the paths of the objects below an address."""
    paths = []
    for level in range(BUCKET_LEVELS):
        for address in storage.list_files("*/" * level + "*", input_dir):
            path = address.removeprefix(f"{input_dir}/")
            if not any(name[0] == "." for name in path.split("/")):
                paths.append(path)
    return paths


def _walk(
    input_dir: str,
    skipped: Collection[str],
    products: Iterable[str],
    outside: set[str],
) -> list[str]:
    """Return the paths of all files; add to `outside` those that links lead out to.

    skipped: real paths of folders. products: names of files whose folder is skipped.
    A link to a folder in INPUT_DIR is not followed, since that is listed anyway.
    """
    root = storage.real_path(input_dir)
    paths = []
    pending = [("", False)]
    while pending:
        folder, is_outside = pending.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            visible = [
                entry
                for entry in entries
                if entry.name[0] != "." and entry.name not in SYSTEM_NAMES
            ]
        if folder and not {entry.name for entry in visible}.isdisjoint(products):
            continue
        for entry in visible:
            path = os.path.join(folder, entry.name)
            is_link = entry.is_symlink()
            leads_out = is_link and not storage.is_inside(entry.path, root)
            if not os.path.isdir(entry.path):
                paths.append(storage.escape(path))
                if leads_out or is_outside:
                    outside.add(storage.escape(path))
            elif not is_link or (leads_out and not is_outside):
                if entry.path not in skipped:
                    pending.append((path, is_outside or leads_out))
    return paths


def _find_masks(images: Sequence[str]) -> list[str]:
    """Return the images that are masks of other images.

    They are called like an image beside them and "_mask", or have the same place in a
    folder masks/ as an image in a folder that is not a class, such as images/.
    """
    if not MASK_WORD.search("/".join(images)):
        return []
    stems = [os.path.splitext(image)[0] for image in images]
    known = set(stems)
    in_folders = set[str]()
    for stem in stems:
        names = stem.split("/")
        if any(map(MASK_FOLDER.fullmatch, names[:-1])):
            continue
        for depth, name in enumerate(["", *names[:-1]]):
            if is_generic(name):
                in_folders.add("/".join(names[depth:]))
    masks = []
    for image, stem in zip(images, stems, strict=True):
        match = MASK_NAME.fullmatch(stem)
        of_image = match[1] if match else stem
        names = of_image.split("/")
        is_mask = match is not None and of_image in known
        depths = [
            n for n, name in enumerate(names[:-1], 1) if MASK_FOLDER.fullmatch(name)
        ]
        for depth in range(*depths[:1], len(names) if depths else 0):
            is_mask |= "/".join(names[depth:]) in in_folders
        if is_mask:
            masks.append(image)
    return masks


def is_generic(folder: str) -> bool:
    """Return whether a folder's name is that of a split or a folder of all images.

    The name of INPUT_DIR itself is "".
    """
    return not folder or bool(SPLIT.fullmatch(folder) or CONTAINER.fullmatch(folder))


def name_split(word: str) -> str:
    """Return the split that a word means, "" for none.

    The names of validation splits stay, because output files use them.

    >>> name_split("Test_images"), name_split("stage_1_train"), name_split("val2017")
    ('test', 'train', 'val')
    >>> name_split("evaluation"), name_split("testosterone")
    ('validation', '')
    """
    match = SPLIT.fullmatch(word.strip())
    if not match:
        return ""
    split = match["word"].lower()
    is_full = split == "eval" or (match["ending"] or "").lower() == "ation"
    return "validation" if is_full else split


def read_folders(folders: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the split and the class of each folder of images, "" for none.

    A name such as "train" or "images" is not a class, unless most folders beside it
    have other names. The class is the last name that is left, below the split.
    """
    children = defaultdict[str, set[str]](set)
    listed = set(folders)
    for folder in listed:
        while folder:
            parent, _, name = folder.rpartition("/")
            children[parent].add(name)
            folder = parent
    splits = {"": ""}
    classes = {"": ""}
    apart = set[str]()  # folders without classes, such as seg_pred beside seg_train
    # A folder comes after the one above it.
    for parent in sorted(children):
        generic, is_split_up = _choose_generic(children[parent])
        for name in children[parent]:
            folder = f"{parent}/{name}".lstrip("/")
            split = name_split(name) if name in generic else ""
            splits[folder] = splits[parent] or split
            classes[folder] = classes[parent] if name in generic else name
            if not splits[folder] and (parent in apart or is_split_up):
                apart.add(folder)
            if folder in apart or (split and not splits[parent]):
                classes[folder] = ""
    return splits, classes


def _choose_generic(names: Collection[str]) -> tuple[set[str], bool]:
    """Return the names of folders beside each other that are not classes.

    Also whether they are of several splits.
    """
    is_split_up = len(set(map(name_split, names)) - {""}) > 1
    generic = {
        name for name in names if is_generic(name) or MASK_FOLDER.fullmatch(name)
    }
    is_usual = is_split_up or 2 * len(generic) >= len(names)
    return generic if is_usual else set(), is_split_up


def check_images(files: Files, input_dir: str) -> None:
    """Raise a FileNotFoundError if there are no images."""
    if files.images:
        return
    archives = [name for name in files.others if ARCHIVE.search(name)]
    advice = "Set INPUT_DIR to the folder that contains the images or their folders."
    if archives:
        advice = f"Unpack {archives[0]} first."
    found = ", ".join(files.others[:5]) or "none"
    raise FileNotFoundError(
        f"'{storage.escape(input_dir)}' has no image that can be used. Files found: "
        f"{found}. {advice}"
    )


def explain_unreadable(error: OSError) -> str:
    """Return the problem of an image or shard that cannot be read.

    Raises: OSError: the input may be good, but its bucket does not answer, or the disk
    of the work folder, which keeps the indexes of shards, is full.
    """
    if isinstance(error, TimeoutError) or error.errno in storage.NO_SPACE:
        raise error
    if isinstance(error, FileNotFoundError):
        return "missing file"
    return f"unreadable: {error.strerror or error}"


def check_link(path: str, input_dir: str, parameter: str) -> None:
    """Raise a ValueError for a link in INPUT_DIR to a file outside it."""
    below = os.path.relpath(path, input_dir)
    is_named_outside = storage.is_remote(path) or storage.OUTSIDE.search(below)
    if not is_named_outside and not storage.is_inside(path, input_dir):
        raise ValueError(
            f"{parameter} '{path}' is a link that leads outside INPUT_DIR. Set "
            f"{parameter} to the path of the file itself, or copy it into INPUT_DIR."
        )
