"""Copy a folder of photographs, and add two altered copies of some of them.

python -m benchmarks.flowers_copies OUT [--data DIR] [--n N]

DIR has a folder for each class. The first copy is what a website makes: smaller, and
saved again. The second is what a person makes: cut by a tenth, and brighter. Notebooks
01, 02 and 07 on OUT measure what such copies add to a network's score.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from benchmarks.copies import crop

SEED = 0


def shrink(image: Image.Image) -> Image.Image:
    """Return the image at three quarters of its size."""
    size = (image.width * 3 // 4, image.height * 3 // 4)
    return image.resize(size, Image.Resampling.LANCZOS)


def cut_and_brighten(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a window of 90 % of each side, at a random place, 15 % brighter."""
    x, y = rng.random(2)
    return ImageEnhance.Brightness(crop(image, 0.9, x, y)).enhance(1.15)


def write_copies(data: Path, out: Path, count: int) -> None:
    """Copy the folder, then add two copies of `count` photographs drawn at random."""
    shutil.copytree(data, out)
    rng = np.random.default_rng(SEED)
    files = sorted(out.glob("*/*.jpg"))
    for file in rng.choice(np.array(files, object), count, replace=False):
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        shrink(image).save(file.with_name(f"{file.stem}-small.jpg"), quality=70)
        changed = cut_and_brighten(image, rng)
        changed.save(file.with_name(f"{file.stem}-cut.jpg"), quality=85)


def main() -> None:
    """Write the folder that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default="../shared/data/flowers")
    parser.add_argument("--n", type=int, default=1000, help="photographs with copies")
    options = parser.parse_args()
    write_copies(options.data, options.out, options.n)
    print(f"{len(list(options.out.glob('*/*.jpg'))):,} images in {options.out}")


if __name__ == "__main__":
    main()
