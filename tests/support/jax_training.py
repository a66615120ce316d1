"""Train with Keras on JAX, on all devices and on one, and save what was measured.

Argument: a folder with steps.npz (batches and weights) and parts. Run by test_jax.
"""

import json
import logging
import sys
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
    """Return images, accuracy, cross-entropy, and counts of confusions of a part."""
    shards = read.find_shards(folder)
    data = read.read_batches(shards, image_size=SIDE, batch_size=batch_size)
    found = model.evaluate(data, verbose=0, return_dict=True)
    table = train.count_confusions(model, data)
    right = table.loc[table["true"] == table["predicted"], "images"].sum()
    judged = int(table["images"].sum()), int(right)
    return [
        int(shards["count"].sum()),
        found["accuracy"],
        found["cross_entropy"],
        *judged,
    ]


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
        result[count] = {"losses": losses, "shapes": [*shapes]}
        result[count]["judged"] = [judge(model, part, 16) for part in parts]
        lines = [line for line in compiled if line.startswith("Compiling")]
        steps = {
            name: [x for x in lines if name in x]
            for name in ("train_step", "test_step")
        }
        result[count]["compiles"] = {name: len(found) for name, found in steps.items()}
        sent = f"uint8[{len(batches[0][0])},{SIDE},{SIDE},3]"
        result[count]["sends_uint8"] = all(
            sent in x for found in steps.values() for x in found
        )
        compiled.clear()
        shapes.clear()
        result[count]["logits"] = train.predict(model, batches[0][0]).tolist()
        result[count]["weights"] = [values.tolist() for values in model.get_weights()]
    keras.layers.Rescaling.call = rescale
    model.save(folder / "model.keras")
    model.export(folder / "exported", verbose=False)
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
