"""Writing a plan of images that do not exist: what the process that hands out the work takes."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.duplicates import status_mb
from kaggle_tfr.write import parts
from kaggle_tfr.write.parts import ShardOutcome

ROWS_IN_SHARD = 1000


def pretend_to_write(task):
    """The outcome of a shard whose images are not there."""
    shard = task.shard
    row = {"file": task.plan.file_name(shard), "split": shard.split, "fold": shard.fold}
    row |= {"count": shard.count, "bytes": 1, "sha256": "0" * 64, "part": shard.part}
    row |= {"shard": shard.index, "refused": 0, "rejects": [], "number": shard.number}
    return ShardOutcome(shard, row, "", task.allowance_bytes)


def plan_rows(n, folder):
    """Plans n images that do not exist, `ROWS_IN_SHARD` to a shard."""
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
    labels, count = Labels("single", ("x",), name="rows"), n // ROWS_IN_SHARD
    values = {"IMAGE_SIZE": 384, "N_FOLDS": 0, "SHARD_NAME": "{name}-{i}-{count}.tfrec"}
    chosen = make_settings(PlanSettings, values)
    shards = [
        Shard(i, 1, "train", 0, i, i, count, ROWS_IN_SHARD, 1) for i in range(count)
    ]
    plan = Plan(
        labels, load_schema("default", table, labels), chosen.image, chosen,
        n_parts=1, shard_limit_bytes=1 << 40, fingerprint=f"{n}",
    )  # fmt: skip
    save_plan(replace(plan, shards=shards), table, folder)


def peak_of_writing(work, address):
    """Peak MB of this process, which writes the plan in `work` and does nothing else."""
    from kaggle_tfr.parallel import close_backend, use_backend

    parts.write_shard = pretend_to_write
    use_backend(2, "dask", address)
    parts.write_parts(work, os.path.join(work, "out"))
    close_backend()
    return status_mb("VmHWM")
