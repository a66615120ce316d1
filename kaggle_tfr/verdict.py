"""The verdict on a run: one sentence with a number on each subject, and one on all."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate import DuplicateSettings, load_clusters
from kaggle_tfr.deduplicate.outcomes import load_leaks
from kaggle_tfr.explore import find_doubts, load_images
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.figures import count_of, list_marks, list_names
from kaggle_tfr.figures.words import join_words
from kaggle_tfr.parameters import PARAMETERS
from kaggle_tfr.plan import check_leakage, find_missing_classes
from kaggle_tfr.schema import Labels
from kaggle_tfr.shards import read_part_table
from kaggle_tfr.tables import format_bytes

GOOD = "✓"
NOTE = "·"  # for information: the run has handled it, or it is needed to publish only
LOOK = "!"  # the reader decides
FAULT = "✗"  # the result is wrong or incomplete
SERIOUSNESS = (FAULT, LOOK, NOTE, GOOD)
SHARD_COLUMNS = ["file", "part", "count", "bytes", "refused"]
LICENSES = PARAMETERS["LICENSE"].choices[1:]  # the first one is ""
OOF_COLUMNS = {"fold", "label", "predicted", "probability"}  # not of a quantity
METADATA_FILE = "dataset-metadata.json"
MAX_SIZES = 10  # folds whose sizes are listed
MAX_NAMED = 3  # classes, and remarks in the headline
FEW_IMAGES = 0.05  # of the input images, rejected or of bad quality
# What 04 and 01 print.
VERIFIED = re.compile(r"\b0 faults in ([\d,]+) records")
NO_GIVEAWAY = re.compile(r"^None of \d+ facts of the files .+", re.MULTILINE)
GIVEAWAY = re.compile(r"^Warning: without its pixels, (.+) \(.+\)\.$", re.MULTILINE)
QUALITY_WARNING = re.compile(
    r"^Warning: ([\d,]+) of ([\d,]+) images?: (.+) \((.+)\)\.$", re.MULTILINE
)


@dataclass(frozen=True)
class Finding:
    """A sentence on one subject, and its mark: one of `SERIOUSNESS`.

    brief: a few words for the headline. section: the section of the page about it.
    advice: a sentence for the end of the headline.
    """

    mark: str
    text: str
    brief: str = ""
    section: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Run:
    """The tables of a run; None for those of steps that have not run.

    shards: columns `SHARD_COLUMNS`, of all parts. licenses: of each part, "" for none.
    settings: the parameters of 02. oof: the out-of-fold predictions of 06.
    printed: what the executed notebooks printed, by their names.
    """

    images: pd.DataFrame
    labels: Labels
    clusters: pd.DataFrame | None
    leaks: pd.DataFrame | None
    plan: pd.DataFrame | None
    shards: pd.DataFrame
    licenses: Sequence[str] = ()
    settings: DuplicateSettings = field(default_factory=DuplicateSettings)
    oof: pd.DataFrame | None = None
    printed: Mapping[str, str] = field(default_factory=dict)


def load_run(
    work_dir: str,
    part_dirs: Sequence[str],
    printed: Mapping[str, str] | None = None,
) -> Run | None:
    """Return the tables of a work folder and its parts, None before 01_explore.

    printed: as in `Run`.
    Raises: ValueError: 02_deduplicate clustered other images than those of 01_explore.
    """
    if not storage.exists(storage.join(work_dir, "images.parquet")):
        return None
    images, labels = load_images(work_dir)
    clusters = None
    leaks = None
    settings = DuplicateSettings()
    if storage.exists(storage.join(work_dir, "duplicates.parquet")):
        clusters, settings = load_clusters(work_dir)
        _check_clusters(images, clusters)
        if storage.exists(storage.join(work_dir, "leaks.csv")):
            leaks = load_leaks(work_dir)

    tables = [read_part_table(part, columns=SHARD_COLUMNS) for part in part_dirs]
    shards = pd.concat([pd.DataFrame(columns=SHARD_COLUMNS), *tables])
    return Run(
        images=images,
        labels=labels,
        clusters=clusters,
        leaks=leaks,
        plan=_read_if_written(work_dir, "plan.parquet"),
        shards=shards,
        licenses=[_read_license(part) for part in part_dirs],
        settings=settings,
        oof=_read_predictions(work_dir),
        printed=printed or {},
    )


def _read_csv(work_dir: str, name: str) -> pd.DataFrame | None:
    """Return a table of texts, None without the file."""
    text = storage.read_text(storage.join(work_dir, name))
    if not text:
        return None
    return pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)


def _read_predictions(work_dir: str) -> pd.DataFrame | None:
    """Return the out-of-fold predictions, None without those of 06."""
    oof = _read_csv(work_dir, "oof.csv")
    if oof is None or oof.empty or not OOF_COLUMNS.issubset(oof.columns):
        return None
    return oof


def _read_license(part_dir: str) -> str:
    """Return the license in a part's dataset-metadata.json, "" for none."""
    text = storage.read_text(storage.join(part_dir, METADATA_FILE))
    try:
        (license_of_part,) = json.loads(text)["licenses"]
        return str(license_of_part["name"])
    except (ValueError, KeyError, TypeError):  # the user may have changed the file
        return ""


