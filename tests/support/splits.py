"""Tables of images in splits, their pairs and their hashes."""

import numpy as np
import pandas as pd

from kaggle_tfr.images.hashing import FLAT, HASHES, ROTATION_BITS


def make_images(*splits):
    """Return an image for each split: tr0, va1, … by split and row."""
    images = pd.DataFrame({"split": splits})
    images["image_id"] = images["split"].str[:2] + images.index.astype(str)
    is_test = images["split"] == "test"
    images["label"] = np.where(is_test, -1, 0)
    images["label_name"] = np.where(is_test, "", "rose")
    sizes = {"height": 10, "width": 10, "n_bytes": 100}
    state = {"source": 0, "decision": "", "is_elsewhere": False}
    return images.assign(path="", problem="", **sizes, **state)


def make_pairs(*names):
    """Return pairs of the images in rows a and b; "01" is the first and the second."""
    rows = [tuple(map(int, name)) for name in names]
    return pd.DataFrame(rows, columns=["a", "b"], dtype=int)


def make_codes(*places):
    """Return hashes of images on a line: as many bits differ as they are apart."""
    bits = np.arange(256) < np.array(places)[:, None]
    return np.packbits(bits, axis=1)


def make_hashes(codes):
    """Return the table of `load_hashes` for codes, uint8 (n, 32)."""
    words = codes.view(">u8").astype(np.uint64)
    hashes = pd.DataFrame(words, columns=[*HASHES])
    hashes = hashes.assign(**dict.fromkeys(ROTATION_BITS, np.uint64(0)))
    return hashes.assign(texture=FLAT, digest="", problem="")
