"""What lies in folders: parts of ours, six published layouts, and every way they can be broken."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.readers import (
    make_example,
    make_picture,
    make_record,
    write_part,
    write_shard,
)

from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.read.batches import read_batches, read_images
from kaggle_tfr.schema import Field, RecordSchema
from kaggle_tfr.shards import find_shards, list_inputs

HALF = encode_mask(
    np.repeat([[1, 0]], 32, axis=0).repeat(24, axis=1)
)  # the left half of 32 × 48
SIZES = {"height": 32, "width": 48}
# layout: (file name, features beside the picture of record n with class c)
LAYOUTS = {
    "landmark": (
        "2021_PART_1_train_batch_0.tfrecords",
        lambda n, c: {"image": make_picture(n), "label": c, **SIZES},
    ),
    "cassava": (
        "Id_df00-6.tfrec",
        lambda n, c: {
            "image": make_picture(n),
            "target": c,
            "image_name": b"%d.jpg" % n,
        },
    ),
    "imagenet": (  # in GZIP
        "train/train-0.tfrecord",
        lambda n, c: {"label": c, "image_raw": make_picture(n)},
    ),
    "clouds": (
        "raw_train_images_0000.tfrecords",
        lambda n, _: (
            {"image_raw": make_picture(n), "fish": HALF.encode(), "gravel": b"1 1536"}
            | {"flower": b"", "sugar": b"", "depth": 3, **SIZES}
        ),
    ),
    "petals": (
        "flowers00-6.tfrec",
        lambda n, c: (
            {"image": make_picture(n), "class": c, "label": b"tulip", "size": [32, 48]}
            | {"one_hot_class": [float(c == k) for k in range(3)]}
        ),
    ),
    "flowers": (
        "flowers_train_00000-of-00001.tfrecord",
        lambda n, c: (
            {"image__encoded": make_picture(n, kind="PNG" if n % 2 else "JPEG")}
            | {"image__format": b"png" if n % 2 else b"jpg", "image__class__label": c}
            | {f"image__{name}": length for name, length in SIZES.items()}
        ),
    ),
}
LEVELS = [10, 41, 80, 121, 160, 201]


def test_shards_in_a_folder_test_are_of_that_split(tmp_path):
    """Also without a shards.csv, and whatever the rest of the name contains."""
    for name in ("train-f0-000-1.tfrec", "test/test-train-000-1.tfrec"):
        write_shard(tmp_path / name, [make_record(7)])

    shards = find_shards(tmp_path, schema="landmark")

    found = {Path(row.file).parent.name: row.split for row in shards.itertuples()}
    assert found == {tmp_path.name: "train", "test": "test"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_is_read_by_its_name(layout, tmp_path):
    """Pictures, labels and all features of six layouts arrive."""
    file, features = LAYOUTS[layout]
    records = [make_example(**features(n, k % 3)) for k, n in enumerate(LEVELS)]
    write_shard(tmp_path / file, records, "GZIP" if layout == "imagenet" else "")

    shards = find_shards(tmp_path, schema=layout)
    batches = read_batches(shards, image_size=16, batch_size=8)
    images, labels, mask = next(batches.as_numpy_iterator())
    record = next(read_images(shards).as_numpy_iterator())

    assert shards[["split", "fold", "count"]].to_numpy().tolist() == [["train", -1, 6]]
    assert mask.tolist() == [1] * 6 + [0] * 2
    assert np.abs(images[:6].mean(axis=(1, 2, 3)) - LEVELS).max() <= 1
    if layout == "clouds":
        assert labels.shape == (8, 16, 16, 4)
        # The window is the middle 32 of 48 columns: the left half of the picture is half of it.
        assert labels[0].mean(axis=(0, 1)).tolist() == [0.5, 0, 1, 0]
        assert labels[0, :, :8, 0].all()
    else:
        assert labels[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(record) == {name.replace("__", "/") for name in features(1, 0)}
    assert [np.shape(value) for value in record.values()].count((32, 48, 3)) == 1


def test_a_described_schema_reads_several_labels(tmp_path):
    """A list of 0 and 1 under any name becomes float32 labels."""
    write_shard(
        tmp_path / "a.tfrec", [make_example(picture=make_picture(90), tags=[1, 0, 1])]
    )
    fields = Field("picture", "image"), Field("tags", "labels", "int64", 3)
    schema = RecordSchema(fields, "multi", 3, ("x", "y", "z"))

    shards = find_shards(tmp_path, schema=schema)
    _, labels, _ = next(
        read_batches(shards, image_size=16, batch_size=2).as_numpy_iterator()
    )

    assert labels.dtype == np.float32
    assert labels.tolist() == [[1, 0, 1], [0, 0, 0]]


def test_a_part_of_version_0_1_is_still_read(tmp_path):
    """Its schema.json has a key more in each field, its plan.json the settings on the top level."""
    part = Path(write_part(tmp_path, {"a.tfrec": (0, [make_record(7)])}))
    schema = json.loads((part / "schema.json").read_text())
    schema["fields"] = [{**field, "dtype": "float32"} for field in schema["fields"]]
    (part / "schema.json").write_text(json.dumps(schema))
    (part / "plan.json").write_text('{"compression": "", "name": "old"}')

    (record,) = read_images(find_shards(part)).as_numpy_iterator()

    assert record["label"] == 7


DEEP = "[" * 100_000
BROKEN = [
    b"{",
    b"[]",
    b"3",
    b'"text"',
    b"null",
    DEEP.encode(),
    b"\xff\xfe\x00",
    b"\0" * 99,
]
BROKEN_SIDECARS = [
    *[("schema.json", data) for data in BROKEN],
    *[("plan.json", data) for data in BROKEN],
    *[
        ("labels.json", data) for data in BROKEN if data != b"[]"
    ],  # a list of names is another's
    *[
        ("shards.csv", data)
        for data in [*BROKEN[:1], *BROKEN[6:], b'a,"b\nc', b"a,b\n1,2,3\n"]
    ],
    ("schema.json", b'{"fields": 3}'),
    ("schema.json", b'{"fields": [{"name": "image"}]}'),
    (
        "schema.json",
        b'{"fields": [{"name": "image", "source": "image", "type": "text"}]}',
    ),
    ("plan.json", b'{"settings": []}'),
    ("plan.json", b'{"settings": {"compression": 7}}'),
    ("plan.json", b'{"settings": {}, "image": "JPEG"}'),
    ("labels.json", b'{"classes": 3}'),
    ("labels.json", b'{"classes": [[1], {}]}'),
    ("shards.csv", b"file,split,fold,count,bytes\na.tfrec,train,0,one,two\n"),
    ("shards.csv", b"file,split,fold,count,bytes\n,train,0,1,2\n"),
    (
        "shards.csv",
        b"file,split,fold,count,bytes\na.tfrec,train,0,1,9" + b"9" * 30 + b"\n",
    ),
]


@pytest.mark.parametrize(("name", "data"), BROKEN_SIDECARS)
def test_a_broken_sidecar_is_named_with_what_to_do(tmp_path, name, data):
    """Whatever it contains: a ValueError with its path, and no other error."""
    part = Path(write_part(tmp_path, {"a.tfrec": (0, [make_record(7)])}))
    (part / name).write_bytes(data)

    with pytest.raises(
        ValueError, match=f"(?s)'{part / name}'.*(again|Copy)"
    ) as raised:
        find_shards(part)

    assert type(raised.value) is ValueError


def test_a_list_of_names_in_labels_json_is_left_alone(tmp_path):
    """It is another program's."""
    part = Path(write_part(tmp_path, {"a.tfrec": (0, [make_record(7)])}))
    (part / "labels.json").write_text('["ash", "birch"]')
    assert find_shards(part)["labels"][0].classes == ()


