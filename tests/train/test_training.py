"""06, cell by cell: its predictions are those of models that have not seen the image.

By TensorFlow, by TensorFlow on two replicas, and by JAX on eight devices.
"""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
from support.processes import call_python
from support.readers import make_example, make_picture, write_part
from support.training import run_training

from kaggle_tfr import read
from kaggle_tfr.schema import load_schema

CLASSES = ("dark", "medium", "bright")
# Records of each shard: its fold, and the numbers of the images.
SHARDS = {
    "a-f0.tfrec": (0, range(13)),
    "b-f1.tfrec": (1, range(13, 22)),
    "c-f1.tfrec": (1, range(22, 31)),
    "d-more.tfrec": (-1, range(31, 40)),  # trains in every fold
    "tests.tfrec": (-1, range(50, 56)),
}


def name_image(number):
    """The order of the ids is not that of the records."""
    return f"{number * 7 % 100:03d}.jpg"


def make_record(number):
    """Return a record of the default schema: its class is a grey level."""
    label = number % 3
    return make_example(
        image=make_picture(40 + 80 * label + number % 7),
        label=label,
        height=32,
        width=48,
        image_id=name_image(number).encode(),
    )


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A part in two folds, with images that always train, and six test images."""
    folder = tmp_path_factory.mktemp("parts") / "part-1"
    records = {
        file: (fold, [make_record(number) for number in numbers])
        for file, (fold, numbers) in SHARDS.items()
    }
    write_part(folder, records, CLASSES)
    (folder / "schema.json").write_text(load_schema("default").to_json())
    table = pd.read_csv(folder / "shards.csv")
    table.loc[table["file"] == "tests.tfrec", "split"] = "test"
    table.to_csv(folder / "shards.csv", index=False)
    rows = ["image_id,file,record"]
    for file, (_, numbers) in SHARDS.items():
        rows += [f"{name_image(n)},{file},{n - numbers[0]}" for n in numbers]
    (folder / "train.csv").write_text("\n".join(rows))
    ids = pd.DataFrame({"image_id": map(name_image, range(55, 49, -1))})
    ids = ids.assign(bright=0, dark=0, medium=0)
    ids.to_csv(folder / "sample_submission.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def by_tensorflow(part, tmp_path_factory):
    """What 06 leaves in this process; the weights from which each fold starts."""
    work = tmp_path_factory.mktemp("tensorflow")
    starts = []
    fit = keras.Model.fit

    def watch_fit(model, *arguments, **options):
        starts.append(model.get_weights())
        return fit(model, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.Model, "fit", watch_fit)
        names = run_training(work, TFREC_DIRS=[str(part)])
    return SimpleNamespace(work=work, starts=starts, names=names)


WAYS = ["tensorflow", "mirrored", "jax"]


@pytest.fixture(scope="module", params=WAYS)
def run(root, part, by_tensorflow, tmp_path_factory, request):
    """A work folder after 06, and what its process knew."""
    way = request.param
    if way == "tensorflow":
        facts = {"devices": 1, "histories": by_tensorflow.names["histories"]}
        return SimpleNamespace(work=by_tensorflow.work, facts=facts | {"compiles": 0})
    if way == "jax":
        pytest.importorskip("jax", reason="the extra 'jax' is not installed")
    work = tmp_path_factory.mktemp(way)
    flags = {
        "KERAS_BACKEND": "jax" if way == "jax" else "tensorflow",
        "PYTHONPATH": f"{root}:{root / 'tests'}",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 "
        "--xla_backend_optimization_level=0",  # compiled in half the time
    }
    done = call_python("-m", "support.training", way, work, part, **flags)
    assert done.returncode == 0, done.stderr[-3000:]
    facts = json.loads((work / "facts.json").read_text())
    facts["histories"] = {int(k): v for k, v in facts["histories"].items()}
    return SimpleNamespace(work=work, facts=facts)


def predict_plainly(work, fold, shards):
    """Return the probabilities that a saved model gives to images, by their ids."""
    model = keras.models.load_model(work / f"model-fold{fold}.keras")
    batches = read.read_batches(shards, 32, 1, ids=True)
    found = {}
    for images, *_, ids in batches.as_numpy_iterator():
        logits = np.asarray(model(images), np.float64)[0]
        shares = np.exp(logits - logits.max())
        found[ids[0].decode()] = shares / shares.sum()
    return pd.DataFrame(found).T


def test_out_of_fold_predictions_are_those_of_the_model_of_each_fold(run, part):
    """The saved models, asked again by TensorFlow, give the rows of oof.npy.

    Keras's metric of the padded batches is the share of right images, each once. The
    replicas of TensorFlow have batch statistics of their own, so theirs may differ.
    """
    shards = read.find_shards(str(part))
    scores = np.load(run.work / "oof.npy")
    oof = pd.read_csv(run.work / "oof.csv")

    assert scores.shape == (31, 3)
    assert scores.dtype == np.float32
    assert oof["image_id"].is_monotonic_increasing
    labels = {name_image(number): CLASSES[number % 3] for number in range(40)}
    assert oof["label"].tolist() == oof["image_id"].map(labels).tolist()
    for fold in (0, 1):
        expected = predict_plainly(run.work, fold, read.choose_fold(shards, fold)[1])
        is_of_fold = oof["fold"] == fold
        rows = oof[is_of_fold]
        assert sorted(rows["image_id"]) == sorted(expected.index)
        expected = expected.loc[rows["image_id"]].to_numpy()
        assert np.abs(scores[is_of_fold] - expected).max() < 1e-4
        assert rows["probability"].to_numpy() == pytest.approx(expected.max(1), 1e-3)
        accuracy = run.facts["histories"][fold]["val_accuracy"][-1]
        n_right = accuracy * len(rows)
        assert n_right == pytest.approx(round(n_right), abs=1e-4)
        if run.facts["devices"] != 2:
            assert (rows["label"] == rows["predicted"]).sum() == round(n_right)
    named = np.array(CLASSES)[scores.argmax(axis=1)]
    assert oof["predicted"].tolist() == named.tolist()


def test_a_submission_is_the_mean_over_the_models(run, part):
    """In the template's order, with a column per class in its order."""
    shards = read.find_shards(str(part))
    tests = shards[shards["split"] == "test"]
    submission = pd.read_csv(run.work / "submission.csv", index_col="image_id")

    assert submission.index.tolist() == [name_image(n) for n in range(55, 49, -1)]
    mean = sum(predict_plainly(run.work, fold, tests) for fold in (0, 1)) / 2
    mean.columns = CLASSES
    expected = mean.loc[submission.index, submission.columns]
    assert np.abs(submission.to_numpy() - expected.to_numpy()).max() < 1e-4


def test_a_step_of_jax_is_compiled_once_for_all_folds(run):
    """Copying the initial state keeps it. JAX has eight devices."""
    facts = run.facts["devices"], run.facts["compiles"]
    assert facts in {(1, 0), (2, 0), (8, 1)}


def test_each_fold_starts_from_the_same_weights(by_tensorflow):
    """The model of the second fold has not seen it in the training of the first."""
    first, second = by_tensorflow.starts
    assert all(map(np.array_equal, first, second))
