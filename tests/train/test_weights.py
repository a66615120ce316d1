"""WEIGHTS: found as a file or a Kaggle input, and trained with a new last layer."""

from pathlib import Path

import keras
import numpy as np
import pytest
from support.kaggle_server import fixture_kaggle  # noqa: F401
from support.readers import make_record, write_part
from support.training import run_training

from kaggle_tfr import find
from kaggle_tfr.train import find_weights

NAME = "efficientnetb0-notop.weights.h5"


def test_06_starts_from_the_weights_of_a_file(tmp_path):
    """The features are those of the network, averaged over the regions of the image."""
    network = keras.applications.EfficientNetB0(include_top=False, weights=None)
    network.save_weights(tmp_path / NAME)
    records = [make_record(number) for number in range(0, 240, 20)]
    shards = {"a.tfrec": (0, records[::2]), "b.tfrec": (1, records[1::2])}
    part = write_part(tmp_path / "part-1", shards, range(252))
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)

    names = run_training(
        tmp_path, until="06-08", TFREC_DIRS=[part], WEIGHTS=str(tmp_path)
    )

    regions = np.asarray(network(image.astype(np.float32)))
    found = np.asarray(names["find_features"](image))
    assert np.abs(found - regions.mean(axis=(1, 2))).max() < 1e-4
    assert names["model"].output_shape == (None, 252)


def test_a_folder_must_have_one_file_of_weights(tmp_path):
    """A misspelt file lists those that exist."""
    with pytest.raises(FileNotFoundError, match="There are none"):
        find_weights(str(tmp_path))
    (tmp_path / "deeper").mkdir()
    one = tmp_path / "deeper" / "one.keras"
    one.write_bytes(b"")
    assert find_weights(str(tmp_path)) == find_weights(str(one)) == str(one)
    (tmp_path / NAME).write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="There are .*one.keras, .*notop"):
        find_weights(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"There are .*one.keras"):
        find_weights(str(tmp_path / "two.keras"))
    assert [find_weights(name) for name in ("", "imagenet")] == ["", "imagenet"]


@pytest.mark.parametrize(
    "name",
    ["ada/networks/efficientnetb0_notop.h5", "models/ada/efficientnet/keras/b0"],
)
def test_a_dataset_or_a_model_of_kaggle_is_downloaded_once(
    kaggle, tmp_path, monkeypatch, name
):
    """A model's name is the one in its address, also in the error of an unknown one."""
    monkeypatch.setattr(find, "KAGGLE_INPUT", str(tmp_path / "no" / "input"))
    monkeypatch.chdir(tmp_path)
    files = {"efficientnetb0_notop.h5": b"weights", "readme.md": b"read"}
    kaggle.datasets["ada/networks"] = files
    kaggle.models["ada/efficientnet/keras/b0"] = files

    path = find_weights(name)

    assert path.startswith(f"{tmp_path}/cache/")
    assert Path(path).read_bytes() == b"weights"
    kaggle.calls.clear()
    assert find_weights(name) == path
    assert not [call for call in kaggle.calls if call.startswith("Download")]
    address = "models/ada/x/keras/b0.*asked Kaggle: 404"
    with pytest.raises(FileNotFoundError, match=address):
        find_weights("models/ada/x/keras/b0")
