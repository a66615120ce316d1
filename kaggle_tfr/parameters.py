"""Parameters: one table of them all, which notebooks, recipes and the command line follow."""

import contextlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kaggle_tfr.mounts import bundled
from kaggle_tfr.naming import SUBMISSION, near_miss

_STEPS = (
    "explore",
    "deduplicate",
    "plan",
    "write",
    "read_and_visualize",
    "train",
    "leakage",
)
NOTEBOOKS = tuple(f"{number:02d}_{step}" for number, step in enumerate(_STEPS, 1))
# 06_train is for interactive use; a run includes it only if it is named.
DEFAULT_NOTEBOOKS = NOTEBOOKS[:5]
Settings = TypeVar("Settings")
LONGEST = 1 << 20  # recipe, in characters


@dataclass(frozen=True)
class Parameter:
    """One parameter: its default, the numbers of its notebooks, and its line of help.

    also: types it takes besides its default's. choices: all values it can have, when not empty.
    low, high: the closed range of its numbers; without `low` there is none.
    """

    name: str
    default: Any
    notebooks: str
    help: str = ""
    also: tuple[type, ...] = ()
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float = math.inf

    @property
    def types(self) -> tuple[type, ...]:
        """The types of its values, the default's first."""
        own = type(self.default)
        return ((float, int) if own is float else (own,)) + self.also

    @property
    def description(self) -> str:
        """Its help, then the values that it can have, as the notebooks' parameters cell has it."""
        listed = (
            ", ".join(map(json.dumps, self.choices)) if len(self.choices) < 9 else ""
        )
        return "; ".join(filter(None, [self.help, listed]))


