"""Score how well facts of the files predict labels, and which images are for testing.

A model can look at the size or the camera of a file in place of its pixels: it then
finds the label wherever such a fact differs between the classes. Here small trees
predict the label from each fact alone, and from all together. A tree is trained on one
half of the images and predicts the other half; then the halves change places. The share
of right predictions, as the mean over the classes, is compared with chance.
"""

import pandas as pd

ALL_FACTS = "all together"
# The targets: what a file does by its facts.
LABEL = "predicts the label"
TEST = "separates test from train"
# What causes others is before them: of equal scores the first is shown.
FACTS = {
    "source": "source",
    "format": "format",
    "jpeg_quality": "JPEG quality",
    "exif_camera": "camera in EXIF",
    "width": "width in pixels",
    "height": "height in pixels",
    "brightness": "brightness",
    "n_bytes": "file size in bytes",
}

MAX_CLASSES = 20  # the largest
MIN_IMAGES = 20  # of a class; fewer decide nothing
MAX_IMAGES = 500  # of a class; a sample of more decides as well
# Standard deviations from chance to its limit. Without any giveaway, all of the twenty
# scores are below it in 19 of 20 datasets.
DEVIATIONS = 4
# The share of the way from chance to 1 from which a score is a warning.
WARNING_LIFT = 0.25


def score_giveaways(images: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each target and fact, the best predictions of a target first.

    images: of `measure`. Targets are the label, by its largest classes, and whether an
    image of the main input is a test image. Targets with less than two classes of 20
    different images are left out.
    Columns: target; fact; score, the share of right predictions; chance, its mean if
    the fact does not depend on the target; chance_limit, which only a score that is
    more than chance exceeds.
    """
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(
        max_leaf_nodes=16,
        min_samples_leaf=5,
        class_weight="balanced",
        random_state=0,
    )
    rows = []
    for target, facts in _list_facts(images).items():
        classes = facts.pop("class")
        sizes = classes.value_counts()
        chance = 1 / len(sizes)
        # A tree needs only the order of the values, and texts have one, too.
        ranks = facts.rank(method="dense")
        for fact in [*ranks, ALL_FACTS]:
            columns = ranks if fact == ALL_FACTS else ranks[[fact]]
            predicted = cross_val_predict(tree, columns, classes, cv=2)
            score = balanced_accuracy_score(classes, predicted)
            # By chance, the right predictions of a class have a binomial distribution.
            shares = pd.Series(predicted).value_counts(normalize=True)
            variance = (shares * (1 - shares) / sizes).sum()
            limit = chance + DEVIATIONS * chance * variance**0.5
            rows.append((target, fact, score, chance, limit))

    names = ["target", "fact", "score", "chance", "chance_limit"]
    scores = pd.DataFrame(rows, columns=names)
    order = ["target", "score"]
    return scores.sort_values(order, ascending=[True, False], ignore_index=True)


def _list_facts(images: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return class and facts, numbers or texts, of sampled images for each target.

    They are in random order. Images with equal files count once: copies would predict
    each other.
    """
    good = images[images["problem"] == ""].drop_duplicates("digest")
    good = good.sample(frac=1, random_state=0)
    facts = good[[*FACTS]].rename(columns=FACTS).astype({"source": str})
    facts["width : height"] = good["width"] / good["height"]
    facts["hour in EXIF"] = good["exif_time"].str[11:13]

    is_test = good["split"] == "test"
    is_labelled = (good["label"] >= 0) & ~is_test
    # Further inputs have no test images, so their source would give them away.
    is_main = good["source"] == 0
    splits = good["split"].where(is_test, "train")
    targets = {LABEL: good["label_name"][is_labelled], TEST: splits[is_main]}
    tables = {}
    for target, classes in targets.items():
        sizes = classes.value_counts().head(MAX_CLASSES)
        frequent = sizes.index[sizes >= MIN_IMAGES]
        if len(frequent) > 1:
            rows = classes[classes.isin(frequent)]
            sample = rows.groupby(rows).head(MAX_IMAGES)
            tables[target] = facts.loc[sample.index].assign(**{"class": sample})
    return tables


def describe_giveaways(scores: pd.DataFrame) -> str:
    """Return a sentence for each target about a table of `score_giveaways`."""
    if scores.empty:
        return (
            "The facts of the files are not scored: that takes two classes, or test "
            f"and train, of {MIN_IMAGES} different images each."
        )
    sentences = []
    for target, of_target in scores.groupby("target"):
        above = of_target.query("score > chance_limit")
        if above.empty:
            sentences.append(
                f"No fact of the files {target}: {len(of_target) - 1} facts, each "
                "alone and all together, are within chance."
            )
            continue
        best = above.iloc[0]
        is_much = best["score"] - best["chance"] >= WARNING_LIFT * (1 - best["chance"])
        listed = ", ".join(above["fact"] + above["score"].map(" {:.0%}".format))
        sentences.append(
            f"{'WARNING: without' if is_much else 'Without'} its pixels, a file "
            f"{target}. Right predictions: {listed}; by chance {best['chance']:.0%}, "
            f"at most {best['chance_limit']:.0%}. A model can learn these facts in "
            "place of the content: find out where they come from, and save all images "
            "alike if they are artefacts."
        )
    return "\n".join(sentences)


def list_giveaways(
    images: pd.DataFrame, scores: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the values of the best fact for each target above chance, by a title.

    scores: of `score_giveaways`. The tables have the columns class and value: a
    number, or the text of a format, camera or source.
    """
    facts = _list_facts(images)
    above = scores.query("score > chance_limit and fact != @ALL_FACTS")
    tables = {}
    for best in above.drop_duplicates("target").to_dict("records"):
        fact = best["fact"]
        shares = f"{best['score']:.0%} right, by chance {best['chance']:.0%}"
        title = f"{fact[0].upper()}{fact[1:]} {best['target']}: {shares}"
        values = facts[best["target"]][["class", fact]]
        tables[title] = values.set_axis(["class", "value"], axis=1)
    return tables
