"""The look of all figures: colours, sizes and fonts."""

from typing import Any

from matplotlib import font_manager

BLUE = "#31688e"
ORANGE = "#e07b39"
GREY = "#9aa0a6"
RED = "#c0392b"
MANY_CLASSES = 40  # more names than this do not fit beside bars
CHARACTER_WIDTH = 0.6  # average width of a character, as a share of the font size
TITLE_INCHES = 0.085  # average width of a character of a figure's title
# Fonts with the characters that Matplotlib's own font lacks, the preferred ones first.
OTHER_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans CJK TC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans",
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
    "font.family": [
        "sans-serif",  # Matplotlib's own font
        *(name for name in OTHER_FONTS if name in INSTALLED_FONTS),
    ],
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,
}
