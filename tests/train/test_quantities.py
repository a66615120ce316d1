"""A quantity, such as an age: from the plan to records, a score and a submission."""

import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import mean_absolute_error, r2_score
from support.quantities import COLUMN, write_ages

from kaggle_tfr import read, train
from kaggle_tfr.explore import load_images
from kaggle_tfr.write import verify_parts

SIZES = {"image_size": 32, "batch_size": 16}


@pytest.fixture(scope="module")
def ages(tmp_path_factory):
    """Return the work folder of a written dataset, its ages and its shards."""
    folder = tmp_path_factory.mktemp("ages")
    values = {"IMAGE_SIZE": 48, "N_FOLDS": 2, "SHARD_IMAGES": 20}
    work = write_ages(folder, values)["WORK_DIR"]
    images, _ = load_images(work)
    known = images[images["label"] >= 0].set_index("image_id")[COLUMN]
    return SimpleNamespace(
        work=work, known=known, shards=read.find_shards(f"{work}/part-1")
    )


@pytest.fixture(scope="module")
def trained(ages, tmp_path_factory):
    """Train a model for both folds, save what they predict, and fill a submission."""
    folder = str(tmp_path_factory.mktemp("models"))
    train.check_labels(ages.shards)
    training, _ = read.choose_fold(ages.shards, 0)
    model = train.build_model(32, 0, training=training)
    started = train.predict_records(model, training, **SIZES)
    state = train.copy_state(model)
    results = [
        train.train_fold(
            model, state, ages.shards, fold, epochs=2, folder=folder, **SIZES
        )
        for fold in read.list_folds(ages.shards)
    ]
    oof = train.save_oof(results, (), folder)
    tests = [result.test for result in results]
    submission = train.write_submission(tests, ages.shards, folder)
    return SimpleNamespace(
        folder=folder,
        started=started,
        results=results,
        oof=oof,
        submission=submission,
    )


def test_a_record_has_the_number_as_float32(ages):
    """Read by TensorFlow alone; a test record has an id instead."""
    labelled = ages.shards[ages.shards["split"] != "test"]
    features = {
        "image_id": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.float32),
    }
    records = tf.data.TFRecordDataset(list(labelled["file"]))
    parsed = records.map(lambda record: tf.io.parse_single_example(record, features))
    found = {
        example["image_id"].decode(): example["label"]
        for example in parsed.as_numpy_iterator()
    }
    assert len(found) > 50
    assert found == ages.known[list(found)].astype(np.float32).to_dict()
    test_records = read.Records(ages.shards, split="test")
    assert isinstance(test_records[0][1], str)


def test_the_readers_return_numbers(ages):
    """float32 batches and Python's floats; there are no classes."""
    _, validation = read.choose_fold(ages.shards, 0)
    batches = read.read_batches(validation, extra=["image_id"], **SIZES)
    records = read.Records(ages.shards, split="validation")

    _, labels, mask, fields = next(batches.as_numpy_iterator())

    assert (labels.dtype, labels.shape) == (np.float32, (16,))
    expected = ages.known[[name.decode() for name in fields["image_id"]]]
    assert labels[mask > 0] == pytest.approx(expected[mask > 0])
    assert [label for _, label in records][:16] == pytest.approx(labels)
    assert isinstance(records[0][1], float)
    assert records.classes == ()
    displayed = [example.label for example in read.cut_windows(validation, 32)]
    assert set(displayed) <= {f"{label:g}" for _, label in records}


def test_folds_have_the_same_share_of_each_bin(ages):
    """They are stratified as those of ten classes."""
    folds = pd.read_csv(f"{ages.work}/folds.csv")
    kept = folds[folds["keep"] & (folds["split"] == "train")]
    counts = kept.pivot_table("image_id", "label_name", "fold", aggfunc="size")

    assert counts.shape == (10, 2)
    assert np.ptp(counts.to_numpy(), axis=1).max() <= 1
    assert kept[COLUMN].to_numpy() == pytest.approx(ages.known[kept["image_id"]])


def test_verification_compares_the_numbers(ages, tmp_path):
    """All records are as planned; if the table has another number, it is named."""
    part = shutil.copytree(f"{ages.work}/part-1", tmp_path / "part-1")
    assert verify_parts(str(part)).faults.empty

    table = pd.read_csv(part / "train.csv")
    table.loc[3, COLUMN] += 0.5
    table.to_csv(part / "train.csv", index=False)

    problems = verify_parts(str(part)).faults["problem"]
    number = int(table.loc[3, COLUMN])
    assert problems.str.contains(rf"'label' is .*, expected \[{number}\.").any()


def test_a_model_begins_at_the_mean(ages, trained):
    """Its outputs are in the scale of the labels before it has learnt anything."""
    predicted = trained.started.table["predicted"]
    distance = predicted - ages.known.mean()
    assert distance.abs().max() < ages.known.std()


def test_the_scores_are_those_of_scikit_learn(ages, trained):
    """Mean absolute error and R² of each fold; Keras has the same error."""
    scores = train.score_results(trained.results)
    assert list(scores) == ["images", "error", "R²"]
    for result in trained.results:
        table = result.validation.table
        row = scores.loc[f"fold {result.fold}"]
        true = ages.known[table["image_id"]]
        predicted = table["predicted"]
        assert row["error"] == pytest.approx(mean_absolute_error(true, predicted))
        assert row["R²"] == pytest.approx(r2_score(true, predicted), abs=1e-5)
        assert result.history["val_error"][-1] == pytest.approx(row["error"], rel=1e-4)


def test_predictions_are_saved_as_numbers(ages, trained):
    """oof.csv, oof.npy and submission.csv; a lost image gets the mean."""
    oof = pd.read_csv(f"{trained.folder}/oof.csv")
    assert list(oof) == ["image_id", "fold", "label", "predicted", "error"]
    assert oof["label"].to_numpy() == pytest.approx(ages.known[oof["image_id"]])
    assert np.load(f"{trained.folder}/oof.npy")[:, 0] == pytest.approx(oof["predicted"])

    saved = pd.read_csv(f"{trained.folder}/submission.csv", index_col="image_id")
    tables = [result.test.table.set_index("image_id") for result in trained.results]
    expected = sum(table["predicted"] for table in tables) / 2
    assert saved.loc[expected.index, "age"].to_numpy() == pytest.approx(expected)
    assert saved.loc["lost.jpg", "age"] == pytest.approx(expected.mean())
    assert tables[0]["error"].isna().all()


def test_the_largest_errors_come_first(trained):
    """With the true and the predicted number."""
    images, titles = train.list_mistakes(trained.results, ())
    worst = trained.oof.nlargest(12, "error").iloc[0]
    assert len(images) == 12
    assert titles[0] == f"{worst['label']:.4g} → {worst['predicted']:.4g}"


def test_a_trained_model_is_trained_further_from_its_features(ages, trained):
    """Its last layer, and the scale after it, are new."""
    path = f"{trained.folder}/model-fold0.keras"
    model = train.build_model(32, 0, weights=path, training=ages.shards.head(1))
    backbone = next(layer for layer in model.layers if isinstance(layer, keras.Model))
    assert backbone.output_shape == (None, 96)
