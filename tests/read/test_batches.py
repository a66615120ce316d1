"""Batches from shards: every image once in validation, endless and mixed in training."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.readers import (
    make_example,
    make_record,
    save_noise,
    write_part,
    write_shard,
)

from kaggle_tfr.images.masks import decode_mask, encode_mask, sample_mask
from kaggle_tfr.read.batches import (
    choose_fold,
    choose_window,
    count_steps,
    decode_window,
    fit_to_size,
    read_batches,
    read_images,
)
from kaggle_tfr.records import Records
from kaggle_tfr.schema import RecordSchema, load_schema
from kaggle_tfr.shards import find_shards

SMALL = {"image_size": 16}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """53 records numbered 0 to 52, in five shards of five folds."""
    files = {
        f"s-f{fold}-000-{len(own)}.tfrec": (fold, [make_record(int(n)) for n in own])
        for fold, own in enumerate(np.array_split(np.arange(53), 5))
    }
    return find_shards(write_part(tmp_path_factory.mktemp("part"), files))


def numbers_in(batches):
    """The labels that the mask keeps, in their order."""
    kept = [labels[mask == 1] for _, labels, mask in batches.as_numpy_iterator()]
    return np.concatenate(kept).tolist()


@pytest.mark.parametrize("batch_size", [1, 16, 53, 64])
def test_validation_yields_every_image_once_in_one_order(shards, batch_size):
    """For any batch size no image is lost or doubled, and every batch is full."""
    batches, numbers = read_batches(shards, batch_size=batch_size, **SMALL), []

    for images, labels, mask in batches.as_numpy_iterator():
        kept = mask == 1
        numbers += labels[kept].tolist()
        # The grey level that each record's label tells is the one in its pixels; padding is black.
        assert np.abs(images[kept].mean(axis=(1, 2, 3)) - labels[kept]).max() <= 1
        assert images.dtype == np.uint8
        assert (images[~kept] == 0).all()

    assert sorted(numbers) == list(range(53))
    assert numbers == numbers_in(batches)
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
    assert batches.cardinality() == count_steps(shards, batch_size, training=False)


def test_decoding_takes_as_many_threads_as_the_cores_that_a_container_may_use(root):
    """Those of the machine would be in each other's way; `session.count_cores` knows the quota."""
    code = "from kaggle_tfr import session\nsession.count_cores = lambda: 3\n"
    code += "from kaggle_tfr.read import batches, display\nprint(batches.CORES, display.CORES)"
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3 3\n"


def test_training_is_endless_shuffled_and_fair(shards):
    """Each pass takes every image once in another order, and batches are always full."""
    batches = read_batches(shards, batch_size=53, training=True, seed=1, **SMALL)

    labels = [labels for _, labels in batches.take(6).as_numpy_iterator()]

    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert not np.array_equal(labels[0], np.sort(labels[0]))
    assert not np.array_equal(labels[0], labels[1])
    # The buffer holds all records, so a pass may run into the next, but never by much.
    assert set(np.concatenate(labels).tolist()) == set(range(53))
    assert count_steps(shards, 8, training=True) == 53 // 8


def test_options_change_what_a_batch_holds(shards):
    """One-hot labels, extra features and float32 pixels, as asked for; a misspelt one is named."""
    choices = {
        "one_hot": 60,
        "mean_std": ((0.5,) * 3, (0.25,) * 3),
        "extra": ["height"],
    }

    batches = read_batches(shards, batch_size=4, **SMALL, **choices)
    images, labels, _, features = next(batches.as_numpy_iterator())

    assert labels.shape == (4, 60)
    assert images.dtype == np.float32
    levels = labels.argmax(axis=1) / 255
    assert np.allclose(images.mean(axis=(1, 2, 3)), (levels - 0.5) / 0.25, atol=0.03)
    assert features["height"].tolist() == [32] * 4
    with pytest.raises(ValueError, match='Did you mean "height"'):
        read_batches(shards, batch_size=4, extra=["heigth"], **SMALL)
    with pytest.raises(ValueError, match=r"crop is 'middle'.*random, center"):
        read_batches(shards, batch_size=4, crop="middle", **SMALL)


