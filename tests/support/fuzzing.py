"""Mutated pictures through the image path, in a process of their own, since one may crash it.

python tests/support/fuzzing.py COUNT SEED prints what came of them, as JSON.
"""

import collections
import json
import sys
import time
import warnings

import cv2
import numpy as np

from kaggle_tfr.images.convert import ImageSettings, RefusedImage, convert
from kaggle_tfr.images.convert import check_image as check
from support.scenes import opened, saved, scene, wide_profile

SETTINGS = [
    ImageSettings((48, 48)),
    ImageSettings((200, 200)),
    ImageSettings((64, 64), resize="fill", resample="lanczos"),
    ImageSettings(None, resize="none"),
]


def originals():
    """The bytes of whole pictures of every kind that has its own way through the decoder."""
    restarts = [cv2.IMWRITE_JPEG_RST_INTERVAL, 3]
    for seed in range(3):
        image = scene(90, 120, seed)
        yield saved(image, quality=75)
        yield saved(image, subsampling=0, icc_profile=wide_profile())
        yield saved(image, progressive=True)
        yield saved(image.convert("L"))
        yield saved(image.convert("CMYK"))
        yield cv2.imencode(".jpg", np.asarray(image), restarts)[1].tobytes()
        yield saved(image, "PNG")
        yield saved(image.convert("RGBA"), "PNG")
        yield saved(image.quantize(16), "PNG")
        yield saved(image, "WEBP", quality=80)
        yield saved(image, "WEBP", lossless=True)


def mutate(rng, pool):
    """One of the pictures with bytes changed (anywhere, or in its header), cut, or spliced."""
    data = bytearray(pool[rng.integers(len(pool))])
    kind = rng.integers(5)
    if kind in (0, 4):
        for _ in range(rng.integers(1, 12)):
            data[rng.integers(len(data))] = rng.integers(256)
    if kind == 1:
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(min(700, len(data)))] = rng.integers(256)
    if kind in (2, 4):
        data = data[: rng.integers(len(data))]
    if kind == 3:
        other = pool[rng.integers(len(pool))]
        data = data[: rng.integers(len(data))] + other[rng.integers(len(other)) :]
    return bytes(data)


def verdict(call, *arguments):
    """"" when the call succeeds, else the exception's name and text."""  # fmt: skip
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(count, seed):
    """Counts verdicts; anything but a record or a RefusedImage is an error here."""
    warnings.simplefilter("ignore")
    rng, pool = np.random.default_rng(seed), list(originals())
    found, slowest = collections.Counter(), 0.0
    for _ in range(count):
        data = mutate(rng, pool)
        pillow = verdict(lambda data: opened(data).load(), data)
        found["refused by Pillow"] += bool(pillow)
        found["truncated to Pillow"] += "truncated" in pillow
        for settings in SETTINGS:
            start = time.perf_counter()
            try:
                record = convert(data, settings)
                found["records of files truncated to Pillow"] += "truncated" in pillow
                found["records that Pillow cannot read"] += bool(
                    verdict(lambda data: opened(data).load(), record.data)
                )
            except RefusedImage:
                found["refusals of files that Pillow reads"] += not pillow
            slowest = max(slowest, time.perf_counter() - start)
        found["verdicts of check unlike Pillow's"] += bool(verdict(check, data)) != bool(pillow)
    print(json.dumps(found | {"slowest": slowest}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
