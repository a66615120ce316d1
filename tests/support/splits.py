"""Tables of images in splits, their pairs, hashes and clusters."""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import count_bits
from kaggle_tfr.images.hashing import ALL_HASHES, FLAT


def make_images(*splits, **columns):
    """Return an image for each split: tr0, va1, … by split and row."""
    images = pd.DataFrame({"split": splits})
    images["image_id"] = images["split"].str[:2] + images.index.astype(str)
    is_test = images["split"] == "test"
    images["label"] = np.where(is_test, -1, 0)
    images["label_name"] = np.where(is_test, "", "rose")
    sizes = {"height": 10, "width": 10, "n_bytes": 100}
    state = {"source": 0, "decision": "", "is_elsewhere": False}
    return images.assign(path="", problem="", **sizes | state | columns)


def make_pairs(*ends):
    """Return pairs of the images in rows a and b; "01" is the first and the second."""
    rows = [tuple(map(int, pair)) for pair in ends]
    return pd.DataFrame(rows, columns=["a", "b"], dtype=int).assign(distance=1)


def make_codes(*places):
    """Return hashes of images on a line: as many bits differ as they are apart."""
    bits = np.arange(256) < np.array(places)[:, None]
    return np.packbits(bits, axis=1)


def make_hashes(codes):
    """Return the table of `load_hashes` for codes, uint8 (n, 32 or more).

    Hashes that the codes do not contain are 0.
    """
    words = np.zeros((len(codes), len(ALL_HASHES)), np.uint64)
    words[:, : codes.shape[1] // 8] = codes.view(">u8")
    hashes = pd.DataFrame(words, columns=ALL_HASHES)
    return hashes.assign(texture=FLAT, digest="", problem="")


def decide(images, pairs, places=None, **rules):
    """Return the clusters of images that are all near, or at these places."""
    codes = make_codes(*(places or [0] * len(images)))
    distance = count_bits(codes, pairs["a"], pairs["b"])
    pairs = pairs.assign(distance=distance)
    return find_clusters(images, pairs, codes, DuplicateSettings(**rules))
