"""A small competition in Kaggle's layout, with known faults and duplicates in it.

Its images are drawn, so nothing is downloaded: leaves, healthy or with one of four
diseases.
"""

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageChops, ImageOps

from kaggle_tfr.storage import explain_os_errors, write_atomically
from kaggle_tfr_sample.cast import (
    CLASSES,
    COMMON,
    N_MORE,
    Cast,
    Photo,
    choose_photos,
    draw_photos,
)

# class: the class of its copy in a label conflict
WRONG_LABELS = {
    "blight": "rust",
    "healthy": "mildew",
    "mildew": "healthy",
    "rust": "blight",
}
QUALITY = 82
# Copies of labelled images in other folders: JPEG quality, factor by which the sides
# shrink, brightness.
COPIES = (
    (QUALITY, 1, 1.0),
    (65, 1, 1.0),
    (65, 2, 1.0),
    (65, 1, 1.15),
)
WHOLE = (0, 0, 1, 1)  # left, top, right and bottom
CROP = (0.05, 0.05, 0.95, 0.95)
CUT = (0, 0, 1, 0.96)
# The factors of red, green, blue and 1 that make red, green and blue.
AUTUMN = (0.6, 1.0, 0, 0, 0.3, 0.85, 0, 0, 0.1, 0.15, 0.7, 0)
# The duplicates in train.csv, apart from label conflicts: groups of image_ids.
DUPLICATES = (
    "exact_copies",
    "reencoded_copies",
    "half_size_copies",
    "brightened_copies",
    "cropped_copies",
    "recoloured_copies",
    "bursts",
)
N_HEADER = 300  # bytes of a file that ends before its pixels
N_ZEROS = 2000  # bytes in the middle of a damaged file

Files = dict[str, bytes]  # content by path
Truth = dict[str, Any]  # what is planted, as in truth.json


@dataclass
class ImageFolder:
    """A folder of images and the rows of its CSV.

    files: of all folders. numbers: the names of the images to come. labels, plants: by
    image_id.
    """

    files: Files
    path: str
    numbers: Iterator[int]
    labels: dict[str, str] = field(default_factory=dict)
    plants: dict[str, int] = field(default_factory=dict)

    def add_file(self, photo: Photo, data: bytes, extension: str = ".jpg") -> str:
        """Add a file and its row; return its image_id."""
        image_id = f"{next(self.numbers):04d}{extension}"
        self.labels[image_id] = photo.label
        self.plants[image_id] = photo.subject.plant
        self.files[f"{self.path}/{image_id}"] = data
        return image_id

    def add(self, photo: Photo, extension: str = ".jpg", **options: Any) -> str:
        """Add an image in the format of the extension; return its image_id."""
        data = _encode(photo.image, extension, **options)
        return self.add_file(photo, data, extension)

    def add_copy(
        self,
        original: Photo,
        quality: int = QUALITY,
        factor: int = 1,
        brightness: float = 1.0,
        box: Sequence[float] = WHOLE,
    ) -> list[str]:
        """Add a copy; return the ids of the original and the copy."""
        image = _crop(original.image, box).reduce(factor)
        image = image.point(lambda value: int(value * brightness))
        return self.add_changed(original, image, quality=quality)

    def add_changed(
        self, original: Photo, image: Image.Image, **options: Any
    ) -> list[str]:
        """Add an image made from a photograph; return the ids of both."""
        copy_id = self.add(replace(original, image=image), **options)
        return [original.image_id, copy_id]


def write_sample(folder: str) -> dict[str, Any]:
    """Write the competition unless it is complete, and return its `truth.json`.

    That file lists all planted cases. The others are train.csv, train_images/;
    sample_submission.csv, test_images/; and a second source in more/. 18 MB in all, the
    same bytes every time.
    """
    truth_path = Path(folder, "truth.json")
    if not truth_path.exists():
        Path(folder).mkdir(parents=True, exist_ok=True)  # fails before 8 s of drawing
        files, truth = _make_competition()
        for name, data in files.items():
            path = Path(folder, name)
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        text = json.dumps(truth, indent=2)
        write_atomically(truth_path, text.encode())
    return json.loads(truth_path.read_bytes())


def _make_competition() -> tuple[Files, Truth]:
    """Return the files of the competition, and what is planted in them."""
    rng = np.random.default_rng(20_240_601)
    cast = choose_photos()
    draw_photos(cast.list_drawn())

    files: Files = {}
    plant_names: dict[int, str] = {}
    truth = _make_train(files, rng, cast, plant_names)
    truth |= _make_test(files, rng, cast)
    truth |= _make_more(files, cast, plant_names)
    truth["counts"] = _count_outcomes(truth, n_more=N_MORE + len(cast.copied_to_more))
    return files, truth


