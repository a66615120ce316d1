"""The table of all parameters, which notebooks, recipes and the command line follow."""

import contextlib
import difflib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
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
# The steps, such as "plan", by the names of their notebooks, such as "03_plan".
STEPS = {name: name.split("_")[1] for name in NOTEBOOKS}
Settings = TypeVar("Settings")
Values = Mapping[str, Any]  # of parameters, by their names


@dataclass(frozen=True)
class Parameter:
    """One parameter of the notebooks.

    notebooks: the numbers of the notebooks that have it.
    also: the type that its value can have besides that of the default.
    choices: all values, when not empty. low, high: the closed range of its numbers.
    """

    name: str
    default: Any
    notebooks: str
    help: str = ""
    also: type | None = None
    choices: Sequence[Any] = ()
    low: float = 0
    high: float = math.inf

    @property
    def types(self) -> tuple[type, ...]:
        """Return the types of its values, the default's first."""
        types = [type(self.default), self.also]
        if float in types:
            types.append(int)
        return tuple(value_type for value_type in types if value_type)

    @property
    def description(self) -> str:
        """Return its help, and its choices unless there are many."""
        if not 0 < len(self.choices) < 9:
            return self.help
        choices = ", ".join(map(_quote, self.choices))
        return f"{self.help}; {choices}" if self.help else choices


def _quote(choice: Any) -> str:
    """Return a value as it is written in Python, texts in double quotes."""
    return f'"{choice}"' if isinstance(choice, str) else str(choice)


_ALL = "01 02 03 04 05 06 07"
_WORKERS = "01 02 03 04"
# As Kaggle names them. Source: docs/datasets_metadata.md of its client.
_LICENSES = """CC0-1.0 CC-BY-3.0 CC-BY-3.0-IGO CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0
CC-BY-NC-4.0 CC-BY-ND-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0-IGO CC-BY-NC-SA-4.0 PDDL
ODC-BY-1.0 ODbL-1.0 DbCL-1.0 CDLA-Permissive-1.0 CDLA-Sharing-1.0 US-Government-Works
EU-ODP-Legal-Notice apache-2.0 GPL-2.0 GPL-3.0 LGPL-3.0 AGPL-3.0 FDL-1.3
copyright-authors other unknown"""

