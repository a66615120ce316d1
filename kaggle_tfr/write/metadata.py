"""dataset-metadata.json: a part's title, description and license for Kaggle."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.mounts import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.plan.plan import Plan
from kaggle_tfr.write.journal import COLUMNS, ShardRow

DATASET_FILE = "dataset-metadata.json"
USER_FIELDS = ("id", "title", "licenses", "keywords")  # which the user may change


def renew_metadata(
    part_dir: str, plan: Plan, rows: Sequence[ShardRow], license_name: str = ""
) -> str:
    """Return the new text of a part's dataset-metadata.json, "" if the file is right.

    The user's changes of `USER_FIELDS` stay. license_name: "" for the one in the file.
    """
    shards = pd.DataFrame(rows, columns=COLUMNS)
    metadata = describe_dataset(plan, rows[0].part, shards)
    present = None
    # A missing file has the text "", which is not JSON either.
    with suppress(ValueError, TypeError, RecursionError):
        present = json.loads(storage.read_text(f"{part_dir}/{DATASET_FILE}"))
        metadata |= {name: present[name] for name in USER_FIELDS if name in present}
    if license_name:
        metadata["licenses"] = [{"name": license_name}]
    if present == metadata:
        return ""
    return json.dumps(metadata, indent=1) + "\n"


def describe_dataset(plan: Plan, part: int, shards: pd.DataFrame) -> dict[str, Any]:
    """Return the content of a part's dataset-metadata.json; its license is added later.

    shards: of this part. Kaggle's titles and slugs have at most 50 characters.
    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md
    """
    name = " ".join(plan.labels.name.split()) or "images"
    ending = "TFRecords"
    slug_ending = "tfrecords"
    if plan.n_parts > 1:
        ending += f" part {part} of {plan.n_parts}"
        slug_ending += f"-{part}-of-{plan.n_parts}"
    count = shards["count"].sum()
    n_classes = len(plan.labels.classes)
    return {
        "title": f"{name[: 49 - len(ending)]} {ending}",
        "id": f"{OWNER_PLACEHOLDER}/{to_slug(name, slug_ending)}",
        "subtitle": f"{count:,} images of {n_classes:,} classes as {ending}",
        "description": _describe_part(plan, part, shards),
        "licenses": [],
        "keywords": [],
    }


def _describe_part(plan: Plan, part: int, shards: pd.DataFrame) -> str:
    """Return the description of a part, in Markdown."""
    image = plan.image
    size = "original size" if image.size is None else f"{image.resize} {image.size}"
    return f"""\
{shards["count"].sum():,} images in {len(shards)} TFRecord shards, \
{shards["bytes"].sum() / 1e9:,.3f} GB; part {part} of {plan.n_parts}, \
each part a stratified sample of the whole.

- Images: {size}, JPEG quality {image.quality}, {image.subsampling}.
- Compression of the files: {plan.settings.compression or "none"}.
- {_list_classes(plan.labels.classes)}
- {_describe_checks(plan.checks)}

{_count_images(shards)}

`schema.json` says how to parse a record, `labels.json` names the labels, \
`shards.csv` lists every file with its count and sha256, `plan.json` is the recipe:

```json
{json.dumps(asdict(plan.settings), indent=1)}
```
"""


def _list_classes(classes: Sequence[object]) -> str:
    """Return the number of classes and the names of the first 20."""
    names = ", ".join(str(name) for name in classes[:20])
    ending = ", …" if len(classes) > 20 else "."
    return f"{len(classes):,} classes: {names}{ending}"


def _count_images(shards: pd.DataFrame) -> str:
    """Return a table of the shards and images of each split and fold."""
    counts = shards.groupby(["split", "fold"], as_index=False)["count"]
    rows = counts.agg(["size", "sum"]).to_numpy().tolist()
    return _format_table(["split", "fold", "shards", "images"], rows)


def _describe_checks(checks: Mapping[str, Any]) -> str:
    """Return how the folds were checked for near-duplicates, and the numbers found."""
    if not checks:
        return "Near-duplicates: the folds were not checked for them."

    text = (
        "Near-duplicates, which define the clusters: images within "
        f"{checks['max_bits']} of 256 bits of four perceptual hashes"
    )
    if checks["second_look"]:
        text += f", or {checks['candidate_bits']} after geometric verification"
    if checks["second_look"] == "nearest":
        text += " of the likeliest pairs"
    text += "."
    if checks.get("mirrored"):  # plans of earlier versions do not contain it
        text += " Mirrored and rotated copies were searched for too."

    return f"{text}\n\n{_list_numbers(checks)}"


def _list_numbers(checks: Mapping[str, Any]) -> str:
    """Return a table of the numbers found; the settings are in the text above it."""
    settings = asdict(DuplicateSettings())
    numbers = []
    for name, number in checks.items():
        if name not in settings:
            numbers.append([name.replace("_", " "), round(number, 4)])
    return _format_table(["leakage check of all parts", ""], numbers)


def _format_table(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table in Markdown, with commas in its numbers."""
    lines = [names, ["---"] * len(names)]
    for row in rows:
        cells = [cell if isinstance(cell, str) else f"{cell:,}" for cell in row]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
