"""Slugs off Kaggle: the real kagglehub downloads from a stub of Kaggle on loopback."""

import multiprocessing
import os
import re
from functools import partial
from pathlib import Path

import pytest
from support.inputs import put_csv
from support.inputs import read as read_inputs
from support.kaggle_server import fixture_kaggle  # noqa: F401
from support.readers import make_picture

from kaggle_tfr import downloads, mounts
from kaggle_tfr.mounts import find_input, find_part_files, locate_input

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
    ("source", "cached", "method"),
    [
        (CASSAVA, f"competitions/{CASSAVA}", "DownloadDataFiles"),
        ("ada/tea", "datasets/ada/tea/versions/1", "DownloadDataset"),
        ("datasets/ada/tea/", "datasets/ada/tea/versions/1", "DownloadDataset"),
    ],
)
def test_a_slug_is_downloaded_once(server, capsys, source, cached, method):
    """The first call says what is downloaded and where to; the second loads no data."""
    assert locate_input(source) == ""

    cache = downloads.cache_folder()
    folder = find_input(source)

    assert folder == f"{cache}/{cached}"
    assert list_files(folder) == FILES
    out = capsys.readouterr().out
    url = f"https://www.kaggle.com/{cached.split('/versions')[0]}"
    assert f"Requesting {url}; downloads are kept in {cache}\n" in out
    assert re.search(rf"{url}, downloaded on \d{{4}}-\d\d-\d\d: {folder}\n", out)
    assert server.calls.count(method) == 1

    assert find_input(source) == locate_input(source) == folder
    assert server.calls.count(method) == 1
    assert "Requesting" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("find", "files"),
    [
        (partial(find_input, "ada/tea"), FILES),
        (
            partial(find_part_files, "ada/tea", ["train.csv"]),
            {"train.csv": FILES["train.csv"]},
        ),
    ],
)
def test_two_processes_download_once(server, find, files):
    """The second one waits, instead of writing over what the first one reads."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=find, daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert list_files(find()) == files
    methods = [call for call in server.calls if call.startswith("Download")]
    assert len(methods) == 1


def test_subfolders_of_both_types_are_found(server, tmp_path):
    """The name a/b is a folder of the competition a, if there is no dataset a/b."""
    for source in (f"{CASSAVA}/more", f"competitions/{CASSAVA}/more", "ada/tea/more"):
        assert list_files(find_input(source)) == {"1.txt": b"one"}
    with pytest.raises(
        FileNotFoundError, match="has no folder 'part-9'. It contains: mo"
    ):
        find_input("ada/tea/part-9")


def test_a_new_version_of_a_dataset_is_downloaded(server):
    """A cached version is used without network, with a warning."""
    old = find_input("ada/tea")
    server.versions["ada/tea"] = 12
    server.datasets["ada/tea"] = {"new.csv": b"x"}

    new = find_input("ada/tea")

    assert (old[-2:], new[-3:]) == ("/1", "/12")
    assert list_files(new) == {"new.csv": b"x"}


def test_what_is_cached_needs_no_network(server, monkeypatch, capsys):
    """Dataset and competition are used as they are; the dataset with a warning."""
    folders = [find_input(source) for source in ("ada/tea", CASSAVA)]
    capsys.readouterr()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert [find_input(source) for source in ("ada/tea", CASSAVA)] == folders

    printed = capsys.readouterr().out
    assert "WARNING: https://www.kaggle.com/datasets/ada/tea: Kaggle was not" in printed
    assert f"{CASSAVA}, downloaded on 20" in printed


@pytest.mark.parametrize(
    ("source", "status", "error_type", "messages"),
    [
        (
            CASSAVA,
            403,
            PermissionError,
            [f"Accept them at https://www.kaggle.com/competitions/{CASSAVA}/rules"],
        ),
        (
            CASSAVA,
            404,
            FileNotFoundError,
            ["there is no such competition. The slug of a dataset"],
        ),
        (
            "ada/tea",
            403,
            PermissionError,
            [
                "/datasets/ada/tea: it is private, or does not exist. Check the name",
                "/competitions/ada: there is no",
            ],
        ),
    ],
)
def test_a_refusal_of_kaggle_says_what_to_do(
    server, source, status, error_type, messages
):
    """Each address that was tried is named with its reason, and the local path too."""
    server.deny_download[source] = status

    with pytest.raises(error_type) as caught:
        find_input(source)

    for message in [
        f"'{source}' {mounts.MISSING_INPUT}",
        f"\n  {os.getcwd()}/{source}\n",
        *messages,
    ]:
        assert message in str(caught.value)
    assert type(caught.value) is error_type
    assert not any(path.is_file() for path in Path(downloads.cache_folder()).rglob("*"))


def test_without_credentials_a_competition_names_the_token(server, monkeypatch):
    """A public dataset is downloaded without credentials."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(
        PermissionError, match="needs credentials.*save it in ~/.kaggle"
    ):
        find_input(CASSAVA)
    assert list_files(find_input("ada/tea")) == FILES


def test_a_damaged_archive_is_named(server, monkeypatch):
    """What kagglehub cannot extract must be removed, or it is found the next time."""
    monkeypatch.setattr("support.kaggle_server._zip", lambda _: b"<html>Log in</html>")
    folder = f"{downloads.cache_folder()}/datasets/ada/tea"
    with pytest.raises(
        OSError, match=f"Unsupported archive type. If .* remove '{folder}'. Then"
    ):
        find_input("ada/tea")


