"""A small competition in Kaggle's layout, with known faults and duplicates in it.

The images are crops of photographs inside scikit-learn and Matplotlib (README,
"Licence", names their authors): nothing is downloaded.
"""

import io
import json
import os
from collections.abc import Iterable, Sequence
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kaggle_tfr.mounts import KAGGLE_TEMP, KAGGLE_WORKING, find_input
from kaggle_tfr.storage import explain_os_errors, real_path, write_atomically

_CHINA = "sklearn.datasets.images/china.jpg"
_HOPPER = "matplotlib/mpl-data/sample_data/grace_hopper.jpg"
# class: photograph, factors of red, green and blue, number of different images
CLASSES = {
    "flower": ("sklearn.datasets.images/flower.jpg", (1.0, 1.0, 1.0), 120),
    "night": (_CHINA, (0.25, 0.3, 0.7), 3),
    "portrait": (_HOPPER, (1.0, 1.0, 1.0), 90),
    "sunset": (_CHINA, (1.15, 0.75, 0.4), 70),
    "temple": (_CHINA, (1.0, 1.0, 1.0), 140),
}

# Outlines that differ in 40 of 128 bits make hashes that differ in some 60 of 256.
MIN_DIFFERENCE = 40  # bits
MIN_CONTRAST = 25  # standard deviation in grey levels: a flat sky has no outlines
SHORT_SIDE = 150  # pixels, at least
LONG_SIDE = 1600  # pixels, at most
MIN_CROP = 80  # pixels of the photograph
N_TEST = 51  # different test images; copies of labelled images come on top
N_MORE = 35  # different images of the second source; copies come on top
COMMON = ("flower", "portrait", "sunset", "temple")  # classes of these two
OTHER_NAME = {"flower": "blossom"}  # of a class in the second source

Drawn = tuple[str, Image.Image]  # class and image
Labelled = tuple[str, str, Image.Image]  # image_id, class and image
Box = tuple[int, int, int, int]  # left, top, right, bottom
Copy = tuple[str, str, bytes]  # image_id of the original or "", class, file content


def input_or_sample(input_dir: str, work: str) -> str:
    """Return the input folder; for "", that of the sample, which is written to `work`.

    On Kaggle the sample is outside of `work`, which is the output of the session there.
    Raises: ValueError: the input folder is `work`.
    """
    if not input_dir:
        parent = KAGGLE_TEMP if work.startswith(KAGGLE_WORKING) else work
        folder = os.path.join(parent, "sample")
        write_sample(folder)
        return folder
    folder = find_input(input_dir)
    if real_path(folder) == real_path(work):
        raise ValueError(
            f"WORK_DIR and INPUT_DIR are both '{folder}'. Set WORK_DIR to another."
        )
    return folder


