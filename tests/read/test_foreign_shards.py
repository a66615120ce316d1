"""Shards that other programs wrote: six published layouts, and every way they can be broken."""

import numpy as np
import pytest
import tensorflow as tf
from support.readers import (
    make_example,
    make_picture,
    make_record,
    save_noise,
    write_part,
    write_shard,
)

from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.read.batches import read_batches, read_images
from kaggle_tfr.shards import count_records, find_shards

HALF = encode_mask(np.repeat([[1, 0]], 32, axis=0).repeat(24, axis=1))  # the left half of 32 × 48

# layout: (schema, file name, template, compression, features of record n with class c)
LAYOUTS = {
    "landmark": (
        "2021_PART_1_train_batch_0.tfrecords",
        "{name}_PART_{part}_{split}_batch_{i}.tfrecords",
        "",
        lambda n, c: {"image": make_picture(n), "label": c, "height": 32, "width": 48},
    ),
    "cassava": (
        "Id_df00-6.tfrec",
        "Id_df{i:02d}-{count}.tfrec",
        "",
        lambda n, c: {"image": make_picture(n), "target": c, "image_name": b"%d.jpg" % n},
    ),
    "imagenet": (
        "train/train-0.tfrecord",
        "{split}/{split}-{i}.tfrecord",
        "GZIP",
        lambda n, c: {"label": c, "image_raw": make_picture(n)},
    ),
    "clouds": (
        "raw_train_images_0000.tfrecords",
        "raw_{split}_images_{i:04d}.tfrecords",
        "",
        lambda n, _: (
            {
                "image_raw": make_picture(n),
                "fish": HALF.encode(),
                "gravel": b"1 1536",
            }
            | dict.fromkeys(["flower", "sugar"], b"")
            | {"height": 32, "width": 48, "depth": 3}
        ),
    ),
    "petals": (
        "flowers00-6.tfrec",
        "{name}{i:02d}-{count}.tfrec",
        "",
        lambda n, c: {
            "image": make_picture(n),
            "class": c,
            "label": b"tulip",
            "size": [32, 48],
            "one_hot_class": [float(c == k) for k in range(3)],
        },
    ),
    "flowers": (
        "flowers_train_00000-of-00001.tfrecord",
        "flowers_{split}_{i:05d}-of-{n:05d}.tfrecord",
        "",
        lambda n, c: {
            "image__encoded": make_picture(n, kind="PNG" if n % 2 else "JPEG"),
            "image__format": b"png" if n % 2 else b"jpg",
            "image__class__label": c,
            "image__height": 32,
            "image__width": 48,
        },
    ),
}
LEVELS = [10, 41, 80, 121, 160, 201]


@pytest.fixture
def write_layout(tmp_path):
    """A function that writes six records of a layout and returns (folder, template)."""

    def write(layout):
        file, template, compression, features = LAYOUTS[layout]
        records = [make_example(**features(n, k % 3)) for k, n in enumerate(LEVELS)]
        write_shard(tmp_path / file, records, compression)
        return tmp_path, template

    return write


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_is_read_by_its_name(layout, named, write_layout):
    """
    Pictures and labels of six layouts arrive, with the template of their names and without.
    """
    folder, template = write_layout(layout)

    shards = find_shards(folder, schema=layout, shard_name=template if named else "")
    images, labels, mask = next(
        read_batches(shards, image_size=16, batch_size=8).as_numpy_iterator()
    )

    assert shards["count"].tolist() == [6]
    assert shards["split"].tolist() == ["train"]
    assert mask.tolist() == [1] * 6 + [0] * 2
    assert np.abs(images[:6].mean(axis=(1, 2, 3)) - LEVELS).max() <= 1
    if layout == "clouds":
        assert labels.shape == (8, 16, 16, 4)
        # The window is the middle 32 of 48 columns: the left half of the picture is half of it.
        assert labels[0].mean(axis=(0, 1)).tolist() == [0.5, 0, 1, 0]
        assert labels[0, :, :8, 0].all()
    else:
        assert labels[:6].tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_records_come_with_all_their_features(layout, write_layout):
    """
    For looking at them, records come whole, every published feature by its name.
    """
    folder, _ = write_layout(layout)
    names = {name.replace("__", "/") for name in LAYOUTS[layout][3](1, 0)}

    record = next(read_images(find_shards(folder, schema=layout)).as_numpy_iterator())

    assert set(record) == names
    pictures = [value for value in record.values() if getattr(value, "shape", ()) == (32, 48, 3)]
    assert len(pictures) == 1