TABLE = (
    Parameter("WORK_DIR", "", _ALL, "empty: work/NAME; on Kaggle, its working folder"),
    Parameter("NAME", "sample", _ALL, "of the dataset, and of the work folder"),
    Parameter("N_JOBS", 0, _WORKERS, "0: all cores"),
    Parameter("BACKEND", "threading", _WORKERS, choices=("threading", "loky", "dask")),
    Parameter("SCHEDULER", "", _WORKERS, '"tcp://host:8786", for dask'),
    Parameter("INPUT_DIR", "", "01", "empty: the bundled sample"),
    Parameter(
        "PATTERN", "", "01", 'the images, such as "train/*"; * also matches /', list
    ),
    Parameter(
        "LABELS_CSV",
        "train.csv",
        "01",
        "a CSV, a pattern, or a list; without the file: folders",
        list,
    ),
    Parameter("ID_COLUMN", "", "01", "empty: the column with the images' names"),
    Parameter(
        "PATH_TEMPLATE",
        "",
        "01",
        'if a name is in several columns: "{patient}/{slice}"',
    ),
    Parameter(
        "LABEL_COLUMN",
        "",
        "01",
        'a column, 0/1 columns, "folder", "names: REGEX"; []: none',
        list,
    ),
    Parameter(
        "LABEL_KIND",
        "auto",
        "01",
        choices=("auto", "single", "multi", "number", "masks"),
    ),
    Parameter("LABEL_SEPARATOR", "", "01", 'of several labels in a cell, such as "|"'),
    Parameter(
        "LABEL_MAP",
        "",
        "01",
        '{"cell": "class"}, or {"class": index} or its JSON file',
        dict,
    ),
    Parameter(
        "RLE_ORDER",
        "columns",
        "01",
        "how run-length codes count pixels",
        choices=("columns", "rows"),
    ),
    Parameter(
        "SPLIT_COLUMN",
        "",
        "01",
        'empty: folders called train, val, test; "none": no given splits',
    ),
    Parameter(
        "INPUT_SCHEMA",
        "",
        "01",
        'of TFRecords: "auto", a preset, or {feature: source}',
        dict,
    ),
    Parameter("TEST_CSV", SUBMISSION, "01", "ids of test images; without it: folders"),
    Parameter("MORE_INPUTS", [], "01", "[{INPUT_DIR: …, LABELS_CSV: …}]"),
    Parameter(
        "BIT_DEPTH",
        "scale",
        "01",
        "how 16-bit images become 8-bit",
        choices=("scale", "stretch"),
    ),
    Parameter(
        "FOLDS_FROM",
        "",
        "01",
        "an earlier WORK_DIR, folds.csv or all parts, whose folds stay",
        list,
    ),
    Parameter("LIMIT", 0, "01", "number of rows to use, spread over all; 0: all"),
    Parameter("MAX_BITS", 25, "02", "of 256: radius of near-duplicates", high=256),
    Parameter(
        "MIRRORED",
        False,
        "02",
        "mirrored and rotated copies too; takes 9 times as long",
    ),
    Parameter(
        "SECOND_LOOK",
        "auto",
        "02",
        "verify pairs by their geometry",
        also=bool,
        choices=("auto", True, False),
    ),
    Parameter(
        "KEEP",
        "largest",
        "02",
        "which image of a cluster",
        choices=("largest", "first", "all"),
    ),
    Parameter(
        "CONFLICTS",
        "drop",
        "02",
        "duplicates with different labels",
        choices=("drop", "majority", "keep"),
    ),
    Parameter(
        "LEAKS",
        "report",
        "02",
        "labelled images also in test or COMPARE_WITH",
        choices=("report", "drop"),
    ),
    Parameter(
        "OVERRIDES", "", "02", "a CSV of your decisions: image_id, action, value"
    ),
    Parameter(
        "COMPARE_WITH",
        [],
        "02",
        "published parts that may contain your images: folders or slugs",
    ),
    Parameter("SCHEMA", "default", "03", "a preset's name, or {feature: source}", dict),
    Parameter(
        "GROUP_COLUMN",
        "",
        "01 03 07",
        'never crosses a fold: a column, "folder" or "names: REGEX"',
    ),
    Parameter(
        "IMAGE_SIZE",
        256,
        "01 03 05",
        "pixels: an int, or [height, width]",
        list,
        low=1,
    ),
    Parameter(
        "RESIZE",
        "short_side",
        "03",
        choices=("short_side", "stretch", "center_crop", "fill", "none"),
    ),
    Parameter("RESAMPLE", "area", "03", "area is fastest", choices=("area", "lanczos")),
    Parameter("QUALITY", 90, "03", "JPEG, 1 to 100", low=1, high=100),
    Parameter(
        "CHROMA", "4:2:0", "03", "4:4:4: larger files", choices=("4:2:0", "4:4:4")
    ),
    Parameter(
        "OPTIMIZE", True, "03", "Huffman tables for each image: 3 % smaller, slower"
    ),
    Parameter(
        "COMPRESSION", "", "03", "JPEG gains nothing from it", choices=("", "GZIP")
    ),
    Parameter("N_FOLDS", 5, "03 07", "0 or 1: no folds"),
    Parameter(
        "VALIDATION_SIZE",
        0.0,
        "03",
        'share of train that becomes "validation"',
        high=0.95,
    ),
    Parameter(
        "EXTRA_IN_VALIDATION", False, "03", "images of MORE_INPUTS may validate too"
    ),
    Parameter("SHARD_MB", 200, "03", "target size of a shard", float),
    Parameter("N_SHARDS", 0, "03", "total number without test shards; 0: by SHARD_MB"),
    Parameter("SHARD_IMAGES", 0, "03", "at most, in a shard; 0: by SHARD_MB"),
    Parameter("SHARD_NAME", "{name}-f{fold}-{i:03d}-{count}.tfrec", "03"),
    Parameter("PART_LIMIT_GB", 19, "03", "the disk for output on Kaggle has 20", float),
    Parameter("MAX_PART_FILES", 45, "03", "a Kaggle dataset can have 50 at its top"),
    Parameter("SEED", 0, "03 07", high=2**32 - 1),
    Parameter(
        "OUT_DIR", "", "01 04 05 06", "folder of part-1/, part-2/ …; empty: WORK_DIR"
    ),
    Parameter("PART", 0, "04", "0: all parts"),
    Parameter("OVERWRITE", False, "04", "replace what another plan wrote"),
    Parameter(
        "LICENSE",
        "",
        "04",
        'Kaggle\'s name for the dataset, such as "CC0-1.0"',
        choices=("", *_LICENSES.split()),
    ),
    Parameter(
        "PUBLISH_HASHES",
        True,
        "04",
        "hashes.parquet in each part: finds copies without the images",
    ),
    Parameter(
        "MEAN_RGB", False, "04", "channel means of each split, of files and records"
    ),
    Parameter("TFREC_DIRS", [], "05 06", "empty: the parts in OUT_DIR"),
    Parameter(
        "FOLD",
        "all",
        "05 06",
        'the fold to validate on, such as 0; "all": 06 trains a model for each',
        int,
    ),
    Parameter("BATCH_SIZE", 32, "05 06", "images per device and step", low=1),
    Parameter("EPOCHS", 8, "06", low=1),
    Parameter(
        "TRAIN_SIZE",
        96,
        "06",
        "pixels, as IMAGE_SIZE; 224 suits pretrained networks",
        list,
        low=1,
    ),
    Parameter(
        "WEIGHTS",
        "",
        "06",
        '"imagenet", a .keras or .h5 file, or a Kaggle slug; empty: from scratch',
    ),
    Parameter("DEVICE", "auto", "06", choices=("auto", "tpu", "gpu", "cpu")),
)
# The formats of docs/parameters.md, which `make docs` writes.
MARKDOWN_FORMATS = (
    "## {}\n\n| parameter | default | |\n|---|---|---|",
    "| `{}` | `{}` | {} |",
)
# What to write in place of parameters of version 0.2.
REMOVED = {
    "SOURCE": "Leave it out; for TFRecords set INPUT_SCHEMA: auto, for masks "
    'LABEL_KIND: masks, and for class folders LABEL_COLUMN: folder and LABELS_CSV: "".',
    "TEST_ID_COLUMN": "Leave it out: the column of the names is found.",
    "TEST_PATH_TEMPLATE": "Leave it out: the names of TEST_CSV, and the images in test "
    "folders, are found; PATTERN leaves images out.",
    "REPEATS": "Leave it out: 07 repeats its experiment often enough.",
}
FOLDERS = (
    "WORK_DIR",
    "INPUT_DIR",
    "OUT_DIR",
    "TFREC_DIRS",
    "COMPARE_WITH",
    "FOLDS_FROM",
)
PARAMETERS = {parameter.name: parameter for parameter in TABLE}
DEFAULTS = {parameter.name: parameter.default for parameter in TABLE}


