"""Folders of shards: our parts, published layouts, and every way to break them."""

import json
import shutil

import pytest
import tensorflow as tf
from support.readers import make_record, write_part, write_shard

from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.shards import find_shards


def list_labels(shards):
    """Return the labels of all records, in their order."""
    batches = read_batches(shards, image_size=16, batch_size=1)
    return [int(labels[0]) for _, labels, _ in batches.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("schema.json", '{"fields": [{"name": "image"}]}'),
        ("labels.json", "null"),
        ("shards.csv", "file,split,fold,count,bytes\na.tfrec,train,0,one,two\n"),
    ],
)
def test_a_broken_sidecar_is_named_with_what_to_do(tmp_path, name, data):
    """Whatever it contains, the error is a ValueError with its path."""
    write_part(tmp_path, {"a.tfrec": (0, [make_record(7)])})
    (tmp_path / name).write_text(data)

    message = f"(?s)'{tmp_path / name}'.*(again|Copy)"
    with pytest.raises(ValueError, match=message):
        find_shards(tmp_path)


def write_planned(folder, number, **plan):
    """Write a part with one record, of the first plan of two parts or of another."""
    write_part(folder, {f"{number}.tfrec": (0, [make_record(number)])})
    header, row = (folder / "shards.csv").read_text().split()
    (folder / "shards.csv").write_text(f"{header},part\n{row},{number}\n")
    values = {"fingerprint": "a1", "dataset_id": "a1", "n_parts": 2} | plan
    (folder / "plan.json").write_text(json.dumps(values))


# Plans that continue the first one.
SECOND = {"fingerprint": "b2", "dataset_id": "a1", "first_part": 3, "n_parts": 1}
THIRD = {"fingerprint": "c3", "dataset_id": "a1", "first_part": 4, "n_parts": 1}


def test_a_dataset_and_its_growths_are_read_as_one(tmp_path):
    """Every record is read once, wherever the folders are, and any subset of them.

    A folder of parts means all of them, also if one is named again.
    """
    write_planned(tmp_path / "out" / "part-1", 1)
    second = tmp_path / "out" / "part-2"
    write_planned(second, 2)
    write_planned(tmp_path / "kaggle" / "tea-3", 3, **SECOND)
    write_planned(tmp_path / "out" / "part-4", 4, **THIRD)
    # The plan of the newest growth is in the work folder around the parts.
    shutil.copy(tmp_path / "out" / "part-4" / "plan.json", tmp_path / "out")
    # A folder of another program agrees with all. A shard may be empty.
    files = {"0.tfrec": (0, []), "5.tfrec": (1, [make_record(5)])}
    write_part(tmp_path / "kaggle" / "tea", files)

    shards = find_shards([tmp_path / "out", tmp_path / "kaggle", second])

    assert sorted(list_labels(shards)) == [1, 2, 3, 4, 5]
    assert shards["labels"][0].classes == ("a", "b")
    assert len(find_shards(tmp_path / "out")) == 3
    # A WORK_DIR that was planned again does not have the parts of its plan yet.
    (tmp_path / "out" / "plan.json").write_text('{"dataset_id": "d4"}')
    with pytest.raises(ValueError, match=rf"'{tmp_path}/out' and '.*part-1' cannot"):
        find_shards(tmp_path / "out")


@pytest.mark.parametrize(
    ("number", "plan"),
    [
        (2, {"fingerprint": "b2", "dataset_id": "b2"}),
        (3, SECOND | {"dataset_id": "x9"}),
        (5, THIRD | {"fingerprint": "d4", "n_parts": 2}),
        (4, THIRD),
    ],
)
def test_parts_of_different_plans_are_never_read_as_one(tmp_path, number, plan):
    """Those of another dataset, of its growth, two growths of one, and the same part.

    Both folders are named. One may hold copies of the other's images.
    """
    write_planned(tmp_path / "a", 4, **THIRD)
    write_planned(tmp_path / "b", number, **plan)

    message = rf"{tmp_path}/a' and '{tmp_path}/b' cannot be read.*"
    with pytest.raises(ValueError, match=message + "OVERWRITE = True"):
        find_shards(tmp_path)
    assert len(find_shards(tmp_path / "b")) == 1


def test_a_truncated_or_missing_shard_of_a_part_is_named(tmp_path):
    """Its size is compared with shards.csv, which takes one request to a bucket."""
    write_part(tmp_path, {"a.tfrec": (0, [make_record(n) for n in range(4)])})
    path = tmp_path / "a.tfrec"
    path.write_bytes(path.read_bytes()[:-1])

    message = r"a\.tfrec' has .* bytes, but .* in shards\.csv"
    with pytest.raises(ValueError, match=message):
        find_shards(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.tfrec"):
        find_shards(tmp_path)


@pytest.mark.parametrize("count", [3, 5])
def test_a_wrong_count_is_an_error(tmp_path, count):
    """Records are counted while reading."""
    write_part(tmp_path, {"a.tfrec": (0, [make_record(n) for n in range(4)])})
    table = tmp_path / "shards.csv"
    table.write_text(table.read_text().replace("train,0,4", f"train,0,{count}"))

    with pytest.raises(tf.errors.OpError, match=f"expected to contain {count}"):
        list_labels(find_shards(tmp_path))


def test_a_folder_without_a_table_of_shards_is_named(tmp_path):
    """Shards alone are not enough."""
    write_shard(tmp_path / "a.tfrec", [make_record(9)])
    with pytest.raises(FileNotFoundError, match=f"No shards in '{tmp_path}'"):
        find_shards(tmp_path)
