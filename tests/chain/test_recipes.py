"""Each recipe on a small input in the layout of its dataset, read by TensorFlow."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.chain import draw_pictures, make_input, run_chain, save_picture
from support.forks import fork
from support.gcs import serve_bucket
from support.scenes import opened, saved


def read_records(path, features, compression=""):
    """Return the records of a file, which have these features and no others.

    features: the type of each. A list with one value is the value.
    """
    records = []
    for data in tf.data.TFRecordDataset([str(path)], compression).as_numpy_iterator():
        record = {}
        for name, field in tf.train.Example.FromString(data).features.feature.items():
            values = list(getattr(field, field.WhichOneof("kind")).value)
            record[name] = values if len(values) > 1 else values[0]
            assert type(values[0]) is features[name], name
        assert record.keys() == features.keys()
        records.append(record)
    return records


def run(recipe, folder, features, compression="", **changes):
    """Run a recipe on folder/in; return its plan with columns `file` and `record`.

    TensorFlow alone reads the records. Images without labels are left out.
    """
    work = folder / "work"
    source = str(folder / "in")
    _, table, shards = run_chain(recipe, str(work), INPUT_DIR=source, **changes)
    files = []
    records = []
    for file, count in zip(shards["file"], shards["count"], strict=True):
        if "/test-Id" not in file:
            path = work / "part-1" / file
            files += [file] * count
            records += read_records(path, features, compression)
            assert len(records) == len(files)
    return table.tail(len(files)).assign(file=files, record=records)


def compare(data, path, box=None):
    """Return the shape of an image, and its PSNR in dB against its source.

    The source is cropped and resized by Pillow.
    """
    image = np.asarray(opened(data), float)
    height, width, _ = image.shape
    source = Image.open(path).resize((width, height), Image.Resampling.LANCZOS, box)
    error = np.square(image - source).mean()
    return image.shape, 10 * np.log10(255**2 / max(error, 1e-9))


def test_landmark(tmp_path):
    """Nested folders, ids with gaps; short side 384, smaller originals unchanged."""
    pictures = draw_pictures(10, 450, 600) + draw_pictures(20, 200, 300)[10:]
    make_input("landmark-2021", tmp_path / "in", pictures)
    features = {"image": bytes, "label": int, "height": int, "width": int}

    rows = run("landmark-2021", tmp_path, features, SHARD_IMAGES=6, VALIDATION_SIZE=0.2)

    classes = json.loads((tmp_path / "work/labels.json").read_text())["classes"]
    assert classes == [0, 500, 1000]
    name = r"landmark-2021_PART_1_(train|validation)_batch_\d+\.tfrecords"
    assert rows["file"].str.fullmatch(name).all()
    assert len(rows) == 20
    for row in rows.itertuples():
        shape, psnr = compare(row.record["image"], row.path)
        assert shape == (row.record["height"], row.record["width"], 3)
        assert classes[row.record["label"]] == int(row.label_name)
        if min(row.height, row.width) > 384:
            assert min(shape[:2]) == 384
            assert psnr > 30
        else:
            assert row.record["image"] == Path(row.path).read_bytes()


def test_cassava(tmp_path):
    """Stretched to height × width; 15 stratified files with counts in their names."""
    pictures = draw_pictures(48, 120, 160)
    make_input("cassava", tmp_path / "in", pictures[:45])
    submission = "image_id,label\n"
    for k, picture in enumerate(pictures[45:]):
        save_picture(picture, tmp_path / "in/test_images" / f"{k}.jpg")
        submission += f"{k}.jpg,4\n"
    (tmp_path / "in/sample_submission.csv").write_text(submission)
    features = {"image": bytes, "target": int, "image_name": bytes}

    rows = run("cassava", tmp_path, features, IMAGE_SIZE=[64, 96])

    files = [f"Id_df{i:02d}-3.tfrec" for i in range(15)]
    assert rows["file"].tolist() == np.repeat(files, 3).tolist()
    for _, records in rows.groupby("file")["record"]:
        assert sorted(record["target"] for record in records) == [0, 1, 2]
    for row in rows.itertuples():
        name = row.record["image_name"].decode()
        assert Path(row.path).name == name
        assert row.record["target"] == int(name[:4]) % 3
        shape, psnr = compare(row.record["image"], row.path)
        assert shape == (64, 96, 3)
        assert psnr > 28
    del features["target"]
    test = read_records(tmp_path / "work/part-1/test/test-Id_df00-3.tfrec", features)
    names = sorted(record["image_name"] for record in test)
    assert names == [b"0.jpg", b"1.jpg", b"2.jpg"]


def test_imagenet(tmp_path):
    """Split folders, a label map, GZIP, 256 × 256 from the middle."""
    make_input("imagenet", tmp_path / "in", draw_pictures(24, 280, 400))
    labels = {"a": 1, "b": 0, "c": 2}
    (tmp_path / "in/label_map.json").write_text(json.dumps(labels))
    features = {"label": int, "image_raw": bytes}
    changes = {"LABEL_MAP": "label_map.json", "SHARD_IMAGES": 6}

    rows = run("imagenet", tmp_path, features, "GZIP", **changes)

    assert sorted(rows["file"].unique()) == [
        "test/test-0.tfrecord",
        "train/train-0.tfrecord",
        "train/train-1.tfrecord",
        "val/val-0.tfrecord",
    ]
    for row in rows.itertuples():
        assert row.record["label"] == labels[row.label_name]
        shape, psnr = compare(row.record["image_raw"], row.path, (60, 0, 340, 280))
        assert shape == (256, 256, 3)
        assert psnr > 30
    for file, records in rows.groupby("file")["record"]:
        assert {record["label"] for record in records} == {0, 1, 2}, file


def test_clouds(tmp_path):
    """Original bytes, unchanged codes, twenty files."""
    make_input("clouds", tmp_path / "in")
    path = tmp_path / "in/train.csv"
    codes = pd.read_csv(path, keep_default_na=False, index_col=0)["EncodedPixels"]
    labels = ["Fish", "Flower", "Gravel", "Sugar"]
    features = dict.fromkeys(["height", "width", "depth"], int)
    features |= dict.fromkeys(["image_raw", *map(str.lower, labels)], bytes)

    rows = run("clouds", tmp_path, features)

    files = [f"raw_train_images_{i:04d}.tfrecords" for i in range(20)]
    assert rows["file"].tolist() == np.repeat(files, 3).tolist()
    assert rows["path"].nunique() == 60
    for row in rows.itertuples():
        path = Path(row.path)
        assert row.record["image_raw"] == path.read_bytes()
        size = [row.record[name] for name in ("height", "width", "depth")]
        assert size == [120, 160, 3]
        for label in labels:
            code = codes[f"{path.name}_{label}"]
            assert row.record[label.lower()].decode() == code


@pytest.fixture(scope="module")
def petals(tmp_path_factory):
    """Class folders among those of systems, and a folder for the results."""
    folder = tmp_path_factory.mktemp("petals")
    make_input("petals", folder / "in", draw_pictures(48, 200, 260))
    for name in (".ipynb_checkpoints", "__MACOSX"):
        shutil.copytree(folder / "in/a", folder / "in" / name)
    return folder


def test_petals(petals):
    """192 × 192 from the middle, full chroma, one-hot labels; 16 mixed files.

    Hidden files and those of the system are left out.
    """
    features = {"image": bytes, "class": int, "label": bytes}
    features |= {"size": int, "one_hot_class": float}

    rows = run("petals", petals, features)

    files = [f"flowers{i:02d}-3.tfrec" for i in range(16)]
    assert rows["file"].tolist() == np.repeat(files, 3).tolist()
    for row in rows.itertuples():
        label = "abc"[row.record["class"]]
        assert row.record["label"].decode() == row.label_name == label
        assert row.record["one_hot_class"] == [float(name == label) for name in "abc"]
        assert row.record["size"] == [192, 192]
        shape, psnr = compare(row.record["image"], row.path, (30, 0, 230, 200))
        assert shape == (192, 192, 3)
        assert psnr > 33
        # Full chroma: the three components have equal sampling factors.
        components = opened(row.record["image"]).layer
        assert {component[1:3] for component in components} == {(1, 1)}


def test_petals_from_a_bucket_are_those_from_disk(petals, tmp_path):
    """gs:// through TensorFlow's client gives the same files, byte for byte."""
    work = tmp_path / "bucket"
    call = partial(run_chain, "petals", str(work), INPUT_DIR="gs://petals")
    with serve_bucket(tmp_path) as gcs:
        gcs.seed_objects("petals", petals / "in")
        process = fork(call, env=gcs.env)
        process.join()

    assert process.exitcode == 0
    shards = (work / "part-1/shards.csv").read_text()  # with sha256 of each
    assert shards == (petals / "work/part-1/shards.csv").read_text()


