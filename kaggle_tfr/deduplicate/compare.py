"""Compare with published datasets: their hashes are rows of the same search.

The images of a compared dataset are not there, so a second look is not possible: two
images are the same if their hashes are within MAX_BITS, or within the radius of
mirrored copies.
"""

import re
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_first, find_pairs
from kaggle_tfr.earlier import FINGERPRINTS_FILE, read_fingerprints
from kaggle_tfr.find import find_input
from kaggle_tfr.shards import list_parts

# Columns of an image of another dataset in `find_overlap`, with the ending "_a".
COLUMNS = ["image_id", "split", "label_name"]
# Of an absolute folder, all but the last one, or but that of a part and the one around
# it: names are published.
PRIVATE = re.compile(r"^[/~](.*?/)?(?=[^/]+(/part-\d+)?/?$)")


def read_datasets(compare_with: Sequence[str]) -> pd.DataFrame:
    """Return the fingerprints of published parts, one row per image.

    compare_with: parts or folders of parts; each is a folder, a gs:// address or a
        slug. Of a slug only the fingerprints are downloaded.
    Columns: those of `read_fingerprints` (image_id, split, label_name, hashes …), and
    dataset: what `compare_with` calls it, without `PRIVATE` folders (all but the last
    of an absolute path), and the folder of the part if that is one of several.
    Raises: FileNotFoundError, ValueError: each names the part and what is wrong.
    """
    # The first table, without rows, is only used if there is no other one.
    tables = [pd.DataFrame(columns=[*COLUMNS, "dataset"])]
    for source in dict.fromkeys(compare_with):
        folder = find_input(source, names=[FINGERPRINTS_FILE])
        for part in list_parts(folder) or [folder]:  # it is a part itself
            name = PRIVATE.sub("", source).rstrip("/") + part.removeprefix(folder)
            tables.append(read_fingerprints(part).assign(dataset=name))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def find_overlap(
    hashes: pd.DataFrame,
    others: pd.DataFrame,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Find the images that are also in other datasets: the nearest one in each.

    hashes: of `load_hashes`, a row for each of our images. others: of `read_datasets`.
    Columns: row (row number of `hashes`), distance (bits), orientation (EXIF), dataset,
    and image_id_a, split_a and label_name_a of the other image. Sorted by row; one row
    at most for each image and dataset.
    """
    if others.empty:
        hashes = hashes.head(0)  # nothing is searched
    n_images = len(hashes)
    table = pd.concat([hashes, others.assign(problem="")], ignore_index=True)
    # Pairs contain the first row with equal hashes alone: it stands for all of them. a
    # and b are these first rows in `table`, of our image and of the other one.
    first = find_first(table)
    mine = pd.DataFrame({"row": range(n_images), "a": first[:n_images]})
    theirs = (
        others[COLUMNS]
        .add_suffix("_a")
        .assign(
            row_a=others.index,
            dataset=others["dataset"],
            b=first[n_images:],
        )
    )
    theirs = theirs.drop_duplicates(["b", "dataset"])  # one of equal images
    near = find_pairs(table, settings.max_bits, settings.rotated_bits)
    # Each pair in both directions, and the rows of `theirs` with themselves: an image
    # of ours with equal hashes has the same first row.
    overlap = mine.merge(_mirror_pairs(near, theirs["b"]), on="a")
    overlap = overlap.merge(theirs, on="b")
    overlap = overlap.sort_values(["row", "distance", "dataset", "row_a"])
    return overlap.drop_duplicates(["row", "dataset"], ignore_index=True)


def _mirror_pairs(near: pd.DataFrame, rows: pd.Series) -> pd.DataFrame:
    """Return pairs in both directions, and each of `rows` with itself.

    near: of `find_pairs`: a < b, in which the first row with equal hashes stands for
    all of them. So two images with equal hashes are the pair of a row with itself.
    rows: these first rows for the images of other datasets.
    """
    swapped = near.rename(columns={"a": "b", "b": "a"})
    equal = pd.DataFrame(
        {
            "a": rows,
            "b": rows,
            "distance": 0,
            "orientation": 1,
        }
    )
    return pd.concat([near, swapped, equal])
