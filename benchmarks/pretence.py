"""Measure the client that writes a plan, with workers that only pretend to write."""

import os

import numpy as np
import pandas as pd

from benchmarks.duplicates import status_mb
from kaggle_tfr.write import writer
from kaggle_tfr.write.journal import ShardRow

ROWS_IN_SHARD = 1000


def pretend_to_write(plan, _part_dir, _spare_bytes, task, _blocks):
    """Return the row of a shard whose images do not exist."""
    shard, _ = task
    return ShardRow(
        file=plan.file_name(shard),
        split=shard.split,
        fold=shard.fold,
        count=shard.count,
        bytes=1,
        sha256="0" * 64,
        part=shard.part,
        shard=shard.index,
        refused=0,
        number=shard.number,
    )


def plan_rows(n, folder):
    """Plan n images that do not exist, `ROWS_IN_SHARD` in each shard."""
    from kaggle_tfr.parameters import make_settings
    from kaggle_tfr.plan.plan import Plan, PlanSettings, Shard, save_plan
    from kaggle_tfr.schema import Labels, load_schema

    table = pd.DataFrame({"image_id": np.arange(n).astype(str)})
    table["path"] = "/data/train/" + table["image_id"] + ".jpg"
    table = table.assign(
        split="train", label=0, label_name="x", cluster=-1, fold=0, part=1
    )
    table = table.assign(shard=np.arange(n) // ROWS_IN_SHARD, position=np.arange(n))
    table = table.assign(height=1500, width=2000, n_bytes=500_000)
    labels = Labels("single", ("x",), name="rows")
    count = n // ROWS_IN_SHARD
    values = {
        "IMAGE_SIZE": 384,
        "N_FOLDS": 0,
        "SHARD_NAME": "{name}-{i}-{count}.tfrec",
        "COMPRESSION": "GZIP",  # without indices, which nobody writes here
    }
    settings = make_settings(PlanSettings, values)
    shards = [
        Shard(i, 1, "train", 0, i, i, count, ROWS_IN_SHARD, 1) for i in range(count)
    ]
    plan = Plan(
        labels, load_schema("default", table, labels), settings.image, settings,
        n_parts=1, shard_limit_bytes=1 << 40, forecast={"high": 1}, outcomes={},
        checks={}, versions={}, folds_sha256="", fingerprint=f"{n}", dataset_id=f"{n}",
        first_part=1, shards=shards,
    )  # fmt: skip
    save_plan(plan, table, folder)


def peak_of_writing(work, address):
    """Write the plan in `work`; return the peak of this process in MB."""
    from kaggle_tfr.parallel import close_backend, use_backend

    writer.write_shard = pretend_to_write
    use_backend(2, "dask", address)
    writer.write_parts(work, os.path.join(work, "out"))
    close_backend()
    return status_mb("VmHWM")
