"""The photographs of the sample: which there are, and what they are for."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

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
    "copied_to_test": 6,
    "copied_to_more": 5,
    "poor": 3,  # blurred, dark and empty
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

# The seeds of the first photograph of each class and of each other part.
CLASS_SEEDS = {name: 1000 * number for number, name in enumerate(CLASSES)}
PLANTED_SEEDS = 10_000
TEST_SEEDS = 20_000
MORE_SEEDS = 30_000
PHOTOS_OF_PLANT = 3
LARGE_EVERY = 20  # one of so many regular photographs is large
SHORT_SIDE = (150, 360)  # pixels
LARGE_SHORT_SIDE = (360, 1100)
ORIGINAL_SHORT_SIDE = (330, 520)  # some copies have half of it
LONG_SIDE = 1600  # pixels, at most
RATIOS = (1, 4 / 3, 3 / 2, 16 / 9)
PORTRAITS = 0.4  # share of the photographs
QUALITIES = {"mildew": 70}  # of the JPEGs of a class, which they give away
QUALITY = 82  # of the others

# Photographs of the same leaf: in a burst, and by a camera that pans.
BURST = (
    View(),
    View(angle=-0.04, zoom=1.05, shift=0.025 - 0.015j, wind=0.04, number=1),
    View(angle=0.04, zoom=0.95, shift=0.025 + 0.03j, wind=0.05, number=2),
)
PAN = (
    View(),
    View(shift=0.022 + 0.015j, number=1),
    View(shift=0.044 + 0.030j, number=2),
)
# case: seeds of photographs whose copies are as far from them as those of real
# datasets, measured; and the views. A leaking test image shows the leaf of a leak.
MEASURED = {
    "bursts": ((11_005, 11_039, 11_036, 11_024, 11_026), BURST),
    "leaks": ((11_029, 11_030), BURST[:1]),
    "leaking": ((11_029, 11_030), BURST[1:2]),
    "chain": ((11_009,), PAN),
    "recoloured_copies": ((11_000, 11_010, 11_016, 11_021), BURST[:1]),
    "cropped_copies": ((11_007, 11_018), BURST[:1]),
    "cropped_to_test": ((11_032,), BURST[:1]),
}


@dataclass(eq=False)
class Photo:
    """A photograph of a leaf, and its image_id if it is in train.csv.

    label: in the CSV; some are wrong. image: drawn later.
    """

    label: str
    subject: Subject
    height: int
    width: int
    view: View = field(default_factory=View)
    image: Image.Image = field(default_factory=lambda: Image.new("RGB", (1, 1)))
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
    seeds = count(PLANTED_SEEDS)
    cast = {
        "regular": _plan_regular(scale),
        "test": _plan_singles(TEST_SEEDS, _scale(N_TEST, scale)),
        "more": _plan_singles(MORE_SEEDS, _scale(N_MORE, scale)),
    }
    for case, n_photos in PLANTED.items():
        cast[case] = [_plan_original(next(seeds)) for _ in range(n_photos)]
    for case, (measured, views) in MEASURED.items():
        cast[case] = [
            replace(_plan_original(seed), view=view)
            for seed in measured
            for view in views
        ]
    for photo in cast["wrong_labels"]:
        photo.label = WRONG_LABELS[photo.label]
    _draw_photos([photo for photos in cast.values() for photo in photos])
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


def _plan_singles(first: int, n_photos: int) -> list[Photo]:
    """Return photographs of plants that no other one shows. first: seed."""
    seeds = range(first, first + n_photos)
    return [_plan_photo(_choose_subject(seed), SHORT_SIDE) for seed in seeds]


def _plan_original(seed: int) -> Photo:
    """Return a photograph to copy, large enough for copies of half its size."""
    return _plan_photo(_choose_subject(seed), ORIGINAL_SHORT_SIDE)


def _choose_subject(seed: int) -> Subject:
    """Return a leaf with its own plant, of any class but the rare one."""
    return Subject(COMMON[seed % len(COMMON)], plant=seed, seed=seed)


def _plan_photo(subject: Subject, short_sides: tuple[int, int]) -> Photo:
    """Return a photograph to take, in a random size."""
    rng = make_rng("size", subject.seed)
    low, high = np.log(short_sides)
    short_side = round(np.exp(rng.uniform(low, high)))
    long_side = min(LONG_SIDE, round(short_side * rng.choice(RATIOS)))
    height, width = short_side, long_side
    if rng.random() < PORTRAITS:
        height, width = width, height
    return Photo(subject.disease, subject, height, width)


def _draw_photos(photos: Sequence[Photo]) -> None:
    """Take the photographs, on all cores."""
    images = parallel.run(
        _draw_photo,
        photos,
        label="Drawing the sample",
        ordered=True,
        local_only=True,
    )
    for photo, image in zip(photos, images, strict=True):
        photo.image = image


def _draw_photo(photo: Photo) -> Image.Image:
    pixels = take_photo(photo.subject, photo.height, photo.width, photo.view)
    return Image.fromarray(pixels)
