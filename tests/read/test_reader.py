"""Batches from shards: every image once in validation, endless and mixed in training."""

import io
import json
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.readers import (
    make_example,
    make_picture,
    make_record,
    save_noise,
    write_part,
    write_shard,
)

from kaggle_tfr.images.masks import decode_mask, encode_mask
from kaggle_tfr.read.batches import (
    choose_fold,
    choose_pipeline_shards,
    count_steps,
    read_batches,
    read_images,
)
from kaggle_tfr.read.decode import choose_window, decode_window, fit_to_size, sample_mask
from kaggle_tfr.schema import load_schema
from kaggle_tfr.shards import find_shards

SMALL = {"image_size": 16}


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A part folder: 53 records numbered 0 to 52, in five shards of five folds."""
    numbers = np.array_split(np.arange(53), 5)
    shards = {
        f"s-f{fold}-000-{len(own)}.tfrec": (fold, [make_record(int(n)) for n in own])
        for fold, own in enumerate(numbers)
    }
    return write_part(tmp_path_factory.mktemp("part"), shards)


@pytest.fixture(scope="module")
def shards(part):
    return find_shards(part)


def numbers_in(batches):
    """The labels that the mask keeps, in their order."""
    return [
        int(label) for _, labels, mask in batches.as_numpy_iterator() for label in labels[mask == 1]
    ]


def context(pipelines, index, replicas=None):
    return tf.distribute.InputContext(pipelines, index, replicas or pipelines)


@pytest.mark.parametrize("batch_size", range(1, 41))
def test_validation_yields_every_image_once(shards, batch_size):
    """
    For any batch size no image is lost or doubled, and every batch is full.
    """
    batches = read_batches(shards, batch_size=batch_size, **SMALL)

    numbers = numbers_in(batches)

    assert sorted(numbers) == list(range(53))
    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
    assert batches.cardinality() == count_steps(shards, batch_size, training=False)


def test_validation_keeps_one_order(shards):
    """
    Two passes over the same shards give the same batches, so predictions can be lined up.
    """
    batches = read_batches(shards, batch_size=8, **SMALL)

    assert numbers_in(batches) == numbers_in(batches)


@pytest.mark.parametrize("pipelines", [1, 2, 4])
@pytest.mark.parametrize("chosen", [slice(None), slice(0, 1), slice(0, 3)])
def test_input_pipelines_share_validation_without_gap_or_overlap(shards, pipelines, chosen):
    """
    1, 2 and 4 hosts read every image once between them, in equally many batches each.
    """
    some = shards.iloc[chosen]
    seen, steps = [], set()
    for index in range(pipelines):
        batches = read_batches(some, batch_size=4, context=context(pipelines, index), **SMALL)
        seen += numbers_in(batches)
        steps.add(int(batches.cardinality()))

    assert sorted(seen) == list(range(int(some["count"].sum())))
    assert len(steps) == 1


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    pipelines=st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_records_are_split_evenly(shards, counts, pipelines):
    """
    However the shards are filled, no pipeline has more than a quarter above its share.
    """
    table = shards.iloc[[0] * len(counts)].assign(count=counts, file=range(len(counts)))
    own = [choose_pipeline_shards(table, context(pipelines, index)) for index in range(pipelines)]

    assert sum(own[0].counts) == sum(counts)
    assert max(own[0].counts) <= max(1.25 * sum(counts) / pipelines, -(-sum(counts) // pipelines))
    if own[0].every is None:
        files = [file for one in own for file in one.shards["file"]]
        assert sorted(files) == list(range(len(counts)))


def test_replicas_of_a_host_get_equally_many_batches(shards):
    """
    With eight replicas on one host the number of batches is a multiple of eight.
    """
    batches = read_batches(shards, batch_size=4, context=context(1, 0, replicas=8), **SMALL)

    assert int(batches.cardinality()) == 16
    assert sorted(numbers_in(batches)) == list(range(53))


def test_training_is_endless_shuffled_and_fair(shards):
    """
    Each pass takes every image once in another order, and batches are always full.
    """
    batches = read_batches(shards, batch_size=53, training=True, seed=1, **SMALL)

    labels = [labels for _, labels in batches.take(6).as_numpy_iterator()]

    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert not np.array_equal(labels[0], np.sort(labels[0]))
    assert not np.array_equal(labels[0], labels[1])
    # The buffer holds all records, so a pass may run into the next, but never by much.
    seen = Counter(np.concatenate(labels).tolist())
    assert set(seen) == set(range(53))
    assert count_steps(shards, 8, training=True) == 53 // 8
    assert count_steps(shards, 8, training=True, context=context(2, 0)) == 2


def test_pictures_arrive_with_their_own_labels(shards):
    """
    The grey level that each record's label tells is the one in its pixels.
    """
    for images, labels, mask in read_batches(shards, batch_size=9, **SMALL).as_numpy_iterator():
        means = images[mask == 1].mean(axis=(1, 2, 3))
        assert np.abs(means - labels[mask == 1]).max() <= 1
        assert images.dtype == np.uint8
        assert (images[mask == 0] == 0).all()


def test_the_window_is_what_pillow_cuts_out():
    """
    A centre crop from a JPEG equals Pillow's crop of the whole picture, resized like Pillow's.
    """
    data = save_noise(3, 90, 60)
    whole = Image.open(io.BytesIO(data))

    pixels, window, shape = decode_window(tf.constant(data), (30, 30), "center")
    fitted = fit_to_size(pixels, (30, 30), "center").numpy()

    assert window.numpy().tolist() == [0, 15, 60, 60]
    assert shape.numpy().tolist() == [60, 90]
    crop = whole.crop((15, 0, 75, 60))
    assert np.abs(pixels.numpy().astype(int) - np.asarray(crop)).mean() < 2
    expected = np.asarray(crop.resize((30, 30), Image.Resampling.BILINEAR))
    assert np.abs(fitted.astype(int) - expected).mean() < 2


@given(
    height=st.integers(1, 4000),
    width=st.integers(1, 4000),
    size=st.tuples(st.integers(1, 600), st.integers(1, 600)),
    crop=st.sampled_from(["random", "center"]),
)
@settings(max_examples=150, deadline=None)
def test_a_window_is_the_largest_of_its_proportions(height, width, size, crop):
    """
    It lies inside the picture, touches two of its sides, and has the target's proportions.
    """
    shape = tf.constant([height, width])
    top, left, tall, wide = choose_window(shape, size, crop).numpy().tolist()

    assert 0 <= top <= top + tall <= height
    assert 0 <= left <= left + wide <= width
    assert tall == height or wide == width
    assert min(tall, wide) >= 1
    assert tall * size[1] - wide * size[0] < max(size)
    assert wide * size[0] - tall * size[1] < max(size) or 1 in (tall, wide)


def test_random_windows_reach_both_ends():
    """
    Every place a window can have is taken, the first and the last one as well.
    """
    places = tf.map_fn(
        lambda _: choose_window(tf.constant([10, 14]), (10, 10), "random"), tf.range(400)
    )

    assert set(places[:, 1].numpy().tolist()) == {0, 1, 2, 3, 4}
    assert set(places[:, 0].numpy().tolist()) == {0}


def test_a_whole_picture_is_padded_in_the_middle():
    """
    crop="pad" keeps all of the picture and its proportions, with black around it.
    """
    pixels, _, _ = decode_window(tf.constant(make_picture(200, 40, 20)), (16, 16), "pad")

    padded = fit_to_size(pixels, (16, 16), "pad").numpy()

    assert (padded[:4] == 0).all()
    assert (padded[-4:] == 0).all()
    assert np.abs(padded[4:12].astype(int) - 200).max() <= 1


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF"])
def test_other_formats_are_cut_like_jpegs(kind):
    """
    What cannot be decoded in part is decoded whole and cut to the same window.
    """
    _, expected, _ = decode_window(tf.constant(save_noise(5, 90, 60)), (20, 30), "center")

    pixels, window, _ = decode_window(tf.constant(save_noise(5, 90, 60, kind)), (20, 30), "center")

    assert window.numpy().tolist() == expected.numpy().tolist()
    assert pixels.shape[:2] == tuple(window.numpy()[2:])


def test_what_is_known_to_be_a_jpeg_is_not_asked():
    """
    The pixels and the window are the same.
    """
    data = tf.constant(save_noise(5, 90, 60))

    asked, known = (decode_window(data, (20, 30), "center", jpeg=known) for known in (False, True))

    for one, other in zip(asked, known, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ({"format": "JPEG", "resize": "short_side"}, True),
        ({"format": "JPEG", "resize": "none"}, False),
        ({"format": "PNG", "resize": "fill"}, False),
        ({}, False),
    ],
)
def test_the_plan_tells_whether_all_pictures_are_jpegs(tmp_path, image, known):
    """
    Only what was resized to JPEG is sure to be one: else originals may have kept their bytes.
    """
    write_part(tmp_path, {"s-f0-000-2.tfrec": (0, [make_record(n) for n in range(2)])})
    (tmp_path / "plan.json").write_text(json.dumps({"image": image}))

    shards = find_shards(tmp_path)

    assert shards["jpeg"].tolist() == [known]
    assert len(list(read_batches(shards, batch_size=2, **SMALL))) == 1


@pytest.mark.parametrize("crop", ["random", "center"])
def test_masks_are_cut_like_their_picture(crop):
    """
    A mask's pixels come from the picture's window, as cv2 or any nearest rule would take them.
    """
    rng = np.random.default_rng(0)
    mask = rng.random((20, 30)) < 0.3
    window = choose_window(tf.constant([20, 30]), (20, 20), crop)
    top, left, height, width = window.numpy()

    found = sample_mask(tf.constant(encode_mask(mask)), 20, window, (10, 10), crop).numpy()

    assert np.array_equal(found, mask[top : top + height, left : left + width][1::2, 1::2])


def test_a_padded_mask_lies_on_its_picture():
    """
    crop="pad" maps a full mask to just the rows of the picture, and an empty code to nothing.
    """
    window = tf.constant([0, 0, 20, 40])

    full = sample_mask(tf.constant("1 800"), 20, window, (16, 16), "pad").numpy()

    assert np.array_equal(full[4:12], np.ones((8, 16)))
    assert full.sum() == 8 * 16
    assert sample_mask(tf.constant(""), 20, window, (16, 16), "pad").numpy().sum() == 0


def test_options_change_what_a_batch_holds(shards):
    """
    One-hot labels, extra features and float32 pixels, as asked for.
    """
    choices = {"one_hot": 60, "mean_std": ((0.5,) * 3, (0.25,) * 3), "extra": ["height"]}

    images, labels, _, features = next(
        read_batches(shards, batch_size=4, **SMALL, **choices).as_numpy_iterator()
    )

    assert labels.shape == (4, 60)
    assert images.dtype == np.float32
    levels = labels.argmax(axis=1) / 255
    assert np.allclose(images.mean(axis=(1, 2, 3)), (levels - 0.5) / 0.25, atol=0.03)
    assert features["height"].tolist() == [32] * 4
    with pytest.raises(ValueError, match='Did you mean "height"'):
        read_batches(shards, batch_size=4, extra=["heigth"], **SMALL)


def test_flips_turn_half_of_the_pictures_and_their_masks(tmp_path):
    """
    A picture dark on its left, its mask on the left too, comes either way round, always together.
    """
    halves = np.zeros((32, 32, 3), np.uint8)
    halves[:, 16:] = 255
    stream = io.BytesIO()
    Image.fromarray(halves).save(stream, "PNG")
    dark = encode_mask(halves[..., 0] == 0)
    features = {"image": stream.getvalue(), "height": 32, "width": 32, "dark": dark.encode()}
    write_shard(tmp_path / "a.tfrec", [make_example(**features)] * 64)
    schema = load_schema({"image": "image", "dark": {"from": "Dark", "type": "bytes"}})

    shards = find_shards(tmp_path, schema=schema)
    images, masks = next(
        read_batches(shards, batch_size=64, training=True, flip=True, **SMALL).as_numpy_iterator()
    )

    assert masks.shape == (64, 16, 16, 1)
    assert np.array_equal(masks[..., 0] == 1, images[..., 0] < 128)
    assert 10 < (images[:, 0, 0, 0] < 128).sum() < 54


def test_whole_images_come_as_they_were_written(shards):
    """
    read_images decodes each record whole, in order, or shuffled by a seed.
    """
    first = next(read_images(shards).as_numpy_iterator())
    mixed = [int(r["label"]) for r in read_images(shards, seed=3).as_numpy_iterator()]

    assert first["image"].shape == (32, 48, 3)
    assert sorted(mixed) == list(range(53))
    assert mixed != sorted(mixed)


def test_a_fold_is_chosen_by_its_number(shards):
    """
    Validation is the fold, training all others; an error about a missing one lists them.
    """
    training, validation = choose_fold(shards, 3)

    assert set(validation["fold"]) == {3}
    assert set(training["fold"]) == {0, 1, 2, 4}
    with pytest.raises(ValueError, match=r"folds \[0, 1, 2, 3, 4\]"):
        choose_fold(shards, 7)


@pytest.mark.parametrize("held_out", ["validation", "val"])
def test_without_folds_the_validation_split_is_chosen(shards, held_out):
    """
    A split into train and validation needs no fold number.
    """
    table = shards.assign(fold=0, split=["train"] * 4 + [held_out])

    training, validation = choose_fold(table)

    assert (len(training), len(validation)) == (4, 1)
    with pytest.raises(ValueError, match="VALIDATION_SIZE"):
        choose_fold(table.iloc[:4])


def test_several_parts_are_read_as_one(tmp_path):
    """
    The folder around the parts stands for all of them; naming a part besides is refused.
    """
    write_part(tmp_path / "part-1", {"a.tfrec": (0, [make_record(1)])})
    write_part(tmp_path / "part-2", {"train/b.tfrec": (1, [make_record(2)] * 2)})

    table = find_shards(tmp_path)

    assert table["count"].tolist() == [1, 2]
    assert [labels.classes for labels in table["labels"]] == [("a", "b")] * 2
    assert table["file"].iloc[1] == str(tmp_path / "part-2" / "train" / "b.tfrec")
    with pytest.raises(ValueError, match=r"listed twice, .*part-2"):
        find_shards([tmp_path, tmp_path / "part-2"])


def test_parts_with_other_classes_are_not_mixed(tmp_path):
    """
    The same number for two classes would train nonsense: both folders are named.
    """
    write_part(tmp_path / "part-1", {"a.tfrec": (0, [make_record(1)])})
    write_part(tmp_path / "part-2", {"b.tfrec": (0, [make_record(1)])}, classes=["b", "c"])

    with pytest.raises(ValueError, match=r"part-2' and '.*part-1' number their classes"):
        find_shards(tmp_path)


def test_nothing_chosen_is_an_error(shards):
    """
    A split that no shard is of would be an empty epoch.
    """
    with pytest.raises(ValueError, match="no record to read"):
        read_batches(shards[shards["split"] == "test"], batch_size=4, **SMALL)


def test_mask_sampling_agrees_with_the_decoder_of_codes():
    """
    At full size the sampled mask is decode_mask's.
    """
    code = "3 4 11 2 40 9"
    window = tf.constant([0, 0, 7, 9])

    found = sample_mask(tf.constant(code), 7, window, (7, 9), "center").numpy()

    assert np.array_equal(found, decode_mask(code, 7, 9))
