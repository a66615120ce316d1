"""docs/recover.md: a damaged part is the input, and its whole records are saved."""

import json
import random
import re
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from support.chain import run_values
from support.plans import make_images, plan_images, read_images

from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import write_parts

N_SHARDS = 100
RECORDS_PER_SHARD = 4
PLACE = re.compile(r"'(.*)' at byte ([\d,]+): the record is damaged")


def list_offsets(shard):
    """Return the offset of each frame, and the size of the file."""
    data = shard.read_bytes()
    offsets = [0]
    while offsets[-1] < len(data):
        length = int.from_bytes(data[offsets[-1] :][:8], "little")
        offsets.append(offsets[-1] + length + 16)
    return offsets


def flip_a_byte(data, rng):
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)


def truncate(data, rng):
    del data[rng.randrange(len(data)) :]


def tear_frames(data, rng):
    """Replace up to half of the shard by zeros, heads of frames included."""
    start = rng.randrange(len(data))
    length = min(rng.randrange(1, len(data) // 2), len(data) - start)
    data[start : start + length] = bytes(length)


@pytest.fixture(scope="module")
def whole_part(tmp_path_factory):
    work = tmp_path_factory.mktemp("recover")
    table = make_images(work / "in", N_SHARDS * RECORDS_PER_SHARD, sizes=(24, 40))
    plan_images(table, work, size=0, n_shards=N_SHARDS, max_part_files=200)
    write_parts(str(work))
    return work / "part-1"


@pytest.fixture
def damaged_part(whole_part, tmp_path):
    """A copy of the part with one flipped byte, a cut or torn frames in each shard.

    images: {image_id: (bytes, label)} of the undamaged records.
    lost: (path of the shard, offset in bytes) of each other record.
    first_lost: the first one of each shard.
    """
    rng = random.Random(20_261_123)
    folder = tmp_path / "part"
    part = SimpleNamespace(folder=folder, images={}, lost=set(), first_lost=set())
    shutil.copytree(whole_part, part.folder)
    for number, shard in enumerate(sorted(part.folder.glob("*.tfrec"))):
        before = shard.read_bytes()
        places = pairwise(list_offsets(shard))
        images = read_images(part.folder, shard.name)
        after = bytearray(before)
        (flip_a_byte, truncate, tear_frames)[number % 3](after, rng)
        shard.write_bytes(after)

        lost = []
        for (image_id, image), (start, end) in zip(images.items(), places, strict=True):
            if after[start:end] == before[start:end]:
                part.images[image_id] = image
            else:
                lost.append((str(shard), start))
        part.lost.update(lost)
        part.first_lost.update(lost[:1])
    return part


def list_places(problems):
    """Return shard and offset of each problem; no place may be named twice."""
    assert problems.is_unique
    matches = map(PLACE.fullmatch, problems)
    return {(match[1], int(match[2].replace(",", ""))) for match in matches}


def test_the_recipe_writes_all_undamaged_records_to_new_shards(damaged_part, root):
    """Image bytes, labels and classes stay; the first lost records are named."""
    page = (root / "docs" / "recover.md").read_text()
    (recipe,) = re.findall(r"```yaml.*?\n(.*?)```", page, re.DOTALL)
    folders = {"INPUT_DIR": str(damaged_part.folder), "WORK_DIR": "work"}

    images, _, shards = run_values(yaml.safe_load(recipe) | folders, "work")

    problems = images["problem"][images["problem"] != ""]
    places = list_places(problems)
    assert damaged_part.first_lost <= places <= damaged_part.lost
    written = Path("work/part-1")
    assert read_images(written) == damaged_part.images
    labels = (written / "labels.json").read_text()
    saved = (damaged_part.folder / "labels.json").read_text()
    assert json.loads(labels)["classes"] == json.loads(saved)["classes"]
    assert shards["count"].sum() == len(damaged_part.images)
    assert verify_parts([str(written)]).faults.empty
