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
OF_SYSTEM = re.compile(
    r"(^|/)(\..*|__MACOSX|@eaDir|#recycle|\$RECYCLE\.BIN|System Volume Information"
    r"|lost\+found|__pycache__|Thumbs\.db|desktop\.ini)(/|$)"
)
# A folder outside INPUT_DIR, to which a link leads, has a "/" at its end.
IMAGE = re.compile(rf"{IMAGE_NAME.pattern}|/$")
# A folder with one of these files is a WORK_DIR or an audit.
PRODUCTS = {"images.parquet", "audit.json"}
# Zeros in front of a name that is a number.
ZEROS = re.compile(r"(?<![^/])0+(?=\d+\Z)")
# Names of folders that are not classes: splits, folders of all images, and masks.
SPLIT = (
    r"(.+[ _-])?(train|test|pred|validation|valid|val|dev|evaluation|eval)(ing)?"
    r"([ _-]?(images?|imgs?|jpe?gs?|pngs?|pictures?|photos?|set|data|files|tfrecords?"
    r"|stage|v?\d{1,4}))*"
)
CONTAINER = (
    r"((jpeg|unlabell?ed)?(images?|imgs?)|photos?|pictures?|data|jpe?gs?|pngs?)"
    r"([ _-]?\d+)?|(.*[ _-])?(images?|imgs?|part|batch)[ _-]?\d+"
)
GENERIC = re.compile(rf"(?i){SPLIT}|{CONTAINER}")
SUBJECTS = (
    "patient|subject|person|participant|specimen|animal|donor|case|slide|scene|lesion"
    "|sequence|seq|session|series|study|video|clip|burst|track|recording|rec|run|flight"
)
# In a class, folders of one subject are not classes either: patient12, P-003, 0017.
IN_CLASS = re.compile(rf"{GENERIC.pattern}|(.*({SUBJECTS})|[a-z]{{0,3}})[ _.-]*\d+")
# What the paths of masks have: masks/, or x_mask.png.
MASK = re.compile(
    r"(?i)(?<![^/])(((train|test|val)\w*[ _-])?(masks|labels|annotations|segmentations"
    r"|gt|ground[ _-]?truth)|(train|test|val)\w*[ _-]mask)/"
    r"|[ _-](masks?|segmentation|gt|label|annotation)([ _-]?\d+)?(?=\.[^/.]+$)"
)

Found = Sequence[str]  # the files that an id may name
Named = dict[str, Found]  # files by the last names of their paths
ByFolder = dict[str, str]  # a text for each folder


@dataclass(frozen=True)
class Files:
    """The files of INPUT_DIR by their paths below it, sorted.

    folder: that was listed. images: with a "/" at the end for links to folders outside.
    others: CSVs, archives, shards, texts. outside: links out of INPUT_DIR.
    splits, classes: the split and the class of each folder of images; "" for none.
    _named: the files by the last n names of their paths, for each n that was needed.
    """

    folder: str
    images: Sequence[str]
    others: Sequence[str]
    outside: Collection[str]
    splits: Mapping[str, str]
    classes: Mapping[str, str]
    _named: dict[int, Named] = field(default_factory=dict)

    def split_of(self, image: str) -> str:
        """Return the split by an image's folders: "train", "val" …, "" for none."""
        return self.splits.get(os.path.dirname(image), "")

    def class_of(self, image: str) -> str:
        """Return the class of an image: the name of a folder above it, "" for none."""
        return self.classes.get(os.path.dirname(image), "")

    def join(self, ids: Iterable[str]) -> list[Found]:
        """Return the files of each id: none, one, or several with its name.

        ids: paths, ends of paths, names or names without ending. They may begin with
        folders that INPUT_DIR lacks. Case and zeros in front of a number do not count.
        """
        ends = list(map(_clean, ids))
        found: list[Found] = [()] * len(ends)
        while any(ends):
            found = [
                alike or self._find(end) for alike, end in zip(found, ends, strict=True)
            ]
            # If more than 5 % of the ids are found, the others are missing: with fewer
            # folders, an id may find a file of the same name in another folder.
            if sum(map(bool, found)) > 0.05 * len(found):
                break
            # Try them without their first folders; "" if nothing is left.
            ends = [end.partition("/")[2] for end in ends]
        return found

    def _find(self, end: str) -> Found:
        """Return the files whose paths end with this path, compared as by `loosen`.

        So case, the ending and zeros in front of a number do not count. Of several
        files, only those with exactly this whole path; if there are none, only those
        that end with exactly this text; else all.
        """
        if not end:
            return ()
        depth = end.count("/") + 1
        # As many names of a file's path are compared. Each index is made once.
        if depth not in self._named:
            self._named[depth] = _index_names([*self.images, *self.others], depth)
        alike = self._named[depth].get(loosen(end), ())
        if len(alike) > 1:
            paths = {file: f"/{_clean(file)}" for file in alike}
            equal = [file for file in alike if paths[file].endswith(f"/{end}")]
            whole = [file for file in equal if paths[file] == f"/{end}"]
            return whole or equal or alike
        return alike


