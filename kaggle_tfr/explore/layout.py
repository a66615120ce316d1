"""Write the recipe for a folder, whose layout is inferred from names and CSVs."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from kaggle_tfr import mounts
from kaggle_tfr.explore import csv_layout
from kaggle_tfr.explore.csv_layout import Parts
from kaggle_tfr.explore.files import SYSTEM_NAMES
from kaggle_tfr.explore.recipe import (
    Recipe,
    check_free,
    save_recipe,
    to_comment,
    to_line,
)
from kaggle_tfr.explore.splits import name_split
from kaggle_tfr.naming import is_shard_name, split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import IMAGE_NAME, is_remote

TABLE = re.compile(r"(?i)\.(csv|tsv)$")
RECIPE = re.compile(r"(?i)\.ya?ml$")
# A folder with one of these files is a WORK_DIR or a part.
PRODUCTS = ("plan.json", "plan.parquet", "images.parquet", "hashes.parquet")
# Limits of what is inspected.
TOP_FOLDERS = 60  # subfolders of the top folder
SUBFOLDERS = 4  # of each folder below
LEVELS = 6
FILES = 12  # of each folder
CSVS = 8  # of each folder
ENTRIES = 20_000  # listed of each folder


@dataclass
class Tree:
    """The files and folders that were inspected below a folder.

    products: folders that kaggle-tfr wrote, whose files are not in `files`.
    """

    files: list[Parts] = field(default_factory=list)
    folders: list[Parts] = field(default_factory=list)
    products: list[Parts] = field(default_factory=list)

    @property
    def images(self) -> list[Parts]:
        return [parts for parts in self.files if IMAGE_NAME.search(parts[-1])]

    @property
    def shards(self) -> list[Parts]:
        return [parts for parts in self.files if is_shard_name(parts[-1])]

    @property
    def tables(self) -> list[str]:
        """Paths of CSVs: those with few folders and those of training images first."""
        names = ["/".join(parts) for parts in self.files if TABLE.search(parts[-1])]
        return sorted(names, key=lambda n: (n.count("/"), "train" not in n, n))


def write_recipe(source: str, out: str) -> list[str]:
    """Write a commented recipe for a folder or Kaggle slug; return the lines to print.

    Raises: OSError, of which FileExistsError: something has the name `out`, and
    NotADirectoryError; FileNotFoundError, ValueError: as `detect_layout`.
    """
    check_free(out)
    input_folder = _find_folder(source)
    folder = _find_top(input_folder)
    recipe = detect_layout(folder)
    input_dir = _name_input(source, input_folder, folder)
    name = mounts.to_slug(os.path.basename(os.path.abspath(folder)))
    values = {"NAME": name[:40].strip("-") or "images", "INPUT_DIR": input_dir}
    values |= recipe.parameters
    for parameter in ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS"):
        values.setdefault(parameter, DEFAULTS[parameter])
    title = f"Made by kaggle-tfr init from {input_dir}."
    save_recipe(values, [title, *recipe.comments], out)

    command = f"kaggle-tfr run {shlex.quote(out)}"
    return [
        *map(to_comment, recipe.comments),
        to_line(f"Written: {out}. Check it, then: {command}"),
    ]


def detect_layout(folder: str) -> Recipe:
    """Return the parameters that 01 needs to read a folder.

    Raises: FileNotFoundError: no image and no shard; ValueError: nothing labels the
    images.
    """
    tree = list_tree(folder)
    if not tree.images and not tree.shards:
        tree = list_tree(folder, with_products=True)
    if not tree.images and not tree.shards:
        raise FileNotFoundError(
            f"'{to_line(folder)}' has no image and no TFRecord shard. "
            f"Files found: {_count_endings(tree) or 'none'}. "
            f"Give the folder that contains the images or their folders."
        )

    recipe = Recipe()
    if tree.products:
        recipe.note(
            f"ignored, because kaggle-tfr wrote it: {_list_names(tree.products)}"
        )
    csvs = []
    if tree.images:
        tables = tree.tables[:CSVS]
        csvs = csv_layout.match_csvs(recipe, folder, tables, tree.images)
    if any(not csv.is_test for csv in csvs):
        csv_layout.detect_csvs(recipe, csvs, tree.images)
    elif tree.shards:
        _detect_shards(recipe, tree.shards)
    else:
        _detect_folders(recipe, folder, tree)
        for csv in csvs:
            recipe.doubt(
                f"{csv.name} names test images ({csv.template}), "
                f"which is not used beside class folders"
            )
    return recipe


def _count_endings(tree: Tree) -> str:
    """Return the numbers of files by ending, such as "2 of .mp4", for an error."""
    endings = Counter(os.path.splitext(parts[-1])[1] for parts in tree.files)
    counts = [f"{n} of {ending or 'no ending'}" for ending, n in endings.most_common(5)]
    return to_line(", ".join(counts))


def list_tree(folder: str, *, with_products: bool = False) -> Tree:
    """Return some files of a folder and its subfolders: enough to infer the layout."""
    tree = Tree()
    pending: list[Parts] = [()]
    while pending:
        below = pending.pop(0)
        entries = _list_entries(os.path.join(folder, *below))
        folders = [entry.name for entry in entries if _is_folder(entry)]
        files = [entry.name for entry in entries if not _is_folder(entry)]
        if below and not with_products and not set(PRODUCTS).isdisjoint(files):
            tree.products.append(below)
            continue

        tree.folders.append(below)
        tables = [name for name in files if TABLE.search(name)]
        for name in dict.fromkeys([*tables[:CSVS], *files[:FILES]]):
            tree.files.append((*below, name))
        if len(below) < LEVELS:
            limit = SUBFOLDERS if below else TOP_FOLDERS
            pending += [(*below, name) for name in folders[:limit]]
    return tree


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the sorted entries of a folder, without hidden ones and system files."""
    try:
        with os.scandir(folder) as entries:
            visible = (
                entry
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in SYSTEM_NAMES
            )
            return sorted(islice(visible, ENTRIES), key=lambda entry: entry.name)
    except PermissionError:
        raise PermissionError(
            f"The folder '{folder}' cannot be listed. "
            f"Change its permissions, or give another folder."
        ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _find_folder(source: str) -> str:
    """Return the folder on this machine for a path or a Kaggle slug."""
    folder = source if is_remote(source) else mounts.find_input(source)
    if is_remote(folder):
        raise ValueError(
            f"'{source}' is the address {folder}; "
            f"init inspects folders of this machine. "
            f"Copy some files to a folder here, or write the recipe by hand."
        )
    if not os.path.isdir(folder):
        raise NotADirectoryError(
            f"'{source}' is a file, not a folder. "
            f"Give the folder of images, such as {os.path.dirname(folder)}"
        )
    return folder


def _find_top(folder: str) -> str:
    """Return the folder, or its only subfolder: the one that was in an archive."""
    while True:
        entries = [entry for entry in _list_entries(folder) if not _is_product(entry)]
        if len(entries) != 1 or not _is_folder(entries[0]) or split_of(entries[0].name):
            return folder
        folder = entries[0].path


def _is_product(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a recipe, or a folder that kaggle-tfr wrote."""
    if not _is_folder(entry):
        return RECIPE.search(entry.name) is not None
    return any(os.path.exists(os.path.join(entry.path, name)) for name in PRODUCTS)


def _name_input(source: str, input_folder: str, folder: str) -> str:
    """Return INPUT_DIR: the path of a local folder, or the slug with subfolders.

    input_folder: the folder for `source`. folder: the same, or a folder in it.
    """
    if os.path.isdir(source):
        return os.path.abspath(folder)
    if folder == input_folder:
        return source
    mount = f"{mounts.KAGGLE_INPUT}/"
    if "/" not in source.strip("/") and input_folder.startswith(mount):
        # "slug/folder" alone would be an owner and a dataset to `kernel`.
        source = input_folder.removeprefix(mount)
    return f"{source.rstrip('/')}/{os.path.relpath(folder, input_folder)}"


def _list_names(paths: Sequence[Parts]) -> str:
    return ", ".join("/".join(parts) for parts in paths)


def _detect_shards(recipe: Recipe, shards: Sequence[Parts]) -> None:
    """Add the parameters for TFRecord shards."""
    deepest = max(map(len, shards))
    # 01 reads three levels by the pattern "*/*".
    levels = deepest if deepest > 3 else 2
    recipe.parameters |= {"SOURCE": "tfrecords", "PATTERN": "/".join("*" * levels)}
    recipe.note(f"TFRecord shards such as {'/'.join(shards[0])}")
    recipe.doubt(
        "which features are image, label and id: 01 infers it from the records"
    )


def _detect_folders(recipe: Recipe, folder: str, tree: Tree) -> None:
    """Add the parameters for class folders. Raises: ValueError: there are none."""
    images = tree.images
    depth, _ = Counter(map(len, images)).most_common(1)[0]
    names = {parts[-2] for parts in images if len(parts) == depth > 1}
    classes = sorted(name for name in names if not split_of(name))
    if not classes:
        tables = f" of {', '.join(tree.tables)}" if tree.tables else ""
        raise ValueError(
            f"'{to_line(folder)}' has images, but neither class folders nor a CSV that "
            f"names them (no column{to_comment(tables)} does). "
            f"Put one beside them: image_id,label, and one row per image."
        )
    recipe.parameters |= {"SOURCE": "folders", "PATTERN": "/".join("*" * depth)}
    recipe.note(f"class folders such as {', '.join(classes[:4])}")

    splits = sorted({parts[0] for parts in images if split_of(parts[0])})
    if splits:
        recipe.note(f"folders of splits: {', '.join(splits)}")
        csv_layout.detect_validation(recipe, map(name_split, splits))
    elif depth > 2:
        recipe.doubt("the class is the last of several folders")
    empty = _list_empty_folders(tree, depth - 1)
    if empty:
        listed = _list_names(empty)
        recipe.doubt(f"folders without an image, which are not classes: {listed}")


def _list_empty_folders(tree: Tree, depth: int) -> list[Parts]:
    """Return the folders at this depth that contain no image and are not splits."""
    with_images = {parts[:-1] for parts in tree.images}
    return [
        parts
        for parts in tree.folders
        if len(parts) == depth and parts not in with_images and not split_of(parts[-1])
    ]
