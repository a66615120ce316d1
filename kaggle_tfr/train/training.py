"""06 and 07: devices, a small model, its errors, a submission, what leakage costs."""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.naming import SUBMISSION, near_miss
from kaggle_tfr.parameters import as_size, check_value
from kaggle_tfr.read.batches import MeanStd, one_schema, read_batches
from kaggle_tfr.session import count_cores, find_tpu_signs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import keras
    import tensorflow as tf

    from kaggle_tfr.schema import Labels
else:
    from kaggle_tfr.session import keras, tf

# Red, green, blue, of pictures scaled to 0…1. Source: ImageNet's training set, as torchvision and
# the landmark notebooks use them.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

TPU_ADDRESSES = ("TPU_NAME", "COLAB_TPU_ADDR", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")


@dataclass(frozen=True)
class Devices:
    """`kind` "tpu", "gpu" or "cpu"; `count` of them share a batch. strategy: None on JAX."""

    kind: str
    name: str
    count: int
    strategy: tf.distribute.Strategy | None = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Models made in it are on the devices; on a TPU in bfloat16, with float32 weights."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(
            "mixed_bfloat16" if self.kind == "tpu" else before
        )
        try:
            with self.strategy.scope() if self.strategy else nullcontext():
                yield
        finally:
            keras.config.set_dtype_policy(before)


def find_devices(device: str = "auto") -> Devices:
    """The devices to train on, named by one printed line: "tpu", "gpu", "cpu", or "auto": the best.

    On JAX, models are data-parallel over them from here on.
    Raises: RuntimeError: they are not there; there is a TPU that this Keras backend cannot use,
        unless device is "cpu"; KERAS_BACKEND was set too late. ValueError: another `device`.
    """
    check_value("DEVICE", device)
    backend, finders = (
        keras.config.backend(),
        {"jax": _find_jax, "tensorflow": _find_tensorflow},
    )
    wanted = os.environ.get("KERAS_BACKEND") or backend
    if wanted != backend or backend not in finders:
        what = f"KERAS_BACKEND is '{wanted}', keras was imported with '{backend}'."
        mend = "Restart the session, and set it to jax or tensorflow before TensorFlow is imported."
        raise RuntimeError(f"{what} {mend}")
    signs, wrong = find_tpu_signs(), ""
    try:
        found = finders[backend](device)
        if device == "auto" and signs and found.kind != "tpu":
            wrong = f"This machine has a TPU ({signs[0]}), which Keras on {backend} cannot use"
    except RuntimeError as error:  # JAX's: there is none, or another process has it
        wrong = f"DEVICE is '{device}', but Keras on {backend} finds none ({error})"
    if wrong:
        mend = 'Take a machine that has one, or set DEVICE = "auto" or "cpu".'
        if signs:
            mend = "Install jax[tpu], set KERAS_BACKEND=jax before TensorFlow is imported, and"
            mend += ' restart the session; or train on the CPU all the same: DEVICE = "cpu".'
        raise RuntimeError(f"{wrong}. {mend}")
    print(f"Training on {found.name}: {found.count} replica{'s' * (found.count > 1)}")
    return found


def _find_jax(device: str) -> Devices:
    """All devices of the kind, over which Keras distributes from here on; RuntimeError if none."""
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # leaves a TPU to whom it belongs
    found = jax.devices(None if device == "auto" else device)
    # On one device a distribution would only make JAX compile each step twice.
    several = keras.distribution.DataParallel(devices=found) if len(found) > 1 else None
    keras.distribution.set_distribution(several)
    jax.config.update("jax_default_device", found[0])
    kind = found[0].platform
    more = f"{count_cores()} cores" if kind == "cpu" else found[0].device_kind
    return Devices(kind, f"{kind.upper()} ({more}) by JAX", len(found))


