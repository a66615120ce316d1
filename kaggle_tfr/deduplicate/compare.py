"""Compare with published datasets: their hashes are rows of the same search.

The images of a compared dataset are not there, so a second look is not possible: two
images are the same if their hashes are within MAX_BITS, or within the radius of
mirrored copies.
"""

import re
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_first, find_pairs
from kaggle_tfr.fingerprints import FINGERPRINTS_FILE, read_fingerprints
from kaggle_tfr.mounts import find_part_files
from kaggle_tfr.shards import list_parts

# Columns of an image of another dataset, and their names in `find_overlap`.
NAMES = {
    "image_id": "test_id",
    "split": "test_split",
    "label_name": "test_label",
    "digest": "test_digest",
}


def read_datasets(compare_with: Sequence[str]) -> pd.DataFrame:
    """Return the fingerprints of published parts, one row per image.

    compare_with: parts or folders of parts; each is a folder, a gs:// address or a
        slug. Of a slug only the fingerprints are downloaded.
    Columns: those of `read_fingerprints`, and dataset: the name of the part, of
    `name_dataset`, with the folder of the part if that is one of several.
    Raises: FileNotFoundError, ValueError: each names the part and what is wrong.
    """
    tables = [pd.DataFrame(columns=[*NAMES, "dataset"])]
    for source in compare_with:
        folder = find_part_files(source, [FINGERPRINTS_FILE])
        for part in list_parts(folder) or [folder]:
            name = name_dataset(source) + part.removeprefix(folder)
            tables.append(read_fingerprints(part).assign(dataset=name))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def name_dataset(source: str) -> str:
    """Return the name of a dataset of `compare_with` in leaks.csv and on pages.

    Slugs, addresses and relative folders are names. Of an absolute folder, the last
    folder is the name, with the one around it for a part, because pages are published.
    """
    if not source.startswith(("/", "~")):
        return source
    folders = source.rstrip("/").split("/")
    is_part = re.fullmatch(r"part-\d+", folders[-1])
    return "/".join(folders[-2:] if is_part else folders[-1:])


def find_overlap(
    hashes: pd.DataFrame, others: pd.DataFrame, settings: DuplicateSettings
) -> pd.DataFrame:
    """Find the images that are also in other datasets: the nearest one in each.

    hashes: of `load_hashes`. others: of `read_datasets`.
    Columns: a (row number of `hashes`), distance (bits), orientation (EXIF), test_id,
    test_split, test_label, test_digest and dataset of the other image.
    """
    if others.empty:
        return pd.DataFrame(
            columns=["a", "distance", "orientation", *NAMES.values(), "dataset"]
        )
    table = pd.concat([hashes, others.assign(problem="")], ignore_index=True)
    pairs = find_pairs(table, settings.max_bits, settings.rotated_bits)
    n_images = len(hashes)
    pairs = pairs[(pairs["a"] < n_images) & (pairs["b"] >= n_images)]
    # Of images with equal hashes only the first one is in these pairs.
    first = find_first(table)[:n_images]
    members = pd.DataFrame({"first": first, "row": range(n_images)})
    overlap = members.merge(pairs.rename(columns={"a": "first"}), on="first")
    overlap["b"] -= n_images
    found = others.rename(columns=NAMES)[[*NAMES.values(), "dataset"]]
    overlap = overlap.merge(found, left_on="b", right_index=True)
    overlap = overlap.drop(columns=["first", "b"]).rename(columns={"row": "a"})
    order = ["a", "distance", "dataset", "test_split", "test_id"]
    overlap = overlap.sort_values(order, kind="stable")
    return overlap.drop_duplicates(["a", "dataset"], ignore_index=True)
