"""A small competition in Kaggle's layout, with known faults and duplicates in it.

Its images are drawn, so nothing is downloaded: leaves, healthy or with one of four
diseases.
"""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from PIL import Image, ImageChops, ImageFilter, ImageOps

from kaggle_tfr.earlier import encode_fingerprints
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import ALL_HASHES, hash_images
from kaggle_tfr.storage import digest, explain_os_errors, write_atomically
from kaggle_tfr_sample.cast import APART, COMMON, QUALITIES, Photo, draw_cast

Files = dict[str, bytes]  # content by path
Truth = dict[str, Any]  # what is planted, as in truth.json
Change = Callable[[Image.Image], Image.Image]
Cast = Mapping[str, Sequence[Photo]]


def _crop(image: Image.Image, share: float = 0.06) -> Image.Image:
    """Return an image without a frame. share: of the short side."""
    return ImageOps.crop(image, round(share * min(image.size)))


def _brighten(image: Image.Image, factor: float = 1.2) -> Image.Image:
    return image.point(lambda value: int(value * factor))


def _recolour(image: Image.Image) -> Image.Image:
    """Return an image in the colours of autumn, darker towards one side."""
    gradient = Image.linear_gradient("L").rotate(90)
    shade = gradient.point(lambda value: 128 + value // 2)
    shade = shade.resize(image.size).convert("RGB")
    return ImageChops.multiply(image.convert("RGB", AUTUMN), shade)


def _halve(image: Image.Image) -> Image.Image:
    return image.reduce(2)


# The factors of red, green, blue and 1 that make red, green and blue.
AUTUMN = (0.6, 1.0, 0, 0, 0.3, 0.85, 0, 0, 0.1, 0.15, 0.7, 0)
# case: how the copies in train.csv are made
COPIES: dict[str, Change] = {
    "exact_copies": Image.Image.copy,
    "half_size_copies": _halve,
    "brightened_copies": _brighten,
    "cropped_copies": _crop,
    "mirrored_copies": ImageOps.mirror,
    "recoloured_copies": _recolour,
    "label_conflicts": Image.Image.copy,
}
FAR_COPIES = [*COPIES.values()][:4]  # those in other folders
# The duplicates in train.csv, apart from label conflicts: groups of image_ids.
DUPLICATES = (
    "exact_copies",
    "reencoded_copies",
    "half_size_copies",
    "brightened_copies",
    "cropped_copies",
    "recoloured_copies",
    "bursts",
    "group_of_three",
    "chain",
)
N_HEADER = 300  # bytes of a file that ends before its pixels
N_ZEROS = 4000  # bytes in a damaged file, as after an interrupted download


@dataclass
class ImageFolder:
    """A folder of images.

    files: of all folders. numbers: the names of the images to come. photos: the rows of
    its CSV, by image_id.
    """

    files: Files
    path: str
    numbers: Iterator[int]
    photos: dict[str, Photo] = field(default_factory=dict)

    def add_file(self, photo: Photo, data: bytes, extension: str = ".jpg") -> str:
        """Add a file and its row; return its image_id."""
        image_id = f"{next(self.numbers):04d}{extension}"
        self.photos[image_id] = photo
        self.files[f"{self.path}/{image_id}"] = data
        return image_id

    def add(self, photo: Photo, extension: str = ".jpg", **options: Any) -> str:
        """Add an image in the format of the extension; return its image_id."""
        return self.add_file(photo, _encode(photo, extension, **options), extension)

    def add_copies(
        self,
        originals: Sequence[Photo],
        changes: Sequence[Change] = FAR_COPIES,
        quality: int = 0,
    ) -> list[list[str]]:
        """Add a copy of each, with its right label; return the ids of both."""
        pairs = []
        for original, change in zip(originals, cycle(changes)):
            image = change(original.image)
            copy = replace(original, image=image, label=original.subject.disease)
            pairs.append([original.image_id, self.add(copy, quality=quality)])
        return pairs

    def format_csv(self) -> bytes:
        """Return the CSV with the label and the plant of each image."""
        rows = []
        for image_id, photo in self.photos.items():
            number = photo.subject.plant * 7919 % 100_003  # which tells no class
            rows.append(f"{image_id},{photo.label},plant-{number:05d}")
        return _join_rows("image_id,label,plant", sorted(rows))


def write_sample(folder: str, scale: float = 1) -> dict[str, Any]:
    """Write the competition unless it is complete, and return its `truth.json`.

    That file lists all planted cases. The others are train.csv, train_images/;
    sample_submission.csv, test_images/; a second source in more/; overrides.csv; and
    the fingerprints of an earlier part. 13 MB in all, the same bytes every time.
    scale: factor of the number of images that are not planted.
    """
    truth_path = Path(folder, "truth.json")
    if not truth_path.exists():
        Path(folder).mkdir(parents=True, exist_ok=True)  # fails early
        files, truth = _make_competition(scale)
        for name, data in files.items():
            path = Path(folder, name)
            with explain_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        write_atomically(truth_path, json.dumps(truth, indent=2))
    return json.loads(truth_path.read_bytes())


def _make_competition(scale: float) -> tuple[Files, Truth]:
    """Return the files of the competition, and what is planted in them."""
    rng = np.random.default_rng(20_240_601)
    cast = draw_cast(scale)
    files: Files = {}
    truth = _make_train(files, rng, cast)
    truth |= _make_test(files, rng, cast)
    truth |= _make_more(files, cast)
    truth |= _make_earlier(files, cast)
    truth["overrides"] = rows = _decide(truth, cast)
    files["overrides.csv"] = _join_rows("image_id,action,value", rows)
    n_inputs = sum("images/" in name for name in files) + 1  # a file is missing
    truth["counts"] = _count_outcomes(truth, n_inputs)
    return files, truth


def _decide(truth: Truth, cast: Cast) -> dict[str, str]:
    """Return what each row of overrides.csv changes."""
    label = cast["label_conflicts"][0].subject.disease
    wrong, copy = truth["label_conflicts"][0]
    _, part = truth["cropped_copies"][0]
    return {
        f"{wrong},label,{label}": f"it agrees with its copy {copy}",
        f"{truth['empty']},drop,": "it is dropped",
        f"{part},keep,": "it is kept beside its original",
    }


def _count_outcomes(truth: Truth, n_inputs: int) -> dict[str, int]:
    """Return how many images have each outcome."""
    n_copies = sum(len(group) - 1 for name in DUPLICATES for group in truth[name])
    n_refused = len(truth["test_refused"])
    outcomes = {
        "rejected": len(truth["refused"]) + 1 + n_refused,
        # By overrides one copy is kept, and one of a conflict is no more than a copy.
        "duplicates": n_copies + len(truth["across_sources"]),
        "conflicts": 2 * (len(truth["label_conflicts"]) - 1),  # both images of a pair
        "overrides": 1,
        "test": len(truth["test_labels"]) - n_refused,
    }
    n_written = n_inputs - sum(outcomes.values())
    return {**outcomes, "inputs": n_inputs, "written": n_written}


def _make_train(files: Files, rng: Generator, cast: Cast) -> Truth:
    """Add the labelled images; return their truth."""
    train = ImageFolder(files, "train_images", iter(rng.permutation(1000)))
    photos = [photo for case in cast if case not in APART for photo in cast[case]]
    rng.shuffle(photos)
    for photo in photos:
        photo.image_id = train.add(photo)

    truth = _plant_copies(train, cast)
    truth |= _plant_poor(train, cast["poor"])
    truth |= _plant_unusual_formats(train, cast["unusual"])
    truth |= _plant_faults(train, cast["damaged"])
    truth["wrong_labels"] = {
        photo.image_id: photo.subject.disease for photo in cast["wrong_labels"]
    }
    truth["giveaway"] = QUALITIES
    truth["classes"] = Counter(photo.label for photo in train.photos.values())
    files["train.csv"] = train.format_csv()
    return truth


def _plant_copies(train: ImageFolder, cast: Cast) -> Truth:
    """Add copies such as are found in real datasets; return them and the series.

    chain: the second image is within 25 bits of both others, which are farther apart.
    """
    truth: Truth = {}
    for case, change in COPIES.items():
        truth[case] = train.add_copies(cast[case], [change])
    reencoded = cast["reencoded_copies"]
    truth["reencoded_copies"] = train.add_copies(reencoded, FAR_COPIES[:1], 60)
    for case in ("bursts", "chain"):
        ids = [photo.image_id for photo in cast[case]]
        truth[case] = [ids[first : first + 3] for first in range(0, len(ids), 3)]

    [triple] = cast["group_of_three"]
    first, second = train.add_copies([triple, triple], FAR_COPIES[1:])
    truth["group_of_three"] = [[*first, second[1]]]
    return truth


def _plant_poor(train: ImageFolder, photos: Sequence[Photo]) -> Truth:
    """Add images of which a model learns nothing. photos: 3."""
    blurred, dark, empty = photos
    blurred.image = blurred.image.filter(ImageFilter.GaussianBlur(9))
    dark.image = _brighten(dark.image, 0.2)
    empty.image = Image.new("RGB", empty.image.size, "olive")
    return {
        "blurred": train.add(blurred),
        "dark": train.add(dark),
        "empty": train.add(empty),
    }


def _plant_unusual_formats(train: ImageFolder, photos: Sequence[Photo]) -> Truth:
    """Add good images that careless readers rotate, swap, clip or reject. photos: 7."""
    rotated, grey, cmyk, faded, indexed, deep, web = photos
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise to display
    rotated.image = rotated.image.transpose(Image.Transpose.ROTATE_90)
    grey.image = grey.image.convert("L")
    cmyk.image = cmyk.image.convert("CMYK")
    faded.image.putalpha(Image.linear_gradient("L").resize(faded.image.size))
    indexed.image = indexed.image.quantize(64)
    values = np.asarray(deep.image.convert("L"), np.uint16)
    deep.image = Image.fromarray(values * 257)
    return {
        "orientation_6": train.add(rotated, exif=exif),
        "odd_formats": {
            train.add(grey): "grey JPEG",
            train.add(cmyk): "CMYK JPEG",
            train.add(faded, ".png"): "PNG with alpha",
            train.add(indexed, ".png"): "PNG with a palette",
            train.add(deep, ".png"): "16-bit PNG",
            train.add(web, ".webp"): "WebP",
        },
    }


def _plant_faults(train: ImageFolder, photos: Sequence[Photo]) -> Truth:
    """Add six files that cannot be read, and one without a row. photos: 7."""
    truncated, broken, headless, empty, text, missing, unlisted = photos
    data = _encode(truncated)
    whole = _encode(broken)
    zeroed = whole[:N_ZEROS] + bytes(N_ZEROS) + whole[2 * N_ZEROS :]
    not_an_image = b"This is a text, whatever its name says.\n"
    refused = {
        train.add_file(truncated, data[: len(data) * 6 // 10]): "truncated",
        train.add_file(headless, _encode(headless)[:N_HEADER]): "truncated",
        train.add_file(broken, zeroed): "damaged",
        train.add_file(empty, b""): "empty file",
        train.add_file(text, not_an_image): "not an image",
        train.add_file(missing, b""): "missing file",
    }
    train.files.popitem()
    unlisted_id = train.add(unlisted)
    train.photos.popitem()
    return {"refused": refused, "unlisted": unlisted_id}


def _make_test(files: Files, rng: Generator, cast: Cast) -> Truth:
    """Add the test images; return their truth."""
    test = ImageFolder(files, "test_images", iter(rng.permutation(60) + 1000))
    for photo in cast["test"]:
        test.add(photo)
    leaks = test.add_copies(cast["copied_to_test"])
    for first, second in zip(cast["leaks"], cast["leaking"], strict=True):
        leaks.append([first.image_id, test.add(second)])
    photo = cast["test"][0]
    data = _encode(photo)
    damaged = test.add_file(photo, data[: len(data) // 2])
    rows = [f"{image_id},{COMMON[0]}" for image_id in sorted(test.photos)]
    files["sample_submission.csv"] = _join_rows("image_id,label", rows)
    return {
        "test_labels": {name: photo.label for name, photo in test.photos.items()},
        "leaks": leaks,
        "test_refused": {damaged: "truncated"},
    }


def _make_more(files: Files, cast: Cast) -> Truth:
    """Add the second source; return its truth."""
    # Names such as 0000.jpg are in the main source too, for other images.
    more = ImageFolder(files, "more/images", count())
    copies = more.add_copies(cast["copied_to_more"])
    for photo in cast["more"]:
        more.add(photo)
    files["more/train.csv"] = more.format_csv().replace(b",rust,", b",leaf_rust,")
    return {"across_sources": copies}


def _make_earlier(files: Files, cast: Cast) -> Truth:
    """Add hashes.parquet of a published part, without its images; return its truth.

    A few images are copies of labelled ones, the others a part of an image each.
    """
    earlier = ImageFolder({}, "images", count())
    photos = cast["regular"][::7]  # of all classes
    compared = earlier.add_copies(photos[::9], FAR_COPIES[:3])
    earlier.add_copies(photos, [partial(_crop, share=0.3)])
    rows = []
    for image_id, photo in earlier.photos.items():
        data = earlier.files[f"images/{image_id}"]
        _, luma = check_image(data)
        bits, [texture] = hash_images(luma[None])
        [hashes] = bits.view(">u8").tolist()
        rows.append([image_id, photo.label, digest(data), texture, *hashes])
    columns = ["image_id", "label_name", "digest", "texture", *ALL_HASHES]
    table = pd.DataFrame(rows, columns=columns)
    table = table.assign(split="train", fold=0, part=1, cluster=-1)
    files["earlier/part-1/hashes.parquet"] = encode_fingerprints(table)
    return {"compared": compared}


def _join_rows(header: str, rows: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in [header, *rows]).encode()


def _encode(
    photo: Photo, extension: str = ".jpg", quality: int = 0, **options: Any
) -> bytes:
    """Return a file. quality: of the JPEG, 0 for that of the class."""
    stream = io.BytesIO()
    form = Image.registered_extensions()[extension]
    photo.image.save(stream, form, quality=quality or photo.quality, **options)
    return stream.getvalue()