def test_several_parts_are_read_as_one(tmp_path):
    """The folder around the parts stands for all; parts given or numbered twice are refused."""
    write_part(tmp_path / "part-1", {"a.tfrec": (0, [make_record(1)])})
    write_part(tmp_path / "part-2", {"train/b.tfrec": (1, [make_record(2)] * 2)})

    table = find_shards(tmp_path)

    assert table["count"].tolist() == [1, 2]
    assert [labels.classes for labels in table["labels"]] == [("a", "b")] * 2
    assert table["file"].iloc[1] == str(tmp_path / "part-2" / "train" / "b.tfrec")
    with pytest.raises(ValueError, match=r"listed twice, .*part-2"):
        find_shards([tmp_path, tmp_path / "part-2"])
    write_part(
        tmp_path / "part-3", {"c.tfrec": (0, [make_record(1)])}, classes=["b", "c"]
    )
    with pytest.raises(
        ValueError, match=r"part-3' and '.*part-1' number their classes"
    ):
        find_shards(tmp_path)


def test_parts_of_different_plans_are_never_read_as_one(tmp_path):
    """Both folders are named; parts of one plan are read together, and one part is read alone."""
    for number, fingerprint in enumerate(["a1", "a1", "b2"], 1):
        part = tmp_path / f"part-{number}"
        write_part(part, {"train.tfrec": (0, [make_record(number)])})
        (part / "plan.json").write_text(json.dumps({"fingerprint": fingerprint}))

    different = r"part-1' and '.*part-3' are of different plans.*OVERWRITE = True"
    with pytest.raises(ValueError, match=different):
        find_shards(tmp_path)
    with pytest.raises(ValueError, match=different):
        find_shards([tmp_path / f"part-{number}" for number in (1, 2, 3)])
    with pytest.raises(
        ValueError, match=r"part-1' and '.*part-3' are of .*MORE_INPUTS"
    ):
        list_inputs(str(tmp_path))
    assert (
        len(list_inputs(f"{tmp_path}/part-3"))
        == len(find_shards(tmp_path / "part-3"))
        == 1
    )

    (tmp_path / "part-3" / "shards.csv").unlink()
    assert (
        find_shards(tmp_path)["count"].sum() == len(list_inputs(str(tmp_path))) - 1 == 2
    )
    (tmp_path / "plan.json").write_text(
        '{"fingerprint": "c3"}'
    )  # of a WORK_DIR planned again
    with pytest.raises(
        ValueError, match=rf"'{tmp_path}' and '.*part-1' are of different plans"
    ):
        find_shards(tmp_path)


