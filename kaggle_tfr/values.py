"""Values as records hold them: lists of bytes, 64-bit integers or 32-bit floats, each checked."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

FLOAT32_MAX = 3.4028234663852886e38


def as_values(value: Any, kind: str, size: int = 0) -> list:
    """The value as the list that a feature holds, checked.

    kind: "bytes", "int64" or "float". size: 0 for one value, n for a list of n, −1 for a list of
        any length. Lists may come as lists, arrays, or text such as "[1, 2]" or "1 2".

    Raises:
        ValueError: a value that does not fit; the caller knows of which image it is.
    """
    single = {"bytes": _as_bytes, "int64": _as_int, "float": _as_float}[kind]
    if not size:
        return [single(value)]
    values = [single(one) for one in as_list(value)]
    if size not in (-1, len(values)):
        raise ValueError(f"a list of {len(values)} where SCHEMA says {size}")
    return values


def as_list(value: Any) -> list:
    """The elements of a list, an array, or a text that holds one.

    >>> as_list("[1, 2]"), as_list("1 2"), as_list((1, 2))
    ([1, 2], ['1', '2'], [1, 2])
    """
    if isinstance(value, str):
        return json.loads(value) if value.lstrip().startswith("[") else value.split()
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        return list(value)
    raise ValueError(f"{value!r} is no list")


def _as_bytes(value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if _is_missing(value):
        raise ValueError("no value")
    return str(value).encode()


def _as_int(value):
    if type(value) is int:
        number = value
    elif _is_missing(value):
        raise ValueError("no value")
    elif isinstance(value, str):
        number = int(value)
    elif int(value) != value:
        raise ValueError(f"{value!r} is no whole number")
    else:
        number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} needs more than 64 bits")
    return number


def _as_float(value):
    number = float(value)
    if FLOAT32_MAX < abs(number) < math.inf:
        raise ValueError(f"{number} is beyond float32")
    return number


def _is_missing(value):
    # pandas has three: None, NaN and NA, whose comparison is no truth value.
    return value is None or type(value).__name__ == "NAType" or value != value  # noqa: PLR0124


def count_channels(data: bytes) -> int:
    """Channels that TensorFlow decodes a JPEG or PNG to when left alone: 1, 2, 3 or 4."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return {0: 1, 4: 2, 6: 4}.get(data[25], 3)
    position = 2
    while position + 9 < len(data):
        marker, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        # Frame headers are C0 to CF, but for the tables C4, C8 and CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return min(data[position + 9], 3)
        position += 2 + length
    raise ValueError("the picture is neither JPEG nor PNG")
