"""A dataset that grows three times, with planted copies of what it has already."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from kaggle_tfr import build_dataset
from kaggle_tfr.fingerprints import read_fingerprints
from kaggle_tfr_sample import write_sample
from support.chain import draw_pictures, save_picture
from support.plans import digests

N_GROWTHS = 3
TEXTURE = 20  # of images whose copies have similar hashes
VALUES = {"N_FOLDS": 3, "IMAGE_SIZE": 64, "SECOND_LOOK": False}
CLASSES = "abc"
RECORD = "earlier: part"


def write_images(folder, pictures, numbers):
    """Write pictures as class folders, the class by the number."""
    for number in numbers:
        path = folder / CLASSES[number % 3] / f"{number:03d}.jpg"
        save_picture(pictures[number], path, quality=92)


@dataclass
class Step:
    """A dataset after one run.

    outcomes: how the reason in folds.csv of each planted image begins, by its id; in
        several ways if it is written, and has a record in the next growth. parts: of all runs so far. earlier: digests of the parts
        before, made before and after this run.
    """

    folds: pd.DataFrame
    accounting: pd.Series
    records_before: pd.DataFrame
    parts: list[Path]
    outcomes: dict[str, str]
    earlier: list[dict] = field(default_factory=list)

    @property
    def records(self):
        """The fingerprints of all parts, one row per record."""
        return read_parts(self.parts)


def divide(images):
    """Return the first images, and a twentieth of all for each growth."""
    size = len(images) // 20
    first = len(images) - N_GROWTHS * size
    starts = range(first, len(images), size)
    return [images[:first], *(images[start : start + size] for start in starts)]


class Competition:
    """A folder with train.csv, its images, and those of the test set."""

    def __init__(self, folder, rows, tests):
        self.folder = Path(folder)
        self.rows, *self.new_rows = divide(rows)
        self.tests, *self.new_tests = divide(tests)
        self.overrides = []

    def path(self, image_id, *, is_test=False):
        return self.folder / ("test_images" if is_test else "train_images") / image_id

    def write(self):
        self.rows.to_csv(self.folder / "train.csv", index=False)
        submission = pd.DataFrame({"image_id": self.tests, "label": 0})
        submission.to_csv(self.folder / "sample_submission.csv", index=False)
        lines = ["image_id,action,value", *self.overrides, ""]
        (self.folder / "overrides.csv").write_text("\n".join(lines))

    def extend(self):
        """Add the images of the next growth."""
        self.rows = pd.concat([self.rows, self.new_rows.pop(0)])
        self.tests = [*self.tests, *self.new_tests.pop(0)]

    def add(self, image_id, source, label=None, *, from_test=False):
        """Add a smaller copy of an image, without a label to the test set."""
        picture = Image.open(self.path(source, is_test=from_test)).convert("RGB")
        size = [round(0.8 * side) for side in picture.size]
        path = self.path(image_id, is_test=label is None)
        save_picture(picture.resize(size, Image.Resampling.LANCZOS), path, quality=80)
        if label is None:
            self.tests = [*self.tests, image_id]
        else:
            row = self.rows[self.rows["image_id"] == source].head(1)
            if row.empty:
                row = self.rows.head(1)
            row = row.assign(image_id=image_id, label=label)
            self.rows = pd.concat([self.rows, row])

    def remove(self, image_id, *, is_test=False):
        self.path(image_id, is_test=is_test).unlink()
        self.rows = self.rows[is_test | (self.rows["image_id"] != image_id)]
        if is_test:
            self.tests = [name for name in self.tests if name != image_id]


def draw_competition(folder):
    """150 small pictures of three classes, and 20 of the test set."""
    names = [f"{number:03d}.jpg" for number in range(170)]
    pictures = draw_pictures(len(names), 120, 160)
    rows = pd.DataFrame({"image_id": names[:150], "label": np.arange(150) % 3})
    competition = Competition(folder, rows, names[150:])
    for number, name in enumerate(names):
        path = competition.path(name, is_test=number >= 150)
        save_picture(pictures[number], path, quality=92)
    return competition


def copy_sample(folder):
    """The bundled sample, with all that is planted in it."""
    write_sample(str(folder))
    rows = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    rows = rows.sample(frac=1, random_state=0)
    tests = pd.read_csv(folder / "sample_submission.csv", dtype=str)["image_id"]
    return Competition(folder, rows, tests.tolist())


def read_parts(parts):
    tables = [read_fingerprints(part) for part in parts]
    return pd.concat(tables, ignore_index=True)


def plant(competition, records, growth):
    """Change the input, and plant copies; return what must become of each by its id.

    Earlier images are removed, relabelled and changed. New ones are copies of images
    within a fold, of images in two folds, of one that is removed, and of test images.
    """
    rng = np.random.default_rng(growth)
    rows = competition.rows.drop_duplicates("image_id")
    labels = rows.set_index("image_id")["label"]
    is_copied = (records["cluster"] < 0) & (records["texture"] > TEXTURE)
    listed = set(competition.rows["image_id"]) | set(competition.tests)
    is_copied &= records["image_id"].isin(listed)
    choice = records[is_copied].sample(frac=1, random_state=growth)
    tests = choice["image_id"][choice["split"] == "test"].tolist()
    train = choice[choice["split"] != "test"]
    by_fold = [train["image_id"][train["fold"] == k].tolist() for k in range(3)]
    outcomes = {}

    def copy(name, source, label, outcome, **options):
        image_id = f"{name}-{growth}.jpg"
        competition.add(image_id, source, label, **options)
        outcomes[image_id] = outcome
        return image_id

    for number in range(2):
        source = by_fold[0].pop()
        name = f"within-{number}"
        copy(name, source, labels[source], "duplicate")
    source = by_fold[1].pop()
    other = by_fold[2].pop()
    new = copy("across", source, labels[source], ("duplicate", "conflict"))
    competition.overrides.append(f"{new},same,{other}")

    written = ("test image: always kept", "kept: ", RECORD)
    copy("test", by_fold[2].pop(), None, written)
    source = tests.pop()
    label = labels.iloc[0]
    copy("leak", source, label, written, from_test=True)

    gone = by_fold[0].pop()
    copy("gone", gone, labels[gone], "duplicate")
    for image_id in (gone, by_fold[1].pop(), by_fold[2].pop()):
        competition.remove(image_id)
        outcomes[image_id] = RECORD
    competition.remove(tests.pop(), is_test=True)

    relabelled = [by_fold[fold].pop() for fold in range(3)]
    outcomes |= dict.fromkeys(relabelled, RECORD)
    rows = competition.rows
    for image_id in relabelled:
        others = sorted(set(labels) - {labels[image_id]})
        rows.loc[rows["image_id"] == image_id, "label"] = rng.choice(others)

    changed = by_fold[1].pop()
    picture = Image.open(competition.path(changed)).convert("RGB")
    ImageOps.mirror(picture).save(competition.path(changed), format="JPEG")
    outcomes[changed] = RECORD
    return outcomes


def run_step(competition, folder, parts, outcomes):
    """Build the dataset once more; return it as a Step. parts: all earlier ones."""
    competition.write()
    work = folder / f"work-{len(parts) + 1}"
    values = VALUES | {"INPUT_DIR": str(competition.folder), "WORK_DIR": str(work)}
    if parts:
        values["FOLDS_FROM"] = str(parts[-1].parent)
        values["OVERRIDES"] = str(competition.folder / "overrides.csv")
    before = [digests(part) for part in parts]
    records = read_parts(parts) if parts else pd.DataFrame()
    build_dataset(**values)
    accounting = pd.read_csv(work / "accounting.csv", index_col="outcome")["images"]
    return Step(
        folds=pd.read_csv(work / "folds.csv", dtype={"label_name": str, "label": int}),
        accounting=accounting,
        records_before=records,
        parts=[*parts, *sorted(work.glob("part-*"))],
        outcomes=outcomes,
        earlier=[before, [digests(part) for part in parts]],
    )


def grow(competition, folder):
    """Return the Steps of a dataset, and of its three growths."""
    steps = [run_step(competition, folder, [], {})]
    outcomes = {}
    for growth in range(1, N_GROWTHS + 1):
        competition.extend()
        outcomes = outcomes | plant(competition, steps[-1].records, growth)
        steps.append(run_step(competition, folder, steps[-1].parts, outcomes))
    return steps
