"""A competition on the age of what an image shows, planned and written."""

import numpy as np
import pandas as pd
from PIL import Image

from kaggle_tfr import pipeline
from kaggle_tfr.explore import load_images, save_images
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.schema import Labels
from support.chain import draw_pictures, save_picture

COLUMN = "age_months"


def measure_age(path):
    """Return the age of an image: its brightness, which a network can learn."""
    with Image.open(path) as image:
        return np.asarray(image.convert("L")).mean() / 2.55 + 1


def write_ages(folder, values, n_images=72, n_tests=8):
    """Write the images and their CSVs, and run 01 to 04; return the parameters.

    The label of the last images is unknown: they are the tests.
    """
    source = folder / "in"
    for number, picture in enumerate(draw_pictures(n_images, 72, 96)):
        is_test = number >= n_images - n_tests
        split = "test_images" if is_test else "train_images"
        save_picture(picture, source / split / f"{number:03d}.jpg", quality=92)
    paths = sorted(source.glob("train_images/*"))
    names = pd.Series([path.name for path in paths])
    ages = pd.Series([measure_age(path) for path in paths])
    bins = pd.qcut(ages, 10)
    table = pd.DataFrame({"image_id": names, "label": bins.cat.codes.astype(str)})
    table.to_csv(source / "train.csv", index=False)
    tests = sorted(path.name for path in source.glob("test_images/*"))
    submission = pd.DataFrame({"image_id": [*tests, "lost.jpg"], "age": 0})
    submission.to_csv(source / "sample_submission.csv", index=False)

    work = str(folder / "work")
    values = DEFAULTS | {"INPUT_DIR": str(source), "WORK_DIR": work, **values}
    pipeline.explore_images(values, work)
    images, _ = load_images(work)
    edges = [f"{one.left:.4g} to {one.right:.4g}" for one in bins.cat.categories]
    labels = Labels("number", tuple(edges), (COLUMN,), name="bones")
    images["label_name"] = images["label"].map(dict(enumerate(edges))).fillna("")
    images[COLUMN] = images["image_id"].map(dict(zip(names, ages, strict=True)))
    save_images(images, labels, work)
    pipeline.deduplicate_images(values, work)
    pipeline.plan_dataset(values, work)
    pipeline.write_shards(values, work)
    return values
