"""Labelled images to TFRecord shards: the rooms are the steps, and data flows from left to right.

explore → deduplicate → plan → write → read → train

A step's package names its public functions; its notebook, and any script, calls them by the step:
`from kaggle_tfr import plan`, then `plan.make_plan(…)`. The single files and `images` are the
ground that all steps stand on; `kaggle` takes the notebooks to Kaggle. Nothing is imported here.
"""

__version__ = "0.2.0"