@pytest.mark.parametrize(
    "source",
    [
        *("./tea", "/ada/tea", "~/ada/tea", r"ada\tea", "tea.zip", "a.b/tea"),
        *("ada/tea/../x", "ada//tea", "my photos", "photos/trian", "photos/train/tee"),
    ],
)
def test_a_path_is_never_asked_for(server, source):
    """What is not a slug, or looks like a path here, is not looked up on Kaggle."""
    Path("photos/train/tea").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="Looked in"):
        find_input(source)
    assert server.calls == []


def test_a_folder_here_hides_a_dataset(server):
    """The error names it; a type in front of the name downloads the dataset."""
    server.datasets["photos/train-2"] = FILES
    Path("photos").mkdir()
    with pytest.raises(FileNotFoundError, match="The folder 'photos' is here.* write"):
        find_input("photos/train-2")
    assert list_files(find_input("datasets/photos/train-2")) == FILES


def test_a_further_input_is_a_slug_or_a_folder_of_the_first(server, tmp_path):
    """A misspelt folder of the main input is not looked up on Kaggle."""
    main_input = put_csv(tmp_path / "in", "image_id,label\na.png,daisy\n", ["a.png"])
    (main_input / "more" / "photos").mkdir(parents=True)
    image = make_picture(9, 40, 30, "PNG")
    names = ("flower_photos/daisy/0.png", "flower_photos/rose/1.png")
    server.datasets["ada/tea"] = dict.fromkeys(names, image)
    folders = {"PATTERN": "*/*/*"}

    more = [{"INPUT_DIR": "ada/tea", "LABEL_MAP": {"rose": ""}, **folders}]
    images, _ = read_inputs(main_input, more_inputs=more)
    assert images["source"].tolist() == [0, 1, 1]

    server.calls.clear()
    with pytest.raises(FileNotFoundError, match="Looked in:(.*\n)*.*/in/more/photo\n"):
        read_inputs(main_input, more_inputs=[{"INPUT_DIR": "more/photo", **folders}])
    assert server.calls == []


def test_a_folder_and_a_mount_come_before_a_download(server, tmp_path, monkeypatch):
    """On Kaggle nothing is downloaded, also where an input is missing."""
    Path("ada/tea").mkdir(parents=True)
    assert find_input("ada/tea") == f"{os.getcwd()}/ada/tea"
    assert find_part_files("ada/tea", ["a"]) == f"{os.getcwd()}/ada/tea"

    mount = tmp_path / "input" / "competitions" / CASSAVA
    mount.mkdir(parents=True)
    (mount / "train.csv").touch()
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "input"))
    assert find_input(CASSAVA) == str(mount)
    with pytest.raises(FileNotFoundError, match="Attach the dataset to the notebook"):
        find_input("ada/coffee")
    assert server.calls == []


def test_only_the_named_files_of_a_part_are_downloaded(server, capsys):
    """All of one version, once; a subfolder may hold the part."""
    files = {"hashes.parquet": b"h", "plan.json": b"{}", "a-1.tfrec": bytes(1 << 20)}
    server.datasets["ada/leaves"] = files
    server.datasets["ada/parts"] = {f"part-2/{name}": files[name] for name in files}

    folder = find_part_files("ada/leaves", ["hashes.parquet", "plan.json"])
    again = find_part_files("ada/leaves", ["plan.json"])
    below = find_part_files("datasets/ada/parts/part-2/", ["hashes.parquet"])

    cache = downloads.cache_folder()
    assert folder == again == f"{cache}/datasets/ada/leaves/versions/1"
    assert list_files(folder) == {"hashes.parquet": b"h", "plan.json": b"{}"}
    assert below == f"{cache}/datasets/ada/parts/versions/1/part-2"
    names = ["hashes.parquet", "plan.json", "part-2/hashes.parquet"]
    assert server.downloaded == names
    assert locate_input("ada/leaves") == ""  # which needs all files
    assert capsys.readouterr().out.count("/datasets/ada/leaves; downloads are") == 1


def test_files_are_of_the_newest_version_and_of_one(server, monkeypatch):
    """Also if the dataset gets a new version between two files."""
    server.datasets["ada/tea"] = {"a": b"1", "b": b"1"}
    find_part_files("ada/tea", ["a"])
    server.versions["ada/tea"] = 12
    get_dataset = server._GetDataset

    def publish_meanwhile(slug, request):
        answer = get_dataset(slug, request)
        server.versions[slug] += 1
        return answer

    monkeypatch.setattr(server, "_GetDataset", publish_meanwhile)
    folder = find_part_files("ada/tea", ["a", "b"])

    assert folder.endswith("/ada/tea/versions/12")
    assert list_files(folder) == {"a": b"1", "b": b"1"}
    assert server.calls.count("GetDataset") == 2


def test_a_file_that_a_dataset_lacks_is_named(server):
    """So are a name that is no dataset, and a file outside the folder."""
    with pytest.raises(FileNotFoundError) as caught:
        find_part_files("ada/tea/more", ["1.txt", "hashes.parquet"])
    message = "ada/tea: there is no file 'more/hashes.parquet' in it"
    assert message in str(caught.value).replace("/versions/1", "")

    server.deny_download["ada/tea"] = 403
    with pytest.raises(PermissionError, match="it is private, or does not exist"):
        find_part_files("ada/tea", ["1.txt"])
    with pytest.raises(FileNotFoundError, match="parts are published as datasets"):
        find_part_files(CASSAVA, ["1.txt"])
    with pytest.raises(ValueError, match="'../x' is outside"):
        find_part_files("ada/coffee", ["../x"])
    assert server.downloaded == ["more/1.txt", "more/hashes.parquet"]
