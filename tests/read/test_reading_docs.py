"""Each example of docs/reading.md runs on a part of the sample."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from support.processes import call_python

# In this order: processes that torch forks should not inherit the threads of others.
EXPECTED = {
    "PyTorch": "torch.uint8 torch.int64",
    "By number": "uint8",
    "Plain JAX": "'batch': 8",
    "grain and Keras": "['accuracy', 'loss', 'val_accuracy', 'val_loss']",
    "TensorFlow alone": "(32, 256, 256, 3)",
    "From schema.json": ", 3) ",
}
WITHOUT_TENSORFLOW = ("PyTorch", "By number", "Plain JAX")
# Runs each example on its own, and prints its name before its output.
RUN_ALL = """
import sys, traceback
for name, code in {examples!r}.items():
    print("\\n##", name, flush=True)
    try:
        exec(compile(code, name, "exec"), {{"__name__": "__main__"}})
    except Exception:
        traceback.print_exc(file=sys.stdout)
    print("imported:", [lib for lib in {heavy!r} if lib in sys.modules])
"""


@pytest.fixture(scope="module")
def printed(root, sample, tmp_path_factory):
    """Return the output of each example, run beside a part of the sample.

    It has test images without labels. On eight devices of JAX, and with the libraries
    of Kaggle's TPU image where `make test-kaggle` has created them.
    """
    folder = tmp_path_factory.mktemp("docs")
    (folder / "work").symlink_to(sample / "work")
    page = (root / "docs" / "reading.md").read_text()
    examples = dict(
        re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    )
    assert examples.keys() == EXPECTED.keys()
    python = Path(os.environ.get("TPU_PYTHON", sys.executable)).absolute()
    examples = {name: examples[name] for name in EXPECTED}
    script = RUN_ALL.format(examples=examples, heavy=("tensorflow", "keras", "cv2"))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    with mock.patch.object(sys, "executable", str(python)):
        process = call_python("-c", script, cwd=folder, **flags)
    assert process.returncode == 0, process.stderr[-3000:]
    return dict(part.split("\n", 1) for part in process.stdout.split("\n## ")[1:])


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_on_a_finished_part(printed, name):
    """JAX on eight devices, grain, torch in two processes, and TensorFlow alone."""
    if name == "PyTorch" and (find_spec("torch") is None or "TPU_PYTHON" in os.environ):
        pytest.skip(
            "torch is not installed: its usual package brings gigabytes of CUDA"
        )

    assert "Traceback" not in printed[name]
    assert EXPECTED[name] in printed[name]
    if name in WITHOUT_TENSORFLOW:
        assert "imported: []" in printed[name]
