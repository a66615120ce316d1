"""The look of all figures: colours, fonts, ticks, and file formats in a notebook."""

import io
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager, ticker
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from PIL import Image

BLUE = "#31688e"
ORANGE = "#e07b39"
GREY = "#9aa0a6"
RED = "#c0392b"
FONT_SIZE = 9
CHARACTER_INCHES = 0.6 * FONT_SIZE / 72  # average width
TITLE_CHARACTERS = 84  # of a line of a title that is as wide as a figure
SHARPNESS = 2  # pixels of the file for each pixel of the page
# Fonts with the characters that Matplotlib's own font lacks, the preferred ones first.
OTHER_FONTS = (
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Arial Unicode MS",
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "Noto Sans Thai",
    "Unifont",
)
INSTALLED_FONTS = {font.name for font in font_manager.fontManager.ttflist}
STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "figure.titlesize": 10,
    "figure.titleweight": "bold",
    "font.family": [
        "sans-serif",  # Matplotlib's own font
        *(name for name in OTHER_FONTS if name in INSTALLED_FONTS),
    ],
    "font.size": FONT_SIZE,
    "legend.frameon": False,
    "text.parse_math": False,
}


def use_style(shell: Any) -> None:
    """Set the style of all figures; show photographs as JPEG and charts as PNG.

    shell: IPython's, which shows the last value of a cell.
    """
    plt.rcParams.update(STYLE)
    # With the first figure, Matplotlib's backend sets its own formats. The loop
    # replaces them, so it must come later.
    plt.close(plt.figure())
    for name in ("png", "jpeg"):
        formatter = shell.display_formatter.formatters[f"image/{name}"]
        formatter.for_type(Figure, partial(_format_figure, name=name))


def _format_figure(figure: Figure, name: str) -> tuple[bytes, dict[str, int]] | None:
    """Return the bytes of the figure as a file, and its size on the page in pixels.

    None if the other format is better: figures with photographs are JPEG, others PNG.
    name: of the format, "jpeg" or "png".
    """
    images = [image for axis in figure.axes for image in axis.images]
    # An image with three dimensions has colours; a matrix of a chart has two.
    has_photos = any(np.asarray(image.get_array()).ndim == 3 for image in images)
    if has_photos != (name == "jpeg"):
        return None
    file = io.BytesIO()
    figure.savefig(
        file,
        format=name,
        dpi=SHARPNESS * figure.dpi,
        bbox_inches="tight",
        pil_kwargs={"quality": 82, "optimize": True, "progressive": True},
    )
    # For sharp screens, the file has SHARPNESS pixels for each pixel of the page.
    width, height = Image.open(file).size
    return file.getvalue(), {
        "width": width // SHARPNESS,
        "height": height // SHARPNESS,
    }


def set_log_ticks(axis: Axis) -> None:
    """Label 1, 2, 5, 10, 20, 50 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())
