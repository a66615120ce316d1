"""TensorFlow, imported without the lines by which it greets: import this first in a notebook.

They tell of processors, not of data, go past Python's own stderr, and since 2.21 no setting ends
them. An error of the import itself is raised as ever.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.stderr.flush()
_kept = os.dup(2)
_nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(_nowhere, 2)
try:
    import tensorflow as tf  # noqa: F401
finally:
    os.dup2(_kept, 2)
    os.close(_nowhere)
    os.close(_kept)
