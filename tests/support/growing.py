"""A dataset that grows three times, with planted copies of what it has already."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import build_dataset
from kaggle_tfr.earlier import read_fingerprints
from support.chain import draw_pictures, save_picture
from support.plans import digests

N_GROWTHS = 3
TEXTURE = 20  # of images whose copies have similar hashes
VALUES = {"N_FOLDS": 3, "IMAGE_SIZE": 64, "SECOND_LOOK": False}
CLASSES = "abc"
RECORD = "earlier: part"
WRITTEN = ("test image: always kept", "kept: ", RECORD)


def write_images(folder, pictures, numbers):
    """Write pictures as class folders, the class by the number."""
    for number in numbers:
        path = folder / CLASSES[number % 3] / f"{number:03d}.jpg"
        save_picture(pictures[number], path, quality=92)


@dataclass
class Step:
    """A dataset after one run.

    outcomes: how the reason of each planted image in folds.csv begins, by its id; in
        several ways if it is written, and has a record in the next growth.
    parts: of all runs so far. earlier: digests of the parts before, made before and
        after this run.
    """

    folds: pd.DataFrame
    accounting: pd.Series
    outcomes: dict
    parts: list[Path]
    earlier: list[dict]

    @property
    def records(self):
        """The fingerprints of all parts, one row per record."""
        return pd.concat(map(read_fingerprints, self.parts), ignore_index=True)


class Competition:
    """A folder with train.csv, its images, and those of the test set.

    rows: of both; since: the growth that adds them.
    """

    def __init__(self, folder):
        numbers = np.arange(170)
        self.folder = folder
        rows = pd.DataFrame({"image_id": [f"{number:03d}.jpg" for number in numbers]})
        split = np.where(numbers < 150, "train", "test")
        since = np.maximum(numbers % 20 - 16, 0)
        self.rows = rows.assign(label=numbers % 3, split=split, since=since)
        for picture, name, place in zip(
            draw_pictures(170, 120, 160), rows["image_id"], split, strict=True
        ):
            save_picture(picture, self.path(name, place), quality=92)

    def path(self, image_id, split="train"):
        return self.folder / f"{split}_images" / image_id

    def write(self, growth, overrides):
        rows = self.rows[self.rows["since"] <= growth].set_index("split")
        for split, name in {"train": "train", "test": "sample_submission"}.items():
            table = rows.loc[[split], ["image_id", "label"]]
            table.to_csv(self.folder / f"{name}.csv", index=False)
        lines = ["image_id,action,value", *overrides, ""]
        (self.folder / "overrides.csv").write_text("\n".join(lines))

    def copy(self, image_id, source, split="train"):
        """Add a smaller copy of an image."""
        row = self.rows[self.rows["image_id"] == source].iloc[0]
        picture = Image.open(self.path(source, row["split"])).resize((128, 96))
        save_picture(picture, self.path(image_id, split), quality=80)
        self.rows.loc[len(self.rows)] = [image_id, row["label"], split, 0]


def plant(competition, records, growth):
    """Change the input, and plant copies; return their outcomes and overrides."""
    rows = competition.rows
    is_copied = (records["cluster"] < 0) & (records["texture"] > TEXTURE)
    is_copied &= records["image_id"].isin(rows["image_id"][rows["since"] < growth])
    choice = records[is_copied].sample(frac=1, random_state=growth)
    place = choice["fold"].mask(choice["split"] == "test", "test")
    ids = {name: group.tolist() for name, group in choice["image_id"].groupby(place)}
    gone = [ids[0].pop(), ids[1].pop(), ids["test"].pop()]
    other = ids[2].pop()

    copies = {
        "within": (ids[0].pop(), "duplicate"),
        "across": (ids[1].pop(), ("duplicate", "conflict")),
        "gone": (gone[0], "duplicate"),
        "leak": (ids["test"].pop(), WRITTEN),
        "test": (ids[2].pop(), WRITTEN),
    }
    outcomes = {}
    for name, (source, outcome) in copies.items():
        split = "test" if name == "test" else "train"
        competition.copy(f"{name}-{growth}.jpg", source, split)
        outcomes[f"{name}-{growth}.jpg"] = outcome

    relabelled = ids[2].pop()
    changed = ids[1].pop()
    rows.loc[rows["image_id"] == relabelled, "label"] += 1
    rows.loc[rows["label"] == len(CLASSES), "label"] = 0
    path = competition.path(changed)
    ImageOps.mirror(Image.open(path)).save(path)
    rows.loc[rows["image_id"].isin(gone), "since"] = N_GROWTHS + 1
    outcomes |= dict.fromkeys([*gone, relabelled, changed], RECORD)
    return outcomes, [f"across-{growth}.jpg,same,{other}"]


def run_step(competition, folder, parts, outcomes):
    """Build the dataset once more; return it as a Step. parts: all earlier ones."""
    work = folder / f"work-{len(parts) + 1}"
    values = VALUES | {"INPUT_DIR": str(competition.folder), "WORK_DIR": str(work)}
    if parts:
        values["FOLDS_FROM"] = str(parts[-1].parent)
        values["OVERRIDES"] = str(competition.folder / "overrides.csv")
    before = [digests(part) for part in parts]
    build_dataset(**values)
    return Step(
        folds=pd.read_csv(work / "folds.csv", dtype={"label_name": str}),
        accounting=pd.read_csv(work / "accounting.csv", index_col=0)["images"],
        outcomes=outcomes,
        parts=[*parts, *sorted(work.glob("part-*"))],
        earlier=[before, [digests(part) for part in parts]],
    )


def grow(folder):
    """Return the Steps of a dataset, and of its three growths."""
    competition = Competition(folder / "input")
    competition.write(0, [])
    steps = [run_step(competition, folder, [], {})]
    outcomes = {}
    overrides = []
    for growth in range(1, N_GROWTHS + 1):
        new_outcomes, rows = plant(competition, steps[-1].records, growth)
        outcomes = outcomes | new_outcomes
        overrides += rows
        competition.write(growth, overrides)
        steps.append(run_step(competition, folder, steps[-1].parts, outcomes))
    return steps
