"""Write the recipe for a folder, whose layout is inferred from names and CSVs."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from kaggle_tfr import mounts
from kaggle_tfr.explore import csv_layout
from kaggle_tfr.explore.files import SYSTEM_NAMES
from kaggle_tfr.explore.recipe import Recipe, save_recipe, to_line
from kaggle_tfr.explore.splits import name_split
from kaggle_tfr.naming import is_shard_name, split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import IMAGE_NAME

TABLE = re.compile(r"(?i)\.(csv|tsv)$")
# Folders of all images, and of files that describe them: neither is a class.
IMAGE_FOLDER = re.compile(
    r"(?i)(images?|imgs?|photos?|pictures?|jpegimages|data|unlabell?ed)((19|20)\d\d)?"
)
MASK_FOLDER = re.compile(r"(?i)masks?|labels?|annotations?|segmentations?")
BOXES = re.compile(r"(?i)(^|/)(labels|annotations)/.*\.(txt|json|xml)$")
RECIPE = re.compile(r"(?i)\.ya?ml$")
# Limits of what is inspected.
TOP_FOLDERS = 60  # subfolders of the top folder
SUBFOLDERS = 4  # of each folder below
LEVELS = 6
FILES = 12  # of each folder
CSVS = 8  # of each folder
NAMED_CLASSES = 6  # more are too many for a line


@dataclass(frozen=True)
class Place:
    """The folder of an input, its INPUT_DIR in a recipe, and the recipe's NAME."""

    folder: str
    input_dir: str
    name: str


@dataclass(frozen=True)
class Tree:
    """The files that were inspected below a folder, by their paths below it."""

    files: list[str]

    @property
    def images(self) -> list[str]:
        return [name for name in self.files if IMAGE_NAME.search(name)]

    @property
    def shards(self) -> list[str]:
        return [name for name in self.files if is_shard_name(name)]

    @property
    def tables(self) -> list[str]:
        """CSVs: those with few folders and those of training images first."""
        names = [name for name in self.files if TABLE.search(name)]
        return sorted(
            names, key=lambda name: (name.count("/"), "train" not in name, name)
        )


def write_recipe(source: str, out: str | None = None) -> tuple[str, list[str]]:
    """Write a commented recipe for a folder or Kaggle slug; return its path, comments.

    out: None for NAME.yaml.
    Raises: OSError, of which FileExistsError: the recipe exists; and as
    `propose_recipe`.
    """
    recipe = propose_recipe(source)
    path = out or f"{recipe.parameters['NAME']}.yaml"
    title = f"Made by kaggle-tfr init from {recipe.parameters['INPUT_DIR']}."
    save_recipe(recipe.parameters, [title, *recipe.comments], path)
    return path, [to_line(comment) for comment in recipe.comments]


def propose_recipe(source: str) -> Recipe:
    """Return the recipe for a folder or Kaggle slug.

    Raises: OSError, ValueError: as `locate` and `detect_layout`.
    """
    place = locate(source)
    recipe = detect_layout(place.folder)
    values = {"NAME": place.name, "INPUT_DIR": place.input_dir, **recipe.parameters}
    for parameter in ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS"):
        values.setdefault(parameter, DEFAULTS[parameter])
    return replace(recipe, parameters=values)


def locate(source: str) -> Place:
    """Return the place of a folder or Kaggle slug.

    Raises: FileNotFoundError; NotADirectoryError: it is not a folder of this machine.
    """
    input_folder = mounts.find_input(source)
    if not os.path.isdir(input_folder):
        raise NotADirectoryError(
            f"'{source}' is not a folder of this machine. Give the folder of images; "
            "for a bucket, copy some files to a folder, or write the recipe by hand."
        )
    folder = os.path.abspath(_find_top(input_folder))
    input_dir = mounts.name_input(source, input_folder, folder)
    return Place(
        folder=folder,
        input_dir=input_dir,
        name=mounts.to_slug(os.path.basename(input_dir))[:40] or "images",
    )


def detect_layout(folder: str) -> Recipe:
    """Return the parameters that 01 needs to read a folder.

    Raises: FileNotFoundError: no image and no shard; ValueError: nothing labels the
    images.
    """
    tree = _find_inputs(folder)
    recipe = Recipe()
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
                "which is not used beside class folders"
            )
    return recipe


