"""A rehearsal of landmark: small photographs by the hundred thousand, through notebooks 01 to 05.

python -m benchmarks.rehearsal [--n N] [--classes N] [--data DIR] [--keep DIR] [--json]

The photographs are crops of those in DIR, each turned in tone, mirrored or not, of 48 × 64 pixels
and about 2 kB; classes follow Zipf's law, and one image in a hundred is another's copy, resized and
encoded anew. They lie in three levels of folders beside a train.csv, as the competition's do. Then
`python -m kaggle_tfr run` is timed, notebook by notebook and cell by cell. With --keep images and
executed notebooks stay, and a second run takes the images that are there.
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
SIZE, SIDE = (
    (48, 64),
    200,
)  # height and width of a picture; short side of what it is cut from
ENDINGS = ".jpg", ".jpeg"
COPIES = 0.01
MIN_DEVIATION = 20  # of a picture's values: below it are patches of sky
BLOCK = 2000
# Of the recipe: so that each is resized; and in processes, for threads that spend a millisecond a
# picture wait for each other's Python as long.
CHANGES = {"IMAGE_SIZE": 32, "PART_LIMIT_GB": 19, "BACKEND": "loky"}


def draw_rows(n, n_classes, seed=0):
    """The table of train.csv, and with it a seed for each picture; a copy's is its original's."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_classes + 1) ** 0.8
    drawn = rng.choice(n_classes, n - n_classes, p=weight / weight.sum())
    label = rng.permutation(np.concatenate([np.arange(n_classes), drawn]))
    # Sixteen hexadecimal digits, spread over the folders as a hash is, and none twice.
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
    """Writes train.csv and the pictures that are not yet there."""
    rows = draw_rows(n, n_classes)
    for first in sorted({name[:3] for name in rows["id"]}):
        (Path(folder) / "train" / "/".join(first)).mkdir(parents=True, exist_ok=True)
    blocks = [rows.iloc[start : start + BLOCK] for start in range(0, n, BLOCK)]
    with ProcessPoolExecutor(cores()) as pool:
        for _ in pool.map(partial(write_block, folder, data), blocks):
            pass
    rows[["id", "landmark_id"]].to_csv(Path(folder) / "train.csv", index=False)


def write_block(folder, data, rows):
    """Writes the pictures of these rows."""
    cv2.setNumThreads(1)
    for row in rows.itertuples():
        path = Path(folder) / "train" / "/".join(row.id[:3]) / f"{row.id}.jpg"
        if not path.exists():
            path.write_bytes(make_photo(load_photos(data), row.seed, copy=row.copy))


@cache
def load_photos(data):
    """The photographs below the folder as BGR, their short side SIDE."""
    files = sorted(
        path for path in Path(data).rglob("*") if path.suffix.lower() in ENDINGS
    )
    opened = [cv2.imread(str(path), cv2.IMREAD_COLOR) for path in files]
    photos = [photo for photo in opened if photo is not None]
    if not photos:
        raise FileNotFoundError(
            f"'{data}' holds no JPEG. Set --data to a folder of photographs."
        )
    return [shrink(photo, SIDE / min(photo.shape[:2])) for photo in photos]


def shrink(picture, scale):
    return cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def make_photo(photos, seed, *, copy=False):
    """A JPEG of four windows side by side; as a copy smaller by an eighth, and of less quality.

    One window of some sixty photographs would be like another's too often among a million.
    """
    rng = np.random.default_rng(seed)
    picture = np.zeros((*SIZE, 3), np.uint8)
    while picture.std() < MIN_DEVIATION:
        top, bottom = np.split(picture, 2)
        for quarter in (*np.split(top, 2, axis=1), *np.split(bottom, 2, axis=1)):
            quarter[:] = cut_window(photos, rng)
    quality = int(rng.integers(80, 90))
    if copy:
        picture, quality = shrink(picture, 7 / 8), 75
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[
        1
    ].tobytes()


def cut_window(photos, rng):
    """A quarter of a picture: a window of a photograph, mirrored or not, its tones changed."""
    photo = photos[rng.integers(len(photos))]
    height = int(rng.integers(36, SIDE * 3 // 4))
    top, left = (
        rng.integers(np.array(photo.shape[:2]) - (height, height * 4 // 3) + 1)
    ).tolist()
    window = photo[top : top + height, left : left + height * 4 // 3]
    window = cv2.resize(
        window, (SIZE[1] // 2, SIZE[0] // 2), interpolation=cv2.INTER_LINEAR
    )
    alpha, beta, mirror = rng.uniform((0.7, -20, 0), (1.1, 20, 2))
    return cv2.convertScaleAbs(
        window[:, ::-1] if mirror < 1 else window, alpha=alpha, beta=beta
    )


def run_notebook(name, recipe, log):
    """Seconds and peak MB of a notebook as users run it, its kernel and workers counted."""
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
    """Adds what the kernel and its workers have held, in MB, four times a second."""
    while process.poll() is None:
        peaks.append(sum(map(held_mb, list_children(process.pid))))
        time.sleep(0.25)


def list_children(parent):
    """Ids of all processes that descend from this one."""
    try:
        threads = Path(f"/proc/{parent}/task").iterdir()
        text = " ".join((thread / "children").read_text() for thread in threads)
    except OSError:  # it has just ended
        return []
    own = [int(child) for child in text.split()]
    return own + [below for child in own for below in list_children(child)]


def held_mb(process):
    """MB of a process at its own peak, which a look four times a second might miss."""
    try:
        return status_mb("VmHWM", process)
    except (OSError, IndexError):  # it has ended
        return 0.0


def list_cells(copy):
    """Seconds of each code cell of an executed notebook, with its first line."""
    cells = [cell for cell in nbformat.read(copy, 4).cells if cell.cell_type == "code"]
    lines = [cell.source.strip().partition("\n")[0] for cell in cells]
    seconds = [
        cell.metadata.get("papermill", {}).get("duration") or 0.0 for cell in cells
    ]
    table = pd.DataFrame({"notebook": copy.stem[:2], "seconds": seconds, "cell": lines})
    return table.round({"seconds": 1})


def rehearse(folder, n, n_classes, data):
    """(seconds and peak MB of each step, seconds of each cell, slowest first)."""
    start = time.perf_counter()
    make_photos(folder, n, n_classes, data)
    made = time.perf_counter() - start
    print(
        f"{n:,} photographs of {n_classes:,} classes made in {made:.0f} s",
        file=sys.stderr,
    )
    work = Path(folder) / "work"
    shutil.rmtree(
        work, ignore_errors=True
    )  # an earlier run's: its hashes would save the work
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
