"""What a cluster costs: Dask beside threads, the client's memory, and the pairs of 10⁷ hashes.

python -m benchmarks.dask_scale [--data DIR] [--rounds N] [--n N] [--only NAMES] [--json]

overhead: writing 2000 × 1500 mosaics to short side 384, two single-threaded Dask workers on this
machine in turns with two threads; the median ratio of images per second.
memory: how much the writing process grows by 10⁴ and by 10⁶ rows of plan, on a cluster whose
workers only pretend to write.
pairs: the search of the near pairs cut into slices by a hash of the key, as a cluster would have
it: a slice's rows, seconds and memory, and the seconds of the whole.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.duplicates import apart, draw_codes, list_photos
from benchmarks.write import make_pictures
from kaggle_tfr import neighbours

IMAGES, SHARDS = 96, 12
ROWS, ROWS_IN_SHARD = (10_000, 1_000_000), 1000
RADIUS = 25
PICTURES = (1_600_000, 50_000_000, 1_000_000_000)
CORES = (64, 1000, 10_000)


def plan_mosaics(photos, folder):
    """Plans `IMAGES` pictures of 2000 × 1500 in `SHARDS` shards, in the folder."""
    from kaggle_tfr.images import ImageSettings
    from kaggle_tfr.plan import save_plan
    from kaggle_tfr.planner import forecast_records, make_plan
    from kaggle_tfr.progress import use_backend
    from kaggle_tfr.schema import load_schema

    use_backend(1)
    make_pictures(photos, folder)
    files = sorted(Path(folder).glob("large-*.jpg"))
    rows = [
        [f"{i}", str(files[i % len(files)]), "train", 0, "x", 1500, 2000, files[0].stat().st_size]
        for i in range(IMAGES)
    ]
    names = ["image_id", "path", "split", "label", "label_name", "height", "width", "n_bytes"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(format="JPEG", orientation=1, problem="", cluster=-1, fold=0)
    table.attrs = {"kind": "single", "classes": ["x"], "label_columns": []}
    schema, image = load_schema("default", table), ImageSettings((384, 384), quality=70)
    found = forecast_records(table, schema=schema, image=image, sample=SHARDS)
    settings = {"name": "mosaics", "n_shards": SHARDS, "n_folds": 0}
    plan, dealt = make_plan(table, found, schema=schema, image=image, **settings)
    save_plan(plan, dealt, folder)


def measure_overhead(photos, rounds):
    """(median of Dask's speed over that of threads, median images per second of threads)."""
    from kaggle_tfr.progress import close_backend, use_backend
    from kaggle_tfr.writer import write_parts

    ratios, speeds = [], []
    with tempfile.TemporaryDirectory() as work:
        plan_mosaics(photos, work)
        for number in range(rounds + 1):
            seconds = {}
            # The cluster stays for all of a turn: what counts is the work, not the start.
            for backend in ("threading", "dask"):
                use_backend(2, backend)
                for turn in range(2):  # the first imports TensorFlow in every worker
                    with tempfile.TemporaryDirectory() as out:
                        start = time.perf_counter()
                        write_parts(work, out)
                        seconds[backend, turn] = time.perf_counter() - start
                close_backend()
            if number:
                ratios.append(seconds["threading", 1] / seconds["dask", 1])
                speeds.append(IMAGES / seconds["threading", 1])
    return statistics.median(ratios), statistics.median(speeds)


def pretend_to_write(task):
    """The outcome of a shard whose images are not there."""
    from kaggle_tfr.records import Outcome

    shard = task.shard
    row = {"file": task.plan.file_name(shard), "split": shard.split, "fold": shard.fold}
    row |= {"count": shard.count, "bytes": 1, "sha256": "0" * 64, "part": shard.part}
    row |= {"shard": shard.index, "refused": 0, "rejects": [], "number": shard.number}
    return Outcome(shard, row=row, allowance_bytes=task.allowance_bytes)


def plan_rows(n, folder):
    """Plans n images that do not exist, `ROWS_IN_SHARD` to a shard."""
    from kaggle_tfr.images import ImageSettings
    from kaggle_tfr.plan import Plan, Shard, save_plan
    from kaggle_tfr.schema import load_schema

    table = pd.DataFrame({"image_id": np.arange(n).astype(str)})
    table["path"] = "/data/train/" + table["image_id"] + ".jpg"
    table = table.assign(split="train", label=0, label_name="x", cluster=-1, fold=0, part=1)
    table = table.assign(shard=np.arange(n) // ROWS_IN_SHARD, position=np.arange(n))
    table = table.assign(height=1500, width=2000, n_bytes=500_000)
    table.attrs = {"kind": "single", "classes": ["x"], "label_columns": []}
    schema, count = load_schema("default", table), n // ROWS_IN_SHARD
    shards = [Shard(i, 1, "train", 0, i, i, count, ROWS_IN_SHARD, 1) for i in range(count)]
    plan = Plan(
        name="rows", kind="single", classes=["x"], schema=schema.to_dict(), compression="",
        image=ImageSettings((384, 384)), shard_name="{name}-{i}-{count}.tfrec", seed=0, n_folds=0,
        n_parts=1, part_limit_bytes=1 << 40, shard_limit_bytes=1 << 40, fingerprint=f"{n}",
    )  # fmt: skip
    save_plan(replace(plan, shards=shards), table, folder)


def grow(work, warm):
    """MB by which writing the plan in `work` raises this process's peak; `warm` is a small one."""
    from kaggle_tfr import writer
    from kaggle_tfr.progress import close_backend, use_backend

    writer.write_shard = pretend_to_write
    use_backend(2, "dask")
    with tempfile.TemporaryDirectory() as out:
        writer.write_parts(warm, os.path.join(out, "warm"))
        before = _peak_mb()
        writer.write_parts(work, os.path.join(out, "work"))
        after = _peak_mb()
    close_backend()
    return before, after


def measure_memory():
    """Peak MB of the client for each number of `ROWS`."""
    peaks = {}
    for n in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            warm, work = os.path.join(folder, "warm"), os.path.join(folder, "work")
            apart(plan_rows, 10 * ROWS_IN_SHARD, warm)
            apart(plan_rows, n, work)
            code = (
                "import json, sys; from benchmarks.dask_scale import grow\n"
                "if __name__ == '__main__': print(json.dumps(grow(*sys.argv[1:])))"
            )
            # Not `apart`: its processes may have none of their own, and the cluster is some.
            script = Path(folder) / "grow.py"
            script.write_text(code)
            root = str(Path(__file__).resolve().parent.parent)
            done = subprocess.run(
                [sys.executable, str(script), work, warm],
                check=True, capture_output=True, text=True, cwd=root,
                env=os.environ | {"PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )  # fmt: skip
            peaks[n] = json.loads(done.stdout.splitlines()[-1])[1]
    return peaks


def slice_rows(codes, layout, table, number, of):
    """Rows whose key in a table falls into one of `of` slices; reads the codes piece by piece."""
    order, edges = layout
    chosen = np.concatenate([order[edges[block] : edges[block + 1]] for block in table])
    weights = np.uint64(1) << np.arange(len(chosen), dtype=np.uint64)
    rows = []
    for start in range(0, len(codes), neighbours.SLICE):
        some = codes[start : start + neighbours.SLICE]
        bits = (some[:, chosen // 8] >> (7 - chosen % 8).astype(np.uint8)) & 1
        # Real keys are skewed: a hash of them deals them out evenly.
        place = (bits @ weights * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        rows.append(start + np.flatnonzero(place % np.uint64(of) == number))
    return np.concatenate(rows)


def search_slice(codes, layout, table, number, of):
    """int64: a · n + b of a table's pairs in one slice: what one task on a cluster would do."""
    order, edges = layout
    rows = slice_rows(codes, layout, table, number, of)
    words = np.empty((4, len(rows)), np.uint64)
    blocks = np.zeros((len(edges) - 1, len(rows)), np.uint16)
    for start in range(0, len(rows), neighbours.SLICE):
        at = slice(start, start + neighbours.SLICE)
        bits = np.unpackbits(codes[rows[at]], axis=1)[:, order]
        words[:, at] = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64).T
        for block in table:
            begin, end = edges[block], edges[block + 1]
            blocks[block, at] = bits[:, begin:end] @ (1 << np.arange(end - begin))
    found = neighbours.search_table(words, blocks, table, radius=RADIUS)
    a, b = np.divmod(found, max(1, len(rows)))
    return rows[a] * len(codes) + rows[b]


def make_codes(photos, n, path):
    """Saves n codes, as like real ones as in benchmarks.duplicates, and what was copied."""
    from kaggle_tfr.hashes import hash_bits

    real = np.stack([hash_bits(file.read_bytes()) for file in list_photos(photos)[:500]])
    codes, copies, originals, changed = draw_codes(real, n, np.random.default_rng(n))
    np.save(path, codes)
    near = changed <= RADIUS
    return np.minimum(copies, originals)[near] * n + np.maximum(copies, originals)[near]


def measure_slice(path, design, number, of):
    """(rows, pairs, seconds, MB beyond the codes) of one slice of one table, in its own process."""
    codes = np.load(path, mmap_mode="r")
    sizes = [len(group) for group in np.array_split(np.arange(design[0]), design[1])]
    layout = neighbours._order_bits(codes, sizes)  # noqa: SLF001
    tables = neighbours.list_tables(neighbours.Design(*design))
    table, before = tables[number % len(tables)], _own_mb()
    start = time.perf_counter()
    found = search_slice(codes, layout, table, number % of, of)
    seconds = time.perf_counter() - start
    rows = len(slice_rows(codes, layout, table, number % of, of))
    return rows, len(found), seconds, _own_mb() - before


def check_slices(path):
    """Whether the slices of all tables find what the search in one piece does."""
    codes = np.load(path)
    n = len(codes)
    design = neighbours.Design(30, 2, 2)
    sizes = [len(group) for group in np.array_split(np.arange(30), 2)]
    layout = neighbours._order_bits(codes, sizes)  # noqa: SLF001
    found = [
        search_slice(codes, layout, table, number, 3)
        for table in neighbours.list_tables(design)
        for number in range(3)
    ]
    a, b, _ = neighbours.near_pairs(codes, RADIUS)
    return bool(np.array_equal(np.unique(np.concatenate(found)), a * n + b))


def measure_pairs(photos, n, slices=16, sample=4):
    """Figures of the search in slices."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "codes.npy")
        apart(make_codes, photos, 20_000, path)
        equal = apart(check_slices, path)
        apart(make_codes, photos, n, path)
        design = neighbours.choose_design(n, RADIUS)
        tables = len(neighbours.list_tables(design))
        # Of different tables and slices.
        numbers = [round(k * tables * slices / sample) + k for k in range(sample)]
        found = [apart(measure_slice, path, tuple(design), k, slices) for k in numbers]
    rows, _, seconds, megabytes = (statistics.mean(column) for column in zip(*found, strict=True))
    return {
        "pairs_n": n,
        "pairs_slices_equal": equal,
        "pairs_tables": tables,
        "pairs_slices": slices,
        "slice_rows": round(rows),
        "slice_seconds": round(seconds, 2),
        "slice_mb": round(megabytes),
        "pairs_core_hours": round(seconds * slices * tables / 3600, 2),
    }


def measure_speeds(photos):
    """Images of 2000 × 1500 per second and core, of each step that reads the originals."""
    from kaggle_tfr.hashes import hash_and_texture
    from kaggle_tfr.images import ImageSettings, check, convert

    settings = ImageSettings((384, 384), quality=70)
    steps = {
        "measure": check,
        "hash": hash_and_texture,
        "write": partial(convert, settings=settings),
    }
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(photos, folder)
        pictures = [file.read_bytes() for file in sorted(Path(folder).glob("large-*.jpg"))]
    speeds = {name: [] for name in steps}
    for number in range(6):
        for name, step in steps.items():
            start = time.process_time()
            for data in pictures:
                step(data)
            if number:
                speeds[name].append(len(pictures) / (time.process_time() - start))
    return {f"{name}_per_core": round(statistics.median(of), 1) for name, of in speeds.items()}


def list_costs(speeds, ratio):
    """Hours for every number of pictures and cores, as lines of Markdown."""
    rate = ratio / sum(1 / speed for speed in speeds.values())
    yield "| pictures of 2000 × 1500 | " + " | ".join(f"{cores:,} cores" for cores in CORES) + " |"
    yield "|---|" + "---|" * len(CORES)
    for count in PICTURES:
        hours = [f"{count / rate / cores / 3600:,.2g} h" for cores in CORES]
        yield f"| {count / 1e6:,g} M | " + " | ".join(hours) + " |"


def _peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _own_mb():
    """Peak memory without pages of the mapped file, which all processes of a machine share."""
    status = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in status if line.endswith(" kB")}
    return int(values["RssAnon"]) / 1024


def main():
    """Measures what the arguments ask for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--n", type=int, default=10_000_000, help="hashes")
    parser.add_argument("--only", default="speeds,overhead,memory,pairs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    photos = Path(options.data) / "photos"
    photos, only = str(photos if photos.is_dir() else options.data), options.only.split(",")
    figures = apart(measure_speeds, photos) if "speeds" in only else {}
    speeds = dict(figures)
    if "overhead" in only:
        ratio, speed = measure_overhead(photos, options.rounds)
        figures |= {"overhead_ratio": round(ratio, 3), "threads_per_second": round(speed, 1)}
    if "memory" in only:
        figures |= {f"client_mb_{n}_rows": round(peak) for n, peak in measure_memory().items()}
    if "pairs" in only:
        figures |= measure_pairs(photos, options.n)
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:24}{figure:>14}")
    if speeds:
        print("\n" + "\n".join(list_costs(speeds, figures.get("overhead_ratio", 1.0))))


if __name__ == "__main__":
    main()
