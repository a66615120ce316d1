"""04: write and verify the parts of a plan."""

from kaggle_tfr.write.step import Written, run
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import account_parts, write_parts