def _index_names(files: Iterable[str], depth: int) -> Named:
    """Return the files by the last `depth` names of their paths, for look-ups by id.

    The names are compared as by `loosen`: without case, ending and leading zeros.
    """
    files_of = Named()
    for file in files:
        key = loosen("/".join(_clean(file).split("/")[-depth:]))
        # At most 100 files of a name, because each id of the name is compared with all.
        files_of[key] = (*files_of.get(key, ()), file)[:100]
    return files_of


def _clean(text: str) -> str:
    """Return a path in Unicode's form NFC, with "/" only between its names.

    A "./" in front is removed, and backslashes become "/".
    """
    path = unicodedata.normalize("NFC", text).replace("\\", "/")
    return path.strip("/").removeprefix("./")


def list_texts(value: str | Sequence[str]) -> list[str]:
    """Return the list of texts of a parameter that takes one or several; [] for ""."""
    return list(filter(None, [value] if isinstance(value, str) else value))


def remove_ending(text: str) -> str:
    """Return a name without the ending of an image, such as ".jpg"; others stay."""
    return IMAGE_NAME.sub("", text)


def loosen(text: str) -> str:
    """Return a path in the form in which ids and files are compared.

    It is in lower case, without the ending of an image, and if the last name is a
    number, without zeros in front of it.

    >>> loosen("Train/Cats/0017.JPG"), loosen("a_0017.png")
    ('train/cats/17', 'a_0017')
    """
    return ZEROS.sub("", remove_ending(text.casefold().strip()))


def list_files(
    folder: str,
    patterns: Sequence[str] = (),
    excluded: Iterable[str] = (),
) -> Files:
    """Return the files of a folder, without hidden ones and those of the system.

    patterns: images that match none of them are left out; "*" also matches "/". Without
    patterns, masks of other images are left out.
    excluded: folders of output, which are not listed.
    """
    skipped = {f"{storage.real_path(output)}/" for output in excluded}
    is_outside = _walk(storage.real_path(folder), skipped)
    # By the ending of the name. Links to folders outside, which end with "/", are among
    # them, so that they are reported as images with a problem.
    images = sorted(filter(IMAGE.search, is_outside))
    others = sorted(is_outside.keys() - images)
    outside = set(filter(is_outside.get, is_outside))  # the paths with True
    if patterns:
        regex = "|".join(map(fnmatch.translate, patterns))
        images = list(filter(re.compile(regex).match, images))
    else:
        images = _leave_out_masks(images)
    splits, classes = read_folders(set(map(os.path.dirname, images)))
    return Files(folder, images, others, outside, splits, classes)


