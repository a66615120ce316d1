"""Where inputs are found: Kaggle's mounts old and new, paths, buckets."""

import sys
from types import SimpleNamespace

import pytest

from kaggle_tfr import paths
from kaggle_tfr.paths import find_input, input_roots, project_dir, work_dir


@pytest.fixture
def kaggle(tmp_path, monkeypatch):
    """A machine whose Kaggle mounts lie in a temporary folder; (input, working)."""
    inputs, working = tmp_path / "input", tmp_path / "working"
    inputs.mkdir()
    working.mkdir()
    monkeypatch.setattr(paths, "KAGGLE_INPUT", str(inputs))
    monkeypatch.setattr(paths, "KAGGLE_WORKING", str(working))
    monkeypatch.chdir(working)
    return inputs, working


@pytest.fixture
def asked(monkeypatch):
    """Kaggle's own client, answering as it does away from TPU machines; what it was asked."""
    questions = []

    class KaggleDatasets:
        def get_gcs_path(self, slug):
            questions.append(slug)
            if slug != "flowers":
                raise RuntimeError(f"no dataset {slug}")
            return "gs://kds-1234/"

    module = SimpleNamespace(KaggleDatasets=KaggleDatasets)
    monkeypatch.setitem(sys.modules, "kaggle_datasets", module)
    return questions


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
    """
    The old mount, the competitions' and the owners' are all tried, for folders inside as well.
    """
    folder = kaggle[0] / mount
    folder.mkdir(parents=True)

    assert find_input(source) == str(folder)


def test_an_error_lists_the_places_looked_in(kaggle):
    """
    Whoever misspelt a slug sees where it was looked for, and that this is no Kaggle session.
    """
    with pytest.raises(FileNotFoundError) as caught:
        find_input("flovers")

    for place in ("/working/flovers", "/input/flovers", "/input/competitions/flovers"):
        assert place in str(caught.value)
    assert "/input/datasets/*/flovers" in str(caught.value)
    assert "no kaggle_datasets here" in str(caught.value)


def test_kaggle_is_asked_for_the_bucket_when_nothing_is_mounted(kaggle, asked):
    """
    Without a mount the bucket that get_gcs_path names is the input.
    """
    assert find_input("flowers/part-1") == "gs://kds-1234/part-1"
    assert find_input("me/flowers") == "gs://kds-1234"
    with pytest.raises(FileNotFoundError, match="no dataset roses"):
        find_input("roses")


def test_a_remote_tpu_gets_the_bucket_although_a_mount_is_there(kaggle, asked):
    """
    bucket=True asks Kaggle first, and falls back to the mount.
    """
    (kaggle[0] / "flowers").mkdir()
    (kaggle[0] / "roses").mkdir()

    assert find_input("flowers") == str(kaggle[0] / "flowers")
    assert asked == []
    assert find_input("flowers", bucket=True) == "gs://kds-1234"
    assert find_input("roses", bucket=True) == str(kaggle[0] / "roses")


def test_plain_paths_and_buckets_need_no_kaggle(tmp_path, monkeypatch):
    """
    Several sources of any kind give one root each, in their order.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd [1]").mkdir()

    roots = input_roots(["odd [1]", "gs://bucket/part-1/", tmp_path / "odd [1]"])

    assert roots == [str(tmp_path / "odd [1]"), "gs://bucket/part-1", str(tmp_path / "odd [1]")]


def test_an_empty_name_is_no_input():
    """
    "" would be the current folder: it is refused.
    """
    with pytest.raises(ValueError, match="empty name"):
        find_input("")


def test_notebooks_and_the_command_line_agree_on_folders(tmp_path, monkeypatch):
    """
    From notebooks/ as from the top folder, work/ and relative inputs are those of the project.
    """
    monkeypatch.setattr(paths, "KAGGLE_WORKING", str(tmp_path / "nowhere"))
    for name in ("kaggle_tfr", "notebooks", "photos"):
        (tmp_path / name).mkdir()
    found = []
    for folder in (tmp_path, tmp_path / "notebooks"):
        monkeypatch.chdir(folder)
        found.append((project_dir(), work_dir(""), work_dir("runs/1"), find_input("photos")))

    assert found[0] == found[1]
    assert found[0][1:] == tuple(str(tmp_path / name) for name in ("work", "runs/1", "photos"))


def test_the_work_folder_on_kaggle_is_the_one_it_keeps(kaggle):
    """
    /kaggle/working is what Kaggle saves; addresses of buckets pass unchanged.
    """
    assert work_dir("") == str(kaggle[1])
    assert work_dir("gs://bucket/run/") == "gs://bucket/run"
