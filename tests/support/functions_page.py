"""docs/functions.md: the public functions of each step, from their docstrings.

PYTHONPATH=tests python -m support.functions_page > docs/functions.md
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = ("explore", "deduplicate", "plan", "write", "read", "train")
HEADER = """# Functions

The public functions of each step: `from kaggle_tfr import plan`, then
`plan.make_plan(…)`. `help(plan.make_plan)` describes arguments, units and errors.
[From Python](python.md) shows the steps as one call each.
"""


def format_page(root=ROOT):
    """Return the page."""
    lines = [HEADER]
    for step in STEPS:
        package = _parse(root, f"kaggle_tfr.{step}")
        lines += [f"## {step}", "", ast.get_docstring(package), ""]
        lines += ["| name | |", "|---|---|"]
        for name, module in list_public(package):
            summary = _summarize(_parse(root, module), name)
            lines.append(f"| `{name}` | {summary} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def list_public(package):
    """Return the names that a package's `__init__` imports, with their modules."""
    names = []
    for node in package.body:
        if isinstance(node, ast.ImportFrom):
            names += [(alias.asname or alias.name, node.module) for alias in node.names]
    return sorted(names)


def _parse(root, module):
    """Return the syntax tree of a module or package."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _summarize(module, name):
    """Return the first paragraph of a docstring; of a constant, its value.

    Raises: KeyError: nothing in the module has this name, or a docstring.
    """
    for node in module.body:
        if getattr(node, "name", "") == name and ast.get_docstring(node):
            paragraph = ast.get_docstring(node).partition("\n\n")[0]
            return " ".join(paragraph.split()).replace("|", r"\|")
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return f"`{ast.unparse(node.value)}`"
    raise KeyError(f"{name} has no docstring")


if __name__ == "__main__":
    print(format_page(), end="")
