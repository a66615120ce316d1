"""Batches: every image once in validation, endless and shuffled in training."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from support.readers import make_example, make_record, save_noise, write_part

from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.read.batches import (
    choose_fold,
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


def find_means(images):
    """Return the mean of the pixels of each image."""
    return images.mean(axis=(1, 2, 3))


@pytest.mark.parametrize("batch_size", [1, 16, 53, 64])
def test_validation_yields_every_image_once_in_one_order(shards, batch_size):
    """For any batch size no image is lost or repeated, and every batch is full."""
    batches = read_batches(shards, batch_size=batch_size, **SMALL)

    for images, labels, mask in batches.as_numpy_iterator():
        is_image = mask == 1
        # The label of each record is the grey level of its pixels; padding is black.
        grey_levels = find_means(images[is_image])
        assert grey_levels == pytest.approx(labels[is_image], abs=1)
        assert not images[~is_image].any()

    all_labels = list_labels(batches)
    assert sorted(all_labels) == list(range(53))
    assert all_labels == list_labels(batches)
    n_steps = count_steps(shards, batch_size, training=False)
    assert batches.cardinality() == n_steps
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)


def test_training_is_endless_shuffled_and_fair(shards):
    """Each pass contains every image once, in a new order, and batches are full."""
    batches = read_batches(shards, batch_size=53, training=True, seed=1, **SMALL)

    passes = list(batches.take(6).as_numpy_iterator())
    first, second, *others = [labels for _, labels in passes]

    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    # XLA compiles a step once, since all batches have one shape.
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
    assert not np.array_equal(first, np.sort(first))
    assert not np.array_equal(first, second)
    # The buffer contains all records, so that passes overlap, but only a little.
    all_labels = np.concatenate([first, second, *others])
    assert set(all_labels) == set(range(53))
    assert count_steps(shards, 8, training=True) == 53 // 8


def test_flips_mirror_half_of_the_images_together_with_their_masks(tmp_path):
    """The mask of the dark half of an image stays on that half."""
    halves = np.zeros((32, 32, 3), np.uint8)
    halves[:, 16:] = 255
    left_half = halves[..., 0] == 0
    png = tf.io.encode_png(halves)
    record = make_example(image=png.numpy(), dark=encode_mask(left_half).encode())
    fields = (Field("image", "image"), Field("dark", "Dark"))
    schema = RecordSchema(fields, "masks", 1, ("Dark",))
    part = write_part(tmp_path, {"a.tfrec": (0, [record] * 64)}, schema=schema)
    shards = find_shards(part)

    batches = read_batches(
        shards,
        batch_size=64,
        training=True,
        flip=True,
        **SMALL,
    )
    images, masks = next(batches.as_numpy_iterator())

    assert masks.shape == (64, 16, 16, 1)
    is_dark = images[..., 0] < 128
    assert np.array_equal(masks[..., 0] == 1, is_dark)
    is_original = is_dark[:, 0, 0]
    assert 10 < is_original.sum() < 54


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


def test_the_window_equals_a_crop_by_pillow():
    """A centre crop of a JPEG equals Pillow's crop of the whole image, also resized."""
    data = save_noise(3, 90, 60)
    size = (30, 30)

    pixels, window, shape = decode_window(tf.constant(data), size, training=False)
    fitted = fit_to_size(pixels, size)

    assert window.numpy().tolist() == [0, 15, 60, 60]
    assert shape.numpy().tolist() == [60, 90]
    image = Image.open(io.BytesIO(data))
    crop = image.crop((15, 0, 75, 60))
    resized = crop.resize(size, Image.Resampling.BILINEAR)
    assert mean_difference(pixels, crop) < 2
    assert mean_difference(fitted, resized) < 2


def mean_difference(pixels, image):
    levels = pixels.numpy().astype(int)
    return np.abs(levels - np.asarray(image)).mean()


@pytest.mark.parametrize("format_", ["PNG", "BMP", "GIF"])
def test_other_formats_are_cut_like_jpegs(format_):
    """An image decoded whole has the same window."""
    windows = []
    for encoded in (save_noise(5, 90, 60), save_noise(5, 90, 60, format_)):
        image = tf.constant(encoded)
        pixels, window, _ = decode_window(image, (20, 30), training=False)
        windows.append(window.numpy().tolist())

    assert windows[0] == windows[1]
    assert list(pixels.shape[:2]) == windows[0][2:]
