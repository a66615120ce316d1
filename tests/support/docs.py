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

    language: "" for a figure made of text. note: the other words of the fence.
    """

    language: str
    note: str
    text: str

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
    """Return README, the page for contributors, and the pages of docs/."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return pages + sorted((ROOT / "docs").glob("*.md"))


def list_blocks():
    """Return the blocks of all pages by page, in the order of the page."""
    return {
        path.relative_to(ROOT).as_posix(): [
            Block(*match.groups()) for match in FENCE.finditer(path.read_text())
        ]
        for path in list_pages()
    }


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
        assert not block.note, block
    return values


def write_inputs(folder, competition):
    """Write the inputs that the pages name, from the images of a competition.

    photos/ has a folder for each class. Cassava has numbers as classes, and its second
    source class folders with other names.
    """
    table = pd.read_csv(competition / "train.csv", dtype=str)
    for image_id, label in table[["image_id", "label"]].itertuples(index=False):
        path = competition / "train_images" / image_id
        if path.exists():  # the sample's CSV names images that it lacks
            _copy(path, folder / "photos" / label)

    cassava = folder / "cassava-leaf-disease-classification"
    shutil.copytree(competition, cassava, ignore=shutil.ignore_patterns("more"))
    table["label"], _ = pd.factorize(table["label"], sort=True)
    table.to_csv(cassava / "train.csv", index=False)

    earlier_classes = cycle(["cbb", "cbsd", "cgm", "cmd", "healthy"])
    for path in sorted((competition / "more/images").glob("*")):
        second = folder / "competitions/cassava-disease/train/train"
        _copy(path, second / next(earlier_classes))


def _copy(path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder)
