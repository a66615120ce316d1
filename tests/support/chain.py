"""The chain of the notebooks as one function, and small inputs in the layout of each dataset."""

import importlib.resources
from pathlib import Path

import numpy as np
from PIL import Image

from kaggle_tfr.deduplicate.clusters import (
    DuplicateSettings,
    choose_rows,
    count_outcomes,
    find_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.hashing import hash_images
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.explore.rows import InputSettings, read_table
from kaggle_tfr.explore.table import measure, save_images
from kaggle_tfr.notebook import account
from kaggle_tfr.parameters import DEFAULTS, check_parameters, load_recipe, settings
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.forecast import make_forecast
from kaggle_tfr.plan.make import make_plan
from kaggle_tfr.plan.plan import PlanSettings, save_plan
from kaggle_tfr.schema import load_schema
from kaggle_tfr.write.parts import write_parts

ROOT = Path(__file__).resolve().parent.parent.parent


def run_chain(recipe, work, **changes):
    """(images, table, shards) of a recipe: what 01_explore to 04_write do, but for the figures."""
    values = DEFAULTS | load_recipe(str(ROOT / "recipes" / f"{recipe}.yaml")) | changes
    check_parameters(values)
    images, labels = read_table(values["INPUT_DIR"], settings(InputSettings, values))
    images = measure(images, labels)
    save_images(images, labels, work)
    pairs = find_pairs(hash_images(images, work), values["MAX_BITS"])
    rules = {"keep": values["KEEP"], "conflicts": values["CONFLICTS"]}
    clusters = find_clusters(images, pairs, kind=labels.kind, **rules)
    save_clusters(clusters, DuplicateSettings(values["MAX_BITS"]), work)
    table, shards = _plan_and_write(choose_rows(images, clusters), labels, work, values)
    counts = count_outcomes(images, clusters)
    account({**counts, "written": int(shards["count"].sum())}, len(images))
    return images, table, shards


def _plan_and_write(rows, labels, work, values):
    chosen = settings(PlanSettings, values)
    folded = assign_folds(
        rows,
        n_folds=chosen.n_folds,
        seed=chosen.seed,
        validation_size=chosen.validation_size,
        group_column=chosen.group_column,
        label_columns=labels.label_columns,
    )
    schema, image = load_schema(values["SCHEMA"], rows, labels), chosen.image
    same = {"compression": chosen.compression, "seed": chosen.seed}
    forecast = make_forecast(folded, schema, image, **same)
    plan, table = make_plan(folded, forecast, labels, schema, image, chosen)
    save_plan(plan, table, work)
    return table, write_parts(work, work)


def draw_pictures(count, height, width):
    """So many different photographs of that size: cells of three photographs, each way up."""
    packages = {
        "sklearn.datasets.images": ("china.jpg", "flower.jpg"),
        "matplotlib": ("mpl-data/sample_data/grace_hopper.jpg",),
    }
    cells = []
    for package, names in packages.items():
        for name in names:
            with importlib.resources.files(package).joinpath(name).open("rb") as file:
                photo = Image.open(file).convert("RGB")
            for top in range(0, photo.height - 99, 100):
                for left in range(0, photo.width - 99, 100):
                    cells.append(photo.crop((left, top, left + 100, top + 100)))
    cells = [cell for cell in cells if np.asarray(cell.convert("L")).std() > 30]
    turns = [None, *Image.Transpose]
    pictures = [cell if turn is None else cell.transpose(turn) for turn in turns for cell in cells]
    if count > len(pictures):
        raise ValueError(f"{count} pictures asked for, there are {len(pictures)}.")
    return [
        picture.resize((width, height), Image.Resampling.BICUBIC) for picture in pictures[:count]
    ]


def save_picture(picture, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)


def make_input(recipe, folder):
    """Some pictures in the layout of the recipe's dataset."""
    pictures = draw_pictures(60, 120, 160)
    if recipe in ("petals", "flowers"):
        for k, picture in enumerate(pictures):
            save_picture(picture, folder / "abc"[k % 3] / f"{k}.jpg")
    elif recipe == "imagenet":
        for k, picture in enumerate(pictures):
            place = f"{('train', 'train', 'val', 'test')[k % 4]}/n{k % 3}/{k}.JPEG"
            save_picture(picture, folder / place)
    else:
        _make_table(recipe, folder, pictures)


def _make_table(recipe, folder, pictures):
    head, rows = "image_id,label\n", []
    for k, picture in enumerate(pictures):
        name, place = f"{k:04d}ab", f"train_images/{k:04d}ab.jpg"
        if recipe == "landmark-2021":
            head, place = "id,landmark_id\n", f"train/0/0/{name[2]}/{name}.jpg"
            rows.append(f"{name},{k % 3 * 500}\n")
        elif recipe == "clouds":
            head = "Image_Label,EncodedPixels\n"
            codes = {"Fish": "1 500", "Flower": "", "Gravel": "" if k % 2 else "7 9", "Sugar": ""}
            rows += [f"{name}.jpg_{label},{code}\n" for label, code in codes.items()]
        else:
            rows.append(f"{name}.jpg,{k % 3}\n")
        save_picture(picture, folder / place)
    (folder / "train.csv").write_text(head + "".join(rows))