def find_notebook(step: str) -> str:
    """Return the notebook of a step: its number, name, or notebook.

    >>> find_notebook("3"), find_notebook("plan"), find_notebook("03_plan")
    ('03_plan', '03_plan', '03_plan')

    Raises: ValueError: there is no such step.
    """
    for notebook, name in STEPS.items():
        if step in (notebook, name, notebook[:2], notebook[1]):
            return notebook
    raise ValueError(f"'{step}' is not a step. The steps are {list_steps()}.")


def list_steps() -> str:
    """Return the numbers and names of the steps as a text."""
    return ", ".join(f"{notebook[:2]} {name}" for notebook, name in STEPS.items())


def choose_notebooks(first: str | None, last: str | None) -> list[str]:
    """Return the notebooks from one step to another.

    first: None is 01. last: None is 05, or `first` if that is later.
    Raises: ValueError: there is no such step, or they are in the wrong order.
    """
    start = NOTEBOOKS.index(find_notebook(first)) if first else 0
    default_end = max(start, len(DEFAULT_NOTEBOOKS) - 1)
    end = NOTEBOOKS.index(find_notebook(last)) if last else default_end
    if end < start:
        raise ValueError(
            f"{NOTEBOOKS[end]} comes before {NOTEBOOKS[start]}: no step is left to run."
        )
    return list(NOTEBOOKS[start : end + 1])


def select_parameters(notebook: str) -> list[Parameter]:
    """Return the parameters of a notebook such as "03_plan", in their order."""
    return [parameter for parameter in TABLE if notebook[:2] in parameter.notebooks]


def format_parameters(heading: str = "  {}", row: str = "    {:20} {:26} {}") -> str:
    """Return a list of all parameters, grouped by notebooks, with default and help."""
    lines = ["All parameters with their defaults, by the notebooks that have them."]
    by_notebooks = attrgetter("notebooks")
    for notebooks, group in groupby(sorted(TABLE, key=by_notebooks), by_notebooks):
        title = notebooks if " " in notebooks else find_notebook(notebooks)
        lines += ["", heading.format(title)]
        for parameter in group:
            default = json.dumps(parameter.default)
            line = row.format(parameter.name, default, parameter.description)
            lines.append(line.rstrip())
    return "\n".join(lines)


