"""A small competition in Kaggle's layout, with known faults and duplicates planted in it.

The pictures are crops of photographs inside scikit-learn and Matplotlib (README, "Licence", says
by whom): nothing is downloaded.
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

from kaggle_tfr.mounts import KAGGLE_TEMP, KAGGLE_WORKING, find_input
from kaggle_tfr.storage import explain_os_errors, real_path, write_atomically

# class: photograph, factors of red, green and blue, number of different pictures
CLASSES = {
    "flower": ("sklearn.datasets.images/flower.jpg", (1.0, 1.0, 1.0), 120),
    "night": ("sklearn.datasets.images/china.jpg", (0.25, 0.3, 0.7), 3),
    "portrait": (
        "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
        (1.0, 1.0, 1.0),
        90,
    ),
    "sunset": ("sklearn.datasets.images/china.jpg", (1.15, 0.75, 0.4), 70),
    "temple": ("sklearn.datasets.images/china.jpg", (1.0, 1.0, 1.0), 140),
}

# Pictures' outlines differ in 40 of 128 bits, hashes then in some 60 of 256; a flat sky has none.
MIN_DIFFERENCE, MIN_CONTRAST = 40, 25  # bits; standard deviation in grey levels
SHORT_SIDE, LONG_SIDE = 150, 1600
COMMON = (
    "flower",
    "portrait",
    "sunset",
    "temple",
)  # classes of the test and the further images
N_TEST, N_MORE = 51, 35  # different pictures; what is planted comes on top
OTHER_NAME = {"flower": "blossom"}  # of a class in the second source


def input_or_sample(input_dir: str, work: str) -> str:
    """The input folder, never the work folder; for "" the sample's, made if missing, in `work`.

    On Kaggle outside of it: the work folder is the session's output there.
    """
    if input_dir:
        found = find_input(input_dir)
        if real_path(found) == real_path(work):
            raise ValueError(
                f"WORK_DIR and INPUT_DIR are both '{found}'. Set WORK_DIR to another."
            )
        return found
    folder = os.path.join(
        KAGGLE_TEMP if work.startswith(KAGGLE_WORKING) else work, "sample"
    )
    write_sample(folder)
    return folder


def write_sample(folder: str) -> dict[str, Any]:
    """`truth.json`: every planted case, after writing the competition's files beside it.

    train.csv, train_images/; sample_submission.csv, test_images/; and a second source in more/.
    The same bytes every time, 18 MB. A complete folder is left as it is.
    """
    path = Path(folder, "truth.json")
    if not path.exists():
        Path(folder).mkdir(parents=True, exist_ok=True)
        tables, files, truth = _make_everything()
        for name, rows in tables.items():
            files[name] = "\n".join(
                ["image_id,label", *map(",".join, rows), ""]
            ).encode()
        for place, data in files.items():
            Path(folder, place).parent.mkdir(parents=True, exist_ok=True)
            with explain_os_errors(Path(folder, place)):
                Path(folder, place).write_bytes(data)
        write_atomically(str(path), json.dumps(truth, indent=2).encode())
    return json.loads(path.read_bytes())


def _make_everything() -> tuple[dict[str, list], dict[str, bytes], dict[str, Any]]:
    """Rows (image_id, label) by CSV, file content by path, and the truth about all."""
    rng, seen = np.random.default_rng(20_240_601), np.empty((0, 128), bool)
    pictures, seen = _draw_pictures(
        rng, {name: CLASSES[name][2] for name in CLASSES}, seen
    )
    names = [f"{number:04d}" for number in rng.permutation(len(pictures) + 100)]
    labels, files = dict[str, str](), dict[str, bytes]()

    def add(label: str | None, data: bytes | None, suffix: str = ".jpg") -> str:
        image_id = names.pop() + suffix
        labels.update({} if label is None else {image_id: label})
        files.update({} if data is None else {f"train_images/{image_id}": data})
        return image_id

    # The rare class keeps its three good pictures; copies shrink to half, so they start large.
    common = rng.permutation(
        [i for i, (label, _) in enumerate(pictures) if label != "night"]
    )
    large = [i for i in common if min(pictures[i][1].size) >= 2 * SHORT_SIDE]
    others = [i for i in common if i not in large[:12]][:8]
    kept = {
        i: add(label, _save(one))
        for i, (label, one) in enumerate(pictures)
        if i not in others
    }
    copied = [(kept[i], *pictures[i]) for i in large if i in kept]
    truth = _plant_copies(copied[:12], files, add)
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
    test, more, planted = _make_others(seen, copied[12:25], files)
    # Inputs: the rows and the file without one. Duplicates: 3 × 3, two in the group of three, and
    # those of the second source.
    counts = {"rows": len(labels), "inputs": len(labels) + 1 + len(test) + len(more)}
    counts |= {
        "refused": len(refused) + 1,
        "duplicates": 11 + len(planted["across_sources"]),
    }
    counts |= {
        "conflicts": 4,
        "test_refused": 1,
        "test": len(test) - 1,
        "classes": len(CLASSES),
    }
    counts["written"] = len(labels) - len(refused) - 11 - 4 + N_MORE
    tables = {"train.csv": sorted(labels.items()), "sample_submission.csv": test}
    return (
        tables | {"more/train.csv": more},
        files,
        truth | planted | {"counts": counts},
    )


def _make_others(
    seen: np.ndarray, originals: Sequence[Any], files: dict[str, bytes]
) -> tuple[list, list, dict[str, Any]]:
    """Rows of the test images and of the second source, and what is planted in them.

    originals: 13 (id, label, picture) of the labelled images: 8 of them leak, 5 come again.
    """
    rng, truth = np.random.default_rng(20_240_602), dict[str, Any]()
    wanted = {label: -(-(N_TEST + N_MORE) // len(COMMON)) for label in COMMON}
    drawn = _draw_pictures(rng, wanted, seen)[0]
    drawn = [drawn[i] for i in rng.permutation(len(drawn))[: N_TEST + N_MORE]]
    copies = []
    for number, (image_id, label, one) in enumerate(originals):
        bright = one.point(lambda value: min(255, int(value * 1.15)))
        exact = files[f"train_images/{image_id}"]
        made = exact, _save(one, 65), _save(one.reduce(2), 65), _save(bright, 65)
        copies.append((image_id, label, made[number % 4]))
    pool = [("", label, _save(one)) for label, one in drawn]
    damaged = ("", "", pool[0][2][: len(pool[0][2]) // 2])
    test, leaks = [*pool[:N_TEST], *copies[:8], damaged], dict[str, str]()
    numbers = rng.permutation(len(test)) + 1000
    for number, (original, label, data) in zip(numbers.tolist(), test, strict=True):
        name = f"{number}.jpg"
        files[f"test_images/{name}"] = data
        leaks |= {name: original} if original else {}
        truth.setdefault("test_labels", {})[name] = label
    truth |= {"leaks": leaks, "test_refused": {f"{numbers[-1]}.jpg": "truncated"}}
    more, again = list[tuple[str, str]](), dict[str, str]()
    for number, (original, label, data) in enumerate([*copies[8:], *pool[N_TEST:]]):
        name = f"{number:04d}.jpg"  # as some of the main source are called
        files[f"more/images/{name}"] = data
        again |= {name: original} if original else {}
        more.append((name, OTHER_NAME.get(label, label)))
    most = [(f"{number}.jpg", COMMON[0]) for number in sorted(numbers.tolist())]
    return most, more, truth | {"across_sources": again}


def _draw_pictures(
    rng: np.random.Generator, wanted: dict[str, int], seen: np.ndarray
) -> tuple[list[tuple[str, Image.Image]], np.ndarray]:
    """(class, picture): different crops of any place and scale, upright, magnified 4 times at most.

    wanted: how many of each class. seen: bool (n, 128), outlines of those drawn; returned with the
    new ones.
    """
    pictures = list[tuple[str, Image.Image]]()
    for label, count in wanted.items():
        source, factors, _ = CLASSES[label]
        package, name = source.split("/", 1)
        photo = Image.open(io.BytesIO((files_of(package) / name).read_bytes())).convert(
            "RGB"
        )
        luma = photo.convert("L")
        curve = [
            min(255, int(value * factor)) for factor in factors for value in range(256)
        ]
        total = len(pictures) + count
        while len(pictures) < total:
            box = _draw_box(photo, rng)
            grey = np.asarray(luma.resize((9, 8), Image.Resampling.BOX, box), float)
            bits = np.append(
                grey[:, :8] > grey[:, :8].mean(), grey[:, 1:] > grey[:, :-1]
            )
            if (
                grey.std() < MIN_CONTRAST
                or ((seen != bits).sum(axis=1) < MIN_DIFFERENCE).any()
            ):
                continue
            seen, crop = np.vstack([seen, bits]), photo.crop(box)
            short, long = sorted(crop.size)
            limit = min(4 * short, LONG_SIDE * short / long)
            scale = np.exp(rng.uniform(np.log(SHORT_SIDE), np.log(limit))) / short
            size = np.clip(
                np.rint(scale * np.array(crop.size)), SHORT_SIDE, LONG_SIDE
            ).astype(int)
            crop = crop.resize(size.tolist(), Image.Resampling.BICUBIC)
            pictures.append((label, crop.point(curve)))
    return pictures, seen


def _draw_box(
    photo: Image.Image, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a part of the photograph, 80 pixels or more each way."""
    height = 0
    while not 80 <= height <= photo.height:
        width = int(np.exp(rng.uniform(np.log(80), np.log(photo.width))))
        height = int(width * np.exp(rng.uniform(-0.5, 0.5)))
    left, top = (
        int(rng.integers(n + 1)) for n in (photo.width - width, photo.height - height)
    )
    return left, top, left + width, top + height


