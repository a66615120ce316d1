"""Where inputs are found: paths, buckets, Kaggle's mounts, and kagglehub's downloads.

The real kagglehub downloads from a stub of Kaggle on loopback.
"""

import errno
import os
from pathlib import Path
from unittest import mock

import pytest
from support.inputs import put
from support.kaggle_server import fixture_kaggle  # noqa: F401

from kaggle_tfr import find
from kaggle_tfr.find import find_beside, find_input

CASSAVA = "cassava-leaf-disease-classification"
FILES = {"train.csv": b"image_id,label\n", "more/1.txt": b"one"}


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """A machine whose Kaggle mounts lie in a temporary folder; (input, working)."""
    for name in ("input", "working"):
        (tmp_path / name).mkdir()
        constant = f"KAGGLE_{name.upper()}"
        assert getattr(find, constant) == f"/kaggle/{name}"
        monkeypatch.setattr(find, constant, str(tmp_path / name))
    monkeypatch.chdir(tmp_path / "working")
    return tmp_path / "input", tmp_path / "working"


@pytest.fixture
def server(kaggle, tmp_path, monkeypatch):
    """The stub, with a machine that is not Kaggle's: no mounts, an empty folder."""
    monkeypatch.setattr(find, "KAGGLE_INPUT", str(tmp_path / "no" / "input"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    kaggle.competitions[CASSAVA] = FILES
    kaggle.datasets["ada/tea"] = FILES
    return kaggle


def list_files(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("mount", "source"),
    [
        ("competitions/flowers", "competitions/flowers"),
        ("notebooks/me/flowers", "flowers"),
        ("datasets/me/flowers/part-1", "me/flowers/part-1"),
        ("flowers", "datasets/me/flowers"),
        ("flowers", "me/flowers"),
    ],
)
def test_a_slug_is_found_on_every_mount(mounts, mount, source):
    """The mounts of all types and owners are tried, also for folders in them."""
    put(mounts[0] / mount, [], {"train.csv": ""})
    assert find_input(source) == str(mounts[0] / mount)


def test_an_empty_mount_is_not_an_input(mounts):
    """A mount that is not ready yet is an empty folder; nothing is downloaded there.

    Neither is a file in another mount.
    """
    (mounts[0] / "flowers").mkdir()
    put(mounts[0] / "tea", [], {"flowers": ""})
    with pytest.raises(FileNotFoundError, match=f"Looked in .* and {mounts[0]}. Give"):
        find_input("flowers")


def test_a_file_is_found_below_the_first_folder_that_has_it(tmp_path, monkeypatch):
    """Such as one of the sample; slugs stay."""
    monkeypatch.chdir(tmp_path)
    folders = ("", f"{tmp_path}/work", f"{tmp_path}/temp")
    assert find_beside("", *folders) == ""
    assert find_beside("ada/part-1", *folders) == "ada/part-1"
    for folder in reversed(folders):
        put(tmp_path / folder, [], {"sample/mine.csv": ""})
        found = find_beside("sample/mine.csv", *folders)
        assert found == os.path.join(folder, "sample/mine.csv")


def test_plain_paths_and_buckets_need_no_kaggle(tmp_path, monkeypatch):
    """A folder may be named like a pattern; "" would be the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "set [1]"
    folder.mkdir()

    assert find_input("set [1]") == find_input(folder) == str(folder)
    assert find_input("gs://bucket/part-1/") == "gs://bucket/part-1"
    with pytest.raises(ValueError, match="is empty"):
        find_input("")


def test_the_work_folder_on_kaggle_is_the_one_it_keeps(mounts):
    """/kaggle/working is what Kaggle saves; addresses of buckets pass unchanged."""
    assert find.work_dir({"WORK_DIR": ""}) == str(mounts[1])
    assert find.work_dir({"WORK_DIR": "gs://bucket/run/"}) == "gs://bucket/run"


@pytest.mark.parametrize("name", ["", "..", "/leaves"])
def test_a_name_that_leads_out_of_the_work_folder_is_an_error(name):
    """NAME is a folder's name in work/, unless WORK_DIR is set."""
    values = {"WORK_DIR": "", "NAME": "tea"}
    assert find.work_dir(values) == os.path.abspath("work/tea")
    with pytest.raises(ValueError, match=f"NAME is '{name}', but .*set WORK_DIR"):
        find.work_dir({"WORK_DIR": "", "NAME": name})
    assert find.work_dir({"WORK_DIR": "~/tea"}) == os.path.expanduser("~/tea")


@pytest.mark.parametrize(
    ("source", "cached", "files"),
    [
        (CASSAVA, f"competitions/{CASSAVA}", FILES),
        ("ada/tea/", "datasets/ada/tea/versions/1", FILES),
        (
            f"competitions/{CASSAVA}/more",
            f"competitions/{CASSAVA}/more",
            {"1.txt": b"one"},
        ),
    ],
)
def test_a_slug_is_downloaded_unless_a_folder_has_its_name(
    server, source, cached, files
):
    """The cache is that of kagglehub."""
    folder = find_input(source)
    assert folder.endswith(f"/cache/{cached}")
    assert list_files(folder) == files

    Path(source).mkdir(parents=True)
    assert find_input(source) == f"{os.getcwd()}/{source}".rstrip("/")


def test_only_the_named_files_of_a_part_are_downloaded(server):
    """Such as the fingerprints of a dataset of 19 GB."""
    names = ["hashes.parquet", "plan.json"]
    server.datasets["ada/parts"] = {f"part-2/{name}": b"h" for name in [*names, "a-1"]}

    folder = find_input("ada/parts/part-2", names=names)

    assert folder.endswith("/cache/datasets/ada/parts/versions/1/part-2")
    assert list_files(folder) == dict.fromkeys(names, b"h")
    with pytest.raises(FileNotFoundError, match="asked Kaggle: 404"):
        find_input("ada/parts/part-9", names=names)


def test_a_refusal_of_kaggle_is_explained(server):
    """With the folder that is missing, Kaggle's reason, and what to do."""
    server.errors["DownloadDataFiles"] = 403, "Denied"
    message = f"{os.getcwd()}/{CASSAVA} and .*(?s:asked.* accepted .*save it in ~/)"
    with pytest.raises(FileNotFoundError, match=message):
        find_input(CASSAVA)


def test_a_full_disk_is_named(server, monkeypatch):
    """With what to do."""
    error = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("zipfile.ZipFile.extractall", mock.Mock(side_effect=error))
    with pytest.raises(OSError, match="left on device: 'ada/tea'. Free disk space"):
        find_input("ada/tea")


@pytest.mark.parametrize("source", ["./tea", "~/ada/tea", "tea.zip", "in/tea"])
def test_a_path_is_never_asked_for(server, source):
    """What is not a slug is not looked up on Kaggle, nor a folder of one here."""
    put(Path("in"), [], {"1.txt": ""})
    with pytest.raises(FileNotFoundError, match="Looked in"):
        find_input(source)
    assert server.calls == []
