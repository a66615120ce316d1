"""Parameters: their names and defaults, and recipes, which are flat YAML files of them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import yaml

from kaggle_tfr.paths import near_miss

# The defaults that the notebooks' `parameters` cells show, by notebook; a test compares the two.
EVERYWHERE = {"WORK_DIR": "", "N_JOBS": 0, "BACKEND": "threading", "SCHEDULER": ""}


BY_NOTEBOOK: dict[str, dict[str, Any]] = {
    "01_explore": {
        "NAME": "sample",
        "INPUT_DIR": "",
        "SOURCE": "csv",
        "LABELS_CSV": "train.csv",
        "ID_COLUMN": "image_id",
        "LABEL_COLUMN": "label",
        "LABEL_SEPARATOR": "",
        "LABEL_MAP": "",
        "PATH_TEMPLATE": "train_images/{image_id}",
        "PATTERN": "*/*",
        "LIMIT": 0,
    },
    "02_deduplicate": {
        "MAX_BITS": 25,
        "SECOND_LOOK": False,
        "CANDIDATE_BITS": 70,
        "KEEP": "largest",
        "CONFLICTS": "drop",
        "EXACT_HASHES": False,
    },
    "03_plan": {
        "SCHEMA": "default",
        "GROUP_COLUMN": "",
        "IMAGE_SIZE": 256,
        "RESIZE": "short_side",
        "RESAMPLE": "area",
        "QUALITY": 90,
        "CHROMA": "4:2:0",
        "OPTIMIZE": True,
        "COMPRESSION": "",
        "N_FOLDS": 5,
        "VALIDATION_SIZE": 0.0,
        "SHARD_MB": 200,
        "N_SHARDS": 0,
        "SHARD_IMAGES": 0,
        "SHARD_NAME": "{name}-f{fold}-{i:03d}-{count}.tfrec",
        "PART_LIMIT_GB": 19,
        "MAX_PART_FILES": 45,
        "SEED": 0,
    },
    "04_write": {"OUT_DIR": "", "PART": 0, "OVERWRITE": False, "METADATA": []},
    "05_read_and_visualize": {"TFREC_DIRS": [], "FOLD": 0, "BATCH_SIZE": 32, "IMAGE_SIZE": 256},
}


PARAMETERS = EVERYWHERE | {k: v for group in BY_NOTEBOOK.values() for k, v in group.items()}


PARAMETERS["EPOCHS"] = 8  # of 06_train, which is for interactive use: no run includes it


Settings = TypeVar("Settings")

# Parameters that take a value of another kind than their default's.
_OTHER_KINDS = {
    "LABEL_COLUMN": (list,),
    "SCHEMA": (dict,),
    "IMAGE_SIZE": (list,),
    "LABEL_MAP": (dict,),
    "PART_LIMIT_GB": (float,),
    "SHARD_MB": (float,),
}


CHOICES = {
    "BACKEND": ("threading", "loky", "dask"),
    "SOURCE": ("csv", "folders", "rle_csv"),
    "KEEP": ("largest", "first", "all"),
    "CONFLICTS": ("drop", "majority", "keep"),
    "RESIZE": ("short_side", "stretch", "center_crop", "fill", "none"),
    "RESAMPLE": ("area", "lanczos"),
    "CHROMA": ("4:2:0", "4:4:4"),
    "COMPRESSION": ("", "GZIP"),
}


# Closed ranges; None is open.
RANGES = {
    "N_JOBS": (0, None),
    "LIMIT": (0, None),
    "MAX_BITS": (0, 256),
    "CANDIDATE_BITS": (0, 256),
    "IMAGE_SIZE": (1, None),
    "QUALITY": (1, 100),
    "N_FOLDS": (0, None),
    "VALIDATION_SIZE": (0, 0.95),
    "SHARD_MB": (0, None),
    "N_SHARDS": (0, None),
    "SHARD_IMAGES": (0, None),
    "PART_LIMIT_GB": (0, None),
    "MAX_PART_FILES": (0, None),
    "SEED": (0, 2**32 - 1),
    "PART": (0, None),
    "FOLD": (-1, None),
    "BATCH_SIZE": (1, None),
    "EPOCHS": (1, None),
}


def check_parameters(values: Mapping[str, Any]) -> None:
    """None, when every ALL-CAPS name of a notebook or recipe is a parameter with a fitting value.

    Give it `globals()` in a notebook: other names than ALL-CAPS ones are not looked at.

    Raises:
        ValueError: a misspelt name (the near miss is named), a wrong kind, a value out of range.
    """
    for name, value in values.items():
        if name.isupper() and not name.startswith("_"):
            check_value(name, value)


def settings(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """The frozen dataclass whose fields are parameters by their names in lower case.

    values: by the parameters' own names, such as a notebook's `globals()`; what is not among them
        has its default.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # a dataclass, always
    return cls(**{name: values.get(name.upper(), PARAMETERS[name.upper()]) for name in names})


