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


def format_page(root: Path = ROOT) -> str:
    """Return the page."""
    lines = [HEADER]
    for step in STEPS:
        package = _parse(root, f"kaggle_tfr.{step}")
        lines += [f"## {step}", "", ast.get_docstring(package) or "", ""]
        lines += ["| name | |", "|---|---|"]
        for name, module in list_public(package).items():
            summary = _summarize(_parse(root, module), name)
            lines.append(f"| `{name}` | {summary} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def list_public(package: ast.Module) -> dict[str, str]:
    """Return the names that a package's `__init__` imports, with their modules."""
    names = {}
    for node in package.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = str(node.module)
    return dict(sorted(names.items()))


def _parse(root: Path, module: str) -> ast.Module:
    """Return the syntax tree of a module or package."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _summarize(module: ast.Module, name: str) -> str:
    """Return the first paragraph of a docstring; of a constant, its value.

    Raises: KeyError: nothing in the module has this name, or a docstring.
    """
    for node in module.body:
        if getattr(node, "name", "") == name:
            docstring = ast.get_docstring(node)
            if docstring:
                paragraph = docstring.partition("\n\n")[0]
                return " ".join(paragraph.split()).replace("|", r"\|")
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return f"`{ast.unparse(node.value)}`"
    raise KeyError(f"{name} has no docstring")


if __name__ == "__main__":
    print(format_page(), end="")
