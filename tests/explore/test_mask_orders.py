"""Run-length codes that count by rows are noticed, drawn and converted."""

import numpy as np
from support import layouts
from support.inputs import put_csv, read, read_cells

from kaggle_tfr.explore.masks import draw_masks
from kaggle_tfr.explore.table import measure
from kaggle_tfr.images.masks import encode_mask

MASKS = {"label_kind": "masks", "label_column": "EncodedPixels"}


def test_codes_by_rows_are_drawn_and_converted():
    """Three are drawn, without the warning that the layouts in test_cases.py have."""
    rows = ["image_id,EncodedPixels", "0.png,-1"]
    codes = [""]
    for number, size in enumerate([(64, 40), (64, 40), (40, 64), (50, 50)], 1):
        mask = np.zeros(size[::-1], np.uint8)
        mask[5:25, 10:30] = 1
        codes.append(encode_mask(mask))
        rows.append(f"{number}.png,{encode_mask(mask.T)}")
        layouts.put([f"train_images/{number}.png"], size)
    put_csv(".", "\n".join(rows), ["0.png"])
    table, labels = read(**MASKS)

    images = measure(table, labels, rle_order="rows")

    assert images["problem"].tolist() == [""] * 5
    assert images["EncodedPixels"].tolist() == codes
    figure, warning = draw_masks(images, labels)
    assert warning == ""
    assert figure.get_suptitle().startswith("3 masks: if they do not fit")


def test_a_code_that_does_not_fit_is_a_problem_in_any_order():
    """It is named, and not converted."""
    images = measure(*read_cells("EncodedPixels", ["1 2 3"], **MASKS), rle_order="rows")

    assert images["EncodedPixels"][0] == "1 2 3"
    assert images["problem"][0].startswith("EncodedPixels: run-length code is odd")
