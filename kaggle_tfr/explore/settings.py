"""The parameters of 01_explore that describe the images and labels of INPUT_DIR."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kaggle_tfr.naming import SUBMISSION

LABELS_CSV = "train.csv"


@dataclass(frozen=True)
class InputSettings:
    """Parameters of 01_explore by their names; `read_table` adds two fields.

    input_dir: absolute path or gs:// address, without a "/" at its end.
    excluded: absolute paths of folders whose files are not input.
    """

    name: str = ""
    pattern: str | Sequence[str] = ""
    labels_csv: str | Sequence[str] = LABELS_CSV
    id_column: str = ""
    path_template: str = ""
    label_column: str | Sequence[str] = ""
    label_kind: str = "auto"
    label_separator: str = ""
    label_map: str | Mapping[str, Any] = ""
    split_column: str = ""
    group_column: str = ""
    test_csv: str = SUBMISSION
    more_inputs: Sequence[Mapping[str, Any]] = ()
    input_schema: str | Mapping[str, Any] = ""
    limit: int = 0
    bit_depth: str = "scale"
    input_dir: str = ""
    excluded: Sequence[str] = ()


def list_texts(value: str | Sequence[str]) -> list[str]:
    """Return the texts of a parameter that takes one or several, none for ""."""
    listed = [value] if isinstance(value, str) else value
    return [text for text in listed if text]
