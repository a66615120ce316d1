"""Start processes that have TensorFlow imported, by Python's fork server.

The import takes seconds in each process; a fork takes milliseconds.
"""

import multiprocessing
import os
import sys
import time
from multiprocessing import forkserver
from types import SimpleNamespace
from unittest import mock

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
AT_ONCE = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GCS_READ_CACHE_BLOCK_SIZE_MB": "4",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


def fork(function, *arguments, env=(), out=os.devnull, cwd="."):
    """Start a process that calls the function; its output goes to the file `out`.

    function: of a module, because the process imports it by its name.
    """
    with mock.patch.dict(os.environ, AT_IMPORT | AT_ONCE):
        forkserver.ensure_running()
    env = {**os.environ, **dict(env)}
    call = env, str(out), os.path.abspath(cwd), function, arguments
    process = CONTEXT.Process(target=_call, args=call, daemon=True)
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
    """Run Python code in a fork; return its exit code and output."""
    process = fork(exec, code, {}, env=env, out=folder / "log.txt")
    process.join(timeout)
    process.kill()
    output = (folder / "log.txt").read_text()
    return SimpleNamespace(code=process.exitcode, output=output)


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


def fork_kernels():
    """Let the kernels that this process starts be forks."""
    place = "jupyter_client.provisioning.local_provisioner.launch_kernel"
    return mock.patch(place, _launch)


def _launch(command, env=(), cwd=None, **_):
    options = command[command.index("-f") :]
    process = fork(_run_kernel, options, env=env, cwd=cwd or ".")
    while os.getpgid(process.pid) != process.pid:  # whom signals to the kernel go to
        time.sleep(0.001)
    return _Kernel(process)


def _run_kernel(options):
    from ipykernel import kernelapp

    os.setsid()
    kernelapp.launch_new_instance(argv=options)
