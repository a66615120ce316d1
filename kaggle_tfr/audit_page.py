"""Describe what an audit found: lines for a console, Markdown, JSON and a page."""

import io
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from PIL import Image

from kaggle_tfr.audit_result import MATCHES, AuditResult, name_reasons
from kaggle_tfr.explore.layout import to_line
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.version import __version__

TEMPLATE = Path(__file__).with_suffix(".html")
SIDE = 160  # pixels of a thumbnail
MOST_PAIRS = 12  # of each section
MOST_CLUSTERS = 6
MOST_MEMBERS = 12  # of a cluster
MOST_ROWS = 20  # of a table
OTHER_MATCHES = MATCHES[:3]  # without images there are no details
BACKTICKS = re.compile("`+")


@dataclass(frozen=True)
class Finding:
    """A sentence of the summary; `is_bad` if it names something that was found.

    name: the end of the sentence, if it comes from the data.
    """

    is_bad: bool
    text: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.text} {to_line(self.name)}." if self.name else self.text

    def to_markdown(self) -> str:
        """Return the sentence with its name as code."""
        return f"{self.text} {to_code(self.name)}." if self.name else self.text


@dataclass(frozen=True)
class TextTable:
    """A table of texts. Those of the first `n_names` columns come from the data."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_names: int = 1


@dataclass(frozen=True)
class Thumbnail:
    """A small image as base64 of WebP, and the lines below it."""

    webp: str
    lines: Sequence[str]


def list_findings(result: AuditResult) -> list[Finding]:
    """Return the summary, what was found first."""
    findings = [
        *_describe_copies(result),
        *_describe_overlap(result),
        *_describe_conflicts(result),
        _describe_rejects(result),
    ]
    return sorted(findings, key=lambda finding: not finding.is_bad)


def _describe_copies(result: AuditResult) -> Iterator[Finding]:
    """Yield a sentence for each pair of splits with copies, and one for the others."""
    n_images = result.splits["images"]
    without_copies = []
    rows = result.shared.to_dict("records")
    rows.sort(key=lambda row: row["split"] == row["other"])  # leaks first
    for row in rows:
        split = row["split"]
        other = row["other"]
        if not row["copies"]:
            without_copies.append(_name_splits(split, other))
            continue
        verb = "has" if row["images"] == 1 else "have"
        text = f"{row['images']:,} of {n_images[split]:,} {split} images {verb} a copy"
        place = " in the same split."
        if split != other:
            n_there = f"{row['other_images']:,} of {n_images[other]:,}"
            place = f" in {other} ({n_there} there)."
        yield Finding(is_bad=True, text=text + place)
    if without_copies:
        yield Finding(is_bad=False, text=f"No copies {', '.join(without_copies)}.")


def _name_splits(split: str, other: str) -> str:
    """Return the words for a pair of splits, or for a split and itself."""
    return f"within {split}" if split == other else f"between {split} and {other}"


def _describe_overlap(result: AuditResult) -> Iterator[Finding]:
    """Yield a sentence for each other dataset."""
    n_images = result.n_images
    for dataset in result.others:
        n_found = _select_overlap(result, dataset)["a"].nunique()
        verb = "is" if n_found == 1 else "are"
        text = f"{n_found:,} of {n_images:,} images {verb} also in"
        if not n_found:
            text = f"None of {n_images:,} images is also in"
        yield Finding(is_bad=n_found > 0, text=text, name=dataset)


def _select_overlap(result: AuditResult, dataset: str) -> pd.DataFrame:
    """Return the pairs with another dataset."""
    return result.overlap[result.overlap["dataset"] == dataset]


def _describe_conflicts(result: AuditResult) -> Iterator[Finding]:
    """Yield a sentence about labels, if there are any."""
    if result.classes.empty:
        return
    n_conflicts = len(result.conflicts)
    text = "No copies have different labels."
    if n_conflicts:
        n_images = result.conflicts["images"].sum()
        groups = _count(n_conflicts, "group")
        text = f"Different labels in {groups} of copies ({n_images:,} images)."
    yield Finding(is_bad=n_conflicts > 0, text=text)


def _describe_rejects(result: AuditResult) -> Finding:
    """Return a sentence about rejected files."""
    n_files = result.splits["files"].sum()
    n_rejected = sum(result.rejects.values())
    text = f"All {n_files:,} files can be used."
    if n_rejected:
        verb = "is" if n_rejected == 1 else "are"
        reasons = _count(len(result.rejects), "reason")
        text = f"{n_rejected:,} of {n_files:,} files {verb} rejected, for {reasons}."
    return Finding(is_bad=n_rejected > 0, text=text)


def _count(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_lines(result: AuditResult) -> list[str]:
    """Return the summary for a console."""
    lines = [f"{result.name}: {result.badge}"]
    for finding in list_findings(result):
        mark = "found" if finding.is_bad else "   ok"
        lines.append(f"{mark}  {finding}")
    lines += [f" gap   {gap}" for gap in result.gaps]
    return lines


def format_json(result: AuditResult) -> str:
    """Return all numbers, and the files of the largest clusters."""
    settings = result.settings
    content = {
        "name": result.name,
        "badge": result.badge,
        "found": result.found,
        "version": __version__,
        "command": result.command,
        "settings": asdict(settings) | {"rotated_bits": settings.rotated_bits},
        "splits": result.splits.to_dict("index"),
        "classes": result.classes.to_dict("index"),
        "leaking_images": result.n_leaking,
        "copies": result.shared.to_dict("records"),
        "other_datasets": _count_overlap(result),
        "conflicts": result.conflicts.drop(columns="cluster").to_dict("records"),
        "clusters": _list_clusters(result),
        "rejects": result.rejects,
        "not_read": list(result.unread),
        "not_searched": result.gaps,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _count_overlap(result: AuditResult) -> list[dict[str, Any]]:
    """Return a row for each other dataset, with the pairs of each split there.

    images: of the audited dataset that have a copy there.
    """
    rows = []
    for dataset, n_images in result.others.items():
        pairs = _select_overlap(result, dataset)
        matches = pairs["match"].value_counts()
        rows.append(
            {
                "dataset": dataset,
                "size": n_images,
                "images": pairs["a"].nunique(),
                "pairs": len(pairs),
                "splits": pairs["test_split"].value_counts(sort=False).to_dict(),
                **{match: int(matches.get(match, 0)) for match in OTHER_MATCHES},
            }
        )
    return rows


def _list_clusters(result: AuditResult) -> dict[str, Any]:
    """Return the number of clusters and of their images, and the largest clusters."""
    members = result.images[result.images["cluster"] >= 0]
    largest = []
    for cluster in _choose_clusters(result, MOST_ROWS):
        splits = cluster["split"].value_counts()
        files = cluster["file"].head(MOST_MEMBERS)
        largest.append(
            {
                "images": len(cluster),
                "splits": splits.to_dict(),
                "files": files.tolist(),
            }
        )
    n_clusters = members["cluster"].nunique()
    return {"count": n_clusters, "images": len(members), "largest": largest}


def _choose_clusters(result: AuditResult, most: int) -> Iterator[pd.DataFrame]:
    """Yield the images of each of the largest clusters, the largest first."""
    members = result.images[result.images["cluster"] >= 0]
    sizes = members["cluster"].value_counts().sort_index()
    sizes = sizes.sort_values(ascending=False, kind="stable")
    for number in sizes.index[:most]:
        yield members[members["cluster"] == number]


def choose_examples(result: AuditResult) -> dict[str, pd.DataFrame]:
    """Return some copies that are leaks, and some with different labels, by headings.

    Without any, the heading is left out.
    """
    split = result.images["split"].to_numpy()
    copies = result.copies
    is_leak = split[copies["a"]] != split[copies["b"]]
    selections = {
        "Leaks": copies[is_leak],
        "Different labels": copies[copies["conflict"]],
    }
    examples = {}
    half = MOST_PAIRS // 2
    for heading, selected in selections.items():
        pairs = _select_clusters(result, selected)
        if len(pairs) > MOST_PAIRS:
            # The farthest show whether the radius is too large.
            ends = pd.concat([pairs.head(half), pairs.tail(half)])
            examples[f"{heading}: the nearest and the farthest"] = ends
        elif len(pairs):
            examples[heading] = pairs
    return examples


def _select_clusters(result: AuditResult, copies: pd.DataFrame) -> pd.DataFrame:
    """Return the nearest of the copies in each cluster, the nearest first."""
    copies = copies.sort_values(["distance", "a", "b"])
    cluster = result.images["cluster"].to_numpy()[copies["a"]]
    is_first = ~pd.Series(cluster, copies.index).duplicated()
    return copies[is_first]


def name_match(result: AuditResult, match: str) -> str:
    """Return how images of a copy match, such as "within 25 bits"."""
    settings = result.settings
    return {
        "file": "equal files",
        "hash": f"within {settings.max_bits} bits",
        "mirrored": "mirrored or rotated",
        "details": "same details",
    }[match]


def make_tables(result: AuditResult) -> dict[str, TextTable]:
    """Return the tables of Markdown and page by their headings, without empty ones."""
    tables = {
        "Images": _tabulate_splits(result),
        "Copies": _tabulate_shared(result),
        "How they match": _tabulate_matches(result),
        "Copies in other datasets": _tabulate_overlap(result),
        "Rejected files": _tabulate_rejects(result),
        "Images of each class": _tabulate_classes(result),
    }
    return {heading: table for heading, table in tables.items() if table.rows}


def _tabulate_splits(result: AuditResult) -> TextTable:
    """Return the files, rejected files and images of each split."""
    names = list(result.splits.columns)
    rows = [
        [str(split), *[f"{row[name]:,}" for name in names]]
        for split, row in result.splits.to_dict("index").items()
    ]
    return TextTable(["split", *names], rows)


def _tabulate_shared(result: AuditResult) -> TextTable:
    """Return how many images of each split have a copy in each split."""
    n_images = result.splits["images"]
    header = ["", *[f"with a copy in {split}" for split in n_images.index]]
    if result.copies.empty:
        return TextTable(header, [])
    cells = {}
    for row in result.shared.to_dict("records"):
        cells[row["split"], row["other"]] = row["images"]
        cells[row["other"], row["split"]] = row["other_images"]
    rows = []
    for split in n_images.index:
        counts = [cells[split, other] for other in n_images.index]
        n_split = max(1, n_images[split])
        shares = [f"{count:,} ({count / n_split:.1%})" for count in counts]
        rows.append([f"{split} images", *shares])
    return TextTable(header, rows, n_names=0)


def _tabulate_matches(result: AuditResult) -> TextTable:
    """Return the number of copies between two splits, by how they match."""
    shared = result.shared[result.shared["copies"] > 0]
    rows = []
    for row in shared.to_dict("records"):
        splits = _name_splits(row["split"], row["other"])
        rows.append([splits, *[f"{row[name]:,}" for name in ("copies", *MATCHES)]])
    names = [name_match(result, match) for match in MATCHES]
    return TextTable(["", "pairs", *names], rows, n_names=0)


def _tabulate_overlap(result: AuditResult) -> TextTable:
    """Return the pairs with each split of the other datasets, by how they match."""
    splits = result.images["split"].to_numpy()[result.overlap["a"]]
    pairs = result.overlap.assign(split=splits)
    rows = []
    places = ["dataset", "test_split", "split"]
    for place, found in pairs.groupby(places, sort=False):
        dataset, other_split, split = map(str, place)
        counts = [found["a"].nunique(), len(found)]
        counts += [(found["match"] == match).sum() for match in OTHER_MATCHES]
        texts = [f"{count:,}" for count in counts]
        rows.append([f"{other_split} of {dataset}", split, *texts])
    names = [name_match(result, match) for match in OTHER_MATCHES]
    header = ["copies in", "of split", "images", "pairs", *names]
    return TextTable(header, _shorten(rows), n_names=2)


def _tabulate_rejects(result: AuditResult) -> TextTable:
    """Return the reasons with the number of files, and one of the files."""
    reasons = name_reasons(result.images)
    examples = result.images["file"][reasons.index].groupby(reasons).first()
    rows = [
        [reason, examples[reason], f"{count:,}"]
        for reason, count in result.rejects.items()
    ]
    return TextTable(["reason", "such as", "files"], _shorten(rows), n_names=2)


def _tabulate_classes(result: AuditResult) -> TextTable:
    """Return the images of the largest classes in each split."""
    classes = result.classes
    order = classes.sum(axis=1).sort_values(ascending=False, kind="stable").index
    rows = [
        [str(name), *[f"{count:,}" for count in classes.loc[name]]] for name in order
    ]
    return TextTable(["class", *classes.columns], _shorten(rows))


def _shorten(rows: list[list[str]]) -> list[list[str]]:
    """Return the first rows, and a last one that counts the others."""
    if len(rows) <= MOST_ROWS:
        return rows
    n_others = len(rows) - MOST_ROWS + 1
    others = [f"{n_others:,} more", *[""] * (len(rows[0]) - 1)]
    return [*rows[: MOST_ROWS - 1], others]


def format_markdown(result: AuditResult) -> str:
    """Return the audit for an issue or a discussion: every name is a piece of code."""
    findings = [
        f"- {'❌' if finding.is_bad else '✅'} {finding.to_markdown()}"
        for finding in list_findings(result)
    ]
    pieces = [f"## Audit of `{result.name}`", f"**{result.badge}.**"]
    pieces.append("\n".join(findings))
    for heading, table in make_tables(result).items():
        pieces += [f"### {heading}", _format_table(table)]
    for heading, pairs in choose_examples(result).items():
        pieces += [f"### {heading}", _format_table(_tabulate_pairs(result, pairs))]
    if len(result.overlap):
        table = _tabulate_overlapping(result, choose_overlap(result))
        pieces += ["### In other datasets", _format_table(table)]
    gaps = [f"- {gap}" for gap in result.gaps]
    if result.unread:
        names = ", ".join(map(to_code, result.unread[:5]))
        gaps.append(f"- Files that were not read, such as {names}.")
    pieces += ["### Not searched", "\n".join(gaps)]
    pieces += ["### Repeat it", f"```\n{result.command}\n```", _describe_method(result)]
    return "\n\n".join(pieces) + "\n"


def _describe_method(result: AuditResult) -> str:
    """Return what counts as a copy."""
    settings = result.settings
    text = (
        f"kaggle-tfr {__version__}. Two images are copies if at most "
        f"{settings.max_bits} of the 256 bits of four perceptual hashes differ"
    )
    if settings.rotated_bits is not None:
        text += f", or {settings.rotated_bits} if one is mirrored or rotated"
    if settings.second_look:
        text += (
            f", or up to {settings.candidate_bits} if 12 or more of their keypoints "
            "match in one geometric transformation"
        )
    return f"{text}."


def _tabulate_pairs(result: AuditResult, pairs: pd.DataFrame) -> TextTable:
    """Return the files, splits and labels of pairs."""
    rows = []
    for pair in pairs.to_dict("records"):
        ends = result.images.iloc[[pair["a"], pair["b"]]].to_dict("records")
        names = [_describe_image(end, result) for end in ends]
        match = name_match(result, pair["match"])
        rows.append([*names, str(pair["distance"]), match])
    return TextTable(["image", "copy", "bits", "match"], rows, n_names=2)


def choose_overlap(result: AuditResult) -> pd.DataFrame:
    """Return the nearest pair with another dataset of some images, the nearest first.

    Of many images, half have the farthest of these pairs.
    """
    nearest = result.overlap.drop_duplicates("a")
    nearest = nearest.sort_values("distance", kind="stable")
    half = MOST_PAIRS // 2
    if len(nearest) <= MOST_PAIRS:
        return nearest
    return pd.concat([nearest.head(half), nearest.tail(half)])


def _tabulate_overlapping(result: AuditResult, pairs: pd.DataFrame) -> TextTable:
    """Return the images and their copies in other datasets."""
    rows = []
    for pair in pairs.to_dict("records"):
        image = result.images.iloc[[pair["a"]]].to_dict("records")[0]
        match = name_match(result, pair["match"])
        name = _describe_image(image, result)
        rows.append([name, _describe_copy(pair), str(pair["distance"]), match])
    return TextTable(["image", "copy", "bits", "match"], rows, n_names=2)


def _describe_copy(pair: dict[Any, Any]) -> str:
    """Return the image of another dataset, its split, its class and the dataset."""
    split_and_label = f"{pair['test_split']} of {pair['dataset']}"
    if pair["test_label"]:
        split_and_label += f": {pair['test_label']}"
    return f"{pair['test_id']} ({split_and_label})"


def _describe_image(image: dict[Any, Any], result: AuditResult) -> str:
    """Return the file of an image, with split and label if its folders lack them."""
    folders = image["file"].split("/")[:-1]
    split = image["split"] if len(result.splits) > 1 else ""
    texts = [split, image["label_name"]]
    notes = [text for text in texts if text and text not in folders]
    return f"{image['file']} ({', '.join(notes)})" if notes else image["file"]


def _format_table(table: TextTable) -> str:
    """Return a table in Markdown."""
    lines = [table.header, ["---"] * len(table.header)]
    for row in table.rows:
        names = [to_code(name) if name else "" for name in row[: table.n_names]]
        lines.append([*names, *row[table.n_names :]])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_code(text: str) -> str:
    r"""Return the text as code of Markdown in one line, also in a cell of a table.

    >>> print(to_code("rose|tulip.jpg"), to_code("a`b"))
    `rose\|tulip.jpg` `` a`b ``
    """
    line = to_line(text).replace("|", "\\|")
    longest = max(map(len, BACKTICKS.findall(line)), default=0)
    if not longest:
        return f"`{line}`"
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}"


def format_page(result: AuditResult) -> str:
    """Return the page as HTML: it needs no other file, and no network."""
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return template.render(
        result=result,
        findings=list_findings(result),
        tables=make_tables(result),
        pairs={
            heading: _show_pairs(result, pairs)
            for heading, pairs in choose_examples(result).items()
        },
        overlap=_show_overlap(result),
        clusters=_show_clusters(result),
        method=_describe_method(result),
    )


def _show_pairs(
    result: AuditResult, pairs: pd.DataFrame
) -> list[tuple[str, list[Thumbnail]]]:
    """Return a caption and two thumbnails for each pair."""
    rows = result.images.iloc[pairs[["a", "b"]].to_numpy().ravel()]
    thumbnails = _make_thumbnails(rows)
    shown = []
    for number, pair in enumerate(pairs.to_dict("records")):
        caption = _count(pair["distance"], "bit")
        if pair["match"] != "hash":
            caption += f", {name_match(result, pair['match'])}"
        shown.append((caption, thumbnails[2 * number : 2 * number + 2]))
    return shown


def _show_overlap(result: AuditResult) -> list[tuple[str, list[Thumbnail]]]:
    """Return a caption and a thumbnail for images that are also in other datasets."""
    if result.overlap.empty:
        return []
    pairs = choose_overlap(result)
    thumbnails = _make_thumbnails(result.images.iloc[pairs["a"]])
    shown = []
    for pair, thumbnail in zip(pairs.to_dict("records"), thumbnails, strict=True):
        caption = f"{_count(pair['distance'], 'bit')} from {_describe_copy(pair)}"
        shown.append((caption, [thumbnail]))
    return shown


def _show_clusters(result: AuditResult) -> list[tuple[str, list[Thumbnail]]]:
    """Return a caption and some thumbnails for each of the largest clusters."""
    shown = []
    for cluster in _choose_clusters(result, MOST_CLUSTERS):
        counts = cluster["split"].value_counts()
        splits = ", ".join(f"{count:,} in {split}" for split, count in counts.items())
        caption = f"{len(cluster):,} images: {splits}"
        shown.append((caption, _make_thumbnails(cluster.head(MOST_MEMBERS))))
    return shown


def _make_thumbnails(rows: pd.DataFrame) -> list[Thumbnail]:
    """Return a thumbnail of each image, with its file, split, label and size."""
    pixels = load_pixels(list(rows["path"]), side=SIDE)
    thumbnails = []
    for image, row in zip(pixels, rows.to_dict("records"), strict=True):
        split_and_label = f"{row['split']}: {row['label_name']}".removesuffix(": ")
        size = f"{row['width']} × {row['height']}"
        lines = [row["file"], split_and_label, size]
        thumbnails.append(Thumbnail(_encode(Image.fromarray(image)), lines))
    return thumbnails


def _encode(image: Image.Image) -> str:
    """Return a thumbnail of the image as WebP in base64."""
    image.thumbnail((SIDE, SIDE))
    webp = io.BytesIO()
    image.save(webp, "WEBP", quality=75)
    return b64encode(webp.getvalue()).decode()


def format_copies(result: AuditResult) -> str:
    """Return copies.csv: one row per pair, those in two splits first.

    Pairs with other datasets are last; their second image is there.
    """
    columns: dict[str, Iterable[Any]] = {}
    for end in ("a", "b"):
        rows = result.images.iloc[result.copies[end]]
        for name in ("file", "split", "label_name"):
            columns[f"{name}_{end}"] = rows[name].to_numpy()
    table = pd.DataFrame(columns)
    for name in ("distance", "match", "conflict"):
        table[name] = result.copies[name]
    is_within = table["split_a"] == table["split_b"]
    table = table.iloc[is_within.argsort(kind="stable")].assign(dataset_b="")
    if len(result.overlap):
        table = pd.concat([table, _list_overlap(result)], ignore_index=True)
    # Readers take a carriage return for the end of a line.
    table = table.replace("\r", r"\\r", regex=True)
    return table.to_csv(index=False)


def _list_overlap(result: AuditResult) -> pd.DataFrame:
    """Return the rows of copies.csv for pairs with other datasets."""
    pairs = result.overlap
    mine = result.images.iloc[pairs["a"]].reset_index(drop=True)
    return pd.DataFrame(
        {
            "file_a": mine["file"],
            "split_a": mine["split"],
            "label_name_a": mine["label_name"],
            "file_b": pairs["test_id"],
            "split_b": pairs["test_split"],
            "label_name_b": pairs["test_label"],
            "distance": pairs["distance"],
            "match": pairs["match"],
            # Another dataset may have other names for the same classes.
            "conflict": False,
            "dataset_b": pairs["dataset"],
        }
    )
