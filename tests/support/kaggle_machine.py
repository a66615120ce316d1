"""A machine like Kaggle's, made of Linux namespaces.

/kaggle/input is read-only, /kaggle/working empty; there is no net and no checkout.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UNSHARE = ["unshare", "--map-root-user", "--mount", "--net", "--kill-child", "--fork"]
# All files of this machine, a /kaggle beside them, and the checkout's code hidden.
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
# Jupyter needs the loopback interface, which is off in a new network namespace.
_START = r"""
import fcntl, os, socket, struct
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1 | 64))
os.chdir("/kaggle/working")
os.execv(PYTHON, [PYTHON, *COMMAND])
"""


def make_environment(folder):
    """Return a python with the libraries of this one, without this project."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # Entries of a path file are searched, but path files in them are not read.
    (site / "libraries.pth").write_text("\n".join(sorted(paths)) + "\n")
    # The templates of nbconvert, by which 04 writes its report.
    Path(folder, "share").symlink_to(Path(sys.prefix, "share"))
    command = [str(Path(folder) / "bin" / "python"), "-c", "import kaggle_tfr"]
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, check=False)
    assert b"No module named 'kaggle_tfr'" in done.stderr
    return command[0]


def run_kernel(python, text, working, inputs, **environment):
    """Run a session; return its process. inputs: folders by their places."""
    command = ["-m", "papermill", "-k", "python3", "/kaggle/src/code"]
    command.append("/kaggle/working/__notebook__.ipynb")
    return _run(python, command, text, working, inputs, **environment)


def run_python(python, script, working, inputs):
    return _run(python, ["/kaggle/src/code"], script, working, inputs)


def _run(python, command, code, working, inputs, **environment):
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let tests make namespaces (unshare)")
    home = f"{working}.home"
    for folder in (working, home):
        os.makedirs(folder, exist_ok=True)
    session = {
        "CHECKOUT": str(ROOT),
        "WORKING": str(working),
        "PYTHON": python,
        **environment,
        "CODE": f"{working}.code",
        "INPUTS": f"{working}.inputs",
        "HOME": home,
        "TMPDIR": home,
        "PATH": os.environ["PATH"],
        "KAGGLE_KERNEL_RUN_TYPE": "Batch",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "START": f"PYTHON, COMMAND = {python!r}, {command!r}\n{_START}",
    }
    Path(session["CODE"]).write_text(code, encoding="utf-8")
    Path(session["INPUTS"]).write_text(
        "".join(f"{n}\t{path}\n" for n, path in inputs.items())
    )
    settings = {"env": session, "capture_output": True, "text": True, "timeout": 900}
    return subprocess.run([*UNSHARE, "sh", "-c", _ENTER], check=False, **settings)