def _find_inputs(folder: str) -> Tree:
    """Return the tree without what kaggle-tfr wrote; with it if nothing else exists.

    Raises: FileNotFoundError: no image and no shard.
    """
    for with_products in (False, True):
        tree = list_tree(folder, with_products=with_products)
        if tree.images or tree.shards:
            return tree
    names = ", ".join(tree.files[:5])
    raise FileNotFoundError(
        f"'{to_line(folder)}' has no image and no TFRecord shard. "
        f"Files found: {to_line(names) or 'none'}. "
        "Give the folder that contains the images or their folders."
    )


def list_tree(folder: str, *, with_products: bool = False) -> Tree:
    """Return some files of a folder and its subfolders: enough to infer the layout."""
    inspected = []
    pending = [""]
    while pending:
        below = pending.pop(0)
        path = os.path.join(folder, below)
        if below and not with_products and _is_product(path):
            continue

        folders, files = _list_folder(path)
        inspected += [os.path.join(below, name) for name in _choose_files(files)]
        if below.count("/") < LEVELS - 1:
            limit = SUBFOLDERS if below else TOP_FOLDERS
            pending += [os.path.join(below, name) for name in folders[:limit]]
    return Tree(inspected)


def _choose_files(names: Sequence[str]) -> list[str]:
    """Return the first files and the first CSVs of a folder."""
    tables = [name for name in names if TABLE.search(name)]
    return sorted({*tables[:CSVS], *names[:FILES]})


def _list_folder(folder: str) -> tuple[list[str], list[str]]:
    """Return the sorted names of subfolders and files; none is hidden or the system's.

    Raises: OSError: the folder cannot be listed.
    """
    _, folders, files = next(os.walk(folder, onerror=_raise))
    return _select_visible(folders), _select_visible(files)


def _raise(error: OSError) -> NoReturn:
    raise error


def _select_visible(names: Iterable[str]) -> list[str]:
    visible = [name for name in names if not name.startswith(".")]
    return sorted(set(visible) - SYSTEM_NAMES)


def _is_product(folder: str) -> bool:
    """Return whether kaggle-tfr wrote a folder: a work folder, a part, or work/."""
    folders = [folder]
    if os.path.basename(folder) == mounts.WORK:
        folders += [os.path.join(folder, name) for name in _list_folder(folder)[0]]
    paths = [os.path.join(path, name) for path in folders for name in mounts.PRODUCTS]
    return any(map(os.path.exists, paths))


def _find_top(folder: str) -> str:
    """Return the folder, or its only subfolder: the one that was in an archive.

    Recipes and folders that kaggle-tfr wrote do not count.
    """
    while True:
        names, files = _list_folder(folder)
        paths = [os.path.join(folder, name) for name in names]
        paths = [path for path in paths if not _is_product(path)]
        files = [name for name in files if not RECIPE.search(name)]
        if files or len(paths) != 1 or split_of(paths[0]):
            return folder
        folder = paths[0]


def _detect_shards(recipe: Recipe, shards: Sequence[str]) -> None:
    """Add the parameters for TFRecord shards."""
    deepest = max(name.count("/") for name in shards)
    # By the pattern "*/*" 01 reads shards up to two folders down.
    depth = deepest if deepest > 2 else 1
    _add_source(recipe, "tfrecords", depth)
    recipe.note(f"TFRecord shards such as {shards[0]}")


def _add_source(recipe: Recipe, source: str, depth: int) -> None:
    """Add SOURCE, and the PATTERN of files in folders of a depth."""
    recipe.parameters |= {"SOURCE": source, "PATTERN": "*/" * depth + "*"}


def _detect_folders(recipe: Recipe, folder: str, tree: Tree) -> None:
    """Add the parameters for class folders, or for images without labels.

    Raises: ValueError: there is no class folder, but a CSV that may be of labels.
    """
    depths = Counter(name.count("/") for name in tree.images)
    depth, _ = depths.most_common(1)[0]
    classes = _list_classes(tree.images, depth)
    if _are_containers(classes):
        _detect_unlabelled(recipe, folder, tree, depth)
        return
    _add_source(recipe, "folders", depth)
    recipe.note(_name_classes(classes, depth))

    tops = {name.partition("/")[0] for name in tree.images}
    if not _detect_splits(recipe, tops) and depth > 1:
        recipe.doubt("the class is the last of several folders")


