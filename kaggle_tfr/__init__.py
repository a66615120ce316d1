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

    from kaggle_tfr.audit import Audit


def build_dataset(**parameters: Any) -> "pd.DataFrame":
    """Write a dataset of TFRecord shards, as 01 to 04 do; return one row per shard.

    parameters: those of docs/parameters.md, such as INPUT_DIR="photos"; the others have
    their defaults. The returned columns are those of shards.csv, `part` among them.
    Raises: ValueError: a parameter is unknown or does not fit; RuntimeError: a written
    record is not as planned.
    """
    from kaggle_tfr import deduplicate, explore, notebook, plan, write
    from kaggle_tfr.parameters import DEFAULTS, check_parameters

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


def audit_dataset(source: str, out: str | None = None, **parameters: Any) -> "Audit":
    """Find copies, leaks, conflicts and rejected files in the splits of a dataset.

    source: a folder or Kaggle slug. out: the folder that gets audit.html, audit.json
    and copies.csv; by default audit-NAME. parameters: those of 01 and 02
    that differ from what the layout of the input suggests, such as MAX_BITS=20.
    Raises: OSError, ValueError: there is no such input, it contains no image, or its
    layout is not clear; FileExistsError: `out` contains something else.
    """
    from kaggle_tfr import audit

    return audit.audit_dataset(source, out, **parameters)
