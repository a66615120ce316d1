"""docs/functions.md: the public functions of each step, from their docstrings.

PYTHONPATH=tests python -m support.functions_page > docs/functions.md
"""

import inspect
from importlib import import_module

STEPS = ("explore", "deduplicate", "plan", "write", "read", "train")
HEADER = """# Functions

The public functions of each step: `from kaggle_tfr import plan`, then
`plan.make_plan(…)`. `help(plan.make_plan)` describes arguments, units and errors.
[From Python](cli.md#from-python) shows the steps as one call each.
"""


def format_page():
    """Return the page. Each class and function of a step has a docstring."""
    lines = [HEADER]
    for step in STEPS:
        package = import_module(f"kaggle_tfr.{step}")
        lines += [f"## {step}", "", inspect.getdoc(package), ""]
        lines += ["| name | |", "|---|---|"]
        for name, value in sorted(vars(package).items()):
            if callable(value):
                paragraph = inspect.getdoc(value).partition("\n\n")[0]
                summary = " ".join(paragraph.split()).replace("|", r"\|")
                lines.append(f"| `{name}` | {summary} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(format_page(), end="")
