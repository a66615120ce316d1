"""The look of figures in a notebook: style, file formats, and sharpness."""

import io
import math
from itertools import chain
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from kaggle_tfr.figures.style import STYLE

PHOTO_PIXELS = 100 * 100  # a figure with so many coloured pixels is shown as JPEG
SHARPNESS = 2  # pixels of the file for each pixel of the page

Output = tuple[bytes, dict[str, int]]


def use_style(shell: Any) -> None:
    """Set the style of all figures; show photographs as JPEG and charts as PNG.

    shell: IPython's, None outside a notebook.
    """
    plt.rcParams.update(STYLE)
    if shell is None:
        return
    plt.close(plt.figure())  # Matplotlib's backend registers its own formats now
    formatters = shell.display_formatter.formatters
    formatters["image/png"].for_type(Figure, _format_png)
    formatters["image/jpeg"].for_type(Figure, _format_jpeg)


def _format_png(figure: Figure) -> Output | None:
    return None if _has_photos(figure) else _print(figure, format="png")


def _format_jpeg(figure: Figure) -> Output | None:
    if not _has_photos(figure):
        return None
    options = {"quality": 82, "optimize": True, "progressive": True}
    return _print(figure, format="jpeg", pil_kwargs=options)


def _has_photos(figure: Figure) -> bool:
    images = chain.from_iterable(axis.images for axis in figure.axes)
    shapes = [np.asarray(image.get_array()).shape for image in images]
    n_pixels = sum(math.prod(shape[:2]) for shape in shapes if len(shape) == 3)
    return n_pixels >= PHOTO_PIXELS


def _print(figure: Figure, **options: Any) -> Output:
    """Return the figure as a file, and its size on the page in pixels."""
    file = io.BytesIO()
    dpi = SHARPNESS * figure.dpi
    figure.savefig(file, dpi=dpi, bbox_inches="tight", facecolor="white", **options)
    width, height = Image.open(file).size
    return file.getvalue(), {
        "width": width // SHARPNESS,
        "height": height // SHARPNESS,
    }
