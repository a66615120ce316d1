"""The table of all parameters, which notebooks, recipes and the command line follow."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kaggle_tfr.find import bundled
from kaggle_tfr.naming import SUBMISSION

NOTEBOOKS = (
    "01_explore",
    "02_deduplicate",
    "03_plan",
    "04_write",
    "05_read_and_visualize",
    "06_train",
    "07_leakage",
)
# 06_train is for interactive use; a run includes it only if it is named.
DEFAULT_NOTEBOOKS = NOTEBOOKS[:5]
Settings = TypeVar("Settings")
Values = Mapping[str, Any]  # of parameters, by their names


class WrongCallError(ValueError):
    """A parameter, a recipe or a step is wrong; nothing was done."""


class Parameter(NamedTuple):
    """One parameter of the notebooks.

    also: what its value can be besides the default: of another type, or other words.
    high: of its numbers, which are 0 or more.
    """

    default: Any
    help: str = ""
    also: type | str | None = None
    high: float = float("inf")

    @property
    def choices(self) -> tuple[Any, ...]:
        """All values that it can have, () if any value of its type is valid."""
        # `also` is another type, a text with the other words, or None.
        if self.also is bool:
            return self.default, True, False
        if isinstance(self.also, str):
            return self.default, *self.also.split()
        return ()

    @property
    def description(self) -> str:
        """The help, and the choices in quotes if there are any."""
        # The text of a tuple, without its parentheses.
        choices = str(self.choices)[1:-1].replace("'", '"')
        return f"{self.help}; {choices}".strip("; ")

    def allows(self, value: Any) -> bool:
        """Return whether a value has the type, and is among the choices or in range.

        The type is that of the default, or the one in `also`. The range of numbers is
        from 0 to `high`.
        """
        # Not isinstance, for which True is an int.
        if type(value) not in (type(self.default), self.also):
            return False
        if self.choices:
            return value in self.choices
        return not isinstance(value, int | float) or 0 <= value <= self.high


# By the notebooks that have them; the values of a row are the fields of a Parameter.
TABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "01_explore": {
        "INPUT_DIR": ("", "empty: the bundled sample"),
        "PATTERN": ("", 'the images, such as "train/*"; * also matches /', list),
        "LABELS_CSV": (
            "train.csv",
            "a CSV, or a list; without the file: folders",
            list,
        ),
        "ID_COLUMN": ("", "empty: the column with the images' names"),
        "PATH_TEMPLATE": ("", 'if a name is in several columns: "{patient}/{slice}"'),
        "LABEL_COLUMN": (
            "",
            'a column, 0/1 columns, "folder", "names: REGEX"; []: none',
            list,
        ),
        "LABEL_KIND": ("auto", "", "single multi number masks"),
        "LABEL_SEPARATOR": ("", 'of several labels in a cell, such as "|"'),
        "LABEL_MAP": (
            "",
            '{"cell": "class"}, or {"class": index} or its JSON file',
            dict,
        ),
        "RLE_ORDER": ("columns", "how run-length codes count pixels", "rows"),
        "SPLIT_COLUMN": (
            "",
            'empty: folders called train, val, test; "none": no given splits',
        ),
        "INPUT_SCHEMA": (
            "",
            'of TFRecords: "auto", a preset, or {feature: source}',
            dict,
        ),
        "TEST_CSV": (SUBMISSION, "ids of test images; without it: folders"),
        "MORE_INPUTS": ([], "[{INPUT_DIR: …, LABELS_CSV: …}]"),
        "BIT_DEPTH": ("scale", "how 16-bit images become 8-bit", "stretch"),
        "FOLDS_FROM": (
            "",
            "an earlier WORK_DIR, folds.csv or all parts, whose folds stay",
            list,
        ),
        "LIMIT": (0, "number of rows to use, spread over all; 0: all"),
    },
    "01 02 03 04": {
        "N_JOBS": (0, "0: all cores"),
        "BACKEND": ("threading", "", "loky dask"),
        "SCHEDULER": ("", '"tcp://host:8786", for dask'),
    },
    "01 02 03 04 05 06 07": {
        "WORK_DIR": ("", "empty: work/NAME; on Kaggle, its working folder"),
        "NAME": ("sample", "of the dataset, and of the work folder"),
    },
    "01 03 05": {
        "IMAGE_SIZE": (256, "pixels: an int, or [height, width]", list),
    },
    "01 03 07": {
        "GROUP_COLUMN": (
            "",
            'never crosses a fold: a column, "folder" or "names: REGEX"',
        ),
    },
    "01 04 05 06": {
        "OUT_DIR": ("", "folder of part-1/, part-2/ …; empty: WORK_DIR"),
    },
    "02_deduplicate": {
        "MAX_BITS": (25, "of 256: radius of near-duplicates", None, 256),
        "MIRRORED": (False, "mirrored and rotated copies too; takes 9 times as long"),
        "SECOND_LOOK": ("auto", "verify pairs by their geometry", bool),
        "KEEP": ("largest", "which image of a cluster", "first all"),
        "CONFLICTS": (
            "drop",
            "duplicates with different labels",
            "majority keep",
        ),
        "LEAKS": (
            "report",
            "labelled images also in test or COMPARE_WITH",
            "drop",
        ),
        "OVERRIDES": ("", "a CSV of your decisions: image_id, action, value"),
        "COMPARE_WITH": (
            [],
            "published parts that may contain your images: folders or slugs",
        ),
    },
    "03_plan": {
        "SCHEMA": ("default", "a preset's name, or {feature: source}", dict),
        "RESIZE": ("short_side", "", "stretch center_crop fill none"),
        "RESAMPLE": ("area", "area is fastest", "lanczos"),
        "QUALITY": (90, "JPEG, 1 to 100", None, 100),
        "CHROMA": ("4:2:0", "4:4:4: larger files", "4:4:4"),
        "OPTIMIZE": (True, "Huffman tables for each image: 3 % smaller, slower"),
        "COMPRESSION": ("", "JPEG gains nothing from it", "GZIP"),
        "VALIDATION_SIZE": (
            0.0,
            'share of train that becomes "validation"',
            int,
            0.95,
        ),
        "EXTRA_IN_VALIDATION": (False, "images of MORE_INPUTS may validate too"),
        "SHARD_MB": (200, "target size of a shard", float),
        "N_SHARDS": (0, "total number without test shards; 0: by SHARD_MB"),
        "SHARD_IMAGES": (0, "at most, in a shard; 0: by SHARD_MB"),
        "SHARD_NAME": ("{name}-f{fold}-{i:03d}-{count}.tfrec",),
        "PART_LIMIT_GB": (19, "the disk for output on Kaggle has 20", float),
        "MAX_PART_FILES": (45, "a Kaggle dataset can have 50 at its top"),
    },
    "03 07": {
        "N_FOLDS": (5, "0 or 1: no folds"),
        "SEED": (0,),
    },
    "04_write": {
        "PART": (0, "0: all parts"),
        "OVERWRITE": (False, "replace what another plan wrote"),
        "LICENSE": ("", 'Kaggle\'s name for the dataset, such as "CC0-1.0"'),
        "PUBLISH_HASHES": (
            True,
            "hashes.parquet in each part: finds copies without the images",
        ),
        "MEAN_RGB": (False, "channel means of each split, of files and records"),
    },
    "05 06": {
        "TFREC_DIRS": ([], "empty: the parts in OUT_DIR"),
        "FOLD": (
            "all",
            'the fold to validate on, such as 0; "all": 06 trains a model for each',
            int,
        ),
        "BATCH_SIZE": (32, "images per device and step"),
    },
    "06_train": {
        "EPOCHS": (8,),
        "TRAIN_SIZE": (
            96,
            "pixels, as IMAGE_SIZE; 224 suits pretrained networks",
            list,
        ),
        "WEIGHTS": (
            "",
            '"imagenet", a .keras or .h5 file, or a Kaggle slug; empty: from scratch',
        ),
        "DEVICE": ("auto", "", "tpu gpu cpu"),
    },
}
# Those that each of MORE_INPUTS may have; the others are for all inputs.
OF_AN_INPUT = (
    "INPUT_DIR PATTERN LABELS_CSV ID_COLUMN PATH_TEMPLATE LABEL_COLUMN LABEL_KIND "
    "LABEL_SEPARATOR LABEL_MAP SPLIT_COLUMN INPUT_SCHEMA TEST_CSV"
)
# Numbers for which 0 has no meaning.
POSITIVE = (
    "IMAGE_SIZE TRAIN_SIZE QUALITY SHARD_MB PART_LIMIT_GB MAX_PART_FILES BATCH_SIZE "
    "EPOCHS"
)


def find_notebook(step: str) -> str:
    """Return the name of the notebook of a step.

    step: its number, its name, or the notebook's name.

    >>> find_notebook("03"), find_notebook("plan"), find_notebook("03_plan")
    ('03_plan', '03_plan', '03_plan')

    Raises: WrongCallError: there is no such step.
    """
    for notebook in NOTEBOOKS:
        if step in (notebook, *notebook.split("_")[:2]):
            return notebook
    raise WrongCallError(
        f"'{step}' is not a step. The steps are {', '.join(NOTEBOOKS)}."
    )


def select_parameters(notebook: str) -> dict[str, Parameter]:
    """Return the parameters of a notebook such as "03_plan" by name; "" for all.

    Their order is that of TABLE.
    """
    # A key of TABLE has the numbers of its notebooks: "01 03 05". "" is in all keys.
    groups = [rows for notebooks, rows in TABLE.items() if notebook[:2] in notebooks]
    return {name: Parameter(*row) for rows in groups for name, row in rows.items()}


PARAMETERS = select_parameters("")  # of all
DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}


def format_parameters() -> str:
    """Return a Markdown list of all parameters with default and help, by notebooks."""
    text = "All parameters with their defaults, by the notebooks that have them."
    for notebooks, rows in TABLE.items():
        text += f"\n\n## {notebooks}\n"
        for name in rows:
            setting = f"{name}: {json.dumps(DEFAULTS[name])}"
            text += f"\n- `{setting}` {PARAMETERS[name].description}".rstrip()
    return text


def as_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) in pixels.

    image_size: [height, width], or one number: the side of a square.
    """
    if isinstance(image_size, Sequence):
        height, width = image_size
        return height, width
    return image_size, image_size


