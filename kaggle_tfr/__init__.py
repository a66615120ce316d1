"""Turn labelled images into TFRecord shards.

A step has a notebook and a package of the same name, and data flows through them in
this order: explore → deduplicate → plan → write → read → train. A step's package lists
its public functions: `from kaggle_tfr import plan`, then `plan.make_plan(…)`. Single
files and `images` are used by all steps; `kaggle` runs the notebooks on Kaggle.
Imports are in functions, so that `import kaggle_tfr` stays quick.
"""

from typing import TYPE_CHECKING, Any

from kaggle_tfr.version import __version__ as __version__

if TYPE_CHECKING:
    import pandas as pd


def build_dataset(**parameters: Any) -> "pd.DataFrame":
    """Write a dataset of TFRecord shards, as 01 to 04 do; return one row per shard.

    The files are in WORK_DIR and OUT_DIR. Columns: those of shards.csv, `part` among
    them.
    parameters: those of docs/parameters.md, such as INPUT_DIR="photos"; the others have
    their defaults.
    Raises: ValueError: a parameter is unknown or does not fit; RuntimeError: a written
    record is not as planned.
    """
    from kaggle_tfr import deduplicate, explore, notebook, plan, write
    from kaggle_tfr.parameters import DEFAULTS, check_parameters

    check_parameters(parameters)
    values = {**DEFAULTS, **parameters}
    try:
        notebook.start("01_explore", values)
        # Each step reads the files that the step before has written to WORK_DIR.
        explore.run(values)
        deduplicate.run(values)
        plan.run(values)
        return write.run(values).shards
    finally:
        notebook.end()  # releases the lock of WORK_DIR
