"""Apply the user's decisions of OVERRIDES to the clusters, and describe their effects.

Clusters are made again with the decisions; their effect is what differs.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph

from kaggle_tfr.deduplicate.clusters import build_graph, find_clusters
from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.deduplicate.overrides import (
    COLUMNS,
    Decision,
    Overrides,
    correct_images,
    correct_pairs,
)
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.schema import Labels

MAX_NAMED = 5  # images in the effect of one decision


@dataclass(frozen=True)
class Corrections:
    """The results of 02 with the decisions of the user.

    images, pairs, clusters: as `apply_overrides` takes them, corrected.
    effects: one row per decision. Columns: image_id, action, value, effect.
    """

    images: pd.DataFrame
    pairs: pd.DataFrame
    clusters: pd.DataFrame
    effects: pd.DataFrame


@dataclass(frozen=True)
class _Comparison:
    """All images before and after the decisions.

    before, after: one row per image. Columns: image_id, label_name, problem, cluster,
        keep, reason, conflict.
    bits: distance of the pairs before the decisions, by their rows a < b.
    links: the id of an image that still connects a pair that was cut, by its decision.
    group_sizes: number of images in each group.
    """

    before: pd.DataFrame
    after: pd.DataFrame
    bits: pd.Series
    links: dict[Decision, str]
    group_sizes: Counter[str]


def apply_overrides(
    overrides: Overrides,
    images: pd.DataFrame,
    labels: Labels,
    pairs: pd.DataFrame,
    clusters: pd.DataFrame,
    *,
    hashes: pd.DataFrame,
    **rules: Any,
) -> Corrections:
    """Return images, pairs and clusters with the user's decisions, and their effects.

    images, labels, hashes: of 01. pairs: those accepted of `verify_candidates`.
    clusters: of `find_clusters` with these rules: keep, conflicts, leaks and copies.
    A warning names an image that still connects a pair that was cut.
    """
    if not overrides.decisions:
        effects = pd.DataFrame(columns=[*COLUMNS, "effect"])
        return Corrections(images, pairs, clusters, effects)

    is_droppable = (images["problem"] == "").to_numpy() & ~mark_recorded(images)
    corrected = correct_images(images, overrides, labels)
    new_pairs = correct_pairs(pairs, overrides, hashes)
    new_clusters = find_clusters(
        corrected,
        new_pairs,
        **rules,
        kept_rows=[row.a for row in overrides.select("keep")],
        dropped_rows=[r.a for r in overrides.select("drop") if is_droppable[r.a]],
    )
    after = _list_outcomes(corrected, new_clusters)
    links = _find_links(overrides, new_pairs, after)
    _warn_of_links(links)
    comparison = _Comparison(
        before=_list_outcomes(images, clusters),
        after=after,
        bits=pairs.set_index(["a", "b"])["distance"],
        links=links,
        group_sizes=Counter(row.value for row in overrides.select("group")),
    )
    effects = _list_effects(overrides, comparison)
    return Corrections(corrected, new_pairs, new_clusters, effects)


def _list_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return a row per image: see `_Comparison`."""
    columns = ["image_id", "split", "label_name", "problem"]
    table = match_clusters(images[columns], clusters, ["reason", "conflict"])
    table["recorded"] = mark_recorded(images)
    return table.assign(conflict=table["conflict"].eq(True))


def _find_links(
    overrides: Overrides,
    pairs: pd.DataFrame,
    after: pd.DataFrame,
) -> dict[Decision, str]:
    """Return an image that connects each pair that is in one cluster although cut."""
    cluster = after["cluster"]
    connected = [
        row
        for row in overrides.select("different")
        if cluster[row.a] == cluster[row.b] >= 0
    ]
    links = {}
    rows, graph = build_graph(pairs)
    for decision in connected:
        start, end = np.searchsorted(rows, [decision.a, decision.b])
        _, previous = csgraph.dijkstra(
            graph,
            directed=False,
            indices=start,
            return_predecessors=True,
        )
        links[decision] = after["image_id"][rows[previous[end]]]
    return links


def _warn_of_links(links: dict[Decision, str]) -> None:
    """Warn of pairs that were cut and are still connected."""
    for row, link in links.items():
        warnings.warn(
            f"OVERRIDES, row {row.number}: '{row.image_id}' and '{row.value}' are "
            f"still in one cluster, because both are connected to '{link}'. To "
            f"separate them, add a row 'different' with '{link}', too.",
            stacklevel=3,
        )


