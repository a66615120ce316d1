"""Find the weights of a pretrained network, and build the network around them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaggle_tfr.mounts import find_input
from kaggle_tfr.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras
else:
    from kaggle_tfr.session import keras

ENDINGS = (".keras", ".h5")  # the second is also that of .weights.h5
_BROKEN = (ImportError, KeyError, OSError, TypeError, ValueError)


def find_weights(weights: str) -> str:
    """Return the file of pretrained weights.

    weights: a file, or the folder of one; or a Kaggle input that contains it, as
        `find_input` takes it: "owner/dataset/efficientnetb0_notop.h5", or a model as in
        its address: "models/owner/model/framework/variation".
    Raises: FileNotFoundError: there is no such file; ValueError: there are several, or
    it is in a bucket; PermissionError, ConnectionError: as `find_input`.
    """
    if is_remote(weights):
        raise ValueError(
            f"WEIGHTS is '{weights}', but Keras reads weights from a disk only. Copy "
            "the file to this machine."
        )
    if weights.endswith(ENDINGS):
        parent, file = os.path.split(weights)
        folder = find_input(parent or ".")
        path = os.path.join(folder, file)
        if os.path.isfile(path):
            return path
        names = [os.path.relpath(other, folder) for other in _list_weights(folder)]
        raise FileNotFoundError(
            f"WEIGHTS is '{weights}', but there is no file '{path}'. "
            f"Weights in this folder: "
            f"{', '.join(names) or 'none'}."
        )

    folder = find_input(weights)
    files = _list_weights(folder)
    if not files:
        raise FileNotFoundError(
            f"WEIGHTS is '{weights}', but '{folder}' has no file named *.keras or "
            "*.h5. For a model of Kaggle, choose the framework keras or a dataset of "
            "such files."
        )
    if len(files) > 1:
        names = [os.path.relpath(file, folder) for file in files]
        raise ValueError(
            f"WEIGHTS is '{weights}', where there are {len(files)} files: "
            f"{', '.join(names[:9])}. Add the name of one of them to WEIGHTS."
        )
    return files[0]


def _list_weights(folder: str) -> list[str]:
    paths = Path(folder).rglob("*")
    return sorted(str(path) for path in paths if path.name.endswith(ENDINGS))


def load_backbone(path: str, size: tuple[int, int]) -> keras.Model:
    """Return a network from uint8 images (batch, height, width, 3) to features.

    path: a model saved as .keras, which takes pixels from 0 to 255; without its last
        layer, if that is a classifier's. Or weights of a network of keras.applications
        without its top, in an .h5 file named after it, such as
        "efficientnetb0_notop.h5"; its own `preprocess_input` is applied.
    Features are (batch, n): those of an image's regions are averaged.
    Raises: ValueError: the file is something else, or does not fit the size.
    """
    if path.endswith(".keras"):
        network = _cut_classifier(_load_model(path, size))
        preprocess = None
    else:
        build = _find_architecture(path)
        network = _load_weights(path, build, size)
        preprocess = sys.modules[build.__module__].preprocess_input

    inputs = keras.Input((*size, 3), dtype="uint8")
    pixels = inputs
    if network.inputs[0].dtype != "uint8":
        pixels = keras.ops.cast(inputs, "float32")
    if preprocess:
        pixels = preprocess(pixels)
    features = network(pixels)
    if len(features.shape) == 4:
        features = keras.layers.GlobalAveragePooling2D()(features)
    if len(features.shape) != 2:
        raise ValueError(
            f"The model in '{path}' returns an array of the shape {features.shape}, "
            "which is neither (batch, features) nor (batch, height, width, features). "
            "Save the part of the network that returns its features."
        )
    return keras.Model(inputs, features, name=network.name)


def _load_model(path: str, size: tuple[int, int]) -> keras.Model:
    """Return the model of a .keras file; it must take images of this size."""
    try:
        model = keras.saving.load_model(path, compile=False)
    except _BROKEN as error:
        raise _explain(path, error) from None
    expected = tuple(model.input_shape[1:])
    differs = [
        wanted not in (None, side)
        for wanted, side in zip(expected, (*size, 3), strict=False)
    ]
    if len(expected) != 3 or any(differs):
        raise ValueError(
            f"The model in '{path}' takes images of the shape {expected}, but gets "
            f"{(*size, 3)}. Set TRAIN_SIZE to its height and width."
        )
    return model


def _cut_classifier(model: keras.Model) -> keras.Model:
    """Return the model without its last layer if this is dense, scaled or not."""
    last = model.layers[-1]
    if isinstance(last, keras.layers.Rescaling):
        last = model.layers[-2]
    if not isinstance(last, keras.layers.Dense):
        return model
    return keras.Model(model.input, last.input, name=model.name)


def _find_architecture(path: str) -> Callable[..., Any]:
    """Return the function of keras.applications that a file is named after."""
    networks = {
        name.lower(): build
        for name, build in vars(keras.applications).items()
        if name[0].isupper()
    }
    text = re.sub(r"[^a-z0-9]", "", os.path.basename(path).lower())
    names = [name for name in networks if name in text]
    if not names:
        known = ", ".join(build.__name__ for build in networks.values())
        raise ValueError(
            f"WEIGHTS is '{path}', whose name does not contain the name of a network. "
            "Name it like efficientnetb0_notop.h5, or save the whole model as .keras. "
            f"The networks are {known}."
        )
    return networks[max(names, key=len)]  # resnet50 is in resnet50v2, too


def _load_weights(
    path: str, build: Callable[..., Any], size: tuple[int, int]
) -> keras.Model:
    """Return a network of keras.applications, without its top, with its weights."""
    try:
        network = build(include_top=False, weights=None, input_shape=(*size, 3))
    except ValueError as error:
        raise ValueError(
            f"{build.__name__} cannot take images of {size[0]} × {size[1]}: {error} "
            "Set TRAIN_SIZE to a larger size."
        ) from None
    try:
        network.load_weights(path)
    except _BROKEN as error:
        raise _explain(path, error, build.__name__) from None
    return network


def _explain(path: str, error: Exception, network: str = "") -> ValueError:
    """Return the error for a file that Keras cannot load."""
    lines = str(error).strip().splitlines()
    reason = lines[0][:200] if lines else type(error).__name__
    expected = "a model saved by Keras 3"
    if network:
        expected = f"the weights of {network} without its top (include_top=False)"
    return ValueError(
        f"WEIGHTS is '{path}', which Keras {keras.__version__} cannot load: {reason} "
        f"Use {expected}, saved by this version or an earlier one. The name of a file "
        "of `save_weights` must end with .weights.h5."
    )
