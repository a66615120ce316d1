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
from kaggle_tfr.figures import style

WIDE = np.zeros((20, 40, 3), np.uint8)
HIGH = np.zeros((40, 20, 3), np.uint8)


@pytest.fixture(autouse=True)
def _styled():
    """What `notebook.start` sets."""
    with plt.rc_context(style.STYLE):
        yield


def test_images_are_in_rows_in_their_order_and_keep_their_shape():
    """Pairs are close to each other; all texts have at least 9 points.

    Long file names are cut in the middle, and do not overlap.
    """
    name = "photographs_of_the_garden_in_the_spring_of_2024_with_$1.jpg"
    figure = figures.plot_images(
        [WIDE, HIGH] * 4,
        [name] * 8,
        columns=4,
        colors=["red"],
        together=2,
        headings=["8 of 256 bits"] * 4,
        row_names=["EXIF", "P3"],
        title="Two of three files are misread",
    )

    figure.draw_without_rendering()
    boxes = [axis.get_window_extent() for axis in figure.axes]
    ratios = [box.width / box.height for box in boxes]
    assert ratios == pytest.approx([2, 0.5] * 4)
    assert min(box.y0 for box in boxes[:4]) > max(box.y1 for box in boxes[4:])
    lefts = [box.x0 for box in boxes]
    assert lefts[:4] == lefts[4:] == sorted(lefts[:4])
    gaps = [right.x0 - left.x1 for left, right in pairwise(boxes[:4])]
    assert gaps[0] == pytest.approx(gaps[2])
    assert 0 < gaps[0] < gaps[1]
    labels = [axis.xaxis.label for axis in figure.axes]
    ends = [label.get_window_extent() for label in labels[:4]]
    assert all(left.x1 < right.x0 for left, right in pairwise(ends))
    assert all(label.get_text().endswith("$1.jpg") for label in labels)
    assert [label.get_color() for label in labels[:2]] == ["red", "black"]
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert {"P3", "Two of three files are misread"} <= {t.get_text() for t in texts}
    assert min(text.get_fontsize() for text in texts) >= 9
    assert not any(text.get_parse_math() for text in texts)


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
    style.use_style(shell)
    figure = figures.plot_images([np.asarray(scene(200, 300))])
    if not has_photo:
        figure = plt.figure(figsize=(3, 2))

    data, metadata = shell.display_formatter.format(figure)

    name = "image/jpeg" if has_photo else "image/png"
    assert {key for key in data if key.startswith("image/")} == {name}
    width, height = Image.open(io.BytesIO(data[name])).size
    assert metadata[name] == {"width": width // 2, "height": height // 2}
    plt.close(figure)
