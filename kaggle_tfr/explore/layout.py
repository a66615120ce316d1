"""The recipe that fits a folder, by names of files and the first rows of CSVs: `init`."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from kaggle_tfr import mounts
from kaggle_tfr.explore import csv_layout
from kaggle_tfr.explore.files import SYSTEM_NAMES
from kaggle_tfr.explore.recipe import check_free, save_recipe, shorten, to_line
from kaggle_tfr.explore.splits import name_split
from kaggle_tfr.naming import is_shard_name, split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import IMAGE_NAME, is_remote

Parts = tuple[str, ...]  # of a path: folders, then the file's name
Detected = tuple[
    dict[str, Any], list[str]
]  # parameters; lines on what they were chosen by

UNSURE = csv_layout.UNSURE
TABLE = re.compile(r"(?i)\.(csv|tsv)$")
RECIPE = re.compile(r"(?i)\.ya?ml$")
# A folder with one of these files is a WORK_DIR or a part.
PRODUCTS = ("plan.json", "plan.parquet", "images.parquet", "hashes.parquet")
# Inspected: subfolders of the top and of each below, levels, files and CSVs of each folder.
TOP_FOLDERS = 60
SUBFOLDERS = 4
LEVELS = 6
FILES = 12
CSVS = 8
ENTRIES = 20_000  # listed of a folder


class Tree(NamedTuple):
    """What was inspected below a folder, by the parts of its paths.

    products: folders that hold what kaggle-tfr wrote, whose files are not in `files`.
    """

    files: list[Parts]
    folders: list[Parts]
    products: list[Parts]


def write_recipe(source: str, out: str) -> list[str]:
    """Lines to print, after a commented recipe for a folder or Kaggle slug was written to `out`.

    Raises: FileExistsError, NotADirectoryError, OSError; FileNotFoundError, ValueError: as
    `detect_layout`.
    """
    check_free(out)
    found = _find_folder(source)
    folder = _find_top(found)
    values, comments = detect_layout(folder)
    input_dir = _name_input(source, found, folder)
    name = mounts.to_slug(os.path.basename(os.path.abspath(folder)))[:40].strip("-")
    values = {"NAME": name or "images", "INPUT_DIR": input_dir} | values
    for parameter in ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS"):
        values.setdefault(parameter, DEFAULTS[parameter])

    save_recipe(
        values, [f"Made by kaggle-tfr init of {shorten(input_dir)}.", *comments], out
    )

    printed = [
        *comments,
        f"Written: {out}. Check it, then: kaggle-tfr run {shlex.quote(out)}",
    ]
    return [to_line(line) for line in printed]


def detect_layout(folder: str) -> Detected:
    """The parameters that 01 needs to read a folder, and on what each is based.

    Raises: FileNotFoundError: no image and no shard; ValueError: nothing labels the images.
    """
    tree = list_tree(folder)
    if not any(
        IMAGE_NAME.search(parts[-1]) or is_shard_name(parts[-1]) for parts in tree.files
    ):
        tree = list_tree(folder, with_products=True)
    images = [parts for parts in tree.files if IMAGE_NAME.search(parts[-1])]
    shards = [parts for parts in tree.files if is_shard_name(parts[-1])]
    tables = ["/".join(parts) for parts in tree.files if TABLE.search(parts[-1])]
    tables.sort(key=lambda name: (name.count("/"), "train" not in name, name))
    csvs, comments = (
        csv_layout.match_csvs(folder, tables[:CSVS], images) if images else ([], [])
    )
    comments = [*_detect_products(tree), *comments]

    if any(not csv.is_test() for csv in csvs):
        values, more = csv_layout.detect_csvs(csvs, images)
        return values, more + comments
    if shards:
        values, more = _detect_shards(shards)
        return values, more + comments
    if images:
        values, more = _detect_folders(folder, images, tree.folders, tables)
        for csv in csvs:
            what = f"{shorten(csv.name)} names test images ({shorten(csv.template)})"
            more.append(f"{UNSURE}{what}, which is not used beside class folders")
        return values, more + comments
    raise FileNotFoundError(_describe_nothing(folder, tree.files))


def list_tree(folder: str, *, with_products: bool = False) -> Tree:
    """Some files of a folder and of its subfolders: enough to see how they are arranged."""
    tree = Tree([], [], [])
    _walk(folder, (), tree, with_products=with_products)
    return tree


def _walk(top: str, below: Parts, tree: Tree, *, with_products: bool) -> None:
    """Adds some files of the folder `below` and of its subfolders to `tree`."""
    entries = _list(os.path.join(top, *below))
    folders = [entry.name for entry in entries if _is_folder(entry)]
    files = sorted({entry.name for entry in entries} - set(folders))
    if below and not with_products and not set(PRODUCTS).isdisjoint(files):
        tree.products.append(below)
        return

    if below:
        tree.folders.append(below)
    tables = [name for name in files if TABLE.search(name)]
    names = dict.fromkeys([*tables[:CSVS], *files[:FILES]])
    tree.files.extend((*below, name) for name in names)
    if len(below) < LEVELS:
        for name in folders[: SUBFOLDERS if below else TOP_FOLDERS]:
            _walk(top, (*below, name), tree, with_products=with_products)


def _list(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder by name, without hidden ones and those of the system."""
    try:
        with os.scandir(folder) as entries:
            visible = (entry for entry in entries if not _is_ignored(entry.name))
            return sorted(islice(visible, ENTRIES), key=lambda entry: entry.name)
    except PermissionError:
        what = f"The folder '{folder}' cannot be listed."
        raise PermissionError(
            f"{what} Allow to read it, or give another folder."
        ) from None


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in SYSTEM_NAMES


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _find_folder(source: str) -> str:
    """The folder on this machine that a path or a Kaggle slug stands for."""
    if source.startswith("gs://"):
        what = f"'{source}' is a bucket; init inspects folders of this machine only."
        raise ValueError(f"{what} Copy some of it here, or write the recipe by hand.")
    if is_remote(source):
        what = f"'{source}' is an address; init inspects folders of this machine only."
        raise ValueError(f"{what} Give a path such as /data/images, or a Kaggle slug.")
    folder = mounts.find_input(source)
    if is_remote(folder):
        what = f"'{source}' is the bucket {folder}; init inspects folders of this machine only."
        raise ValueError(f"{what} Copy some of it here, or write the recipe by hand.")
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        what = f"'{source}' is a file, not a folder."
        raise NotADirectoryError(f"{what} Give the folder of images, such as {above}")
    return folder


