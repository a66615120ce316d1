"""Small folders of pictures and CSVs, and their table, read with a few parameters."""

from PIL import Image

from kaggle_tfr.explore.inputs import read_table
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.parameters import make_settings


def put_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (32, 24), "teal").save(path)


def put_csv(folder, text, images=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_text(text, encoding="utf-8")
    for name in images:
        put_image(folder / "train_images" / name)
    return folder


def read(folder, **changes):
    chosen = {name.upper(): value for name, value in changes.items()}
    return read_table(str(folder), make_settings(InputSettings, chosen))
