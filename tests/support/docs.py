"""The fenced blocks of README and docs, and what their commands need to run."""

import re
import shlex
import shutil
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
# "```bash no-run: a reason": the block needs what a test does not have.
NO_RUN = "no-run: "
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    page: the path in the checkout, such as "docs/cli.md". line: of its fence, from 1.
    language: "" for a figure made of text. note: the other words of the fence.
    """

    page: str
    line: int
    language: str
    note: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line} {self.language or 'text'}"

    @property
    def runs(self):
        return not self.note.startswith(NO_RUN)

    @property
    def exit_code(self):
        """What the last command returns: that of the note "exit=3", else 0."""
        _, _, number = self.note.partition("exit=")
        return int(number or 0)

    @property
    def commands(self):
        """The lines of a block of bash, without comments; continued lines are one."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if shlex.split(line, comments=True)]


def list_pages():
    """Return README and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def list_blocks():
    """Return the blocks of all pages by page, in the order of the page."""
    blocks = {}
    for path in list_pages():
        page = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        blocks[page] = []
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            blocks[page].append(Block(page, line, *match.groups()))
    return blocks


def write_recipe(block, folder):
    """Write a recipe, or add its lines to one: "file=NAME" or "add=NAME".

    Without a name, the block is a fragment of a recipe. Returns its parameters.
    """
    values = yaml.safe_load(block.text)
    action, _, name = block.note.partition("=")
    if action == "file":
        (folder / name).write_text(block.text)
    elif action == "add":
        values = yaml.safe_load((folder / name).read_text()) | values
        (folder / name).write_text(yaml.safe_dump(values))
    else:
        assert not block.note, f"{block}: {block.note}"
    return values


def write_inputs(folder, competition):
    """Write the inputs that the pages name, from the images of a competition.

    photos/ has a folder for each class. Cassava has numbers as classes, and its second
    source class folders with other names.
    """
    table = pd.read_csv(competition / "train.csv", dtype=str)
    for image_id, label in table[["image_id", "label"]].itertuples(index=False):
        source = competition / "train_images" / image_id
        target = folder / "photos" / label / image_id
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.exists():  # the sample's CSV names images that it lacks
            shutil.copyfile(source, target)

    cassava = folder / "cassava-leaf-disease-classification"
    shutil.copytree(competition, cassava, ignore=shutil.ignore_patterns("more"))
    table["label"], _ = pd.factorize(table["label"], sort=True)
    table.to_csv(cassava / "train.csv", index=False)

    earlier_classes = ["cbb", "cbsd", "cgm", "cmd", "healthy"]
    paths = sorted((competition / "more/images").glob("*"))
    for path, name in zip(paths, cycle(earlier_classes), strict=False):
        target = folder / "cassava-disease/train/train" / name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