def _find_top(folder: str) -> str:
    """The folder, or the one that is alone in it: what an archive was unpacked to."""
    while True:
        inputs = (entry for entry in _list(folder) if not _is_ours(entry))
        entries = list(islice(inputs, 2))
        if len(entries) != 1 or not _is_folder(entries[0]) or split_of(entries[0].name):
            return folder
        folder = entries[0].path


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """True for a recipe, and for a folder that kaggle-tfr wrote."""
    if not _is_folder(entry):
        return bool(RECIPE.search(entry.name))
    return any(os.path.exists(os.path.join(entry.path, name)) for name in PRODUCTS)


def _name_input(source: str, found: str, folder: str) -> str:
    """INPUT_DIR: a local folder's path, or a Kaggle input's name with the folder in it.

    found: what `source` stands for; folder: the same, or a folder in it.
    """
    if os.path.isdir(source):
        return os.path.abspath(folder)
    if folder == found:
        return source
    if "/" not in source.strip("/") and found.startswith(f"{mounts.KAGGLE_INPUT}/"):
        # "slug/folder" alone would be an owner and a dataset to `kernel`.
        source = found.removeprefix(f"{mounts.KAGGLE_INPUT}/")
    return f"{source.rstrip('/')}/{os.path.relpath(folder, found)}"


def _detect_products(tree: Tree) -> list[str]:
    if not tree.products:
        return []
    names = ", ".join("/".join(parts) for parts in tree.products)
    return [f"ignored, because kaggle-tfr wrote it: {shorten(names)}"]


def _detect_shards(shards: Sequence[Parts]) -> Detected:
    deepest = max(map(len, shards))
    pattern = "/".join(
        "*" * (deepest if deepest > 3 else 2)
    )  # "*/*" matches three levels
    comments = [
        f"TFRecord shards such as {shorten('/'.join(shards[0]))}",
        f"{UNSURE}which features are image, label and id: 01 sees it in the records",
    ]
    return {"SOURCE": "tfrecords", "PATTERN": pattern}, comments


def _detect_folders(
    folder: str,
    images: Sequence[Parts],
    folders: Sequence[Parts],
    tables: Sequence[str],
) -> Detected:
    """The pattern of class folders. Raises: ValueError: there are none."""
    depth = Counter(map(len, images)).most_common(1)[0][0]
    classes = {parts[-2] for parts in images if len(parts) == depth > 1}
    classes = {name for name in classes if not split_of(name)}
    if not classes:
        what = f"'{to_line(folder)}' has images, but neither class folders nor a CSV that names"
        listed = shorten(", ".join(map(to_line, tables)))
        seen = f"them (no column of {listed} does)." if tables else "them."
        raise ValueError(
            f"{what} {seen} Put one beside them: image_id,label, and a row an image."
        )

    values: dict[str, Any] = {"SOURCE": "folders", "PATTERN": "/".join("*" * depth)}
    comments = [f"class folders such as {shorten(', '.join(sorted(classes)[:4]))}"]
    splits = sorted({parts[0] for parts in images if split_of(parts[0])})
    if splits:
        comments.append(f"folders of splits: {', '.join(splits)}")
        comments += csv_layout.detect_validation(map(name_split, splits), values)
    elif depth > 2:
        comments.append(
            f"{UNSURE}of folders in folders the last is taken for the class"
        )

    with_images = {parts[:-1] for parts in images}
    empty = [
        parts
        for parts in folders
        if len(parts) == depth - 1 and parts not in with_images
    ]
    if empty := [parts for parts in empty if not split_of(parts[-1])]:
        names = shorten(", ".join("/".join(parts) for parts in empty))
        comments.append(
            f"{UNSURE}folders without an image, which are not classes: {names}"
        )
    if any(len(parts) != depth for parts in images):
        comments.append(
            f"{UNSURE}images at other depths are read only if they are test images"
        )
    return values, comments


def _describe_nothing(folder: str, files: Sequence[Parts]) -> str:
    endings = Counter(os.path.splitext(parts[-1])[1] or "no ending" for parts in files)
    counts = [
        f"{count} of {to_line(ending)}" for ending, count in endings.most_common(5)
    ]
    seen = ", ".join(counts) or "nothing"
    what = f"'{to_line(folder)}' has no image and no TFRecord shard."
    mend = "Give the folder that holds the images or their folders."
    return f"{what} Of its files, seen were {seen}. {mend}"
