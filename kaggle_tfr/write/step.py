"""04 in one call: write the parts, read them again, and account for every image."""

from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import notebook, storage
from kaggle_tfr.find import output_dir
from kaggle_tfr.parameters import Values
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.shards import list_own_parts
from kaggle_tfr.write.journal import DATASET_FILE, read_json
from kaggle_tfr.write.stats import (
    channel_stats_of_files,
    describe_sums,
    save_mean_rgb,
    save_stats,
)
from kaggle_tfr.write.verify import Verification, verify_parts
from kaggle_tfr.write.writer import account_parts, write_parts


@dataclass(frozen=True)
class Written:
    """What 04 wrote.

    part_dirs: the folders of the parts that this run wrote. shards: as in shards.csv.
    sources: the sample of records that was compared with their images, one row each;
    see `verify.Finding`.
    stats: by split: images, pixels, and mean.R, std.R … of the channels, 0 to 255.
    counts: number of input images by outcome, as in accounting.csv.
    """

    part_dirs: list[str]
    shards: pd.DataFrame
    sources: pd.DataFrame
    stats: pd.DataFrame
    counts: dict[str, int]


def run(values: Values) -> Written:
    """Write the planned parts, verify all records, and save their statistics.

    Finished shards of an earlier run are checked and kept. Mean and standard deviation
    of the colour channels go into stats.json of each part; with MEAN_RGB, the means of
    the original files and of the records also go into mean_rgb/ of the work folder.
    values: the parameters of 04 by name, for example a notebook's `globals()`.
    Raises: RuntimeError: a record is not as planned; and what `write_parts` raises.
    """
    work = notebook.begin("04_write", values)
    parts_dir = output_dir(values["OUT_DIR"] or work)
    shards = write_parts(
        work,
        parts_dir,
        values["PART"],
        overwrite=values["OVERWRITE"],
        license_name=values["LICENSE"],
        publish_hashes=values["PUBLISH_HASHES"],
    )
    part_dirs = [f"{parts_dir}/part-{number}" for number in shards["part"].unique()]
    checked = verify_written(part_dirs, work)
    plan = read_plan(work)
    subject = "license"
    # `report.decide` waits until all parts of the plan are finished.
    if len(list_own_parts(parts_dir, work)) < plan.n_parts:
        subject += f": part {values['PART']}"
    # DATASET_FILE: dataset-metadata.json, with the license for Kaggle.
    if all(read_json(f"{part}/{DATASET_FILE}")["licenses"] for part in part_dirs):
        notebook.note("✓", "The parts have a license.", subject)
    else:
        notebook.note(
            "·",
            "LICENSE is empty.",
            subject,
            "To publish, set LICENSE and run 04_write again. Finished shards stay.",
        )
    # `checked.stats`: sums of pixels, a row for each part and split. Its "part" is the
    # path of a part folder, not the number of a part as in `shards`.
    stats = checked.stats.groupby("split").sum()
    for part_dir, sums_of_part in checked.stats.groupby("part"):
        save_stats(sums_of_part.droplevel(0), str(part_dir))
    if values["MEAN_RGB"]:
        originals = storage.read_parquet(f"{work}/plan.parquet", ["path", "split"])
        save_mean_rgb(channel_stats_of_files(originals), "files", work)
        save_mean_rgb(stats, "records", work)
    # Columns images, pixels, mean.R, …, std.B; one row per split.
    described = pd.json_normalize([describe_sums(sums) for _, sums in stats.iterrows()])
    return Written(
        part_dirs=part_dirs,
        shards=shards,
        sources=checked.sources,
        stats=described.set_axis(stats.index),
        counts=account_parts(plan, shards, work),
    )


def verify_written(part_dirs: list[str], work_dir: str) -> Verification:
    """Read written parts again, and note that all of them are as planned.

    work_dir: the plan's, for the comparison with source images.
    Raises: RuntimeError: a record or a file is not as planned.
    """
    checked = verify_parts(part_dirs, work_dir)
    if len(checked.faults):
        table = checked.faults.head(20).to_string()
        raise RuntimeError(f"Run 04_write again: parts are not as planned.\n{table}")
    notebook.note(
        "✓",
        f"0 faults in {checked.stats['images'].sum():,} records, all read again.",
        "verification",
    )
    return checked
