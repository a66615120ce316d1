"""04: one shard, parts, the files beside them, verification."""

from kaggle_tfr.write.step import Written, run
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import account_parts, write_parts