@pytest.mark.parametrize(
    ("image", "settings", "told"),
    [
        (
            {"format": "JPEG", "resize": "short_side"},
            {"compression": "GZIP"},
            ["GZIP", True],
        ),
        ({"format": "JPEG", "resize": "none"}, {}, ["", False]),
        ({"format": "PNG", "resize": "fill"}, {}, ["", False]),
    ],
)
def test_the_plan_tells_the_compression_and_whether_all_are_jpegs(
    tmp_path, image, settings, told
):
    """Only what was resized to JPEG is sure to be one: else originals may have kept their bytes."""
    write_part(tmp_path, {"a.tfrec": (0, [])})
    path = Path(
        write_shard(tmp_path / "a.tfrec", [make_record(1), make_record(2)], told[0])
    )
    rows = f"file,split,fold,count,bytes,sha256\na.tfrec,train,0,2,{path.stat().st_size},0\n"
    (tmp_path / "shards.csv").write_text(rows)
    (tmp_path / "plan.json").write_text(
        json.dumps({"image": image, "settings": settings})
    )

    shards = find_shards(tmp_path)

    assert shards[["compression", "jpeg"]].to_numpy().tolist() == [told]
    assert len(list(read_batches(shards, batch_size=2, image_size=16))) == 1


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_cut_shard_is_named(tmp_path, compression):
    """Half a file, as a broken copy leaves it, is told by its name before any training."""
    records = [make_record(n) for n in range(7)]  # half of them end within one
    path = Path(write_shard(tmp_path / "cut.tfrec", records, compression))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(ValueError, match=r"cut\.tfrec' is cut"):
        find_shards(tmp_path, schema={"image": "image", "label": "label"})