def _detect_splits(recipe: Recipe, folders: Iterable[str]) -> bool:
    """Return whether folders are called like splits, which a comment lists."""
    splits = sorted(filter(split_of, folders))
    if splits:
        recipe.note(f"folders of splits: {', '.join(splits)}")
        csv_layout.detect_validation(recipe, map(name_split, splits))
    return bool(splits)


def _list_classes(images: Iterable[str], depth: int) -> list[str]:
    """Return the folders of images at a depth, besides those of splits."""
    folders = {os.path.dirname(name) for name in images if name.count("/") == depth}
    names = set(map(os.path.basename, folders)) - {""}
    return sorted(name for name in names if not split_of(name))


def _name_classes(classes: Sequence[str], depth: int) -> str:
    """Return a comment with all classes if they are few, else with examples."""
    # All folders are known at the top only: `list_tree` inspects few of those below.
    if depth == 1 and len(classes) <= NAMED_CLASSES:
        return f"class folders: {', '.join(classes)}"
    return f"class folders such as {', '.join(classes[:4])}"


def _are_containers(classes: Sequence[str]) -> bool:
    """Return whether the folders of images are not classes, such as "images"."""
    others = [name for name in classes if not MASK_FOLDER.fullmatch(name)]
    has_images = bool(others) or not classes
    return has_images and all(map(IMAGE_FOLDER.fullmatch, others))


def _detect_unlabelled(recipe: Recipe, folder: str, tree: Tree, depth: int) -> None:
    """Add the parameters for images that nothing labels.

    Raises: ValueError: there is a CSV, which may be of labels.
    """
    if tree.tables:
        tables = to_line(", ".join(tree.tables[:5]))
        raise ValueError(
            f"'{to_line(folder)}' has images, but neither class folders nor a CSV that "
            f"names them (CSVs found: {tables}). Put one beside them: image_id,label, "
            "and one row per image. To read the images without labels, write a recipe "
            "with SOURCE: folders, LABEL_COLUMN: [] and their PATTERN."
        )
    at_depth = [name for name in tree.images if name.count("/") == depth]
    chosen = [name for name in at_depth if not _is_in_masks(name)] or at_depth
    recipe.parameters |= {
        "SOURCE": "folders",
        "PATTERN": _find_pattern(chosen),
        "LABEL_COLUMN": [],
    }
    recipe.note(
        f"No labels found: no class folders and no CSV, only images such as {chosen[0]}"
    )
    recipe.note(
        "they are read without labels; for labels, put them in class folders, or a "
        "CSV beside them: image_id,label"
    )
    _note_left_out(recipe, tree, chosen)
    parts = {part for name in chosen for part in name.split("/")[:-1]}
    _detect_splits(recipe, parts)


def _note_left_out(recipe: Recipe, tree: Tree, chosen: Sequence[str]) -> None:
    """Comment on boxes and images that 01 will not read.

    chosen: the images that it will read, besides those of a test folder.
    """
    boxes = [name for name in tree.files if BOXES.search(name)]
    if boxes:
        recipe.note(f"files such as {boxes[0]} are not read: boxes are not labels here")
    others = sorted(set(tree.images).difference(chosen))
    others = [name for name in others if not _is_test(name)]
    if others:
        recipe.doubt(f"images such as {others[0]} are left out by PATTERN")


def _is_in_masks(image: str) -> bool:
    """Return whether one of the image's folders is of masks."""
    return any(map(MASK_FOLDER.fullmatch, image.split("/")[:-1]))


def _is_test(image: str) -> bool:
    """Return whether the image is in a test folder at the top, which 01 finds."""
    return split_of(image.partition("/")[0]) == "test"


def _find_pattern(images: Sequence[str]) -> str:
    """Return the pattern of images at one depth: "*" for folders that differ."""
    levels = zip(*(name.split("/")[:-1] for name in images), strict=True)
    folders = [
        glob.escape(names[0]) if len(set(names)) == 1 else "*" for names in levels
    ]
    return "/".join([*folders, "*"])
