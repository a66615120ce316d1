"""Small plans over real files, for the tests of what comes after a plan."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan.plan import PlanSettings, make_plan, save_plan
from kaggle_tfr.schema import Labels, load_schema
from kaggle_tfr.shards import PlanId
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import write_parts
from support.scenes import saved, scene

CLASSES = ["ash", "birch", "Čedar, red"]
LABELS = Labels("single", tuple(CLASSES), name="trees")
LITERAL = {
    "image": "string",
    "label": "int64",
    "height": "int64",
    "width": "int64",
    "image_id": "string",
}

FOLDS = "image_id,split,fold\n"  # of folds.csv


def make_images(folder, n=48, sizes=(40, 120)):
    """Write `n` JPEG files of random sizes; return their table with folds."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        height, width = rng.integers(*sizes, 2).tolist()
        path = Path(folder, f"{i:04d}.jpg")
        path.write_bytes(saved(scene(height, width, i)))
        rows.append((path.stem, str(path), height, width, path.stat().st_size))
    table = pd.DataFrame(
        rows, columns=["image_id", "path", "height", "width", "n_bytes"]
    )
    label = rng.integers(3, size=n)
    return table.assign(
        label=label,
        label_name=np.take(CLASSES, label),
        format="JPEG",
        orientation=1,
        problem="",
        cluster=-1,
        split="train",
        fold=np.arange(n) % 3,
    )


def repeat_images(table, times):
    """Each row so often, under an id of its own: files take their time to draw."""
    tables = [table.assign(image_id=table["image_id"] + f"-{i}") for i in range(times)]
    return pd.concat(tables, ignore_index=True)


def plan_images(
    table,
    work,
    *,
    size=32,
    schema="default",
    labels=LABELS,
    name="trees",
    dataset_id="",
    first_part=1,
    **changes,
):
    """Save a plan in `work`; return it and its table."""
    values = {"n_shards": 6, "n_folds": 3, "image_size": size or 1, **changes}
    if not size:
        values["resize"] = "none"
    parameters = {key.upper(): value for key, value in values.items()}
    chosen = make_settings(PlanSettings, parameters)
    record = load_schema(schema, table, labels)
    labels = replace(labels, name=name)
    earlier = PlanId(dataset_id, first_part=first_part)
    plan, planned = make_plan(
        table,
        labels,
        record,
        chosen,
        earlier=earlier,
        folds_csv=FOLDS,
        outcomes={},
        checks={},
    )
    save_plan(plan, planned, str(work))
    Path(work, "folds.csv").write_text(FOLDS)
    return plan, planned


def two_parts(table, work, **settings):
    """As `plan_images`, with a limit that two parts just satisfy."""
    total = plan_images(table, work, **settings)[0].forecast["high"] * len(table)
    return plan_images(
        table, work, **settings, part_limit_gb=(0.8 * total + 75_000) / 1e9
    )


def write(work, out="", part=0, **options):
    """Call `write_parts` with paths."""
    return write_parts(str(work), str(out), part, **options)


def verify(folder, work=""):
    """Call `verify_parts` with paths."""
    return verify_parts([str(folder)], str(work))


def digests(folder):
    """sha256 of every file below a folder, by its relative name."""
    digest_of = {}
    for path in Path(folder).rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder))
            digest_of[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digest_of


def read_plainly(files, compression="", features=None):
    """The records of files by TensorFlow alone, with a literal feature dict."""
    import tensorflow as tf

    features = features or {
        name: tf.io.FixedLenFeature([], tf.as_dtype(dtype))
        for name, dtype in LITERAL.items()
    }
    data = tf.data.TFRecordDataset([str(file) for file in files], compression)
    data = data.map(lambda record: tf.io.parse_single_example(record, features))
    return list(data.as_numpy_iterator())


def read_images(part, pattern="*.tfrec"):
    """Return {image_id: (bytes, label)} of all records, by TensorFlow alone."""
    records = read_plainly(sorted(Path(part).glob(pattern)))
    return {row["image_id"].decode(): (row["image"], row["label"]) for row in records}
