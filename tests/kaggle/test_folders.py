"""A recipe of this machine becomes a kernel and a dataset to create."""

import io
import json
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.inputs import put
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.kernels import read_kernel
from support.layouts import many

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle.kernels import write_kernels


@pytest.fixture
def photos(tmp_path):
    """Two classes of two files, and more files at the top than Kaggle accepts."""
    folder = put(tmp_path / "my data/Photos", ["birch/0.jpg", "birch/1.jpg"])
    texts = dict.fromkeys(many("{}.txt", 60), "")
    return put(folder, [], texts | {"elm/0.jpg": "elm 0", "elm/1.jpg": "elm 1"})


@pytest.fixture
def recipe(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"NAME: trees\nINPUT_DIR: {photos}\n"
    Path("trees.yaml").write_text(text)
    return "trees.yaml"


def run_client(command):
    program, *words = shlex.split(command, comments=True)
    assert program == "kaggle"
    return subprocess.check_output([sys.executable, "-m", program, *words], text=True)


def test_the_printed_commands_create_what_the_kernel_attaches(
    kaggle, recipe, photos, capsys
):
    """By Kaggle's own client; the folder arrives whole, and is not written to."""
    before = sorted(photos.rglob("*"))
    for _ in range(2):  # the second call replaces what the first has written
        assert main(["kernel", recipe, "--out", "kernels of me"]) == 0
    printed = capsys.readouterr().out
    commands = [line.strip() for line in printed.splitlines() if "kaggle data" in line]
    answers = [run_client(command) for command in commands[-2:]]

    assert "private Dataset is being created" in answers[0]
    assert answers[1].split() == ["ready"]
    archive = kaggle.datasets[f"{USER}/photos-images"].pop("photos.tar")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        sent = sorted(photos / name for name in files.getnames())
        assert sent == [path for path in before if path.is_file()]
        assert files.extractfile("elm/1.jpg").read() == b"elm 1"
    assert sorted(photos.rglob("*")) == before
    cells, metadata = read_kernel("kernels of me/trees-images-to-tfrecords")
    assert metadata["dataset_sources"] == [f"{USER}/photos-images"]
    text = "".join(cell.source for cell in cells)
    assert f'INPUT_DIR = "{USER}/photos-images/photos"' in text
    assert "datasets create -p DIR/datasets/photos-images -r tar" in cells[0].source
    assert "my data" not in text
    assert main(["push", "kernels of me", "--out", "got"]) == 1  # it left no output
    ((request,),) = kaggle.kernels.values()
    assert request["datasetDataSources"] == [f"{USER}/photos-images"]


def test_without_a_user_the_placeholder_is_explained(
    recipe, capsys, monkeypatch, tmp_path
):
    """In the output and in the kernel; `push` inserts the name later."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert main(["kernel", recipe, "--out", "kernels"]) == 0

    printed = capsys.readouterr().out
    file = "kernels/datasets/photos-images/dataset-metadata.json"
    assert f"replace INSERT_USERNAME_HERE in '{file}'" in printed
    assert "INSERT_USERNAME_HERE/photos-images" in Path(file).read_text()
    cells, metadata = read_kernel("kernels/trees-images-to-tfrecords")
    assert metadata["dataset_sources"] == ["INSERT_USERNAME_HERE/photos-images"]
    assert "Replace `INSERT_USERNAME_HERE` by your user name" in cells[0].source
    assert any('INPUT_DIR = "photos-images/photos"' in cell.source for cell in cells)


def test_a_dataset_that_is_there_takes_the_folders_place(recipe, capsys):
    """--source names it; nothing has to be created."""
    assert main(["kernel", recipe, "--out", "k", "--source", "bob/trees/train"]) == 0

    assert "datasets create" not in capsys.readouterr().out
    cells, metadata = read_kernel("k/trees-images-to-tfrecords")
    assert metadata["dataset_sources"] == ["bob/trees"]
    assert any('INPUT_DIR = "bob/trees/train"' in cell.source for cell in cells)


def test_each_local_folder_has_its_dataset(kaggle, photos, tmp_path, capsys):
    """Folders of the same name get different slugs; an input on Kaggle stays."""
    other = tmp_path / "more" / "Photos"
    other.mkdir(parents=True)
    values = {
        "INPUT_DIR": str(photos),
        "MORE_INPUTS": [{"INPUT_DIR": str(other)}, {"INPUT_DIR": "bob/leaves"}],
        "LICENSE": "CC0-1.0",
    }
    (folder,) = write_kernels(values, str(tmp_path / "k"))

    cells, metadata = read_kernel(folder)
    datasets = [f"{USER}/photos-images", f"{USER}/photos-images-2", "bob/leaves"]
    assert metadata["dataset_sources"] == datasets
    text = "".join(cell.source for cell in cells)
    assert f'[{{"INPUT_DIR": "{USER}/photos-images-2/photos"}}' in text
    assert capsys.readouterr().out.count("kaggle datasets create") == 2
    staged = tmp_path / "k" / "datasets"
    assert (staged / "photos-images" / "photos").resolve() == photos
    assert (staged / "photos-images-2" / "photos").resolve() == other
    values = json.loads((staged / "photos-images/dataset-metadata.json").read_text())
    assert values["licenses"] == [{"name": "CC0-1.0"}]
