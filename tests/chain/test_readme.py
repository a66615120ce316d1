"""The README and docs: their commands, recipes, links and lists agree with the code."""

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support.chain import run_values, write_small_sample

from kaggle_tfr import driver, explore, mounts, read
from kaggle_tfr.__main__ import main, make_parser
from kaggle_tfr.parameters import (
    DEFAULTS,
    MARKDOWN_FORMATS,
    check_parameters,
    format_parameters,
    load_recipe,
    make_settings,
    parse_value,
)
from kaggle_tfr.write.parts import write_parts


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text()


def find_blocks(page, language):
    """Return the code blocks of a page in that language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def find_section(page, title):
    """Return the text below a heading of the second level."""
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def split_commands(blocks):
    """Return the words of each command in blocks of bash."""
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [command for command in commands if command]


def list_pages(root):
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def test_every_make_target_exists(readme, root):
    """Each `make X` of the README is a target of the Makefile."""
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    in_text = re.findall(r"`make ([a-z-]+)", readme)
    in_blocks = re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE)
    assert {*in_text, *in_blocks} <= targets
    assert {"demo", "test"} <= targets


def test_the_commands_and_recipes_of_all_pages_are_valid(root):
    """Commands parse; recipes set existing parameters to values that fit."""
    pages = [path.read_text() for path in list_pages(root)]
    commands = [
        words
        for page in pages
        for words in split_commands(find_blocks(page, "bash"))
        if words[0] == "kaggle-tfr"
    ]
    recipes = [recipe for page in pages for recipe in find_blocks(page, "yaml")]
    assert len(commands) > 10
    assert len(recipes) > 4
    for _, *arguments in commands:
        make_parser().parse_args(arguments)
    for recipe in recipes:
        check_parameters(yaml.safe_load(recipe))


def test_the_links_of_all_pages_exist(root):
    """Relative links point to files, and each image is small."""
    for page in list_pages(root):
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)
        for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            assert (page.parent / image).stat().st_size < 400_000


def test_every_page_is_linked_from_the_readme(readme, root):
    """A page that nothing links to is not found."""
    for page in (root / "docs").glob("*.md"):
        assert f"docs/{page.name}" in readme


def test_the_tests_named_in_the_table_of_faults_exist(root):
    """Each row of docs/faults.md names files, and parts of names of tests in them."""
    rows = [
        line
        for line in (root / "docs" / "faults.md").read_text().splitlines()
        if line.startswith("| ") and "test_" in line
    ]
    assert len(rows) > 20
    for row in rows:
        cell = row.split(" | ")[-1]
        for words in cell.split(";"):
            file, *names = re.findall(r"`([^`]+)`", words)
            [path] = (root / "tests").rglob(Path(file).name)
            tests = re.findall(r"def (test_\w+)", path.read_text())
            for name in names:
                assert any(name in test for test in tests), (file, name)


def write_cassava(folder):
    """Write the small sample as cassava, and its second source in class folders."""
    main_input = folder / "cassava-leaf-disease-classification"
    earlier_input = folder / "cassava-disease"
    write_small_sample(main_input)

    class_names = ["flower", "night", "portrait", "sunset", "temple"]
    numbers = {name: str(number) for number, name in enumerate(class_names)}
    table = pd.read_csv(main_input / "train.csv", dtype=str)
    table["label"] = table["label"].map(numbers)
    table.to_csv(main_input / "train.csv", index=False)

    earlier_classes = ["cbb", "cbsd", "cgm", "cmd", "healthy"]
    paths = sorted((main_input / "more/images").glob("*"))
    for path, name in zip(paths, itertools.cycle(earlier_classes), strict=False):
        target = earlier_input / "train/train" / name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    shutil.rmtree(main_input / "more")


def run_functions(values, notebooks):
    """Replace `driver.run_recipe` by the notebooks' functions, on 40 images."""
    work = mounts.work_dir(values.get("WORK_DIR", ""), values["NAME"])
    steps = (
        [name[:2] for name in notebooks] if values["INPUT_DIR"] else []
    )  # not the sample
    if "01" in steps:
        run_values(values | {"LIMIT": 40, "IMAGE_SIZE": 64}, work)
    if "03" in steps:
        assert Path(work, "duplicates.parquet").exists()
    if "04" in steps:
        write_parts(work)
    if "05" in steps:
        assert set(read.find_shards(work)["folder"]) == {f"{work}/part-1"}
    return work


