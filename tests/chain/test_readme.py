"""The README's promises: its commands, recipes, links and lists are those of the code."""

import re
import shlex

import pytest
import yaml

from kaggle_tfr.__main__ import _parser
from kaggle_tfr.parameters import MARKDOWN, check_parameters, list_parameters


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text()


def blocks(readme, language):
    return re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)


def test_every_make_target_exists(readme, root):
    """Each `make X` of the README is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", readme, re.MULTILINE))
    assert {first or second for first, second in named} <= targets
    assert {"demo", "test"} <= targets


def test_what_is_shown_can_be_run(readme):
    """Commands parse, recipes set parameters that exist, Python compiles and imports what it names.

    A recipe's values fit as well.
    """
    lines = "".join(blocks(readme, "bash")).replace("\\\n", " ").splitlines()
    calls = [line.split("#")[0] for line in lines if line.startswith("kaggle-tfr ")]
    recipes = blocks(readme, "yaml")
    assert calls
    assert recipes
    for call in calls:
        _parser().parse_args(shlex.split(call.partition("kaggle-tfr ")[2]))
    for recipe in recipes:
        check_parameters(yaml.safe_load(recipe))
    for block in blocks(readme, "python"):
        compile(block, "README.md", "exec")
        for line in block.splitlines():
            if line.startswith("from kaggle_tfr"):
                exec(line, {})


def test_every_link_and_picture_is_there(readme, root):
    """Relative links lead somewhere, and each picture is a small one."""
    for target in re.findall(r"\]\(([^)#]+)\)", readme):
        if "://" not in target:
            assert (root / target).exists(), target
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme):
        assert (root / picture).stat().st_size < 400_000


def test_the_reading_order_names_every_module(readme, root):
    """The code map lists the whole package, nothing more and nothing less."""
    tree = readme.partition("## Read the code")[2].partition("```")[2].partition("```")[0]
    listed = {"": set(re.findall(r"^  (\w+)\.py", tree, re.MULTILINE))}
    for room, text in re.findall(r"^  (\w+)/ +(.*)$", tree, re.MULTILINE):
        listed[room] = set(re.findall(r"(\w+)\.py", text))
    package, there = root / "kaggle_tfr", {}
    for path in package.rglob("*.py"):
        room = path.parent.relative_to(package).as_posix().strip(".")
        there.setdefault(room, set()).update({path.stem} - {"__init__"})
    assert listed == there


def test_the_calls_of_a_record_are_where_the_readme_says(readme, root):
    """Each call of "Read the code" is defined in the file beside it."""
    section = readme.partition("## Read the code")[2]
    calls = re.findall(r"\| \d+ \| `(\w+)` \| `([\w/]+\.py)` \|", section)
    assert len(calls) == 10
    for name, file in calls:
        assert f"def {name}(" in (root / "kaggle_tfr" / file).read_text(), name


def test_the_page_of_parameters_is_that_of_the_table(root):
    """`make docs` was run after the last change."""
    page = (root / "docs" / "parameters.md").read_text()
    assert page == f"# Parameters\n\n{list_parameters(*MARKDOWN)}\n"