def write_sample(folder: str) -> dict[str, Any]:
    """Write the competition unless it is complete, and return its `truth.json`.

    That file lists all planted cases. The others are train.csv, train_images/;
    sample_submission.csv, test_images/; and a second source in more/. 18 MB in all, the
    same bytes every time.
    """
    path = Path(folder, "truth.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        files, truth = _make_competition()
        for name, data in files.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            with explain_os_errors(file):
                file.write_bytes(data)
        write_atomically(str(path), json.dumps(truth, indent=2).encode())
    return json.loads(path.read_bytes())


class _ImageFolder:
    """The images of a folder and their rows in a CSV.

    labels: by image_id. files: content by path.
    """

    def __init__(self, path: str, names: list[str]) -> None:
        """Start without images. names: of the files to come, the last one first."""
        self.path = path
        self.names = names
        self.labels: dict[str, str] = {}
        self.files: dict[str, bytes] = {}

    def add(self, label: str | None, data: bytes | None, ending: str = ".jpg") -> str:
        """Add a row and a file, unless they are None; return the id."""
        image_id = self.names.pop() + ending
        if label is not None:
            self.labels[image_id] = label
        if data is not None:
            self.files[f"{self.path}/{image_id}"] = data
        return image_id


def _make_competition() -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the content of each file by its path, and what is planted in them."""
    rng = np.random.default_rng(20_240_601)
    other_rng = np.random.default_rng(20_240_602)
    other_count = -(-(N_TEST + N_MORE) // len(COMMON))  # of each class, rounded up
    requests = [(rng, name, count) for name, (_, _, count) in CLASSES.items()]
    n_train = sum(count for _, _, count in requests)
    requests += [(other_rng, name, other_count) for name in COMMON]
    images = _draw_images(requests)

    names = [f"{number:04d}" for number in rng.permutation(n_train + 100)]
    train = _ImageFolder("train_images", names)
    truth, originals = _plant_in_train(rng, train, images[:n_train])
    classes = list(train.labels.values())
    truth["classes"] = {name: classes.count(name) for name in CLASSES}
    others = _draw_in_order(other_rng, images[n_train:])
    copies = _copy_in_four_ways(originals, train.files)
    files = train.files | _make_others(other_rng, others, copies, truth)
    files["train.csv"] = _format_csv(sorted(train.labels.items()))
    truth["counts"] = _count_outcomes(truth, len(classes))
    return files, truth


def _format_csv(rows: Iterable[tuple[str, str]]) -> bytes:
    lines = ["image_id,label", *map(",".join, rows), ""]
    return "\n".join(lines).encode()


def _count_outcomes(truth: dict[str, Any], n_rows: int) -> dict[str, int]:
    """Return how many images have each outcome. n_rows: of train.csv."""
    n_test = len(truth["test_labels"])
    n_duplicates = 11  # 3 kinds of 3 copies, and 2 in the group of three
    n_refused = len(truth["refused"])
    n_again = len(truth["across_sources"])
    return {
        "rows": n_rows,
        "inputs": n_rows + 1 + n_test + N_MORE + n_again,  # 1 has no row
        "refused": n_refused + 1,
        "duplicates": n_duplicates + n_again,
        "conflicts": 4,  # both images of two pairs
        "test_refused": 1,
        "test": n_test - 1,
        "classes": len(CLASSES),
        "written": n_rows - n_refused - n_duplicates - 4 + N_MORE,
    }


def _plant_in_train(
    rng: np.random.Generator, train: _ImageFolder, images: Sequence[Drawn]
) -> tuple[dict[str, Any], Sequence[Labelled]]:
    """Add the labelled images; return what is planted, and 13 images to copy."""
    # The rare class keeps its three good images.
    common = [i for i, (label, _) in enumerate(images) if label != "night"]
    common = rng.permutation(common).tolist()
    # Some copies have half the size, so their originals are large.
    large = [i for i in common if min(images[i][1].size) >= 2 * SHORT_SIDE]
    unusual = [i for i in common if i not in large[:12]][:8]

    image_ids = {}
    for i, (label, image) in enumerate(images):
        if i not in unusual:
            image_ids[i] = train.add(label, _save(image))
    originals = [(image_ids[i], *images[i]) for i in large if i in image_ids]
    truth = _plant_copies(train, originals[:12])
    truth |= _plant_unusual_formats(train, [images[i] for i in unusual[:6]])
    truth |= _plant_faults(train, [images[i][1] for i in unusual[6:]])
    return truth, originals[12:25]


def _plant_copies(train: _ImageFolder, originals: Sequence[Labelled]) -> dict[str, Any]:
    """Add copies such as are found in real datasets. originals: 12."""

    def add_copy(
        number: int, quality: int = 0, factor: int = 1, labels: Sequence[str] = ()
    ) -> list[str]:
        """Return the ids of an original and its copy: with the same bytes, or resaved.

        labels: the first one that is not the original's is the label of the copy.
        """
        image_id, label, image = originals[number]
        data = train.files[f"train_images/{image_id}"]
        if quality:
            data = _save(image.reduce(factor), quality)
        others = [other for other in labels if other != label]
        return [image_id, train.add([*others, label][0], data)]

    return {
        "exact_copies": [add_copy(i) for i in (0, 1, 2)],
        "reencoded_copies": [add_copy(i, 60) for i in (3, 4, 5)],
        "half_size_copies": [add_copy(i, 70, 2) for i in (6, 7, 8)],
        "group_of_three": [*add_copy(9, 50), add_copy(9, 80, 2)[1]],
        "label_conflicts": [
            add_copy(10, labels=["temple", "sunset"]),
            add_copy(11, 60, labels=["flower", "portrait"]),
        ],
    }


def _plant_unusual_formats(
    train: _ImageFolder, images: Sequence[Drawn]
) -> dict[str, Any]:
    """Add good images that careless readers rotate, swap, clip or reject. images: 6."""
    labels, (tall, grey, cmyk, faded, deep, web) = zip(*images, strict=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise to display
    rotated = _save(tall.transpose(Image.Transpose.ROTATE_90), exif=exif)
    rotated_id = train.add(labels[0], rotated)
    faded.putalpha(Image.linear_gradient("L").resize(faded.size))
    deep = Image.fromarray(np.asarray(deep.convert("L"), np.uint16) * 257)
    odd_formats = {
        train.add(labels[1], _save(grey.convert("L"))): "grey JPEG",
        train.add(labels[2], _save(cmyk.convert("CMYK"))): "CMYK JPEG",
        train.add(labels[3], _save(faded, form="PNG"), ".png"): "PNG with alpha",
        train.add(labels[4], _save(deep, form="PNG"), ".png"): "16-bit PNG",
        train.add(labels[5], _save(web, form="WEBP"), ".webp"): "WebP",
    }
    size = {"height": tall.height, "width": tall.width}
    return {
        "orientation_6": {"image_id": rotated_id, **size},
        "odd_formats": odd_formats,
    }


def _plant_faults(train: _ImageFolder, images: Sequence[Image.Image]) -> dict[str, Any]:
    """Add four files that cannot be read, and one without a row. images: 2."""
    data = _save(images[0])
    text = b"This is a text, whatever its name says.\n"
    refused = {
        train.add("temple", data[: len(data) * 6 // 10]): "truncated",
        train.add("flower", b""): "empty file",
        train.add("portrait", text): "not an image",
        train.add("sunset", None): "missing file",
    }
    return {"refused": refused, "unlisted": train.add(None, _save(images[1]))}


def _draw_in_order(rng: np.random.Generator, images: Sequence[Drawn]) -> list[Copy]:
    """Return images in random order, with "" in place of an original."""
    order = rng.permutation(len(images))[: N_TEST + N_MORE]
    return [("", images[i][0], _save(images[i][1])) for i in order]


def _make_others(
    rng: np.random.Generator,
    new: Sequence[Copy],
    copies: Sequence[Copy],
    truth: dict[str, Any],
) -> dict[str, bytes]:
    """Return the files of the test images and the second source; add them to `truth`.

    copies: 13 of labelled images: 8 for the test images, 5 for the second source.
    """
    _, _, data = new[0]
    damaged = ("", "", data[: len(data) // 2])
    test_images = [*new[:N_TEST], *copies[:8], damaged]
    numbers = rng.permutation(len(test_images)) + 1000
    test = _ImageFolder("test_images", [str(number) for number in numbers[::-1]])
    # Some of the main source have these names too.
    more_names = [f"{number:04d}" for number in range(N_MORE + 5)]
    more = _ImageFolder("more/images", more_names[::-1])

    truth["test_labels"] = test.labels
    truth["leaks"] = _add_copies(test, test_images)
    truth["test_refused"] = {f"{numbers[-1]}.jpg": "truncated"}
    truth["across_sources"] = _add_copies(more, [*copies[8:], *new[N_TEST:]])
    more_rows = [
        (name, OTHER_NAME.get(label, label)) for name, label in more.labels.items()
    ]
    submission = [(name, COMMON[0]) for name in sorted(test.labels)]
    return {
        **test.files,
        **more.files,
        "more/train.csv": _format_csv(more_rows),
        "sample_submission.csv": _format_csv(submission),
    }


def _add_copies(folder: _ImageFolder, images: Iterable[Copy]) -> dict[str, str]:
    """Add images to a folder; return the originals of those that have one."""
    originals = {}
    for original, label, data in images:
        image_id = folder.add(label, data)
        if original:
            originals[image_id] = original
    return originals


def _copy_in_four_ways(
    originals: Sequence[Labelled], files: dict[str, bytes]
) -> list[Copy]:
    """Return a copy of each: the same bytes, resaved, half the size or brighter."""
    copies = []
    for number, (image_id, label, image) in enumerate(originals):
        bright = image.point(lambda value: min(255, int(value * 1.15)))
        versions = [
            files[f"train_images/{image_id}"],
            _save(image, 65),
            _save(image.reduce(2), 65),
            _save(bright, 65),
        ]
        copies.append((image_id, label, versions[number % 4]))
    return copies


def _draw_images(
    requests: Iterable[tuple[np.random.Generator, str, int]],
) -> list[Drawn]:
    """Return images with different outlines: so many for each generator and class."""
    images: list[Drawn] = []
    outlines = np.empty((0, 128), bool)
    for rng, label, count in requests:
        source, factors, _ = CLASSES[label]
        photo = _open_photo(source)
        grey_photo = photo.convert("L")
        curve = [
            min(255, int(value * factor)) for factor in factors for value in range(256)
        ]
        total = len(images) + count
        while len(images) < total:
            box = _draw_box(photo, rng)
            outline = _find_outline(grey_photo, box)
            if outline is None:
                continue
            differences = (outlines != outline).sum(axis=1)
            if (differences < MIN_DIFFERENCE).any():
                continue
            outlines = np.vstack([outlines, outline])
            crop = _scale_randomly(photo.crop(box), rng)
            images.append((label, crop.point(curve)))
    return images


def _open_photo(source: str) -> Image.Image:
    """Return a photograph. source: the package, then the path in it."""
    package, name = source.split("/", 1)
    data = (files_of(package) / name).read_bytes()
    return Image.open(io.BytesIO(data)).convert("RGB")


def _find_outline(grey_photo: Image.Image, box: Box) -> np.ndarray | None:
    """Return 128 bits of a part of the photograph; None if it is too flat."""
    cells = grey_photo.resize((9, 8), Image.Resampling.BOX, box)
    grey = np.asarray(cells, float)
    if grey.std() < MIN_CONTRAST:
        return None
    is_bright = grey[:, :8] > grey[:, :8].mean()
    is_rising = grey[:, 1:] > grey[:, :-1]
    return np.append(is_bright, is_rising)


def _draw_box(photo: Image.Image, rng: np.random.Generator) -> Box:
    """Return left, top, right and bottom of a random part of the photograph."""
    height = 0
    while not MIN_CROP <= height <= photo.height:
        width = int(np.exp(rng.uniform(np.log(MIN_CROP), np.log(photo.width))))
        height = int(width * np.exp(rng.uniform(-0.5, 0.5)))
    left = int(rng.integers(photo.width - width + 1))
    top = int(rng.integers(photo.height - height + 1))
    return left, top, left + width, top + height


def _scale_randomly(crop: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return the crop at a random size, magnified 4 times at most."""
    short, long = sorted(crop.size)
    limit = min(4 * short, LONG_SIDE * short / long)
    scale = np.exp(rng.uniform(np.log(SHORT_SIDE), np.log(limit))) / short
    size = np.rint(scale * np.array(crop.size)).clip(SHORT_SIDE, LONG_SIDE)
    return crop.resize(size.astype(int).tolist(), Image.Resampling.BICUBIC)


def _save(
    image: Image.Image, quality: int = 88, form: str = "JPEG", **options: Any
) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, quality=quality, **options)
    return stream.getvalue()
