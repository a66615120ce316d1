"""The README and docs agree with the code: lengths, links, lists, commands, figures."""

import re

import pytest
from support.docs import list_pages
from support.functions_page import format_page

from kaggle_tfr.__main__ import make_parser
from kaggle_tfr.parameters import format_parameters

# How each row of docs/reliability.md begins, and what proves it: files, or how tests in
# them begin.
PROOFS = """
`kill -9`, a lost session, a power cut
  test_kill.py::test_kills
  test_kill.py::test_an_interrupt
  test_faults.py::test_a_power_cut
the disk is full, fails or is read-only
  test_faults.py::test_a_call_that_fails
  test_repair.py::test_a_folder
a bucket answers 429, 500 or 503
  test_faults.py::test_a_bucket_s_refusal
a part would exceed its limit
  test_writer.py::test_a_part_never_passes_its_limit
Kaggle cannot be reached, or refuses a slug; an input
  test_find.py::test_a_refusal_of_kaggle
  test_writer.py::test_a_missing_image
a pipe, a device, a broken link, a name
  test_bad_names.py
  test_files.py
`WORK_DIR` or `OUT_DIR` is in `INPUT_DIR`
  test_bad_names.py
  test_files.py
an image has become unreadable since the plan
  test_writer.py::test_images_that_have_changed_since_the_plan
an image of billions of pixels, or a narrow
  test_damage.py::test_a_bomb
  test_damage.py::test_a_narrow_image
  test_damage.py::test_every_cut
a file of a part is lost, cut or edited
  test_repair.py::test_any_damaged_file
  test_verify.py
a shard is damaged, cut or zeroed, and its
  test_recover.py
a source is removed, emptied or replaced
  test_repair.py::test_sources_that_are_gone
a setting that changes the bytes, or a part
  test_writer.py::test_overwrite_replaces
  test_repair.py::test_a_part_without_its_plan
parts of another plan are in
  test_writer.py::test_parts_of_another_plan
  test_shards.py::test_parts_of_different_plans
two runs write the same part
  test_writer.py::test_two_runs
"""


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text()


def find_section(page, title):
    """Return the text below a heading of the second level."""
    return page.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_readme_and_docs_are_short(readme):
    """One reads README in five minutes, and nothing is said twice.

    Two pages are generated from the code.
    """
    assert len(readme.splitlines()) <= 150
    words = {page.name: len(page.read_text().split()) for page in list_pages()}
    assert words.pop("README.md") <= 1000
    del words["functions.md"], words["parameters.md"]
    assert sum(words.values()) <= 9000


def test_the_numbers_of_the_readme_are_in_the_linked_pages(readme, root):
    """A paragraph that links a benchmark has its numbers from the linked page."""
    assert "](docs/benchmarks.md)" in readme
    for text in re.split(r"\n\n|\n- ", readme):
        for command, page in re.findall(r"\[`(\w+)`\]\((docs/.*?)\)", text):
            source = (root / page).read_text()
            assert (root / "benchmarks" / f"{command}.py").exists()
            assert re.search(rf"\b{command}\b", source), command
            for number in re.findall(r"\*\*(.*?\d.*?)\*\*", text):
                assert number in source, number


def test_every_make_target_exists(root):
    """Each `make X` of the pages, in a sentence or a block, is in the Makefile."""
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    pages = "\n".join(path.read_text() for path in list_pages())
    used = set(re.findall(r"(?:`|^)make ([a-z-]+)(?:`| +#|$)", pages, re.MULTILINE))
    assert {"demo", "test"} <= used <= targets


def test_every_command_and_option_is_documented(root):
    """docs/cli.md has a section for each command, which names its options."""
    page = (root / "docs/cli.md").read_text()
    sections = {}
    for section in page.split("\n## ")[1:]:
        titles, _, text = section.partition("\n")
        sections |= dict.fromkeys(titles.split(", "), text)
    [action] = make_parser()._subparsers._group_actions
    for name, command in action.choices.items():
        for action in command._actions:
            option = max(action.option_strings, key=len, default="--help")
            assert option == "--help" or f"`{option}" in sections[name], (name, option)


def test_the_links_of_all_pages_exist(readme):
    """Relative links point to files; README links each page, and images are small."""
    for page in list_pages():
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)
        for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            assert (page.parent / image).stat().st_size < 400_000
        assert f"{page.name})" in readme or page.name == "README.md", page


def test_the_readme_shows_the_files_of_a_part(readme, sample):
    """Each table and schema in its tree is in a part of the sample."""
    tree = readme.partition("  part-1/")[2].partition("```")[0]
    for name in re.findall(r"\w+\.(?:csv|json)\b", tree):
        assert (sample / "work/sample/part-1" / name).exists(), name


def test_each_row_of_the_table_of_faults_has_a_test(root):
    """Each event begins as a key of PROOFS, whose tests exist."""
    section = find_section(root / "docs/reliability.md", "Faults")
    events = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)[1:]
    proofs_of_events = re.findall(r"^(\S.*)\n((?:  .*\n)+)", PROOFS, re.MULTILINE)
    tests = []
    for path in (root / "tests").rglob("test_*.py"):
        names = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
        tests += [f"{path.name}::{name}" for name in names]
    assert len(events) > 9
    for event in events:
        [proofs] = [
            found for start, found in proofs_of_events if event.startswith(start)
        ]
        for proof in proofs.split():
            assert any(test.startswith(proof) for test in tests), proof


def test_the_page_of_the_architecture_is_complete(root):
    """It lists every module; what it names of a file is in that file."""
    page = root / "docs/architecture.md"
    tree = find_section(page, "The modules").split("```")[1]
    listed = set(re.findall(r"^  (\w+\.py)", tree, re.MULTILINE))
    for package, text in re.findall(r"^  (\w+/) +(.*)$", tree, re.MULTILINE):
        listed |= {package + name for name in re.findall(r"\w+\.py", text)}

    folder = root / "kaggle_tfr"
    existing = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}
    assert listed == {name for name in existing if "__init__" not in name}
    places = re.findall(r"`(\w+)`(?: \| | \(| in )`([\w/]+\.py)`", page.read_text())
    assert len(places) > 9
    for name, file in places:
        code = (folder / file).read_text()
        assert re.search(rf"^(def )?{name}\b", code, re.MULTILINE), name


def test_the_generated_pages_are_up_to_date(root):
    """`make docs` was run after the last change of a parameter or a function."""
    parameters = (root / "docs/parameters.md").read_text()
    assert parameters == f"# Parameters\n\n{format_parameters()}\n"
    assert (root / "docs/functions.md").read_text() == format_page()
