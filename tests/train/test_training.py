"""06, cell by cell: its predictions are those of models that have not seen the image.

By TensorFlow, by TensorFlow on two replicas, and by JAX on eight devices.
"""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
from support.competition import write_competition
from support.processes import ROOT, call_python
from support.training import run_training

from kaggle_tfr import read

CLASSES = ["bright", "dark", "medium"]


def name_shade(picture):
    return CLASSES[picture.getpixel((0, 0))[0] % 3]


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A part in two folds with test images, whose ids are not in order."""
    folder = tmp_path_factory.mktemp("shades")
    return write_competition(folder, name_shade, "medium,bright,dark")


def read_input(part, name):
    """Return a CSV of the input."""
    return pd.read_csv(part.parents[1] / "in" / name, index_col="image_id")


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
    facts = {"devices": 1, "histories": names["histories"], "compiles": 0}
    return SimpleNamespace(work=work, facts=facts, starts=starts)


@pytest.fixture(scope="module", params=["tensorflow", "mirrored", "jax"])
def run(part, by_tensorflow, tmp_path_factory, request):
    """A work folder after 06, and what its process knew."""
    way = request.param
    if way == "tensorflow":
        return by_tensorflow
    if way == "jax":
        pytest.importorskip("jax", reason="the extra 'jax' is not installed")
    work = tmp_path_factory.mktemp(way)
    flags = {
        "KERAS_BACKEND": "jax" if way == "jax" else "tensorflow",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
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
    shards = read.find_shards(part)
    scores = np.load(run.work / "oof.npy")
    oof = pd.read_csv(run.work / "oof.csv")

    n_labelled = shards["count"][shards["split"] == "train"].sum()
    assert scores.shape == (len(oof), 3) == (n_labelled, 3)
    assert scores.dtype == np.float32
    assert oof["image_id"].is_monotonic_increasing
    labels = read_input(part, "train.csv")["label"]
    assert oof["label"].tolist() == labels[oof["image_id"]].tolist()
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
    shards = read.find_shards(part)
    tests = shards[shards["split"] == "test"]
    template = read_input(part, "sample_submission.csv")
    submission = pd.read_csv(run.work / "submission.csv", index_col="image_id")

    assert submission.index.equals(template.index)
    assert submission.columns.equals(template.columns)
    mean = sum(predict_plainly(run.work, fold, tests) for fold in (0, 1)) / 2
    mean.columns = CLASSES
    difference = submission.loc[mean.index, CLASSES] - mean
    assert difference.abs().to_numpy().max() < 1e-4


def test_a_step_of_jax_is_compiled_once_for_all_folds(run):
    """Copying the initial state keeps it. JAX has eight devices."""
    facts = run.facts["devices"], run.facts["compiles"]
    assert facts in {(1, 0), (2, 0), (8, 1)}


def test_each_fold_starts_from_the_same_weights(by_tensorflow):
    """The model of the second fold has not seen it in the training of the first."""
    first, second = by_tensorflow.starts
    assert all(map(np.array_equal, first, second))
