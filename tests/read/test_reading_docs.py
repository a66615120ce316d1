"""The examples of docs/reading.md run on a part of the sample."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

from support.docs import list_blocks
from support.processes import call_python

# Runs each example on its own.
RUN_ALL = """
import sys
for name, code, is_light in {examples!r}:
    print(name, file=sys.stderr)
    exec(compile(code, name, "exec"), {{"__name__": "__main__"}})
    heavy = {{"tensorflow", "keras", "cv2"}}.intersection(sys.modules)
    assert not (is_light and heavy), heavy
"""


def test_the_examples_run_on_a_finished_part(sample, tmp_path):
    """Those that do not name TensorFlow or Keras import neither, nor OpenCV.

    They run on eight devices of JAX, and with the libraries of Kaggle's TPU image where
    `make test-kaggle` has created them. That of PyTorch runs where torch is installed:
    its usual package brings gigabytes of CUDA.
    """
    has_torch = find_spec("torch") and "TPU_PYTHON" not in os.environ
    examples = []
    for block in list_blocks()["docs/reading.md"]:
        is_light = "tensorflow" not in block.text and "keras" not in block.text
        can_run = has_torch or "import torch" not in block.text
        if block.language == "python" and can_run:
            examples.append((str(block), block.text, is_light))
    # Processes that torch forks should not inherit the threads of TensorFlow.
    examples.sort(key=lambda example: not example[-1])
    (tmp_path / "work").symlink_to(sample / "work")
    python = Path(os.environ.get("TPU_PYTHON", sys.executable)).absolute()
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

    with mock.patch.object(sys, "executable", str(python)):
        script = RUN_ALL.format(examples=examples)
        done = call_python("-c", script, cwd=tmp_path, **flags)

    assert done.returncode == 0, done.stderr[-3000:]
    assert len(examples) > 4