_ALL, _WORKERS, _READING = "01 02 03 04 05 06 07", "01 02 03 04", "05 06"
_RESIZE = ("short_side", "stretch", "center_crop", "fill", "none")
_CONFLICTS = ("drop", "majority", "keep")
_PATTERN = "for folders: class/file, or split/class/file; for tfrecords: *.tfrec"
_LABELS = 'or a pattern of several, such as "*/_classes.csv"'
_KIND = "of 0/1 columns; auto: single if each row has one 1"
_SPLIT = "of LABELS_CSV: train, valid, test; empty: all is train"
_TEST = 'or a pattern, "test/*"; empty: no tests'
_VALIDATION = 'share of train that becomes "validation"'
_LICENSE = 'to publish: Kaggle\'s name of it, such as "CC0-1.0"'
# As Kaggle names them. Source: docs/datasets_metadata.md of its client.
_LICENSES = """CC0-1.0 CC-BY-3.0 CC-BY-3.0-IGO CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-4.0
CC-BY-ND-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0-IGO CC-BY-NC-SA-4.0 PDDL ODC-BY-1.0 ODbL-1.0 DbCL-1.0
CDLA-Permissive-1.0 CDLA-Sharing-1.0 US-Government-Works EU-ODP-Legal-Notice apache-2.0 GPL-2.0
GPL-3.0 LGPL-3.0 AGPL-3.0 FDL-1.3 copyright-authors other unknown"""
TABLE = (
    Parameter(
        "WORK_DIR", "", _ALL, "empty: work/ in the checkout, or Kaggle's working folder"
    ),
    Parameter("N_JOBS", 0, _WORKERS, "0: all cores", low=0),
    Parameter("BACKEND", "threading", _WORKERS, choices=("threading", "loky", "dask")),
    Parameter("SCHEDULER", "", _WORKERS, '"tcp://host:8786", for dask'),
    Parameter("NAME", "sample", "01", "of the dataset"),
    Parameter("INPUT_DIR", "", "01", "empty: the bundled sample"),
    Parameter(
        "SOURCE", "csv", "01", choices=("csv", "folders", "rle_csv", "tfrecords")
    ),
    Parameter("LABELS_CSV", "train.csv", "01", _LABELS),
    Parameter("ID_COLUMN", "image_id", "01"),
    Parameter(
        "LABEL_COLUMN", "label", "01", "a list of 0/1 columns for multi-label", (list,)
    ),
    Parameter("LABEL_KIND", "auto", "01", _KIND, choices=("auto", "single", "multi")),
    Parameter("LABEL_SEPARATOR", "", "01", '" " when one column holds several labels'),
    Parameter(
        "LABEL_MAP", "", "01", 'a JSON file {"class": index}; empty: sorted', (dict,)
    ),
    Parameter("SPLIT_COLUMN", "", "01", _SPLIT),
    Parameter("PATH_TEMPLATE", "train_images/{image_id}", "01"),
    Parameter("PATTERN", "*/*", "01", _PATTERN),
    Parameter(
        "INPUT_SCHEMA",
        "auto",
        "01",
        "of tfrecords: a preset's name, or a mapping",
        (dict,),
    ),
    Parameter("TEST_CSV", SUBMISSION, "01", "ids; empty: TEST_PATH_TEMPLATE's files"),
    Parameter("TEST_ID_COLUMN", "", "01", "of TEST_CSV; empty: ID_COLUMN"),
    Parameter("TEST_PATH_TEMPLATE", "test_images/{image_id}", "01", _TEST),
    Parameter("MORE_INPUTS", [], "01", "[{INPUT_DIR: …, LABELS_CSV: …}], what differs"),
    Parameter("BIT_DEPTH", "scale", "01", "16 bits in 8", choices=("scale", "stretch")),
    Parameter("LIMIT", 0, "01", "only so many rows, spread over all; 0: all", low=0),
    Parameter("MAX_BITS", 25, "02", "of 256", low=0, high=256),
    Parameter("MIRRORED", False, "02", "mirrored and rotated copies too; 9 × slower"),
    Parameter("SECOND_LOOK", False, "02", "compare candidates by their geometry"),
    Parameter(
        "CANDIDATE_BITS", 70, "02", "the radius of these candidates", low=0, high=256
    ),
    Parameter(
        "KEEP", "largest", "02", "of a cluster", choices=("largest", "first", "all")
    ),
    Parameter(
        "CONFLICTS", "drop", "02", "same picture, different labels", choices=_CONFLICTS
    ),
    Parameter(
        "LEAKS",
        "report",
        "02",
        "images that show a test image",
        choices=("report", "drop"),
    ),
    Parameter(
        "SCHEMA", "default", "03", "a preset's name, or {feature: source}", (dict,)
    ),
    Parameter("GROUP_COLUMN", "", "03", "its values never cross a fold: patient, site"),
    Parameter(
        "IMAGE_SIZE",
        256,
        "03 05 06",
        "pixels: an int, or [height, width]",
        (list,),
        low=1,
    ),
    Parameter("RESIZE", "short_side", "03", choices=_RESIZE),
    Parameter("RESAMPLE", "area", "03", "area is fastest", choices=("area", "lanczos")),
    Parameter("QUALITY", 90, "03", "JPEG, 1 to 100", low=1, high=100),
    Parameter(
        "CHROMA", "4:2:0", "03", "4:4:4: larger files", choices=("4:2:0", "4:4:4")
    ),
    Parameter(
        "OPTIMIZE", True, "03", "Huffman tables for each picture: 3 % smaller, slower"
    ),
    Parameter(
        "COMPRESSION", "", "03", "JPEG gains nothing from it", choices=("", "GZIP")
    ),
    Parameter("N_FOLDS", 5, "03 07", "0 or 1: no folds", low=0),
    Parameter("VALIDATION_SIZE", 0.0, "03", _VALIDATION, low=0, high=0.95),
    Parameter(
        "EXTRA_IN_VALIDATION", False, "03", "MORE_INPUTS's images too may validate"
    ),
    Parameter("SHARD_MB", 200, "03", "about", (float,), low=0),
    Parameter("N_SHARDS", 0, "03", "in all; 0: as SHARD_MB says", low=0),
    Parameter(
        "SHARD_IMAGES", 0, "03", "at most, in a shard; 0: as SHARD_MB says", low=0
    ),
    Parameter("SHARD_NAME", "{name}-f{fold}-{i:03d}-{count}.tfrec", "03"),
    Parameter(
        "PART_LIMIT_GB", 19, "03", "Kaggle's output disk has 20", (float,), low=0
    ),
    Parameter(
        "MAX_PART_FILES", 45, "03", "a Kaggle dataset takes 50 at its top", low=0
    ),
    Parameter("SEED", 0, "03 07", low=0, high=2**32 - 1),
    Parameter(
        "OUT_DIR", "", "01 04 05 06", "folder of part-1/, part-2/ …; empty: WORK_DIR"
    ),
    Parameter("PART", 0, "04", "0: all parts", low=0),
    Parameter("OVERWRITE", False, "04", "write anew what another plan wrote"),
    Parameter("LICENSE", "", "04", _LICENSE, choices=("", *_LICENSES.split())),
    Parameter(
        "MEAN_RGB", False, "04", '{"R", "G", "B"} a split, of files and of records'
    ),
    Parameter("TFREC_DIRS", [], _READING, "empty: the parts in OUT_DIR"),
    Parameter("FOLD", 0, _READING, "the fold to validate on", low=-1),
    Parameter("BATCH_SIZE", 32, "05 06 07", "of one replica", low=1),
    Parameter("EPOCHS", 8, "06 07", low=1),
    Parameter(
        "COPY_SHARE", 0.5, "07", "of the pictures, which get a copy", low=0, high=1
    ),
    Parameter("RANDOM_LABELS", 0.5, "07", "share that no picture tells", low=0, high=1),
    Parameter("REPEATS", 3, "07", "of both ways", low=2),
    Parameter("DEVICE", "auto", "06", choices=("auto", "tpu", "gpu", "cpu")),
)
# The forms of `format_parameters` in docs/parameters.md, which `make docs` writes.
MARKDOWN_FORMATS = (
    "## {}\n\n| parameter | default | |\n|---|---|---|",
    "| `{}` | `{}` | {} |",
)
FOLDERS = ("WORK_DIR", "INPUT_DIR", "OUT_DIR", "TFREC_DIRS")
PARAMETERS = {parameter.name: parameter for parameter in TABLE}
DEFAULTS: dict[str, Any] = {parameter.name: parameter.default for parameter in TABLE}