def as_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) in pixels; one number is the side of a square."""
    if isinstance(image_size, int):
        return image_size, image_size
    height, width = image_size
    return height, width


def make_settings(cls: type[Settings], values: Values) -> Settings:
    """Return a frozen dataclass whose fields are parameters, their names in lower case.

    A field with the metadata {"parameter": False} keeps its default.
    values: by the names of the parameters, for example a notebook's `globals()`.
    """
    values = {**DEFAULTS, **values}
    settings = {}
    for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
        if field.metadata.get("parameter", True):
            settings[field.name] = values[field.name.upper()]
    return cls(**settings)


def check_parameters(values: Values) -> None:
    """Check that every name is a parameter with a valid value.

    Raises: ValueError: a misspelt name, a wrong type or value.
    """
    for name, value in values.items():
        check_value(name, value)


def check_globals(values: Values) -> None:
    """Check the parameters among a notebook's `globals()`.

    Raises: ValueError: a wrong type or value, or a name in capitals that is close to a
    parameter's.
    """
    for name, value in values.items():
        if name in PARAMETERS:
            check_value(name, value)
        elif name.startswith("_") or not name.isupper():
            continue
        elif meant := _find_near_miss(name, 0.8):
            raise ValueError(
                f"{name} is not a parameter.{meant} If you have fixed it already, the "
                f"old name is still in this session: `del {name}`, or restart the "
                "kernel."
            )


def _find_near_miss(name: str, cutoff: float) -> str:
    """Return ' Did you mean "SEED"?' if a parameter has a similar name, else "".

    cutoff: the smallest ratio of difflib that counts as similar.
    """
    matches = difflib.get_close_matches(str(name).upper(), PARAMETERS, 1, cutoff)
    return f' Did you mean "{matches[0]}"?' if matches else ""


def check_value(name: str, value: Any) -> None:
    """Check the value of a parameter; raise a ValueError as `check_parameters` does."""
    if name in REMOVED:
        raise ValueError(f"{name} is not a parameter any more. {REMOVED[name]}")
    if name not in PARAMETERS:
        meant = _find_near_miss(name, 0.6)
        advice = " To list all parameters, run: kaggle-tfr run --help"
        raise ValueError(f"{name} is not a parameter.{meant or advice}")
    parameter = PARAMETERS[name]
    _check_type(parameter, value)
    _check_choice(parameter, value)
    items = value if isinstance(value, list) else [value]
    if name == "MORE_INPUTS":
        _check_inputs(items)
    elif items is value:
        _check_list(parameter, items)
    for item in items:
        if isinstance(item, str):
            _check_text(name, item)
        elif isinstance(item, int | float):
            _check_range(parameter, item)


def _check_type(parameter: Parameter, value: Any) -> None:
    types = parameter.types
    is_wrong_bool = isinstance(value, bool) and bool not in types  # an int in Python
    if not isinstance(value, types) or is_wrong_bool:
        names = " or ".join(value_type.__name__ for value_type in types)
        raise ValueError(
            f"{parameter.name} is {value!r}, of type {type(value).__name__}; it must "
            f"be of type {names}, for example {parameter.default!r}. In YAML, quotes "
            "make a string, and 1e-3 without a sign and a point is a string too."
        )


def _check_choice(parameter: Parameter, value: Any) -> None:
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(map(repr, parameter.choices))
        raise ValueError(f"{parameter.name} is {value!r}. It can be {choices}.")


def _check_list(parameter: Parameter, items: Sequence[Any]) -> None:
    valid = 'strings, such as ["a", "b"]'
    is_valid = all(isinstance(item, str) for item in items)
    if int in parameter.types:
        valid = "two whole numbers, such as [192, 256]"
        is_valid = [type(item) for item in items] == [int, int]
    if not is_valid:
        raise ValueError(f"{parameter.name} is {items!r}; a list must have {valid}.")


def _check_range(parameter: Parameter, number: float) -> None:
    if not parameter.low <= number <= parameter.high:
        valid = f"from {parameter.low} to {parameter.high}"
        if parameter.high == math.inf:
            valid = f"{parameter.low} or more"
        raise ValueError(f"{parameter.name} is {number}; it must be {valid}.")


def _check_text(name: str, text: str) -> None:
    if re.search(r"[\0\ud800-\udfff]", text):
        raise ValueError(
            f"{name} is {text!r}, which has NUL or bytes that are not UTF-8. Rename "
            "the file or folder."
        )
    is_address = name in FOLDERS and "://" in text
    if is_address and not re.match(r"gs://+[^/]", text):
        raise ValueError(
            f"{name} is {text!r}; it must be a folder, such as /data/photos, or an "
            "address of a bucket, such as gs://bucket/folder."
        )


def _check_inputs(inputs: Sequence[Any]) -> None:
    """Check that each is a mapping of the parameters of 01 that describe an input."""
    common = """WORK_DIR N_JOBS BACKEND SCHEDULER NAME LIMIT MORE_INPUTS BIT_DEPTH
    TEST_CSV GROUP_COLUMN OUT_DIR IMAGE_SIZE FOLDS_FROM LABEL_KIND RLE_ORDER"""
    known = [p.name for p in select_parameters("01") if p.name not in common.split()]
    for number, values in enumerate(inputs, 1):
        if not isinstance(values, Mapping) or "INPUT_DIR" not in values:
            raise ValueError(
                f"MORE_INPUTS, input {number}: it must be a mapping with an INPUT_DIR, "
                "such as {INPUT_DIR: more/, LABELS_CSV: more.csv}."
            )
        check_parameters(values)
        for key in values:
            if key not in known:
                raise ValueError(
                    f"MORE_INPUTS, input {number}: '{key}' cannot be set there. It "
                    f"can have {', '.join(known)}."
                )


def parse_value(name: str, text: str) -> Any:
    """Return the value of a parameter from the text of a command line.

    >>> parse_value("NAME", "007"), parse_value("QUALITY", "70")
    ('007', 70)
    >>> parse_value("SECOND_LOOK", "true"), parse_value("IMAGE_SIZE", "[192, 256]")
    (True, [192, 256])

    Raises: ValueError: there is no such parameter, or the text is not a valid value.
    """
    import yaml  # which reading does without

    types = PARAMETERS[name].types if name in PARAMETERS else (str,)
    value: Any = text
    if types != (str,):
        with contextlib.suppress(yaml.YAMLError):
            value = yaml.safe_load(text)
    if str in types and not isinstance(value, types):
        value = text
    if types[0] is list and isinstance(value, str):
        value = [value]
    check_value(name, value)
    return value


def load_recipe(path: str) -> dict[str, Any]:
    """Return the parameters of a recipe.

    path: of a file, or the name of a bundled recipe, such as "sample".
    Raises: FileNotFoundError; ValueError: the file is not YAML, repeats a key, or has a
    wrong parameter.
    """
    recipe = _find_recipe(path)
    try:
        return _parse_recipe(recipe.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The recipe '{recipe}' cannot be used: {error}") from None


def _parse_recipe(text: str) -> dict[str, Any]:
    values = _load_yaml(text) or {}
    if not isinstance(values, dict):
        raise ValueError("it is not a list of 'NAME: value' lines.")
    check_parameters(values)
    return values


def _load_yaml(text: str) -> Any:
    """Return what YAML's safe loader returns.

    Raises: ValueError: the text is not YAML, or repeats a key.
    """
    import yaml

    class RecipeLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            marks: dict = {}
            for key, _ in node.value:
                first_mark = marks.setdefault(str(key.value), key.start_mark)
                if first_mark is not key.start_mark:
                    raise yaml.YAMLError(
                        f"'{key.value}' is in line {first_mark.line + 1} and again in "
                        f"line {key.start_mark.line + 1}. Keep one."
                    )
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, RecipeLoader)  # noqa: S506  # a safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = text.splitlines()[mark.line] if mark else ""
        name, _, value = line.partition(":")
        advice = (
            f"Put the value of {name} in quotes: " if re.search("[{*]", value) else ""
        )
        text_of_error = " ".join(str(error).split())
        raise ValueError(f"{advice}{text_of_error}") from None


def _find_recipe(path: str) -> Path:
    """Return the file of a recipe: that of the path, or a bundled one of that name."""
    recipe = Path(path)
    if recipe.exists() and not recipe.is_dir():
        return recipe
    recipes = list_recipes()
    if str(recipe.parent) in (".", "recipes") and recipe.stem in recipes:
        return recipes[recipe.stem]
    if recipe.is_dir():
        raise IsADirectoryError(
            f"'{path}' is a folder. Write a recipe for the images in it: kaggle-tfr "
            f"init {shlex.quote(path)}"
        )
    raise FileNotFoundError(
        f"there is no recipe or folder '{path}'. Bundled recipes: "
        f"{', '.join(recipes)}. For your images: kaggle-tfr run FOLDER"
    )


def list_recipes() -> dict[str, Path]:
    """Return the files of the bundled recipes by their names, such as "sample"."""
    return {file.stem: file for file in sorted(bundled("recipes").glob("*.yaml"))}
