"""One model per fold: what it predicts, what is saved of it, and the averages."""

from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
from support.readers import make_example, make_picture, write_part

from kaggle_tfr import read, train
from kaggle_tfr.schema import Labels, load_schema
from kaggle_tfr.train import folds as folds_module

CLASSES = ("dark", "medium", "bright")
SIZES = {"image_size": 32, "batch_size": 8}
# Records of each shard: its fold, and the numbers of the images.
SHARDS = {
    "a-f0.tfrec": (0, range(13)),
    "b-f1.tfrec": (1, range(13, 22)),
    "c-f1.tfrec": (1, range(22, 31)),
    "d-more.tfrec": (-1, range(31, 40)),  # trains in every fold
}


def make_record(number):
    """Return a record of the default schema: its class is a grey level."""
    label = number % 3
    image = make_picture(40 + 80 * label + number % 7)
    # The order of the ids is not that of the records.
    image_id = b"%03d.jpg" % (number * 7 % 100)
    return make_example(
        image=image, label=label, height=32, width=48, image_id=image_id
    )


def write_parts(folder):
    """Write the shards, with six test images."""
    records = {
        file: (fold, [make_record(number) for number in numbers])
        for file, (fold, numbers) in SHARDS.items()
    }
    records["tests.tfrec"] = (-1, [make_record(number) for number in range(50, 56)])
    part = write_part(folder, records, CLASSES)
    (folder / "schema.json").write_text(load_schema("default").to_json())
    table = pd.read_csv(folder / "shards.csv")
    table.loc[table["file"] == "tests.tfrec", "split"] = "test"
    table.to_csv(folder / "shards.csv", index=False)
    return part


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a model for both folds, and save what they predict."""
    folder = tmp_path_factory.mktemp("run")
    shards = read.find_shards(write_parts(folder / "part-1"))
    model = train.build_model(32, 3)
    state = train.copy_state(model)
    starts = []
    fit = model.fit

    def watch_fit(*arguments, **options):
        starts.append(model.get_weights())
        return fit(*arguments, **options)

    model.fit = watch_fit
    results = [
        train.train_fold(
            model, state, shards, fold, epochs=2, folder=str(folder), **SIZES
        )
        for fold in read.list_folds(shards)
    ]
    oof = train.save_oof(results, CLASSES, str(folder))
    return SimpleNamespace(
        folder=folder, shards=shards, results=results, oof=oof, starts=starts
    )


def test_out_of_fold_predictions_are_those_of_the_model_of_each_fold(run):
    """The saved models, asked again, give the rows of oof.npy, found by their ids.

    Images that train in every fold have no prediction.
    """
    scores = np.load(run.folder / "oof.npy")
    table = pd.read_csv(run.folder / "oof.csv")

    assert scores.shape == (31, 3)
    assert scores.dtype == np.float32
    assert table["image_id"].is_monotonic_increasing
    assert [len(result.test.table) for result in run.results] == [6, 6]
    for fold in (0, 1):
        model = keras.models.load_model(run.folder / f"model-fold{fold}.keras")
        _, validation = read.choose_fold(run.shards, fold)
        batches = read.read_batches(validation, extra=["image_id"], **SIZES)
        for images, labels, mask, fields in batches.as_numpy_iterator():
            expected = np.asarray(keras.ops.softmax(model.predict_on_batch(images)))
            for row in np.flatnonzero(mask):
                image_id = fields["image_id"][row].decode()
                (position,) = np.flatnonzero(table["image_id"] == image_id)
                assert table["fold"][position] == fold
                assert table["label"][position] == CLASSES[labels[row]]
                assert np.abs(scores[position] - expected[row]).max() < 1e-5
    named = np.array(CLASSES)[scores.argmax(axis=1)]
    assert table["predicted"].tolist() == named.tolist()
    assert table["probability"].to_numpy() == pytest.approx(scores.max(axis=1), 1e-4)


def test_each_fold_starts_from_the_same_weights(run):
    """The model of the second fold has not seen it in the training of the first."""
    first, second = run.starts
    assert all(map(np.array_equal, first, second))


def make_predictions(labels, scores, image_ids=None):
    """Return predictions with these probabilities."""
    scores = np.array(scores, np.float32)
    labels = np.array(labels)
    columns = {
        "image_id": image_ids or [f"{number}.jpg" for number in range(len(labels))],
        "label": labels,
        "predicted": scores.argmax(axis=1),
        "probability": scores.max(axis=1),
        "loss": -np.log(scores[np.arange(len(labels)), labels]),
    }
    return train.Predictions(pd.DataFrame(columns), scores, [])


def make_result(fold, labels, scores):
    return train.FoldResult(fold, make_predictions(labels, scores), None, {}, [1.0])


def test_the_mean_and_the_deviation_are_over_the_folds():
    """A fold of four images counts as much as a fold of two."""
    right = [0.75, 0.25]
    wrong = [0.25, 0.75]
    first = make_result(0, [0, 0, 0, 0], [right, right, right, wrong])
    second = make_result(1, [0, 0], [right, wrong])

    scores = train.score_results([first, second])

    assert scores.index.tolist() == ["fold 0", "fold 1", "mean", "standard deviation"]
    assert scores["accuracy"].tolist() == pytest.approx(
        [0.75, 0.5, 0.625, np.std([0.75, 0.5], ddof=1)]
    )
    log_right, log_wrong = -np.log(0.75), -np.log(0.25)
    expected = [(3 * log_right + log_wrong) / 4, (log_right + log_wrong) / 2]
    assert scores["cross_entropy"].tolist()[:2] == pytest.approx(expected)
    assert scores["images"].tolist()[:3] == [4, 2, 3]
    assert np.isnan(scores.loc["standard deviation", "images"])
    assert train.score_results([first]).index.tolist() == ["fold 0", "mean"]


def list_test_shards(tmp_path):
    """A test shard with ids, as `find_shards` lists it."""
    shards = pd.DataFrame({"split": ["test"], "folder": str(tmp_path), "count": 2})
    shards["labels"] = [Labels("single", ("x", "y"))]
    shards["schema"] = [load_schema("default").for_split("test")]
    return shards


def test_a_submission_is_the_mean_over_the_models(tmp_path):
    """Two unsure models outvote a sure one only if their mean says so."""
    template = "image_id,x,y\n1.jpg,0,0\n0.jpg,0,0\n"
    (tmp_path / "sample_submission.csv").write_text(template)
    first = make_predictions([0, 0], [[0.9, 0.1], [0.5, 0.5]])
    second = make_predictions([0, 0], [[0.4, 0.6], [0.1, 0.9]])

    shards = list_test_shards(tmp_path)
    rows = train.write_submission([first, second], shards, str(tmp_path))

    assert rows["image_id"].tolist() == ["1.jpg", "0.jpg"]
    assert rows["x"].tolist() == pytest.approx([0.3, 0.65])
    assert rows["y"].tolist() == pytest.approx([0.7, 0.35])
    saved = pd.read_csv(tmp_path / "submission.csv")
    assert saved["x"].tolist() == pytest.approx([0.3, 0.65])


def test_probabilities_of_too_many_classes_are_not_kept(
    run, tmp_path, monkeypatch, capsys
):
    """oof.csv has the classes; what is missing is printed, or is an error."""
    monkeypatch.setattr(folds_module, "LIMIT_BYTES", 100)
    model = keras.models.load_model(run.folder / "model-fold0.keras")
    _, validation = read.choose_fold(run.shards, 0)

    predictions = train.predict_records(model, validation, **SIZES)
    result = train.FoldResult(0, predictions, None, {}, [])
    train.save_oof([result], CLASSES, str(tmp_path))

    assert predictions.scores is None
    assert "oof.npy is not written: 13 images of 3 classes" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["oof.csv"]
    assert len(pd.read_csv(tmp_path / "oof.csv")) == 13
    with pytest.raises(ValueError, match="submission.csv is not written"):
        train.write_submission([predictions], list_test_shards(tmp_path), "work")


def test_the_most_confident_mistakes_come_first(run):
    """They are images of the wrong class, with the names of both classes."""
    images, titles = train.list_mistakes(run.results, CLASSES)
    table = run.oof[run.oof["label"] != run.oof["predicted"]]
    wrong = table.sort_values("probability", ascending=False).head(12)

    expected = [
        f"{CLASSES[row.label]} → {CLASSES[row.predicted]}\n{row.probability:.0%}"
        for row in wrong.itertuples()
    ]
    assert len(images) == len(wrong)
    assert sorted(titles) == sorted(expected)
    probabilities = [int(title.split("\n")[1].rstrip("%")) for title in titles]
    assert probabilities == sorted(probabilities, reverse=True)
    levels = [int(image.mean()) for image in images]
    names = [CLASSES[(level - 40) // 80] for level in levels]
    assert names == [title.split(" →")[0] for title in titles]


def test_a_record_without_an_id_is_named_by_its_file_and_number(tmp_path):
    """Two shards with images of unequal numbers, in batches of two."""
    records = [make_record(number) for number in range(4)]
    files = {"a.tfrec": (0, records[:3]), "b.tfrec": (0, records[3:])}
    shards = read.find_shards(write_part(tmp_path, files, CLASSES))
    model = train.build_model(32, 3)

    found = train.predict_records(model, shards, image_size=32, batch_size=2)

    ids = ["a.tfrec#0", "a.tfrec#1", "a.tfrec#2", "b.tfrec#0"]
    assert found.table["image_id"].tolist() == ids
    assert found.table["label"].tolist() == [0, 1, 2, 0]


def test_the_folds_are_listed_or_chosen(run, tmp_path):
    """A fold that does not exist is an error; without folds, the split validates."""
    assert read.list_folds(run.shards) == [0, 1]
    assert read.list_folds(run.shards, 1) == [1]
    with pytest.raises(ValueError, match='FOLD is 7. Set it to "all", or one of: 0, 1'):
        read.list_folds(run.shards, 7)
    with pytest.raises(ValueError, match="FOLD is 'al'"):
        read.list_folds(run.shards, "al")

    splits = run.shards.assign(fold=-1, split=["train"] * 4 + ["validation"])
    assert read.list_folds(splits) == [0]
