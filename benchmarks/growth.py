"""Measure 02 and 03 for 1 % new images against a full run, on landmark's rows.

python -m benchmarks.growth [--n N] [--data DIR] [--keep DIR] [--json]

Rows and hashes are made up, as in benchmarks.folds and benchmarks.duplicates; there are
no image files. An earlier run has 99 % of the rows. Then all rows are planned again,
and beside it as its growth, after 01 has joined them to the earlier work folder. Each
step is a process of its own, whose peak memory is measured.
"""

import argparse
import io
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from PIL import Image

from benchmarks.duplicates import apart, draw_codes, list_photos, ours_in_orientations
from benchmarks.folds import CLASSES, LANDMARK, draw_table
from kaggle_tfr import deduplicate, plan
from kaggle_tfr.earlier import encode_fingerprints, save_earlier, select_fingerprints
from kaggle_tfr.explore.growth import join_records, read_records
from kaggle_tfr.explore.table import HASHED, MEASURED, load_images, save_images
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.plan import forecast
from kaggle_tfr.schema import Labels

NEW_SHARE = 0.01
PHOTOS = 2000  # whose hashes are imitated
# The bytes of the originals are known, and no geometry is compared.
VALUES = DEFAULTS | {"RESIZE": "none", "SECOND_LOOK": False, "NAME": "growth"}


def draw_images(n, n_classes, data):
    """Return the rows of images.parquet and of hashes.parquet."""
    rows = draw_table(n, n_classes)[["label", "label_name", "split"]]
    numbers = np.arange(n)
    ids = [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(1, n + 1)]
    images = rows.assign(
        image_id=ids,
        path=[f"/photos/{name[0]}/{name}.jpg" for name in ids],
        problem="",
        source=0,
        input_dir="/photos",
        **MEASURED,
    )
    images = images.assign(
        height=300 + numbers % 200,
        width=400 + numbers % 300,
        n_bytes=40_000 + numbers % 20_000,
        format="JPEG",
        digest=ids,
        jpeg_quality=90,
    )
    files = list_photos(data)[:PHOTOS]
    real = np.stack([ours_in_orientations(file.read_bytes())[:32] for file in files])
    codes = draw_codes(real, n, np.random.default_rng(n))[0]
    words = codes.view(">u8").astype(np.uint64)
    hashes = images[["image_id", "path", "problem", "digest"]].assign(**HASHED)
    hashes = hashes.assign(**dict(zip(HASHES, words.T, strict=True)))
    return images, hashes.assign(texture=np.float32(FLAT))


def write_inputs(folder, n, n_classes, data):
    """Write what 01 would: 99 % of the rows in first/, all in full/ and in grown/."""
    images, hashes = draw_images(n, n_classes, data)
    is_first = np.random.default_rng(0).permutation(n) >= int(n * NEW_SHARE)
    labels = Labels(classes=tuple(sorted(images["label"].unique().tolist())))
    for name, is_row in {
        "first": is_first,
        "full": np.ones(n, bool),
        "grown": np.ones(n, bool),
    }.items():
        work = Path(folder, name)
        work.mkdir(parents=True, exist_ok=True)
        save_images(images[is_row].reset_index(drop=True), labels, str(work))
        hashes[is_row].to_parquet(work / "hashes.parquet", index=False)


def publish(work):
    """Write hashes.parquet and plan.json of each part, as 04 does."""
    table = pd.read_parquet(Path(work, "plan.parquet"))
    for number, rows in table.groupby("part"):
        part = Path(work, f"part-{number}")
        part.mkdir(exist_ok=True)
        fingerprints = encode_fingerprints(select_fingerprints(rows, ""))
        (part / "hashes.parquet").write_bytes(fingerprints)
        shutil.copy(Path(work, "plan.json"), part)


def join(work, folds_from):
    """Join the images of a work folder to the records of another, as 01 does."""
    images, labels = load_images(work)
    records = read_records(folds_from, work)
    save_earlier(records, work)
    save_images(*join_records(images, labels, records), work)


def run_step(step, work):
    """Return seconds and peak MB of a step; call it in a process of its own."""
    values = VALUES | {"WORK_DIR": work}
    stream = io.BytesIO()
    Image.effect_noise((400, 300), 60).convert("RGB").save(stream, "JPEG")
    start = time.perf_counter()
    # The forecast converts a sample of the images, which are all this one.
    image = stream.getvalue()
    with mock.patch.object(forecast, "read_image_bytes", return_value=image):
        if step == "01":
            publish(f"{work}/../first")
            join(work, f"{work}/../first")
        elif step == "02":
            deduplicate.run(values)
        else:
            plan.run(values)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": round(seconds, 1), "peak_mb": round(peak)}


def measure(folder):
    """Return one row per run and step."""
    rows = []
    for name in ("first", "full", "grown"):
        for step in ("01", "02", "03") if name == "grown" else ("02", "03"):
            figures = apart(run_step, step, f"{folder}/{name}")
            rows.append({"run": name, "step": step, **figures})
    return pd.DataFrame(rows)


def main():
    """Measure, and print a table or the ratio of seconds as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=LANDMARK)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--keep", default="", help="folder that stays")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or scratch
        n_classes = min(CLASSES, options.n // 10)
        apart(write_inputs, folder, options.n, n_classes, options.data)
        table = measure(folder)
    seconds = table[table["step"] != "01"].groupby("run")["seconds"].sum()
    ratio = round(seconds["grown"] / seconds["full"], 3)
    if options.json:
        print(json.dumps({"growth_ratio": ratio}))
        return
    print(table.to_string(index=False))
    print(f"growth_ratio {ratio}")


if __name__ == "__main__":
    main()
