"""Run-length codes that count by rows are noticed, drawn and converted."""

import numpy as np
import pytest
from PIL import Image
from support.inputs import put_csv, read

from kaggle_tfr.explore.masks import note_combs
from kaggle_tfr.explore.table import measure
from kaggle_tfr.images.masks import encode_mask

MASKS = {"label_kind": "masks", "label_column": "EncodedPixels"}


def put_masks(folder, order):
    """Write images and their masks, a rectangle each; return the codes by columns."""
    rows = ["image_id, EncodedPixels", "0.png, -1"]
    codes = [""]
    put_csv(folder, "", ["0.png"])
    for number, size in enumerate(((40, 64), (40, 64), (64, 40), (50, 50)), 1):
        mask = np.zeros(size, np.uint8)
        mask[5:25, 10:30] = 1
        codes.append(encode_mask(mask))
        code = encode_mask(mask.T if order == "rows" else mask)
        rows.append(f"{number}.png,{code}")
        Image.fromarray(mask).save(folder / "train_images" / f"{number}.png")
    (folder / "train.csv").write_text("\n".join(rows))
    return codes


@pytest.mark.parametrize("order", ["columns", "rows"])
def test_codes_by_rows_are_noticed_and_converted(tmp_path, order, capsys):
    """They are noted unless RLE_ORDER is right; those by columns are not changed."""
    codes = put_masks(tmp_path, order)
    listed, labels = read(tmp_path, **MASKS)

    images = measure(listed, labels, rle_order=order)

    assert images["problem"].tolist() == [""] * 5
    assert images["EncodedPixels"].tolist() == codes
    note_combs(images, labels)
    assert "comb" not in capsys.readouterr().out
    note_combs(measure(listed, labels), labels)
    text = (
        "! 3 of 3 masks look like combs: their codes may count by rows. If so, set "
        "RLE_ORDER: rows."
    )
    assert (text in capsys.readouterr().out) == (order == "rows")


def test_a_code_that_does_not_fit_is_a_problem_in_any_order(tmp_path):
    """It is named, and not converted."""
    put_csv(tmp_path, "image_id,EncodedPixels\na.jpg,1 2 3\n", ["a.jpg"])

    images = measure(*read(tmp_path, **MASKS), rle_order="rows")

    assert images["EncodedPixels"][0] == "1 2 3"
    assert images["problem"][0].startswith("EncodedPixels: run-length code is odd")
