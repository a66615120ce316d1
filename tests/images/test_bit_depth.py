"""Pictures of 16 bits: stretched or refused by their range, in 01 as in the records."""

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.chain import run_chain
from support.scenes import opened, saved, scene

from kaggle_tfr.explore import measure
from kaggle_tfr.images.convert import ImageSettings, check_image, convert, read_pixels
from kaggle_tfr.images.header import RefusedImage, read_upright
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.schema import Labels
from kaggle_tfr.write.verify import verify_parts

PASS = ImageSettings(None, resize="none")
KEEP = replace(PASS, format="PNG", pass_through=False)


def shown(data):
    return np.asarray(opened(data).convert("RGB"))


def levels_off(pixels, expected):
    assert np.shape(pixels) == expected.shape
    return np.abs(np.asarray(pixels, float) - expected).max()


LUMA = np.asarray(scene().convert("L"), np.uint16)
RADIOGRAPH = (LUMA << 4) + np.arange(400, dtype=np.uint16) % 16  # all of 12 bits
DEEP = [saved(Image.fromarray(RADIOGRAPH), kind) for kind in ("PNG", "TIFF", "PPM")]
DEEP += [saved(Image.fromarray(RADIOGRAPH.astype(t)), "TIFF") for t in (np.int32, np.float32)]
COLOURS = np.dstack([RADIOGRAPH, RADIOGRAPH, RADIOGRAPH[::-1]])
DEEP += [cv2.imencode(kind, COLOURS)[1].tobytes() for kind in (".png", ".tiff")]


@pytest.mark.parametrize("data", DEEP, ids=["PNG", "TIFF", "PGM", "I", "F", "RGB", "RGB TIFF"])
def test_twelve_bits_in_sixteen_are_stretched_or_refused_by_their_range(data):
    """Never black: "scale" names the values, "stretch" shows them in 200 grey levels or more."""
    reason = rf"dark: values {RADIOGRAPH.min()} to {RADIOGRAPH.max()} of 65535; set BIT_DEPTH"
    for call in (partial(convert, settings=PASS), partial(check_image, bit_depth="scale")):
        with pytest.raises(RefusedImage, match=reason):
            call(data)
    record = shown(convert(data, replace(KEEP, bit_depth="stretch")).data)
    expected = np.interp(RADIOGRAPH, [RADIOGRAPH.min(), RADIOGRAPH.max()], [0, 255])
    assert levels_off(record[..., 1], expected) <= 0.51
    assert len(np.unique(record[..., 1])) > 200
    assert np.array_equal(read_pixels(data), record)  # for the eye, and the source check's:
    assert np.array_equal(read_upright(data, bit_depth="stretch"), record)
    grey = np.asarray(check_image(data, bit_depth="stretch")[1])
    assert levels_off(grey, np.asarray(Image.fromarray(record).convert("L"))) <= 1


def test_stretching_knows_one_shade_and_alpha():
    """One shade is black; alpha and a transparent value lie over white, their levels stretched."""
    stretch, alpha = replace(KEEP, bit_depth="stretch"), np.where(RADIOGRAPH % 2, 65535, 0)
    one = saved(Image.fromarray(np.full((9, 9), 700, np.uint16)), "PNG")
    assert not shown(convert(one, stretch).data).any()
    plain = shown(convert(DEEP[0], stretch).data)
    faded = cv2.imencode(".png", np.dstack([RADIOGRAPH] * 3 + [alpha]).astype(np.uint16))[1]
    over_white = np.where(alpha[..., None], plain, 255)
    assert levels_off(shown(convert(faded.tobytes(), stretch).data), over_white) <= 1
    clear = saved(Image.fromarray(RADIOGRAPH), "PNG", transparency=1000)
    over_white = np.where(RADIOGRAPH[..., None] == 1000, 255, plain)
    assert levels_off(shown(convert(clear, stretch).data), over_white) == 0


def test_01_reads_again_what_it_read_at_another_depth(tmp_path):
    """hashes.parquet is no answer to another BIT_DEPTH: refused, stretched, and refused again."""
    (tmp_path / "a.png").write_bytes(DEEP[0])
    row = {"image_id": "a", "path": str(tmp_path / "a.png"), "problem": ""}
    for way, refused in (("scale", True), ("stretch", False), ("scale", True)):
        table = measure(pd.DataFrame([row]), Labels(bit_depth=way), str(tmp_path))
        assert table["problem"].str.startswith("dark: ").tolist() == [refused]


def test_the_choice_of_01_reaches_the_records(tmp_path):
    """Every 12-bit picture is written, bright, and and fits its source."""
    for k in range(12):
        path = tmp_path / "in" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = np.asarray(scene(80, 100, k).convert("L"), np.uint16) << 4
        path.write_bytes(saved(Image.fromarray(picture), "PNG"))
    work, given = str(tmp_path / "work"), {"INPUT_DIR": str(tmp_path / "in"), "IMAGE_SIZE": 64}
    *_, shards = run_chain("flowers", work, **given, BIT_DEPTH="stretch", N_FOLDS=2)
    assert shards["count"].sum() == 12
    checked = verify_parts([f"{work}/part-1"], work)
    assert checked.faults.empty
    assert checked.sources["psnr"].min() > 30
    plan = read_plan(work)
    assert plan.labels.bit_depth == plan.image.bit_depth == "stretch"