def check_value(name: str, value: Any) -> None:
    """None, when `value` fits the parameter `name`.

    Raises:
        ValueError: see `check_parameters`.
    """
    if name not in PARAMETERS:
        raise ValueError(
            f"{name} is no parameter.{near_miss(name, PARAMETERS)} "
            f"There are: {', '.join(sorted(PARAMETERS))}."
        )
    if not isinstance(value, _kinds(name)) or (_is_flag(value) and not _is_flag(PARAMETERS[name])):
        wanted = " or ".join(kind.__name__ for kind in _kinds(name))
        raise ValueError(
            f"{name} is {value!r}, a {type(value).__name__}; it takes a {wanted}, "
            f"for example {PARAMETERS[name]!r}. In YAML, quotes make a string, and 1e-3 without a "
            "sign and a point is one too."
        )
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(
            f"{name} is {value!r}.{near_miss(value, CHOICES[name])} "
            f"It can be {', '.join(map(repr, CHOICES[name]))}."
        )
    low, high = RANGES.get(name, (None, None))
    for number in value if isinstance(value, list) and name in RANGES else [value]:
        if (low is not None and number < low) or (high is not None and number > high):
            wanted = f"{low} or more" if high is None else f"from {low} to {high}"
            raise ValueError(f"{name} is {value!r}; it takes {wanted}.")


def parse_value(name: str, text: str) -> Any:
    """The value of a parameter from the text of a command line, read by the kind it needs.

    >>> parse_value("NAME", "007"), parse_value("QUALITY", "70"), parse_value("SECOND_LOOK", "true")
    ('007', 70, True)
    >>> parse_value("IMAGE_SIZE", "[192, 256]")
    [192, 256]

    Raises:
        ValueError: no such parameter, or a text that does not fit it.
    """
    kinds = _kinds(name) if name in PARAMETERS else (str,)
    value = text if kinds == (str,) else _from_yaml(text)
    if str in kinds and not isinstance(value, kinds):
        value = text
    if list in kinds and kinds[0] is list and isinstance(value, str):
        value = [value]
    check_value(name, value)
    return value


def load_recipe(path: str) -> dict[str, Any]:
    """The parameters that a recipe sets, checked.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not flat YAML, a misspelt name, a value that does not fit.
    """
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file) or {}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no recipe '{path}'. Recipes lie in recipes/.") from None
    except yaml.YAMLError as error:
        raise ValueError(f"the recipe '{path}' is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"the recipe '{path}' is not a list of 'NAME: value' lines.")
    try:
        for name, value in values.items():
            check_value(name, value)
    except ValueError as error:
        raise ValueError(f"the recipe '{path}': {error}") from None
    return values


def _kinds(name: str) -> tuple[type, ...]:
    default = type(PARAMETERS[name])
    numbers = (float, int) if default is float else (default,)
    return numbers + _OTHER_KINDS.get(name, ())


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _from_yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
