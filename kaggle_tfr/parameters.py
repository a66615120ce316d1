"""The table of all parameters, which notebooks, recipes and the command line follow."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from kaggle_tfr.mounts import bundled
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


@dataclass(frozen=True)
class Parameter:
    """One parameter of the notebooks.

    also: what its value can be besides the default: of another type, or other words.
    low, high: the closed range of its numbers.
    """

    default: Any
    help: str = ""
    also: type | str | None = None
    low: float = 0
    high: float = float("inf")

    @property
    def types(self) -> tuple[Any, ...]:
        """Return the types of its values, the default's first."""
        return type(self.default), self.also

    @property
    def choices(self) -> tuple[Any, ...]:
        """Return all its values, () if they are not listed."""
        if self.also is bool:
            return self.default, True, False
        if isinstance(self.also, str):
            return self.default, *self.also.split()
        return ()

    @property
    def description(self) -> str:
        """Return its help, and its choices unless there are many."""
        listed = str(self.choices)[1:-1].replace("'", '"')
        if len(listed) > 99:
            return self.help
        return f"{self.help}; {listed}".strip("; ")

    def check(self, name: str, value: Any) -> None:
        """Raise a ValueError unless the parameter of this name can have the value."""
        if re.search(WRONG_TEXT, f"{name}={value}") or not self._allows(value):
            types = [kind.__name__ for kind in self.types if isinstance(kind, type)]
            limits = "without NUL or bytes that are not UTF-8; addresses with gs://"
            if int in self.types:
                limits = f"from {self.low} to {self.high}"
            allowed = self.choices or f"{' or '.join(types)} {limits}"
            raise ValueError(f"{name} is {value!r}; allowed: {allowed}. {self.help}")

    def _allows(self, value: Any) -> bool:
        """Return whether a value has the type, and is among the choices or in range."""
        if type(value) not in self.types:
            return False
        if self.choices:
            return value in self.choices
        if not isinstance(value, list):
            return isinstance(value, str | dict) or self.low <= value <= self.high
        types = [type(item) for item in value]
        if int in self.types:
            return types == [int, int] and min(value) >= self.low
        return {str, dict}.issuperset(types)


# As Kaggle names them. Source: docs/datasets_metadata.md of its client.
_LICENSES = """CC0-1.0 CC-BY-3.0 CC-BY-3.0-IGO CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0
CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0-IGO CC-BY-NC-SA-4.0 PDDL
ODC-BY-1.0 ODbL-1.0 DbCL-1.0 CDLA-Permissive-1.0 CDLA-Sharing-1.0 US-Government-Works
EU-ODP-Legal-Notice apache-2.0 GPL-2.0 GPL-3.0 LGPL-3.0 AGPL-3.0 FDL-1.3
copyright-authors other unknown"""

