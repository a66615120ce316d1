"""The input folder: the user's, or that of the bundled sample."""

import os

from kaggle_tfr.find import KAGGLE_TEMP, KAGGLE_WORKING, find_input
from kaggle_tfr.storage import real_path


def input_or_sample(input_dir: str, work: str) -> str:
    """Return the input folder; for "", that of the sample, which is written to `work`.

    On Kaggle it is written to /kaggle/temp, because the files in `work` are the output
    of the session there.
    input_dir: a path, a gs:// address or a Kaggle slug.
    Raises: FileNotFoundError: there is no such input; ValueError: it is `work`.
    """
    if not input_dir:
        from kaggle_tfr_sample import write_sample

        parent = KAGGLE_TEMP if work.startswith(KAGGLE_WORKING) else work
        folder = os.path.join(parent, "sample")
        write_sample(folder)
        return folder
    folder = find_input(input_dir)
    if real_path(folder) == real_path(work):
        raise ValueError(
            f"WORK_DIR and INPUT_DIR are both '{folder}'. Set WORK_DIR to another."
        )
    return folder
