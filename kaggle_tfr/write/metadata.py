"""dataset-metadata.json: a part's title, description and license for Kaggle."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.plan.plan import Plan
from kaggle_tfr.write.journal import COLUMNS, ShardRow
from kaggle_tfr.write.page import count_classes, describe_part

DATASET_FILE = "dataset-metadata.json"
USER_FIELDS = ("id", "title", "licenses", "keywords")  # which the user may change


def renew_metadata(
    part_dir: str, plan: Plan, rows: Sequence[ShardRow], license_name: str = ""
) -> str:
    """Return the new text of a part's dataset-metadata.json, "" if the file is right.

    It is "" too where a CSV of the part is damaged, since the page counts its labels.

    The user's changes of `USER_FIELDS` stay. license_name: "" for the one in the file.
    """
    present: dict[str, Any] = {}
    # A missing file has the text "", which is not JSON either.
    with suppress(ValueError, TypeError, RecursionError):
        present = dict(json.loads(storage.read_text(f"{part_dir}/{DATASET_FILE}")))
    changes = {name: present[name] for name in USER_FIELDS if name in present}

    shards = pd.DataFrame(rows, columns=COLUMNS)
    try:
        counts = count_classes(plan, part_dir, shards)
    except ValueError:  # a damaged CSV, which `verify` names
        return ""
    slug = str(changes.get("id", "")).rpartition("/")[2]
    metadata = describe_dataset(plan, rows[0].part, shards, counts, slug) | changes
    if license_name:
        metadata["licenses"] = [{"name": license_name}]
    if present == metadata:
        return ""
    return json.dumps(metadata, indent=1) + "\n"


def describe_dataset(
    plan: Plan,
    part: int,
    shards: pd.DataFrame,
    counts: Mapping[str, int],
    slug: str = "",
) -> dict[str, Any]:
    """Return the content of a part's dataset-metadata.json; its license is added later.

    shards: of this part. counts: images of each class. slug: that the user has chosen.
    Kaggle's titles and slugs have at most 50 characters.
    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md
    """
    name = " ".join(plan.labels.name.split()) or "images"
    ending = "TFRecords"
    slug_ending = "tfrecords"
    if plan.earlier:
        # Without a total: the earlier parts are published under theirs, and a dataset
        # that has grown may grow again.
        ending += f" part {part}"
        slug_ending += f"-part-{part}"
    elif plan.n_parts > 1:
        ending += f" part {part} of {plan.n_parts}"
        slug_ending += f"-{part}-of-{plan.n_parts}"
    usual_slug = to_slug(name, slug_ending)
    count = shards["count"].sum()
    n_classes = len(plan.labels.classes)
    return {
        "title": f"{name[: 49 - len(ending)]} {ending}",
        "id": f"{OWNER_PLACEHOLDER}/{usual_slug}",
        "subtitle": f"{count:,} images of {n_classes:,} classes as {ending}",
        "description": describe_part(plan, part, shards, counts, slug or usual_slug),
        "licenses": [],
        "keywords": [],
    }
