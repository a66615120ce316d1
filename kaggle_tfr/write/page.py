"""The page of a part on Kaggle, in Markdown: how to read it, and what it contains."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

import pandas as pd

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.naming import FOLDS_FILE, name_parts
from kaggle_tfr.plan.plan import Plan, has_folds
from kaggle_tfr.shards import read_part_table

MAX_NAMED = 20  # classes
_READER = """\
import tensorflow as tf

files = tf.io.gfile.glob("{pattern}")
for record in tf.data.TFRecordDataset(files{compression}).take(3):
    values = tf.train.Example.FromString(record.numpy()).features.feature
    image = tf.io.decode_image(values[{image}].bytes_list.value[0])
    print(image.shape{labels})"""
_FOLDS_READER = """\
from glob import glob

import pandas as pd

[file] = glob("/kaggle/input/datasets/*/{slug}/{file}")
folds = pd.read_csv(file, keep_default_na=False)
kept = folds[folds["keep"]]
training = kept[{training}]
validation = kept[{validation}]
print(training[["source", "path", "label"]])"""
_RESIZED = {
    "short_side": "the shorter side is {0} pixels; smaller images were not enlarged",
    "stretch": "stretched to {0} × {1} pixels (height × width)",
    "center_crop": "resized, and cropped to the central {0} × {1} pixels",
    "fill": "resized to cover {0} × {1} pixels (height × width), then cropped to them",
    "none": "the original bytes",
}
# The numbers of `plan.check_leakage`.
_CHECKS = {
    "images": "images in all parts",
    "clusters": "groups of near-duplicates with two or more images in the parts",
    "clusters_across_folds": "groups of near-duplicates in two folds",
    "groups_across_folds": "groups that must stay together, in two folds",
    "clusters_across_test": "groups of near-duplicates in the test images and others",
    "max_share_deviation": "largest difference of a class's share in a fold and in all",
    "sampled_images": "images compared with all others in a second check",
    "sampled_pairs_across_folds": "near-duplicates of these in another fold",
    "sampled_pairs_with_test": "near-duplicates of these among the test images",
}


def count_classes(plan: Plan, part_dir: str, shards: pd.DataFrame) -> dict[str, int]:
    """Return the number of images of each class in a part, without test images.

    shards: of the part. The images are those of the CSV of each split.
    Raises: ValueError: a CSV cannot be read, or lacks images.
    """
    names = [str(name) for name in plan.labels.classes]
    totals = [0] * len(names)
    labelled = shards[shards["split"] != "test"]
    for split, n_images in labelled.groupby("split")["count"].sum().items():
        columns = list(plan.labels.class_columns) or ["label"]
        table = read_part_table(part_dir, f"{split}.csv", ["file", *columns])
        if len(table) != n_images:
            raise ValueError(
                f"'{part_dir}/{split}.csv' does not list {n_images} images."
            )
        counts = _count_labels(plan, table)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    return dict(zip(names, totals, strict=True))


def _count_labels(plan: Plan, table: pd.DataFrame) -> list[int]:
    """Return the number of rows with each class."""
    if not plan.labels.class_columns:
        labels = pd.to_numeric(table["label"])
        n_classes = len(plan.labels.classes)
        return labels.value_counts().reindex(range(n_classes), fill_value=0).tolist()
    # Several labels are 0 or 1; of masks, no code means that the class is absent.
    is_absent = table[list(plan.labels.class_columns)].isin(["", "0"])
    return (~is_absent).sum().tolist()


def describe_part(
    plan: Plan, part: int, shards: pd.DataFrame, counts: Mapping[str, int], slug: str
) -> str:
    """Return the page of a part.

    shards: of this part. counts: of `count_classes`. slug: of the dataset.
    """
    n_bytes = shards["bytes"].sum()
    text = (
        f"{shards['count'].sum():,} images in {len(shards)} TFRecord files, "
        f"{n_bytes / 1e9:,.3f} GB."
    )
    text += _place_part(plan, part)
    files = (
        "`schema.json` lists the features of a record for "
        "`tf.io.parse_single_example`, `labels.json` the names of the classes, "
        "`shards.csv` the files with their counts, and `plan.json` all settings."
    )
    sections = [
        text,
        "Attach this dataset to a notebook, and run:",
        f"```python\n{format_reader(plan, shards, slug)}\n```",
        files,
        *_describe_folds(plan, part, slug),
        f"**Classes**: {describe_classes(counts)}",
        f"**Images**: {_describe_images(plan.image)}.",
        _describe_files(plan, shards),
        _count_images(plan, shards),
        _describe_checks(plan.checks),
    ]
    return "\n\n".join(sections) + "\n"


def _place_part(plan: Plan, part: int) -> str:
    """Return how a part belongs to the other parts of its dataset, "" for the only."""
    if plan.earlier:
        added = name_parts(plan.part_numbers)
        verb = "adds" if plan.n_parts == 1 else "add"
        before = name_parts(range(1, plan.first_part))
        return (
            f" This is part {part} of a dataset that grows: {added} {verb} new images "
            f"to {before}, which stay as they are. Attach all parts to use all images; "
            "the folds of all parts belong together."
        )
    if plan.n_parts > 1:
        return (
            f" This is part {part} of {plan.n_parts}; each part is a random sample "
            "with the same share of each class."
        )
    return ""


def _describe_folds(plan: Plan, part: int, slug: str) -> list[str]:
    """Return how to use folds.csv with the original images, [] in other parts."""
    if not has_folds(plan, part):
        return []
    training = 'kept["split"] == "train"'
    validation = 'kept["split"] == "validation"'
    if any(shard.fold > 0 for shard in plan.shards):
        training = '(kept["split"] == "train") & (kept["fold"] != 0)'
        validation = 'kept["fold"] == 0'
    code = _FOLDS_READER.format(
        slug=slug,
        file=FOLDS_FILE,
        training=training,
        validation=validation,
    )
    text = (
        f"`{FOLDS_FILE}` lists all original images, with the reason why an image was "
        "kept or left out. It is all that training on the original files needs, for "
        "example with PyTorch. `path` is relative to the folder of its `source`: 0 is "
        "the main input, 1 the first of `MORE_INPUTS`. `label` is an integer:"
    )
    return [text, f"```python\n{code}\n```"]


def format_reader(plan: Plan, shards: pd.DataFrame, slug: str) -> str:
    """Return Python code that reads three records of the dataset on Kaggle."""
    schema = plan.schema
    labelled = shards[shards["split"] != "test"]["file"]
    file = PurePosixPath(min(labelled, default=shards["file"].min()))
    pattern = f"/kaggle/input/datasets/*/{slug}/{file.with_name('*' + file.suffix)}"
    compression = plan.settings.compression
    values = [
        f"values[{json.dumps(field.name)}].{field.type}_list.value"
        for field in schema.fields
        if field.name in schema.label_keys
    ]
    return _READER.format(
        pattern=pattern,
        compression=f', compression_type="{compression}"' if compression else "",
        image=json.dumps(schema.image_key),
        labels="".join(f", {value}" for value in values),
    )


def describe_classes(counts: Mapping[str, int]) -> str:
    """Return a histogram of the classes in words.

    >>> describe_classes({"healthy": 98, "miner": 3, "rust": 120})
    '3, from 3 images (miner) to 120 (rust): rust 120, healthy 98, miner 3.'
    """
    present = {name: count for name, count in counts.items() if count}
    if not present:
        return f"{len(counts):,}, without labelled images in this part."
    by_size = sorted(present.items(), key=lambda item: -item[1])
    most, fewest = by_size[0], by_size[-1]
    noun = "image" if fewest[1] == 1 else "images"
    text = f"{len(counts):,}, from {fewest[1]:,} {noun} ({fewest[0]}) to {most[1]:,}"
    text = f"{text} ({most[0]})"
    if most[1] == fewest[1]:
        text = f"{len(counts):,}, of {most[1]:,} {noun} each"
    named = ", ".join(f"{name} {count:,}" for name, count in by_size[:MAX_NAMED])
    ending = ", …" if len(by_size) > MAX_NAMED else "."
    text = f"{text}: {named}{ending}"
    absent = len(counts) - len(present)
    if absent:
        text += f" Classes without an image in this part: {absent:,}."
    return text


def _describe_images(image: ImageSettings) -> str:
    """Return how the images were made from their files."""
    text = _RESIZED[image.resize].format(*(image.size or ()))
    if image.resize == "none":
        return text
    return f"{text}; JPEG of quality {image.quality}, chroma {image.subsampling}"


def _describe_files(plan: Plan, shards: pd.DataFrame) -> str:
    """Return how the files are divided for training and validation."""
    text = "**Files**: "
    if plan.settings.compression:
        text += f"compressed with {plan.settings.compression}. "
    if shards["fold"].max() > 0:
        text += (
            "each fold is a set of files for cross-validation. Validate on one fold, "
            "and train on all others; `fold` in `shards.csv` has its number."
        )
    else:
        text += "`split` in `shards.csv` is the use of each file."
    return text


def _count_images(plan: Plan, shards: pd.DataFrame) -> str:
    """Return a table of the files and images for each use."""
    has_folds = bool(shards["fold"].max() >= 0)
    counts = shards.groupby(["split", "fold"], as_index=False)["count"]
    rows = []
    for split, fold, files, images in counts.agg(["size", "sum"]).to_numpy().tolist():
        is_unlabelled = split == "test" and plan.schema.test_fields
        use = f"{split}, without labels" if is_unlabelled else split
        if fold >= 0:
            use = f"fold {fold}"
        elif has_folds and split == "train":
            use = "train, in no fold: never for validation"
        rows.append([use, files, images])
    return _format_table(["use", "files", "images"], rows)


def _describe_checks(checks: Mapping[str, Any]) -> str:
    """Return what counts as near-duplicates, and the numbers that a check found."""
    if not checks:
        return "**Near-duplicates**: the folds were not checked for them."

    text = (
        "**Near-duplicates**, such as resized or retouched copies, are never in two "
        "folds or splits, apart from test images, which stay where they were. Two "
        f"images count as near-duplicates if at most {checks['max_bits']} of 256 bits "
        "of four perceptual hashes differ"
    )
    if checks["second_look"]:
        text += (
            f", or up to {checks['candidate_bits']} if their keypoints match in one "
            "geometric transformation"
        )
    if checks["second_look"] == "nearest":
        text += " (only the most similar of these pairs were compared)"
    text += "."
    if checks.get("mirrored"):  # plans of earlier versions do not contain it
        text += " Mirrored and rotated copies were searched for too."
    return f"{text} The finished folds were checked:\n\n{_list_numbers(checks)}"


def _list_numbers(checks: Mapping[str, Any]) -> str:
    """Return a table of the numbers found; the settings are in the text above it."""
    settings = asdict(DuplicateSettings())
    numbers = []
    for name, number in checks.items():
        if name not in settings:
            meaning = _CHECKS.get(name, name.replace("_", " "))
            numbers.append([meaning, round(number, 4)])
    return _format_table(["check of all parts", ""], numbers)


def _format_table(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table in Markdown, with commas in its numbers."""
    lines = [names, ["---"] * len(names)]
    for row in rows:
        cells = [cell if isinstance(cell, str) else f"{cell:,}" for cell in row]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
