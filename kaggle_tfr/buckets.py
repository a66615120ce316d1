"""Objects of a bucket through TensorFlow's client, with Python's errors and an end to waiting."""

import contextlib
import threading
from functools import cache

ANSWER_SECONDS = 45


def read_object(path: str) -> bytes:
    """The whole content of an object."""
    return ask(_read, path)


def write_object(path: str, data: bytes) -> None:
    """Writes an object, which shows once its upload is complete."""
    ask(_write, path, data)


def copy_object(path: str, local: str) -> None:
    """Copies an object to a local file, piece by piece."""
    ask(gfile().copy, path, local)


def list_objects(pattern: str) -> list[str]:
    """Addresses of the objects that match, unsorted."""
    return [path for path in ask(gfile().glob, pattern) if not path.endswith("/")]


def gfile():
    """`tf.io.gfile`, imported when a bucket is first asked for."""
    import tensorflow as tf

    return tf.io.gfile


def ask(function, path: str, *args):
    """function(path, *args), with TensorFlow's errors told as Python's own.

    Raises: FileNotFoundError, PermissionError; TimeoutError when the bucket is silent; OSError.
    """
    _check_answers("/".join(str(path).split("/")[:3]))
    import tensorflow as tf

    try:
        return function(path, *args)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"'{path}' is not there: {error.message}") from None
    except tf.errors.PermissionDeniedError as error:
        raise PermissionError(
            f"'{path}' may not be opened: {error.message}. Is the bucket public? Otherwise set "
            "GOOGLE_APPLICATION_CREDENTIALS before Python starts."
        ) from None
    except tf.errors.OpError as error:
        raise OSError(f"'{path}' could not be reached: {error.message}") from None


@cache
def _check_answers(bucket):
    """Asks the bucket anything, once a process: any answer will do, silence will not.

    TensorFlow's own client retries for many minutes, and cannot be interrupted.
    """
    answered = threading.Event()
    exists = gfile().exists

    def wait_for_any():
        # An answer such as "forbidden" is still one; the call that follows reports it in full.
        with contextlib.suppress(Exception):
            exists(bucket)
        answered.set()

    threading.Thread(target=wait_for_any, daemon=True).start()
    if not answered.wait(ANSWER_SECONDS):
        raise TimeoutError(
            f"{bucket} did not answer within {ANSWER_SECONDS} s. Is the name right and the network "
            "up? Outside Google's cloud a public bucket needs NO_GCE_CHECK=true in the environment "
            "before Python starts, a private one GOOGLE_APPLICATION_CREDENTIALS."
        )


def _read(path):
    with gfile().GFile(path, "rb") as file:
        return file.read()


def _write(path, data):
    with gfile().GFile(path, "wb") as file:
        file.write(data)
