"""Each recipe on a small input in the layout of its dataset, read by TensorFlow."""

import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.chain import draw_pictures, make_input, run_chain, save_picture
from support.forks import run_code
from support.gcs import serve_bucket
from support.plans import read_plainly
from support.scenes import saved

TEXT = tf.io.FixedLenFeature([], tf.string)
INT = tf.io.FixedLenFeature([], tf.int64)


def run(recipe, work, pattern, features, compression="", **changes):
    """Run a recipe; return its images and plan, records by file, and all records.

    TensorFlow alone reads the records.
    """
    images, table, _ = run_chain(recipe, str(work), **changes)
    part = Path(work, "part-1")
    paths = {str(path.relative_to(part)): path for path in sorted(part.rglob(pattern))}
    records = {}
    for file, path in paths.items():
        records[file] = read_plainly([path], compression, features)
    shards = pd.read_csv(part / "shards.csv", index_col="file")
    is_unlabelled = shards.index.str.contains("/test-Id")
    counts = shards["count"][~is_unlabelled].to_dict()
    assert {file: len(held) for file, held in records.items()} == counts
    in_order = [record for file in counts for record in records[file]]
    return images, table, records, in_order


def decode(data):
    return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()


def psnr_of(pixels, path, box=None):
    """Return the PSNR in dB against the source, cropped and resized by Pillow."""
    source = Image.open(path).convert("RGB")
    source = source.crop(box) if box else source
    size = (pixels.shape[1], pixels.shape[0])
    source = np.asarray(source.resize(size, Image.Resampling.LANCZOS), float)
    return 10 * np.log10(255**2 / max(((pixels - source) ** 2).mean(), 1e-9))


def test_landmark(tmp_path):
    """Nested folders, ids with gaps; short side 384, smaller originals unchanged."""
    classes = [0, 500, 1000]
    pictures = draw_pictures(10, 450, 600) + draw_pictures(20, 200, 300)[10:]
    make_input("landmark-2021", tmp_path / "in", pictures)
    work = tmp_path / "work"
    features = {"image": TEXT, "label": INT, "height": INT, "width": INT}
    changes = {
        "INPUT_DIR": str(tmp_path / "in"),
        "SHARD_IMAGES": 6,
        "VALIDATION_SIZE": 0.2,
    }

    images, table, records, flat = run(
        "landmark-2021", work, "*.tfrecords", features, **changes
    )

    labels = json.loads(Path(work, "labels.json").read_text())
    assert labels["classes"] == classes
    name = re.compile(r"landmark-2021_PART_1_(train|validation)_batch_\d+\.tfrecords")
    assert all(name.fullmatch(file) for file in records)
    assert len(flat) == len(images) == 20
    for (_, row), record in zip(table.iterrows(), flat, strict=True):
        pixels = decode(record["image"])
        assert pixels.shape[:2] == (record["height"], record["width"])
        assert classes[record["label"]] == int(row["label_name"])
        if min(row["height"], row["width"]) > 384:
            assert min(pixels.shape[:2]) == 384
            assert psnr_of(pixels, row["path"]) > 30
        else:
            assert record["image"] == Path(row["path"]).read_bytes()


def test_cassava(tmp_path):
    """Stretched to height × width; 15 stratified files with counts in their names."""
    pictures = draw_pictures(48, 120, 160)
    make_input("cassava", tmp_path / "in", pictures[:45])
    submission = "image_id,label\n"
    for k, picture in enumerate(pictures[45:]):
        save_picture(picture, tmp_path / "in/test_images" / f"{k}.jpg")
        submission += f"{k}.jpg,4\n"
    (tmp_path / "in" / "sample_submission.csv").write_text(submission)
    features = {"image": TEXT, "target": INT, "image_name": TEXT}
    changes = {"INPUT_DIR": str(tmp_path / "in"), "IMAGE_SIZE": [64, 96]}

    *_, records, flat = run("cassava", tmp_path, "Id*.tfrec", features, **changes)

    assert sorted(records) == sorted(f"Id_df{i:02d}-3.tfrec" for i in range(15))
    for held in records.values():
        assert sorted(record["target"] for record in held) == [0, 1, 2]
    for record in flat:
        name = record["image_name"].decode()
        pixels = decode(record["image"])
        assert pixels.shape == (64, 96, 3)
        assert int(name[:4]) % 3 == record["target"]
        assert psnr_of(pixels, tmp_path / "in" / "train_images" / name) > 28
    del features["target"]
    test = read_plainly([tmp_path / "part-1/test/test-Id_df00-3.tfrec"], "", features)
    names = sorted(record["image_name"].decode() for record in test)
    assert names == ["0.jpg", "1.jpg", "2.jpg"]


