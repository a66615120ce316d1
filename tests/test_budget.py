"""The package stays within the budget of pyproject.toml: tokens, and their density.

Tokens are names, operators, numbers and strings, without docstrings and comments. A
package may be 5 % over its entry while the sum is kept. An entry is raised only
together with a lowered one.
"""

import ast
import tokenize
import tomllib
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
BETWEEN = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)  # statements
SLACK = 1.05
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUDGET = SETTINGS["tool"]["kaggle-tfr"]["budget"]


def count_lines(path):
    """Return the number of tokens of each code line, without docstrings."""
    counts = Counter()
    before = tokenize.NEWLINE
    with path.open() as file:
        for token in tokenize.generate_tokens(file.readline):
            is_docstring = token.type == tokenize.STRING and before in BETWEEN
            if token.type in COUNTED and not is_docstring:
                counts[token.start[0]] += 1
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.type
    return list(counts.values())


def count_tokens(folder, pattern="**/*.py"):
    return sum(sum(count_lines(path)) for path in folder.glob(pattern))


def test_each_package_keeps_to_its_budget():
    """A package over its entry is named. Code does not move to sample and tests."""
    package = ROOT / "kaggle_tfr"
    tokens = {"ground": count_tokens(package, "*.py")}
    for file in package.glob("*/__init__.py"):
        tokens[file.parent.name] = count_tokens(file.parent)

    over = {
        name: count
        for name, count in tokens.items()
        if count > SLACK * BUDGET["packages"].get(name, 0)
    }

    assert not over, BUDGET["packages"]
    assert sum(tokens.values()) <= BUDGET["package"]
    assert count_tokens(ROOT / "sample") <= BUDGET["sample"]
    assert count_tokens(ROOT / "tests") <= BUDGET["tests"]


def test_a_line_is_one_thought_and_a_function_fits_on_a_screen():
    """Budgets are not kept by packing: lines and functions stay short."""
    density = BUDGET["density"]
    lines = []
    nodes = []  # of the syntax tree, of each function
    for path in (ROOT / "kaggle_tfr").rglob("*.py"):
        lines += count_lines(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                nodes.append(len([*ast.walk(node)]))

    assert sum(lines) / len(lines) <= density["tokens_a_line"]
    assert median(nodes) <= density["median_nodes"]
    assert quantiles(nodes, n=10)[-1] <= density["nodes_90th_percentile"]
