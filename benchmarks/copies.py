"""Measure how many copies of each kind are found, and how many false pairs.

python -m benchmarks.copies [--data DIR] [--n N] [--json]

Photographs and flowers, each with one copy of each kind: those of imagededup's
benchmark (crop, both mirror images, rotation by 25°, another aspect), and further ones.
The search is repeated within 25 bits, by default (SECOND_LOOK = "auto"), with MIRRORED
within 25 bits, with SECOND_LOOK = True, and with both.
Precision is the share of true pairs among all pairs found; two copies of one image are
a true pair. The originals have no near-duplicates: neither SECOND_LOOK nor a person who
looked at the pairs found one. So a pair of any two originals is false.
"""

import argparse
import io
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageEnhance, ImageOps

from benchmarks.duplicates import list_photos
from kaggle_tfr import explore, parallel
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_candidates, find_first

T = Image.Transpose
# One flower of each pair that shows the same scene twice.
ONE_SCENE = [
    "10466558316_a7198b87e2.jpg",
    "8980266062_8387f6cc89.jpg",
    "7471891352_cfd56b4e45_n.jpg",
    "2980154410_bffd7a3452_n.jpg",
    "6606743797_c90c669757.jpg",
    "134143359_71fa8dd9a4.jpg",
    "13530786873_0d34880300_n.jpg",
]


def crop(image, share, x, y):
    """Return a window of `share` of each side; x and y: its place, from 0 to 1."""
    width, height = round(image.width * share), round(image.height * share)
    left, top = round((image.width - width) * x), round((image.height - height) * y)
    return image.crop((left, top, left + width, top + height))


KINDS = {
    "mirrored": ImageOps.mirror,
    "upside down": ImageOps.flip,
    "rotated by 25°": lambda i: i.rotate(25),
    "aspect × 3/4": lambda i: i.resize((i.width, round(i.height * 0.75))),
    "crop of 10 %": lambda i: crop(i, 0.9, 0.2, 0.9),
    "crop of 20 %": lambda i: crop(i, 0.8, 0.8, 0.3),
    "half size": lambda i: i.resize(
        (i.width // 2, i.height // 2), Image.Resampling.LANCZOS
    ),
    "quality 40": lambda i: i,
    "brighter": lambda i: ImageEnhance.Brightness(i).enhance(1.2),
    "grey": lambda i: i.convert("L"),
    "border of 3 %": lambda i: ImageOps.expand(i, round(0.03 * max(i.size)), "black"),
    "rotated by 90°": lambda i: i.transpose(T.ROTATE_90),
    "rotated by 180°": lambda i: i.transpose(T.ROTATE_180),
    "rotated by 270°": lambda i: i.transpose(T.ROTATE_270),
    "transposed": lambda i: i.transpose(T.TRANSPOSE),
}
SECOND_LOOK = DuplicateSettings(second_look=True)
WAYS = {
    "25 bits": DuplicateSettings(second_look=False),
    "default": DuplicateSettings(),
    "MIRRORED": DuplicateSettings(second_look=False, mirrored=True),
    "SECOND_LOOK": SECOND_LOOK,
    "both": DuplicateSettings(second_look=True, mirrored=True),
}


def find(images, hashes, work, settings):
    """Return the accepted pairs, as notebook 02 finds them, and the seconds."""
    start = time.perf_counter()
    candidates, _ = find_candidates(hashes, settings)
    verified = verify_geometry(images, candidates, settings, work)
    pairs = expand(verified[verified["accepted"]], find_first(hashes))
    return pairs, time.perf_counter() - start


def expand(pairs, first):
    """Return the pairs a < b of all images, not only of the first with equal hashes.

    first: of `find_first`.
    """
    ends = pd.concat([pd.DataFrame({"a": first, "b": first}), pairs[["a", "b"]]])
    ends = ends.apply(lambda rows: first[rows]).drop_duplicates()
    for end in ("a", "b"):
        members = pd.DataFrame({end: first, f"row_{end}": range(len(first))})
        ends = ends.merge(members, on=end)
    rows = np.unique(np.sort(ends[["row_a", "row_b"]], axis=1), axis=0)
    return pd.DataFrame(rows[rows[:, 0] < rows[:, 1]], columns=["a", "b"])


def read(paths, work):
    """Return the tables of images and hashes of files, as 01 reads them."""
    images = pd.DataFrame(
        {"image_id": [Path(path).name for path in paths], "path": paths}
    )
    images = images.assign(split="train", label=0, label_name="", problem="")
    images = explore.measure(images, work_dir=work)
    return images, explore.load_hashes(images, work)


def choose_originals(data, n, work):
    """Return paths of photographs, then flowers, without near-duplicates."""
    files = list_photos(data)
    photos = [str(file) for file in files if file.parent.name == "photos"]
    flowers = [str(file) for file in files if file.parent.name != "photos"]
    paths = [*photos, *np.random.default_rng(0).permutation(flowers).tolist()][
        : n + n // 20 + 5
    ]
    images, hashes = read(paths, work)
    pairs, _ = find(images, hashes, work, SECOND_LOOK)
    seen = images["image_id"].isin(ONE_SCENE) | hashes["digest"].duplicated()
    return np.delete(paths, np.union1d(pairs["b"], np.flatnonzero(seen)))[:n].tolist()


def write_copies(task):
    """Write an image as JPEG, and its copies; return their paths."""
    number, path, folder = task
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGB")
    written = []
    for place, (kind, change) in enumerate({"": lambda i: i, **KINDS}.items()):
        stream = io.BytesIO()
        quality = 40 if kind == "quality 40" else 90
        change(image).save(stream, "JPEG", quality=quality)
        written.append(f"{folder}/{number:04d}-{place:02d}.jpg")
        Path(written[-1]).write_bytes(stream.getvalue())
    return written


def measure(data, n):
    """Return a row for each way: seconds, precision, false pairs, recall by kind."""
    rows = {}
    each = 1 + len(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        originals = choose_originals(data, n, folder)
        tasks = [(number, path, folder) for number, path in enumerate(originals)]
        written = parallel.run(write_copies, tasks, label="Writing copies")
        images, hashes = read([path for paths in written for path in paths], folder)
        different = each**2 * len(originals) * (len(originals) - 1) / 2
        for way, settings in WAYS.items():
            found, seconds = find(images, hashes, "", settings)
            true = found["a"] // each == found["b"] // each
            of_original = found[true & (found["a"] % each == 0)]
            recall = of_original["b"].mod(each).value_counts() / len(originals)
            rows[way] = {
                "seconds": round(seconds, 1),
                "pairs": len(found),
                "false": int((~true).sum()),
                "precision": round(float(true.mean()), 5),
                "false per 10⁹": round(1e9 * float((~true).sum()) / different, 1),
            } | {kind: round(recall.get(k, 0.0), 3) for k, kind in enumerate(KINDS, 1)}
            for a, b in found[~true][["a", "b"]].to_numpy()[:20]:
                print(f"{way}: {images['image_id'][a]} is not {images['image_id'][b]}")
    return len(originals), different, pd.DataFrame(rows)


def main():
    """Measure what the arguments request, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--n", type=int, default=1000, help="photographs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    n, different, table = measure(options.data, options.n)
    if options.json:
        print(json.dumps({"n": n} | table.to_dict()))
        return
    print(
        f"{n:,} photographs, {len(KINDS)} copies of each, "
        f"{different:,.0f} false pairs possible"
    )
    print(table.to_string())


if __name__ == "__main__":
    main()
