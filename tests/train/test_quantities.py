"""A quantity, such as an age: from the plan to records, a score and a submission."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import mean_absolute_error, r2_score
from support.competition import write_competition
from support.plans import read_plainly
from support.training import run_training

from kaggle_tfr import read


def measure_age(picture):
    """Return the age of an image: its brightness, which a network can learn."""
    return np.asarray(picture.convert("L")).mean() / 2.55 + 1


@pytest.fixture(scope="module")
def ages(tmp_path_factory):
    """Return a part of a written dataset, its ages and its shards."""
    folder = tmp_path_factory.mktemp("ages")
    part = write_competition(folder, measure_age, "age", LABEL_KIND="number")
    known = pd.read_csv(folder / "in" / "train.csv", index_col="image_id")["label"]
    return SimpleNamespace(part=part, known=known, shards=read.find_shards(part))


@pytest.fixture(scope="module")
def trained(ages, tmp_path_factory):
    """Return the names that 06 leaves, and the folder to which it writes."""
    folder = str(tmp_path_factory.mktemp("models"))
    parts = [str(ages.part)]
    names = run_training(folder, TFREC_DIRS=parts, EPOCHS=2, BATCH_SIZE=16)
    return SimpleNamespace(folder=folder, **names)


def test_a_record_has_the_number_as_float32(ages):
    """Read by TensorFlow alone and by number; a test record has an id instead."""
    labelled = ages.shards[ages.shards["split"] != "test"]
    types = {"image_id": tf.string, "label": tf.float32}
    features = {name: tf.io.FixedLenFeature([], types[name]) for name in types}
    records = read_plainly(labelled["file"], features=features)
    found = {record["image_id"].decode(): record["label"] for record in records}
    assert len(found) > 50
    assert found == ages.known[list(found)].astype(np.float32).to_dict()
    labels = [label for _, label in read.Records(ages.shards, split="validation")]
    assert {*map(type, labels)} == {float}
    assert set(labels) <= set(found.values())
    _, image_id = read.Records(ages.shards, split="test")[0]
    assert isinstance(image_id, str)


def test_the_scores_are_those_of_scikit_learn(ages, trained):
    """Mean absolute error and R² of each fold; Keras has the same error.

    A model begins at the mean: its outputs have the scale of the labels.
    """
    for fold, table in trained.oof.groupby("fold"):
        row = trained.by_fold.loc[fold]
        true = ages.known[table.index]
        predicted = table["predicted"]
        assert row["error"] == pytest.approx(mean_absolute_error(true, predicted))
        assert row["R²"] == pytest.approx(r2_score(true, predicted), abs=1e-5)
        error = trained.histories[fold]["val_error"][-1]
        assert error == pytest.approx(row["error"], rel=1e-4)

    trained.model.set_state_tree(trained.initial_state)
    table, _ = trained.predict(trained.model, ages.shards[ages.shards["fold"] == 0])
    distances = table["predicted"] - ages.known.mean()
    assert distances.abs().max() < ages.known.std()


def test_predictions_are_saved_as_numbers(ages, trained):
    """oof.csv, oof.npy and submission.csv; a lost image gets the mean."""
    oof = pd.read_csv(f"{trained.folder}/oof.csv")
    assert list(oof) == ["image_id", "fold", "label", "predicted", "error"]
    assert oof["label"].to_numpy() == pytest.approx(ages.known[oof["image_id"]])
    assert np.load(f"{trained.folder}/oof.npy")[:, 0] == pytest.approx(oof["predicted"])

    saved = pd.read_csv(f"{trained.folder}/submission.csv", index_col="image_id")["age"]
    expected = trained.test_scores[:, 0]
    assert saved[trained.tests.index].to_numpy() == pytest.approx(expected)
    assert saved["lost.jpg"] == pytest.approx(expected.mean())
