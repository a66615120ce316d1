"""How often an image's file is opened on its way into a shard."""

import sys
from collections import Counter

from support import layouts

from kaggle_tfr import deduplicate, explore, plan
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.write import write_parts


def test_an_image_is_opened_once_before_the_plan_and_once_for_writing(tmp_path):
    """01 measures and hashes it at once; 02 opens no image, and 04 opens each once.

    The forecast converts a sample, here all 50. A second run of 01 opens none.
    """
    opened = Counter()

    def count(event, arguments):
        if event == "open" and "counted-opens" in str(arguments[0]):
            opened[str(arguments[0])] += 1

    sys.addaudithook(count)  # it cannot be removed
    folder = tmp_path / "counted-opens"
    layouts.put(layouts.each("ab", f"{folder}/{{}}/{{}}.jpg", 25))
    values = DEFAULTS | {"INPUT_DIR": str(folder), "WORK_DIR": str(tmp_path / "work")}
    values |= {"N_FOLDS": 2, "IMAGE_SIZE": 32, "SECOND_LOOK": False, "N_JOBS": 1}
    counts = []
    for step in (explore.run, explore.run, deduplicate.run, plan.run, write_parts):
        opened.clear()
        step(values["WORK_DIR"] if step is write_parts else values)
        counts.append((len(opened), opened.total()))

    assert counts == [(50, 50), (0, 0), (0, 0), (50, 50), (50, 50)]
