"""A small competition in Kaggle's layout, with known faults and duplicates in it.

The images are crops of photographs inside scikit-learn and Matplotlib (README,
"Licence", names their authors): nothing is downloaded.
"""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files as files_of
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image

from kaggle_tfr.images.hashing import HASHES, hash_image
from kaggle_tfr.mounts import KAGGLE_TEMP, KAGGLE_WORKING, find_input
from kaggle_tfr.storage import explain_os_errors, real_path, write_atomically

_CHINA = "sklearn.datasets.images/china.jpg"
_HOPPER = "matplotlib/mpl-data/sample_data/grace_hopper.jpg"
_UNCHANGED = (1.0, 1.0, 1.0)
# class: photograph, factors of red, green and blue, number of different images
CLASSES = {
    "flower": ("sklearn.datasets.images/flower.jpg", _UNCHANGED, 120),
    "night": (_CHINA, (0.25, 0.3, 0.7), 3),
    "portrait": (_HOPPER, _UNCHANGED, 90),
    "sunset": (_CHINA, (1.15, 0.75, 0.4), 70),
    "temple": (_CHINA, _UNCHANGED, 140),
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
N_PER_CLASS = 22  # images drawn for these two, a few more than they need
# class: the class of its copy in a label conflict
WRONG_LABELS = {
    "flower": "portrait",
    "portrait": "sunset",
    "sunset": "temple",
    "temple": "flower",
}
# Copies of labelled images in other folders: JPEG quality, factor by which the sides
# shrink, brightness.
COPIES = (
    (88, 1, 1.0),
    (65, 1, 1.0),
    (65, 2, 1.0),
    (65, 1, 1.15),
)
CUT = 0.06  # share of the height that is cut off at the bottom of a cropped copy

Files = dict[str, bytes]  # content by path
Truth = dict[str, Any]  # what is planted, as in truth.json


@dataclass(eq=False)
class Crop:
    """A part of a photograph, its class, and its image_id if it is in train.csv."""

    label: str
    image: Image.Image
    image_id: str = ""


@dataclass
class ImageFolder:
    """A folder of images and their labels.

    files: of all folders. numbers: the names of the images to come. labels: by
    image_id.
    """

    files: Files
    path: str
    numbers: Iterator[int]
    labels: dict[str, str] = field(default_factory=dict)

    def add_file(self, label: str, data: bytes, extension: str = ".jpg") -> str:
        """Add a file and its row; return its image_id."""
        image_id = f"{next(self.numbers):04d}{extension}"
        self.labels[image_id] = label
        self.files[f"{self.path}/{image_id}"] = data
        return image_id

    def add(self, crop: Crop, extension: str = ".jpg", **options: Any) -> str:
        """Add an image in the format of the extension; return its image_id."""
        data = _encode(crop.image, extension, **options)
        return self.add_file(crop.label, data, extension)

    def add_copy(
        self,
        original: Crop,
        quality: int = 88,
        factor: int = 1,
        brightness: float = 1.0,
        cut: float = 0.0,
    ) -> list[str]:
        """Add a copy; return the ids of the original and the copy."""
        image = _cut_bottom(original.image, cut).reduce(factor)
        image = image.point(lambda value: int(value * brightness))
        copy = replace(original, image=image)
        copy_id = self.add(copy, quality=quality)
        return [original.image_id, copy_id]


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
    truth_path = Path(folder, "truth.json")
    if not truth_path.exists():
        Path(folder).mkdir(parents=True, exist_ok=True)  # fails before 5 s of drawing
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
    other_rng = np.random.default_rng(20_240_602)
    outlines: list[int] = []
    counts = {label: n_crops for label, (_, _, n_crops) in CLASSES.items()}
    crops = _draw_crops(rng, counts, outlines)
    others = _draw_crops(other_rng, dict.fromkeys(COMMON, N_PER_CLASS), outlines)
    other_rng.shuffle(others)

    files: Files = {}
    truth, originals = _make_train(files, rng, crops)
    test_crops = others[:N_TEST]
    more_crops = others[N_TEST : N_TEST + N_MORE]
    truth |= _make_test(files, other_rng, test_crops, originals[:8])
    truth |= _make_more(files, more_crops, originals[8:])
    truth["counts"] = _count_outcomes(truth["classes"].total())
    return files, truth


def _count_outcomes(n_rows: int) -> dict[str, int]:
    """Return how many images have each outcome. n_rows: of train.csv."""
    n_inputs = n_rows + 1 + 60 + 40  # 1 has no row, 60 are test images, 40 in more/
    n_copies = 11  # in train.csv: 3 kinds of 3 copies, and 2 in the group of three
    return {
        "rows": n_rows,
        "inputs": n_inputs,
        "refused": 5,
        "duplicates": n_copies + 5,
        "conflicts": 4,  # both images of two pairs
        "test_refused": 1,
        "test": 59,
        "classes": len(CLASSES),
        "written": n_inputs - 5 - n_copies - 5 - 4 - 60,
    }


def _make_train(
    files: Files, rng: Generator, crops: Sequence[Crop]
) -> tuple[Truth, list[Crop]]:
    """Add the labelled images; return what is planted, and 13 crops to copy later."""
    numbers = rng.permutation(len(crops) + 100)
    # Taken from the end, as in earlier versions, whose file names stay the same.
    train = ImageFolder(files, "train_images", reversed(numbers))
    originals, unusual = _choose_crops(rng, crops)
    for crop in crops:
        if crop not in unusual:
            crop.image_id = train.add(crop)

    truth = _plant_copies(train, originals[:12])
    truth |= _plant_unusual_formats(train, unusual[:6])
    truth |= _plant_faults(train, unusual[6:])
    truth["classes"] = Counter(train.labels.values())
    files["train.csv"] = _format_csv(train.labels)
    return truth, originals[12:25]


def _choose_crops(
    rng: Generator, crops: Sequence[Crop]
) -> tuple[list[Crop], list[Crop]]:
    """Return large images to copy, 25 or more, and 8 to make unusual files from."""
    # The rare class keeps its three good images.
    common = [crop for crop in crops if crop.label != "night"]
    rng.shuffle(common)
    # Some copies have half the size, so their originals are large.
    large = [crop for crop in common if min(crop.image.size) >= 2 * SHORT_SIDE]
    unusual = [crop for crop in common if crop not in large[:12]][:8]
    originals = [crop for crop in large if crop not in unusual]
    return originals, unusual


def _plant_copies(train: ImageFolder, originals: Sequence[Crop]) -> Truth:
    """Add copies such as are found in real datasets. originals: 12."""
    exact = [train.add_copy(crop) for crop in originals[:3]]
    resaved = [train.add_copy(crop, quality=60) for crop in originals[3:6]]
    halved = [train.add_copy(crop, quality=70, factor=2) for crop in originals[6:9]]

    triple, first, second = originals[9:]
    pair = train.add_copy(triple, quality=50)
    _, third = train.add_copy(triple, quality=80, factor=2)

    return {
        "exact_copies": exact,
        "reencoded_copies": resaved,
        "half_size_copies": halved,
        "group_of_three": [*pair, third],
        "label_conflicts": [
            train.add_copy(_mislabel(first)),
            train.add_copy(_mislabel(second), quality=60),
        ],
    }


def _mislabel(crop: Crop) -> Crop:
    return replace(crop, label=WRONG_LABELS[crop.label])


def _plant_unusual_formats(train: ImageFolder, crops: Sequence[Crop]) -> Truth:
    """Add good images that careless readers rotate, swap, clip or reject. crops: 6."""
    rotated, grey, cmyk, faded, deep, web = crops
    grey.image = grey.image.convert("L")
    cmyk.image = cmyk.image.convert("CMYK")
    ramp = Image.linear_gradient("L")
    faded.image.putalpha(ramp.resize(faded.image.size))
    values = np.asarray(deep.image.convert("L"), np.uint16)
    deep.image = Image.fromarray(values * 257)
    return {
        "orientation_6": _add_rotated(train, rotated),
        "odd_formats": {
            train.add(grey): "grey JPEG",
            train.add(cmyk): "CMYK JPEG",
            train.add(faded, ".png"): "PNG with alpha",
            train.add(deep, ".png"): "16-bit PNG",
            train.add(web, ".webp"): "WebP",
        },
    }


def _add_rotated(train: ImageFolder, crop: Crop) -> dict[str, str | int]:
    """Add an image that only its EXIF orientation makes upright; return its truth."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise to display
    rotated = crop.image.transpose(Image.Transpose.ROTATE_90)
    return {
        "image_id": train.add(replace(crop, image=rotated), exif=exif),
        "height": crop.image.height,
        "width": crop.image.width,
    }


def _plant_faults(train: ImageFolder, crops: Sequence[Crop]) -> Truth:
    """Add four files that cannot be read, and one without a row. crops: 2."""
    data = _encode(crops[0].image)
    text = b"This is a text, whatever its name says.\n"
    refused = {
        train.add_file("temple", data[: len(data) * 6 // 10]): "truncated",
        train.add_file("flower", b""): "empty file",
        train.add_file("portrait", text): "not an image",
        train.add_file("sunset", b""): "missing file",
    }
    train.files.popitem()
    unlisted = train.add(crops[1])
    train.labels.popitem()
    return {"refused": refused, "unlisted": unlisted}


def _make_test(
    files: Files, rng: Generator, crops: Sequence[Crop], originals: Sequence[Crop]
) -> Truth:
    """Add the test images; return their truth. originals: 8 labelled images to copy."""
    numbers = rng.permutation(60) + 1000
    test = ImageFolder(files, "test_images", iter(numbers))
    for crop in crops:
        test.add(crop)
    leaks = _add_copies(test, originals, COPIES)
    data = _encode(crops[0].image)
    damaged = test.add_file("", data[: len(data) // 2])
    submission = dict.fromkeys(test.labels, COMMON[0])
    files["sample_submission.csv"] = _format_csv(submission)
    return {
        "test_labels": test.labels,
        "leaks": leaks,
        "test_refused": {damaged: "truncated"},
    }


def _make_more(files: Files, crops: Sequence[Crop], originals: Sequence[Crop]) -> Truth:
    """Add the second source; return its truth. originals: 5 labelled images to copy."""
    # Names such as 0000.jpg are in the main source too, for other images.
    more = ImageFolder(files, "more/images", count())
    # The hashes find a cropped copy only where little is in the part that is cut off.
    originals = sorted(originals, key=_count_cut_bits)
    across_sources = _add_copies(more, originals, [(88, 1, 1.0, CUT), *COPIES])
    for crop in crops:
        more.add(crop)
    csv = _format_csv(more.labels)
    files["more/train.csv"] = csv.replace(b"flower", b"blossom")
    return {"across_sources": across_sources}


def _add_copies(
    folder: ImageFolder,
    originals: Sequence[Crop],
    changes_of_copies: Sequence[tuple[Any, ...]],
) -> dict[str, str]:
    """Add a copy of each; return the ids of the originals by those of the copies."""
    changed = zip(originals, cycle(changes_of_copies))
    pairs = [folder.add_copy(original, *changes) for original, changes in changed]
    return {copy_id: original_id for original_id, copy_id in pairs}


def _cut_bottom(image: Image.Image, share: float) -> Image.Image:
    rows = round((1 - share) * image.height)
    return image.crop((0, 0, image.width, rows))


def _count_cut_bits(crop: Crop) -> int:
    """Return in how many of 256 bits the hashes of a cropped copy differ."""
    luma = crop.image.convert("L")
    bits, _ = hash_image(np.asarray(luma))
    bits_of_copy, _ = hash_image(np.asarray(_cut_bottom(luma, CUT)))
    differing = bits[: 8 * len(HASHES)] ^ bits_of_copy[: 8 * len(HASHES)]
    return int(np.bitwise_count(differing).sum())


def _format_csv(labels: Mapping[str, str]) -> bytes:
    rows = [f"{image_id},{label}\n" for image_id, label in labels.items()]
    text = "".join(["image_id,label\n", *sorted(rows)])
    return text.encode()


def _draw_crops(
    rng: Generator, counts: Mapping[str, int], outlines: list[int]
) -> list[Crop]:
    """Return random images, `counts[label]` of a class. outlines: see `_cut_parts`."""
    crops = []
    for label, n_crops in counts.items():
        source, factors, _ = CLASSES[label]
        curve = [int(value * factor) for factor in factors for value in range(256)]
        parts = _cut_parts(rng, _open_photo(source), outlines)
        for image in islice(parts, n_crops):
            crops.append(Crop(label, image.point(curve)))
    return crops


def _open_photo(source: str) -> Image.Image:
    """Return a photograph of a package. source: package/path in it."""
    package, name = source.split("/", 1)
    data = (files_of(package) / name).read_bytes()
    return Image.open(io.BytesIO(data)).convert("RGB")


def _cut_parts(
    rng: Generator, photo: Image.Image, outlines: list[int]
) -> Iterator[Image.Image]:
    """Yield scaled random parts endlessly; append their new outlines to `outlines`."""
    luma = photo.convert("L")  # faster to crop than the photograph
    while True:
        box = _draw_box(rng, photo.width, photo.height)
        outline = _find_outline(luma.crop(box))
        if outline and _is_new(outline, outlines):
            outlines.append(outline)
            yield _scale_randomly(rng, photo.crop(box))


def _draw_box(
    rng: Generator, max_width: int, max_height: int
) -> tuple[int, int, int, int]:
    """Return a random part (left, top, right, bottom) of a photograph."""
    height = 0
    while not MIN_CROP <= height <= max_height:
        width = int(_draw_log_uniform(rng, MIN_CROP, max_width))
        log_ratio = rng.uniform(-0.5, 0.5)
        height = int(width * np.exp(log_ratio))
    left = int(rng.integers(max_width - width + 1))
    top = int(rng.integers(max_height - height + 1))
    return left, top, left + width, top + height


def _draw_log_uniform(rng: Generator, low: float, high: float) -> float:
    log_value = rng.uniform(np.log(low), np.log(high))
    return np.exp(log_value)


def _find_outline(luma: Image.Image) -> int:
    """Return 128 bits that describe a grey image; 0 if it is too flat."""
    cells = luma.resize((9, 8), Image.Resampling.BOX)
    grey = np.asarray(cells, float)
    if grey.std() < MIN_CONTRAST:
        return 0
    left = grey[:, :8]
    is_bright = left > left.mean()
    is_rising = grey[:, 1:] > left
    bits = np.packbits([is_bright, is_rising])
    return int.from_bytes(bits)


def _is_new(outline: int, outlines: Sequence[int]) -> bool:
    return all((outline ^ other).bit_count() >= MIN_DIFFERENCE for other in outlines)


def _scale_randomly(rng: Generator, image: Image.Image) -> Image.Image:
    """Return the image at a random size, magnified 4 times at most."""
    min_scale = SHORT_SIDE / min(image.size)
    max_scale = min(4, LONG_SIDE / max(image.size))
    scale = _draw_log_uniform(rng, min_scale, max_scale)
    size = [round(scale * side) for side in image.size]
    return image.resize(size)


def _encode(
    image: Image.Image, extension: str = ".jpg", quality: int = 88, **options: Any
) -> bytes:
    stream = io.BytesIO()
    form = Image.registered_extensions()[extension]
    image.save(stream, form, quality=quality, **options)
    return stream.getvalue()
