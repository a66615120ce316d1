"""The README and docs agree with the code: lengths, links, lists, commands, figures."""

import re
import shlex

import pytest
import yaml
from support.docs import list_blocks, list_pages
from support.functions_page import format_page

from kaggle_tfr.__main__ import make_parser
from kaggle_tfr.parameters import check_parameters, format_parameters

MOST_LINES, MOST_WORDS = 150, 1200
# How each row of docs/reliability.md begins, and what proves it: files, or how tests in
# them begin.
PROOFS = """
`kill -9`, a lost session
  test_kill.py
a power cut
  test_faults.py::test_a_power_cut
an interrupt in a notebook
  test_kill.py::test_an_interrupt
the disk is full
  test_writer.py::test_a_full_disk
any call to the disk fails, or writes only
  test_faults.py::test_a_call_that_fails
a bucket answers 429, 500 or 503
  test_faults.py::test_a_bucket_s_refusal
a part would exceed its limit
  test_writer.py::test_a_part_never_passes_its_limit
Kaggle cannot be reached
  test_find.py::test_a_refusal_of_kaggle
an input disappears
  test_writer.py::test_a_missing_image
a pipe, a device, a broken link, a name
  test_bad_names.py
a symbolic link in `INPUT_DIR` points
  test_files.py
`WORK_DIR` or `OUT_DIR` is in `INPUT_DIR`
  test_files.py
`WORK_DIR` is `INPUT_DIR`, `LABEL_COLUMN`
  test_bad_names.py
  test_table.py
  test_parameters.py
an image has become unreadable since the
  test_writer.py::test_images_that_have_changed
an image of billions of pixels, or a narrow
  test_damage.py::test_a_bomb
  test_damage.py::test_a_narrow_image
a truncated JPEG with a valid end marker,
  test_damage.py::test_half_a_jpeg
  test_damage.py::test_zeros_in_the_scan
near-duplicates, or images of one group,
  test_folds.py::test_the_leakage_check
an image is replaced by another one between
  test_writer.py::test_images_that_have_changed
a file of a part is lost, cut or edited
  test_repair.py::test_any_damaged_file
a shard is damaged, cut or zeroed, and its
  test_recover.py
`OUT_DIR` is not writable, or a folder has
  test_repair.py::test_a_folder_that_may_not_be_written
  test_repair.py::test_a_folder_where_a_file_belongs
a source is removed, emptied or replaced
  test_repair.py::test_sources_that_are_gone
a part has lost its `plan.json`
  test_repair.py::test_a_part_without_its_plan
a shard is damaged or deleted
  test_verify.py
  test_writer.py::test_a_second_run_writes
a setting that changes the bytes
  test_writer.py::test_overwrite_replaces
parts of another plan are in
  test_writer.py::test_parts_of_another_plan
  test_shards.py::test_parts_of_different_plans
two runs write the same part
  test_writer.py::test_two_runs
"""


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text()


@pytest.fixture(scope="module")
def architecture(root):
    return (root / "docs" / "architecture.md").read_text()


def find_section(page, title):
    """Return the text below a heading of the second level."""
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def list_commands():
    """Return the arguments of each call of kaggle-tfr on all pages."""
    blocks = [block for blocks in list_blocks().values() for block in blocks]
    lines = [
        line for block in blocks if block.language == "bash" for line in block.commands
    ]
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in commands if words[0] == "kaggle-tfr"]


def test_the_readme_is_short(readme):
    """One reads it in five minutes; everything else is a page of docs/."""
    assert len(readme.splitlines()) <= MOST_LINES
    assert len(readme.split()) <= MOST_WORDS


def test_the_numbers_of_the_readme_are_in_the_linked_pages(readme, root):
    """Each fault of the usual notebook has one number, and the page that has it."""
    bullets = find_section(readme, "What goes wrong without it").split("\n- ")[1:]
    assert len(bullets) == 5
    for bullet in bullets:
        [number] = re.findall(r"\*\*(.*?)\*\*", bullet)
        [(command, page)] = re.findall(r"\[`(\w+)`\]\((docs/.*?)\)", bullet)
        text = (root / page).read_text()
        assert number in text, number
        assert re.search(rf"\b{command}\b", text), command
        assert (root / "benchmarks" / f"{command}.py").exists()


