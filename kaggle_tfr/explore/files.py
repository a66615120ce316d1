"""List the files of INPUT_DIR once, and read splits and classes from their folders."""

import fnmatch
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import filterfalse

from kaggle_tfr import storage
from kaggle_tfr.explore.names import FileNames
from kaggle_tfr.find import PRODUCTS
from kaggle_tfr.storage import IMAGE_NAME

# Hidden files, and those of operating systems, NAS devices and archivers.
SYSTEM_NAME = re.compile(
    r"\..*|__MACOSX|@eaDir|#recycle|\$RECYCLE\.BIN|System Volume Information"
    r"|lost\+found|__pycache__|Thumbs\.db|desktop\.ini"
)
OF_SYSTEM = re.compile(rf"(^|/)({SYSTEM_NAME.pattern})(/|$)")
# If there are no other images, or PATTERN chooses them, files without an ending count.
IMAGE_OR_PLAIN = re.compile(rf"{IMAGE_NAME.pattern}|(^|/)[^/.]+$")
BUCKET_LEVELS = 6
ARCHIVE = re.compile(r"(?i)\.(zip|tar|tgz|gz|7z|rar)$")
# Names of folders that are not classes: splits, folders of all images, and masks.
SPLIT = re.compile(
    r"(?i)(.+[ _-])?(train|test|valid|val|dev|eval)(ing|ation|uation)?"
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
MASK_FOLDER = re.compile(
    r"(?i)(^|/)(((train|test|val)\w*[ _-])?(masks|labels|annotations|segmentations|gt"
    r"|ground[ _-]?truth)|(train|test|val)\w*[ _-]mask)(/|$)"
)
MASK_NAME = re.compile(
    r"(?i)(.+?)[ _-](masks?|segmentation|gt|label|annotation)([ _-]?\d+)?"
)
APART = "/"  # the class of folders beside those of splits
MASK_WORDS = ("mask", "segment", "gt", "truth", "label", "annot")


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

    @cached_property
    def names(self) -> FileNames:
        """The names of images, then of others, in which ids are looked up.

        An id can name an image that is not called so.
        """
        return FileNames([*self.images, *self.others])

    def split_of(self, image: str) -> str:
        """Return the split of an image by its folders, "" for none."""
        return self.splits.get(image.rpartition("/")[0], "")

    def class_of(self, image: str) -> str:
        """Return the folder of the class of an image, "" for none."""
        return self.classes.get(image.rpartition("/")[0], "")


def list_files(
    folder: str,
    patterns: Sequence[str] = (),
    excluded: Iterable[str] = (),
    products: Iterable[str] = PRODUCTS,
) -> Files:
    """Return the files of a folder, without hidden ones and those of the system.

    patterns: images that match none of them are left out; "*" also matches "/".
    excluded: folders of output. products: files whose folder is left out.
    """
    outside = set[str]()
    if storage.is_remote(folder):
        found = list[str]()
        for level in range(BUCKET_LEVELS):
            found += storage.list_files("*/" * level + "*", folder)
        outputs = tuple(f"{output}/" for output in excluded)
        inputs = [path for path in found if not path.startswith(outputs)]
        paths = [path.removeprefix(f"{folder}/") for path in inputs]
        paths = list(filterfalse(OF_SYSTEM.search, paths))
    else:
        skipped = set(map(storage.real_path, excluded))
        paths = _walk(folder, skipped, set(products), outside)
    is_image = IMAGE_NAME.search
    if patterns or not any(map(is_image, paths)):
        is_image = IMAGE_OR_PLAIN.search
    images = sorted(filter(is_image, paths))
    others = sorted(filterfalse(is_image, paths))
    masks = list[str]()
    if patterns:
        matches = (fnmatch.filter(images, pattern) for pattern in patterns)
        images = sorted(set().union(*matches))
    elif any(map("/".join(images).lower().count, MASK_WORDS)):  # which is fast
        masks = _find_masks(images)
        images = sorted(set(images).difference(masks))
    splits, classes = read_folders({image.rpartition("/")[0] for image in images})
    return Files(images, others, masks, outside, splits, classes, folder)


def _walk(
    folder: str, skipped: set[str], products: set[str], outside: set[str]
) -> list[str]:
    """Return the paths of all files; add to `outside` those that links lead out to.

    A link to a folder in INPUT_DIR is not followed, since that is listed anyway.
    """
    root = storage.real_path(folder)
    paths = []
    pending = [("", False)]
    while pending:
        parent, is_outside = pending.pop()
        with os.scandir(os.path.join(root, parent)) as entries:
            visible = [e for e in entries if not SYSTEM_NAME.fullmatch(e.name)]
        if parent and products.intersection(entry.name for entry in visible):
            continue
        for entry in visible:
            path = os.path.join(parent, entry.name)
            is_link = entry.is_symlink()
            leads_out = is_link and not storage.is_inside(entry.path, root)
            # Only a link needs a request of its own, which is slow on a network.
            is_folder = os.path.isdir(entry.path) if is_link else entry.is_dir()
            if not is_folder:
                paths.append(storage.escape(path))
                if leads_out or is_outside:
                    outside.add(paths[-1])
            elif entry.path in skipped or (is_link and (is_outside or not leads_out)):
                continue
            else:
                pending.append((path, is_outside or leads_out))
    return paths


def _find_masks(images: Sequence[str]) -> list[str]:
    """Return the images that are masks of other images.

    They are called like an image beside them and "_mask", or are in a folder such as
    masks/ and called like an image elsewhere.
    """
    stem_of = {image: os.path.splitext(image)[0] for image in images}
    stems = set(stem_of.values())
    in_masks = {stem for stem in stems if MASK_FOLDER.search(os.path.dirname(stem))}
    names = set(map(os.path.basename, stems - in_masks))
    masks = []
    for image, stem in stem_of.items():
        match = MASK_NAME.fullmatch(stem)
        of_image = match[1] if match else stem
        is_beside = match is not None and of_image in stems
        if is_beside or (stem in in_masks and os.path.basename(of_image) in names):
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
    match = SPLIT.fullmatch(word.strip().lower())
    if not match:
        return ""
    split = match[2]
    is_full = split == "eval" or match[3] == "ation"
    return "validation" if is_full else split


def read_folders(folders: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the split and the class of each folder of images, "" for none.

    A name such as "train" or "images" is not a class, unless most folders beside it
    have other names. The class is the last name that is left, below the split.
    """
    children = defaultdict[str, set[str]](set)
    pending = set(folders)
    while pending:
        parent, _, name = pending.pop().rpartition("/")
        if name:
            children[parent].add(name)
            pending.add(parent)
    splits = {"": ""}
    classes = {"": ""}
    # A folder comes after the one above it.
    for parent in sorted(children):
        names = children[parent]
        is_split_up = len(set(map(name_split, names)) - {""}) > 1
        generic = {n for n in names if is_generic(n) or MASK_FOLDER.search(n)}
        is_one_of_several = len(children[os.path.dirname(parent)]) > 1
        if classes[parent] and is_one_of_several:
            generic.update(filter(SUBJECT_FOLDER.fullmatch, names))
        is_usual = is_split_up or 2 * len(generic) >= len(names)
        for name in names:
            folder = f"{parent}/{name}".lstrip("/")
            split = name_split(name)
            # A class can be called train, but hardly test.
            is_class = name not in generic or (not is_usual and split in ("", "train"))
            split = "" if is_class else split
            splits[folder] = splits[parent] or split
            classes[folder] = name if is_class else classes[parent]
            # What is beside the splits is no class, such as seg_pred.
            is_apart = classes[parent] == APART or (is_split_up and is_class)
            if is_apart and not splits[folder]:
                classes[folder] = APART
            elif split and not splits[parent]:
                classes[folder] = ""
    return splits, {folder: name.strip("/") for folder, name in classes.items()}


def check_images(files: Files) -> None:
    """Raise a FileNotFoundError if there are no images."""
    if not files.images:
        archive = next(filter(ARCHIVE.search, files.others), "")
        advice = "Set INPUT_DIR to their folder."
        if archive:
            advice = f"Unpack {archive} first."
        raise FileNotFoundError(
            f"{files.folder!r} has no image that can be used, but files such as "
            f"{files.others[:5]}. {advice}"
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


def check_link(path: str, input_dir: str, parameter: str) -> None:
    """Raise a ValueError for a link in INPUT_DIR to a file outside it."""
    is_named_inside = not storage.OUTSIDE.search(os.path.relpath(path, input_dir))
    if is_named_inside and not storage.is_inside(path, input_dir):
        raise ValueError(
            f"{parameter} '{path}' is a link that leads outside INPUT_DIR. Set "
            f"{parameter} to the path of the file itself, or copy it into INPUT_DIR."
        )
