"""A small competition in Kaggle's layout, with known faults and duplicates planted in it.

The pictures are crops of photographs inside scikit-learn and Matplotlib: nothing is downloaded.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kaggle_tfr.paths import find_input
from kaggle_tfr.storage import write_atomically

# class: photograph, factors of red, green and blue, number of different pictures
CLASSES = {
    "flower": ("sklearn.datasets.images/flower.jpg", (1.0, 1.0, 1.0), 120),
    "night": ("sklearn.datasets.images/china.jpg", (0.25, 0.3, 0.7), 3),
    "portrait": ("matplotlib/mpl-data/sample_data/grace_hopper.jpg", (1.0, 1.0, 1.0), 90),
    "sunset": ("sklearn.datasets.images/china.jpg", (1.15, 0.75, 0.4), 70),
    "temple": ("sklearn.datasets.images/china.jpg", (1.0, 1.0, 1.0), 140),
}

# Pictures' outlines differ in 40 of 128 bits, hashes then in some 60 of 256; a flat sky has none.
MIN_DIFFERENCE, MIN_CONTRAST = 40, 25  # bits; standard deviation in grey levels
SHORT_SIDE, LONG_SIDE = 150, 1600


def input_or_sample(input_dir: str, work: str) -> str:
    """The existing input folder; for "" the sample's, written to `work`/sample when missing."""
    if input_dir:
        return find_input(input_dir)
    write_sample(os.path.join(work, "sample"))
    return os.path.join(work, "sample")


def write_sample(folder: str) -> dict[str, Any]:
    """`truth.json`: every planted case, after writing `train.csv` and `train_images/` beside it.

    The same bytes every time, 15 MB. A complete folder is left as it is.
    """
    path = Path(folder, "truth.json")
    if not path.exists():
        labels, files, truth = _make_everything()
        path.with_name("train_images").mkdir(parents=True, exist_ok=True)
        for image_id, data in files.items():
            Path(folder, "train_images", image_id).write_bytes(data)
        rows = ["image_id,label", *map(",".join, sorted(labels.items())), ""]
        write_atomically(f"{folder}/train.csv", "\n".join(rows).encode())
        write_atomically(str(path), json.dumps(truth, indent=2).encode())
    return json.loads(path.read_bytes())


