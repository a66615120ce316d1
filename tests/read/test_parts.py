"""What parts contain besides batches: classes, ids, single images, a submission."""

import numpy as np
import pandas as pd
import pytest
from support.plans import make_images, plan_images
from support.readers import make_record, write_part

from kaggle_tfr import read
from kaggle_tfr.write.writer import write_parts

SIZES = {"image_size": 16, "batch_size": 5}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The shards of a part with 24 labelled images, and a sample submission."""
    folder = tmp_path_factory.mktemp("parts")
    plan_images(make_images(folder / "in", 24), folder)
    write_parts(str(folder))
    text = "\ufeffimage_id,label\n0007,NA\n"
    (folder / "part-1" / "sample_submission.csv").write_text(text)
    return read.find_shards(folder / "part-1")


def list_ids(batches):
    """The labels and the ids of validation batches, without their padding."""
    found = {}
    for _, labels, mask, ids in batches.as_numpy_iterator():
        names = [name.decode() for name in ids]
        assert [name == "" for name in names] == (mask == 0).tolist()
        found |= zip(names, labels.tolist(), strict=True)
    found.pop("", None)
    return found


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_record_without_an_id_has_its_place(tmp_path, compression):
    """Also in GZIP; the place finds the image of the record again."""
    records = {"a.tfrec": (0, [make_record(7), make_record(200)])}
    records["b.tfrec"] = (0, [make_record(30)])
    shards = read.find_shards(write_part(tmp_path, records, compression=compression))

    found = list_ids(read.read_batches(shards, **SIZES, ids=True))

    assert found == {"a.tfrec#0": 7, "a.tfrec#1": 200, "b.tfrec#0": 30}
    means = [image.mean() for image in read.find_images(shards, found)]
    assert means == pytest.approx([7, 200, 30], abs=1)


def test_images_are_found_by_the_ids_of_their_part(shards):
    """In the order of the ids; the pixels are those of `Records`."""
    rows = pd.read_csv(f"{shards['folder'][0]}/train.csv", dtype={"image_id": str})
    chosen = rows.iloc[[20, 3, 11]]

    images = read.find_images(shards, chosen["image_id"])

    for image, row in zip(images, chosen.itertuples(), strict=True):
        of_shard = shards[shards["file"].str.endswith(row.file)]
        assert np.array_equal(image, read.Records(of_shard)[row.record][0])
    with pytest.raises(ValueError, match="no image 'lost' in these shards.*file#"):
        read.find_images(shards, ["lost"])


def test_the_sample_submission_of_a_part_is_text(shards, tmp_path):
    """A mark at its start is left out, and NA is a name; without a file it is None."""
    other = write_part(tmp_path, {"a.tfrec": (0, [make_record(1)])})

    table = read.find_submission(shards)

    assert table.to_dict("records") == [{"image_id": "0007", "label": "NA"}]
    assert read.find_submission(read.find_shards(other)) is None
