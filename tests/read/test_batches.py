"""Batches: every image once in validation, endless and shuffled in training."""

import io

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.readers import make_example, make_record, save_noise, write_part
from support.scenes import save_pixels

from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.read.batches import (
    _count_shuffled,
    choose_fold,
    choose_window,
    count_steps,
    decode_window,
    fit_to_size,
    read_batches,
)
from kaggle_tfr.read.records import Records
from kaggle_tfr.schema import Field, RecordSchema
from kaggle_tfr.shards import find_shards

SMALL = {"image_size": 16}
FOUR_TRAIN = ["train"] * 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """53 records numbered 0 to 52, in five shards of five folds."""
    files = {}
    groups = np.array_split(np.arange(53), 5)
    for fold, numbers in enumerate(groups):
        records = [make_record(int(number)) for number in numbers]
        files[f"s-f{fold}-000-{len(numbers)}.tfrec"] = (fold, records)
    folder = tmp_path_factory.mktemp("part")
    return find_shards(write_part(folder, files))


def list_labels(batches):
    """Return the labels that are not padding, in their order."""
    labels_of_images = []
    for _, labels, mask in batches.as_numpy_iterator():
        labels_of_images += labels[mask == 1].tolist()
    return labels_of_images


@pytest.mark.parametrize("batch_size", [1, 16, 53, 64])
def test_validation_yields_every_image_once_in_one_order(shards, batch_size):
    """For any batch size no image is lost or repeated, and every batch is full."""
    batches = read_batches(shards, batch_size=batch_size, **SMALL)

    for images, labels, mask in batches.as_numpy_iterator():
        is_image = mask == 1
        # The label of each record is the grey level of its pixels; padding is black.
        grey_levels = images[is_image].mean(axis=(1, 2, 3))
        assert grey_levels == pytest.approx(labels[is_image], abs=1)
        assert not images[~is_image].any()

    all_labels = list_labels(batches)
    assert sorted(all_labels) == list(range(53))
    assert all_labels == list_labels(batches)
    n_steps = count_steps(shards, batch_size, training=False)
    assert batches.cardinality() == n_steps == -(-53 // batch_size)
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)


def test_training_is_endless_shuffled_and_fair(shards):
    """Each pass contains every image once, in a new order, and batches are full."""
    batches = read_batches(shards, batch_size=53, training=True, seed=1, **SMALL)

    passes = [labels for _, labels in batches.take(6).as_numpy_iterator()]

    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    # XLA compiles a step once, since all batches have one shape.
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
    assert not np.array_equal(passes[0], np.sort(passes[0]))
    assert not np.array_equal(passes[0], passes[1])
    # The buffer contains all records, so that passes overlap, but only a little.
    assert set(np.concatenate(passes)) == set(range(53))
    assert count_steps(shards, 8, training=True) == 53 // 8


def test_flips_mirror_half_of_the_images_together_with_their_masks(tmp_path):
    """The mask of the dark half of an image stays on that half."""
    halves = np.zeros((32, 32, 3), np.uint8)
    halves[:, 16:] = 255
    mask = encode_mask(halves[..., 0] == 0).encode()
    record = make_example(image=save_pixels(halves, "PNG"), dark=mask)
    fields = (Field("image", "image"), Field("dark", "Dark"))
    schema = RecordSchema(fields, "masks", 1, ("Dark",))
    part = write_part(tmp_path, {"a.tfrec": (0, [record] * 64)}, schema=schema)

    batches = read_batches(find_shards(part), 16, 64, training=True, flip=True)

    images, masks = next(batches.as_numpy_iterator())
    assert masks.shape == (64, 16, 16, 1)
    is_dark = images[..., 0] < 128
    assert np.array_equal(masks[..., 0] == 1, is_dark)
    is_original = is_dark[:, 0, 0]
    assert 10 < is_original.sum() < 54