def make_settings(cls: type[Settings], values: Values) -> Settings:
    """Return an object of a dataclass whose fields are parameters, in lower case.

    A field that is not a parameter has the default of the dataclass.
    cls: the dataclass. values: by the names of the parameters, for example a notebook's
    `globals()`; missing ones have the parameter's default.
    """
    values = {**DEFAULTS, **values}
    return cls(
        **{
            field.name: values.get(field.name.upper(), field.default)
            for field in fields(cls)  # type: ignore[arg-type]  # a dataclass
        }
    )


def check_globals(values: Values) -> None:
    """Check the parameters among a notebook's `globals()`.

    Other variables are ignored, unless their name is close to that of a parameter: then
    it is misspelt.
    Raises: as `check_parameters`.
    """
    for name, value in values.items():
        # Names are close from a similarity of 0.8; an exact one has 1.
        if get_close_matches(name, PARAMETERS, 1, 0.8):
            check_parameters({name: value})


def check_parameters(values: Values) -> None:
    """Check that every name is a parameter with a valid value.

    Raises: WrongCallError (a ValueError): the first unknown name, wrong type or value;
    MORE_INPUTS has a parameter that all inputs share.
    """
    for name, value in values.items():
        if name not in PARAMETERS:
            # With 0 as least similarity, there is always one.
            [nearest] = get_close_matches(f"{name}".upper(), PARAMETERS, 1, 0)
            raise WrongCallError(
                f'{name} is not a parameter. Did you mean "{nearest}"? In a notebook, '
                "correct it and restart the kernel."
            )
        parameter = PARAMETERS[name]
        is_allowed = parameter.allows(value)
        # POSITIVE has the names of numbers for which 0 has no meaning. A size may be
        # [height, width]; another number counts as both sides.
        if is_allowed and name in POSITIVE.split():
            sides = value if isinstance(value, list) else [value, value]
            are_numbers = {*map(type, sides)} <= {int, float}
            is_allowed = are_numbers and len(sides) == 2 and min(sides) > 0
        if not is_allowed:
            raise WrongCallError(
                f"{name} cannot be {value!r}. Its default is {parameter.default!r}: "
                f"{parameter.description}."
            )
    # Each further input has parameters, too.
    for settings in values.get("MORE_INPUTS", ()):
        check_parameters(settings)
        for name in sorted(settings.keys() - OF_AN_INPUT.split()):
            raise WrongCallError(
                f"{name} cannot be in MORE_INPUTS, because it is for all inputs. Each "
                f"can have {OF_AN_INPUT}."
            )


