"""Small folders of images and CSVs, and their table, read with a few parameters."""

from pathlib import Path

from PIL import Image

from kaggle_tfr.explore.inputs import read_table


def put_image(path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (32, 24), "teal").save(path)


def put(folder, images, texts=()):
    """Write images by their paths, and files by their texts; return the folder."""
    folder = Path(folder)
    for name in images:
        put_image(folder / name)
    for name, text in dict(texts).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def put_csv(folder, text, images=()):
    """Write train.csv, and images in a folder beside it; return the folder."""
    return put(folder, [f"train_images/{name}" for name in images], {"train.csv": text})


def read(folder=".", **changes):
    chosen = {name.upper(): value for name, value in changes.items()}
    return read_table(str(folder), chosen)


def read_cells(header, cells, **changes):
    """Write train.csv with a row and an image for each cell, and read it.

    header, cells: without the first column, image_id, which counts from 0.
    """
    rows = [f"{number},{cell}\n" for number, cell in enumerate(cells)]
    names = [f"{number}.jpg" for number in range(len(cells))]
    put_csv(".", "".join([f"image_id,{header}\n", *rows]), names)
    return read(**changes)


def rows_of(images, *columns):
    """Return {image_id: values of the columns}, a list if there are several."""
    values = images[columns[0] if len(columns) == 1 else list(columns)]
    return dict(zip(images["image_id"], values.to_numpy().tolist(), strict=True))
