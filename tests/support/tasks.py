"""Tasks for other processes, which import them by name."""

import multiprocessing
import os
import signal
import time


def square(number):
    return number * number


def end_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)


def write_by_two(work, out, backend="threading"):
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.write.writer import write_parts

    # A fork may have processes of its own then.
    multiprocessing.current_process()._config["daemon"] = False
    use_backend(2, backend)
    write_parts(str(work), str(out))


def hold_lock(work, pipe):
    from kaggle_tfr import storage

    with storage.lock_work_dir(work):
        pipe.send("locked")
        time.sleep(600)


def run_lines(pipe):
    """Run the code that arrives, up to "end", and send the value of its `result`."""
    space = {}
    for code in iter(pipe.recv, "end"):
        try:
            exec(code, space)
            answer = {"result": space.pop("result", None)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        pipe.send(answer)