def test_every_make_target_exists(root):
    """Each `make X` of the pages is a target of the Makefile."""
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    pages = "".join(path.read_text() for path in list_pages())
    named = set(re.findall(r"`make ([a-z-]+)", pages))
    assert named <= targets
    assert {"demo", "test"} <= named


def test_the_commands_and_recipes_of_all_pages_are_valid():
    """Commands parse, also those that no test runs; recipes set existing parameters."""
    commands = list_commands()
    assert len(commands) > 10
    for arguments in commands:
        make_parser().parse_args(arguments)
    for blocks in list_blocks().values():
        for block in blocks:
            if block.language == "yaml":
                check_parameters(yaml.safe_load(block.text))


def test_every_command_and_option_is_documented(root):
    """docs/cli.md has a section for each command, which names its options."""
    page = (root / "docs" / "cli.md").read_text()
    sections = {}
    for section in page.split("\n## ")[1:]:
        titles, _, text = section.partition("\n")
        sections |= dict.fromkeys(titles.split(", "), text)
    [action] = make_parser()._subparsers._group_actions
    assert sections.keys() == action.choices.keys()
    for name, command in action.choices.items():
        for action in command._actions:
            option = max(action.option_strings, key=len, default="--help")
            assert option == "--help" or f"`{option}" in sections[name], (name, option)


def test_the_links_of_all_pages_exist():
    """Relative links point to files, and each image is small."""
    for page in list_pages():
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)
        for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            assert (page.parent / image).stat().st_size < 400_000


def test_every_page_is_linked_from_the_readme(readme, root):
    """A page that nothing links to is not found."""
    for page in (root / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme


def test_each_row_of_the_table_of_faults_has_a_test(root):
    """Each event begins as a key of PROOFS, whose tests exist."""
    section = find_section((root / "docs" / "reliability.md").read_text(), "Faults")
    events = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)[1:]
    proofs_of_events = re.findall(r"^(\S.*)\n((?:  .*\n)+)", PROOFS, re.MULTILINE)
    tests = []
    for path in (root / "tests").rglob("test_*.py"):
        names = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
        tests += [f"{path.name}::{name}" for name in names]
    for event, (start, proofs) in zip(events, proofs_of_events, strict=True):
        assert event.startswith(start)
        for proof in proofs.split():
            assert any(test.startswith(proof) for test in tests), proof


def test_the_code_map_lists_every_module(architecture, root):
    """It lists the whole package, and nothing else."""
    tree = find_section(architecture, "The modules").split("```")[1]
    listed = set(re.findall(r"^  (\w+\.py)", tree, re.MULTILINE))
    for package, text in re.findall(r"^  (\w+/) +(.*)$", tree, re.MULTILINE):
        listed |= {package + name for name in re.findall(r"\w+\.py", text)}

    folder = root / "kaggle_tfr"
    existing = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    assert listed == {name for name in existing if "__init__" not in name}


def test_the_calls_of_a_record_are_defined_where_the_page_says(architecture, root):
    """The page lists the ten calls of one record, with the file of each."""
    section = find_section(architecture, "One record")
    calls = re.findall(r"\| \d+ \| `(\w+)` \| `([\w/]+\.py)` \|", section)
    assert len(calls) == 10
    for name, file in calls:
        assert f"def {name}(" in (root / "kaggle_tfr" / file).read_text(), name


def test_the_generated_pages_are_up_to_date(root):
    """`make docs` was run after the last change of a parameter or a function."""
    parameters = (root / "docs" / "parameters.md").read_text()
    assert parameters == f"# Parameters\n\n{format_parameters()}\n"
    assert (root / "docs" / "functions.md").read_text() == format_page()