def test_petals_tfrecords(tmp_path):
    """Published shards in new folds: the same bytes and classes, no duplicate."""
    pictures = draw_pictures(60, 96, 96)
    pictures[57] = pictures[0]  # of val and of train
    make_input("petals-tfrecords", tmp_path / "in", pictures)
    features = {"image": bytes, "class": int, "id": bytes}

    rows = run("petals-tfrecords", tmp_path, features, N_SHARDS=6)

    assert len(rows) == 59
    classes = json.loads((tmp_path / "work/labels.json").read_text())["classes"]
    assert classes == [40, 41, 42]
    for record in rows["record"]:
        k = int(record["id"])
        assert record["image"] == saved(pictures[k])
        assert record["class"] == k % 3
    assert set(rows["split"]) == {"train", "validation"}
    assert set(rows["fold"][rows["split"] == "train"]) == set(range(5))


def test_flowers(tmp_path):
    """Original bytes of JPEG and PNG, 30 % for validation, labels.txt, no conflict."""
    folder = tmp_path / "in"
    make_input("flowers", folder)
    for path in sorted(folder.glob("*/*5.jpg")):
        Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    shutil.copy(folder / "b/1.jpg", folder / "c/also.jpg")
    (folder / "c/notes.txt").write_text("not an image")
    features = {
        "image/encoded": bytes,
        "image/format": bytes,
        "image/class/label": int,
        "image/height": int,
        "image/width": int,
    }

    rows = run("flowers", tmp_path, features, N_SHARDS=5)

    labels = (tmp_path / "work/part-1/labels.txt").read_text()
    assert labels == "0:a\n1:b\n2:c\n"
    assert len(rows) == 59
    assert abs((rows["split"] == "validation").sum() - 0.3 * 59) <= 1.5
    files = rows["file"].unique()
    for split in ("train", "validation"):
        names = [name for name in files if split in name]
        total = len(names)
        assert names == [
            f"flowers_{split}_{i:05d}-of-{total:05d}.tfrecord" for i in range(total)
        ]
    for row in rows.itertuples():
        path = Path(row.path)
        assert row.record["image/encoded"] == path.read_bytes()
        assert row.record["image/format"].decode() == path.suffix[1:]
        assert "abc"[row.record["image/class/label"]] == path.parent.name
        size = (row.record["image/height"], row.record["image/width"])
        assert size == (120, 160)
