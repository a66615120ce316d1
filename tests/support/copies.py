"""The ways a picture comes back into a dataset: saved, scaled, cut, tinted and framed again."""

from PIL import Image, ImageEnhance, ImageOps

from support.scenes import saved


def half_size(image):
    return saved(image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS))


def low_quality(image):
    return saved(image, quality=40)


def cropped(image):
    """5 % off the width and the height, half on each side."""
    x, y = image.width / 40, image.height / 40
    return saved(image.crop((round(x), round(y), round(image.width - x), round(image.height - y))))


def grey(image):
    return saved(image.convert("L"))


def brighter(image):
    return saved(ImageEnhance.Brightness(image).enhance(1.2))


def darker(image):
    return saved(ImageEnhance.Brightness(image).enhance(0.8))


def framed(image):
    """A black border of 3 % of the longer side."""
    return saved(ImageOps.expand(image, round(0.03 * max(image.size)), "black"))


# The floors of recall within 25 bits, and with geometric verification, which finds what a border
# has moved to where no hash looks for it.
KINDS = {
    half_size: (0.99, 0.99),
    low_quality: (0.99, 0.99),
    cropped: (0.85, 0.97),
    grey: (0.99, 0.99),
    brighter: (0.9, 0.95),
    darker: (0.98, 0.98),
    framed: (0.0, 0.9),
}
