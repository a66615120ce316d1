"""Train one model per fold, and collect what each predicts for its own fold."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.read.batches import choose_fold, count_steps, one_schema, read_batches
from kaggle_tfr.train.model import predict, time_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import keras
    import tensorflow as tf

# Probabilities of more bytes are not kept: 1.58 million images of 81,313 classes would
# be 514 GB.
LIMIT_BYTES = 2 << 30  # 2 GiB
# A pass over a small fold takes less time than to start reading it.
CACHE_BYTES = 256 << 20  # 256 MiB
DEVIATION = "standard deviation"
N_MISTAKES = 12  # images that are kept to be displayed


@dataclass(frozen=True)
class Mistake:
    """An image that the model predicted wrong, uint8 (height, width, 3).

    size: the probability of the wrong class, or the error of a quantity.
    label, predicted: the number of a class, or a quantity.
    """

    size: float
    image: np.ndarray
    label: Any
    predicted: Any


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for the records of shards.

    table: a row per record: image_id, label (−1 without one), predicted, probability
        (of the predicted class) and loss, −log of the probability of the label. Of a
        quantity: image_id, label and predicted, float32, and error, its absolute error
        (NaN without a label).
    scores: probabilities, float32 (n, classes), or quantities (n, 1); None if there are
        more than `LIMIT_BYTES`.
    mistakes: the most confident ones or the largest errors first, `N_MISTAKES` at most.
    """

    table: pd.DataFrame
    scores: np.ndarray | None
    mistakes: list[Mistake]


@dataclass(frozen=True)
class FoldResult:
    """The result of the model that did not train on a fold.

    validation: of the images of the fold. test: of the test images, if there are any.
    history: of `model.fit`. seconds: of each epoch, without validation.
    """

    fold: int
    validation: Predictions
    test: Predictions | None
    history: dict[str, list[float]]
    seconds: list[float]


def train_fold(
    model: keras.Model,
    initial_state: dict,
    shards: pd.DataFrame,
    fold: int,
    *,
    epochs: int,
    image_size: int | Sequence[int],
    batch_size: int,
    folder: str,
) -> FoldResult:
    """Train on all folds except one, save the model, predict this fold and the tests.

    initial_state: of `copy_state`; each fold starts from it.
    shards: of `find_shards`. folder: for model-fold0.keras.
    Raises: ValueError: as `choose_fold`.
    """
    training, validation = choose_fold(shards, fold)
    tests = shards[shards["split"] == "test"]
    sizes: dict[str, Any] = {"image_size": image_size, "batch_size": batch_size}
    batches = read_batches(training, training=True, flip=True, seed=fold, **sizes)
    seconds: list[float] = []

    model.set_state_tree(initial_state)
    history = model.fit(
        batches,
        steps_per_epoch=count_steps(training, batch_size, training=True),
        epochs=epochs,
        validation_data=_read_validation(validation, **sizes),
        callbacks=[time_epochs(seconds)],
        shuffle=False,  # the reader has shuffled
        verbose=0,
    ).history
    # Before anything else is read: on JAX, an error of the data would cost the weights.
    model.save(storage.join(folder, f"model-fold{fold}.keras"))

    of_validation = predict_records(model, validation, **sizes)
    of_tests = None if tests.empty else predict_records(model, tests, **sizes)
    result = FoldResult(fold, of_validation, of_tests, history, seconds)
    scores = _score(of_validation.table).items()
    print(
        f"fold {fold}: {', '.join(f'{name} {score:.4g}' for name, score in scores)} on "
        f"{len(of_validation.table):,} images; {np.sum(seconds):.1f} s of training",
        flush=True,
    )
    return result


def _read_validation(shards: pd.DataFrame, **sizes: Any) -> tf.data.Dataset:
    """Return validation batches, which are kept in memory if they are small."""
    batches = read_batches(shards, **sizes)
    n_bytes = math.prod(batches.element_spec[0].shape) * len(batches)
    if n_bytes > CACHE_BYTES:
        return batches
    cached = batches.cache()
    # Keras stops at the last batch, but only a pass to the end fills the cache.
    cached.reduce(0, lambda count, *_: count + 1)
    return cached


