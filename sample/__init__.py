"""Draws the sample competition; nothing else uses it."""

from kaggle_tfr_sample.competition import DUPLICATES, write_sample

__all__ = ["DUPLICATES", "write_sample"]