def test_imagenet(tmp_path):
    """Split folders, a label map, GZIP, 256 × 256 from the middle."""
    make_input("imagenet", tmp_path / "in", draw_pictures(24, 280, 400))
    labels = {"a": 1, "b": 0, "c": 2}
    (tmp_path / "in" / "label_map.json").write_text(json.dumps(labels))
    features = {"label": INT, "image_raw": TEXT}
    changes = {"LABEL_MAP": "label_map.json", "INPUT_DIR": str(tmp_path / "in")}
    changes["SHARD_IMAGES"] = 6

    _, table, records, flat = run(
        "imagenet", tmp_path, "*.tfrecord", features, "GZIP", **changes
    )

    assert sorted(records) == [
        "test/test-0.tfrecord",
        "train/train-0.tfrecord",
        "train/train-1.tfrecord",
        "val/val-0.tfrecord",
    ]
    for (_, row), record in zip(table.iterrows(), flat, strict=True):
        pixels = decode(record["image_raw"])
        assert pixels.shape == (256, 256, 3)
        assert record["label"] == labels[row["label_name"]]
        assert psnr_of(pixels, row["path"], (60, 0, 340, 280)) > 30
    for file, held in records.items():
        assert {record["label"] for record in held} == {0, 1, 2}, file


def test_clouds(tmp_path):
    """Original bytes, unchanged codes, twenty files."""
    folder = tmp_path / "in"
    make_input("clouds", folder)
    codes = pd.read_csv(folder / "train.csv", keep_default_na=False, index_col=0)
    features = dict.fromkeys(["height", "width", "depth"], INT)
    features |= dict.fromkeys(["image_raw", "fish", "flower", "gravel", "sugar"], TEXT)

    *_, records, flat = run(
        "clouds", tmp_path, "*.tfrecords", features, INPUT_DIR=str(folder)
    )

    assert sorted(records) == [f"raw_train_images_{i:04d}.tfrecords" for i in range(20)]
    assert {len(held) for held in records.values()} == {3}
    images = (folder / "train_images").iterdir()
    name_of_bytes = {path.read_bytes(): path.name for path in images}
    found = set()
    for record in flat:
        name = name_of_bytes[record["image_raw"]]
        found.add(name)
        assert (record["height"], record["width"], record["depth"]) == (120, 160, 3)
        for label in ("Fish", "Flower", "Gravel", "Sugar"):
            code = codes["EncodedPixels"][f"{name}_{label}"]
            assert record[label.lower()].decode() == code
    assert len(found) == 60


@pytest.fixture(scope="module")
def petals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("petals")
    make_input("petals", folder, draw_pictures(48, 200, 260))
    return folder


def test_petals(tmp_path, petals):
    """192 × 192 from the middle, full chroma, one-hot labels; 16 mixed files."""
    features = {"image": TEXT, "class": INT, "label": TEXT}
    features |= {"size": tf.io.FixedLenFeature([2], tf.int64)}
    features |= {"one_hot_class": tf.io.VarLenFeature(tf.float32)}

    _, table, records, flat = run(
        "petals", tmp_path, "*.tfrec", features, INPUT_DIR=str(petals)
    )

    assert sorted(records) == [f"flowers{i:02d}-3.tfrec" for i in range(16)]
    for (_, row), record in zip(table.iterrows(), flat, strict=True):
        assert record["label"].decode() == row["label_name"]
        assert record["label"].decode() == "abc"[record["class"]]
        assert record["one_hot_class"].tolist() == np.eye(3)[record["class"]].tolist()
        assert record["size"].tolist() == [192, 192]
        pixels = decode(record["image"])
        assert pixels.shape == (192, 192, 3)
        assert psnr_of(pixels, row["path"], (30, 0, 230, 200)) > 33
        # Full chroma: the three components have equal sampling factors.
        components = Image.open(io.BytesIO(record["image"])).layer
        assert {component[1:3] for component in components} == {(1, 1)}