def test_flips_turn_half_of_the_pictures_and_their_masks(tmp_path):
    """A picture dark on its left, as its mask is, comes either way round, always together."""
    halves = np.zeros((32, 32, 3), np.uint8)
    halves[:, 16:] = 255
    features = {"image": tf.io.encode_png(halves).numpy(), "height": 32, "width": 32}
    record = make_example(**features, dark=encode_mask(halves[..., 0] == 0).encode())
    write_shard(tmp_path / "a.tfrec", [record] * 64)
    schema = load_schema({"image": "image", "dark": {"from": "Dark", "type": "bytes"}})

    shards = find_shards(tmp_path, schema=schema)
    batches = read_batches(shards, batch_size=64, training=True, flip=True, **SMALL)
    images, masks = next(batches.as_numpy_iterator())

    assert masks.shape == (64, 16, 16, 1)
    assert np.array_equal(masks[..., 0] == 1, images[..., 0] < 128)
    assert 10 < (images[:, 0, 0, 0] < 128).sum() < 54


def test_whole_images_come_as_they_were_written(shards):
    """read_images decodes each record whole, in order, or shuffled by a seed."""
    in_order, mixed = (
        list(read_images(shards, seed).as_numpy_iterator()) for seed in (None, 3)
    )

    assert in_order[0]["image"].shape == (32, 48, 3)
    for records in (in_order, mixed):
        assert sorted(int(record["label"]) for record in records) == list(range(53))
    assert [r["label"] for r in mixed] != [r["label"] for r in in_order]


def test_a_fold_is_chosen_by_its_number(shards):
    """Validation is the fold, training all others; an error about a missing one lists them."""
    assert [set(chosen["fold"]) for chosen in choose_fold(shards, 3)] == [
        {0, 1, 2, 4},
        {3},
    ]
    with pytest.raises(ValueError, match=r"folds \[0, 1, 2, 3, 4\]"):
        choose_fold(shards, 7)


def test_images_of_further_sources_always_train(shards):
    """Beside folds, the fold −1 is of no turn: it trains for each, and FOLD = -1 is refused."""
    table = shards.assign(fold=[0, 1, 2, -1, -1])

    for fold in range(3):
        training, validation = choose_fold(table, fold)
        assert sorted(training["fold"]) == sorted([-1, -1, *({0, 1, 2} - {fold})])
        assert validation["fold"].tolist() == [fold]
    with pytest.raises(
        ValueError, match=r"Fold -1 cannot be validated.*folds \[0, 1, 2\]"
    ):
        choose_fold(table, -1)
    table = shards.assign(fold=[0, 0, -1, -1, -1], split=["train"] * 4 + ["validation"])
    assert [len(chosen) for chosen in choose_fold(table, 0)] == [4, 1]


@pytest.mark.parametrize("held_out", ["validation", "val", "dev"])
def test_without_folds_the_validation_split_is_chosen(shards, held_out):
    """Train and validation need no fold number; nothing chosen would be an empty epoch."""
    table = shards.assign(fold=0, split=["train"] * 4 + [held_out])

    assert [len(chosen) for chosen in choose_fold(table)] == [4, 1]
    with pytest.raises(ValueError, match="VALIDATION_SIZE"):
        choose_fold(table.iloc[:4])
    with pytest.raises(ValueError, match="no record to read"):
        read_batches(table[table["split"] == "test"], batch_size=4, **SMALL)


def test_shards_of_several_schemas_are_refused(shards):
    """One reader parses one schema; a folder of each is named."""
    schemas = [*shards["schema"][:4], load_schema("cassava")]
    table = shards.assign(schema=schemas, folder=["a"] * 4 + ["b"])

    with pytest.raises(ValueError, match="'a' and 'b' have different schemas"):
        read_batches(table, batch_size=4, **SMALL)