# By the notebooks that have them.
TABLE = {
    "01_explore": {
        "INPUT_DIR": Parameter("", "empty: the bundled sample"),
        "PATTERN": Parameter(
            "", 'the images, such as "train/*"; * also matches /', list
        ),
        "LABELS_CSV": Parameter(
            "train.csv",
            "a CSV, a pattern, or a list; without the file: folders",
            list,
        ),
        "ID_COLUMN": Parameter("", "empty: the column with the images' names"),
        "PATH_TEMPLATE": Parameter(
            "", 'if a name is in several columns: "{patient}/{slice}"'
        ),
        "LABEL_COLUMN": Parameter(
            "",
            'a column, 0/1 columns, "folder", "names: REGEX"; []: none',
            list,
        ),
        "LABEL_KIND": Parameter("auto", also="single multi number masks"),
        "LABEL_SEPARATOR": Parameter("", 'of several labels in a cell, such as "|"'),
        "LABEL_MAP": Parameter(
            "",
            '{"cell": "class"}, or {"class": index} or its JSON file',
            dict,
        ),
        "RLE_ORDER": Parameter("columns", "how run-length codes count pixels", "rows"),
        "SPLIT_COLUMN": Parameter(
            "",
            'empty: folders called train, val, test; "none": no given splits',
        ),
        "INPUT_SCHEMA": Parameter(
            "",
            'of TFRecords: "auto", a preset, or {feature: source}',
            dict,
        ),
        "TEST_CSV": Parameter(SUBMISSION, "ids of test images; without it: folders"),
        "MORE_INPUTS": Parameter([], "[{INPUT_DIR: …, LABELS_CSV: …}]"),
        "BIT_DEPTH": Parameter("scale", "how 16-bit images become 8-bit", "stretch"),
        "FOLDS_FROM": Parameter(
            "",
            "an earlier WORK_DIR, folds.csv or all parts, whose folds stay",
            list,
        ),
        "LIMIT": Parameter(0, "number of rows to use, spread over all; 0: all"),
    },
    "01 02 03 04": {
        "N_JOBS": Parameter(0, "0: all cores"),
        "BACKEND": Parameter("threading", also="loky dask"),
        "SCHEDULER": Parameter("", '"tcp://host:8786", for dask'),
    },
    "01 02 03 04 05 06 07": {
        "WORK_DIR": Parameter("", "empty: work/NAME; on Kaggle, its working folder"),
        "NAME": Parameter("sample", "of the dataset, and of the work folder"),
    },
    "01 03 05": {
        "IMAGE_SIZE": Parameter(256, "pixels: an int, or [height, width]", list, low=1),
    },
    "01 03 07": {
        "GROUP_COLUMN": Parameter(
            "",
            'never crosses a fold: a column, "folder" or "names: REGEX"',
        ),
    },
    "01 04 05 06": {
        "OUT_DIR": Parameter("", "folder of part-1/, part-2/ …; empty: WORK_DIR"),
    },
    "02_deduplicate": {
        "MAX_BITS": Parameter(25, "of 256: radius of near-duplicates", high=256),
        "MIRRORED": Parameter(
            False, "mirrored and rotated copies too; takes 9 times as long"
        ),
        "SECOND_LOOK": Parameter("auto", "verify pairs by their geometry", bool),
        "KEEP": Parameter("largest", "which image of a cluster", "first all"),
        "CONFLICTS": Parameter(
            "drop",
            "duplicates with different labels",
            "majority keep",
        ),
        "LEAKS": Parameter(
            "report",
            "labelled images also in test or COMPARE_WITH",
            "drop",
        ),
        "OVERRIDES": Parameter("", "a CSV of your decisions: image_id, action, value"),
        "COMPARE_WITH": Parameter(
            [],
            "published parts that may contain your images: folders or slugs",
        ),
    },
    "03_plan": {
        "SCHEMA": Parameter("default", "a preset's name, or {feature: source}", dict),
        "RESIZE": Parameter("short_side", also="stretch center_crop fill none"),
        "RESAMPLE": Parameter("area", "area is fastest", "lanczos"),
        "QUALITY": Parameter(90, "JPEG, 1 to 100", low=1, high=100),
        "CHROMA": Parameter("4:2:0", "4:4:4: larger files", "4:4:4"),
        "OPTIMIZE": Parameter(
            True, "Huffman tables for each image: 3 % smaller, slower"
        ),
        "COMPRESSION": Parameter("", "JPEG gains nothing from it", "GZIP"),
        "VALIDATION_SIZE": Parameter(
            0.0,
            'share of train that becomes "validation"',
            int,
            high=0.95,
        ),
        "EXTRA_IN_VALIDATION": Parameter(
            False, "images of MORE_INPUTS may validate too"
        ),
        "SHARD_MB": Parameter(200, "target size of a shard", float),
        "N_SHARDS": Parameter(0, "total number without test shards; 0: by SHARD_MB"),
        "SHARD_IMAGES": Parameter(0, "at most, in a shard; 0: by SHARD_MB"),
        "SHARD_NAME": Parameter("{name}-f{fold}-{i:03d}-{count}.tfrec"),
        "PART_LIMIT_GB": Parameter(19, "the disk for output on Kaggle has 20", float),
        "MAX_PART_FILES": Parameter(45, "a Kaggle dataset can have 50 at its top"),
    },
    "03 07": {
        "N_FOLDS": Parameter(5, "0 or 1: no folds"),
        "SEED": Parameter(0, high=4_294_967_295),
    },
    "04_write": {
        "PART": Parameter(0, "0: all parts"),
        "OVERWRITE": Parameter(False, "replace what another plan wrote"),
        "LICENSE": Parameter(
            "",
            'Kaggle\'s name for the dataset, such as "CC0-1.0"',
            _LICENSES,
        ),
        "PUBLISH_HASHES": Parameter(
            True,
            "hashes.parquet in each part: finds copies without the images",
        ),
        "MEAN_RGB": Parameter(
            False, "channel means of each split, of files and records"
        ),
    },
    "05 06": {
        "TFREC_DIRS": Parameter([], "empty: the parts in OUT_DIR"),
        "FOLD": Parameter(
            "all",
            'the fold to validate on, such as 0; "all": 06 trains a model for each',
            int,
        ),
        "BATCH_SIZE": Parameter(32, "images per device and step", low=1),
    },
    "06_train": {
        "EPOCHS": Parameter(8, low=1),
        "TRAIN_SIZE": Parameter(
            96,
            "pixels, as IMAGE_SIZE; 224 suits pretrained networks",
            list,
            low=1,
        ),
        "WEIGHTS": Parameter(
            "",
            '"imagenet", a .keras or .h5 file, or a Kaggle slug; empty: from scratch',
        ),
        "DEVICE": Parameter("auto", also="tpu gpu cpu"),
    },
}
# What an input of MORE_INPUTS can have.
OF_AN_INPUT = (
    "INPUT_DIR PATTERN LABELS_CSV ID_COLUMN PATH_TEMPLATE LABEL_COLUMN LABEL_SEPARATOR "
    "LABEL_MAP SPLIT_COLUMN INPUT_SCHEMA"
)
# What no file or folder is called, and addresses that folders cannot have.
WRONG_TEXT = r"[\0\ud800-\udfff]|^\w+_DIRS?=\W{0,2}(?!gs:)\w+://"
# The formats of docs/parameters.md, which `make docs` writes.
MARKDOWN_FORMATS = (
    "\n## {}\n\n| parameter | default | |\n|---|---|---|",
    "| `{}` | `{}` | {} |",
)