def _find_tensorflow(device: str) -> Devices:
    """The devices by TensorFlow's own strategies; RuntimeError if none."""
    gpus, one = tf.config.list_physical_devices("GPU"), tf.distribute.get_strategy()
    if device in ("auto", "tpu") and (tpu := _find_tpu()):
        return tpu
    if device in ("auto", "gpu") and gpus:
        strategy = tf.distribute.MirroredStrategy() if len(gpus) > 1 else one
        name = "one GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
        return Devices("gpu", name, len(gpus), strategy)
    if device in ("auto", "cpu"):
        cpu = tf.distribute.OneDeviceStrategy("CPU:0") if gpus else one
        return Devices("cpu", f"CPU ({count_cores()} cores)", 1, cpu)
    raise RuntimeError("TensorFlow lists none")


def _find_tpu() -> Devices | None:
    # TensorFlow logs every attempt, also where there is no TPU.
    logging.getLogger("tensorflow").setLevel("WARNING")
    # A search where there is no sign of a TPU would only cost time.
    addresses = ["local"] if find_tpu_signs() else []
    addresses += [os.environ[name] for name in TPU_ADDRESSES if os.environ.get(name)]
    for address in dict.fromkeys(addresses):
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
            if address != "local":
                tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
        except (ValueError, tf.errors.OpError):
            continue
        return Devices(
            "tpu", f"TPU ({address})", strategy.num_replicas_in_sync, strategy
        )
    return None


def check_labels(shards: pd.DataFrame) -> None:
    """Raise a ValueError unless the labelled records have one class each, which 06 trains.

    shards: of `find_shards`. The message says what the labels are and how to train on them.
    """
    labelled = shards[shards["split"] != "test"]
    columns = labelled[["folder", "schema", "labels"]]
    for folder, schema, labels in columns.itertuples(index=False, name=None):
        if not (labels.classes and schema.label_keys):
            what = f"the records in '{folder}' have no labels"
            remedy = (
                "To train here, set LABEL_COLUMN in the recipe and run 01 to 05 again"
            )
        elif schema.kind == "multi":
            what = f"an image in '{folder}' can have several labels"
            remedy = "To train on these, use a model of your own with a sigmoid for each label"
        elif schema.kind == "masks":
            what = f"the labels in '{folder}' are masks"
            remedy = "To train on these, use a segmentation model of your own"
        else:
            continue
        reader = "read.read_batches gives the images and their labels as arrays"
        raise ValueError(
            f"06_train trains a network that gives each image one class, but {what}. "
            f"{remedy}; {reader} (docs/reading.md has examples)."
        )


def predict(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Logits (batch, …) of a batch of uint8 images, which is split over the model's devices."""
    split = keras.distribution.distribution()
    if split is not None:
        layout = split.get_data_layout(images.shape)
        images = keras.distribution.distribute_tensor(images, layout)
    # Every replica of a strategy of TensorFlow answers for the whole batch, one after the other.
    return np.asarray(model.predict_on_batch(images))[: len(images)]


def normalization(stats: str | MeanStd = IMAGENET) -> keras.Layer:
    """A layer from uint8 pixels to float32 (pixel / 255 − mean) / std, one multiply-add.

    stats: (mean, std) of red, green and blue scaled to 0…1; or the folder of a stats.json, which
        holds them in grey levels. Raises: FileNotFoundError; ValueError: they are not that.
    """
    if isinstance(stats, str):
        held = json.loads(storage.read_bytes(storage.join(stats, "stats.json")))
        stats = (
            [held["mean"][c] / 255 for c in "RGB"],
            [held["std"][c] / 255 for c in "RGB"],
        )
    mean, std = np.asarray(stats, np.float64)
    if mean.shape != (3,) or std.min() <= 0 or max(mean.max(), std.max()) > 1:
        what = f"The mean {mean.tolist()} and deviation {std.tolist()} are not three numbers each"
        mend = "Divide numbers of 0…255 by 255; none may deviate by 0."
        raise ValueError(f"{what} of pixels scaled to 0…1. {mend}")
    factor, offset = 1 / (255 * std), -mean / std
    given = factor.tolist(), offset.tolist()
    return keras.layers.Rescaling(*given, dtype="float32", name="normalization")


def build_model(
    image_size: int | Sequence[int],
    classes: int,
    *,
    stats: str | MeanStd = IMAGENET,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> keras.Model:
    """A small convolutional network from images to float32 logits (batch, classes), compiled.

    It learns the bundled sample in a minute on two cores; swap in a pretrained one for your data.
    No layer of it is random: flips are the reader's, so what is exported answers the same twice.
    """
    keras.utils.set_random_seed(seed)
    given = keras.Input((*as_size(image_size), 3), dtype="uint8")
    layers = [given, normalization(stats)]
    for filters in (16, 32, 64, 96):
        layers += [
            keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
            # Few steps to average over: an epoch of the sample has only a dozen.
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.Activation("relu"),
        ]
    layers += [
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(classes, dtype="float32"),
    ]
    model = keras.Sequential(layers, name="small_network")
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # What makes the mask of validation batches count. Keras's own val_loss is no mean over
        # the images: it divides by the padding too.
        weighted_metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseCategoricalCrossentropy(
                "cross_entropy", from_logits=True
            ),
        ],
    )
    return model


