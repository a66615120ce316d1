"""Compare with published datasets, of which only the fingerprints are read.

A fingerprint is a row of hashes.parquet of a part. The images of a compared dataset are
not there, so a second look is not possible: two images are the same if their hashes are
within MAX_BITS, or within the radius of mirrored copies.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings, match_clusters
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.fingerprints import FINGERPRINTS_FILE, TYPES, read_fingerprints
from kaggle_tfr.mounts import find_part_files
from kaggle_tfr.shards import list_parts

COPY_COLUMNS = [
    "a",
    "distance",
    "orientation",
    "match",
    "test_id",
    "test_split",
    "test_label",
    "dataset",
]


def read_datasets(compare_with: Sequence[str]) -> pd.DataFrame:
    """Return the fingerprints of published parts, one row per image.

    compare_with: parts or folders of parts; each is a folder, a gs:// address or a
        slug. Of a slug only the fingerprints are downloaded. A part that is named twice
        is read once.
    Columns: those of `read_fingerprints`, and dataset: the name of the part, of
    `name_datasets`, with the folder of the part if that is one of several.
    Raises: FileNotFoundError, ValueError: each names the part and what is wrong.
    """
    names: dict[str, str] = {}
    for source, name in name_datasets(compare_with).items():
        folder = find_part_files(source, [FINGERPRINTS_FILE])
        for part in _list_parts(folder):
            below = part.removeprefix(folder)
            names.setdefault(storage.real_path(part), name + below)
    tables = [
        read_fingerprints(part)[[*TYPES]].assign(dataset=name)
        for part, name in names.items()
    ]
    if not tables:
        return pd.DataFrame(columns=[*TYPES, "dataset"])
    return pd.concat(tables, ignore_index=True)


def name_datasets(compare_with: Sequence[str]) -> dict[str, str]:
    """Return a distinct name of each dataset, by the name in `compare_with`.

    Slugs, addresses and relative folders are names. Of an absolute folder, the last
    folder is the name, with the one around it for a part: names are in folds.csv and
    on pages, which may be published.
    """
    names: dict[str, str] = {}
    for source in dict.fromkeys(source.rstrip("/") for source in compare_with):
        base = source
        if source.startswith(("/", "~")):
            parent, base = f"/{source}".split("/")[-2:]
            if re.fullmatch(r"part-\d+", base):
                base = f"{parent}/{base}"
        name = base
        number = 2
        while name in names.values():
            name = f"{base} ({number})"
            number += 1
        names[source] = name
    return names


def _list_parts(folder: str) -> list[str]:
    """Return the parts in a folder; the folder itself if it is a part."""
    if storage.exists(storage.join(folder, "shards.csv")):
        return [folder]
    return list_parts(folder) or [folder]


def compare_datasets(
    hashes: pd.DataFrame,
    others: pd.DataFrame,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Find the images that are also in other datasets, one row per pair.

    hashes: of `load_hashes`. others: of `read_datasets`.
    Columns: a (row number of `hashes`), distance (bits), orientation (EXIF), match
    ("file" for equal files, "hash", or "mirrored" in another orientation), and test_id,
    test_split, test_label and dataset of the other image. The nearest pair of an image
    is its first one.
    """
    if others.empty:
        return pd.DataFrame(columns=COPY_COLUMNS).astype({"a": int, "distance": int})
    table = pd.concat([hashes, others.assign(problem="")], ignore_index=True)
    pairs = find_pairs(table, settings.max_bits, settings.rotated_bits)
    pairs = pairs[(pairs["a"] < len(hashes)) & (pairs["b"] >= len(hashes))]
    pairs = pairs.assign(b=pairs["b"] - len(hashes))
    mine = hashes.iloc[pairs["a"]].reset_index(drop=True)
    found = others.iloc[pairs["b"]].reset_index(drop=True)
    match = np.where(pairs["orientation"] == 1, "hash", "mirrored")
    copies = pd.DataFrame(
        {
            "a": pairs["a"].to_numpy(),
            "distance": pairs["distance"].to_numpy(),
            "orientation": pairs["orientation"].to_numpy(),
            "match": np.where(mine["digest"] == found["digest"], "file", match),
            "test_id": found["image_id"],
            "test_split": found["split"],
            "test_label": found["label_name"],
            "dataset": found["dataset"],
        }
    )
    order = ["a", "distance", "dataset", "test_split", "test_id"]
    return copies.sort_values(order, kind="stable", ignore_index=True)


def name_copies(copies: pd.DataFrame) -> dict[int, str]:
    """Return the nearest copy of each image that has one, by its row number.

    copies: of `compare_datasets`. A copy is named "image 7.jpg of owner/leaves".
    """
    nearest = copies.drop_duplicates("a")
    texts = "image " + nearest["test_id"] + " of " + nearest["dataset"]
    return dict(zip(nearest["a"].tolist(), texts, strict=True))


def list_overlap(
    images: pd.DataFrame,
    copies: pd.DataFrame,
    clusters: pd.DataFrame,
) -> pd.DataFrame:
    """Return the pairs of `compare_datasets` with the other columns of leaks.csv.

    test_id and test_split are of the image of the other dataset; image_id, label_name,
    split and keep of the image in `images`.
    """
    mine = match_clusters(images.iloc[copies["a"]], clusters)
    return copies.join(mine[["image_id", "label_name", "split", "keep"]])