def find_notebook(step: str) -> str:
    """Return the notebook of a step: its number, name, or notebook.

    >>> find_notebook("3"), find_notebook("plan"), find_notebook("03_plan")
    ('03_plan', '03_plan', '03_plan')

    Raises: ValueError: there is no such step.
    """
    for notebook in NOTEBOOKS:
        if step in (notebook, notebook[1], *notebook.split("_")[:2]):
            return notebook
    raise ValueError(f"'{step}' is not a step. The steps are {', '.join(NOTEBOOKS)}.")


def select_parameters(notebook: str) -> dict[str, Parameter]:
    """Return the parameters of a notebook such as "03_plan", by their names."""
    selected = dict[str, Parameter]()
    for notebooks, group in TABLE.items():
        if notebook[:2] in notebooks:
            selected |= group
    return selected


PARAMETERS = select_parameters("")  # of all
DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}


def format_parameters(heading: str = "\n  {}", row: str = "    {:20} {:26} {}") -> str:
    """Return a list of all parameters, grouped by notebooks, with default and help."""
    lines = ["All parameters with their defaults, by the notebooks that have them."]
    for notebooks, group in TABLE.items():
        lines += [heading.format(notebooks)]
        for name, parameter in group.items():
            default = json.dumps(parameter.default)
            lines += [row.format(name, default, parameter.description)]
    return "\n".join(lines)


