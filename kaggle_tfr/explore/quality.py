"""Find dark, blurred, empty and strongly compressed images by what `measure` saved."""

from typing import NamedTuple

import pandas as pd

from kaggle_tfr.figures import count_of
from kaggle_tfr.images.hashing import FLAT


class Fault(NamedTuple):
    """A fault that images have if their value in a column is below a limit.

    name: an adjective. column: of `rate_images`. criterion: formats the limit.
    """

    name: str
    column: str
    limit: float
    criterion: str


FAULTS = (
    Fault("dark", "brightness", 25, "mean level below {} of 255"),
    Fault("blurred", "sharpness", 3, "edges below {} levels"),
    Fault("almost empty", "texture", FLAT, "texture below {} levels"),
    Fault("strongly compressed", "bytes per pixel", 0.05, "less than {} bytes a pixel"),
)


def rate_images(images: pd.DataFrame, hashes: pd.DataFrame) -> pd.DataFrame:
    """Return the good images with texture, bytes per pixel and the average hash.

    hashes: of `load_hashes`. brightness, sharpness, texture: grey levels of 255.
    """
    rated = images.assign(
        texture=hashes["texture"].to_numpy(),
        average=hashes["average"].to_numpy(),
    )
    rated["bytes per pixel"] = images["n_bytes"] / images["height"] / images["width"]
    return rated[rated["problem"] == ""]


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