def count_confusions(
    model: keras.Model, batches: tf.data.Dataset, classes: int
) -> pd.DataFrame:
    """One row a pair of classes that occurs in validation batches: int64 true, predicted, images.

    Sorted. Memory is bounded by the pairs, for any number of classes.
    """
    pairs: Counter[int] = Counter()
    for images, labels, mask in batches.as_numpy_iterator():
        codes = labels.astype(np.int64) * classes + np.argmax(
            predict(model, images), axis=-1
        )
        pairs.update(codes[mask > 0].tolist())
    rows = [(*divmod(pair, classes), images) for pair, images in sorted(pairs.items())]
    return pd.DataFrame(rows, columns=["true", "predicted", "images"], dtype=np.int64)


def list_mistakes(
    model: keras.Model,
    batches: tf.data.Dataset,
    classes: Sequence[Any],
    count: int = 12,
) -> tuple[list[np.ndarray], list[str]]:
    """(pictures, "true → predicted") of the first `count` mistakes; no later batch is read."""
    pictures, titles = list[np.ndarray](), list[str]()
    for images, labels, mask in batches.as_numpy_iterator():
        predicted = np.argmax(predict(model, images), axis=-1)
        for row in np.flatnonzero((predicted != labels) & (mask > 0))[
            : count - len(titles)
        ]:
            pictures.append(images[row])
            titles.append(f"{classes[labels[row]]} → {classes[predicted[row]]}")
        if len(titles) == count:
            break
    return pictures, titles


def time_epochs(seconds: list[float]) -> keras.callbacks.Callback:
    """A callback that appends the seconds an epoch trained, up to where its validation begins."""
    starts: list[float] = []
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: starts.append(time.perf_counter()),
        on_test_begin=lambda *_: seconds.append(time.perf_counter() - starts[-1]),
    )


def compare_throughput(
    reader_speed: float, seconds: Sequence[float], images: int
) -> pd.DataFrame:
    """Images/s of the reader, the first epoch and, median, the later ones, of `images` each."""
    first, later = seconds[0], float(np.median(seconds[1:] or seconds))
    names = ["reader alone", "first epoch, which compiles", "later epochs"]
    return pd.DataFrame(
        {"images/s": [reader_speed, images / first, images / later]}, index=names
    )


