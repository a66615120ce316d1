"""Find the file of a pretrained network."""

import os
from pathlib import Path

from kaggle_tfr.find import find_input

ENDINGS = (".keras", ".h5")  # the second is also that of .weights.h5
IN_KERAS = ("", "imagenet")  # no weights, and those that Keras downloads


def find_weights(weights: str) -> str:
    """Return the file of pretrained weights, or "" and "imagenet" as they are.

    weights: a file, or the folder of one; or a Kaggle input that contains it, as
        `find_input` takes it: "owner/dataset/efficientnetb0_notop.h5", or a model as in
        its address: "models/owner/model/framework/variation".
    Raises: FileNotFoundError: there is no such file, or there are several.
    """
    # IN_KERAS: "" for no weights, and "imagenet", which Keras downloads itself.
    if weights in IN_KERAS or os.path.isfile(weights):
        return weights
    # A folder, whose file may have any name; or a file in a folder, with this name.
    folder, name = weights, ""
    if weights.endswith(ENDINGS):  # .keras or .h5
        folder, name = os.path.split(weights)
    paths = sorted(Path(find_input(folder or ".")).rglob("*"))
    files = [str(path) for path in paths if path.name.endswith(ENDINGS)]
    matching = [file for file in files if name in ("", os.path.basename(file))]
    if len(matching) != 1:
        raise FileNotFoundError(
            f"WEIGHTS is '{weights}', which is not one file on this machine, .keras or "
            f".h5. There are {', '.join(files[:9]) or 'none'}. Set WEIGHTS to the path "
            "of one of them."
        )
    return matching[0]
