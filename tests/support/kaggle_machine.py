"""A machine like Kaggle's: /kaggle/input read-only, /kaggle/working empty, no net, no checkout.

Made of Linux namespaces, so nothing outside sees it; `python` is an environment that holds the
requirements and not this project.
"""

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UNSHARE = ["unshare", "--map-root-user", "--mount", "--net", "--kill-child", "--fork"]
# Everything of this machine, a /kaggle beside it, and the checkout's own code out of sight.
_ENTER = r"""
set -eu
new=$(mktemp -d); mount -t tmpfs none "$new"
for entry in /*; do
  if [ -L "$entry" ]; then cp -a "$entry" "$new/"
  elif [ -d "$entry" ]; then mkdir "$new$entry"; mount --rbind "$entry" "$new$entry"; fi
done
for hidden in kaggle_tfr notebooks kernel-metadata.json; do
  [ -d "$CHECKOUT/$hidden" ] && mount -t tmpfs none "$new$CHECKOUT/$hidden"
done
mkdir -p "$new/kaggle/input" "$new/kaggle/working" "$new/kaggle/temp" "$new/kaggle/src"
mount --bind "$WORKING" "$new/kaggle/working"
cp "$CODE" "$new/kaggle/src/code"
tail -n +1 "$INPUTS" | while IFS="$(printf '\t')" read -r place source; do
  mkdir -p "$new/kaggle/input/$place"
  mount --bind "$source" "$new/kaggle/input/$place"
  mount -o remount,ro,bind "$new/kaggle/input/$place"
done
exec chroot "$new" "$PYTHON" -c "$START"
"""
# Jupyter talks to its kernel over the loopback interface, which a new network has switched off.
_START = r"""
import fcntl, os, socket, struct
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1 | 64))
os.chdir("/kaggle/working")
os.execv(PYTHON, [PYTHON, *COMMAND])
"""
_PAPERMILL = ["-m", "papermill", "/kaggle/src/code", "/kaggle/working/__notebook__.ipynb"]


def make_environment(folder, lacking=()):
    """The python of an environment with this one's libraries and without this project."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # A path file's entries are searched, but path files in them, such as ours, are not read.
    (site / "libraries.pth").write_text("\n".join(sorted(paths)) + "\n")
    lines = [f"import sys\nsys.modules['{name}'] = None\n" for name in lacking]
    (site / "sitecustomize.py").write_text("".join(lines))
    command = [str(Path(folder) / "bin" / "python"), "-c", "import kaggle_tfr"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert b"No module named 'kaggle_tfr'" in done.stderr
    return command[0]


def run_kernel(python, text, working, inputs, **environment):
    """The finished process of one session; the executed notebook lies in `working` afterwards.

    inputs: the folder by its place below /kaggle/input.
    """
    return _run(python, [*_PAPERMILL, "-k", "python3"], text, working, inputs, **environment)


def run_python(python, script, working, inputs):
    """As `run_kernel`, for a script instead of a notebook, which needs no Jupyter."""
    return _run(python, ["/kaggle/src/code"], script, working, inputs)


def _run(python, command, code, working, inputs, **environment):
    test = [*UNSHARE, "true"]
    if (
        not shutil.which("unshare")
        or subprocess.run(test, stderr=subprocess.DEVNULL, check=False).returncode
    ):
        pytest.skip("this machine does not let tests make namespaces (unshare --mount --net)")
    working.mkdir(parents=True, exist_ok=True)
    beside = {name: f"{working}.{name}" for name in ("code", "inputs", "home")}
    Path(beside["code"]).write_text(code, encoding="utf-8")
    Path(beside["inputs"]).write_text("".join(f"{name}\t{path}\n" for name, path in inputs.items()))
    Path(beside["home"]).mkdir(exist_ok=True)
    session = {"HOME": beside["home"], "TMPDIR": beside["home"], "PATH": os.environ["PATH"]}
    session |= {"KAGGLE_KERNEL_RUN_TYPE": "Batch", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHON": python}
    session |= {"CHECKOUT": str(ROOT), "CODE": beside["code"], "INPUTS": beside["inputs"]}
    session |= {"START": f"PYTHON, COMMAND = {python!r}, {command!r}\n{_START}"}
    session |= {"WORKING": str(working), **environment}
    enter = [*UNSHARE, "sh", "-c", _ENTER]
    return subprocess.run(
        enter, env=session, capture_output=True, text=True, check=False, timeout=900
    )
