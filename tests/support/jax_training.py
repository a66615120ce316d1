"""Train with Keras on JAX, on all devices and on one, and save what was measured.

Argument: a folder with steps.npz (batches and weights) and parts. Run by test_jax.
"""

import json
import logging
import sys
from functools import partial
from pathlib import Path

import jax
import keras
import numpy as np
import tensorflow as tf

from kaggle_tfr import read, train

SIDE, CLASSES = 32, 4


def train_on(batches, weights, validation):
    """Return the losses of steps from the given weights, and the model."""
    model = train.build_model(SIDE, CLASSES)
    model.set_weights(weights)
    data = tf.data.Dataset.from_tensor_slices(batches)
    options = {
        "epochs": len(batches[0]),
        "steps_per_epoch": 1,
        "shuffle": False,
        "verbose": 0,
    }
    options |= {"validation_data": validation, "validation_freq": 5}
    history = model.fit(data, **options).history
    return history["loss"], model


def judge(model, folder, batch_size):
    """Return images, accuracy, cross-entropy, and predicted and right images of a part.

    The accuracy and the loss are Keras's, the others those of `predict_records`.
    """
    shards = read.find_shards(folder)
    data = read.read_batches(shards, image_size=SIDE, batch_size=batch_size)
    found = model.evaluate(data, verbose=0, return_dict=True)
    table = train.predict_records(
        model, shards, image_size=SIDE, batch_size=batch_size
    ).table
    right = int((table["label"] == table["predicted"]).sum())
    return [
        int(shards["count"].sum()),
        found["accuracy"],
        found["cross_entropy"],
        len(table),
        right,
    ]


def train_folds(out, part):
    """Train a model per fold, save what they predict, and return their accuracies."""
    out.mkdir()
    shards = read.find_shards(part)
    model = train.build_model(SIDE, CLASSES)
    train_fold = partial(
        train.train_fold,
        model,
        train.copy_state(model),
        shards,
        epochs=2,
        image_size=SIDE,
        batch_size=16,
        folder=str(out),
    )
    results = list(map(train_fold, read.list_folds(shards)))
    train.save_oof(results, list("abcd"), str(out))
    return train.score_results(results)["accuracy"].tolist()


def watch_compiles(seen):
    """Appends the name of each function that JAX compiles."""
    watch = logging.Handler()
    watch.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger("jax").addHandler(watch)
    logging.getLogger("jax").propagate = False
    jax.config.update("jax_log_compiles", True)


def watch_shapes(seen):
    """Append the shape of each device's share of a batch in a compiled step."""
    rescale = keras.layers.Rescaling.call

    def call(self, images):
        def look(sharding):
            seen.append(sharding.shard_shape(images.shape))

        if images.shape[0]:
            jax.debug.inspect_array_sharding(images, callback=look)
        return rescale(self, images)

    keras.layers.Rescaling.call = call
    return rescale


def main():
    folder, compiled, shapes, result = Path(sys.argv[1]), [], [], {}
    parts = sorted(folder.glob("part-*"))
    with np.load(folder / "steps.npz") as saved:
        batches = saved["images"], saved["labels"]
        weights = [saved[f"weight{n}"] for n in range(len(saved) - 2)]
    validation = read.read_batches(
        read.find_shards(parts[0]), image_size=SIDE, batch_size=16
    )
    watch_compiles(compiled)
    rescale = watch_shapes(shapes)
    everything = jax.devices("cpu")
    for count in (len(everything), 1):
        jax.devices = lambda *_, count=count: everything[:count]
        train.find_devices("cpu")
        losses, model = train_on(batches, weights, validation)
        facts = {"losses": losses, "shapes": [*shapes]}
        facts["judged"] = [judge(model, part, 16) for part in parts]
        lines = [line for line in compiled if line.startswith("Compiling")]
        steps = {
            name: [x for x in lines if name in x]
            for name in ("train_step", "test_step")
        }
        facts["compiles"] = {name: len(found) for name, found in steps.items()}
        sent = f"uint8[{len(batches[0][0])},{SIDE},{SIDE},3]"
        facts["sends_uint8"] = all(sent in x for found in steps.values() for x in found)
        compiled.clear()
        facts["oof"] = train_folds(folder / f"folds-{count}", folder / "folds")
        lines = [line for line in compiled if line.startswith("Compiling")]
        facts["fold_compiles"] = sum("train_step" in line for line in lines)
        compiled.clear()
        shapes.clear()
        facts["logits"] = train.predict(model, batches[0][0]).tolist()
        facts["weights"] = [values.tolist() for values in model.get_weights()]
        result[count] = facts
    keras.layers.Rescaling.call = rescale
    model.save(folder / "model.keras")
    model.export(folder / "exported", verbose=False)
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