def _walk(folder: str, skipped: set[str]) -> dict[str, bool]:
    """Return the paths of all files, and whether each is a link that leads outside.

    A link to a folder in INPUT_DIR is left out, since that is listed anyway. So are
    folders with `PRODUCTS` (a WORK_DIR or an audit), hidden and system files. A link to
    a folder outside has a "/" at the end; that folder is not listed.
    skipped: absolute paths of folders that are not listed, with a "/" at their ends.
    """
    is_outside = {}
    pending = [""]  # folders to list: paths below `folder`, with a "/" at their ends
    while pending:
        parent = pending.pop()
        is_link = _scan(f"{folder}/{parent}")
        if parent and not PRODUCTS.isdisjoint(is_link):
            continue
        for name in filterfalse(OF_SYSTEM.search, is_link):
            path = parent + name
            address = f"{folder}/{path}"
            leads_out = is_link[name] and not storage.is_inside(address, folder)
            if leads_out or not name.endswith("/"):
                is_outside[storage.escape(path)] = leads_out
            elif not is_link[name] and address not in skipped:
                pending.append(path)
    return is_outside


def _scan(folder: str) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a link.

    Names of folders, and of links to folders, have a "/" at the end.
    """
    if storage.is_remote(folder):
        return dict.fromkeys(storage.list_names(folder), False)  # buckets have no links
    names = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            is_link = entry.is_symlink()
            # Only a link needs a request of its own, which is slow on a network.
            is_folder = os.path.isdir(entry.path) if is_link else entry.is_dir()
            names[f"{entry.name}/" if is_folder else entry.name] = is_link
    return names


def _leave_out_masks(images: Sequence[str]) -> list[str]:
    """Return the images that are not masks of other images; print how many are.

    Masks are called like another image and "_mask", or are in a folder such as masks/
    and called like an image elsewhere.
    """
    stems = set(map(_read_stem, filterfalse(MASK.search, images)))
    # Of x_mask.png and masks/x.png, `MASK` matches "_mask" and "masks/".
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
    """Return whether a folder's name is that of a split or a folder of all images.

    >>> is_generic("train_images"), is_generic("images2"), is_generic("cats")
    (True, True, False)
    """
    return GENERIC.fullmatch(folder) is not None


def name_split(word: str) -> str:
    """Return the split that a word means, "" for none.

    The names "val", "valid" and "dev" stay, because output files use them; "pred", as
    in Intel's scenes, is a test split.

    >>> name_split("Test_images"), name_split("stage_1_train"), name_split("val2017")
    ('test', 'train', 'val')
    >>> name_split("evaluation"), name_split("testosterone"), name_split("Testing")
    ('validation', '', 'test')
    >>> name_split("seg_pred")
    'test'
    """
    match = re.fullmatch(SPLIT, word.strip().lower())
    split = match[2] if match else ""  # the word without what is around it
    return "validation" if split.startswith("eval") else split.replace("pred", "test")


def read_folders(folders: Iterable[str]) -> tuple[ByFolder, ByFolder]:
    """Return the split and the class of each folder of images, "" for none.

    The folders in a folder are classes unless at least half of them are called like
    splits, like folders of all images or, in a class, like subjects. A folder that is
    not a class has the class of the folder above it. The topmost folder that is called
    like a split, and is not a class, gives the split.
    """
    children = _list_children(folders)
    splits = {"": ""}
    classes = {"": ""}
    # A folder comes after the one above it.
    for parent, names in sorted(children.items()):
        # Regular expressions for names that are not classes. IN_CLASS adds subjects,
        # such as patient12; a class without siblings may only look like one.
        siblings = children[os.path.dirname(parent)]
        rule = IN_CLASS if classes[parent] and len(siblings) > 1 else GENERIC
        are_classes = 2 * len(list(filter(rule.fullmatch, names))) < len(names)
        for name in names:
            folder = os.path.join(parent, name)
            split = name_split(name)
            # A class can be called train, but hardly test.
            is_class = are_classes and split in ("", "train")
            splits[folder] = splits[parent] or ("" if is_class else split)
            classes[folder] = name if is_class else classes[parent]
    return splits, classes


def _list_children(folders: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of the folders directly in each folder; "" is INPUT_DIR."""
    children = defaultdict[str, set[str]](set)
    for folder in folders:
        above = folder
        while above:
            above, name = os.path.split(above)
            children[above].add(name)
    return children


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
