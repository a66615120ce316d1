"""The photographs of the sample: which there are, and what they are for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from PIL import Image

from kaggle_tfr import parallel
from kaggle_tfr_sample.drawing import make_rng
from kaggle_tfr_sample.photos import Subject, View, take_photo

# class: number of its photographs; those of planted cases come on top
CLASSES = {"blight": 72, "healthy": 100, "mildew": 56, "miner": 3, "rust": 88}
RARE = "miner"
COMMON = ("blight", "healthy", "mildew", "rust")
N_TEST = 51  # different test images; copies of labelled images come on top
N_MORE = 35  # different images of the second source; copies come on top

# The seeds of the first photograph of each class and of each other part.
CLASS_SEEDS = {name: 1000 * number for number, name in enumerate(CLASSES)}
PLANTED_SEEDS = 10_000
TEST_SEEDS = 20_000
MORE_SEEDS = 30_000
# Photographs whose copies are as far from them as those of real datasets: measured.
BURST_SEEDS = (11_005, 11_039, 11_036, 11_024, 11_026)
LEAK_SEEDS = (11_029, 11_030)
CHAIN_SEED = 11_009
RECOLOURED_SEEDS = (11_000, 11_010, 11_016, 11_021)
CROPPED_SEEDS = (11_007, 11_018, 11_032)
PHOTOS_OF_PLANT = 3
LARGE_EVERY = 20  # one of so many regular photographs is large
SHORT_SIDE = (150, 360)  # pixels
LARGE_SHORT_SIDE = (360, 1100)
ORIGINAL_SHORT_SIDE = (330, 520)  # some copies have half of it
LONG_SIDE = 1600  # pixels, at most
RATIOS = (1, 4 / 3, 3 / 2, 16 / 9)
PORTRAITS = 0.4  # share of the photographs

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


@dataclass(eq=False)
class Photo:
    """A photograph of a leaf, and its image_id if it is in train.csv.

    label: in the CSV; that of some copies is wrong. image: drawn later.
    """

    label: str
    subject: Subject
    height: int
    width: int
    view: View = field(default_factory=View)
    image: Image.Image = field(default_factory=lambda: Image.new("RGB", (1, 1)))
    image_id: str = ""


@dataclass(frozen=True)
class Cast:
    """All photographs of the sample, by what they are for.

    regular: for nothing but training. bursts: of the same leaf, one after the other.
    leaks: likewise; the second one is a test image. pan: of the same leaf, by a camera
    that pans. recoloured, cropped: to be copied so. copied, copied_to_test,
    copied_to_more: to be copied in other ways, within train.csv or to another folder.
    unusual: for formats. damaged: for files that cannot be read; the last one gets no
    row. undrawn: for files without pixels.
    """

    regular: list[Photo]
    bursts: list[list[Photo]]
    leaks: list[list[Photo]]
    pan: list[Photo]
    recoloured: list[Photo]
    cropped: list[Photo]
    copied: list[Photo]
    copied_to_test: list[Photo]
    copied_to_more: list[Photo]
    unusual: list[Photo]
    damaged: list[Photo]
    undrawn: list[Photo]
    test: list[Photo]
    more: list[Photo]

    def list_train(self) -> list[Photo]:
        """Return the photographs that are good labelled images as they are."""
        return [
            *self.regular,
            *chain.from_iterable(self.bursts),
            *[first for first, _ in self.leaks],
            *self.pan,
            *self.recoloured,
            *self.cropped,
            *self.copied,
            *self.copied_to_test,
            *self.copied_to_more,
        ]

    def list_drawn(self) -> list[Photo]:
        """Return all photographs to take."""
        return [
            *self.list_train(),
            *[second for _, second in self.leaks],
            *self.unusual,
            *self.damaged,
            *self.test,
            *self.more,
        ]


def choose_photos() -> Cast:
    """Return the photographs to take."""
    originals = [_plan_original(PLANTED_SEEDS + number) for number in range(43)]
    [pan] = _plan_series([CHAIN_SEED], PAN)
    return Cast(
        regular=_plan_regular(),
        bursts=_plan_series(BURST_SEEDS, BURST),
        leaks=_plan_series(LEAK_SEEDS, BURST[:2]),
        pan=pan,
        recoloured=[_plan_original(seed) for seed in RECOLOURED_SEEDS],
        cropped=[_plan_original(seed) for seed in CROPPED_SEEDS],
        copied=originals[:18],
        copied_to_test=originals[18:24],
        copied_to_more=originals[24:29],
        unusual=originals[29:36],
        damaged=originals[36:40],
        undrawn=originals[40:43],
        test=[_plan_single(TEST_SEEDS + number) for number in range(N_TEST)],
        more=[_plan_single(MORE_SEEDS + number) for number in range(N_MORE)],
    )


def _plan_regular() -> list[Photo]:
    """Return the photographs of each class; three are of one plant."""
    photos = []
    for label, n_photos in CLASSES.items():
        first = CLASS_SEEDS[label]
        per_plant = 1 if label == RARE else PHOTOS_OF_PLANT
        for number in range(n_photos):
            subject = Subject(label, first + number // per_plant, first + number)
            is_large = number % LARGE_EVERY == 1
            short_sides = LARGE_SHORT_SIDE if is_large else SHORT_SIDE
            photos.append(_plan_photo(subject, short_sides))
    return photos


def _plan_single(seed: int) -> Photo:
    """Return a photograph of a plant that no other one shows."""
    return _plan_photo(_choose_subject(seed), SHORT_SIDE)


def _plan_original(seed: int) -> Photo:
    """Return a photograph to copy, large enough for copies of half its size."""
    return _plan_photo(_choose_subject(seed), ORIGINAL_SHORT_SIDE)


def _choose_subject(seed: int) -> Subject:
    """Return a leaf with its own plant, of any class but the rare one."""
    return Subject(COMMON[seed % len(COMMON)], plant=seed, seed=seed)


def _plan_photo(subject: Subject, short_sides: tuple[int, int]) -> Photo:
    """Return a photograph to take, in a random size."""
    height, width = _choose_size(subject.seed, short_sides)
    return Photo(subject.disease, subject, height, width)


def _plan_series(seeds: Iterable[int], views: Sequence[View]) -> list[list[Photo]]:
    """Return, for each seed, a photograph from each view."""
    return [
        [replace(_plan_original(seed), view=view) for view in views] for seed in seeds
    ]


def _choose_size(seed: int, short_sides: tuple[int, int]) -> tuple[int, int]:
    """Return a random height and width."""
    rng = make_rng("size", seed)
    low, high = short_sides
    short_side = round(np.exp(rng.uniform(np.log(low), np.log(high))))
    long_side = min(LONG_SIDE, round(short_side * rng.choice(RATIOS)))
    if rng.random() < PORTRAITS:
        return long_side, short_side
    return short_side, long_side


def draw_photos(photos: Sequence[Photo]) -> None:
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
