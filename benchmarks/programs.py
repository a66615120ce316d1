"""Whole programs on all cores, from files to records on the disk.

Each takes a folder of images, their kind and a number of workers, and returns the
number of images, the seconds, and the peak of its process in MB. Imports and other work
that happens once precede the measured time.
"""

import io
import multiprocessing
import os
import resource
import tarfile
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from pathlib import Path

from benchmarks import baselines
from kaggle_tfr import parallel

COPIES = {"small": 48, "large": 16}
SHARDS = 8


def list_files(folder, kind):
    """Return the paths of images of a kind, repeated for a run of several seconds."""
    files = sorted(str(path) for path in Path(folder).glob(f"{kind}-*.jpg"))
    return files * COPIES[kind]


def ours(folder, kind, workers):
    """Write by kaggle-tfr: shards, indexes and checksums, fsynced and renamed."""
    from kaggle_tfr.write.writer import write_parts

    side = baselines.SIDES[kind]
    image = {"IMAGE_SIZE": side, "QUALITY": 70, "OPTIMIZE": baselines.OPTIMIZE[side]}
    parallel.use_backend(workers)
    with tempfile.TemporaryDirectory() as work:
        plan_files(list_files(folder, kind), work, **image)
        start = time.perf_counter()
        written = write_parts(work, work)
        return _result(int(written["count"].sum()), start)


def plan_files(files, work, *, name="bench", **parameters):
    """Plan all files as one class without folds in `work`; parameters: those of 03."""
    import pandas as pd

    from kaggle_tfr.explore.table import measure
    from kaggle_tfr.parameters import make_settings
    from kaggle_tfr.plan.plan import PlanSettings, make_plan, save_plan
    from kaggle_tfr.schema import Labels, load_schema
    from kaggle_tfr.shards import PlanId

    table = pd.DataFrame(
        {"image_id": [f"{n:05d}" for n in range(len(files))], "path": files}
    )
    table = table.assign(
        split="train", label=0, label_name="a", problem="", cluster=-1, fold=0
    )
    labels = Labels("single", ("a",), name=name)
    table = measure(table, labels)
    schema = load_schema("default", table, labels)
    settings = make_settings(
        PlanSettings, {"N_FOLDS": 0, "N_SHARDS": SHARDS, **parameters}
    )
    planned = make_plan(
        table,
        labels,
        schema,
        settings,
        earlier=PlanId(),
        folds_csv="",
        outcomes={},
        checks={},
    )
    save_plan(*planned, work)
    Path(work, "folds.csv").touch()


def landmark_notebook(folder, kind, workers):
    """Write as the landmark notebook: threads fill a list that one writer empties."""
    import joblib
    import tensorflow as tf

    files = list_files(folder, kind)
    side = baselines.SIDES[kind]
    baselines.landmark(Path(files[0]).read_bytes(), side)
    run = joblib.Parallel(workers, require="sharedmem", batch_size=64)
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        encoded = run(
            joblib.delayed(_read_and)(baselines.landmark, file, side) for file in files
        )
        with tf.io.TFRecordWriter(f"{out}/all.tfrecords") as writer:
            for data in encoded:
                writer.write(_example(data))
        return _result(len(encoded), start)


def cassava_notebook(folder, kind, workers):  # noqa: ARG001 - it is serial
    """Write as the cassava notebook: one image after the other into one file."""
    files = list_files(folder, kind)
    side = baselines.SIDES[kind]
    with tempfile.TemporaryDirectory() as out:
        write_block(files[:2], side, f"{out}/warm.tfrec")
        start = time.perf_counter()
        write_block(files, side, f"{out}/all.tfrec")
        return _result(len(files), start)


def imagenet_script(folder, kind, workers):
    """Write as the ImageNet script: processes with blocks of files, into GZIP."""
    return _in_processes(write_block, folder, kind, workers, ("GZIP",))


def pillow_and_tar(folder, kind, workers):
    """Write tar files for webdataset: processes with Pillow's draft and Lanczos."""
    return _in_processes(_write_tar, folder, kind, workers, ())


PROGRAMS = [ours, landmark_notebook, cassava_notebook, imagenet_script, pillow_and_tar]


def _in_processes(write, folder, kind, workers, extra):
    files = list_files(folder, kind)
    side = baselines.SIDES[kind]
    blocks = [files[k::20] for k in range(20)]
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as out,
        ProcessPoolExecutor(workers, context) as pool,
    ):
        names = [f"{out}/{k}" for k in range(len(blocks) + workers)]
        warm = [
            pool.submit(write, files[:30], side, name, *extra)
            for name in names[:workers]
        ]
        [task.result() for task in warm]
        start = time.perf_counter()
        jobs = zip(blocks, names[workers:], strict=True)
        tasks = [pool.submit(write, block, side, name, *extra) for block, name in jobs]
        [task.result() for task in tasks]
        return _result(len(files), start)


def write_block(files, side, name, compression="", labels=()):
    """Write a file of records, one image at a time."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(name, compression) as writer:
        for file, label in zip_longest(files, labels, fillvalue=0):
            data = _read_and(baselines.opencv_scripts, file, side)
            writer.write(_example(data, label))


def _write_tar(files, side, name):
    with tarfile.open(name, "w") as archive:
        for number, file in enumerate(files):
            data = _read_and(baselines.pillow_draft, file, side)
            for ending, content in ((".jpg", data), (".cls", b"0")):
                entry = tarfile.TarInfo(f"{number:06d}{ending}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _read_and(function, file, side):
    return function(Path(file).read_bytes(), side)


def _example(data, label=0):
    import tensorflow as tf

    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


def _result(count, start):
    seconds = time.perf_counter() - start
    return count, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cores():
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
