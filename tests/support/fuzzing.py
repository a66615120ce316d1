"""`python -m support.fuzzing COUNT SEED`: what happened to mutated images, as JSON."""

import collections
import json
import sys
import warnings

import numpy as np

from kaggle_tfr.images.convert import ImageSettings, check_image, convert
from kaggle_tfr.images.header import RejectedImage
from support.scenes import opened, saved, scene, wide_profile

SETTINGS = [
    ImageSettings((48, 48)),
    ImageSettings(None, resize="none"),
    ImageSettings((200, 200), resize="fill", resample="lanczos"),
]
# Pillow shows these.
BEYOND_PILLOW = ("truncated: grey to its end", "damaged: zeros in its scan")


def originals():
    """Return whole images of every format that is decoded in its own way."""
    image = scene(90, 120)
    yield saved(image, quality=75)
    yield saved(image, subsampling=0, icc_profile=wide_profile())
    yield saved(image, restart_marker_blocks=3)
    yield saved(image, progressive=True)
    for mode in ("L", "CMYK"):
        yield saved(image.convert(mode))
    for mode in ("RGB", "RGBA", "P"):
        yield saved(image.convert(mode), "PNG")
    for is_lossless in (True, False):
        yield saved(image, "WEBP", quality=80, lossless=is_lossless)


def mutate(rng, pool):
    """Return one of the images with changed bytes, truncated or spliced."""
    data = bytearray(pool[rng.integers(len(pool))])
    kind = rng.integers(5)
    if kind < 3:
        reach = min(700 if kind else len(data), len(data))  # 700: mostly the head
        for _ in range(rng.integers(1, 12)):
            data[rng.integers(reach)] = rng.integers(256)
    if kind > 1:
        data = data[: rng.integers(len(data))]
    if kind > 3:
        other = pool[rng.integers(len(pool))]
        data += other[rng.integers(len(other)) :]
    return bytes(data)


def verdict(call, data):
    """An empty text when the call succeeds, else the exception's."""
    try:
        call(data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def load(data):
    opened(data).load()


def main(count, seed):
    """Counts verdicts; anything but a record or a RejectedImage is an error here."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    pool = list(originals())
    found = collections.Counter()
    for _ in range(count):
        data = mutate(rng, pool)
        found["rejected by Pillow"] += bool(pillow := verdict(load, data))
        found["truncated to Pillow"] += "truncated" in pillow
        for settings in SETTINGS:
            try:
                record = convert(data, settings).data
                found["records of files truncated to Pillow"] += "truncated" in pillow
                found["records that Pillow cannot read"] += bool(verdict(load, record))
            except RejectedImage as rejection:
                early = str(rejection) in BEYOND_PILLOW
                found["rejections of files that Pillow reads"] += (
                    not pillow and not early
                )
        check = verdict(check_image, data)
        if check.partition(": ")[2] not in BEYOND_PILLOW:
            found["verdicts of check unlike Pillow's"] += bool(check) != bool(pillow)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
