"""submission.csv: what a model says of the test images, in the form that the competition asks."""

import io
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.paths import SUBMISSION, near_miss
from kaggle_tfr.read.batches import one_schema, read_batches
from kaggle_tfr.schema import Labels, encode_mask
from kaggle_tfr.train.devices import predict


def write_submission(
    model: keras.Model, shards: pd.DataFrame, folder: str, **choices: Any
) -> pd.DataFrame | None:
    """What submission.csv in the folder now holds; None, which is printed, without test shards.

    shards: of `find_shards`. choices: image_size and batch_size, as for validation.
    Raises: ValueError: the test records have no id, or as `fill_submission`.
    """
    test = shards[shards["split"] == "test"]
    if test.empty:
        print("There are no test shards, so there is nothing to submit.")
        return None
    labels, key = test["labels"].iloc[0], one_schema(test).key_of("image_id")
    if not key:
        mend = "Plan with a SCHEMA that has one, such as 'id: image_id'."
        raise ValueError(f"the records of '{test['file'].iloc[0]}' have no id. {mend}")
    ids, scores = list[str](), list[np.ndarray]()
    batches = read_batches(test, extra=[key], **choices)
    for images, _, mask, more in batches.as_numpy_iterator():
        ids += [name.decode() for name in more[key][mask > 0].tolist()]
        scores.append(predict(model, images)[mask > 0].astype(np.float64))
    odds = np.exp(np.clip(np.concatenate(scores), -500, 500))
    shares = odds / (odds.sum(axis=1, keepdims=True) if labels.kind == "single" else 1 + odds)
    folders = test["folder"].unique()  # one that has the competition's template will do
    texts = (storage.read_text(storage.join(folder, SUBMISSION)) for folder in folders)
    held = next(filter(None, texts), "").lstrip("\ufeff")
    template = pd.read_csv(io.StringIO(held), dtype=str, keep_default_na=False) if held else None
    submission = fill_submission(ids, shares, labels, template)
    text = submission.to_csv(index=False, lineterminator="\n")
    storage.write_atomically(storage.join(folder, "submission.csv"), text.encode())
    return submission


def fill_submission(
    ids: Sequence[str], scores: np.ndarray, labels: Labels, template: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The template's rows, in its order, each id once, with predictions in its columns.

    scores: of each id, float (n, classes) from 0 to 1, or uint8 masks (n, height, width, classes)
    of the size that is asked for. A class is written as its id or as its number, whichever the
    template has; several labels are separated by blanks; a column a class holds its score, or 0
    and 1 where the template holds only these; masks become run-length codes.
    An image that was not predicted gets the class most often predicted (no mask), and is printed.
    Raises: ValueError: a column that is no class, or no predicted id is in the template.
    """
    classes = [str(name) for name in labels.classes]
    if template is None:
        template = pd.DataFrame({"image_id": list(ids), "label": ""})
    asked = template.iloc[:, 0]
    in_id = scores.ndim == 4 and asked.str.rpartition("_")[2].isin(classes).all()
    names = asked.str.rpartition("_")[0] if in_id else asked
    row = _find_rows(names, ids)
    if len(unread := names[row < 0].unique()):
        said = ", ".join(unread[:10]) + ", …" * (len(unread) > 10)
        what = f"{len(unread)} of {names.nunique()} test images could not be read, and get"
        print(f"{what} what is most often predicted: {said}")
    if scores.ndim == 4:
        label = asked.str.rpartition("_")[2] if in_id else template.iloc[:, 1]
        number = {name: position for position, name in enumerate(classes)}
        pairs = zip(row, label.map(number), strict=True)
        codes = [encode_mask(scores[at, :, :, c]) if at >= 0 else "" for at, c in pairs]
        return template.assign(**{template.columns[-1]: codes})
    usual = np.bincount(scores.argmax(axis=1), minlength=len(classes)).argmax()
    typical = np.eye(len(classes))[usual] if labels.kind == "single" else scores.mean(axis=0)
    filled = np.where(row[:, None] >= 0, scores[row], typical)
    return _write_classes(template, filled, labels.kind, classes)


def _write_classes(
    template: pd.DataFrame, scores: np.ndarray, kind: str, classes: list[str]
) -> pd.DataFrame:
    """The template with the scores (n, classes), in one column or in one a class."""
    best, columns = scores.argmax(axis=1), list(template.columns[1:])
    present = np.eye(len(classes))[best] if kind == "single" else scores >= 0.5
    if len(columns) == 1:
        said = template[columns[0]]
        numbers = said.str.fullmatch(r"\d+").all() and not said.isin(classes).any()
        if kind == "single":
            text: Any = best if numbers else np.array(classes, object)[best]
        else:
            text = [" ".join(np.array(classes)[one]) for one in present.astype(bool)]
        return template.assign(**{columns[0]: text})
    if unknown := [name for name in columns if name not in classes]:
        what = f"{SUBMISSION} has the column '{unknown[0]}', which is no class."
        raise ValueError(f"{what}{near_miss(unknown[0], classes)} There are {', '.join(classes)}.")
    flags = template[columns].isin(["0", "1"]).all(axis=None)
    values = present.astype(int) if flags else scores
    return template.assign(**{name: values[:, classes.index(name)] for name in columns})


def _find_rows(names: pd.Series, ids: Sequence[str]) -> np.ndarray:
    """Int (n,): the position of each name among the ids, -1 for none.

    Class folders' ids are paths; a template may leave out folder and ending.
    """
    for shorten in (r"", r".*/", r".*/|\.\w+$"):
        own = pd.Index(pd.Series(list(ids), dtype=str).str.replace(shorten, "", regex=True))
        row = own.get_indexer(pd.Index(names)) if own.is_unique else np.array([-1])
        if (row >= 0).any():
            return row
    what = f"none of {len(ids):,} predicted images is in {SUBMISSION}: '{ids[0]}' and '{names[0]}'"
    raise ValueError(f"{what} are the first. Is it the one of this competition?")
