"""Copy the executed notebooks of a run to docs/executed/, so that GitHub shows them.

Usage: python docs/copy_executed.py WORK_DIR
"""

import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "executed"


def main(work_dir: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in sorted(Path(work_dir, "notebooks").glob("0*.ipynb")):
        text = path.read_text(encoding="utf-8").replace(f"{ROOT}/", "")
        notebook = nbformat.reads(text, as_version=4)
        notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
        for cell in notebook.cells:
            clean(cell)
        nbformat.write(notebook, FOLDER / path.name)
        size = (FOLDER / path.name).stat().st_size
        print(f"{path.name}: {size / 1e6:.2f} MB")


def clean(cell: Any) -> None:
    """Remove what differs from run to run: times, and progress bars."""
    tags = cell.metadata.get("tags", [])
    cell.metadata = {"tags": tags} if tags else {}
    if cell.cell_type == "code":
        cell.outputs = [output for output in cell.outputs if not is_progress(output)]
        for number, output in enumerate(cell.outputs):
            output.get("metadata", {}).pop("papermill", None)
            if "execution_count" in output:
                output.execution_count = number + 1


def is_progress(output: Any) -> bool:
    html = output.get("data", {}).get("text/html", "")
    return output.get("name") == "stderr" or "progress {" in html or "<progress" in html


if __name__ == "__main__":
    main(*sys.argv[1:])
