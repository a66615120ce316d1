"""Figures: images in rows, texts that can be read, files that are sharp and small."""

import io
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.text import Text
from PIL import Image
from support.scenes import scene

from kaggle_tfr import figures
from kaggle_tfr.figures import formats, style, words

WIDE = np.zeros((20, 40, 3), np.uint8)
HIGH = np.zeros((40, 20, 3), np.uint8)
LONG_NAMES = [
    f"photographs_of_the_garden_in_the_spring_of_2024_{ordinal}.jpg"
    for ordinal in ("1_(first)", "2_(second)", "3_(third)", "4_(fourth)")
]


@pytest.fixture(autouse=True)
def _styled():
    """What `notebook.start` sets."""
    with plt.rc_context(style.STYLE):
        yield


def test_images_fill_rows_in_their_order_and_keep_their_shape():
    """Each row is as wide as the figure; the last one may be shorter."""
    figure = figures.plot_images([WIDE, HIGH, WIDE] * 4, columns=4)

    boxes = [axis.get_position() for axis in figure.axes]
    rows = {box.y0 for box in boxes}
    assert 3 <= len(rows) <= 5
    n_full = sum(box.x1 == pytest.approx(1, abs=0.01) for box in boxes)
    assert n_full >= len(rows) - 1
    width, height = figure.get_size_inches()
    ratios = [box.width * width / (box.height * height) for box in boxes]
    assert ratios == pytest.approx([2, 0.5, 2] * 4)


def test_named_rows_have_equally_many_images():
    """All texts have at least 9 points, and colours are those of the captions."""
    figure = figures.plot_images(
        [WIDE] * 5,
        ["✗ 3.1 levels"] * 5,
        columns=2,
        colors=["red"],
        row_names=["EXIF", "P3", "CMYK"],
        square=True,
        title="Two of three files are misread",
    )

    bottoms = [axis.get_position().y0 for axis in figure.axes]
    assert bottoms[:4:2] == bottoms[1::2]
    assert figure.axes[0].images[0].get_array().shape == (20, 20, 3)
    colors = [axis.xaxis.label.get_color() for axis in figure.axes]
    assert colors[:2] == ["red", "black"]
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert {"P3", "Two of three files are misread"} <= {t.get_text() for t in texts}
    assert min(text.get_fontsize() for text in texts) >= 9
    assert not any(text.get_parse_math() for text in texts)


def test_long_names_do_not_overlap_and_their_ends_are_visible():
    """Long file names are cut in the middle."""
    figure = figures.plot_images([WIDE] * 4, LONG_NAMES, columns=4, square=True)

    figure.draw_without_rendering()
    labels = [axis.xaxis.label for axis in figure.axes]
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert all(label.get_text().endswith(").jpg") for label in labels)


def test_an_image_is_loaded_upright_and_small(tmp_path):
    """A file that cannot be read is grey."""
    exif = Image.Exif()
    exif[0x0112] = 6
    scene(300, 400).save(tmp_path / "turned.jpg", exif=exif)

    image = figures.load(str(tmp_path / "turned.jpg"), side=200)

    assert image.shape == (200, 150, 3)
    assert set(figures.load(str(tmp_path / "none.jpg")).ravel()) == {230}


@pytest.mark.parametrize("has_photo", [True, False])
def test_photos_are_shown_as_jpeg_and_charts_as_png_at_twice_the_pixels(has_photo):
    """The page shows them at their size."""
    shell = InteractiveShell()
    formats.use_style(shell)
    figure = figures.plot_images([np.asarray(scene(200, 300))])
    if not has_photo:
        figure = plt.figure(figsize=(3, 2))

    data, metadata = shell.display_formatter.format(figure)

    name = "image/jpeg" if has_photo else "image/png"
    assert {key for key in data if key.startswith("image/")} == {name}
    width, height = Image.open(io.BytesIO(data[name])).size
    assert metadata[name] == {"width": width // 2, "height": height // 2}
    plt.close(figure)


def test_characters_without_a_font_become_codes(monkeypatch):
    """A font that has them is used otherwise. Nothing is drawn as an empty box."""
    words._drawable_characters.cache_clear()
    monkeypatch.setitem(style.STYLE, "font.family", ["DejaVu Sans"])
    assert figures.shorten("花 żółw a\nb") == r"\u82b1 żółw a\nb"
    words._drawable_characters.cache_clear()
    monkeypatch.setitem(style.STYLE, "font.family", ["sans-serif", "STIXGeneral"])
    assert figures.shorten("⃝") == "⃝"  # not in DejaVu Sans
    words._drawable_characters.cache_clear()
