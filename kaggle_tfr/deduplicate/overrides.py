"""The user's decisions of OVERRIDES: read and check the CSV, and correct the images.

A row of the CSV has an image_id, an action and a value:

    keep, drop        the image, whatever the rules decide; no value
    label             the image has another class: its name
    same, different   add or remove the pair with another image: its image_id
    group             the image shares a fold with all images of this group

A labelled image and a test image may have the same id. Their names are then
"train/1.jpg" and "test/1.jpg".
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.pairs import measure_pairs
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.explore.csvs import parse_text
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.explore.table import load_images
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.mounts import find_file
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.schema import Labels
from kaggle_tfr.tables import format_csv

COLUMNS = ("image_id", "action", "value")
PAIR_ACTIONS = ("same", "different")
ACTIONS = ("keep", "drop", "label", *PAIR_ACTIONS, "group")
# In WORK_DIR: the rows with their effects, and the file that they were read from.
EFFECTS_FILE = "decisions.csv"
SOURCE_FILE = "decisions.json"
MAX_PROBLEMS = 10  # in one error
RUN_AGAIN = "Run 02_deduplicate again."


@dataclass(frozen=True)
class Decision:
    """A row of OVERRIDES.

    number: of the row in the file; the header is row 1.
    a, b: row numbers of the image and of the other image of a pair, else -1.
    """

    number: int
    image_id: str
    action: str
    value: str
    a: int = -1
    b: int = -1

    @property
    def is_pair(self) -> bool:
        """Whether the value is another image."""
        return self.action in PAIR_ACTIONS

    @property
    def subject(self) -> tuple[str | int, ...]:
        """What is decided: rows with the same subject must have the same answer."""
        if self.is_pair:
            return "pair", *sorted([self.a, self.b])
        if self.action in ("keep", "drop"):
            return "outcome", self.a
        return self.action, self.a

    @property
    def answer(self) -> str:
        """What is decided about the subject."""
        return self.value if self.action in ("label", "group") else self.action

    def __str__(self) -> str:
        return f"{self.action} {self.image_id} {self.value}".strip()


@dataclass(frozen=True)
class Overrides:
    """The decisions of a user about single images.

    file: absolute path or address of the CSV, "" for none. sha256: of its content.
    """

    file: str = ""
    sha256: str = ""
    decisions: tuple[Decision, ...] = ()

    def select(self, *actions: str) -> list[Decision]:
        """Return the decisions with one of these actions."""
        return [row for row in self.decisions if row.action in actions]


def read_overrides(file: str, images: pd.DataFrame, labels: Labels) -> Overrides:
    """Return the decisions of OVERRIDES, checked against the images of 01.

    file: the parameter, "" for none. images, labels: of `explore.load_images`.
    Raises: FileNotFoundError; ValueError: it names the file, each wrong row, and what
    to do.
    """
    if not file:
        return Overrides()
    path = find_file(file)
    try:
        data = storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set OVERRIDES to a CSV with the columns "
            f'{", ".join(COLUMNS)}, or to "".'
        ) from None
    decisions = _check_rows(_parse(data, path), path, images, labels)
    return Overrides(path, hashlib.sha256(data).hexdigest(), tuple(decisions))


def _parse(data: bytes, path: str) -> list[Decision]:
    """Return the rows of a CSV, whose images are not known yet."""
    try:
        table = parse_text(data, skip_blank_lines=False)
    except ValueError as error:
        raise ValueError(
            f"OVERRIDES '{path}' is not a CSV file in UTF-8: {error}. Save it as one."
        ) from None
    for name in COLUMNS:
        if name not in table:
            raise ValueError(
                f"OVERRIDES '{path}' has no column '{name}', only "
                f"{', '.join(map(str, table))}. Its header must be {','.join(COLUMNS)}."
            )
    texts = table[[*COLUMNS]].fillna("").itertuples(index=False, name=None)
    rows = [
        Decision(number, image_id, action.strip(), value)
        for number, (image_id, action, value) in enumerate(texts, 2)
    ]
    return [row for row in rows if str(row)]  # without blank lines


def _check_rows(
    rows: list[Decision],
    path: str,
    images: pd.DataFrame,
    labels: Labels,
) -> list[Decision]:
    """Return the rows with the numbers of their images. Raises: ValueError."""
    names = {row.image_id for row in rows} | {row.value for row in rows if row.is_pair}
    places = _find_images(names, images)
    facts = images[["split", "label", "problem"]]
    first_rows: dict[tuple, Decision] = {}
    checked = []
    problems = []
    for row in rows:
        problem = _find_problem(row, places, facts, labels)
        if not problem:
            row = _locate(row, places)  # noqa: PLW2901
            first_row = first_rows.setdefault(row.subject, row)
            problem = _find_contradiction(row, first_row)
            checked.append(row)
        if problem:
            problems.append(f"  row {row.number}: {problem}")

    if problems:
        n_more = len(problems) - MAX_PROBLEMS
        ending = [f"  and {n_more:,} more rows"] if n_more > 0 else []
        lines = "\n".join([*problems[:MAX_PROBLEMS], *ending])
        raise ValueError(
            f"OVERRIDES '{path}' cannot be applied (row 1 is the header):\n{lines}"
        )
    return checked


def _find_images(names: set[str], images: pd.DataFrame) -> dict[str, list[int]]:
    """Return the rows of the images by name: the good ones, else a rejected one.

    A name is an id, or a split and an id.
    """
    ids = {name.partition("/")[2] for name in names}
    is_named = images["image_id"].isin(names | ids).to_numpy()
    named = images.loc[is_named, ["image_id", "split", "problem"]]
    named = named.assign(row=np.flatnonzero(is_named), bad=named["problem"] != "")
    named = named.sort_values("bad", kind="stable")
    places: dict[str, list[int]] = {}
    for image_id, split, _, row, is_bad in named.to_numpy().tolist():
        for name in (image_id, f"{split}/{image_id}"):
            rows = places.setdefault(name, [])
            if not rows or not is_bad:
                rows.append(row)
    return places


def _locate(row: Decision, places: Mapping[str, list[int]]) -> Decision:
    """Return the row with the numbers of its images."""
    b = places[row.value][0] if row.is_pair else -1
    return replace(row, a=places[row.image_id][0], b=b)


def _find_problem(
    row: Decision,
    places: Mapping[str, list[int]],
    facts: pd.DataFrame,
    labels: Labels,
) -> str:
    """Return why a row cannot be applied and what to do, or "".

    facts: split, label and problem of each image.
    """
    if row.action not in ACTIONS:
        actions = ", ".join(ACTIONS)
        return f"'{row.action}' is not an action. The actions are {actions}."
    for name in [row.image_id, row.value][: 1 + row.is_pair]:
        problem = _find_image_problem(row, name, places, facts)
        if problem:
            return problem

    a = places[row.image_id][0]
    if row.is_pair and places[row.value][0] == a:
        return (
            f"'{row.image_id}' is named twice. The value of '{row.action}' must be "
            "the image_id of another image."
        )
    if row.action == "label":
        return _find_label_problem(row, int(facts["label"].iloc[a]), labels)
    if row.action == "group" and not row.value:
        return "the value is empty. Write the name of the group."
    return ""


def _find_image_problem(
    row: Decision,
    name: str,
    places: Mapping[str, list[int]],
    facts: pd.DataFrame,
) -> str:
    """Return why a row cannot name this image, and what to do, or ""."""
    if name not in places:
        return f"there is no image '{name}'. Use an image_id of images.parquet."
    images = facts.iloc[places[name]]
    if len(images) > 1:
        names = " or ".join(f"'{split}/{name}'" for split in images["split"])
        return f"'{name}' is the id of {len(images)} images. Write {names}."
    split, _, problem = images.iloc[0]
    if problem and row.action != "drop":
        return (
            f"'{name}' is rejected ({problem}), so '{row.action}' is impossible. Fix "
            "the file or its row in the CSV and run 01_explore, or delete this row."
        )
    if split == "test" and row.action == "drop":
        return f"'{name}' is a test image, which is always kept. Delete this row."
    if split == "test" and row.action == "group":
        return f"'{name}' is a test image, which is in no fold. Delete this row."
    return ""


def _find_label_problem(row: Decision, label: int, labels: Labels) -> str:
    """Return why an image cannot get another class, and what to do, or "".

    label: the number of its class, -1 for none.
    """
    classes = number_names(labels.classes)
    if labels.kind != "single":
        return (
            "'label' needs one class for each image, and these images can have "
            "several. Correct the labels in LABELS_CSV."
        )
    if row.value not in classes:
        return (
            f"there is no class '{row.value}'. labels.json lists the "
            f"{len(classes):,} classes."
        )
    if label < 0:
        return f"'{row.image_id}' has no label that could be corrected. Delete the row."
    return ""


def _find_contradiction(row: Decision, first_row: Decision) -> str:
    """Return that two rows about one subject differ, or ""."""
    if row.answer == first_row.answer:
        return ""
    return (
        f"'{row}' contradicts row {first_row.number}, '{first_row}'. Delete one of "
        "the two rows."
    )


def correct_images(
    images: pd.DataFrame,
    overrides: Overrides,
    labels: Labels,
) -> pd.DataFrame:
    """Return the images with the labels of the user; records keep theirs.

    If there are groups, the column override_group has them, None for other images.
    """
    is_recorded = mark_recorded(images)
    relabelled = [row for row in overrides.select("label") if not is_recorded[row.a]]
    if relabelled:
        rows = [row.a for row in relabelled]
        names = [row.value for row in relabelled]
        label_of = number_names(labels.classes)
        images = images.assign(
            label=_replace(images["label"], rows, [label_of[name] for name in names]),
            label_name=_replace(images["label_name"], rows, names),
        )
    grouped = overrides.select("group")
    if grouped:
        rows = [row.a for row in grouped]
        ungrouped = pd.Series(None, images.index, dtype=object)
        groups = _replace(ungrouped, rows, [row.value for row in grouped])
        images = images.assign(**{OVERRIDE_GROUP: groups})
    return images


def _replace(column: pd.Series, rows: list[int], values: list) -> pd.Series:
    """Return the column with other values in these rows."""
    column = column.copy()
    column.iloc[rows] = values
    return column


def correct_pairs(
    pairs: pd.DataFrame,
    overrides: Overrides,
    hashes: pd.DataFrame,
) -> pd.DataFrame:
    """Return the pairs with those that the user adds, and without those that are cut.

    pairs: of `verify_candidates`. hashes: of `load_hashes`.
    """
    added = _list_ends(overrides.select("same"))
    if len(added):
        words = hashes[[*HASHES]].to_numpy(np.uint64)
        measured = measure_pairs(words, added.assign(orientation=1))
        measured = measured.assign(inliers=-1, accepted=True, is_near=False)
        # A pair that was found keeps its orientation.
        pairs = pd.concat([pairs, measured]) if len(pairs) else measured
        pairs = pairs.drop_duplicates(["a", "b"])
        pairs = pairs.sort_values(["a", "b"], ignore_index=True)

    cut = pd.MultiIndex.from_frame(_list_ends(overrides.select("different")))
    if len(cut):
        is_cut = pd.MultiIndex.from_frame(pairs[["a", "b"]]).isin(cut)
        pairs = pairs[~is_cut].reset_index(drop=True)
    return pairs


def _list_ends(decisions: list[Decision]) -> pd.DataFrame:
    """Return the columns a < b of decisions about pairs."""
    ends = [sorted([row.a, row.b]) for row in decisions]
    return pd.DataFrame(ends, columns=["a", "b"], dtype=np.int64)


def list_cut_pairs(images: pd.DataFrame, overrides: Overrides) -> list[tuple[str, str]]:
    """Return the paths of the pairs that the user calls different."""
    path = images["path"]
    return [
        (path.iloc[row.a], path.iloc[row.b]) for row in overrides.select("different")
    ]


def save_overrides(overrides: Overrides, effects: pd.DataFrame, work_dir: str) -> None:
    """Write decisions.csv with the effects, and decisions.json; or remove both.

    effects: of `apply_overrides`.
    """
    effects_path = storage.join(work_dir, EFFECTS_FILE)
    source_path = storage.join(work_dir, SOURCE_FILE)
    if not overrides.file:
        storage.remove(source_path)
        storage.remove(effects_path)
        return
    source = {"file": overrides.file, "sha256": overrides.sha256}
    storage.write_atomically(effects_path, format_csv(effects).encode())
    storage.write_atomically(source_path, f"{json.dumps(source, indent=1)}\n".encode())


def load_corrected(work_dir: str) -> tuple[pd.DataFrame, Labels, Overrides]:
    """Return the images and labels of 01 as 02 has corrected them, and the overrides.

    Raises: FileNotFoundError: 01_explore has not run. ValueError: the file of OVERRIDES
    has changed since 02_deduplicate.
    """
    images, labels = load_images(work_dir)
    source_path = storage.join(work_dir, SOURCE_FILE)
    text = storage.read_text(source_path)
    if not text:
        return images, labels, Overrides()
    source = storage.parse_json(text, source_path, RUN_AGAIN)
    _check_unchanged(source["file"], source["sha256"])
    path = storage.join(work_dir, EFFECTS_FILE)
    rows = _parse(storage.read_bytes(path), path)
    decisions = _check_rows(rows, path, images, labels)
    overrides = Overrides(source["file"], source["sha256"], tuple(decisions))
    return correct_images(images, overrides, labels), labels, overrides


def _check_unchanged(file: str, sha256: str) -> None:
    """Raise a ValueError if a file that exists has another content."""
    if storage.exists(file) and storage.sha256_of(file) != sha256:
        raise ValueError(
            f"OVERRIDES '{file}' has changed since 02_deduplicate applied it. "
            f"{RUN_AGAIN}"
        )