def _make_everything() -> tuple[dict[str, str], dict[str, bytes], dict[str, Any]]:
    """Labels by image id, file content by image id, and the truth about both."""
    rng = np.random.default_rng(20_240_601)
    pictures = _draw_pictures(rng)
    names = [f"{number:04d}" for number in rng.permutation(len(pictures) + 100)]
    labels, files = dict[str, str](), dict[str, bytes]()

    def add(label: str | None, data: bytes | None, suffix: str = ".jpg") -> str:
        image_id = names.pop() + suffix
        labels.update({} if label is None else {image_id: label})
        files.update({} if data is None else {image_id: data})
        return image_id

    # The rare class keeps its three good pictures; copies shrink to half, so they start large.
    common = rng.permutation([i for i, (label, _) in enumerate(pictures) if label != "night"])
    large = [i for i in common if min(pictures[i][1].size) >= 2 * SHORT_SIDE][:12]
    others = [i for i in common if i not in large][:8]
    kept = {i: add(label, _save(one)) for i, (label, one) in enumerate(pictures) if i not in others}
    truth = _plant_copies([(kept[i], *pictures[i]) for i in large], files, add)
    truth |= _plant_unusual_formats([pictures[i] for i in others[:6]], add)
    whole, without_row = (_save(pictures[i][1]) for i in others[6:])
    refused = {
        add("temple", whole[: len(whole) * 6 // 10]): "truncated",
        add("flower", b""): "empty file",
        add("portrait", b"This is a text, whatever its name says.\n"): "not an image",
        add("sunset", None): "missing file",
    }
    truth |= {"refused": refused, "unlisted": add(None, without_row)}
    truth["classes"] = {name: list(labels.values()).count(name) for name in CLASSES}
    # Inputs: the rows and the file without one. Duplicates: 3 × 3, and two in the group of three.
    counts = {"rows": len(labels), "files": len(files), "inputs": len(labels) + 1}
    counts |= {"refused": len(refused) + 1, "duplicates": 11, "conflicts": 4}
    counts["written"] = counts["inputs"] - counts["refused"] - 11 - 4
    return labels, files, truth | {"counts": counts | {"classes": len(CLASSES)}}


def _draw_pictures(rng: np.random.Generator) -> list[tuple[str, Image.Image]]:
    """(class, picture): different crops of any place, scale and turn, magnified 4 times at most."""
    pictures, seen = list[tuple[str, Image.Image]](), np.empty((0, 128), bool)
    for label, (source, factors, count) in CLASSES.items():
        package, name = source.split("/", 1)
        photo = Image.open(io.BytesIO((files_of(package) / name).read_bytes())).convert("RGB")
        curve = [min(255, int(value * factor)) for factor in factors for value in range(256)]
        wanted = len(pictures) + count
        while len(pictures) < wanted:
            crop = _draw_crop(photo, rng)
            grey = np.asarray(crop.convert("L").resize((9, 8), Image.Resampling.BOX), float)
            bits = np.append(grey[:, :8] > grey[:, :8].mean(), grey[:, 1:] > grey[:, :-1])
            if grey.std() < MIN_CONTRAST or ((seen != bits).sum(axis=1) < MIN_DIFFERENCE).any():
                continue
            seen = np.vstack([seen, bits])
            short, long = sorted(crop.size)
            limit = min(4 * short, LONG_SIDE * short / long)
            scale = np.exp(rng.uniform(np.log(SHORT_SIDE), np.log(limit))) / short
            size = np.clip(np.rint(scale * np.array(crop.size)), SHORT_SIDE, LONG_SIDE).astype(int)
            crop = crop.resize(size.tolist(), Image.Resampling.BICUBIC)
            pictures.append((label, crop.point(curve)))
    return pictures


def _draw_crop(photo: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A rectangle of the photograph, 80 pixels or more each way, in one of its 8 orientations."""
    height = 0
    while not 80 <= height <= photo.height:
        width = int(np.exp(rng.uniform(np.log(80), np.log(photo.width))))
        height = int(width * np.exp(rng.uniform(-0.5, 0.5)))
    left, top = (int(rng.integers(n + 1)) for n in (photo.width - width, photo.height - height))
    crop = photo.crop((left, top, left + width, top + height))
    turn = int(rng.integers(8))
    return crop.transpose(Image.Transpose(turn - 1)) if turn else crop


def _save(picture: Image.Image, quality: int = 88, form: str = "JPEG", **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, form, quality=quality, **options)
    return stream.getvalue()


def _plant_copies(
    originals: Sequence[Any], files: dict[str, bytes], add: Callable[..., str]
) -> dict[str, Any]:
    """Copies such as people's datasets have. originals: 12 (id, label, picture)."""

    def copy(number: int, quality: int = 0, *, half: bool = False, label: str = "") -> list[str]:
        first, own, picture = originals[number]
        data = _save(picture.reduce(2) if half else picture, quality) if quality else files[first]
        return [first, add(label or own, data)]

    other = ["temple" if originals[10][1] != "temple" else "sunset"]
    other.append("flower" if originals[11][1] != "flower" else "portrait")
    return {
        "exact_copies": [copy(i) for i in (0, 1, 2)],
        "reencoded_copies": [copy(i, 60) for i in (3, 4, 5)],
        "half_size_copies": [copy(i, 70, half=True) for i in (6, 7, 8)],
        "group_of_three": [*copy(9, 50), copy(9, 80, half=True)[1]],
        "label_conflicts": [copy(10, label=other[0]), copy(11, 60, label=other[1])],
    }


def _plant_unusual_formats(pictures: Sequence[Any], add: Callable[..., str]) -> dict[str, Any]:
    """Good pictures that careless readers turn on their side, swap, clip or refuse."""
    labels, (tall, grey, cmyk, faded, deep, web) = zip(*pictures, strict=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be shown turned by a quarter, clockwise
    turned = add(labels[0], _save(tall.transpose(Image.Transpose.ROTATE_90), exif=exif))
    faded.putalpha(Image.linear_gradient("L").resize(faded.size))
    deep = Image.fromarray(np.asarray(deep.convert("L"), np.uint16) * 257)
    files = [
        (labels[1], _save(grey.convert("L")), ".jpg"),
        (labels[2], _save(cmyk.convert("CMYK")), ".jpg"),
        (labels[3], _save(faded, form="PNG"), ".png"),
        (labels[4], _save(deep, form="PNG"), ".png"),
        (labels[5], _save(web, form="WEBP"), ".webp"),
    ]
    kinds = ("grey JPEG", "CMYK JPEG", "PNG with alpha", "16-bit PNG", "WebP")
    size = {"height": tall.height, "width": tall.width}
    odd = {add(*file): kind for file, kind in zip(files, kinds, strict=True)}
    return {"orientation_6": {"image_id": turned, **size}, "odd_formats": odd}