def select_parameters(notebook: str) -> list[Parameter]:
    """The parameters of a notebook, such as "03_plan", in the order of its cell."""
    return [parameter for parameter in TABLE if notebook[:2] in parameter.notebooks]


def format_parameters(heading: str = "  {}", row: str = "    {:20} {:28} {}") -> str:
    """Lines of text: the parameters below the notebooks that take them, with default and help."""
    lines = ["All parameters with their defaults, by the notebooks that take them."]
    for notebooks, group in groupby(sorted(TABLE, key=_notebooks_of), _notebooks_of):
        told = [
            row.format(one.name, json.dumps(one.default), one.description)
            for one in group
        ]
        lines += ["", heading.format(notebooks), *map(str.rstrip, told)]
    return "\n".join(lines)


def _notebooks_of(one: Parameter) -> str:
    """Its one notebook's name, such as "03_plan", or the numbers of several, such as "05 06"."""
    return next(
        (name for name in NOTEBOOKS if name[:2] == one.notebooks), one.notebooks
    )


def as_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) in pixels of a square's side, or of a height and a width."""
    height, width = [image_size] * 2 if isinstance(image_size, int) else image_size
    return height, width


def format_cell(notebook: str) -> str:
    """The source of a notebook's cell tagged `parameters`: a default and its help a line."""
    lines = []
    for one in select_parameters(notebook):
        # JSON's quotes are the notebooks', but for its words true and false.
        plain = (
            json.dumps(one.default)
            if isinstance(one.default, str)
            else repr(one.default)
        )
        lines.append(
            f"{one.name} = {plain}"
            + (f"  # {one.description}" if one.description else "")
        )
    return "\n".join(lines)


