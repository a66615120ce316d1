"""A damaged part is the input, and its whole records are saved."""

import json
import random
import re
from itertools import chain
from pathlib import Path

import yaml
from support.chain import run_values
from support.plans import CLASSES, make_images, plan_images, read_images

from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import write_parts

N_SHARDS = 30
RECORDS_PER_SHARD = 4
PLACE = re.compile(r"'(.*)' at byte ([\d,]+): the record is damaged")


def list_frames(data):
    """Return offset and bytes of each frame of a shard."""
    frames = {}
    start = 0
    while start < len(data):
        end = start + int.from_bytes(data[start : start + 8], "little") + 16
        frames[start] = data[start:end]
        start = end
    return frames


def flip_a_byte(data, rng):
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def truncate(data, rng):
    del data[rng.randrange(len(data)) :]


def tear_frames(data, rng):
    """Replace up to half of the shard by zeros, heads of frames included."""
    start = rng.randrange(len(data))
    end = min(start + rng.randrange(1, len(data) // 2), len(data))
    data[start:end] = bytes(end - start)


def damage_shards(part):
    """Flip a byte, cut or tear each shard of a part; return what is left and what not.

    Return {image_id: (bytes, label)} of the undamaged records; and a list of places,
    path and offset in bytes, for each shard: those of its other records.
    """
    rng = random.Random(20_261_123)
    images = {}
    places = []
    records = iter(read_images(part).items())
    for number, shard in enumerate(sorted(part.glob("*.tfrec"))):
        before = shard.read_bytes()
        after = bytearray(before)
        (flip_a_byte, truncate, tear_frames)[number % 3](after, rng)
        shard.write_bytes(after)

        lost = []
        frames = list_frames(before).items()
        for (start, frame), (image_id, image) in zip(frames, records, strict=False):
            if after[start : start + len(frame)] == frame:
                images[image_id] = image
            else:
                lost.append((str(shard), start))
        places.append(lost)
    return images, places


def test_the_recipe_writes_all_undamaged_records_to_new_shards(root, tmp_path):
    """Image bytes, labels and classes stay; the first lost records are named."""
    table = make_images("in", N_SHARDS * RECORDS_PER_SHARD, sizes=(24, 40))
    plan_images(table, "first", size=0, n_shards=N_SHARDS)
    write_parts("first")
    part = tmp_path / "first/part-1"
    images, lost = damage_shards(part)
    docs = "".join(page.read_text() for page in (root / "docs").glob("*.md"))
    (recipe,) = re.findall(r"```yaml file=recover.yaml\n(.*?)```", docs, re.DOTALL)
    folders = {"INPUT_DIR": str(part), "WORK_DIR": "work"}

    table, _, shards = run_values(yaml.safe_load(recipe) | folders, "work")

    problems = table["problem"][table["problem"] != ""]
    assert problems.is_unique
    matches = map(PLACE.fullmatch, problems)
    places = {(match[1], int(match[2].replace(",", ""))) for match in matches}
    assert {places_of_shard[0] for places_of_shard in lost} <= places
    assert places <= set(chain(*lost))
    written = Path("work/part-1")
    assert read_images(written) == images
    assert shards["count"].sum() == len(images)
    assert json.loads((written / "labels.json").read_text())["classes"] == CLASSES
    assert verify_parts([str(written)]).faults.empty
