"""From a folder of images to shards, on two cores: this package and the usual ways.

python -m benchmarks.chain [--data DIR] [--rounds N] [--json] [--large N] [--small N]

Each run has its own process, which imports and warms up before the clock starts. The
ways alternate, and a ratio is the median of the ratios of the rounds. The images are in
20 class folders; 3 of 100 are other images saved again. All ways make five folds.

ours    the four steps of kaggle_tfr without the second look, which no other way has;
        "bare" also ends before verification and statistics.
usual   four imagehash calls on each file, an n × n matrix, the second of each pair
        dropped, StratifiedKFold, then the serial writer of the cassava notebook.
peers   imagededup's PHash, StratifiedGroupKFold over its groups, nothing dropped, and
        the process pool of the ImageNet script as the writer, without its GZIP.

imagededup is rewritten here from its description (32 × 32 by Lanczos, grey, cosine
transform, 8 × 8, median; a pool of processes; 10 of 64 bits), because it requires
torch for GPUs.
"""

import argparse
import io
import json
import os
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from benchmarks import baselines, programs, write

CORES = 2
CLASSES = 20
FOLDS = 5
COPIES = 0.03
BLOCKS = 4  # files a fold, of the peers' writer
PHASH_BITS = 10  # of 64, imagededup's default
WARM = 20  # images that a process warms up with
BARE = "decode_alone"  # what verification is measured against; no part of any way