def predict_records(
    model: keras.Model,
    shards: pd.DataFrame,
    *,
    image_size: int | Sequence[int],
    batch_size: int,
) -> Predictions:
    """Predict each record of the shards once: the centre of its image.

    The rows have always the same order. The id of a record without one is
    "file#number".
    """
    n_records = int(shards["count"].sum())
    n_classes = model.output_shape[-1]
    keeps_scores = n_records * n_classes * 4 <= LIMIT_BYTES
    is_quantity = shards["labels"].iloc[0].kind == "number"
    rate = _rate_quantities if is_quantity else _rate_classes
    tables: list[pd.DataFrame] = []
    scores: list[np.ndarray] = []
    mistakes: list[Mistake] = []
    sizes: dict[str, Any] = {"image_size": image_size, "batch_size": batch_size}
    for ids, images, labels in _read_shards(shards, **sizes):
        outputs = predict(model, images)[: len(ids)]
        table, scores_of_batch = rate(ids, labels, outputs)
        found = _list_mistakes(images, table)
        mistakes = nlargest(N_MISTAKES, mistakes + found, key=_size)
        tables.append(table)
        if keeps_scores:
            scores.append(scores_of_batch.astype(np.float32))
    return Predictions(
        table=pd.concat(tables, ignore_index=True),
        scores=np.concatenate(scores) if keeps_scores else None,
        mistakes=mistakes,
    )


def _read_shards(
    shards: pd.DataFrame, **sizes: Any
) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Yield (ids, images, labels) of batches; images are padded to the batch size."""
    id_key = one_schema(shards).key_of("image_id")
    if not id_key:
        yield from _read_without_ids(shards, **sizes)
        return
    batches = read_batches(shards, extra=[id_key], **sizes)
    for images, labels, mask, fields in batches.as_numpy_iterator():
        count = int(np.count_nonzero(mask))
        ids = [name.decode() for name in fields[id_key][:count]]
        yield ids, images, labels[:count]


def _read_without_ids(
    shards: pd.DataFrame, **sizes: Any
) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Yield what `_read_shards` does, with ids such as "file#number".

    One shard after the other, so that the number of a record in its file is known.
    """
    for position, file in enumerate(shards["file"]):
        name = os.path.basename(file)
        first = 0
        batches = read_batches(shards.iloc[[position]], **sizes)
        for images, labels, mask in batches.as_numpy_iterator():
            count = int(np.count_nonzero(mask))
            ids = [f"{name}#{number}" for number in range(first, first + count)]
            yield ids, images, labels[:count]
            first += count


