"""Parts published through the real client to a stub of Kaggle's API on loopback."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from support.kaggle_server import USER, fixture_kaggle, write_part  # noqa: F401
from support.plans import digests

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle.metadata import DATASET_FILE, check_metadata
from kaggle_tfr.kaggle.upload import publish_parts

TEA = f"{USER}/tea-tfrecords-1"


def make_part(folder, part=1, **changes):
    write_part(folder, {f"tea-{part}.tfrec": bytes(range(200)) * part, "empty.csv": b""})
    metadata = {"id": f"INSERT_USERNAME_HERE/tea-tfrecords-{part}"}
    metadata |= {"title": f"Tea TFRecords part {part}", "licenses": [{"name": "unknown"}]}
    (folder / DATASET_FILE).write_text(json.dumps(metadata | changes))
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    return Path(make_part(tmp_path / "part-1"))


def publish(folders, notes=""):
    return publish_parts([str(folder) for folder in folders], notes=notes, poll_seconds=0.01)


def checksums(folder):
    return {name: sha256 for name, sha256 in digests(folder).items() if name != DATASET_FILE}


def test_each_part_arrives_byte_for_byte(kaggle, tmp_path):
    """One `datasets create` a part, every file with its sha256; the second call sends nothing.

    An upload that is cut goes on in the middle; a sub-folder travels as an archive.
    """
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    sums = [checksums(folder) for folder in folders]
    (tmp_path / "part-1" / "train").mkdir()
    (tmp_path / "part-1" / "train" / "a.tfrecord").write_bytes(b"records")
    kaggle.cut_upload = {"tea-1.tfrec"}

    assert list(publish(folders).state) == ["created", "created"]

    archive = kaggle.datasets[TEA]["train.tar"]
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.extractfile("a.tfrecord").read() == b"records"
    found = [kaggle.sha256(f"{USER}/tea-tfrecords-{part}") for part in (1, 2)]
    del found[0]["train.tar"]
    assert found == sums
    sent = len(kaggle.blobs)
    assert list(publish(folders).state) == ["there already", "there already"]
    assert len(kaggle.blobs) == sent


def test_an_upload_that_fails_is_an_error(kaggle, folder, capsys):
    """The client makes the dataset without the file and ends with 0; we end with 1 and name it."""
    before = checksums(folder)
    kaggle.break_upload = {"tea-1.tfrec"}
    assert main(["publish", str(folder)]) == 1
    assert "tea-1.tfrec" in capsys.readouterr().err
    assert "tea-1.tfrec" not in kaggle.datasets[TEA]
    assert checksums(folder) == before
    kaggle.break_upload = set()
    assert list(publish([folder], notes="whole").state) == ["new version"]
    assert kaggle.sha256(TEA) == before


def test_a_dataset_of_many_files_is_compared_page_by_page(kaggle, folder):
    """Kaggle lists at most 200 files at a time; a folder that it has unpacked may hold more."""
    (folder / "train").mkdir()
    for number in range(450):
        (folder / "train" / f"{number}.tfrecord").write_bytes(b"records")
    paths = [path for path in folder.rglob("*.*") if path.name != DATASET_FILE]
    kaggle.datasets[TEA] = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    assert list(publish([folder]).state) == ["there already"]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (("deny", "GetDatasetStatus"), "Too many requests for ada/tea-404 Not Found-3"),
        (("refuse", "CreateDataset"), "You have exceeded your private dataset quota."),
    ],
)
def test_a_refusal_is_an_error(kaggle, folder, capsys, refusal, message):
    """It ends with code 1 and the server's words; one that mentions 404 is no missing dataset."""
    kind, method = refusal
    getattr(kaggle, kind)[method] = message
    assert main(["publish", str(folder)]) == 1
    assert message in capsys.readouterr().err
    assert kaggle.calls[-1] == method


def test_a_slug_in_use_is_not_overwritten(kaggle, folder):
    """A dataset of that name with other names, or other checksums, stays without --notes."""
    same_sizes = {path.name: path.read_bytes() for path in folder.glob("*.[ct]*")}
    same_sizes["shards.csv"] = same_sizes["shards.csv"].replace(b"tea", b"pea")
    for files in ({"other.csv": b"mine"}, same_sizes):
        kaggle.datasets[TEA] = files
        assert re.search("other files.*--notes", publish([folder]).problem[0])
        assert kaggle.datasets[TEA] == files


def test_a_damaged_part_is_not_sent(kaggle, tmp_path):
    """A shard that is not what shards.csv says stops everything before the first upload."""
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    (tmp_path / "part-2" / "tea-2.tfrec").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"tea-2\.tfrec"):
        publish(folders)
    assert kaggle.blobs == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "x"}, r'no such key.*Did you mean "title"'),
        ({"id": "ada/tea"}, "'tea' has 3 characters; Kaggle wants 6 to 50"),
        ({"subtitle": "Green tea"}, "9 characters; Kaggle wants 20 to 80"),
        ({"licenses": []}, "Kaggle wants exactly one"),
    ],
)
def test_metadata_is_checked_before_anything_is_sent(tmp_path, changes, message):
    """What Kaggle would refuse, or silently change, is an error here."""
    with pytest.raises(ValueError, match=message):
        check_metadata(make_part(tmp_path / "part-1", **changes), DATASET_FILE)


def test_too_many_files_are_an_error(folder):
    """Kaggle takes 50 files at the top of a dataset; a folder counts as one."""
    (folder / "train").mkdir()
    for number in range(47):
        (folder / f"{number}.txt").touch()
    with pytest.raises(ValueError, match="51 files; Kaggle takes 50"):
        check_metadata(str(folder), DATASET_FILE)
