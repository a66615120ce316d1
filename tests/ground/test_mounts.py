"""Where inputs are found: Kaggle's mounts, paths, buckets."""

import pytest
from support.inputs import put

from kaggle_tfr import mounts
from kaggle_tfr.mounts import find_beside, find_input


@pytest.fixture
def kaggle(tmp_path, monkeypatch):
    """A machine whose Kaggle mounts lie in a temporary folder; (input, working)."""
    for name in ("input", "working"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(mounts, f"KAGGLE_{name.upper()}", str(tmp_path / name))
    monkeypatch.chdir(tmp_path / "working")
    return tmp_path / "input", tmp_path / "working"


@pytest.mark.parametrize(
    ("mount", "source"),
    [
        ("flowers", "flowers"),
        ("competitions/flowers", "flowers"),
        ("datasets/me/flowers", "flowers"),
        ("datasets/me/flowers", "me/flowers"),
        ("flowers", "me/flowers"),
        ("datasets/me/flowers/part-1", "flowers/part-1"),
        ("datasets/me/flowers/part-1", "me/flowers/part-1"),
    ],
)
def test_a_slug_is_found_on_every_mount(kaggle, mount, source):
    """The mounts of all types and owners are tried, also for folders in them."""
    put(kaggle[0] / mount, [], {"train.csv": ""})
    assert find_input(source) == str(kaggle[0] / mount)


def test_a_file_of_the_sample_is_found_beside_the_work(kaggle, monkeypatch):
    """As given, in the work folder, or in Kaggle's temporary one; slugs stay."""
    work = kaggle[1] / "work"
    monkeypatch.setattr(mounts, "KAGGLE_TEMP", str(kaggle[1] / "temp"))
    for path in ("", "gs://b/part-1"):
        assert find_beside(path, str(work)) == path
    for folder in (kaggle[1] / "temp", work):
        put(folder, [], {"sample/mine.csv": ""})
        found = find_beside("sample/mine.csv", str(work))
        assert found == str(folder / "sample" / "mine.csv")
    assert find_beside("work/sample/mine.csv", "") == "work/sample/mine.csv"


def test_an_empty_mount_is_not_an_input(kaggle):
    """A mount that is not ready yet is an empty folder."""
    (kaggle[0] / "flowers").mkdir()
    with pytest.raises(FileNotFoundError, match=f"Looked in:\n.*\n  {kaggle[0]}/flow"):
        find_input("flowers")


def test_plain_paths_and_buckets_need_no_kaggle(tmp_path, monkeypatch):
    """A folder may be named like a pattern; "" would be the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "set [1]"
    folder.mkdir()

    assert find_input("set [1]") == find_input(folder) == str(folder)
    assert find_input("gs://bucket/part-1/") == "gs://bucket/part-1"
    with pytest.raises(ValueError, match="empty name"):
        find_input("")


def test_notebooks_and_the_command_line_agree_on_folders(tmp_path, monkeypatch):
    """In notebooks/, relative folders start at the project as well."""
    for name in ("kaggle_tfr", "notebooks", "photos"):
        (tmp_path / name).mkdir()
    for folder in (tmp_path, tmp_path / "notebooks"):
        monkeypatch.chdir(folder)
        assert mounts.work_dir("", "leaves") == str(tmp_path / "work/leaves")
        assert mounts.work_dir("runs/1", "leaves") == str(tmp_path / "runs/1")
        assert find_input("photos") == str(tmp_path / "photos")


def test_the_work_folder_on_kaggle_is_the_one_it_keeps(kaggle):
    """/kaggle/working is what Kaggle saves; addresses of buckets pass unchanged."""
    assert mounts.work_dir("", "leaves") == str(kaggle[1])
    assert mounts.work_dir("gs://bucket/run/", "leaves") == "gs://bucket/run"


@pytest.mark.parametrize("name", ["", "..", "/leaves"])
def test_a_name_that_leads_out_of_the_work_folder_is_an_error(name, tmp_path):
    """NAME is a folder's name in work/, unless WORK_DIR is set."""
    with pytest.raises(ValueError, match=f"NAME is '{name}', but .*set WORK_DIR"):
        mounts.work_dir("", name)
    assert mounts.work_dir(str(tmp_path), name) == str(tmp_path)