def test_petals_from_a_bucket_are_those_from_disk(tmp_path, petals):
    """gs:// through TensorFlow's client gives the same files, byte for byte.

    Hidden files and those of the system are left out in both.
    """
    photos = shutil.copytree(petals, tmp_path / "photos")
    for name in (".ipynb_checkpoints", "__MACOSX"):
        shutil.copytree(petals / "a", photos / name)
    run_chain("petals", str(tmp_path / "disk"), INPUT_DIR=str(photos))
    code = (
        "from support.chain import run_chain\n"
        f"run_chain('petals', {str(tmp_path / 'bucket')!r}, INPUT_DIR='gs://petals')\n"
    )
    with serve_bucket(tmp_path) as gcs:
        gcs.seed_objects("petals", photos)
        done = run_code(code, tmp_path, timeout=200, env=gcs.env)

    assert done.code == 0, done.output[-3000:]
    disk, bucket = (
        {path.name: path.read_bytes() for path in tmp_path.glob(pattern)}
        for pattern in ("disk/part-1/*.tfrec", "bucket/part-1/*.tfrec")
    )
    assert len(disk) == 16
    assert bucket == disk


def test_petals_tfrecords(tmp_path):
    """Published shards in new folds: the same bytes and classes, no duplicate."""
    pictures = draw_pictures(60, 96, 96)
    pictures[57] = pictures[0]  # of val and of train
    make_input("petals-tfrecords", tmp_path / "in", pictures)
    features = {"image": TEXT, "class": INT, "id": TEXT}
    changes = {"INPUT_DIR": str(tmp_path / "in"), "N_SHARDS": 6}

    rows, table, _, flat = run(
        "petals-tfrecords", tmp_path, "*.tfrec", features, **changes
    )

    assert len(rows) == 60
    assert len(flat) == 59
    assert json.loads((tmp_path / "labels.json").read_text())["classes"] == [40, 41, 42]
    for record in flat:
        k = int(record["id"])
        assert record["image"] == saved(pictures[k])
        assert record["class"] == k % 3
    assert set(table["split"]) == {"train", "validation"}
    assert set(table["fold"][table["split"] == "train"]) == set(range(5))


def test_flowers(tmp_path):
    """Original bytes of JPEG and PNG, 30 % for validation, labels.txt, no conflict."""
    folder = tmp_path / "in"
    work = tmp_path / "work"
    make_input("flowers", folder)
    for path in sorted(folder.glob("*/*5.jpg")):
        Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    shutil.copy(folder / "b/1.jpg", folder / "c/also.jpg")
    (folder / "c" / "notes.txt").write_text("not an image")
    features = {
        "image/encoded": TEXT,
        "image/format": TEXT,
        "image/class/label": INT,
        "image/height": INT,
        "image/width": INT,
    }
    changes = {"INPUT_DIR": str(folder), "N_SHARDS": 5}

    images, _, records, flat = run("flowers", work, "*.tfrecord", features, **changes)

    assert len(images) == 61
    assert (work / "part-1/labels.txt").read_text() == "0:a\n1:b\n2:c\n"
    totals = {"train": 0, "validation": 0}
    for file, held in records.items():
        split, index, total = re.fullmatch(
            r"flowers_(train|validation)_(\d{5})-of-(\d{5})\.tfrecord", file
        ).groups()
        assert int(index) < int(total) == sum(split in name for name in records)
        totals[split] += len(held)
    assert sum(totals.values()) == 59
    assert abs(totals["validation"] - 0.3 * 59) <= 1.5
    path_of_bytes = {path.read_bytes(): path for path in folder.rglob("*.*g")}
    for record in flat:
        path = path_of_bytes[record["image/encoded"]]
        assert path.suffix == "." + record["image/format"].decode()
        assert path.parent.name == "abc"[record["image/class/label"]]
        assert (record["image/height"], record["image/width"]) == (120, 160)
