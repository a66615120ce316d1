"""The photographs of the sample: which there are, and what they are for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice

import numpy as np
from PIL import Image

from kaggle_tfr import parallel
from kaggle_tfr_sample.drawing import make_rng
from kaggle_tfr_sample.photos import Subject, View, take_photo

# class: number of its photographs; those of planted cases come on top
CLASSES = {"blight": 58, "healthy": 80, "mildew": 46, "miner": 3, "rust": 70}
RARE = "miner"
COMMON = ("blight", "healthy", "mildew", "rust")
N_TEST = 45  # different test images; copies of labelled images come on top
N_MORE = 30  # different images of the second source; copies come on top
# case: number of its photographs, each of a plant that no other one shows
PLANTED = {
    "exact_copies": 3,
    "reencoded_copies": 3,
    "half_size_copies": 3,
    "brightened_copies": 3,
    "mirrored_copies": 3,
    "group_of_three": 1,
    "label_conflicts": 2,
    "copied_to_more": 5,
    "unusual": 7,  # for formats
    "damaged": 7,  # for files that cannot be read; the last one gets no row
    "wrong_labels": 3,
}
# Cases that are not good labelled images as they are.
APART = ("poor", "unusual", "damaged", "leaking", "test", "more")
WRONG_LABELS = {
    "blight": "rust",
    "healthy": "mildew",
    "mildew": "healthy",
    "rust": "blight",
}

# The seeds of the first photograph of each class, and of the others.
CLASS_SEEDS = {name: 1050 * number + 500 for number, name in enumerate(CLASSES)}
OTHER_SEEDS = 10_000
PHOTOS_OF_PLANT = 3
LARGE_EVERY = 30  # one of so many regular photographs is large
SHORT_SIDE = (200, 330)  # pixels
LARGE_SHORT_SIDE = (400, 900)
ORIGINAL_SHORT_SIDE = (300, 360)  # some copies have half of it
LONG_SIDE = 1000  # pixels, at most
RATIOS = (1, 4 / 3, 3 / 2, 16 / 9)
PORTRAITS = 0.4  # share of the photographs
QUALITIES = {"mildew": 70}  # of the JPEGs of a class, which they give away
QUALITY = 82  # of the others

# Photographs of the same leaf: in a burst, and by a camera that pans.
AS_IS = View()
BURST = (
    AS_IS,
    View(angle=-0.04, zoom=1.05, shift=0.025 - 0.015j, wind=0.04, number=1),
    View(angle=0.04, zoom=0.95, shift=0.025 + 0.03j, wind=0.05, number=2),
)
PAN = (
    AS_IS,
    View(shift=0.022 + 0.015j, number=1),
    View(shift=0.044 + 0.030j, number=2),
)
# case: seeds of photographs whose copies are as far from them as those of real
# datasets, measured. A leaking test image shows the leaf of a leak.
MEASURED = {
    "bursts": (11_014, 11_020, 11_035, 11_047, 11_049),
    "leaks": (11_017, 11_030),
    "leaking": (11_017, 11_030),
    "chain": (11_018,),
    "poor": (12_012, 12_014, 12_013),  # blurred, dark and empty
    "recoloured_copies": (11_001, 11_012, 11_019, 11_023),
    "cropped_copies": (11_007, 11_033),
    "copied_to_test": (12_000, 12_001, 12_002, 11_051, 12_003, 12_004),
}
VIEWS = {"bursts": BURST, "leaking": BURST[1:2], "chain": PAN}


@dataclass(eq=False)
class Photo:
    """A photograph of a leaf, and its image_id if it is in train.csv.

    label: in the CSV; some are wrong. size: height and width. image: drawn later.
    """

    label: str
    subject: Subject
    size: Sequence[int]
    view: View = AS_IS
    image: Image.Image = field(default_factory=Image.Image)
    image_id: str = ""

    @property
    def quality(self) -> int:
        """Of its JPEG."""
        return QUALITIES.get(self.subject.disease, QUALITY)


def draw_cast(scale: float) -> dict[str, list[Photo]]:
    """Return all photographs by their case.

    Beside the cases of `PLANTED` and `MEASURED` there are regular ones, for nothing but
    training, test images, and more of a second source, whose numbers `scale` changes.
    """
    seeds = count(OTHER_SEEDS)
    cast = {"regular": _plan_regular(scale)}
    for case, n_photos in PLANTED.items():
        cast[case] = _plan_photos(islice(seeds, n_photos))
    for case, n_photos in {"test": N_TEST, "more": N_MORE}.items():
        scaled = _scale(n_photos, scale)
        cast[case] = _plan_photos(islice(seeds, scaled), SHORT_SIDE)
    for case, measured in MEASURED.items():
        cast[case] = [
            replace(photo, view=view)
            for photo in _plan_photos(measured)
            for view in VIEWS.get(case, [AS_IS])
        ]
    for photo in cast["wrong_labels"] + cast["label_conflicts"]:
        photo.label = WRONG_LABELS[photo.label]

    photos = [photo for photos in cast.values() for photo in photos]
    images = parallel.run(
        _draw_photo,
        photos,
        label="Drawing the sample",
        local_only=True,
    )
    for photo, image in zip(photos, images, strict=True):
        photo.image = image
    return cast


def _scale(n_photos: int, scale: float) -> int:
    return max(3, round(n_photos * scale))


def _plan_regular(scale: float) -> list[Photo]:
    """Return the photographs of each class; three are of one plant."""
    photos = []
    for label, n_photos in CLASSES.items():
        first = CLASS_SEEDS[label]
        per_plant = 1 if label == RARE else PHOTOS_OF_PLANT
        for number in range(_scale(n_photos, scale)):
            subject = Subject(label, first + number // per_plant, first + number)
            is_large = number % LARGE_EVERY == 1
            short_sides = LARGE_SHORT_SIDE if is_large else SHORT_SIDE
            photos.append(_plan_photo(subject, short_sides))
    return photos


def _plan_photos(
    seeds: Iterable[int], short_sides: tuple[int, int] = ORIGINAL_SHORT_SIDE
) -> list[Photo]:
    """Return photographs of plants that no other one shows, of common classes."""
    subjects = [Subject(COMMON[seed % len(COMMON)], seed, seed) for seed in seeds]
    return [_plan_photo(subject, short_sides) for subject in subjects]


def _plan_photo(subject: Subject, short_sides: tuple[int, int]) -> Photo:
    """Return a photograph to take, in a random size."""
    rng = make_rng("size", subject.seed)
    low, high = np.log(short_sides)
    short_side = round(np.exp(rng.uniform(low, high)))
    long_side = min(LONG_SIDE, round(short_side * rng.choice(RATIOS)))
    size = [short_side, long_side]
    if rng.random() < PORTRAITS:
        size.reverse()
    return Photo(subject.disease, subject, size)


def _draw_photo(photo: Photo) -> Image.Image:
    pixels = take_photo(photo.subject, *photo.size, photo.view)
    return Image.fromarray(pixels)
