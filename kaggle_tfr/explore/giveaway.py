"""Score how well facts of the files predict labels, and which images are for testing.

A model can look at the size or the camera of a file in place of its pixels: it then
finds the label wherever such a fact differs between the classes. Here small trees
predict the label from each fact alone, and from all together. They are trained on one
half of the images, and the other half is predicted; then the halves change places. The
share of right predictions, as the mean over the classes, is compared with chance.
"""

from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

ALL_FACTS = "all together"
LABEL = "label"
TEST = "test or train"
PREDICTS = {LABEL: "predicts the label", TEST: "separates test from train"}

MAX_ROWS = 10_000  # a sample of more images decides as well
MAX_CLASSES = 20  # the largest
MIN_IMAGES = 20  # of a class; fewer decide nothing
# Of all datasets without any giveaway, the share with a score above chance.
FALSE_ALARMS = 0.05
# The share of the way from chance to 1 from which a score is a warning.
WARNING_LIFT = 0.25
SHOWN_CLASSES = 8

# The right predictions, and by chance their mean and standard deviation. All are shares
# of a class, as means over the classes.
Accuracy = tuple[float, float, float]


def score_giveaways(images: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row for each target and fact, the best predictions of a target first.

    images: of `measure`. Targets are the label, by its largest classes, and whether an
    image of the main input is a test image. Facts without any difference, and targets
    with less than two classes of 20 different images, are left out.
    Columns: target; fact; score, the share of right predictions; chance, its mean if
    the fact does not depend on the target; chance_limit, which the scores of 19 of 20
    such datasets stay below; gives_away, whether the score is above this limit.
    """
    good = images[images["problem"] == ""]
    results = []
    for target, classes in _list_targets(good).items():
        rows = _sample_rows(classes, good["digest"], seed)
        facts = _number_facts(good.loc[rows.index])
        is_first = rows["is_first"].to_numpy()
        codes = pd.factorize(rows["class"], sort=True)[0]
        for fact, accuracy in _score_facts(facts, codes, is_first, seed).items():
            results.append((target, fact, *accuracy))
    return _compare_with_chance(results)


def _list_targets(good: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the class of each image for each target, NaN where it has none."""
    is_test = good["split"] == "test"
    is_labelled = (good["label"] >= 0) & ~is_test
    # Further inputs have no test images, so their source would give them away.
    is_main = good["source"] == 0
    splits = is_test.map({True: "test", False: "train"})
    return {
        LABEL: good["label_name"].where(is_labelled),
        TEST: splits.where(is_main),
    }


def _list_facts(images: pd.DataFrame) -> pd.DataFrame:
    """Return the facts of each image, numbers or texts, under their displayed names.

    What causes others is before them: of equal scores the first is shown.
    """
    hour = pd.to_numeric(images["exif_time"].str[11:13], errors="coerce")
    facts = {
        "source": images["source"].astype(str),
        "format": images["format"],
        "JPEG quality": images["jpeg_quality"],
        "camera in EXIF": images["exif_camera"],
        "hour in EXIF": hour.fillna(-1),
        "width in pixels": images["width"],
        "height in pixels": images["height"],
        "width : height": images["width"] / images["height"],
        "brightness": images["brightness"],
        "file size in bytes": images["n_bytes"],
    }
    return pd.DataFrame(facts, images.index)


def _number_facts(images: pd.DataFrame) -> pd.DataFrame:
    """Return the facts that differ between images as numbers, float32."""
    facts = _list_facts(images)
    for name in facts.select_dtypes(exclude="number"):
        facts[name] = pd.factorize(facts[name], sort=True)[0]
    facts = facts.astype(np.float32)
    return facts.loc[:, facts.min() < facts.max()]


def _sample_rows(classes: pd.Series, digests: pd.Series, seed: int) -> pd.DataFrame:
    """Return the class and the half of sampled images, none if there is one class.

    Images with equal files count once: copies in both halves would predict each other.
    """
    rows = pd.DataFrame({"class": classes, "digest": digests})
    rows = rows.dropna(subset="class").drop_duplicates("digest")
    counts = rows["class"].value_counts().head(MAX_CLASSES)
    largest = counts.index[counts >= MIN_IMAGES]
    if len(largest) < 2:
        largest = largest[:0]
    rows = rows[rows["class"].isin(largest)]

    share = min(1, MAX_ROWS / max(1, len(rows)))
    shuffled = rows.sample(frac=1, random_state=seed)
    groups = shuffled.groupby("class")["digest"]
    place = groups.cumcount()
    limit = (share * groups.transform("size")).clip(lower=MIN_IMAGES)
    sample = shuffled[place < limit]
    # Dealt like cards within each class.
    return sample.assign(is_first=place[sample.index] % 2 == 0)


def _score_facts(
    facts: pd.DataFrame, codes: np.ndarray, is_first: np.ndarray, seed: int
) -> dict[str, Accuracy]:
    """Return the accuracy of each fact, and of all together.

    codes: the class of each row, from 0. is_first: bool, rows of the first half.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    options: dict[str, Any] = {
        "min_samples_leaf": max(5, len(facts) // 200),
        "class_weight": "balanced",
        "random_state": seed,
    }
    tree = DecisionTreeClassifier(max_leaf_nodes=16, **options)
    forest = RandomForestClassifier(30, max_leaf_nodes=64, n_jobs=1, **options)
    accuracies = {}
    for name in map(str, facts):
        values = facts[[name]].to_numpy()
        accuracies[name] = _cross_validate(tree, values, codes, is_first)
    if len(accuracies) > 1:
        values = facts.to_numpy()
        accuracies[ALL_FACTS] = _cross_validate(forest, values, codes, is_first)
    return accuracies


def _cross_validate(
    model: "ClassifierMixin",
    values: np.ndarray,
    codes: np.ndarray,
    is_first: np.ndarray,
) -> Accuracy:
    """Return the accuracy of a model of one half on the other, the mean of both."""
    accuracies = []
    for is_trained in (is_first, ~is_first):
        model.fit(values[is_trained], codes[is_trained])
        predicted = model.predict(values[~is_trained])
        accuracies.append(_measure_accuracy(codes[~is_trained], predicted))
    score, chance, deviation = np.mean(accuracies, axis=0).tolist()
    return score, chance, deviation


def _measure_accuracy(codes: np.ndarray, predicted: np.ndarray) -> Accuracy:
    """Return the accuracy of predictions.

    By chance: if these predictions were assigned to the rows at random. The counts of
    right ones then have a multivariate hypergeometric distribution.
    """
    n_rows = len(codes)
    sizes = np.bincount(codes).astype(float)
    n_classes = len(sizes)
    n_predicted = np.bincount(predicted, minlength=n_classes).astype(float)
    n_right = np.bincount(codes[codes == predicted], minlength=n_classes)

    of_classes = n_predicted * (n_rows - n_predicted) * (n_rows - sizes) / sizes
    between_classes = n_rows**2 - (n_predicted**2).sum()
    variance = (of_classes.sum() + between_classes) / (n_rows**2 * (n_rows - 1))
    deviation = sqrt(variance) / n_classes
    return float((n_right / sizes).mean()), 1 / n_classes, deviation


def _compare_with_chance(results: list[tuple]) -> pd.DataFrame:
    """Return the scores as a table, with the limit of chance for all of them.

    A mean above the limit needs one half above it, and the halves are not independent:
    each trained the model of the other. So both halves of all scores share the false
    alarms (Bonferroni).
    """
    n_tests = 2 * max(1, len(results))
    n_deviations = NormalDist().inv_cdf(1 - FALSE_ALARMS / n_tests)
    names = ["target", "fact", "score", "chance", "deviation"]
    scores = pd.DataFrame(results, columns=names)
    limit = scores["chance"] + n_deviations * scores.pop("deviation")
    scores = scores.assign(chance_limit=limit, gives_away=scores["score"] > limit)
    order = ["target", "score"]
    scores = scores.sort_values(order, ascending=[True, False], kind="stable")
    return scores.reset_index(drop=True)


def describe_giveaways(scores: pd.DataFrame) -> str:
    """Return a sentence for each target about a table of `score_giveaways`."""
    if scores.empty:
        return (
            "The facts of the files are not scored: that takes two classes, or test "
            f"and train, of {MIN_IMAGES} different images each."
        )
    sentences = []
    for target, of_target in scores.groupby("target"):
        predicts = PREDICTS[str(target)]
        above = of_target[of_target["gives_away"]]
        if len(above):
            sentences.append(_describe_alarm(above, predicts))
        else:
            n_facts = (of_target["fact"] != ALL_FACTS).sum()
            sentences.append(
                f"No fact of the files {predicts}: {n_facts} facts, each alone and all "
                "together, are within chance."
            )
    return "\n".join(sentences)


def _describe_alarm(above: pd.DataFrame, predicts: str) -> str:
    """Return the sentence about the scores of a target that are above chance."""
    score, chance, limit = above[["score", "chance", "chance_limit"]].iloc[0]
    is_much = score - chance >= WARNING_LIFT * (1 - chance)
    shares = above["score"].map("{:.0%}".format)
    listed = ", ".join(above["fact"] + " " + shares)
    return (
        f"{'WARNING: without' if is_much else 'Without'} its pixels, a file "
        f"{predicts}. Right predictions: {listed}; by chance {chance:.0%}, at most "
        f"{limit:.0%}. A model can learn these facts in place of the content: find out "
        "where they come from, and save all images alike if they are artefacts."
    )


def list_giveaways(
    images: pd.DataFrame, scores: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the values of the best fact for each target above chance, by a title.

    scores: of `score_giveaways`. The tables have the columns class, of the largest
    classes, and value: a number, or the text of a format, camera or source.
    """
    good = images[images["problem"] == ""]
    above = scores[scores["gives_away"] & (scores["fact"] != ALL_FACTS)]
    tables = {}
    for row in above.drop_duplicates("target").to_dict("records"):
        classes = _list_targets(good)[row["target"]].dropna()
        largest = classes.value_counts().index[:SHOWN_CLASSES]
        classes = classes[classes.isin(largest)]
        fact = row["fact"]
        title = (
            f"{fact[0].upper()}{fact[1:]} {PREDICTS[row['target']]}: "
            f"{row['score']:.0%} right, by chance {row['chance']:.0%}"
        )
        values = _list_facts(good.loc[classes.index])[fact]
        tables[title] = pd.DataFrame({"class": classes, "value": values})
    return tables
