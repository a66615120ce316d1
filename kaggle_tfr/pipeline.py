"""The steps 01 to 04 as one call."""

from typing import Any

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook, plan, write
from kaggle_tfr.parameters import DEFAULTS, check_parameters


def build_dataset(**parameters: Any) -> pd.DataFrame:
    """Write a dataset, as 01 to 04 do, and return one row per shard.

    parameters: those of a recipe, such as INPUT_DIR="photos"; the others have their
    defaults. The returned columns are those of shards.csv, `part` among them.
    Raises: ValueError: a parameter is unknown or does not fit; RuntimeError: a written
    record is not as planned.
    """
    check_parameters(parameters)
    values = {**DEFAULTS, **parameters}
    try:
        notebook.start("01_explore", values)
        explore.run(values)
        deduplicate.run(values)
        plan.run(values)
        return write.run(values).shards
    finally:
        notebook.end()