def make_folder(photos, folder, kind, count):
    """Write `count` images into class folders: mosaics of photographs, or windows.

    Raises: SystemExit: no photograph is large enough.
    """
    tiles = write.make_tiles(photos)
    if not tiles:
        raise SystemExit(f"No photos of 500 × 375 or more in {photos}. Set --data.")
    draw = {"large": write.mosaic, "small": window}[kind]
    n_copies = round(count * COPIES)
    n_classes = max(1, min(CLASSES, count // FOLDS // 2))  # each class in each fold
    originals = np.random.default_rng(0).permutation(count - n_copies)[:n_copies]

    def path(number):
        return Path(folder, f"class-{number % n_classes:02d}", f"{number:05d}.jpg")

    def save(number):
        path(number).write_bytes(draw(tiles, np.random.default_rng(number)))

    for name in {path(number).parent for number in range(n_classes)}:
        name.mkdir(parents=True)
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(save, range(count - n_copies)))
    for number, original in enumerate(originals, count - n_copies):
        source = path(original)
        Image.open(source).save(source.with_name(f"{number:05d}.jpg"), quality=80)


def window(tiles, rng):
    """Return a JPEG of 500 × 375 with parts of four tiles, some of them mirrored."""
    image = Image.new("RGB", (1000, 750))
    for place, number in enumerate(rng.choice(len(tiles), 4)):
        tile = ImageOps.mirror(tiles[number]) if rng.random() < 0.5 else tiles[number]
        image.paste(tile, (place % 2 * 500, place // 2 * 375))
    left = rng.integers(0, 501)
    top = rng.integers(0, 376)
    stream = io.BytesIO()
    image.crop((left, top, left + 500, top + 375)).save(stream, "JPEG", quality=92)
    return stream.getvalue()


def ours(folder, kind, out, clock):
    """Run the steps of the package; return the number of records."""
    from kaggle_tfr import deduplicate, explore, parallel, plan, read
    from kaggle_tfr.parameters import DEFAULTS
    from kaggle_tfr.write.verify import verify_parts
    from kaggle_tfr.write.writer import write_parts

    side = baselines.SIDES[kind]
    values = DEFAULTS | {
        "NAME": "bench",
        "INPUT_DIR": folder,
        "WORK_DIR": out,
        "IMAGE_SIZE": side,
        "QUALITY": 70,
        "OPTIMIZE": baselines.OPTIMIZE[side],
        "N_FOLDS": FOLDS,
        "SECOND_LOOK": False,
    }
    parallel.use_backend(CORES)
    with clock("explore"):
        explore.run(values)
    with clock("deduplicate"):
        deduplicate.run(values)
    with clock("plan"):
        plan.run(values)
    with clock("write_parts"):
        shards = write_parts(out, out)
    with clock("verify_parts"):
        verify_parts([f"{out}/part-1"], out)
    with clock(BARE):
        files = read.find_shards(out)["file"]
        for _ in parallel.run(decode_shard, files, label="Decoding"):
            pass
    return int(shards["count"].sum())


def decode_shard(file):
    """Only read and decode the records of a shard, as every verification must."""
    from kaggle_tfr.images.header import read_upright
    from kaggle_tfr.records import index_shard

    index = index_shard(file)
    for number in range(len(index)):
        with index.open_record(number) as record:
            read_upright(record["image"].bytes_list.value[0])


def usual(folder, kind, out, clock):
    """Run the usual notebooks in one process; return the number of records."""
    from sklearn.model_selection import StratifiedKFold

    from benchmarks.duplicates import cassava

    with clock("hashes"):
        files, labels = list_classes(folder)
        codes = np.stack([cassava(Path(file).read_bytes()) for file in files])
    with clock("pairs"):
        signs = np.unpackbits(codes, axis=1).astype(np.float32) * 2 - 1
        alike = (signs @ signs.T / codes.shape[1] / 8 + 1) / 2 > 0.9
        kept = np.flatnonzero(~np.triu(alike, 1).any(axis=0))
        files, labels = files[kept], labels[kept]
    with clock("folds"):
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(
            files, labels
        )
        folds = [rows for _, rows in split]
    with clock("write"):
        for fold, rows in enumerate(folds):
            name = f"{out}/{fold}-{len(rows)}.tfrec"
            programs.write_block(
                files[rows], baselines.SIDES[kind], name, labels=labels[rows]
            )
    return len(files)


def peers(folder, kind, out, clock):
    """Run the best other tool for each step; return the number of records."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components
    from sklearn.model_selection import StratifiedGroupKFold

    pool = start_pool()
    with clock("hashes"):
        files, labels = list_classes(folder)
        codes = np.array(list(pool.map(phash, files, chunksize=16)), np.uint64)
    with clock("pairs"):
        near = np.stack(
            [np.bitwise_count(codes ^ code) <= PHASH_BITS for code in codes]
        )
        groups = connected_components(csr_array(near), directed=False)[1]
    with clock("folds"):
        split = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0)
        folds = [rows for _, rows in split.split(files, labels, groups)]
    with clock("write"):
        blocks = [rows[start::BLOCKS] for rows in folds for start in range(BLOCKS)]
        tasks = [
            pool.submit(
                programs.write_block,
                files[rows],
                baselines.SIDES[kind],
                f"{out}/{number}.tfrec",
                labels=labels[rows],
            )
            for number, rows in enumerate(blocks)
        ]
        [task.result() for task in tasks]
    return len(files)


@cache
def start_pool():
    """Keep a pool of processes for the warm-up and the run of this process."""
    return ProcessPoolExecutor(CORES, get_context("spawn"))


def phash(file):
    """Return the 64 bits of imagededup's PHash as an integer."""
    from scipy.fft import dct

    image = Image.open(file)
    image = image if image.mode == "RGB" else image.convert("RGB")
    pixels = np.asarray(
        image.resize((32, 32), Image.Resampling.LANCZOS).convert("L"), np.float64
    )
    low = dct(dct(pixels, axis=0), axis=1)[:8, :8]
    return int(np.packbits(low >= np.median(low.ravel()[1:])).view(">u8")[0])


def list_classes(folder):
    """Return arrays of the paths and the labels of the images in class folders."""
    files = sorted(Path(folder).glob("*/*.jpg"))
    names = sorted({file.parent.name for file in files})
    labels = [names.index(file.parent.name) for file in files]
    return np.array([str(file) for file in files]), np.array(labels)


WAYS = {"ours": ours, "usual": usual, "peers": peers}


def run(way, folder, kind, warm):
    """Run a way after a warm-up with the folder `warm`; return seconds and records."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    took = Counter()

    @contextmanager
    def clock(step):
        start = time.perf_counter()
        yield
        took[step] += time.perf_counter() - start

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with start_pool():  # a process with an open pool would never exit
        for images in (warm, folder):
            took.clear()
            with tempfile.TemporaryDirectory() as out:
                count = WAYS[way](images, kind, out, clock)
    return dict(took), count


def measure(photos, counts, rounds):
    """Return [({step: seconds}, records), …] of all rounds by (kind, way)."""
    found = {(kind, way): [] for kind in counts for way in WAYS}
    for kind, count in counts.items():
        with tempfile.TemporaryDirectory() as images:
            warm = f"{images}/warm"
            folder = f"{images}/{kind}"
            make_folder(photos, warm, kind, WARM)
            make_folder(photos, folder, kind, count)
            for _ in range(rounds):
                for way in WAYS:
                    with ProcessPoolExecutor(1, get_context("spawn")) as process:
                        task = process.submit(
                            write.quietly, run, way, folder, kind, warm
                        )
                        found[kind, way].append(task.result())
    return found


def seconds(found, kind, way):
    """Return the seconds of each round; "bare" is ours without verification."""
    runs = [took for took, _ in found[kind, "ours" if way == "bare" else way]]
    left_out = {BARE, "verify_parts"} if way == "bare" else {BARE}
    return np.array(
        [sum(took[step] for step in took.keys() - left_out) for took in runs]
    )


def keys(found):
    """Return the figures by their names; "bare" is ours without verification."""
    figures = {}
    for kind in {kind: None for kind, _ in found}:
        whole = seconds(found, kind, "ours")
        bare = seconds(found, kind, "bare")
        notebooks = seconds(found, kind, "usual")
        theirs = seconds(found, kind, "peers")
        steps = ("write_parts", "verify_parts", BARE)
        times = [[took[step] for step in steps] for took, _ in found[kind, "ours"]]
        writing, verifying, decoding = np.array(times).T
        figures |= {
            f"{kind}_usual_ratio": float(np.median(notebooks / whole)),
            f"{kind}_peers_ratio": float(np.median(theirs / whole)),
            f"{kind}_bare_ratio": float(np.median(theirs / bare)),
            f"{kind}_write_share": float(np.median(writing / whole)),
            f"{kind}_verify_of_decode": float(np.median(verifying / decoding)),
            f"{kind}_verify_of_write": float(np.median(verifying / writing)),
        }
    return figures


def table(found):
    """Yield two tables of Markdown as lines: whole runs, and their steps."""
    yield "| images | way | seconds | records |\n|---|---|---|---|"
    for kind, way in found:
        count = found[kind, way][-1][1]
        median = np.median(seconds(found, kind, way))
        yield f"| {kind} | {way} | {median:.1f} | {count:,} |"
        if way == "ours":
            bare = np.median(seconds(found, kind, "bare"))
            yield f"| {kind} | ours, not verified | {bare:.1f} | {count:,} |"
    yield "\n| images | way | step | seconds | share |\n|---|---|---|---|---|"
    for (kind, way), runs in found.items():
        for step in runs[0][0]:
            share = np.median([took[step] / sum(took.values()) for took, _ in runs])
            took = np.median([took[step] for took, _ in runs])
            yield f"| {kind} | {way} | {step} | {took:.2f} | {share:.0%} |"
    yield "\nThe other ways do not verify; the bare ratio excludes our verification.\n"


def main():
    """Print the tables and the figures, or with --json the figures only."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data", default="../shared/data", help="a folder that contains photos/"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", type=int, default=600, help="images of 2000 × 1500")
    parser.add_argument("--small", type=int, default=4000, help="images of 500 × 375")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(options.data) / "photos"
    folder = folder if folder.is_dir() else Path(options.data)
    counts = {"large": options.large, "small": options.small}
    found = measure(folder, counts, options.rounds)
    figures = keys(found)
    if options.json:
        print(json.dumps(figures))
        return
    print("\n".join(table(found)))
    for name, figure in figures.items():
        print(f"{name:24}{figure:8.2f}")


if __name__ == "__main__":
    main()