def make_settings(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
    """The frozen dataclass whose fields are parameters by their names in lower case.

    A field with the metadata {"parameter": False} keeps its default.

    values: by the parameters' own names, such as a notebook's `globals()`; others: defaults.
    """
    held = fields(cls)  # type: ignore[arg-type]  # a dataclass
    names = [
        field.name.upper() for field in held if field.metadata.get("parameter", True)
    ]
    return cls(**{name.lower(): values.get(name, DEFAULTS[name]) for name in names})


def check_parameters(values: Mapping[str, Any], *, notebook: bool = False) -> None:
    """None, when every ALL-CAPS name is a parameter with a fitting value.

    notebook: `values` are a notebook's `globals()`: a name that is like no parameter may stand.
    Raises: ValueError: a misspelt name (the near miss is named), a wrong type or value.
    """
    for name, value in values.items():
        if not name.isupper() or name.startswith("_"):
            continue
        if name in PARAMETERS or not notebook:
            check_value(name, value)
        elif meant := near_miss(name, PARAMETERS, cutoff=0.8):
            mend = f"its old name still stands in this session: `del {name}`, or restart the kernel"
            raise ValueError(
                f"{name} is no parameter.{meant} If it is mended already, {mend}."
            )


def check_value(name: str, value: Any) -> None:
    """Raises a ValueError, as `check_parameters` does, unless the value fits the parameter."""
    if name not in PARAMETERS:
        there = (
            f"{near_miss(name, PARAMETERS)} There are: {', '.join(sorted(PARAMETERS))}."
        )
        raise ValueError(f"{name} is no parameter.{there}")
    one = PARAMETERS[name]
    if not isinstance(value, one.types) or isinstance(value, bool) != (
        bool in one.types
    ):
        wanted = " or ".join(kind.__name__ for kind in one.types)
        what = f"{name} is {value!r}, a {type(value).__name__}; it takes a {wanted}, for example"
        hint = "In YAML, quotes make a string, and 1e-3 without a sign and a point is one too."
        raise ValueError(f"{what} {one.default!r}. {hint}")
    if one.choices and value not in one.choices:
        hint, listed = (
            near_miss(str(value), one.choices),
            ", ".join(map(repr, one.choices)),
        )
        raise ValueError(f"{name} is {value!r}.{hint} It can be {listed}.")
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and re.search(r"[\0\ud800-\udfff]", text):
            what = f"{name} is {value!r}: NUL, or bytes that are no UTF-8, in a name."
            raise ValueError(
                f"{what} Rename the file or folder, and write the new name."
            )
    if name in FOLDERS:
        check_address(name, value)
    items = value if isinstance(value, list) else []
    if name == "MORE_INPUTS":
        _check_inputs(items)
        return
    kind, what = (int, "two whole numbers") if one.types[0] is int else (str, "strings")
    fits = all(isinstance(item, kind) and not isinstance(item, bool) for item in items)
    if not fits or (kind is int and isinstance(value, list) and len(items) != 2):
        example = "[192, 256]" if kind is int else '["a", "b"]'
        raise ValueError(
            f"{name} is {value!r}; a list of it takes {what}, such as {example}."
        )
    low, numbers = one.low, items or [value]
    if low is not None and not all(low <= number <= one.high for number in numbers):
        wanted = (
            f"{low} or more" if one.high == math.inf else f"from {low} to {one.high}"
        )
        raise ValueError(f"{name} is {value!r}; it takes {wanted}.")


def check_address(name: str, value: Any) -> None:
    """Raises a ValueError for an address, such as file:///photos, that is not one of a bucket."""
    for place in [value] if isinstance(value, str) else value:
        scheme, mark, path = str(place).partition("://")
        if mark and scheme == "gs" and not path.strip("/"):
            raise ValueError(
                f"{name} is {value!r}, without a bucket. Write gs://bucket/folder."
            )
        if mark and scheme != "gs":
            mend = (
                f"Write the plain path, '{path}'."
                if scheme == "file"
                else "Download it first."
            )
            raise ValueError(
                f"{name} is {value!r}; it takes a folder or a gs:// address. {mend}"
            )


def _check_inputs(inputs: list[Any]) -> None:
    """Raises a ValueError unless each is a mapping of 01's parameters that tell of an input."""
    common = {
        "WORK_DIR",
        "N_JOBS",
        "BACKEND",
        "SCHEDULER",
        "NAME",
        "LIMIT",
        "MORE_INPUTS",
    }
    common |= {
        "BIT_DEPTH",
        "TEST_CSV",
        "TEST_ID_COLUMN",
        "TEST_PATH_TEMPLATE",
        "OUT_DIR",
    }
    known = [one.name for one in select_parameters("01") if one.name not in common]
    for number, given in enumerate(inputs, 1):
        if not isinstance(given, Mapping) or "INPUT_DIR" not in given:
            form = "[{INPUT_DIR: more/, LABELS_CSV: more.csv}]"
            raise ValueError(
                f"MORE_INPUTS takes mappings with an INPUT_DIR, such as {form}."
            )
        for key, value in given.items():
            if key not in known:
                what = f"MORE_INPUTS, input {number}: '{key}' cannot be set there."
                raise ValueError(
                    f"{what}{near_miss(key, known)} It takes {', '.join(known)}."
                )
            check_value(key, value)


def parse_value(name: str, text: str) -> Any:
    """The value of a parameter from the text of a command line, read by the type it needs.

    >>> parse_value("NAME", "007"), parse_value("QUALITY", "70"), parse_value("SECOND_LOOK", "true")
    ('007', 70, True)
    >>> parse_value("IMAGE_SIZE", "[192, 256]")
    [192, 256]

    Raises: ValueError: no such parameter, or a text that does not fit it.
    """
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


class _RepeatedKey(ValueError):  # noqa: N818 - it names what is wrong with a recipe
    """A mapping of a recipe has the same key twice."""


class _RecipeLoader(yaml.SafeLoader):
    """YAML's safe loader, but a repeated key is an error: YAML itself keeps the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        self.flatten_mapping(node)
        line_of: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            identity = (key.tag, key.value)
            if identity in line_of:
                first, second = sorted([line_of[identity], line])
                what = f"'{key.value}' is in line {first} and again in line {second}."
                raise _RepeatedKey(f"{what} Keep one of them.")
            line_of[identity] = line
        return super().construct_mapping(node, deep=deep)


def load_recipe(path: str) -> dict[str, Any]:
    """The parameters that a recipe sets; `path` may be a bundled one's name, such as "sample".

    Raises: FileNotFoundError; IsADirectoryError; ValueError: not YAML, a key repeats, aliases
    (which grow without bound), as `check_parameters`.
    """
    path = _find_recipe(path)
    if Path(path).is_dir():
        raise IsADirectoryError(
            f"'{path}' is a folder, not a recipe. Make one: kaggle-tfr init "
            f"{shlex.quote(path)} -o recipe.yaml"
        )
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
        refused = len(text) > LONGEST or any(
            type(x) is yaml.AliasEvent for x in yaml.parse(text)
        )
        values = None if refused else yaml.load(text, _RecipeLoader) or {}  # noqa: S506  # a safe one
    except _RepeatedKey as error:
        raise ValueError(f"the recipe '{path}': {error}") from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # "2026-13-45" is a ValueError
        raise ValueError(f"the recipe '{path}' is not YAML: {error}") from None
    if not isinstance(values, dict):
        what = f"the recipe '{path}' is not a list of 'NAME: value' lines"
        raise ValueError(
            f"{what}, of up to {LONGEST:,} characters, without aliases (*name)."
        )
    try:
        for name, value in values.items():
            check_value(name, value)
    except ValueError as error:
        raise ValueError(f"the recipe '{path}': {error}") from None
    return values


def _find_recipe(path: str) -> str:
    given, ours = (
        Path(path),
        {one.stem: str(one) for one in bundled("recipes").glob("*.yaml")},
    )
    if given.exists():
        return path
    if str(given.parent) in (".", "recipes") and given.stem in ours:
        return ours[given.stem]
    beside = [one.stem for one in given.parent.glob("*.yaml")]
    there = f"{near_miss(given.stem, [*ours, *beside])} Bundled ones: {', '.join(sorted(ours))}."
    raise FileNotFoundError(f"there is no recipe '{path}'.{there}")
