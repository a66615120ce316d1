"""The package stays within the budget of pyproject.toml: tokens, and their density.

Tokens are names, operators, numbers and strings, without docstrings and comments. A
package may be 5 % over its entry while the sum is kept. An entry is raised only
together with a lowered one.
"""

import ast
import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SLACK = 1.05


def read_budget():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["kaggle-tfr"]["budget"]


def count_lines(path):
    """Return the number of tokens of each code line, without docstrings."""
    tree = ast.parse(path.read_text())
    in_docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            in_docstrings.update(range(docstring.lineno, docstring.end_lineno + 1))
    counts = defaultdict(int)
    with path.open() as file:
        for token in tokenize.generate_tokens(file.readline):
            line = token.start[0]
            if token.type in COUNTED and line not in in_docstrings:
                counts[line] += 1
    return list(counts.values())


def count_tokens(folder, pattern="**/*.py"):
    return sum(sum(count_lines(path)) for path in folder.glob(pattern))


def count_nodes(folder):
    """Return the number of syntax nodes of each function."""
    return [
        sum(1 for _ in ast.walk(node))
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]


def test_each_package_keeps_to_its_budget():
    """A package over its entry is named, with its tokens and its entry."""
    package = ROOT / "kaggle_tfr"
    budget = read_budget()
    tokens = {"ground": count_tokens(package, "*.py")}
    for folder in package.glob("*/"):
        if (folder / "__init__.py").exists():
            tokens[folder.name] = count_tokens(folder)

    over = {
        name: (count, budget["packages"].get(name, 0))
        for name, count in tokens.items()
        if count > SLACK * budget["packages"].get(name, 0)
    }

    assert not over
    assert sum(tokens.values()) <= budget["package"]


def test_the_sample_and_the_tests_keep_to_their_budgets():
    """Code that leaves the package does not become the sample's or the tests'."""
    budget = read_budget()

    assert count_tokens(ROOT / "sample") <= budget["sample"]
    assert count_tokens(ROOT / "tests") <= budget["tests"]


def test_a_line_is_one_thought_and_a_function_fits_on_a_screen():
    """Budgets are not kept by packing: lines and functions stay short."""
    density = read_budget()["density"]
    package = ROOT / "kaggle_tfr"
    lines = [count for path in package.rglob("*.py") for count in count_lines(path)]
    nodes = count_nodes(package)

    assert sum(lines) / len(lines) <= density["tokens_a_line"]
    assert median(nodes) <= density["median_nodes"]
    assert quantiles(nodes, n=10)[-1] <= density["nodes_90th_percentile"]