def test_ids_are_strings_also_of_records_with_numbers(tmp_path):
    """SCHEMA can make them int64."""
    record = make_example(image=save_noise(1, 16, 16), number=12)
    fields = (Field("image", "image"), Field("number", "image_id", "int64"))
    schema = RecordSchema(fields)
    part = write_part(tmp_path, {"a.tfrec": (0, [record])}, schema=schema)

    [(*_, ids)] = read_batches(find_shards(part), batch_size=2, ids=True, **SMALL)

    assert ids.numpy().tolist() == [b"12", b""]


def test_images_of_further_sources_always_train(shards):
    """Fold −1 trains for each fold, and cannot be validated itself."""
    table = shards.assign(fold=[0, 1, 2, -1, -1])

    training, validation = choose_fold(table, 1)

    assert training["fold"].tolist() == [0, 2, -1, -1]
    assert validation["fold"].tolist() == [1]
    with pytest.raises(ValueError, match=r"FOLD is -1.*\[0, 1, 2\]"):
        choose_fold(table, -1)


@pytest.mark.parametrize("held_out", ["validation", "dev"])
def test_without_folds_the_validation_split_is_chosen(shards, held_out):
    """Splits need no fold number; an empty choice is an error, not an empty epoch."""
    table = shards.assign(fold=0, split=[*FOUR_TRAIN, held_out])

    training, validation = choose_fold(table)

    assert [len(training), len(validation)] == [4, 1]
    with pytest.raises(ValueError, match="VALIDATION_SIZE"):
        choose_fold(table.head(4))
    with pytest.raises(ValueError, match="no shard to read"):
        read_batches(table.head(0), batch_size=4, **SMALL)


def test_unlabelled_test_shards_among_labelled_ones_are_named(shards):
    """The error names the splits and how to choose one."""
    labelled = shards["schema"][0]
    unlabelled = RecordSchema(labelled.fields[:1])
    mixed = shards.assign(
        split=[*FOUR_TRAIN, "test"],
        schema=[*[labelled] * 4, unlabelled],
    )

    message = "different schemas.*: train', .*: test'.*choose_fold"
    with pytest.raises(ValueError, match=message):
        read_batches(mixed, batch_size=4, **SMALL)
    with pytest.raises(ValueError, match=message):
        Records(mixed)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF"])
@pytest.mark.parametrize(
    ("size", "expected"), [((30, 30), [0, 15, 60, 60]), ((20, 40), [7, 0, 45, 90])]
)
def test_the_window_equals_a_crop_by_pillow(kind, size, expected):
    """It is the largest of this shape in the centre; also when it is resized."""
    data = save_noise(3, 90, 60, kind)

    pixels, window, shape = decode_window(tf.constant(data), size, training=False)

    assert window.numpy().tolist() == expected
    assert shape.numpy().tolist() == [60, 90]
    top, left, height, width = expected
    image = Image.open(io.BytesIO(data)).convert("RGB")
    crop = image.crop((left, top, left + width, top + height))
    resized = crop.resize(size[::-1], Image.Resampling.BILINEAR)
    for found, reference in ((pixels, crop), (fit_to_size(pixels, size), resized)):
        levels = found.numpy().astype(int)
        assert np.abs(levels - np.asarray(reference)).mean() < 2


def test_a_window_for_training_is_anywhere():
    """Both edges of the image are possible places."""
    shape = tf.constant([4, 7])
    windows = [choose_window(shape, (8, 8), training=True) for _ in range(99)]
    assert {int(window[1]) for window in windows} == {0, 1, 2, 3}


def test_the_records_that_are_shuffled_fit_into_memory():
    """256 MiB, or 8,192 records."""
    for n_bytes, n_shuffled in ((1 << 20, 256), (1 << 10, 8192)):
        shards = pd.DataFrame({"count": [9000, 1000]})
        shards["bytes"] = n_bytes * shards["count"]
        assert _count_shuffled(shards) == n_shuffled
