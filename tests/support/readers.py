"""Shards as other tools write them: TFRecordWriter, literal features, Pillow."""

import json
from pathlib import Path

from PIL import Image

from support.scenes import saved, scene


def make_picture(number, width=48, height=32):
    """Return a flat JPEG whose grey level is `number`, to recognise it when decoded."""
    return saved(Image.new("RGB", (width, height), (number,) * 3))


def save_noise(seed, width, height, kind="JPEG"):
    """Bytes of a coloured picture with detail everywhere."""
    return saved(scene(height, width, seed), kind)


def make_example(**features):
    """Return a serialized tf.train.Example; the values decide the feature types."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        feature = example.features.feature[name.replace("__", "/")]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return example.SerializeToString()


def write_shard(path, records, compression=""):
    """Writes the serialized records; the path as text."""
    import tensorflow as tf

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def write_part(folder, shards, classes=("a", "b"), schema="landmark", compression=""):
    """Write a part folder from {file: (fold, records)}, with its tables."""
    from kaggle_tfr.schema import load_schema

    folder = Path(folder)
    rows = ["file,split,fold,count,bytes,sha256"]
    for file, (fold, records) in shards.items():
        write_shard(folder / file, records, compression)
        size = (folder / file).stat().st_size
        rows.append(f"{file},train,{fold},{len(records)},{size},0")
    (folder / "shards.csv").write_text("\n".join(rows))
    record_schema = load_schema(schema) if isinstance(schema, str) else schema
    (folder / "schema.json").write_text(record_schema.to_json())
    (folder / "labels.json").write_text(json.dumps({"classes": [*classes]}))
    return str(folder)


def make_record(number):
    """A record of the landmark layout whose label and grey level are `number`."""
    image = make_picture(number)
    return make_example(image=image, label=number, height=32, width=48)
