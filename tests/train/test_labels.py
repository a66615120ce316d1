"""The labels that 06 refuses.

`test_chain` trains on classes, and `test_quantities` on numbers.
"""

import pandas as pd
import pytest

from kaggle_tfr import train
from kaggle_tfr.schema import Field, Labels, RecordSchema

IMAGE = Field("image", "image")
SEVERAL = RecordSchema(
    (IMAGE, Field("label", "labels", "int64", 2)), "multi", 2, ("sun", "rain")
)
MASKS = RecordSchema((IMAGE, Field("sun", "sun")), "masks", 1, ("sun",))
UNLABELLED = RecordSchema((IMAGE, Field("id", "image_id")))


def list_shards(schema, labels):
    """A labelled shard and one of test images, as `find_shards` lists them."""
    shards = pd.DataFrame({"split": ["train", "test"], "folder": "work/part-1"})
    return shards.assign(schema=[schema, UNLABELLED], labels=[labels, labels])


@pytest.mark.parametrize(
    ("schema", "labels", "message"),
    [
        (
            SEVERAL,
            Labels("multi", ("sun", "rain")),
            "can have several labels.*sigmoid",
        ),
        (MASKS, Labels("masks", ("sun",)), "have masks.*segmentation"),
        (SEVERAL, Labels("multi"), "in 'work/part-1' have no labels.*LABEL_COLUMN"),
        (UNLABELLED, Labels("single", ("a",)), "have no labels.*LABEL_COLUMN"),
    ],
)
def test_other_labels_than_one_an_image_are_refused(schema, labels, message):
    """The message says what the labels are and which reader and page help."""
    with pytest.raises(ValueError, match=f"{message}.*read_batches.*docs/reading.md"):
        train.check_labels(list_shards(schema, labels))