def _rate_classes(
    ids: list[str], labels: np.ndarray, logits: np.ndarray
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the rows of `Predictions.table`, and the probabilities."""
    log_probabilities = _log_softmax(logits)
    rows = np.arange(len(ids))
    predicted = log_probabilities.argmax(axis=1)
    loss = np.where(labels >= 0, -log_probabilities[rows, labels], np.nan)
    columns = {
        "image_id": ids,
        "label": labels,
        "predicted": predicted,
        "probability": np.exp(log_probabilities[rows, predicted]),
        "loss": loss,
    }
    return pd.DataFrame(columns), np.exp(log_probabilities)


def _rate_quantities(
    ids: list[str], labels: np.ndarray, outputs: np.ndarray
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the rows of `Predictions.table`, and the outputs."""
    predicted = outputs[:, 0]
    is_known = labels.dtype == np.float32  # those of test records are −1, int64
    error = np.abs(predicted - labels) if is_known else np.nan
    columns = {
        "image_id": ids,
        "label": labels,
        "predicted": predicted,
        "error": error,
    }
    return pd.DataFrame(columns), outputs


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    """Turn logits (n, classes) into logarithms of probabilities, float64."""
    differences = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return differences - np.log(np.exp(differences).sum(axis=1, keepdims=True))


def _list_mistakes(images: np.ndarray, table: pd.DataFrame) -> list[Mistake]:
    """Return the mistakes of a batch."""
    is_wrong = (table["label"] >= 0) & (table["label"] != table["predicted"])
    name = "probability"
    if "error" in table:
        is_wrong = table["error"] > 0
        name = "error"
    worst = table.loc[is_wrong, [name, "label", "predicted"]].nlargest(N_MISTAKES, name)
    return [
        Mistake(size, images[position], label, predicted)
        for position, size, label, predicted in worst.itertuples()
    ]


def _size(mistake: Mistake) -> float:
    return mistake.size


def _score(table: pd.DataFrame) -> dict[str, float]:
    """Return accuracy and cross-entropy, or mean error and R², of the images alone."""
    if "error" in table:
        variance = table["label"].var(ddof=0)
        r_squared = 1 - (table["error"] ** 2).mean() / variance
        return {"error": table["error"].mean(), "R²": r_squared}
    is_right = table["label"] == table["predicted"]
    return {"accuracy": is_right.mean(), "cross_entropy": table["loss"].mean()}


def score_results(results: Sequence[FoldResult]) -> pd.DataFrame:
    """Return images and the scores by fold, then their mean.

    The scores are accuracy and cross_entropy, or the mean absolute error and R².
    For two folds or more, the last row is the standard deviation over folds (n − 1);
    its number of images is missing.
    """
    rows = {}
    for result in results:
        table = result.validation.table
        rows[f"fold {result.fold}"] = {"images": len(table), **_score(table)}
    scores = pd.DataFrame(rows).T
    deviation = scores.drop(columns="images").std()
    summary = pd.DataFrame({"mean": scores.mean(), DEVIATION: deviation}).T
    return pd.concat([scores, summary]).dropna(how="all")


def save_oof(
    results: Sequence[FoldResult], classes: Sequence[Any], folder: str
) -> pd.DataFrame:
    """Save the out-of-fold predictions as oof.csv and oof.npy, and return the table.

    oof.csv: a row per image, sorted by image_id: image_id, fold, label, predicted,
        probability (of the predicted class), loss; of a quantity, error in place of
        the last two.
    oof.npy: float32 (n, classes), the probabilities of the same rows, or (n, 1), the
        quantities; not written if it were larger than `LIMIT_BYTES`, which is printed.
    classes: () of a quantity.
    """
    tables = [
        result.validation.table.assign(fold=result.fold).astype({"image_id": str})
        for result in results
    ]
    oof = pd.concat(tables, ignore_index=True)
    order = np.argsort(oof["image_id"].to_numpy(), kind="stable")
    oof = oof.iloc[order].reset_index(drop=True)

    named = oof
    if classes:
        names = np.array([str(name) for name in classes], dtype=object)
        named = oof.assign(label=names[oof["label"]], predicted=names[oof["predicted"]])
    columns = ["image_id", "fold", "label", "predicted", "probability", "loss", "error"]
    text = named.filter(columns).to_csv(
        index=False,
        float_format="%.6g" if classes else None,
        lineterminator="\n",
    )
    storage.write_atomically(storage.join(folder, "oof.csv"), text.encode())

    scores = [result.validation.scores for result in results]
    n_bytes = len(oof) * len(classes) * 4
    if n_bytes > LIMIT_BYTES or any(part is None for part in scores):
        print(
            f"oof.npy is not written: {len(oof):,} images of {len(classes):,} classes "
            f"would be {n_bytes / 1e9:,.0f} GB. oof.csv has the predicted classes."
        )
    else:
        array = np.concatenate([part for part in scores if part is not None])[order]
        file = io.BytesIO()
        np.save(file, array)
        storage.write_atomically(storage.join(folder, "oof.npy"), file.getvalue())
    return oof


def list_mistakes(
    results: Sequence[FoldResult], classes: Sequence[Any]
) -> tuple[list[np.ndarray], list[str]]:
    """Return the worst mistakes of all folds, and titles "true → predicted".

    Wrong labels are often among them. classes: () of a quantity.
    """
    mistakes = [mistake for result in results for mistake in result.validation.mistakes]
    worst = nlargest(N_MISTAKES, mistakes, key=_size)
    titles = []
    for mistake in worst:
        true, predicted = mistake.label, mistake.predicted
        title = f"{true:.4g} → {predicted:.4g}"
        if classes:
            title = f"{classes[true]} → {classes[predicted]}\n{mistake.size:.0%}"
        titles.append(title)
    return [mistake.image for mistake in worst], titles
