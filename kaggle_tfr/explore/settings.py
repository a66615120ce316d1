"""How images and labels lie in INPUT_DIR: the parameters of 01_explore."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class InputSettings:
    """How images and labels lie in INPUT_DIR: the parameters of 01_explore, by their names.

    excluded: folders that hold no input, WORK_DIR and OUT_DIR; `read_table` sets it.
    """

    name: str = ""
    source: str = "csv"
    labels_csv: str = ""
    id_column: str = ""
    label_column: str | Sequence[str] = ""
    label_kind: str = "auto"
    label_separator: str = ""
    label_map: str | Mapping[str, int] = ""
    split_column: str = ""
    path_template: str = ""
    pattern: str = ""
    input_schema: str | Mapping[str, Any] = "auto"
    test_csv: str = ""
    test_id_column: str = ""
    test_path_template: str = ""
    more_inputs: Sequence[Mapping[str, Any]] = ()
    limit: int = 0
    bit_depth: str = "scale"
    excluded: Sequence[str] = field(default=(), metadata={"parameter": False})

    @property
    def label_columns(self) -> list[str]:
        given = (
            [self.label_column]
            if isinstance(self.label_column, str)
            else self.label_column
        )
        return [name for name in given if name]
