"""How many copies of a picture are found, by kind, and how many false pairs come with them.

python -m benchmarks.copies [--data DIR] [--n N] [--sheet FILE.png] [--json]

Photographs and flowers, each with one copy of each kind: as imagededup's benchmark makes them
(crop, both mirror images, rotation by 25°, another aspect), and by our own changes. Found within
25 bits, with MIRRORED, with SECOND_LOOK, and with both. Precision is the share of true pairs among
all that are found, those of two copies of one picture too.
Originals have no near-duplicate by SECOND_LOOK, nor by the eye that looked at the sheet; a pair of
any other two is false. Both take SECOND_LOOK's verified pairs from before.
--sheet: instead the pairs of DIR's own flowers that both find beyond SECOND_LOOK, as one picture.
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
from kaggle_tfr import deduplicate, explore, figures, parallel

T = Image.Transpose
MAX_BITS, CANDIDATE_BITS = 25, 70
# One flower of each pair that --sheet added and the eye found to be of one scene.
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
    """The window of `share` of each side at (x, y), shares of what is left over."""
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
    "turned by 90°": lambda i: i.transpose(T.ROTATE_90),
    "turned by 180°": lambda i: i.transpose(T.ROTATE_180),
    "turned by 270°": lambda i: i.transpose(T.ROTATE_270),
    "transposed": lambda i: i.transpose(T.TRANSPOSE),
}
WAYS = {
    "25 bits": (False, False),
    "MIRRORED": (True, False),
    "SECOND_LOOK": (False, True),
    "both": (True, True),
}


def find(images, hashes, work, *, mirrored, second_look):
    """The accepted pairs, as notebook 02 finds them, and seconds."""
    start = time.perf_counter()
    radius = CANDIDATE_BITS if second_look else MAX_BITS
    rotated_bits = MAX_BITS * 4 // 5 if mirrored else None
    pairs = deduplicate.find_pairs(hashes, radius, rotated_bits)
    if second_look:
        if mirrored:
            pairs = deduplicate.propose_copies(images, hashes, pairs, MAX_BITS)
        pairs = deduplicate.verify_geometry(images, pairs, work, max_bits=MAX_BITS)
        pairs = pairs[pairs["accepted"]]
    return pairs, time.perf_counter() - start


def read(paths, work):
    """(images, hashes) of files, as 01 reads them."""
    images = pd.DataFrame(
        {"image_id": [Path(path).name for path in paths], "path": paths}
    )
    images = images.assign(split="train", label=0, label_name="", problem="")
    images = explore.measure(images, work_dir=work)
    return images, explore.load_hashes(images, work)


def choose_originals(data, n, work):
    """Paths of the photographs and then of flowers, none of which has a near-duplicate."""
    files = list_photos(data)
    photos = [str(file) for file in files if file.parent.name == "photos"]
    flowers = [str(file) for file in files if file.parent.name != "photos"]
    paths = [*photos, *np.random.default_rng(0).permutation(flowers).tolist()][
        : n + n // 20 + 5
    ]
    images, hashes = read(paths, work)
    pairs, _ = find(images, hashes, work, mirrored=False, second_look=True)
    seen = images["image_id"].isin(ONE_SCENE) | hashes["digest"].duplicated()
    return np.delete(paths, np.union1d(pairs["b"], np.flatnonzero(seen)))[:n].tolist()


def write_copies(task):
    """Paths of a picture as JPEG and of its copies, written to a folder."""
    number, path, folder = task
    with Image.open(path) as opened:
        picture = ImageOps.exif_transpose(opened).convert("RGB")
    written = []
    for place, (kind, change) in enumerate({"": lambda i: i, **KINDS}.items()):
        stream, quality = io.BytesIO(), 40 if kind == "quality 40" else 90
        change(picture).save(stream, "JPEG", quality=quality)
        written.append(f"{folder}/{number:04d}-{place:02d}.jpg")
        Path(written[-1]).write_bytes(stream.getvalue())
    return written


def measure(data, n):
    """One row per way: seconds, precision, false pairs per 10⁹ compared, recall of each kind."""
    rows, each = {}, 1 + len(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        originals = choose_originals(data, n, folder)
        tasks = [(number, path, folder) for number, path in enumerate(originals)]
        written = parallel.run(
            write_copies, tasks, label="Writing copies", ordered=True
        )
        images, hashes = read([path for paths in written for path in paths], folder)
        different = each**2 * len(originals) * (len(originals) - 1) / 2
        for way, (mirrored, second_look) in WAYS.items():
            found, seconds = find(
                images, hashes, folder, mirrored=mirrored, second_look=second_look
            )
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


def draw_sheet(data, file):
    """Writes the pairs of the flowers that both find and SECOND_LOOK alone does not."""
    with tempfile.TemporaryDirectory() as work:
        images, hashes = read(
            [str(path) for path in list_photos(Path(data) / "flowers")], work
        )
        before, _ = find(images, hashes, work, mirrored=False, second_look=True)
        after, seconds = find(images, hashes, work, mirrored=True, second_look=True)
        old = pd.MultiIndex.from_frame(before[["a", "b"]])
        new = pd.MultiIndex.from_frame(after[["a", "b"]])
        lost, added = old.difference(new), after[~new.isin(old)]
        said = f"{len(old)} pairs before, {len(lost)} lost, {len(added)} added, {seconds:.0f} s"
        print(said)
        figures.plot_pairs(
            *deduplicate.load_pairs(images, added, 60), title=said
        ).savefig(file)


def main():
    """Measures what the arguments ask for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--n", type=int, default=1000, help="photographs")
    parser.add_argument("--sheet", help="a PNG of the flowers' new pairs, instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.sheet:
        draw_sheet(options.data, options.sheet)
        return
    n, different, table = measure(options.data, options.n)
    if options.json:
        print(json.dumps({"n": n} | table.to_dict()))
        return
    print(
        f"{n:,} photographs, {len(KINDS)} copies of each, {different:,.0f} false pairs possible"
    )
    print(table.to_string())


if __name__ == "__main__":
    main()