def _save(
    picture: Image.Image, quality: int = 88, form: str = "JPEG", **options: Any
) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, form, quality=quality, **options)
    return stream.getvalue()


def _plant_copies(
    originals: Sequence[Any], files: dict[str, bytes], add: Callable[..., str]
) -> dict[str, Any]:
    """Copies such as people's datasets have. originals: 12 (id, label, picture)."""

    def copy(
        number: int, quality: int = 0, *, half: bool = False, label: str = ""
    ) -> list[str]:
        first, own, picture = originals[number]
        exact = files[f"train_images/{first}"]
        data = (
            _save(picture.reduce(2) if half else picture, quality) if quality else exact
        )
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


def _plant_unusual_formats(
    pictures: Sequence[Any], add: Callable[..., str]
) -> dict[str, Any]:
    """Good pictures that careless readers turn on their side, swap, clip or refuse."""
    labels, (tall, grey, cmyk, faded, deep, web) = zip(*pictures, strict=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be shown turned by a quarter, clockwise
    turned = add(labels[0], _save(tall.transpose(Image.Transpose.ROTATE_90), exif=exif))
    faded.putalpha(Image.linear_gradient("L").resize(faded.size))
    deep = Image.fromarray(np.asarray(deep.convert("L"), np.uint16) * 257)
    odd = {
        add(labels[1], _save(grey.convert("L"))): "grey JPEG",
        add(labels[2], _save(cmyk.convert("CMYK"))): "CMYK JPEG",
        add(labels[3], _save(faded, form="PNG"), ".png"): "PNG with alpha",
        add(labels[4], _save(deep, form="PNG"), ".png"): "16-bit PNG",
        add(labels[5], _save(web, form="WEBP"), ".webp"): "WebP",
    }
    size = {"height": tall.height, "width": tall.width}
    return {"orientation_6": {"image_id": turned, **size}, "odd_formats": odd}
