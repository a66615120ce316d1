"""The chain of the notebooks as one function, and small inputs in the layout of each dataset."""

import importlib.resources
from pathlib import Path

import numpy as np
from PIL import Image

from kaggle_tfr.deduplicate.clusters import (
    choose_rows,
    count_outcomes,
    find_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.hashing import hash_images
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.explore.rows import read_table
from kaggle_tfr.explore.table import measure, save_images
from kaggle_tfr.notebook import account
from kaggle_tfr.parameters import PARAMETERS, check_parameters, load_recipe
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.plan import image_settings, make_forecast, make_plan, save_plan
from kaggle_tfr.schema import load_schema
from kaggle_tfr.write.parts import write_parts

ROOT = Path(__file__).resolve().parent.parent.parent


def run_chain(recipe, work, **changes):
    """(images, table, shards) of a recipe: what 01_explore to 04_write do, but for the figures."""
    values = PARAMETERS | load_recipe(str(ROOT / "recipes" / f"{recipe}.yaml")) | changes
    check_parameters(values)
    value = {name.lower(): given for name, given in values.items()}
    names = ["labels_csv", "id_column", "label_column", "path_template", "pattern", "limit"]
    names += ["label_map", "label_separator"]
    images = read_table(
        value["source"], value["input_dir"], **{name: value[name] for name in names}
    )
    images = measure(images)
    images.attrs["name"] = value["name"]
    save_images(images, work)
    pairs = find_pairs(hash_images(images, work), value["max_bits"])
    clusters = find_clusters(images, pairs, keep=value["keep"], conflicts=value["conflicts"])
    save_clusters(clusters, work)
    table, shards = _plan_and_write(choose_rows(images, clusters), work, value)
    counts = count_outcomes(images, clusters)
    account({**counts, "written": int(shards["count"].sum())}, len(images))
    return images, table, shards


def _plan_and_write(rows, work, value):
    folded = assign_folds(
        rows,
        n_folds=value["n_folds"],
        seed=value["seed"],
        validation_size=value["validation_size"],
        group_column=value["group_column"],
        label_columns=rows.attrs["label_columns"],
    )
    schema = load_schema(value["schema"], rows)
    image = image_settings(
        value["image_size"],
        value["resize"],
        resample=value["resample"],
        quality=value["quality"],
        subsampling=value["chroma"],
    )
    same = {name: value[name] for name in ("compression", "seed")}
    found = make_forecast(folded, schema=schema, image=image, **same)
    names = ["n_folds", "shard_mb", "n_shards", "shard_images", "shard_name", "part_limit_gb"]
    names += ["max_part_files"]
    plan, table = make_plan(
        folded,
        found,
        name=value["name"],
        schema=schema,
        image=image,
        **same,
        **{name: value[name] for name in names},
    )
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
