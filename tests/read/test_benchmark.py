"""The benchmark of the readers takes photographs only."""

import io

import pytest
from PIL import Image
from support.readers import save_noise

from kaggle_tfr.images.convert import ImageSettings


def test_the_benchmark_leaves_out_files_that_are_not_photographs(tmp_path, capsys):
    """A README is named and skipped, and so are images that are too small."""
    from benchmarks.read import list_photos

    (tmp_path / "README.md").write_text("Photographs by their owners.")
    large = tmp_path / "large.jpg"
    small = tmp_path / "small.jpg"
    large.write_bytes(save_noise(1, 90, 60))
    small.write_bytes(save_noise(2, 30, 20))

    photos = list_photos(str(tmp_path), ImageSettings((50, 50)))

    [(path, data)] = photos
    assert path == str(large)
    assert Image.open(io.BytesIO(data)).size == (75, 50)
    assert "README.md' is left out" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no photograph of 70 pixels"):
        list_photos(str(tmp_path), ImageSettings((70, 70)))