def write_submission(
    model: keras.Model, shards: pd.DataFrame, folder: str, **choices: Any
) -> pd.DataFrame | None:
    """What submission.csv in the folder now holds; None, which is printed, without test shards.

    shards: of `find_shards`. choices: image_size and batch_size, as for validation.
    Raises: ValueError: the test records have no id, or as `fill_submission`.
    """
    test = shards[shards["split"] == "test"]
    if test.empty:
        print("There are no test shards, so there is nothing to submit.")
        return None
    labels, key = test["labels"].iloc[0], one_schema(test).key_of("image_id")
    if not key:
        mend = "Plan with a SCHEMA that has one, such as 'id: image_id'."
        raise ValueError(f"the records of '{test['file'].iloc[0]}' have no id. {mend}")
    ids, scores = list[str](), list[np.ndarray]()
    batches = read_batches(test, extra=[key], **choices)
    for images, _, mask, more in batches.as_numpy_iterator():
        ids += [name.decode() for name in more[key][mask > 0].tolist()]
        scores.append(predict(model, images)[mask > 0].astype(np.float64))
    odds = np.exp(np.clip(np.concatenate(scores), -500, 500))
    shares = odds / (
        odds.sum(axis=1, keepdims=True) if labels.kind == "single" else 1 + odds
    )
    folders = test["folder"].unique()  # one that has the competition's template will do
    texts = (storage.read_text(storage.join(folder, SUBMISSION)) for folder in folders)
    held = next(filter(None, texts), "").lstrip("\ufeff")
    template = (
        pd.read_csv(io.StringIO(held), dtype=str, keep_default_na=False)
        if held
        else None
    )
    submission = fill_submission(ids, shares, labels, template)
    text = submission.to_csv(index=False, lineterminator="\n")
    storage.write_atomically(storage.join(folder, "submission.csv"), text.encode())
    return submission


