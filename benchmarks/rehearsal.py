"""Run notebooks 01 to 05 on as many small photographs as landmark has.

python -m benchmarks.rehearsal [--n N] [--classes N] [--data DIR] [--keep DIR] [--json]

The images are crops of the photographs in DIR with changed tones, some mirrored, of
48 × 64 pixels and about 2 kB. Classes follow Zipf's law, and one image in a hundred is
a copy of another, resized and encoded again. They are in three levels of folders beside
a train.csv, as in the competition. Then the time of `python -m kaggle_tfr run` is
measured for each notebook and each cell. --keep: keep images and executed notebooks; a
second run uses them again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import cv2
import nbformat
import numpy as np
import pandas as pd
import yaml

from benchmarks.duplicates import status_mb
from benchmarks.folds import CLASSES, LANDMARK
from benchmarks.programs import cores
from benchmarks.read import PHOTOS
from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS

ROOT = Path(__file__).resolve().parent.parent
SIZE = (48, 64)  # height and width of an image
SIDE = 200  # short side of the photograph from which it is cut
ENDINGS = ".jpg", ".jpeg"
COPIES = 0.01
MIN_DEVIATION = 20  # of the values of an image; patches of sky have less
BLOCK = 2000
# Each image is resized. Processes: threads that need a millisecond an image would wait
# as long for each other's Python code.
CHANGES = {"IMAGE_SIZE": 32, "PART_LIMIT_GB": 19, "BACKEND": "loky"}


def draw_rows(n, n_classes, seed=0):
    """Return the rows of train.csv with seeds; a copy has the seed of its original."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_classes + 1) ** 0.8
    drawn = rng.choice(n_classes, n - n_classes, p=weight / weight.sum())
    label = rng.permutation(np.concatenate([np.arange(n_classes), drawn]))
    # Sixteen hexadecimal digits, spread over the folders like a hash, and none twice.
    ids = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(1, n + 1)]
    rows = pd.DataFrame(
        {"id": ids, "landmark_id": label * 5 // 2, "seed": np.arange(n)}
    )
    copies = np.flatnonzero(rng.random(n) < COPIES)
    originals = rng.integers(0, n, len(copies))
    rows["copy"] = rows.index.isin(copies)
    source = rows.loc[originals, ["landmark_id", "seed"]].set_axis(copies)
    rows.loc[copies, ["landmark_id", "seed"]] = source
    return rows


def make_photos(folder, n, n_classes, data):
    """Write train.csv and the images that do not exist yet."""
    rows = draw_rows(n, n_classes)
    for first in sorted({name[:3] for name in rows["id"]}):
        (Path(folder) / "train" / "/".join(first)).mkdir(parents=True, exist_ok=True)
    blocks = [rows.iloc[start : start + BLOCK] for start in range(0, n, BLOCK)]
    with ProcessPoolExecutor(cores()) as pool:
        for _ in pool.map(partial(write_block, folder, data), blocks):
            pass
    rows[["id", "landmark_id"]].to_csv(Path(folder) / "train.csv", index=False)


def write_block(folder, data, rows):
    """Write the images of these rows."""
    cv2.setNumThreads(1)
    for row in rows.itertuples():
        path = Path(folder) / "train" / "/".join(row.id[:3]) / f"{row.id}.jpg"
        if not path.exists():
            path.write_bytes(make_photo(load_photos(data), row.seed, copy=row.copy))


@cache
def load_photos(data):
    """Return the photographs below the folder as BGR, with short side SIDE."""
    files = sorted(
        path for path in Path(data).rglob("*") if path.suffix.lower() in ENDINGS
    )
    opened = [cv2.imread(str(path), cv2.IMREAD_COLOR) for path in files]
    photos = [photo for photo in opened if photo is not None]
    if not photos:
        raise FileNotFoundError(
            f"'{data}' contains no JPEG. Set --data to a folder of photographs."
        )
    return [shrink(photo, SIDE / min(photo.shape[:2])) for photo in photos]


def shrink(image, scale):
    return cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def make_photo(photos, seed, *, copy=False):
    """Return a JPEG of four windows; a copy is an eighth smaller, with less quality.

    Single windows of some sixty photographs would be too similar among a million.
    """
    rng = np.random.default_rng(seed)
    image = np.zeros((*SIZE, 3), np.uint8)
    while image.std() < MIN_DEVIATION:
        top, bottom = np.split(image, 2)
        for quarter in (*np.split(top, 2, axis=1), *np.split(bottom, 2, axis=1)):
            quarter[:] = cut_window(photos, rng)
    quality = int(rng.integers(80, 90))
    if copy:
        image = shrink(image, 7 / 8)
        quality = 75
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def cut_window(photos, rng):
    """Return a quarter of an image: a window of a photograph with changed tones."""
    photo = photos[rng.integers(len(photos))]
    height = int(rng.integers(36, SIDE * 3 // 4))
    width = height * 4 // 3
    room = np.array(photo.shape[:2]) - (height, width)
    top, left = rng.integers(room + 1).tolist()
    window = photo[top : top + height, left : left + width]
    quarter = (SIZE[1] // 2, SIZE[0] // 2)
    window = cv2.resize(window, quarter, interpolation=cv2.INTER_LINEAR)
    alpha, beta, mirror = rng.uniform((0.7, -20, 0), (1.1, 20, 2))
    if mirror < 1:
        window = window[:, ::-1]
    return cv2.convertScaleAbs(window, alpha=alpha, beta=beta)


def run_notebook(name, recipe, log):
    """Return seconds and peak MB of a notebook, with its kernel and workers."""
    command = [sys.executable, "-m", "kaggle_tfr", "run", str(recipe), "--only", name]
    start = time.perf_counter()
    with open(log, "w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
        peaks = []
        watch = threading.Thread(target=watch_memory, args=(process, peaks))
        watch.start()
        code = process.wait()
    watch.join()
    if code:
        raise RuntimeError(f"{name} failed:\n{Path(log).read_text()[-4000:]}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mb": round(max(peaks)),
    }


def watch_memory(process, peaks):
    """Append the MB of the kernel and its workers, four times a second."""
    while process.poll() is None:
        peaks.append(sum(map(peak_mb_of, list_children(process.pid))))
        time.sleep(0.25)


def list_children(parent):
    """Return the ids of all processes that descend from this one."""
    try:
        threads = Path(f"/proc/{parent}/task").iterdir()
        text = " ".join((thread / "children").read_text() for thread in threads)
    except OSError:  # it has just ended
        return []
    children = [int(child) for child in text.split()]
    return children + [below for child in children for below in list_children(child)]


def peak_mb_of(process):
    """Return the peak of a process in MB, which four samples a second might miss."""
    try:
        return status_mb("VmHWM", process)
    except (OSError, IndexError):  # it has ended
        return 0.0


def list_cells(copy):
    """Return the seconds and first line of each code cell of an executed notebook."""
    cells = [cell for cell in nbformat.read(copy, 4).cells if cell.cell_type == "code"]
    lines = [cell.source.strip().partition("\n")[0] for cell in cells]
    seconds = [
        cell.metadata.get("papermill", {}).get("duration") or 0.0 for cell in cells
    ]
    table = pd.DataFrame({"notebook": copy.stem[:2], "seconds": seconds, "cell": lines})
    return table.round({"seconds": 1})


def rehearse(folder, n, n_classes, data):
    """Return seconds and peak MB of each step, and the seconds of each cell."""
    start = time.perf_counter()
    make_photos(folder, n, n_classes, data)
    seconds = time.perf_counter() - start
    print(
        f"{n:,} photographs of {n_classes:,} classes written in {seconds:.0f} s",
        file=sys.stderr,
    )
    work = Path(folder) / "work"
    # The hashes of an earlier run would save work.
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    values = (
        yaml.safe_load((ROOT / "recipes" / "landmark-2021.yaml").read_text()) | CHANGES
    )
    recipe = Path(folder) / "rehearsal.yaml"
    recipe.write_text(
        yaml.safe_dump(values | {"INPUT_DIR": str(folder), "WORK_DIR": str(work)})
    )
    steps, cells = {}, []
    for name in DEFAULT_NOTEBOOKS:
        steps[name] = run_notebook(name, recipe, work / f"{name}.log")
        copy = work / "notebooks" / f"{name}.ipynb"
        steps[name]["notebook_mb"] = round(copy.stat().st_size / 1e6, 1)
        cells.append(list_cells(copy))
        print(f"{name}: {steps[name]}", file=sys.stderr, flush=True)
    return steps, pd.concat(cells).sort_values("seconds", ascending=False)


def main():
    """Rehearses what the arguments ask for and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(PHOTOS), help="a folder of photographs")
    parser.add_argument(
        "--n", type=int, default=LANDMARK, help="images, of 4 kB on most disks"
    )
    parser.add_argument(
        "--classes", type=int, default=0, help="0: in proportion to landmark's"
    )
    parser.add_argument(
        "--keep", default="", help="a folder for images and executed notebooks"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    n_classes = options.classes or max(1, options.n * CLASSES // LANDMARK)
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(options.keep or temporary)
        steps, cells = rehearse(folder, options.n, n_classes, options.data)
    if options.json:
        print(json.dumps(steps))
        return
    print(pd.DataFrame(steps).T.to_string(), end="\n\n")
    print(cells.head(15).to_string(index=False))


if __name__ == "__main__":
    main()
