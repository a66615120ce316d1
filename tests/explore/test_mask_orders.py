"""Run-length codes that count by rows are noticed, drawn and converted."""

import numpy as np
import pytest
from PIL import Image
from support.inputs import put_csv, read

from kaggle_tfr.explore.masks import note_combs
from kaggle_tfr.explore.table import measure
from kaggle_tfr.images.masks import encode_mask

MASKS = {"label_kind": "masks", "label_column": "EncodedPixels"}


@pytest.mark.parametrize("order", ["columns", "rows"])
def test_codes_by_rows_are_noticed_and_converted(order, capsys):
    """They are noted unless RLE_ORDER is right; those by columns are not changed.

    A code that does not fit is a problem in any order, and not converted.
    """
    put_csv(".", "", ["0.png", "4.png"])
    rows = ["image_id, EncodedPixels", "0.png, -1"]
    codes = [""]
    for number, size in enumerate(((40, 64), (64, 40), (50, 50)), 1):
        mask = np.zeros(size, np.uint8)
        mask[5:25, 10:30] = 1
        codes.append(encode_mask(mask))
        code = encode_mask(mask.T if order == "rows" else mask)
        rows.append(f"{number}.png,{code}")
        Image.fromarray(mask).save(f"train_images/{number}.png")
    rows.append("4.png,1 2 3")
    listed, labels = read(put_csv(".", "\n".join(rows)), **MASKS)

    images = measure(listed, labels, rle_order=order)

    odd = "EncodedPixels: run-length code is odd"
    assert images["problem"].str.startswith(odd).tolist() == [False] * 4 + [True]
    assert images["EncodedPixels"].tolist() == [*codes, "1 2 3"]
    note_combs(images, labels)
    assert "comb" not in capsys.readouterr().out
    note_combs(measure(listed, labels), labels)
    text = "! 2 of 2 masks look like combs: their codes may count by rows. If so, set"
    assert (text in capsys.readouterr().out) == (order == "rows")
