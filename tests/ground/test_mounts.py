"""Where inputs are found: Kaggle's mounts, paths, buckets."""

import sys
from types import SimpleNamespace

import pytest

from kaggle_tfr import mounts
from kaggle_tfr.mounts import find_input


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
    """The old mount, the competitions' and the owners' are all tried, also for folders inside."""
    (kaggle[0] / mount).mkdir(parents=True)
    (kaggle[0] / mount / "train.csv").touch()
    assert find_input(source) == str(kaggle[0] / mount)


def test_an_error_lists_the_paths_looked_at(kaggle):
    """Whoever misspelt a slug sees where it was looked for, and that this is no Kaggle session."""
    with pytest.raises(FileNotFoundError) as caught:
        find_input("flovers")

    mounts = [f"/input/{kind}flovers" for kind in ("", "competitions/", "datasets/*/")]
    for said in ("/working/flovers", *mounts, "no kaggle_datasets here"):
        assert said in str(caught.value)


def test_kaggle_is_asked_for_the_bucket_when_nothing_is_mounted(kaggle, monkeypatch):
    """Without a mount the bucket that get_gcs_path names for a slug is the input."""

    class KaggleDatasets:
        def get_gcs_path(self, slug):
            if slug != "flowers":
                raise RuntimeError(f"no dataset {slug}")
            return "gs://kds-1234/"

    client = SimpleNamespace(KaggleDatasets=KaggleDatasets)
    monkeypatch.setitem(sys.modules, "kaggle_datasets", client)

    assert find_input("flowers/part-1") == "gs://kds-1234/part-1"
    assert find_input("me/flowers") == "gs://kds-1234"
    with pytest.raises(FileNotFoundError, match="no dataset roses"):
        find_input("roses")
    (kaggle[0] / "flowers").mkdir()
    assert (
        find_input("flowers") == "gs://kds-1234"
    )  # a mount that is empty is not ready yet
    (kaggle[0] / "flowers" / "train.csv").touch()
    assert find_input("flowers") == str(kaggle[0] / "flowers")


def test_a_mount_that_kaggle_only_names_is_no_input(kaggle, monkeypatch):
    """On a TPU machine get_gcs_path answers with a path, whether or not it is there."""
    own = SimpleNamespace(get_gcs_path=lambda slug: f"{kaggle[0]}/{slug}")
    client = SimpleNamespace(KaggleDatasets=lambda: own)
    monkeypatch.setitem(sys.modules, "kaggle_datasets", client)
    with pytest.raises(FileNotFoundError, match="flowers', which does not exist"):
        find_input("flowers")


def test_plain_paths_and_buckets_need_no_kaggle(tmp_path, monkeypatch):
    """A folder is itself, also one named like a pattern; "" would be the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "set [1]"
    folder.mkdir()

    assert find_input("set [1]") == find_input(folder) == str(folder)
    assert find_input("gs://bucket/part-1/") == "gs://bucket/part-1"
    with pytest.raises(ValueError, match="empty name"):
        find_input("")


def test_notebooks_and_the_command_line_agree_on_folders(tmp_path, monkeypatch):
    """From notebooks/ as from the top, work/ and relative inputs are those of the project."""
    monkeypatch.setattr(mounts, "KAGGLE_WORKING", str(tmp_path / "nowhere"))
    for name in ("kaggle_tfr", "notebooks", "photos"):
        (tmp_path / name).mkdir()
    found = []
    for folder in (tmp_path, tmp_path / "notebooks"):
        monkeypatch.chdir(folder)
        found.append(
            [mounts.work_dir(""), mounts.work_dir("runs/1"), find_input("photos")]
        )

    assert (
        found[0]
        == found[1]
        == [str(tmp_path / name) for name in ("work", "runs/1", "photos")]
    )


def test_the_work_folder_on_kaggle_is_the_one_it_keeps(kaggle):
    """/kaggle/working is what Kaggle saves; addresses of buckets pass unchanged."""
    assert mounts.work_dir("") == str(kaggle[1])
    assert mounts.work_dir("gs://bucket/run/") == "gs://bucket/run"
