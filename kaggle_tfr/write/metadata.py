"""dataset-metadata.json: a part's title, page and license for Kaggle."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.plan.plan import Plan, has_folds
from kaggle_tfr.shards import read_part_table
from kaggle_tfr.tables import escape_markdown
from kaggle_tfr.write.journal import COLUMNS, ShardRow

DATASET_FILE = "dataset-metadata.json"
USER_FIELDS = ("id", "title", "licenses", "keywords")  # which the user may change
PAGE = Path(__file__).with_name("page.md")


def renew_metadata(
    part_dir: str, plan: Plan, rows: Sequence[ShardRow], license_name: str = ""
) -> str:
    """Return the new text of a part's dataset-metadata.json, "" if the file is right.

    It is "" too where a CSV of the part is damaged, since the page counts its labels.

    The user's changes of `USER_FIELDS` stay. license_name: "" for the one in the file.
    """
    present = read_metadata(part_dir)
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


def read_metadata(part_dir: str) -> dict[str, Any]:
    """Return the content of a part's dataset-metadata.json, {} if it cannot be read."""
    # A missing file has the text "", which is not JSON either.
    with suppress(ValueError, TypeError, RecursionError):
        return dict(json.loads(storage.read_text(f"{part_dir}/{DATASET_FILE}")))
    return {}


def read_license(part_dir: str) -> str:
    """Return Kaggle's name of a part's license, "" for none."""
    with suppress(ValueError, TypeError, KeyError):  # the user may change the file
        (license_of_part,) = read_metadata(part_dir)["licenses"]
        return str(license_of_part["name"])
    return ""


def count_classes(plan: Plan, part_dir: str, shards: pd.DataFrame) -> dict[str, int]:
    """Return the number of images of each class in a part, without test images.

    shards: of the part. The images are those of the CSV of each split.
    Raises: ValueError: a CSV cannot be read, or lacks images.
    """
    columns = list(plan.labels.class_columns) or ["label"]
    labelled = shards[shards["split"] != "test"]
    counts = pd.Series(0, range(len(plan.labels.classes)))
    for split, n_images in labelled.groupby("split")["count"].sum().items():
        table = read_part_table(part_dir, f"{split}.csv", ["file", *columns])
        if len(table) != n_images:
            raise ValueError(f"{split}.csv does not list {n_images} images")
        if plan.labels.class_columns:
            # Of masks, no code means that the class is absent.
            is_present = ~table[columns].isin(["", "0"])
            counts += is_present.sum().to_numpy()
        else:
            of_split = pd.to_numeric(table["label"]).value_counts()
            counts += of_split.reindex(counts.index, fill_value=0)
    return dict(zip(map(str, plan.labels.classes), counts.tolist(), strict=True))


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
    if plan.first_part > 1:
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
        "description": format_page(plan, part, shards, counts, slug or usual_slug),
        "licenses": [],
        "keywords": [],
    }


def format_page(
    plan: Plan, part: int, shards: pd.DataFrame, counts: Mapping[str, int], slug: str
) -> str:
    """Return the page of a part in Markdown: how to read it, and what it contains."""
    # One that has labels, if there is one.
    _, file = min(zip(shards["split"] == "test", shards["file"], strict=True))
    path = PurePosixPath(file)
    return jinja2.Template(PAGE.read_text(), trim_blocks=True).render(
        plan=plan,
        part=part,
        shards=shards,
        counts=counts,
        slug=slug,
        pattern=path.with_name(f"*{path.suffix}"),
        has_folds=has_folds(plan, part),
        escape=escape_markdown,
    )
