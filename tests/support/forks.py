"""Processes that begin with TensorFlow imported: Python's server of forks makes them.

An import takes seconds of each process; a fork of one that did nothing else takes milliseconds.
"""

import multiprocessing
import os
import sys
import time
from functools import partial
from multiprocessing import forkserver
from types import SimpleNamespace
from unittest import mock

from kaggle_tfr.storage import limit_bucket_cache
from support.gcs import AT_IMPORT

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tensorflow",
        "distributed",
        "ipykernel.kernelapp",
        "kaggle_tfr.explore",
        "kaggle_tfr.write",
    ]
)
# What is read on import, of all that a fork may be for.
AT_ONCE = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
AT_ONCE |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def fork(function, *arguments, env=(), out=os.devnull, cwd="."):
    """A process that was begun to call the function, with stdout and stderr in the file `out`.

    function: what a module holds, for that process imports it by its name.
    """
    with mock.patch.dict(os.environ, AT_IMPORT | AT_ONCE):
        limit_bucket_cache()  # which TensorFlow reads on import too
        forkserver.ensure_running()
    env = {**os.environ, **dict(env)}
    given = env, str(out), os.path.abspath(cwd), function, arguments
    process = CONTEXT.Process(target=_call, args=given, daemon=True)
    process.start()
    return process


def _call(env, out, cwd, function, arguments):
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with open(out, "ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    function(*arguments)
    sys.stdout.flush()


def run_code(code, folder, timeout, env=()):
    """(exit code, what it printed) of a fork that runs the Python code; its log is in `folder`."""
    process = fork(exec, code, {}, env=env, out=folder / "said.txt")
    process.join(timeout)
    process.kill()
    return SimpleNamespace(
        code=process.exitcode, said=(folder / "said.txt").read_text()
    )


class _Kernel:
    """As much of a subprocess.Popen as a manager of kernels asks for."""

    stdin = stdout = stderr = None

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.kill, self.terminate = process.kill, process.terminate

    def poll(self):
        return self.process.exitcode

    def wait(self):
        self.process.join()
        return self.process.exitcode


def fork_kernels(first=id):
    """A context in which the kernels that this process starts are forks, which first call that."""
    place = "jupyter_client.provisioning.local_provisioner.launch_kernel"
    return mock.patch(place, partial(_launch, first))


def _launch(first, command, env=(), cwd=None, **_):
    options = command[command.index("-f") :]
    process = fork(_run_kernel, first, options, env=env, cwd=cwd or ".")
    while os.getpgid(process.pid) != process.pid:  # whom signals to the kernel go to
        time.sleep(0.001)
    return _Kernel(process)


def _run_kernel(first, options):
    from ipykernel import kernelapp

    os.setsid()
    first(options)
    kernelapp.launch_new_instance(argv=options)
