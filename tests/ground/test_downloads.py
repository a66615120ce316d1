"""Slugs off Kaggle: the real kagglehub downloads from a stub of Kaggle on loopback."""

import errno
import multiprocessing
import os
import re
from pathlib import Path
from unittest import mock

import pytest
from support.inputs import put_csv
from support.inputs import read as read_inputs
from support.kaggle_server import fixture_kaggle  # noqa: F401

from kaggle_tfr import mounts
from kaggle_tfr.mounts import find_input

CASSAVA = "cassava-leaf-disease-classification"
FILES = {"train.csv": b"image_id,label\n", "more/1.txt": b"one"}


@pytest.fixture
def server(kaggle, tmp_path, monkeypatch):
    """The stub, with a machine that is not Kaggle's: no mounts, an empty folder."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "no" / "input"))
    monkeypatch.setattr(mounts, "KAGGLE_WORKING", str(tmp_path / "no" / "working"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    kaggle.competitions[CASSAVA] = FILES
    kaggle.datasets["ada/tea"] = FILES
    return kaggle


def list_files(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("source", "cached", "files"),
    [
        (CASSAVA, f"competitions/{CASSAVA}", FILES),
        ("datasets/ada/tea/", "datasets/ada/tea/versions/1", FILES),
        # A folder of the competition, as there is no dataset of that name.
        (f"{CASSAVA}/more", f"competitions/{CASSAVA}/more", {"1.txt": b"one"}),
    ],
)
def test_a_slug_is_downloaded_once(server, source, cached, files):
    """What is in the cache is used, whatever Kaggle answers then."""
    folder = find_input(source)

    assert folder.endswith(f"/cache/{cached}")
    assert list_files(folder) == files
    server.deny_download |= {CASSAVA: 403, "ada/tea": 403}
    assert find_input(source) == folder


def test_two_processes_download_once(server):
    """The second one waits, instead of writing over what the first one reads."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=find_input, args=["ada/tea"]) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert server.calls.count("DownloadDataset") == 1


@pytest.mark.parametrize("names", [[""], ["train.csv"]])
def test_the_newest_version_is_used(server, tmp_path, monkeypatch, capsys, names):
    """Without network it is the newest complete one in the cache, with a warning."""
    (tmp_path / "cache/datasets/ada/tea/versions/99").mkdir(parents=True)
    for version in (9, 12):
        server.versions["ada/tea"] = version
        folder = find_input("ada/tea", names=names)
        assert folder.endswith(f"/ada/tea/versions/{version}")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert find_input("ada/tea", names=names) == folder
    assert "WARNING: an earlier download is used. http" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "status", "reasons"),
    [
        (CASSAVA, 403, [f"competitions/{CASSAVA}: .*accepted the competition rules"]),
        (CASSAVA, 404, [f"competitions/{CASSAVA}: .*Resource not found"]),
        ("ada/tea", 403, ["datasets/ada/tea: .*private", "competitions/ada: .*404"]),
        ("ada/tea/part-9", 0, ["datasets/ada/tea: .*it has no folder 'part-9'"]),
    ],
)
def test_a_refusal_of_kaggle_is_explained(server, source, status, reasons):
    """Each address that was tried is named with its reason, and the local path too."""
    if status:
        server.deny_download[source] = status

    with pytest.raises(FileNotFoundError) as caught:
        find_input(source)

    for reason in [f"'{source}' is neither", f"  {os.getcwd()}/{source}\n", *reasons]:
        assert re.search(reason, str(caught.value))


def test_without_credentials_a_competition_names_the_token(server, monkeypatch):
    """A public dataset is downloaded without credentials."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(FileNotFoundError, match="not auth.*\n.*save it in ~/"):
        find_input(CASSAVA)
    assert list_files(find_input("ada/tea")) == FILES


def test_a_full_disk_is_named(server, monkeypatch, tmp_path):
    """With what to do; nothing else is tried."""
    error = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("zipfile.ZipFile.extractall", mock.Mock(side_effect=error))
    with pytest.raises(OSError, match=f"left on device: '{tmp_path}.*Free disk space"):
        find_input("ada/tea")


@pytest.mark.parametrize(
    "source",
    [
        *("./tea", "/ada/tea", "~/ada/tea", r"ada\tea", "tea.zip", "a.b/tea"),
        *("ada/tea/../x", "my photos", "photos/trian", "photos/train/tee"),
    ],
)
def test_a_path_is_never_asked_for(server, source):
    """What is not a slug, or looks like a path here, is not looked up on Kaggle."""
    Path("photos/train/tea").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="Looked in"):
        find_input(source)
    assert server.calls == []


def test_a_misspelt_folder_of_the_main_input_is_no_slug(server, tmp_path):
    """It is not looked up on Kaggle, and the error names the path in the main input."""
    main_input = put_csv(tmp_path / "in", "image_id,label\na.png,daisy\n", ["a.png"])
    (main_input / "more" / "photos").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="Looked in:\n.*/in/more/photo\n"):
        read_inputs(main_input, more_inputs=[{"INPUT_DIR": "more/photo"}])
    assert server.calls == []


def test_a_folder_and_a_mount_come_before_a_download(server, tmp_path, monkeypatch):
    """On Kaggle nothing is downloaded, also where an input is missing."""
    Path("ada/tea").mkdir(parents=True)
    assert find_input("ada/tea") == f"{os.getcwd()}/ada/tea"

    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="attach the input to the notebook"):
        find_input("eva/tea")
    assert server.calls == []


def test_only_the_named_files_of_a_part_are_downloaded(server, monkeypatch):
    """All of one version, also if the dataset gets a new one between two files."""
    names = ["hashes.parquet", "plan.json"]
    files = dict.fromkeys(names, b"h")
    server.datasets["ada/parts"] = {f"part-2/{name}": b"h" for name in [*names, "a-1"]}
    get_dataset = server._GetDataset

    def publish_meanwhile(slug, request):
        answer = get_dataset(slug, request)
        server.versions[slug] = 2
        return answer

    monkeypatch.setattr(server, "_GetDataset", publish_meanwhile)
    folder = find_input("ada/parts/part-2", names=names)

    assert folder.endswith("/cache/datasets/ada/parts/versions/1/part-2")
    assert list_files(folder) == files
    with pytest.raises(FileNotFoundError, match="datasets/ada/parts: .*404"):
        find_input("ada/parts/part-9", names=names)