def _count_outcomes(truth: Truth, n_more: int) -> dict[str, int]:
    """Return how many images have each outcome. n_more: in the second source."""
    n_rows = truth["classes"].total()
    n_test = len(truth["test_labels"])
    n_inputs = n_rows + 1 + n_test + n_more  # 1 has no row
    groups = [truth["group_of_three"], truth["chain"]]
    for name in DUPLICATES:
        groups += truth[name]
    n_copies = sum(len(group) - 1 for group in groups)
    outcomes = {
        "refused": len(truth["refused"]) + 1,
        "duplicates": n_copies + len(truth["across_sources"]),
        "conflicts": 2 * len(truth["label_conflicts"]),  # both images of a pair
        "test_refused": len(truth["test_refused"]),
        "test": n_test - len(truth["test_refused"]),
    }
    return {
        "rows": n_rows,
        "inputs": n_inputs,
        **outcomes,
        "classes": len(CLASSES),
        "written": n_inputs - sum(outcomes.values()),
    }


def _make_train(
    files: Files, rng: Generator, cast: Cast, plant_names: dict[int, str]
) -> Truth:
    """Add the labelled images; return their truth. plant_names: see `_format_csv`."""
    numbers = rng.permutation(1000)
    train = ImageFolder(files, "train_images", iter(numbers))
    photos = cast.list_train()
    rng.shuffle(photos)
    for photo in photos:
        photo.image_id = train.add(photo)

    truth = _plant_copies(train, cast.copied)
    truth |= _plant_second_looks(train, cast)
    truth |= _plant_unusual_formats(train, cast.unusual)
    truth |= _plant_faults(train, cast.damaged, cast.undrawn)
    truth["classes"] = Counter(train.labels.values())
    files["train.csv"] = _format_csv(train, plant_names)
    return truth


def _plant_copies(train: ImageFolder, originals: Sequence[Photo]) -> Truth:
    """Add copies such as are found in real datasets. originals: 18."""
    exact = [train.add_copy(photo) for photo in originals[:3]]
    reencoded = [train.add_copy(photo, quality=60) for photo in originals[3:6]]
    halved = [train.add_copy(photo, quality=70, factor=2) for photo in originals[6:9]]
    brightened = [train.add_copy(photo, brightness=1.2) for photo in originals[9:12]]
    mirrored = [
        train.add_changed(photo, ImageOps.mirror(photo.image))
        for photo in originals[12:15]
    ]

    triple, first, second = originals[15:]
    pair = train.add_copy(triple, quality=50)
    _, third = train.add_copy(triple, quality=80, factor=2)

    return {
        "exact_copies": exact,
        "reencoded_copies": reencoded,
        "half_size_copies": halved,
        "brightened_copies": brightened,
        "mirrored_copies": mirrored,
        "group_of_three": [*pair, third],
        "label_conflicts": [
            train.add_copy(_mislabel(first)),
            train.add_copy(_mislabel(second), quality=60),
        ],
    }


def _mislabel(photo: Photo) -> Photo:
    return replace(photo, label=WRONG_LABELS[photo.label])


def _plant_second_looks(train: ImageFolder, cast: Cast) -> Truth:
    """Add copies beyond 25 bits; return them and the series of photographs.

    chain: the second image is within 25 bits of both others, which are farther apart.
    """
    return {
        "cropped_copies": [train.add_copy(photo, box=CROP) for photo in cast.cropped],
        "recoloured_copies": [
            train.add_changed(photo, _recolour(photo.image))
            for photo in cast.recoloured
        ],
        "bursts": [[photo.image_id for photo in burst] for burst in cast.bursts],
        "chain": [photo.image_id for photo in cast.pan],
    }


