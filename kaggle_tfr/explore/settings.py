"""The parameters of 01_explore that describe the images and labels of INPUT_DIR."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOT_A_PARAMETER = {"parameter": False}


@dataclass(frozen=True)
class InputSettings:
    """Parameters of 01_explore by their names; `read_table` adds two fields.

    input_dir: absolute path or gs:// address, without a "/" at its end.
    excluded: absolute paths of folders of output, WORK_DIR and OUT_DIR.
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
    pattern: str = "*/*"
    input_schema: str | Mapping[str, Any] = "auto"
    test_csv: str = ""
    test_id_column: str = ""
    test_path_template: str = ""
    more_inputs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    group_column: str = ""
    limit: int = 0
    bit_depth: str = "scale"
    input_dir: str = field(default="", metadata=NOT_A_PARAMETER)
    excluded: Sequence[str] = field(default=(), metadata=NOT_A_PARAMETER)

    @property
    def reads_csv(self) -> bool:
        """Whether SOURCE is a table, whose columns may hold ids, labels and splits."""
        return self.source in ("csv", "rle_csv")

    @property
    def label_columns(self) -> list[str]:
        """The columns of LABEL_COLUMN, none if it is empty."""
        names = self.label_column
        listed = [names] if isinstance(names, str) else names
        return [name for name in listed if name]