def test_unlabelled_test_shards_among_labelled_ones_are_named(shards):
    """The error names the splits and says how to choose one; either split alone is read."""
    unlabelled = RecordSchema(shards["schema"].iloc[0].fields[:1])
    schemas = [*shards["schema"][:4], unlabelled]
    mixed = shards.assign(split=["train"] * 4 + ["test"], schema=schemas)

    wanted = (
        r"of the splits 'train' and 'test'.*choose_fold.*shards\['split'\] == 'test'"
    )
    with pytest.raises(ValueError, match=wanted):
        read_batches(mixed, batch_size=4, **SMALL)
    with pytest.raises(ValueError, match=wanted):
        Records(mixed)
    for split in ("train", "test"):
        read_batches(mixed[mixed["split"] == split], batch_size=4, **SMALL)


def test_the_window_is_what_pillow_cuts_out():
    """A centre crop from a JPEG is Pillow's crop of the whole picture, resized like Pillow's."""
    data = save_noise(3, 90, 60)

    pixels, window, shape = decode_window(tf.constant(data), (30, 30), "center")
    fitted = fit_to_size(pixels, (30, 30)).numpy()

    assert window.numpy().tolist() == [0, 15, 60, 60]
    assert shape.numpy().tolist() == [60, 90]
    crop = Image.open(io.BytesIO(data)).crop((15, 0, 75, 60))
    assert np.abs(pixels.numpy().astype(int) - np.asarray(crop)).mean() < 2
    expected = np.asarray(crop.resize((30, 30), Image.Resampling.BILINEAR))
    assert np.abs(fitted.astype(int) - expected).mean() < 2


@given(
    *[st.integers(1, 4000)] * 2,
    *[st.integers(1, 600)] * 2,
    st.sampled_from(["random", "center"]),
)
@settings(max_examples=100)
def test_a_window_is_the_largest_of_its_proportions(height, width, rows, columns, crop):
    """It lies inside the picture, touches two of its sides, and has the target's proportions."""
    shape = tf.constant([height, width])
    top, left, tall, wide = choose_window(shape, (rows, columns), crop).numpy().tolist()

    assert 0 <= top <= top + tall <= height
    assert 0 <= left <= left + wide <= width
    assert tall == height or wide == width
    assert min(tall, wide) >= 1
    assert tall * columns - wide * rows < max(rows, columns)
    assert wide * rows - tall * columns < max(rows, columns) or 1 in (tall, wide)


def test_random_windows_reach_both_ends():
    """Every place a window can have is taken, the first and the last one as well."""
    choose = tf.function(
        lambda: choose_window(tf.constant([10, 14]), (10, 10), "random")[:2]
    )

    assert {tuple(choose().numpy().tolist()) for _ in range(200)} == {
        (0, n) for n in range(5)
    }


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "JPEG"])
def test_other_formats_are_cut_like_jpegs(kind):
    """What is decoded whole is cut to the same window; a known JPEG gives the same pixels."""
    expected = decode_window(tf.constant(save_noise(5, 90, 60)), (20, 30), "center")

    data = tf.constant(save_noise(5, 90, 60, kind))
    found = decode_window(data, (20, 30), "center", jpeg=kind == "JPEG")

    assert found[1].numpy().tolist() == expected[1].numpy().tolist()
    assert found[0].shape[:2] == tuple(found[1].numpy()[2:])
    assert kind != "JPEG" or np.array_equal(found[0], expected[0])


@pytest.mark.parametrize("crop", ["random", "center"])
def test_masks_are_cut_like_their_picture(crop):
    """A mask's pixels come from the picture's window, as cv2 or any nearest rule takes them."""
    mask = np.random.default_rng(0).random((20, 30)) < 0.3
    window = choose_window(tf.constant([20, 30]), (20, 20), crop)
    top, left, height, width = window.numpy()

    found = sample_mask(tf.constant(encode_mask(mask)), 20, window, (10, 10)).numpy()
    whole = sample_mask(tf.constant("3 4 11 2 40 9"), 7, [0, 0, 7, 9], (7, 9)).numpy()

    assert np.array_equal(
        found, mask[top : top + height, left : left + width][1::2, 1::2]
    )
    assert np.array_equal(whole, decode_mask("3 4 11 2 40 9", 7, 9))
