"""Other people's readers and Kaggle's own client take the parts as they are."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.plans import digests, make_images, plan_images, read_plainly

from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.sidecars import describe_dataset
from kaggle_tfr.write.verify import verify_parts


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("interop") / "images", 24)


@pytest.fixture(scope="module")
def part(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    plan_images(table, folder)
    write_parts(str(folder))
    return folder / "part-1"


def test_the_index_alone_finds_every_record(part):
    """A reader that seeks by the .idx, as DALI's and torch's do, gets what TensorFlow reads."""
    from tensorflow.train import Example

    for shard in sorted(part.glob("*.tfrec")):
        data, found = shard.read_bytes(), []
        lines = (part / "index" / f"{shard.name}.idx").read_text().splitlines()
        for offset, length in (map(int, line.split()) for line in lines):
            features = Example.FromString(
                data[offset + 12 : offset + length - 4]
            ).features.feature
            image, label = features["image"].bytes_list, features["label"].int64_list
            found.append((image.value[0], label.value[0]))
        assert found == [(r["image"], r["label"]) for r in read_plainly([shard])]
        assert offset + length == len(data)


@pytest.mark.parametrize("schema", ["default", "petals", "flowers", "cassava"])
def test_tensorflow_datasets_reads_the_folder(table, tmp_path, schema):
    """tfds.builder_from_directory gives the records' own images and labels, for any schema."""
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="the extra tfds is not installed"
    )
    import tensorflow as tf

    plan, _ = plan_images(table, tmp_path, schema=schema)
    shards = write_parts(str(tmp_path), metadata_for=["tfds"])
    image, (label,), ours = plan.schema.image_key, plan.schema.label_keys, []
    files = [str(tmp_path / "part-1" / file) for file in shards["file"]]
    for data in tf.data.TFRecordDataset(files).as_numpy_iterator():
        features = tf.train.Example.FromString(data).features.feature
        pixels = tf.io.decode_image(features[image].bytes_list.value[0], 3).numpy()
        ours.append((pixels, features[label].int64_list.value[0]))

    builder = tfds.builder_from_directory(str(tmp_path / "part-1"))
    theirs = list(builder.as_dataset(split="train").as_numpy_iterator())

    assert builder.info.splits["train"].num_examples == len(ours) == len(theirs)
    assert builder.info.features[label].names == ["ash", "birch", "Čedar, red"]
    for (pixels, number), example in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(example[image], pixels)
        assert example[label] == number
    assert verify_parts(str(tmp_path / "part-1")).faults.empty


def test_tensorflow_datasets_reads_labelled_test_images(table, tmp_path):
    """Their shards are in the part's folder test/, and a split of their own."""
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="the extra tfds is not installed"
    )
    table = table.assign(split=["test"] * 6 + ["train"] * (len(table) - 6))
    table["fold"] = table["fold"].where(table["split"] == "train", -1)
    plan_images(table, tmp_path)
    write_parts(str(tmp_path), metadata_for=["tfds"])

    builder = tfds.builder_from_directory(str(tmp_path / "part-1"))

    assert len(list(builder.as_dataset(split="test"))) == 6
    assert len(list(builder.as_dataset(split="train"))) == len(table) - 6


def test_tfds_names_change_no_byte_of_the_shards(table, part, tmp_path):
    """METADATA = ["tfds"] renames the files and adds two; the records are the same.

    TFDS reads no packed records: said before anything is written.
    """
    plan_images(table, tmp_path, compression="GZIP")
    with pytest.raises(ValueError, match='TFDS reads no COMPRESSION = "GZIP"'):
        write_parts(str(tmp_path), metadata_for=["tfds"])
    assert not (tmp_path / "part-1").exists()
    plan_images(table, tmp_path)
    write_parts(str(tmp_path), metadata_for=["tfds"])
    ours = {v for k, v in digests(part).items() if k.endswith(".tfrec")}
    found = digests(tmp_path / "part-1").items()
    assert {
        v for k, v in found if ".tfrecord-" in k and not k.startswith("index")
    } == ours
    with pytest.raises(ValueError, match=r"SHARD_NAME.*OVERWRITE"):
        write_parts(str(tmp_path))
    write_parts(str(tmp_path), overwrite=True)
    assert digests(tmp_path / "part-1") == digests(part)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("x", 1),
        ("Čassava läaves", 1),
        ("日本", 12),
        ("a very long name of a dataset, " * 4, 3),
    ],
)
def test_titles_and_slugs_follow_kaggle_s_rules(part, name, parts):
    """6 to 50 characters for title and slug, 20 to 80 for the subtitle, no licence of our own."""
    plan = read_plan(str(part))
    plan = replace(plan, labels=replace(plan.labels, name=name), n_parts=parts)
    found = describe_dataset(plan, parts, pd.read_csv(part / "shards.csv"))
    assert re.fullmatch(r"[a-z0-9-]{6,50}", found["id"].split("/")[1])
    assert 6 <= len(found["title"]) <= 50
    assert 20 <= len(found["subtitle"]) <= 80
    assert found["licenses"] == []
    assert "ash, birch, Čedar, red" in found["description"]


def test_the_description_tells_counts_and_recipe(part):
    """Title and text are filled from the plan: classes, counts, size and settings."""
    text = json.loads((part / "dataset-metadata.json").read_text())["description"]
    assert "24 images in 6 TFRecord shards" in text
    assert "| train | 0 | 2 | 8 |" in text
    assert "short_side (32, 32), JPEG quality 90" in text
    assert '"seed": 0' in text
    assert "the folds were not checked" in text


def test_the_description_claims_what_was_checked(part):
    """By which radius, with which second look, and the numbers that the check has found."""
    plan, shards = read_plan(str(part)), pd.read_csv(part / "shards.csv")
    checks = {
        "max_bits": 12,
        "leaks": "report",
        "second_look": False,
    }
    checks |= {"candidate_bits": 60, "images": 24_000, "clusters_across_folds": 0}
    text = describe_dataset(replace(plan, checks=checks), 1, shards)["description"]
    assert "pictures within 12 of 256 bits of four perceptual hashes." in text
    assert "| images | 24,000 |\n| clusters across folds | 0 |" in text
    assert "irrored" not in text
    checks |= {"second_look": True, "mirrored": True}
    text = describe_dataset(replace(plan, checks=checks), 1, shards)["description"]
    assert "or 60 where a geometric verification has confirmed it" in text
    assert (
        "Mirrored copies, and copies rotated by right angles, were searched for too."
        in text
    )
    assert "| mirrored |" not in text


def test_a_licence_goes_into_finished_parts_too(part, tmp_path):
    """Written last, or changed later: the next run of 04 sets it, and leaves the rest alone."""
    part = Path(shutil.copytree(part.parent, tmp_path / "work"), "part-1")
    before = digests(part)
    for name in ("CC-BY-4.0", "", "PDDL"):
        write_parts(str(part.parent), license_name=name)
        values = json.loads((part / "dataset-metadata.json").read_text())
        assert values["licenses"] == [{"name": name or "CC-BY-4.0"}]
    after = digests(part)
    assert {name for name in before if before[name] != after[name]} == {
        "dataset-metadata.json"
    }
