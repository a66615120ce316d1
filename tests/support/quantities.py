"""A competition on the age of what an image shows, planned and written."""

import numpy as np

from support.chain import draw_pictures, run_values, save_picture

COLUMN = "age_months"
N_TRAIN = 64


def measure_age(picture):
    """Return the age of an image: its brightness, which a network can learn."""
    return np.asarray(picture.convert("L")).mean() / 2.55 + 1


def write_ages(folder, values):
    """Write the images and their CSVs, and run 01 to 04; return the work folder.

    The label of the last images is unknown: they are the tests.
    """
    source = folder / "in"
    rows = [f"image_id,{COLUMN}"]
    tests = ["image_id,age"]
    for number, picture in enumerate(draw_pictures(N_TRAIN + 8, 72, 96)):
        name = f"{number:03d}.jpg"
        is_train = number < N_TRAIN
        split = "train_images" if is_train else "test_images"
        save_picture(picture, source / split / name, quality=92)
        if is_train:
            rows.append(f"{name},{measure_age(picture)}")
        else:
            tests.append(f"{name},0")
    (source / "train.csv").write_text("\n".join(rows))
    (source / "sample_submission.csv").write_text("\n".join([*tests, "lost.jpg,0"]))

    work = str(folder / "work")
    labels = {"LABEL_COLUMN": COLUMN, "LABEL_KIND": "number"}
    run_values({"INPUT_DIR": str(source), **labels, **values}, work)
    return work