def _list_effects(overrides: Overrides, comparison: _Comparison) -> pd.DataFrame:
    """Return image_id, action, value and effect of each decision."""
    changed = _list_changed(overrides, comparison)
    effects = []
    for row in overrides.decisions:
        effect = _describe_effect(row, comparison)
        if _begins_conflict(row, comparison):
            effect += "; this is a label conflict"
        effect += _describe_changed(row, changed, comparison)
        effects.append((row.image_id, row.action, row.value, effect))
    return pd.DataFrame(effects, columns=[*COLUMNS, "effect"])


def _describe_effect(row: Decision, comparison: _Comparison) -> str:
    """Return what a decision did to its own images, such as "dropped; it was kept"."""
    before = comparison.before.iloc[row.a]
    if before["problem"]:
        return f"nothing: it is rejected ({before['problem']})"
    if before["recorded"] and row.action == "drop":
        return "nothing: its record in an earlier part stays"
    if before["recorded"] and row.action == "label":
        label = before["label_name"]
        return f"nothing: its record in an earlier part has the label {label}"
    if row.action == "keep":
        after = comparison.after.iloc[row.a]
        if not after["keep"]:
            return f"not kept: {after['reason']}"
        if before["keep"]:
            return "nothing: it was kept"
        return f"kept; before: {before['reason']}"
    if row.action == "drop":
        return f"dropped; before: {'kept' if before['keep'] else before['reason']}"
    if row.action == "label":
        return _describe_label(row, comparison)
    if row.action == "group":
        n_images = comparison.group_sizes[row.value]
        return f"{n_images} images of this group share a fold"
    return _describe_pair(row, comparison)


def _describe_label(row: Decision, comparison: _Comparison) -> str:
    """Return the class before, and whether a label conflict ends."""
    before = comparison.before.iloc[row.a]
    after = comparison.after.iloc[row.a]
    if before["label_name"] == row.value:
        return "nothing: this was its class"
    text = f"before: {before['label_name']}"
    if before["conflict"] and not after["conflict"]:
        text += "; the label conflict is resolved"
    return text


def _begins_conflict(row: Decision, comparison: _Comparison) -> bool:
    """Return whether the image has a label conflict that it did not have before."""
    was_conflict = comparison.before["conflict"].iloc[row.a]
    return bool(comparison.after["conflict"].iloc[row.a] and not was_conflict)


def _describe_pair(row: Decision, comparison: _Comparison) -> str:
    """Return what became of a pair that was added or cut."""
    bits = comparison.bits.get((min(row.a, row.b), max(row.a, row.b)))
    before = comparison.before["cluster"]
    was_together = before[row.a] == before[row.b] >= 0
    if row.action == "same":
        cluster = comparison.after["cluster"]
        size = (cluster == cluster[row.a]).sum()
        if was_together:
            return f"nothing: they were in one cluster of {size} images"
        return f"one cluster of {size} images"
    if row in comparison.links:
        return f"not separated: both are connected to '{comparison.links[row]}'"
    if bits is None and not was_together:
        return "nothing: they were not in one cluster"
    if bits is None:
        return "separated"
    unit = "bit" if bits == 1 else "bits"
    return f"separated; they are {bits} {unit} apart"


def _list_changed(overrides: Overrides, comparison: _Comparison) -> pd.DataFrame:
    """Return the images that the rules keep or drop because of the decisions.

    Columns: those of `_Comparison.after`, and cluster_before.
    """
    before = comparison.before
    after = comparison.after.assign(cluster_before=before["cluster"])
    decided_rows = [row.a for row in overrides.select("keep", "drop")]
    is_decided = after.index.isin(decided_rows)
    is_changed = before["keep"] != after["keep"]
    return after[is_changed & ~is_decided]


def _describe_changed(
    row: Decision,
    changed: pd.DataFrame,
    comparison: _Comparison,
) -> str:
    """Return the other images of the same clusters that are now kept or dropped."""
    rows = [row.a, row.b] if row.is_pair else [row.a]
    clusters = set(comparison.after["cluster"].iloc[rows]) - {-1}
    clusters_before = set(comparison.before["cluster"].iloc[rows]) - {-1}
    is_affected = changed["cluster"].isin(clusters)
    is_affected |= changed["cluster_before"].isin(clusters_before)
    affected = changed[is_affected]
    text = ""
    for outcome, is_kept in (("kept", True), ("dropped", False)):
        names = affected["image_id"][affected["keep"] == is_kept].tolist()
        if names:
            ending = ", …" if len(names) > MAX_NAMED else ""
            text += f"; now {outcome}: {', '.join(names[:MAX_NAMED])}{ending}"
    return text
