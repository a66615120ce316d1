"""How often an image's file is opened on its way into a shard."""

import sys
from collections import Counter

import pytest
from support.scenes import saved, scene

from kaggle_tfr import deduplicate, explore, plan, write
from kaggle_tfr.parameters import make_settings
from kaggle_tfr.schema import load_schema

opened = Counter()


@pytest.fixture(scope="module")
def _count_opens():
    """Count the files that Python opens; an audit hook cannot be removed."""

    def count(event, arguments):
        if event == "open" and "counted-opens" in str(arguments[0]):
            opened[str(arguments[0])] += 1

    sys.addaudithook(count)


def count_openings(images):
    """Return how often each image was opened."""
    return [opened[path] for path in images["path"]]


@pytest.mark.usefixtures("_count_opens")
def test_an_image_is_opened_once_before_the_plan_and_once_for_writing(tmp_path):
    """01 measures and hashes it at once; 02 opens no image, and 04 opens each once.

    The forecast converts a sample, here 30 of 50. A second run of 01 opens none.
    """
    folder = tmp_path / "counted-opens"
    work = str(tmp_path / "work")
    for number in range(50):
        path = folder / f"class-{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(scene(60, 80, number)))

    opened.clear()
    listed, labels = explore.read_table(str(folder), explore.InputSettings())
    images = explore.measure(listed, labels, work)
    explore.save_images(images, labels, work)
    hashes = explore.load_hashes(images, work)
    pairs = deduplicate.find_pairs(hashes, 25)
    deduplicate.find_clusters(images, pairs)
    assert count_openings(images) == [1] * 50
    explore.measure(listed, labels, work)
    assert opened.total() == 50

    opened.clear()
    settings = make_settings(plan.PlanSettings, {"N_FOLDS": 2, "IMAGE_SIZE": 32})
    folded = plan.assign_folds(images.assign(cluster=-1), n_folds=2, seed=0)
    schema = load_schema("default", folded, labels)
    forecast = plan.make_forecast(folded, schema, settings.image)
    assert opened.total() == 30
    assert max(opened.values()) == 1
    written_plan, table = plan.make_plan(folded, forecast, labels, schema, settings)
    plan.save_plan(written_plan, table, work)

    opened.clear()
    write.write_parts(work, work)
    assert count_openings(images) == [1] * 50
