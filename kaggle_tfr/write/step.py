"""04 in one call: write the parts, read them again, and account for every image."""

from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import notebook
from kaggle_tfr.earlier import list_parts_here
from kaggle_tfr.mounts import output_dir
from kaggle_tfr.parameters import Values
from kaggle_tfr.plan.plan import Plan, read_plan
from kaggle_tfr.storage import join, read_parquet
from kaggle_tfr.write.earlier_parts import check_earlier_parts
from kaggle_tfr.write.parts import account_parts, write_parts
from kaggle_tfr.write.stats import (
    channel_stats_of_files,
    combine_stats,
    describe_splits,
    save_mean_rgb,
    save_stats,
)
from kaggle_tfr.write.verify import verify_written


@dataclass(frozen=True)
class Written:
    """What 04 wrote.

    shards: one row a file, with part, count, bytes and sha256.
    folders: of the parts. earlier: of the earlier parts that were checked.
    sources: the records that were compared with their source images.
    stats: mean and deviation of the channels, a row for each split.
    accounting: input images by outcome.
    """

    plan: Plan
    shards: pd.DataFrame
    folders: list[str]
    earlier: pd.DataFrame
    sources: pd.DataFrame
    stats: pd.DataFrame
    accounting: pd.DataFrame


def run(values: Values) -> Written:
    """Write the planned parts, read all records again, and note what was found.

    values: the parameters of 04. Finished shards of earlier runs are checked and kept.
    Writes the parts with stats.json, and accounting.csv; with MEAN_RGB also mean_rgb/.
    Raises: RuntimeError: a record is not as planned; see also `write_parts`.
    """
    work = notebook.begin("04_write", values)
    parts_dir = output_dir(values["OUT_DIR"] or work)
    plan = read_plan(work)
    earlier = check_earlier_parts(plan, list_parts_here(work, values["OUT_DIR"]))
    shards = write_parts(
        work,
        parts_dir,
        values["PART"],
        overwrite=values["OVERWRITE"],
        license_name=values["LICENSE"],
        publish_hashes=values["PUBLISH_HASHES"],
    )
    checked = verify_written(shards, parts_dir, work)
    for folder, sums in checked.stats.items():
        save_stats(sums, join(folder, "stats.json"))
    stats = combine_stats(checked.stats.values())
    if values["MEAN_RGB"]:
        columns = ["path", "split"]
        originals = read_parquet(join(work, "plan.parquet"), columns=columns)
        save_mean_rgb(channel_stats_of_files(originals), stats, work)
    return Written(
        plan=plan,
        shards=shards,
        folders=list(checked.stats),
        earlier=earlier,
        sources=checked.sources,
        stats=describe_splits(stats),
        accounting=account_parts(plan, shards, work),
    )
