"""Parts published through the real client to a stub of Kaggle's API on loopback."""

import hashlib
import io
import json
import tarfile

import pytest
from support.kaggle_server import USER, fixture_kaggle, write_part  # noqa: F401

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle.metadata import check_dataset
from kaggle_tfr.kaggle.upload import publish_parts


def make_part(folder, part=1, **changes):
    write_part(folder, {f"tea-{part}.tfrec": bytes(range(200)) * part, "empty.csv": b""})
    metadata = {
        "id": f"INSERT_USERNAME_HERE/tea-tfrecords-{part}",
        "title": f"Tea TFRecords part {part}",
        "licenses": [{"name": "unknown"}],
    }
    (folder / "dataset-metadata.json").write_text(json.dumps(metadata | changes))
    return str(folder)


def publish(folders, **settings):
    return publish_parts(folders, poll_seconds=0.01, wait_seconds=5, say=str, **settings)


def checksums(folder):
    names = [path for path in folder.iterdir() if path.name != "dataset-metadata.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}


def test_each_part_arrives_byte_for_byte(kaggle, tmp_path):
    """
    One `datasets create` a part, every file with its sha256; the second call sends nothing.
    """
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]

    assert list(publish(folders).state) == ["created", "created"]

    for part in (1, 2):
        arrived = kaggle.sha256(f"{USER}/tea-tfrecords-{part}")
        assert arrived == checksums(tmp_path / f"part-{part}")
    sent = len(kaggle.blobs)
    assert list(publish(folders).state) == ["there already", "there already"]
    assert len(kaggle.blobs) == sent


def test_an_upload_that_fails_is_an_error(kaggle, tmp_path, capsys):
    """
    The client makes the dataset without the file and ends with 0; we end with 1 and name it.
    """
    folder = make_part(tmp_path / "part-1")
    before = checksums(tmp_path / "part-1")
    kaggle.break_upload = {"tea-1.tfrec"}

    assert main(["publish", folder]) == 1

    assert "tea-1.tfrec" in capsys.readouterr().err
    assert "tea-1.tfrec" not in kaggle.datasets[f"{USER}/tea-tfrecords-1"]
    assert checksums(tmp_path / "part-1") == before

    kaggle.break_upload = set()
    assert list(publish([folder], notes="whole").state) == ["new version"]
    assert kaggle.sha256(f"{USER}/tea-tfrecords-1") == before


def test_an_upload_that_is_cut_goes_on_in_the_middle(kaggle, tmp_path):
    """
    The connection ends half-way: the client resumes, and the file arrives whole.
    """
    folder = make_part(tmp_path / "part-1")
    kaggle.cut_upload = {"tea-1.tfrec"}

    assert list(publish([folder]).problem) == [""]
    assert kaggle.sha256(f"{USER}/tea-tfrecords-1") == checksums(tmp_path / "part-1")


def test_a_full_quota_is_an_error(kaggle, tmp_path, capsys):
    """
    The server's refusal in the body ends with exit code 1 and its own words.
    """
    folder = make_part(tmp_path / "part-1")
    kaggle.refuse["CreateDataset"] = "You have exceeded your private dataset quota."

    assert main(["publish", folder]) == 1
    assert "exceeded your private dataset quota" in capsys.readouterr().err


def test_a_slug_in_use_is_not_overwritten(kaggle, tmp_path):
    """
    Another dataset of that name stays as it is, unless the notes of a new version are given.
    """
    folder = make_part(tmp_path / "part-1")
    kaggle.datasets[f"{USER}/tea-tfrecords-1"] = {"other.csv": b"mine"}

    (problem,) = publish([folder]).problem

    assert "--notes" in problem
    assert kaggle.datasets[f"{USER}/tea-tfrecords-1"] == {"other.csv": b"mine"}


def test_equal_sizes_do_not_pass_for_equal_files(kaggle, tmp_path):
    """
    A dataset with the same names and sizes but another shards.csv is another one.
    """
    folder = make_part(tmp_path / "part-1")
    publish([folder])
    files = kaggle.datasets[f"{USER}/tea-tfrecords-1"]
    files["shards.csv"] = files["shards.csv"].replace(b"tea", b"pea")

    (problem,) = publish([folder]).problem

    assert "other files" in problem


def test_a_damaged_part_is_not_sent(kaggle, tmp_path):
    """
    A shard that is not what shards.csv says stops everything before the first upload.
    """
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
        ({"id": "tea-tfrecords"}, "is not 'owner/slug'"),
        ({"title": "Tea"}, "'Tea' has 3 characters"),
        ({"subtitle": "Green tea"}, "9 characters; Kaggle wants 20 to 80"),
        ({"licenses": []}, "Kaggle wants exactly one"),
    ],
)
def test_metadata_is_checked_before_anything_is_sent(tmp_path, changes, message):
    """
    What Kaggle would refuse, or silently change, is an error here.
    """
    with pytest.raises(ValueError, match=message):
        check_dataset(make_part(tmp_path / "part-1", **changes))


def test_too_many_files_are_an_error(tmp_path):
    """
    Kaggle takes 50 files at the top of a dataset; a folder counts as one.
    """
    folder = tmp_path / "part-1"
    make_part(folder)
    (folder / "train").mkdir()
    for number in range(47):
        (folder / f"{number}.txt").touch()

    with pytest.raises(ValueError, match="51 files; Kaggle takes 50"):
        check_dataset(str(folder))


def test_folders_of_shards_travel_as_archives(kaggle, tmp_path):
    """
    The client by itself leaves folders out without a word, such as the shards of "train/…".
    """
    folder = make_part(tmp_path / "part-1")
    (tmp_path / "part-1" / "train").mkdir()
    (tmp_path / "part-1" / "train" / "a.tfrecord").write_bytes(b"records")

    assert list(publish([folder]).state) == ["created"]
    archive = kaggle.datasets[f"{USER}/tea-tfrecords-1"]["train.tar"]
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.extractfile("a.tfrecord").read() == b"records"