def _read_if_written(work_dir: str, name: str) -> pd.DataFrame | None:
    path = storage.join(work_dir, name)
    return storage.read_parquet(path) if storage.exists(path) else None


def _check_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> None:
    """Raise a ValueError if a cluster has an image that is not a good image."""
    good = images[images["problem"] == ""]
    known = pd.MultiIndex.from_frame(good[["image_id", "split"]])
    clustered = pd.MultiIndex.from_frame(clusters[["image_id", "split"]])
    n_unknown = (~clustered.isin(known)).sum()
    if n_unknown:
        raise ValueError(
            f"duplicates.parquet has {count_of(n_unknown, 'image')} that 01_explore "
            "has removed or rejected since. Run 02_deduplicate again."
        )


def judge_run(
    run: Run, group_column: str = "", label_column: str | Sequence[str] = ""
) -> list[Finding]:
    """Return the findings about what was written, and about the quality of the data.

    The most serious findings are first. Subjects of steps that have not run are left
    out.
    group_column: the parameter; its values must not be in two folds.
    label_column: the parameter; classes that the user has set are not doubted.
    """
    findings = [_judge_written(run)]
    for doubt in find_doubts(run.images, run.labels, label_column):
        findings.append(Finding(FAULT, doubt, doubt.partition(".")[0], "01_explore"))
    if run.plan is not None:
        findings.append(_judge_folds(run.plan, group_column))
    if run.clusters is not None and run.leaks is not None:
        is_here = run.leaks["dataset"] == ""
        action = run.settings.leaks
        findings.append(_judge_leaks(run.images, run.leaks[is_here], action))
        findings += _judge_overlap(run.images, run.leaks[~is_here], action)
        findings.append(_judge_conflicts(run.clusters))
    printed = run.printed.get("01_explore", "")
    findings += _judge_giveaways(printed)
    if run.plan is not None and run.labels.classes:
        findings.append(_judge_classes(run.labels, run.plan))
    if len(run.shards):
        findings.append(_judge_verification(run))
    if run.plan is not None and run.oof is not None:
        n_refused = int(run.shards["refused"].sum())
        findings.append(_judge_score(run.oof, run.plan, n_refused))
    findings += _judge_quality(printed)
    findings.append(_judge_rejected(run))
    if len(run.shards):
        findings.append(_judge_license(run.licenses))
    return sort_findings(findings)


def sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, the most serious first, else in their order."""
    return sorted(findings, key=lambda finding: SERIOUSNESS.index(finding.mark))


def summarize(findings: Sequence[Finding]) -> Finding:
    """Return the headline: can the dataset be used and published, what is against it.

    >>> advice = "To publish, set LICENSE."
    >>> license = Finding(NOTE, "…", advice=advice)
    >>> leak = Finding(LOOK, "…", brief="8 test images have a copy in train")
    >>> fault = Finding(FAULT, "…", brief="the folds leak")
    >>> print(summarize([fault, leak, license]).text)
    Not yet: the folds leak. 1 remark: 8 test images have a copy in train.
    >>> print(summarize([leak, license]).text)
    Usable, with 1 remark: 8 test images have a copy in train. To publish, set LICENSE.
    >>> print(summarize([license]).text)
    Ready to train. To publish, set LICENSE.
    >>> print(summarize([Finding(GOOD, "…")]).text)
    Ready to publish.
    """
    faults = [finding.brief for finding in findings if finding.mark == FAULT]
    remarks = [finding.brief for finding in findings if finding.mark == LOOK]
    counted = f"{count_of(len(remarks), 'remark')}: {_list_briefs(remarks)}."
    if faults:
        text = f"Not yet: {_list_briefs(faults)}."
        return Finding(FAULT, f"{text} {counted}" if remarks else text)

    advice = [finding.advice for finding in findings if finding.advice]
    if remarks:
        return Finding(LOOK, " ".join([f"Usable, with {counted}", *advice]))
    if advice:
        return Finding(GOOD, " ".join(["Ready to train.", *advice]))
    return Finding(GOOD, "Ready to publish.")


def _list_briefs(briefs: Sequence[str]) -> str:
    """Return the first briefs, and the number of the others."""
    text = "; ".join(briefs[:MAX_NAMED])
    n_others = len(briefs) - MAX_NAMED
    return f"{text}; and {n_others:,} more" if n_others > 0 else text


def _judge_written(run: Run) -> Finding:
    """Compare the shards with the plan."""
    shards = run.shards
    n_inputs = count_of(len(run.images), "listed image")
    brief = "nothing is written yet"
    if run.plan is None:
        return Finding(LOOK, f"Nothing is planned or written yet of {n_inputs}.", brief)
    if shards.empty:
        text = f"Nothing is written yet; the plan has {len(run.plan):,} of {n_inputs}."
        return Finding(LOOK, text, brief, "03_plan")
    n_written = int(shards["count"].sum())
    n_parts = shards["part"].nunique()
    size = format_bytes(shards["bytes"].sum())
    text = (
        f"This run wrote {n_written:,} of {n_inputs}: "
        f"{count_of(len(shards), 'shard')}, {size}, {count_of(n_parts, 'part')}."
    )
    n_planned_parts = run.plan["part"].nunique()
    if n_parts < n_planned_parts:
        return Finding(
            LOOK,
            f"{text} The plan has {n_planned_parts} parts.",
            f"{n_parts:,} of {n_planned_parts:,} parts are here",
            "04_write",
        )
    if n_written + shards["refused"].sum() != len(run.plan):
        return Finding(
            FAULT,
            f"{text} The plan has {len(run.plan):,} images. Run 04_write again.",
            "the shards are not those of the plan",
            "04_write",
        )
    return Finding(GOOD, text, section="04_write")


def _judge_license(licenses: Sequence[str]) -> Finding:
    """Name the license of the parts; Kaggle requires one that it knows.

    Without a license the shards can be used, so this is not a fault.
    """
    if not all(licenses):
        return Finding(
            NOTE,
            "LICENSE is empty, and Kaggle requires a license. To publish, set LICENSE "
            "and run 04_write again, which keeps finished shards.",
            advice="To publish, set LICENSE.",
        )
    names = sorted(set(licenses))
    unknown = [name for name in names if name not in LICENSES]
    if unknown:
        return Finding(
            FAULT,
            f"Kaggle has no license '{unknown[0]}'. Set LICENSE and run 04_write "
            "again, which keeps finished shards.",
            f"Kaggle has no license '{unknown[0]}'",
        )
    return Finding(GOOD, f"License: {', '.join(names)}.")


def _judge_verification(run: Run) -> Finding:
    """Return how many records 04 has read again; it stops at a fault."""
    n_records = int(run.shards["count"].sum())
    counts = VERIFIED.findall(run.printed.get("04_write", ""))
    n_verified = int(counts[-1].replace(",", "")) if counts else 0
    if n_verified >= n_records:
        text = f"0 faults in {n_records:,} records, all of which were read again."
        return Finding(GOOD, text, section="04_write")
    n_missing = n_records - n_verified
    return Finding(
        LOOK,
        f"{n_missing:,} of {n_records:,} records were not read again by this run: "
        "kaggle-tfr verify checks them.",
        f"{n_missing:,} of {n_records:,} records are not verified",
        "04_write",
    )


def _judge_folds(plan: pd.DataFrame, group_column: str) -> Finding:
    """Return the sizes of folds and splits, and whether a cluster is in two."""
    sizes = _describe_sizes(plan[plan["split"] != "test"])
    column = group_column if group_column in plan else ""
    try:
        check_leakage(plan, group_column=column)
    except ValueError as error:
        return Finding(FAULT, f"{sizes} {error}", "the folds leak", "03_plan")
    n_clusters = plan["cluster"][plan["cluster"] >= 0].nunique()
    kept_apart = f"None of {count_of(n_clusters, 'cluster')} with a written image"
    if column:
        n_groups = plan[column].nunique()
        kept_apart += f" and of {n_groups:,} values of '{column}'"
    return Finding(
        GOOD, f"{sizes} {kept_apart} is in two folds or splits.", section="03_plan"
    )


def _describe_sizes(labelled: pd.DataFrame) -> str:
    """Return sentences with the numbers of images in folds and splits."""
    in_folds = labelled["fold"] >= 0
    sizes = labelled["fold"][in_folds].value_counts().sort_index().tolist()
    texts = []
    if len(sizes) == 1:
        texts.append(f"{count_of(sizes[0], 'image')} in train")
    elif 1 < len(sizes) <= MAX_SIZES:
        listed = ", ".join(f"{size:,}" for size in sizes)
        texts.append(f"{len(sizes)} folds of {listed} images")
    elif sizes:
        interval = f"{min(sizes):,} to {max(sizes):,}"
        texts.append(f"{len(sizes)} folds of {interval} images")
    others = labelled["split"][~in_folds].value_counts()
    in_every_fold = labelled[~in_folds & (labelled["split"] == "train")]
    if sizes:
        others = others.drop("train", errors="ignore")
    texts += [f"{count_of(n, 'image')} in {split}" for split, n in others.items()]
    text = f"{', '.join(texts) or '0 labelled images'}."
    if sizes and len(in_every_fold):
        counted = count_of(len(in_every_fold), "image")
        verb = "trains" if len(in_every_fold) == 1 else "train"
        is_extra = in_every_fold["source"] > 0
        owner = "MORE_INPUTS" if is_extra.all() else "MORE_INPUTS and of their groups"
        text += f" {counted} of {owner} {verb} in every fold."
    return text


def _judge_leaks(images: pd.DataFrame, leaks: pd.DataFrame, action: str) -> Finding:
    """Count the test and validation images with a near-duplicate in another split.

    action: LEAKS.
    """
    is_apart = (images["problem"] == "") & (images["split"] != "train")
    n_apart = is_apart.sum()
    if not n_apart:
        return Finding(
            GOOD, f"All {count_of(len(images), 'image')} are in one split: no leaks."
        )
    if leaks.empty:
        splits = " and ".join(sorted(images["split"][is_apart].unique()))
        apart = f"{n_apart:,} {splits} images"
        return Finding(GOOD, f"None of {apart} has a near-duplicate in another split.")

    n_of_split = images["split"][is_apart].value_counts()
    n_leaks = leaks.groupby("test_split")["test_id"].nunique()
    briefs = []
    texts = []
    for split, of_split in leaks.groupby("test_split"):
        others = join_words(sorted(of_split["split"].unique()))
        verb = "has" if n_leaks[split] == 1 else "have"
        end = f"{verb} a copy in {others}"
        briefs.append(f"{count_of(n_leaks[split], f'{split} image')} {end}")
        texts.append(
            f"{n_leaks[split]:,} of {count_of(n_of_split[split], f'{split} image')} "
            f"{end}"
        )
    copies = leaks[["split", "image_id", "keep"]].drop_duplicates()
    n_kept = (copies["keep"] == "True").sum()
    return Finding(
        LOOK if n_kept else NOTE,
        f"{'; '.join(texts)}: {_describe_kept(n_kept, len(copies))} "
        f"(LEAKS = {action}).",
        "; ".join(briefs),
        "clusters",
    )


def _judge_overlap(
    images: pd.DataFrame, overlap: pd.DataFrame, action: str
) -> list[Finding]:
    """Return a finding for each compared dataset that contains some of the images.

    overlap: rows of leaks.csv. action: LEAKS.
    """
    n_images = int((images["problem"] == "").sum())
    findings = []
    for dataset, pairs in overlap.groupby("dataset"):
        mine = pairs[["split", "image_id", "keep"]].drop_duplicates()
        n_kept = int((mine["keep"] == "True").sum())
        verb = "is" if len(mine) == 1 else "are"
        end = f"{verb} also in {dataset}"
        text = f"{len(mine):,} of {count_of(n_images, 'image')} {end}"
        findings.append(
            Finding(
                LOOK if n_kept else NOTE,
                f"{text}: {_describe_kept(n_kept, len(mine))} (LEAKS = {action}).",
                f"{count_of(len(mine), 'image')} {end}",
                "02_deduplicate",
            )
        )
    return findings


def _describe_kept(n_kept: int, n_copies: int) -> str:
    """Return how many copies are kept.

    >>> _describe_kept(8, 8), _describe_kept(0, 1), _describe_kept(3, 8)
    ('all 8 copies are kept', 'the copy is dropped', '3 of 8 copies are kept')
    """
    if 0 < n_kept < n_copies:
        return f"{n_kept:,} of {n_copies:,} copies are kept"
    verb = "kept" if n_kept else "dropped"
    return (
        f"the copy is {verb}"
        if n_copies == 1
        else f"all {n_copies:,} copies are {verb}"
    )


def _judge_conflicts(clusters: pd.DataFrame) -> Finding:
    """Count the clusters with several labels."""
    n_clusters = clusters["cluster"].nunique()
    conflicts = clusters[clusters["conflict"]]
    if conflicts.empty:
        counted = count_of(n_clusters, "cluster")
        return Finding(GOOD, f"None of {counted} of near-duplicates has two labels.")
    n_conflicts = conflicts["cluster"].nunique()
    n_images = count_of(len(conflicts), "image")
    n_dropped = (~conflicts["keep"]).sum()
    dropped = f"{n_dropped:,} of {n_images} are dropped"
    if n_dropped == len(conflicts):
        dropped = f"all {n_images} are dropped"
    return Finding(
        LOOK,
        f"Labels disagree in {n_conflicts:,} of {n_clusters:,} clusters of "
        f"near-duplicates; {dropped}.",
        f"labels disagree in {count_of(n_conflicts, 'cluster')}",
        "clusters",
    )


def _judge_giveaways(printed: str) -> list[Finding]:
    """Return what 01 printed about the facts of files that predict a label."""
    findings = [
        Finding(LOOK, giveaway[0], giveaway[1], "01_explore")
        for giveaway in GIVEAWAY.finditer(printed)
    ]
    successes = NO_GIVEAWAY.findall(printed)
    if successes:
        findings.append(Finding(GOOD, " ".join(successes), section="01_explore"))
    return findings


def _judge_quality(printed: str) -> list[Finding]:
    """Return the dark, blurred, empty and compressed images that 01 warned of."""
    findings = []
    for n_faulty, n_images, adjective, criterion in QUALITY_WARNING.findall(printed):
        count = int(n_faulty.replace(",", ""))
        total = int(n_images.replace(",", ""))
        verb = "is" if count == 1 else "are"
        counted = f"{count_of(total, 'image')} {verb} {adjective}"
        findings.append(
            Finding(
                LOOK if count > FEW_IMAGES * total else NOTE,
                f"{count:,} of {counted} ({criterion}).",
                f"{count_of(count, 'image')} {verb} {adjective}",
                "01_explore",
            )
        )
    return findings


def _judge_classes(labels: Labels, plan: pd.DataFrame) -> Finding:
    """Name the classes without an image in a fold or split, or in all of them."""
    table = find_missing_classes(plan, label_columns=labels.class_columns)
    missing = [
        f"{row['class']} ({count_of(row['images'], 'image')}) is missing from "
        f"{_name_places(row['missing_from'])}"
        for row in table.to_dict("records")
    ]
    missing += [f"{name} has no image" for name in _list_absent(labels, plan)]
    n_classes = count_of(len(number_names(labels.classes)), "class", "es")
    if not missing:
        text = f"Each fold and split has images of all {n_classes}."
        return Finding(GOOD, text, section="03_plan")
    if len(missing) == 1:
        return Finding(
            LOOK,
            f"Class {missing[0]}.",
            f"class {missing[0]}",
            "03_plan",
        )
    named = "; ".join(missing[:MAX_NAMED])
    n_others = len(missing) - MAX_NAMED
    if n_others > 0:
        named += f"; and {n_others:,} more"
    text = f"{len(missing):,} of {n_classes} are not in every fold and split"
    return Finding(LOOK, f"{text}: {named}.", text, "03_plan")


def _name_places(missing_from: str) -> str:
    """Return the places of `find_missing_classes` as words.

    >>> _name_places("fold 1, fold 4"), _name_places("fold 0, validation")
    ('folds 1 and 4', 'fold 0 and validation')
    """
    places = missing_from.split(", ")
    folds = [place.removeprefix("fold ") for place in places if "fold " in place]
    others = [place for place in places if "fold " not in place]
    if len(folds) > 1 and not others:
        return f"folds {join_words(folds)}"
    return join_words(places)


def _judge_score(oof: pd.DataFrame, plan: pd.DataFrame, n_refused: int) -> Finding:
    """Compare the accuracy of 06 with that of always predicting the largest class.

    n_refused: planned images that could not be written.
    """
    n_predicted = oof["fold"].value_counts()
    n_planned = plan["fold"].astype(str).value_counts()
    n_missing = n_planned.reindex(n_predicted.index, fill_value=0) - n_predicted
    if n_missing.min() < 0 or n_missing.sum() > n_refused:
        return Finding(
            LOOK,
            "oof.csv has the predictions of other folds than those of the plan. Run "
            "06_train again.",
            "oof.csv is of another plan",
            "06_train",
        )
    accuracy = (oof["label"] == oof["predicted"]).mean()
    shares = oof["label"].value_counts(normalize=True)
    text = (
        f"The models of 06 are right on {accuracy:.1%} of "
        f"{count_of(len(oof), 'image')} that they had not seen; always predicting the "
        f"largest class ({list_names([shares.index[0]])}) is right on "
        f"{shares.iloc[0]:.1%}."
    )
    if accuracy > shares.iloc[0]:
        return Finding(GOOD, text, section="06_train")
    return Finding(
        LOOK, text, "the models of 06 are not better than the largest class", "06_train"
    )


def _list_absent(labels: Labels, plan: pd.DataFrame) -> list[str]:
    """Return the names of the classes without a labelled image in the plan."""
    labelled = plan[plan["split"] != "test"]
    if labels.class_columns:
        is_present = list_marks(labelled, labels.class_columns).any()
        return [str(name) for name in is_present.index[~is_present]]
    present = set(labelled["label"])
    names = number_names(labels.classes)
    return [name for name, label in names.items() if label not in present]


def _judge_rejected(run: Run) -> Finding:
    """Count the rejected images by their problems."""
    problems = run.images["problem"].str.partition(":")[0]
    counts = problems[problems != ""].value_counts()
    n_refused = int(run.shards["refused"].sum())
    if n_refused:
        counts["unreadable when they were written"] = n_refused
    n_inputs = count_of(len(run.images), "listed image")
    if counts.empty:
        return Finding(GOOD, f"This run rejected none of {n_inputs}.")
    n_rejected = counts.sum()
    reasons = [f"{count:,} {problem}" for problem, count in counts.items()]
    brief = f"{n_rejected:,} of {n_inputs} are rejected"
    return Finding(
        LOOK if n_rejected > FEW_IMAGES * len(run.images) else NOTE,
        f"This run rejected {n_rejected:,} of {n_inputs}: {', '.join(reasons)}.",
        brief,
        "overview",
    )