def _recolour(image: Image.Image) -> Image.Image:
    """Return an image in the colours of autumn, darker towards one side."""
    gradient = Image.linear_gradient("L").rotate(90)
    shade = gradient.point(lambda value: 128 + value // 2)
    shade = shade.resize(image.size).convert("RGB")
    return ImageChops.multiply(image.convert("RGB", AUTUMN), shade)


def _plant_unusual_formats(train: ImageFolder, photos: Sequence[Photo]) -> Truth:
    """Add good images that careless readers rotate, swap, clip or reject. photos: 7."""
    rotated, grey, cmyk, faded, indexed, deep, web = photos
    grey.image = grey.image.convert("L")
    cmyk.image = cmyk.image.convert("CMYK")
    ramp = Image.linear_gradient("L")
    faded.image.putalpha(ramp.resize(faded.image.size))
    indexed.image = indexed.image.quantize(64)
    values = np.asarray(deep.image.convert("L"), np.uint16)
    deep.image = Image.fromarray(values * 257)
    return {
        "orientation_6": _add_rotated(train, rotated),
        "odd_formats": {
            train.add(grey): "grey JPEG",
            train.add(cmyk): "CMYK JPEG",
            train.add(faded, ".png"): "PNG with alpha",
            train.add(indexed, ".png"): "PNG with a palette",
            train.add(deep, ".png"): "16-bit PNG",
            train.add(web, ".webp"): "WebP",
        },
    }


def _add_rotated(train: ImageFolder, photo: Photo) -> dict[str, str | int]:
    """Add an image that only its EXIF orientation makes upright; return its truth."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise to display
    rotated = photo.image.transpose(Image.Transpose.ROTATE_90)
    return {
        "image_id": train.add(replace(photo, image=rotated), exif=exif),
        "height": photo.image.height,
        "width": photo.image.width,
    }


def _plant_faults(
    train: ImageFolder, photos: Sequence[Photo], undrawn: Sequence[Photo]
) -> Truth:
    """Add six files that cannot be read, and one without a row.

    photos: 4. undrawn: 3, only for their labels.
    """
    truncated, broken, headless, unlisted = photos
    empty, text, missing = undrawn
    data = _encode(truncated.image)
    header = _encode(headless.image)[:N_HEADER]
    not_an_image = b"This is a text, whatever its name says.\n"
    refused = {
        train.add_file(truncated, data[: len(data) * 6 // 10]): "truncated",
        train.add_file(headless, header): "truncated",
        train.add_file(broken, _break(_encode(broken.image))): "damaged",
        train.add_file(empty, b""): "empty file",
        train.add_file(text, not_an_image): "not an image",
        train.add_file(missing, b""): "missing file",
    }
    train.files.popitem()
    unlisted_id = train.add(unlisted)
    train.labels.popitem()
    return {"refused": refused, "unlisted": unlisted_id}


def _break(data: bytes) -> bytes:
    """Return a file with zeros in its middle, as after an interrupted download."""
    middle = len(data) // 2
    return data[:middle] + bytes(N_ZEROS) + data[middle + N_ZEROS :]


def _make_test(files: Files, rng: Generator, cast: Cast) -> Truth:
    """Add the test images; return their truth."""
    numbers = rng.permutation(60) + 1000
    test = ImageFolder(files, "test_images", iter(numbers))
    for photo in cast.test:
        test.add(photo)
    leaks = _add_copies(test, cast.copied_to_test, COPIES)
    for first, second in cast.leaks:
        leaks[test.add(second)] = first.image_id
    data = _encode(cast.test[0].image)
    damaged = test.add_file(cast.test[0], data[: len(data) // 2])
    rows = [f"{image_id},{COMMON[0]}" for image_id in test.labels]
    files["sample_submission.csv"] = _join_rows("image_id,label", rows)
    return {
        "test_labels": test.labels,
        "leaks": leaks,
        "test_refused": {damaged: "truncated"},
    }


def _make_more(files: Files, cast: Cast, plant_names: dict[int, str]) -> Truth:
    """Add the second source; return its truth. plant_names: see `_format_csv`."""
    # Names such as 0000.jpg are in the main source too, for other images.
    more = ImageFolder(files, "more/images", count())
    changes = [(QUALITY, 1, 1.0, CUT), *COPIES]
    across_sources = _add_copies(more, cast.copied_to_more, changes)
    for photo in cast.more:
        more.add(photo)
    csv = _format_csv(more, plant_names)
    files["more/train.csv"] = csv.replace(b",rust,", b",leaf_rust,")
    return {"across_sources": across_sources}


def _add_copies(
    folder: ImageFolder,
    originals: Sequence[Photo],
    changes_of_copies: Sequence[tuple[Any, ...]],
) -> dict[str, str]:
    """Add a copy of each; return the ids of the originals by those of the copies."""
    changed = zip(originals, cycle(changes_of_copies))
    pairs = [folder.add_copy(original, *changes) for original, changes in changed]
    return {copy_id: original_id for original_id, copy_id in pairs}


def _crop(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """Return a part of an image. box: shares of its sides."""
    left, top, right, bottom = box
    width, height = image.size
    return image.crop(
        (
            round(left * width),
            round(top * height),
            round(right * width),
            round(bottom * height),
        )
    )


def _format_csv(folder: ImageFolder, plant_names: dict[int, str]) -> bytes:
    """Return the CSV of a folder. plant_names: by number; new plants are added."""
    rows = []
    for image_id, label in sorted(folder.labels.items()):
        new_name = f"plant-{len(plant_names) + 1:03d}"
        plant = plant_names.setdefault(folder.plants[image_id], new_name)
        rows.append(f"{image_id},{label},{plant}")
    return _join_rows("image_id,label,plant", rows)


def _join_rows(header: str, rows: Iterable[str]) -> bytes:
    lines = [header, *sorted(rows)]
    return "".join(f"{line}\n" for line in lines).encode()


def _encode(
    image: Image.Image, extension: str = ".jpg", quality: int = QUALITY, **options: Any
) -> bytes:
    stream = io.BytesIO()
    form = Image.registered_extensions()[extension]
    image.save(stream, form, quality=quality, **options)
    return stream.getvalue()
