"""01 to 04 as one call, and small inputs in the layout of each recipe."""

from PIL import Image

from kaggle_tfr import deduplicate, explore, plan
from kaggle_tfr.explore import load_images
from kaggle_tfr.parameters import DEFAULTS, check_parameters, load_recipe
from kaggle_tfr.plan import read_plan
from kaggle_tfr.storage import read_parquet
from kaggle_tfr.write import account_parts, write_parts
from kaggle_tfr_sample import write_sample
from support.layouts import draw
from support.readers import make_example, write_shard
from support.scenes import saved, scene

SMALL = 1 / 6  # `scale` of the bundled sample for tests


def run_chain(recipe, work, **changes):
    """Run 01 to 04 with a recipe; return the images, the plan's table and the shards.

    recipe: the name of a bundled one, or a path.
    """
    values = load_recipe(str(recipe))
    if "INPUT_DIR" in changes:  # which lacks the other files and columns of the recipe
        for name in ("MORE_INPUTS", "GROUP_COLUMN", "OVERRIDES", "COMPARE_WITH"):
            values.pop(name, None)
    return run_values(values | changes, work)


def run_values(changes, work):
    """As `run_chain`, with parameters in place of a recipe; nothing is verified."""
    values = DEFAULTS | changes | {"WORK_DIR": work}
    check_parameters(values)
    for step in (explore, deduplicate, plan):
        step.run(values)
    shards = write_parts(work, work)
    account_parts(read_plan(work), shards, work)
    images, _ = load_images(work)
    return images, read_parquet(f"{work}/plan.parquet"), shards


def write_small_sample(folder):
    """Write the sample with a sixth of its pictures and all that is planted in it."""
    return write_sample(str(folder), SMALL)


def write_sample_dataset(folder):
    """Write the small sample to in/, and run 01 to 04 on it in work/sample/."""
    inputs = folder / "in"
    work = str(folder / "work/sample")
    write_small_sample(inputs)
    more = load_recipe("sample")["MORE_INPUTS"]
    run_chain("sample", work, INPUT_DIR=str(inputs), MORE_INPUTS=more)
    # `publish` needs a license, and `COMPARE_WITH` the hashes.
    write_parts(work, license_name="other", publish_hashes=True)


def draw_pictures(count, height, width):
    """Return different images of this size, with coloured areas and fine details."""
    pictures = []
    for seed in range(count):
        details = scene(height, width, seed)
        pictures.append(Image.blend(draw(seed, details.size), details, 0.3))
    return pictures


def make_input(recipe, folder, pictures=()):
    """Write images in the layout of the recipe's dataset, by default 60 small ones."""
    pictures = pictures or draw_pictures(60, 120, 160)
    if recipe == "petals-tfrecords":
        _write_shards(pictures, folder)
    elif recipe in ("petals", "flowers", "imagenet"):
        for k, picture in enumerate(pictures):
            path = folder / "abc"[k % 3] / f"{k}.jpg"
            if recipe == "imagenet":
                split = ("train", "train", "val", "test")[k % 4]
                path = folder / split / "abc"[k % 3] / f"{k}.JPEG"
            save_picture(picture, path)
    else:
        _write_with_csv(recipe, pictures, folder)


def _write_with_csv(recipe, pictures, folder):
    """Write train.csv and its images; of masks, one row per image and label."""
    header = "image_id,label\n"
    rows = []
    for k, picture in enumerate(pictures):
        name = f"{k:04d}ab"
        path = folder / "train_images" / f"{name}.jpg"
        if recipe == "landmark-2021":
            header = "id,landmark_id\n"
            path = folder / f"train/0/0/{name[2]}/{name}.jpg"
            rows.append(f"{name},{k % 3 * 500}\n")
        elif recipe == "clouds":
            header = "Image_Label,EncodedPixels\n"
            gravel = "" if k % 2 else "7 9"
            codes = {"Fish": "1 500", "Flower": "", "Gravel": gravel, "Sugar": ""}
            rows += [f"{name}.jpg_{label},{code}\n" for label, code in codes.items()]
        else:
            rows.append(f"{name}.jpg,{k % 3}\n")
        save_picture(picture, path)
    (folder / "train.csv").write_text(header + "".join(rows))


def _write_shards(pictures, folder):
    """Write shards of 15 records: three of train, one of val."""
    for first in range(0, 60, 15):
        records = [
            make_example(
                **{"image": saved(pictures[k]), "class": 40 + k % 3}, id=b"%d" % k
            )
            for k in range(first, first + 15)
        ]
        split = "train" if first < 45 else "val"
        write_shard(folder / split / f"{first:02d}-160x120-15.tfrec", records)


def save_picture(picture, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)