def test_a_described_schema_reads_several_labels(tmp_path):
    """
    A list of 0 and 1 under any name becomes float32 labels.
    """
    record = make_example(picture=make_picture(90), tags=[1, 0, 1])
    write_shard(tmp_path / "a.tfrec", [record])
    fields = [
        {"name": "picture", "source": "image", "type": "bytes"},
        {"name": "tags", "source": "labels", "type": "int64", "size": 3},
    ]
    schema = {"fields": fields, "kind": "multi", "n_classes": 3, "label_columns": ["x", "y", "z"]}

    shards = find_shards(tmp_path, schema=schema)
    _, labels, _ = next(read_batches(shards, image_size=16, batch_size=2).as_numpy_iterator())

    assert labels.dtype == np.float32
    assert labels.tolist() == [[1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_cut_shard_is_named(tmp_path, compression):
    """
    Half a file, as a broken copy leaves it, is told by its name before any training.
    """
    records = [make_example(image=save_noise(n, 90, 60), label=n) for n in range(8)]
    schema = {"image": "image", "label": "label"}
    path = tmp_path / "cut.tfrec"
    data = tmp_path.joinpath(write_shard(path, records, compression)).read_bytes()
    path.write_bytes(data[: len(data) // 2])

    with pytest.raises(ValueError, match=r"cut\.tfrec' is cut"):
        find_shards(tmp_path, schema=schema)


def test_a_cut_shard_of_a_part_is_named_by_its_size(tmp_path):
    """
    shards.csv tells how many bytes there should be: one question, also to a bucket.
    """
    write_part(tmp_path, {"a.tfrec": (0, [make_record(n) for n in range(4)])})
    path = tmp_path / "a.tfrec"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(ValueError, match=r"a\.tfrec' has .* bytes, its shards\.csv says"):
        find_shards(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.tfrec"):
        find_shards(tmp_path)


def test_a_wrong_schema_is_named_with_what_is_there(tmp_path):
    """
    The message lists the features that the records have and those that were wanted.
    """
    path = write_shard(tmp_path / "a.tfrec", [make_example(image=make_picture(9), target=1)])

    with pytest.raises(ValueError, match="not of the schema") as caught:
        find_shards(tmp_path, schema="landmark")

    assert path in str(caught.value)
    assert "its records have image: bytes, target: int64" in str(caught.value)
    assert "wants image: bytes, label: int64, height: int64, width: int64" in str(caught.value)


def test_without_any_schema_the_mend_is_told(tmp_path):
    """
    Files of others have no schema.json: the message says how to name one.
    """
    write_shard(tmp_path / "a.tfrec", [make_record(1)])

    with pytest.raises(ValueError, match=r"has no schema\.json.*a\.tfrec.*`schema`"):
        find_shards(tmp_path)


@pytest.mark.parametrize("said", [3, 5])
def test_a_count_in_the_name_that_lies_is_named(tmp_path, said):
    """
    A name that promises more or fewer records than the file holds would bend every epoch.
    """
    write_shard(tmp_path / f"Id_df00-{said}.tfrec", [make_record(n) for n in range(4)])

    with pytest.raises(ValueError, match=rf"Id_df00-{said}\.tfrec' holds 4 records.* says {said}"):
        find_shards(tmp_path, schema="landmark")


@pytest.mark.parametrize("said", [3, 5, 40])
def test_a_count_that_no_look_can_check_stops_validation(tmp_path, said):
    """
    A compressed shard is not read through beforehand; the pass that misses records names it.
    """
    write_shard(tmp_path / "a-00-4.tfrec", [make_record(n) for n in range(4)], "GZIP")
    write_shard(tmp_path / f"b-00-{said}.tfrec", [make_record(n) for n in range(4)], "GZIP")
    shards = find_shards(tmp_path, schema="landmark")

    with pytest.raises(tf.errors.OpError, match=rf"b-00-{said}\.tfrec' holds 4 records"):
        list(read_batches(shards, image_size=16, batch_size=2))


@pytest.mark.parametrize("make", [True, False])
def test_a_folder_without_shards_is_named(tmp_path, make):
    """
    An empty folder and one that is not there are errors with the folder's name.
    """
    folder = tmp_path / "parts"
    if make:
        folder.mkdir()

    with pytest.raises(FileNotFoundError, match="parts'"):
        find_shards(folder)


def test_an_empty_shard_and_a_file_of_another_kind_are_named(tmp_path):
    """
    Nothing in a shard, or something else than records, is told with the file.
    """
    path = tmp_path / "a.tfrec"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.tfrec' holds no record"):
        find_shards(tmp_path, schema="landmark")
    path.write_bytes(make_picture(7))
    with pytest.raises(ValueError, match=r"a\.tfrec' is cut or no TFRecord file"):
        find_shards(tmp_path, schema="landmark")


@pytest.mark.parametrize("count", [0, 1, 7])
def test_frames_are_counted_as_tensorflow_reads_them(tmp_path, count):
    """
    Stepping over frames finds as many records as TFRecordDataset yields.
    """
    path = write_shard(tmp_path / "a.tfrec", [make_record(n) for n in range(count)])

    assert count_records(path) == count == len(list(tf.data.TFRecordDataset(path)))