def as_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) in pixels; one number is the side of a square."""
    if isinstance(image_size, int):
        return image_size, image_size
    height, width = image_size
    return height, width


def make_settings(cls: type[Settings], values: Values) -> Settings:
    """Return a dataclass whose fields are parameters, their names in lower case.

    Other fields have their defaults.
    values: by the names of the parameters, for example a notebook's `globals()`.
    """
    values = {**DEFAULTS, **values}
    return cls(
        **{
            field.name: values.get(field.name.upper(), field.default)
            for field in fields(cls)  # type: ignore[arg-type]  # a dataclass
        }
    )


def check_globals(values: Values) -> None:
    """Check the parameters among a notebook's `globals()`, and names that are close.

    Raises: as `check_parameters`.
    """
    for name, value in values.items():
        if name.isupper() and get_close_matches(name, PARAMETERS, 1, 0.8):
            check_parameters({name: value})


def check_parameters(values: Values) -> None:
    """Check that every name is a parameter with a valid value.

    Raises: ValueError: a misspelt name, a wrong type or value.
    """
    for name, value in values.items():
        if name not in PARAMETERS:
            [nearest] = get_close_matches(f"{name}".upper(), PARAMETERS, 1, 0)
            raise ValueError(
                f'{name} is not a parameter. Did you mean "{nearest}"? In a notebook, '
                "correct it and restart the kernel."
            )
        PARAMETERS[name].check(name, value)
    for settings in values.get("MORE_INPUTS", ()):
        if not {"INPUT_DIR"} <= set(settings) <= set(OF_AN_INPUT.split()):
            raise ValueError(
                f"MORE_INPUTS has {settings!r}: an input must have INPUT_DIR, and can "
                f"have {OF_AN_INPUT}."
            )
        check_parameters(settings)


def parse_value(name: str, text: str) -> Any:
    """Return the value of a parameter from the text of a command line.

    >>> parse_value("NAME", "007"), parse_value("QUALITY", "70")
    ('007', 70)
    >>> parse_value("SECOND_LOOK", "true"), parse_value("IMAGE_SIZE", "[192, 256]")
    (True, [192, 256])

    Raises: ValueError: there is no such parameter, or the text is not a valid value.
    """
    import yaml  # which reading does without

    types = PARAMETERS.get(name, Parameter("")).types
    try:
        value = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        value = text
    if isinstance(value, str) or type(value) not in types:
        value = [text] if types[0] is list else text
    check_parameters({name: value})
    return value


def load_recipe(path: str) -> dict[str, Any]:
    """Return the parameters of a recipe.

    path: of a file, or the name of a bundled recipe, such as "sample".
    Raises: FileNotFoundError; ValueError: the file is not YAML, repeats a key, or has a
    wrong parameter.
    """
    import yaml

    recipe = Path(path)
    if not recipe.is_file():
        recipe = bundled("recipes") / f"{path}.yaml"
    if not recipe.is_file():
        raise FileNotFoundError(
            f"there is no recipe '{path}'. Bundled recipes: {', '.join(list_recipes())}"
            ". For a folder of images, write one: kaggle-tfr init FOLDER"
        )
    text = recipe.read_text("utf-8", "surrogateescape")  # which YAML refuses
    if repeated := re.search(r"(?ms)^(\w+) *:.*^\1 *:", text):
        raise ValueError(f"The recipe '{recipe}' has two lines of {repeated[1]}.")
    try:
        values = yaml.safe_load(text) or {}
        check_parameters(values)
    except (ValueError, AttributeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(
            f"The recipe '{recipe}' cannot be used: {problem}. Put texts with "
            "braces or colons in quotes."
        ) from None
    return values


def list_recipes() -> list[str]:
    """Return the names of the bundled recipes, such as "sample"."""
    return sorted(file.stem for file in bundled("recipes").glob("*.yaml"))