def fill_submission(
    ids: Sequence[str],
    scores: np.ndarray,
    labels: Labels,
    template: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The template's rows, in its order, each id once, with predictions in its columns.

    scores: of each id, float (n, classes) from 0 to 1, or uint8 masks (n, height, width, classes)
    of the size that is asked for. A class is written as its id or as its number, whichever the
    template has; several labels are separated by blanks; a column a class holds its score, or 0
    and 1 where the template holds only these; masks become run-length codes.
    An image that was not predicted gets the class most often predicted (no mask), and is printed.
    Raises: ValueError: a column that is no class, or no predicted id is in the template.
    """
    classes = [str(name) for name in labels.classes]
    if template is None:
        template = pd.DataFrame({"image_id": list(ids), "label": ""})
    id_column = _find_id_column(template, ids)
    others = template.columns.drop(id_column)
    asked = template[id_column]
    in_id = scores.ndim == 4 and asked.str.rpartition("_")[2].isin(classes).all()
    names = asked.str.rpartition("_")[0] if in_id else asked
    row = _find_rows(names, ids)
    if len(unread := names[row < 0].unique()):
        said = ", ".join(unread[:10]) + ", …" * (len(unread) > 10)
        what = (
            f"{len(unread)} of {names.nunique()} test images could not be read, and get"
        )
        print(f"{what} what is most often predicted: {said}")
    if scores.ndim == 4:
        label = asked.str.rpartition("_")[2] if in_id else template[others[0]]
        number = {name: position for position, name in enumerate(classes)}
        pairs = zip(row, label.map(number), strict=True)
        codes = [encode_mask(scores[at, :, :, c]) if at >= 0 else "" for at, c in pairs]
        return template.assign(**{others[-1]: codes})
    usual = np.bincount(scores.argmax(axis=1), minlength=len(classes)).argmax()
    typical = (
        np.eye(len(classes))[usual] if labels.kind == "single" else scores.mean(axis=0)
    )
    filled = np.where(row[:, None] >= 0, scores[row], typical)
    return _write_classes(template, list(others), filled, labels.kind, classes)


def _find_id_column(template: pd.DataFrame, ids: Sequence[str]) -> str:
    """The column of ids: the first with the name of a predicted image, else the first of all."""
    for column in template:
        with suppress(ValueError):
            names = template[column]
            _find_rows(
                pd.concat([names, names.str.rpartition("_")[0]]).reset_index(drop=True),
                ids,
            )
            return str(column)
    return str(template.columns[0])


def _write_classes(
    template: pd.DataFrame,
    columns: list[str],
    scores: np.ndarray,
    kind: str,
    classes: list[str],
) -> pd.DataFrame:
    """The template with the scores (n, classes) in its columns: one, or one a class."""
    best = scores.argmax(axis=1)
    present = np.eye(len(classes))[best] if kind == "single" else scores >= 0.5
    if len(columns) == 1:
        said = template[columns[0]]
        numbers = said.str.fullmatch(r"\d+").all() and not said.isin(classes).any()
        if kind == "single":
            text: Any = best if numbers else np.array(classes, object)[best]
        else:
            text = [" ".join(np.array(classes)[one]) for one in present.astype(bool)]
        return template.assign(**{columns[0]: text})
    if unknown := [name for name in columns if name not in classes]:
        what = f"{SUBMISSION} has the column '{unknown[0]}', which is no class."
        raise ValueError(
            f"{what}{near_miss(unknown[0], classes)} There are {', '.join(classes)}."
        )
    flags = template[columns].isin(["0", "1"]).all(axis=None)
    values = present.astype(int) if flags else scores
    return template.assign(**{name: values[:, classes.index(name)] for name in columns})


def _find_rows(names: pd.Series, ids: Sequence[str]) -> np.ndarray:
    """Int (n,): the position of each name among the ids, -1 for none.

    Class folders' ids are paths; a template may leave out folder and ending.
    """
    for shorten in (r"", r".*/", r".*/|\.\w+$"):
        own = pd.Index(
            pd.Series(list(ids), dtype=str).str.replace(shorten, "", regex=True)
        )
        row = own.get_indexer(pd.Index(names)) if own.is_unique else np.array([-1])
        if (row >= 0).any():
            return row
    what = f"none of {len(ids):,} predicted images is in {SUBMISSION}: '{ids[0]}' and '{names[0]}'"
    raise ValueError(f"{what} are the first. Is it the one of this competition?")


def score_folds(
    pictures: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
) -> np.ndarray:
    """Bool (n,): whether a small network that learned from the other folds names a picture right.

    pictures: uint8 (n, height, width, 3). labels: int (n,) from 0. folds: int (n,).
    """
    model = build_model(pictures.shape[1:3], int(labels.max()) + 1, seed=seed)
    model.optimizer.build(model.trainable_variables)
    # To compile it anew for each fold would take longer than the training.
    variables = [*model.variables, *model.optimizer.variables]
    untrained, right = [np.array(one) for one in variables], np.zeros(len(labels), bool)
    for fold in np.unique(folds):
        for variable, value in zip(variables, untrained, strict=True):
            variable.assign(value)
        own = folds == fold
        model.fit(pictures[~own], labels[~own], batch_size, epochs, verbose=0)
        right[own] = (predict(model, pictures).argmax(axis=-1) == labels)[own]
    return right


def estimate_inflation(
    leaky: np.ndarray, honest: np.ndarray, clusters: np.ndarray
) -> tuple[float, float, float]:
    """(share, low, high): how many more answers are right with `leaky` folds, 95 % interval.

    leaky, honest: bool (repeats, n) of `score_folds`, the same n pictures, 2 repeats or more.
    clusters: int (n,); copies of a picture stand and fall together, so they count as one. What the
    repeats differ by is added to that, for they share folds and first weights.
    Source: Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference" (2015).
    """
    more = leaky.astype(float) - honest
    share = float(more.mean())
    sums = pd.Series(more.mean(axis=0) - share).groupby(np.asarray(clusters)).sum()
    variance = (sums**2).sum() / more.shape[1] ** 2 * len(sums) / (len(sums) - 1)
    variance += more.mean(axis=1).var(ddof=1) / len(more)
    margin = 1.96 * float(np.sqrt(variance))
    return share, share - margin, share + margin