def test_a_cut_or_missing_shard_of_a_part_is_named_by_its_size(tmp_path):
    """shards.csv tells how many bytes there should be: one question, also to a bucket."""
    write_part(tmp_path, {"a.tfrec": (0, [make_record(n) for n in range(4)])})
    path = tmp_path / "a.tfrec"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(
        ValueError, match=r"a\.tfrec' has .* bytes, its shards\.csv says"
    ):
        find_shards(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.tfrec"):
        find_shards(tmp_path)


def test_a_wrong_or_missing_schema_is_named_with_what_is_there(tmp_path):
    """The message lists the features that the records have and those that were wanted."""
    write_shard(tmp_path / "a.tfrec", [make_example(image=make_picture(9), target=1)])

    has, wants = (
        "image: bytes, target: int64",
        "image: bytes, label: int64, height: int64, width",
    )
    said = rf"a\.tfrec' is not .* have {has}; the schema wants {wants}"
    with pytest.raises(ValueError, match=said):
        find_shards(tmp_path, schema="landmark")
    with pytest.raises(ValueError, match=r"has no schema\.json.*a\.tfrec.*`schema`"):
        find_shards(tmp_path)


@pytest.mark.parametrize("said", [3, 5])
def test_a_count_in_the_name_that_lies_is_named(tmp_path, said):
    """A plain file's records are counted beforehand; a compressed one's by the pass over them."""
    records = [make_record(n) for n in range(4)]
    write_shard(tmp_path / "plain" / f"Id_df00-{said}.tfrec", records)
    write_shard(tmp_path / "gzip" / "a-00-4.tfrec", records, "GZIP")
    write_shard(tmp_path / "gzip" / f"b-00-{said}.tfrec", records, "GZIP")

    with pytest.raises(
        ValueError, match=rf"Id_df00-{said}\.tfrec' holds 4 records.* says {said}"
    ):
        find_shards(tmp_path / "plain", schema="landmark")
    shards = find_shards(tmp_path / "gzip", schema="landmark")
    with pytest.raises(
        tf.errors.OpError, match=rf"b-00-{said}\.tfrec' contains 4 records"
    ):
        list(read_batches(shards, image_size=16, batch_size=2))


def test_folders_and_files_without_records_are_named(tmp_path):
    """A missing or empty folder, an empty shard, or something else than records."""
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="parts'"):
            find_shards(tmp_path / "parts")
        (tmp_path / "parts").mkdir(exist_ok=True)
    (tmp_path / "parts" / "a.tfrec").write_bytes(make_picture(7))
    with pytest.raises(ValueError, match=r"a\.tfrec' is cut or no TFRecord file"):
        find_shards(tmp_path / "parts", schema="landmark")


@pytest.mark.parametrize("ours", [False, True])
def test_an_empty_shard_is_read_past(tmp_path, ours, capsys):
    """Every image of a shard may have been rejected: it is named, and the others are read."""
    shards = {"a.tfrec": [], "b.tfrec": [make_record(1)], "c.tfrec": []}
    schema = "" if ours else "landmark"
    if ours:
        write_part(
            tmp_path,
            {file: (n, records) for n, (file, records) in enumerate(shards.items())},
        )
    else:
        for file, records in shards.items():
            write_shard(tmp_path / file, records)

    found = find_shards(tmp_path, schema=schema)

    assert "2 of 3 shards hold no record, such as" in capsys.readouterr().out
    assert found["file"].tolist() == [str(tmp_path / "b.tfrec")]
    assert [record["label"] for record in read_images(found).as_numpy_iterator()] == [1]
    write_part(tmp_path, {"a.tfrec": (0, []), "b.tfrec": (1, [])})
    with pytest.raises(
        ValueError, match=r"None of the 2 shards holds a record.*rejects\.csv"
    ):
        find_shards(tmp_path)
