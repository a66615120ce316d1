"""The README's promises: its commands, recipes, links and lists are those of the code."""

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


def blocks(readme, language):
    return re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)


def test_every_make_target_exists(readme, root):
    """Each `make X` of the README is a target of the Makefile."""
    targets = set(
        re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE)
    )
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
        make_parser().parse_args(shlex.split(call.partition("kaggle-tfr ")[2]))
    for recipe in recipes:
        check_parameters(yaml.safe_load(recipe))
    for block in blocks(readme, "python"):
        compile(block, "README.md", "exec")
        for line in block.splitlines():
            if line.startswith("from kaggle_tfr"):
                exec(line, {})


def write_cassava(folder):
    """The small sample under cassava's names, and its second source in the folders of 2019."""
    main_input, earlier = (
        folder / "cassava-leaf-disease-classification",
        folder / "cassava-disease",
    )
    write_small_sample(main_input)
    numbers = {
        "flower": "0",
        "night": "1",
        "portrait": "2",
        "sunset": "3",
        "temple": "4",
    }
    table = pd.read_csv(main_input / "train.csv", dtype=str)
    table.assign(label=table["label"].map(numbers)).to_csv(
        main_input / "train.csv", index=False
    )
    for number, path in enumerate(sorted((main_input / "more/images").glob("*"))):
        name = ("cbb", "cbsd", "cgm", "cmd", "healthy")[number % 5]
        target = earlier / "train/train" / name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    shutil.rmtree(main_input / "more")


def run_functions(values, notebooks):
    """In place of `driver.run_recipe`: the functions that the notebooks call, on 40 images."""
    work = mounts.work_dir(values.get("WORK_DIR", ""))
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
    """Who copies them one after the other finds the files of the line before where they belong.

    Then the recipe gets test images and a second source, by the block that follows.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "run_recipe", run_functions)
    write_cassava(tmp_path)
    section = readme.partition("## Your own images")[2].partition("\n## ")[0]
    recipe, additions = blocks(section, "yaml")[:2]
    lines = "".join(
        [*blocks(readme.partition("\n## The")[0], "bash"), *blocks(section, "bash")]
    )
    calls = [shlex.split(line, comments=True) for line in lines.splitlines()]
    calls = [call for call in calls if call and call[0] in ("kaggle-tfr", "papermill")]
    assert len(calls) == 7
    for program, *words in calls:
        if program == "kaggle-tfr":
            assert main(words) == 0, words
        else:
            executed, _, *options = words
            assert Path(executed).is_file()
            given = dict(zip(options[::2], options[1::2], strict=False))
            assert given.keys() <= {"-f", "-p"}
            name, text = options[options.index("-p") + 1 :][:2]
            values = load_recipe(given["-f"]) | {name: parse_value(name, text)}
            run_functions(values, [Path(executed).stem])
        if words[0] == "init":
            Path("leaves.yaml").write_text(recipe)

    values = yaml.safe_load(recipe) | yaml.safe_load(additions)
    chosen = make_settings(explore.InputSettings, DEFAULTS | values)
    images, labels = explore.read_table(values["INPUT_DIR"], chosen)
    assert labels.classes == (0, 1, 2, 3, 4)
    assert set(images["split"]) == {"train", "test"}
    added = images[images["source"] == 1]
    assert set(added["label"][added["problem"] == ""]) == {0, 1, 2, 3}
    assert added["problem"].str.contains("left out by LABEL_MAP: healthy").any()


def test_what_is_published_is_what_the_pushed_kernel_leaves(
    readme, tmp_path, monkeypatch
):
    """`publish` names the output folder of the kernel that `kernel` made, which has a licence."""
    monkeypatch.chdir(tmp_path)
    section = readme.partition("## On Kaggle")[2].partition("\n## ")[0]
    calls = [
        shlex.split(line, comments=True)
        for line in blocks(section, "bash")[0].splitlines()
    ]
    commands = {
        words[1]: words[1:] for words in reversed(calls)
    }  # the first of each name
    kernel, push, publish = (commands[name] for name in ("kernel", "push", "publish"))

    assert main(kernel) == 0

    (made,) = Path(push[1]).iterdir()
    assert Path(publish[1]) == Path(push[-1], made.name, "part-1")
    assert (
        "LICENSE = "
        in (made / "kernel.ipynb").read_text().partition("From the recipe")[2]
    )


def test_every_link_and_picture_is_there(readme, root):
    """Relative links lead somewhere, and each picture is a small one."""
    for target in re.findall(r"\]\(([^)#]+)\)", readme):
        if "://" not in target:
            assert (root / target).exists(), target
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme):
        assert (root / picture).stat().st_size < 400_000


def test_the_reading_order_names_every_module(readme, root):
    """The code map lists the whole package, nothing more and nothing less."""
    tree = (
        readme.partition("## Read the code")[2].partition("```")[2].partition("```")[0]
    )
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
    assert page == f"# Parameters\n\n{format_parameters(*MARKDOWN_FORMATS)}\n"