def parse_assignment(assignment: str) -> tuple[str, Any]:
    """Return the name and the value of a parameter from a text of a command line.

    >>> parse_assignment("NAME=007"), parse_assignment("QUALITY=70")
    (('NAME', '007'), ('QUALITY', 70))
    >>> parse_assignment("IMAGE_SIZE=[192, 256]"), parse_assignment("SHARD_NAME={i}")
    (('IMAGE_SIZE', [192, 256]), ('SHARD_NAME', '{i}'))

    The value is read as YAML. If that gives no valid value of the parameter, it is the
    text as it is, which `check_parameters` has to check later.
    """
    import yaml  # which a machine that only reads may lack

    name, _, text = assignment.partition("=")
    try:
        value = yaml.safe_load(text)
        check_parameters({name: value})
    except (ValueError, yaml.YAMLError):
        value = text
    return name, value


def find_recipe(path: str) -> Path:
    """Return the path of a bundled recipe, such as "sample", else the path itself."""
    file = bundled("recipes") / f"{path}.yaml"
    return file if file.is_file() else Path(path)


def load_recipe(path: str) -> dict[str, Any]:
    """Return the parameters of a recipe.

    path: of a file, or the name of a bundled recipe, such as "sample".
    Raises: WrongCallError: there is no such file, it is not YAML, or has a wrong
    parameter.
    """
    import yaml

    try:
        values = yaml.safe_load(find_recipe(path).read_text("utf-8")) or {}
        check_parameters(values)
    # AttributeError: the YAML is not a mapping.
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise WrongCallError(
            f"The recipe '{path}' cannot be used: {error}\nCheck the name of a "
            "folder; in a recipe, put texts with braces or colons in quotes. "
            "`kaggle-tfr init FOLDER` writes a recipe."
        ) from None
    return values
