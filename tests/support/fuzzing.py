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


def judge(data):
    """Yield what happens to an image; all but the first two names are errors."""
    pillow = verdict(load, data)
    if pillow:
        yield "rejected by Pillow"
    is_truncated = "truncated" in pillow
    if is_truncated:
        yield "truncated to Pillow"

    check = verdict(check_image, data)
    _, _, reason = check.partition(": ")
    if reason not in BEYOND_PILLOW and bool(check) != bool(pillow):
        yield f"verdict of check unlike Pillow's: {check} {pillow}"
    for settings in SETTINGS:
        try:
            record = convert(data, settings).data
        except RejectedImage as rejection:
            if not pillow and str(rejection) not in BEYOND_PILLOW:
                yield f"rejected, but read by Pillow: {rejection}"
            continue
        if is_truncated:
            yield "record of a file that is truncated to Pillow"
        if error := verdict(load, record):
            yield f"record that Pillow cannot read: {error}"


def main(count, seed):
    """Print how often each name of `judge` occurs."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    pool = list(originals())
    names = [name for _ in range(count) for name in judge(mutate(rng, pool))]
    print(json.dumps(collections.Counter(names)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
