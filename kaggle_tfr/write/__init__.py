"""04: one shard, parts, the files beside them, verification."""

from kaggle_tfr.write.parts import account_parts, compare_parts, compare_with_plan, write_parts
from kaggle_tfr.write.verify import save_stats, verify_parts
