"""Find dark, blurred, empty and strongly compressed images by what `measure` saved."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaggle_tfr.figures import count_of
from kaggle_tfr.images.hashing import FLAT, HASHES


@dataclass(frozen=True)
class Fault:
    """A fault that images have if a measured value is below a limit.

    name: an adjective. superlative: of an image with the lowest value. column: of
    `rate_images`. criterion, caption: format the limit and a value.
    """

    name: str
    superlative: str
    column: str
    limit: float
    criterion: str
    caption: str


FAULTS = (
    Fault(
        "dark",
        "darkest",
        "brightness",
        25,
        "mean level below {} of 255",
        "level {:.0f}",
    ),
    Fault(
        "blurred",
        "most blurred",
        "sharpness",
        3,
        "edges below {} levels",
        "edges {:.1f}",
    ),
    Fault(
        "almost empty",
        "emptiest",
        "texture",
        FLAT,
        "texture below {} levels",
        "texture {:.1f}",
    ),
    Fault(
        "strongly compressed",
        "most compressed",
        "bytes_per_pixel",
        0.05,
        "less than {} bytes a pixel",
        "{:.2f} B / pixel",
    ),
)


def rate_images(images: pd.DataFrame, hashes: pd.DataFrame) -> pd.DataFrame:
    """Return the good images with texture, bytes_per_pixel and the four hashes.

    hashes: of `load_hashes`. brightness, sharpness, texture: grey levels of 255.
    """
    pixels = images["height"].astype(np.int64) * images["width"]
    rated = images.assign(
        texture=hashes["texture"].to_numpy(),
        bytes_per_pixel=images["n_bytes"] / pixels.clip(lower=1),
        **{name: hashes[name].to_numpy() for name in HASHES},
    )
    return rated[rated["problem"] == ""]


def count_faulty(rated: pd.DataFrame) -> int:
    """Return how many images have one of the faults. rated: of `rate_images`."""
    is_below = [rated[fault.column] < fault.limit for fault in FAULTS]
    return int(np.any(is_below, axis=0).sum())


def describe_quality(rated: pd.DataFrame) -> str:
    """Return a line for each fault, those that images have first.

    rated: of `rate_images`.
    """
    found = []
    absent = []
    for fault in FAULTS:
        count = int((rated[fault.column] < fault.limit).sum())
        criterion = fault.criterion.format(fault.limit)
        if count:
            share = f"{count:,} of {count_of(len(rated), 'image')}"
            verb = "is" if count == 1 else "are"
            found.append(f"Warning: {share} {verb} {fault.name} ({criterion}).")
        else:
            absent.append(f"No image is {fault.name} ({criterion}).")
    return "\n".join(found + absent)