def test_the_commands_succeed_in_the_order_of_the_page(readme, tmp_path, monkeypatch):
    """Each command finds the files of those before it.

    Then the recipe gets test images and a second source, by the block that follows.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "run_recipe", run_functions)
    write_cassava(tmp_path)
    section = find_section(readme, "Your own images")
    recipe, additions = find_blocks(section, "yaml")[:2]
    install = find_section(readme, "Install")
    commands = split_commands(find_blocks(install + section, "bash"))
    commands = [words for words in commands if words[0] in ("kaggle-tfr", "papermill")]
    assert len(commands) == 7

    for program, *arguments in commands:
        if program == "kaggle-tfr":
            assert main(arguments) == 0, arguments
        else:
            run_papermill(*arguments)
        if arguments[0] == "init":
            Path("leaves.yaml").write_text(recipe)

    values = yaml.safe_load(recipe) | yaml.safe_load(additions)
    settings = make_settings(explore.InputSettings, DEFAULTS | values)
    images, labels = explore.read_table(values["INPUT_DIR"], settings)
    assert labels.classes == (0, 1, 2, 3, 4)
    assert set(images["split"]) == {"train", "test"}
    added = images[images["source"] == 1]
    assert set(added["label"][added["problem"] == ""]) == {0, 1, 2, 3}
    assert added["problem"].str.contains("left out by LABEL_MAP: healthy").any()


def run_papermill(notebook, output, *options):
    """Run the functions of a notebook with "-f RECIPE -p NAME VALUE"."""
    assert Path(notebook).is_file()
    file_flag, recipe, parameter_flag, name, text = options
    assert (file_flag, parameter_flag) == ("-f", "-p")
    values = load_recipe(recipe) | {name: parse_value(name, text)}
    run_functions(values, [Path(notebook).stem])


def test_publish_names_the_output_of_the_pushed_kernel(readme, tmp_path, monkeypatch):
    """The kernel that `kernel` makes has a licence, and `publish` names its output."""
    monkeypatch.chdir(tmp_path)
    [block] = find_blocks(find_section(readme, "On Kaggle"), "bash")
    commands = {}
    for _, name, *arguments in split_commands([block]):
        commands.setdefault(name, [name, *arguments])

    assert main(commands["kernel"]) == 0

    push_folder, output = commands["push"][1], commands["push"][-1]
    [kernel] = Path(push_folder).iterdir()
    published = Path(commands["publish"][1])
    assert published == Path(output, kernel.name, "part-1")
    code = (kernel / "kernel.ipynb").read_text()
    assert "LICENSE = " in code.partition("From the recipe")[2]


def test_the_code_map_lists_every_module(readme, root):
    """It lists the whole package, and nothing else."""
    tree = find_section(readme, "Read the code").split("```")[1]
    listed = {"": set(re.findall(r"^  (\w+)\.py", tree, re.MULTILINE))}
    for package, text in re.findall(r"^  (\w+)/ +(.*)$", tree, re.MULTILINE):
        listed[package] = set(re.findall(r"(\w+)\.py", text))

    existing = {}
    for path in (root / "kaggle_tfr").rglob("*.py"):
        package = path.parent.relative_to(root / "kaggle_tfr").as_posix().strip(".")
        existing.setdefault(package, set()).update({path.stem} - {"__init__"})
    assert listed == existing


def test_the_calls_of_a_record_are_defined_where_the_readme_says(readme, root):
    """The README lists the ten calls of one record, with the file of each."""
    section = find_section(readme, "Read the code")
    calls = re.findall(r"\| \d+ \| `(\w+)` \| `([\w/]+\.py)` \|", section)
    assert len(calls) == 10
    for name, file in calls:
        assert f"def {name}(" in (root / "kaggle_tfr" / file).read_text(), name


def test_the_page_of_parameters_is_up_to_date(root):
    """`make docs` was run after the last change."""
    page = (root / "docs" / "parameters.md").read_text()
    assert page == f"# Parameters\n\n{format_parameters(*MARKDOWN_FORMATS)}\n"
