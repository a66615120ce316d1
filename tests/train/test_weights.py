"""WEIGHTS: found as a file or a Kaggle input, and fitted with a new last layer."""

import h5py
import keras
import numpy as np
import pytest
from keras.src.legacy.saving import legacy_h5_format
from support.kaggle_server import fixture_kaggle  # noqa: F401

from kaggle_tfr import downloads, mounts, train
from kaggle_tfr.train.weights import find_weights, load_backbone

SIDE = 32
IMAGES = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A folder with random weights of two networks.

    The first file is of the old format, in which keras.applications publishes its
    weights; the second is of Keras 3.
    """
    folder = tmp_path_factory.mktemp("weights")
    options = {"include_top": False, "weights": None, "input_shape": (SIDE, SIDE, 3)}
    old = "mobilenet_v2_weights_tf_kernels_1.0_224_no_top.h5"
    new = "mobilenet-notop.weights.h5"
    built = {
        old: keras.applications.MobileNetV2(**options),
        new: keras.applications.MobileNet(**options),
    }
    with h5py.File(folder / old, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, built[old])
    built[new].save_weights(folder / new)
    return folder, built


def test_the_features_are_those_of_the_network_after_its_own_preprocessing(networks):
    """It is found by the name of the file; the longest name counts."""
    folder, built = networks
    preprocess = keras.applications.mobilenet_v2.preprocess_input
    for file, network in built.items():
        backbone = load_backbone(str(folder / file), (SIDE, SIDE))

        regions = network(preprocess(IMAGES.astype(np.float32)))
        expected = np.asarray(regions).mean(axis=(1, 2))

        assert backbone.name == network.name
        assert np.abs(np.asarray(backbone(IMAGES)) - expected).max() < 1e-4


def test_a_pretrained_network_is_trained_with_a_new_last_layer(networks, tmp_path):
    """All of its weights are; the saved model gives the same logits."""
    folder, built = networks
    path = str(folder / "mobilenet-notop.weights.h5")
    model = train.build_model(SIDE, 7, weights=path)
    before = model.get_weights()

    model.fit(IMAGES, np.array([3, 6]), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")

    assert model.output_shape == (None, 7)
    assert len(before) == len(built["mobilenet-notop.weights.h5"].weights) + 2
    pairs = list(zip(before, model.get_weights(), strict=True))
    changed = [not np.array_equal(old, new) for old, new in pairs]
    assert np.mean(changed) > 0.9
    logits = train.predict(model, IMAGES)
    assert np.abs(train.predict(again, IMAGES) - logits).max() < 1e-5


def test_a_saved_model_loses_its_last_dense_layer(tmp_path):
    """A model of 06 with five classes becomes the start of one with two."""
    model = train.build_model(SIDE, 5, seed=3)
    model.save(tmp_path / "model-fold0.keras")

    backbone = load_backbone(str(tmp_path / "model-fold0.keras"), (SIDE, SIDE))
    restarted = train.build_model(SIDE, 2, weights=str(tmp_path / "model-fold0.keras"))

    features = keras.Model(model.input, model.layers[-1].input)(IMAGES)
    assert np.abs(np.asarray(backbone(IMAGES)) - np.asarray(features)).max() < 1e-5
    assert restarted.output_shape == (None, 2)


def test_weights_that_do_not_fit_are_an_error(networks, tmp_path):
    """Each message names the file, and what to set or save."""
    folder, _ = networks
    other = tmp_path / "vgg16_notop.h5"
    other.write_bytes((folder / "mobilenet-notop.weights.h5").read_bytes())
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"no zip")
    train.build_model(SIDE, 2).save(tmp_path / "small.keras")
    errors = {
        str(other): "cannot load: .*Use the weights of VGG16 without its top",
        str(broken): "broken.keras', which Keras .* cannot load",
        str(tmp_path / "my_net.h5"): "does not contain the name of a network.*MobileN",
    }
    for path, message in errors.items():
        with pytest.raises(ValueError, match=message):
            load_backbone(path, (SIDE, SIDE))
    with pytest.raises(
        ValueError, match=r"\(32, 32, 3\), but gets \(64, 32, 3\).*TRAI"
    ):
        load_backbone(str(tmp_path / "small.keras"), (64, 32))
    with pytest.raises(ValueError, match="Xception cannot take.*Set TRAIN_SIZE"):
        load_backbone(str(tmp_path / "xception_notop.h5"), (SIDE, SIDE))


def test_a_folder_must_have_one_file_of_weights(networks, tmp_path):
    """A misspelt file lists those that exist; gs:// cannot be read."""
    folder, _ = networks
    with pytest.raises(ValueError, match="there are 2 files: mobilenet-notop"):
        find_weights(str(folder))
    with pytest.raises(FileNotFoundError, match="no file named .*keras or .*h5"):
        find_weights(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="in this folder: .*mobilenet-notop"):
        find_weights(str(folder / "mobilnet-notop.weights.h5"))
    with pytest.raises(ValueError, match="Copy the file to this machine"):
        find_weights("gs://bucket/efficientnetb0_notop.h5")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "one.keras").write_bytes(b"")
    assert find_weights(str(tmp_path)) == str(tmp_path / "deeper" / "one.keras")


@pytest.mark.parametrize(
    "name",
    [
        "ada/networks/efficientnetb0_notop.h5",
        "models/ada/efficientnet/keras/b0",
        "models/ada/efficientnet/keras/b0/efficientnetb0_notop.h5",
    ],
)
def test_a_dataset_or_a_model_of_kaggle_is_downloaded_once(
    kaggle, tmp_path, monkeypatch, name
):
    """A model's name is the one in its address, also in the error of an unknown one."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "no" / "input"))
    monkeypatch.chdir(tmp_path)
    files = {"efficientnetb0_notop.h5": b"weights", "readme.md": b"read"}
    kaggle.datasets["ada/networks"] = files
    kaggle.models["ada/efficientnet/keras/b0"] = files

    path = find_weights(name)
    again = find_weights(name)

    assert path == again
    assert path.startswith(downloads.cache_folder())
    with open(path, "rb") as file:
        assert file.read() == b"weights"
    n_downloads = sum(call.startswith("Download") for call in kaggle.calls)
    assert n_downloads == (2 if "models" in name else 1)  # a model's files are two
    address = "kaggle.com/models/ada/x/keras/b0: there is no such mo"
    with pytest.raises(FileNotFoundError, match=address):
        find_weights("models/ada/x/keras/b0")


def test_a_mounted_model_is_used_on_kaggle(tmp_path, monkeypatch):
    """Below the folder of its version, in the mounts of 2026 and the older ones."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path))
    for mount in ("models/ada/efficientnet/keras/b0/2", "resnet/keras/50/1"):
        folder = tmp_path / mount
        folder.mkdir(parents=True)
        (folder / "one.keras").write_bytes(b"")

    new = find_weights("models/ada/efficientnet/keras/b0")
    old = find_weights("models/ada/resnet/keras/50")

    assert new == str(tmp_path / "models/ada/efficientnet/keras/b0/2/one.keras")
    assert old == str(tmp_path / "resnet/keras/50/1/one.keras")
