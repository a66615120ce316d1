"""The sample competition contains what its truth.json lists."""

import json
from pathlib import Path

from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr_sample import write_sample


def test_the_same_bytes_every_time():
    """On one core too; and a folder that is complete is left as it is."""
    truth = write_sample("first", scale=1 / 40)

    use_backend(n_jobs=1)
    assert truth == write_sample("second", scale=1 / 40)
    close_backend()
    assert truth == json.loads(Path("first/truth.json").read_text())
    for path in Path("first").rglob("*.*"):
        copy = "second" / path.relative_to("first")
        assert copy.read_bytes() == path.read_bytes()
    table = Path("first/train.csv")
    table.write_text("mine")
    write_sample("first")
    assert table.read_text() == "mine"
