"""What a model trains on: the devices of JAX or TensorFlow, found or refused by name."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from kaggle_tfr.parameters import check_value
from kaggle_tfr.paths import find_tpu_signs

TPU_ADDRESSES = ("TPU_NAME", "COLAB_TPU_ADDR", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")


@dataclass(frozen=True)
class Devices:
    """`kind` "tpu", "gpu" or "cpu"; `count` of them share a batch. strategy: None on JAX."""

    kind: str
    name: str
    count: int
    strategy: tf.distribute.Strategy | None = None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Models made in it are on the devices; on a TPU in bfloat16, with float32 weights."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_bfloat16" if self.kind == "tpu" else before)
        try:
            with self.strategy.scope() if self.strategy else nullcontext():
                yield
        finally:
            keras.config.set_dtype_policy(before)


def find_devices(device: str = "auto") -> Devices:
    """The devices to train on, named by one printed line: "tpu", "gpu", "cpu", or "auto": the best.

    On JAX, models are data-parallel over them from here on.
    Raises: RuntimeError: they are not there; there is a TPU that this Keras backend cannot use,
        unless device is "cpu"; KERAS_BACKEND was set too late. ValueError: another `device`.
    """
    check_value("DEVICE", device)
    backend, finders = keras.config.backend(), {"jax": _find_jax, "tensorflow": _find_tensorflow}
    wanted = os.environ.get("KERAS_BACKEND") or backend
    if wanted != backend or backend not in finders:
        what = f"KERAS_BACKEND is '{wanted}', keras was imported with '{backend}'."
        mend = "Restart the session, and set it to jax or tensorflow before TensorFlow is imported."
        raise RuntimeError(f"{what} {mend}")
    signs, wrong = find_tpu_signs(), ""
    try:
        found = finders[backend](device)
        if device == "auto" and signs and found.kind != "tpu":
            wrong = f"This machine has a TPU ({signs[0]}), which Keras on {backend} cannot use"
    except RuntimeError as error:  # JAX's: there is none, or another process has it
        wrong = f"DEVICE is '{device}', but Keras on {backend} finds none ({error})"
    if wrong:
        mend = 'Take a machine that has one, or set DEVICE = "auto" or "cpu".'
        if signs:
            mend = "Install jax[tpu], set KERAS_BACKEND=jax before TensorFlow is imported, and"
            mend += ' restart the session; or train on the CPU all the same: DEVICE = "cpu".'
        raise RuntimeError(f"{wrong}. {mend}")
    print(f"Training on {found.name}: {found.count} replica{'s' * (found.count > 1)}")
    return found


def _find_jax(device: str) -> Devices:
    """All devices of the kind, over which Keras distributes from here on; RuntimeError if none."""
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # leaves a TPU to whom it belongs
    found = jax.devices(None if device == "auto" else device)
    # On one device a distribution would only make JAX compile each step twice.
    several = keras.distribution.DataParallel(devices=found) if len(found) > 1 else None
    keras.distribution.set_distribution(several)
    jax.config.update("jax_default_device", found[0])
    kind = found[0].platform
    more = f"{os.cpu_count()} cores" if kind == "cpu" else found[0].device_kind
    return Devices(kind, f"{kind.upper()} ({more}) by JAX", len(found))


def _find_tensorflow(device: str) -> Devices:
    """The devices by TensorFlow's own strategies; RuntimeError if none."""
    gpus, one = tf.config.list_physical_devices("GPU"), tf.distribute.get_strategy()
    if device in ("auto", "tpu") and (tpu := _find_tpu()):
        return tpu
    if device in ("auto", "gpu") and gpus:
        strategy = tf.distribute.MirroredStrategy() if len(gpus) > 1 else one
        name = "one GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
        return Devices("gpu", name, len(gpus), strategy)
    if device in ("auto", "cpu"):
        cpu = tf.distribute.OneDeviceStrategy("CPU:0") if gpus else one
        return Devices("cpu", f"CPU ({os.cpu_count()} cores)", 1, cpu)
    raise RuntimeError("TensorFlow lists none")


def _find_tpu() -> Devices | None:
    # TensorFlow logs every attempt, also where there is no TPU.
    logging.getLogger("tensorflow").setLevel("WARNING")
    addresses = ["local", *(os.environ[name] for name in TPU_ADDRESSES if os.environ.get(name))]
    for address in dict.fromkeys(addresses):
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
            if address != "local":
                tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            strategy = tf.distribute.TPUStrategy(resolver)
        except (ValueError, tf.errors.OpError):
            continue
        return Devices("tpu", f"TPU ({address})", strategy.num_replicas_in_sync, strategy)
    return None


def predict(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Logits (batch, …) of a batch of uint8 images, which is split over the model's devices."""
    split = keras.distribution.distribution()
    if split is not None:
        layout = split.get_data_layout(images.shape)
        images = keras.distribution.distribute_tensor(images, layout)
    # Every replica of a strategy of TensorFlow answers for the whole batch, one after the other.
    return np.asarray(model.predict_on_batch(images))[: len(images)]
