"""04: one shard, parts, earlier parts, the files beside them, verification."""

from kaggle_tfr.earlier import list_parts_here
from kaggle_tfr.write.earlier_parts import check_earlier_parts
from kaggle_tfr.write.parts import account_parts, write_parts
from kaggle_tfr.write.stats import (
    channel_stats_of_files,
    combine_stats,
    save_mean_rgb,
    save_stats,
)
from kaggle_tfr.write.step import Written, run
from kaggle_tfr.write.verify import verify_parts, verify_written
