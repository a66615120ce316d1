"""Examples of copies: which pairs they are, and what they are called."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.chain import draw_pictures

from kaggle_tfr.deduplicate.examples import align, show_copies


def make_tables(folder, pairs):
    """Save pairs of an image and its copy; return the images and the clusters."""
    rows = []
    for cluster, pair in enumerate(pairs):
        for name, image in zip(("kept", "copy"), pair, strict=True):
            path = folder / f"{cluster}-{name}.png"
            image.save(path)
            rows.append(
                {
                    "image_id": path.name,
                    "path": str(path),
                    "split": "train",
                    "problem": "",
                    "digest": path.name,
                    "width": image.width,
                    "height": image.height,
                    "cluster": cluster,
                    "keep": name == "kept",
                    "conflict": False,
                    "steps": int(name == "copy"),
                    "distance": 0,
                }
            )
    table = pd.DataFrame(rows)
    return table, table


@pytest.fixture
def photo():
    (picture,) = draw_pictures(1, 300, 400)
    return picture


def test_a_crop_is_where_it_was_cut(photo, tmp_path):
    """Its corners are those of the box, and it shows three quarters of the image."""
    photo.save(tmp_path / "a.png")
    photo.crop((100, 0, 400, 300)).save(tmp_path / "b.png")

    alignment = align(tmp_path / "a.png", tmp_path / "b.png")

    assert alignment.orientation == 1
    assert alignment.share == pytest.approx(0.75, abs=0.02)
    assert alignment.agreement > 0.98
    corners = [(0.25, 0), (1, 0), (1, 1), (0.25, 1)]
    assert alignment.corners == pytest.approx(np.array(corners), abs=0.02)


@pytest.mark.parametrize(
    ("change", "heading"),
    [
        (lambda image: image.resize((200, 150)), "resized copy"),
        (lambda image: image.crop((0, 0, 400, 250)), "cropped copy"),
        (ImageOps.mirror, "mirrored copy"),
        (ImageOps.flip, "mirrored copy"),
        (lambda image: image.rotate(90, expand=True), "rotated copy"),
        (lambda image: image, "copy"),
    ],
)
def test_a_copy_is_called_what_it_is(change, heading, photo, tmp_path):
    """An exact copy is one, too, where there is no other."""
    tables = make_tables(tmp_path, [(photo, change(photo))])
    (example,) = show_copies(*tables)
    assert example.heading == heading


def test_the_most_striking_pairs_are_chosen(photo, tmp_path):
    """The smallest of two smaller copies, and a mirrored one rather than a crop."""
    copies = [
        photo.resize((200, 150)),
        photo.resize((100, 75)),
        photo.crop((40, 0, 400, 300)),
        ImageOps.mirror(photo),
    ]
    tables = make_tables(tmp_path, [(photo, copy) for copy in copies])

    resized, mirrored = show_copies(*tables)

    assert resized.captions == ("400 × 300 kept", "100 × 75")
    assert resized.scale == 0.25
    assert mirrored.heading == "mirrored copy"


def test_copies_that_cannot_be_compared_are_called_copies(tmp_path):
    """A gradient has no features; a run without copies has no example."""
    gradient = Image.linear_gradient("L").convert("RGB")
    images, clusters = make_tables(tmp_path, [(gradient, gradient.resize((64, 64)))])
    (example,) = show_copies(images, clusters)
    assert example.heading == "copy"
    assert show_copies(images, clusters.head(0)) == []
