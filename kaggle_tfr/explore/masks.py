"""Check whether run-length codes count by columns, on a sample of the images."""

import pandas as pd

from kaggle_tfr.images.masks import measure_comb
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels

MOST_MASKS = 50  # that are measured
MANY_COMBS = 0.75  # of them: thin lines and noise look like combs in either order


def sample_masks(images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return path, height, width and code, the longest one, of images with masks.

    At most 50 good images are chosen at random; none if the labels are not masks.
    """
    is_masked = (images["problem"] == "") & (images["label_name"] != "")
    masked = images[is_masked & (labels.kind == "masks")]
    sample = masked.sample(min(len(masked), MOST_MASKS), random_state=0)
    codes = sample[list(labels.label_columns)].to_numpy()
    longest = [max(codes_of_image, key=len) for codes_of_image in codes]
    return sample[["path", "height", "width"]].assign(code=longest)


def note_combs(images: pd.DataFrame, labels: Labels) -> None:
    """Note that codes may count by rows, if most masks look like combs.

    Square images do not count: a mask fits them in both orders.
    """
    masks = sample_masks(images, labels).query("height != width")
    rows = masks[["code", "height", "width"]].to_numpy()
    n_combs = sum(measure_comb(*row) > 0 for row in rows)
    if n_combs > MANY_COMBS * len(masks):
        note(
            "!",
            f"{n_combs} of {len(masks)} masks look like combs: their codes may count "
            "by rows.",
            "input: masks",
            "If so, set RLE_ORDER: rows.",
        )
