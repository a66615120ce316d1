"""Find the devices to train on, never use other ones silently, predict on all."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kaggle_tfr.parameters import check_parameters
from kaggle_tfr.session import count_cores, find_tpu_signs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import keras
    import tensorflow as tf
else:
    from kaggle_tfr.session import keras, tf


@dataclass(frozen=True)
class Devices:
    """The devices that share each batch.

    kind: "tpu", "gpu" or "cpu". name: for people. count: number of devices.
    strategy: None on JAX, where Keras distributes the batches by itself.
    """

    kind: str
    name: str
    count: int
    strategy: tf.distribute.Strategy | None = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Place the models that are built in this block on the devices.

        On a TPU they compute in bfloat16, with float32 weights.
        """
        policy = keras.config.dtype_policy()
        if self.kind == "tpu":
            keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            with self.strategy.scope() if self.strategy else nullcontext():
                yield
        finally:
            keras.config.set_dtype_policy(policy)


def find_devices(device: str = "auto") -> Devices:
    """Return the devices to train on, and print their name.

    device: "tpu", "gpu", "cpu", or "auto" for the best. On JAX, models are
    data-parallel over the devices from this call on.
    Raises: RuntimeError: the device is missing, or Keras's backend cannot use the TPU
    of this machine, or KERAS_BACKEND was set too late; ValueError: unknown `device`.
    """
    check_parameters({"DEVICE": device})
    backend = _check_backend()
    try:
        devices = _find_jax(device) if backend == "jax" else _find_tensorflow(device)
    except RuntimeError as error:  # also JAX's, when another process has the device
        raise RuntimeError(
            f"DEVICE is '{device}', but Keras on {backend} finds none ({error}). "
            f"{_advise()}"
        ) from None
    tpu_signs = find_tpu_signs()
    if device == "auto" and devices.kind != "tpu" and tpu_signs:
        raise RuntimeError(
            f"This machine has a TPU ({tpu_signs[0]}), which Keras on {backend} cannot "
            f"use. {_advise()}"
        )
    print(f"Training on {devices.name}, replicas: {devices.count}")
    return devices


def predict(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Return the outputs (batch, …) of uint8 images, split over the model's devices.

    images: (batch, height, width, 3). Only JAX splits them; each replica of a
    TensorFlow strategy computes all of them.
    """
    # None, except with several devices of JAX.
    distribution = keras.distribution.distribution()
    if distribution is not None:
        layout = distribution.get_data_layout(images.shape)
        images = keras.distribution.distribute_tensor(images, layout)
    # With a TensorFlow strategy the result has the whole batch once for each replica.
    return np.asarray(model.predict_on_batch(images))[: len(images)]


def _check_backend() -> str:
    """Return Keras's backend, "jax" or "tensorflow".

    Raises: RuntimeError: it is another one, or KERAS_BACKEND was set after the import
    of Keras.
    """
    backend = keras.config.backend()
    requested = os.environ.get("KERAS_BACKEND") or backend
    if requested != backend or backend not in ("jax", "tensorflow"):
        raise RuntimeError(
            f"KERAS_BACKEND is '{requested}', keras was imported with '{backend}'. "
            "Restart the session, and set it to jax or tensorflow before TensorFlow is "
            "imported."
        )
    return backend


def _advise() -> str:
    """Return how to train on this machine when the requested device cannot be used."""
    if find_tpu_signs():
        return (
            "Install jax[tpu], set KERAS_BACKEND=jax before TensorFlow is imported, "
            'and restart the session; or train on the CPU: DEVICE = "cpu".'
        )
    return 'Use a machine that has one, or set DEVICE = "auto" or "cpu".'


def _find_jax(device: str) -> Devices:
    """Return all devices of a type, over which Keras distributes from now on.

    device: "tpu", "gpu", "cpu", or "auto" for the best that JAX finds.
    Raises: RuntimeError: there is none.
    """
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # leave a TPU to other processes
    devices = jax.devices(None if device == "auto" else device)
    distribution = None
    if len(devices) > 1:  # for a single device JAX would only compile each step twice
        distribution = keras.distribution.DataParallel(devices=devices)
    keras.distribution.set_distribution(distribution)
    jax.config.update("jax_default_device", devices[0])
    kind = devices[0].platform
    model = f"{count_cores()} cores" if kind == "cpu" else devices[0].device_kind
    return Devices(kind, f"{kind.upper()} ({model}) by JAX", len(devices))


def _find_tensorflow(device: str) -> Devices:
    """Return the GPUs or the CPU by TensorFlow's strategies.

    device: as for `find_devices`; "auto" prefers GPUs.
    Raises: RuntimeError: the device is missing. Kaggle's TPUs need JAX.
    """
    gpus = tf.config.list_physical_devices("GPU")
    strategy = tf.distribute.get_strategy()  # the default: one device, a GPU if any
    if device in ("auto", "gpu") and gpus:
        if len(gpus) == 1:
            return Devices("gpu", "one GPU", 1, strategy)
        mirrored = tf.distribute.MirroredStrategy()
        return Devices("gpu", f"{len(gpus)} GPUs", len(gpus), mirrored)
    if device in ("auto", "cpu"):
        if gpus:
            strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        return Devices("cpu", f"CPU ({count_cores()} cores)", 1, strategy)
    raise RuntimeError("TensorFlow lists none")
