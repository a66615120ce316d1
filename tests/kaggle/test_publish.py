"""Parts published through the real client to a stub of Kaggle's API on loopback."""

import ast
import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from support.kaggle_server import USER, fixture_kaggle, write_part  # noqa: F401
from support.plans import digests, make_images, plan_images
from support.processes import call_python

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle import upload
from kaggle_tfr.kaggle.metadata import DATASET_FILE, check_metadata
from kaggle_tfr.kaggle.upload import publish_parts
from kaggle_tfr.write.writer import write_parts

TEA = f"{USER}/tea-tfrecords-1"


def make_part(folder, part=1, shards=(), **changes):
    usual = {f"tea-{part}.tfrec": bytes(range(200)) * part, "empty.csv": b""}
    write_part(folder, dict(shards) or usual)
    metadata = {
        "id": f"INSERT_USERNAME_HERE/tea-tfrecords-{part}",
        "title": f"Tea TFRecords part {part}",
        "licenses": [{"name": "CC0-1.0"}],
    }
    (folder / DATASET_FILE).write_text(json.dumps(metadata | changes))
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    return Path(make_part(tmp_path / "part-1"))


FRESH_PROCESS = """
import sys
from functools import partial
import kaggle_tfr_sample
from kaggle import KaggleApi
from kaggle_tfr.__main__ import main

KaggleApi.args, KaggleApi.config_dir = ["--local"], "."
small = partial(kaggle_tfr_sample.write_sample, scale=1 / 20)
kaggle_tfr_sample.write_sample = small
lines = "sample s|notebooks n|init s -o r.yaml|init part-1 -o p.yaml"
lines += "|init ada/tea -o t.yaml"
lines += "|kernel sample --out k|push k --out got|publish part-1|kernel t.yaml --out k"
codes = {line: main(line.split()) for line in lines.split("|")}
sys.exit(f"{codes}, TensorFlow: {'tensorflow' in sys.modules}")
"""


def publish(folders, notes=""):
    return publish_parts([str(folder) for folder in folders], notes=notes)


def create_dataset(folder):
    """Publish a part, and check that its dataset is created."""
    assert list(publish([folder]).state) == ["created"]


def checksums(folder):
    sums = digests(folder)
    del sums[DATASET_FILE]
    return sums


def test_each_part_arrives_byte_for_byte(kaggle, tmp_path):
    """Every file arrives with its sha256; the second call sends nothing.

    An upload that is cut is resumed; a folder is sent as an archive, unless empty.
    """
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    sums = [checksums(folder) for folder in folders]
    (tmp_path / "part-1" / "test").mkdir()
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


def test_what_killed_runs_left_is_not_sent(kaggle, folder):
    """Temporary files in the part and in its folders are removed first."""
    inside = folder / "index" / "train"
    inside.mkdir(parents=True)
    (inside / "a.idx").write_bytes(b"0 16")
    names = [f"index/train/b.idx.{'0a' * 16}.tmp", f"stats.json.{'0a' * 16}.tmp"]
    for name in names:
        (folder / name).write_bytes(b"half")
    create_dataset(folder)
    with tarfile.open(fileobj=io.BytesIO(kaggle.datasets[TEA]["index.tar"])) as files:
        assert [name for name in files.getnames() if "." in name] == ["train/a.idx"]
    assert [name for name in kaggle.datasets[TEA] if name.endswith(".tmp")] == []
    assert list(folder.rglob("*.tmp")) == []


def test_an_upload_that_breaks_off_goes_on_file_by_file(kaggle, folder, capsys):
    """The file is named; the next call sends only the other half of that file."""
    (folder / "index").mkdir()
    (folder / "index" / "a.idx").write_bytes(b"0 16")
    before = checksums(folder)
    del before["index/a.idx"]
    kaggle.break_upload = {"tea-1.tfrec"}
    assert main(["publish", str(folder)]) == 1
    assert (
        "tea-1.tfrec. Run the same command again: it resumes where it stopped"
        in capsys.readouterr().err
    )
    assert kaggle.datasets == {}
    kaggle.break_upload, sent = set(), set(kaggle.received)
    kaggle.received.clear()
    create_dataset(folder)
    assert {name: kaggle.received.get(name) for name in sent} == {
        name: 100 if name == "tea-1.tfrec" else None for name in sent
    }
    assert before.items() <= kaggle.sha256(TEA).items()
    assert "index.tar" in kaggle.datasets[TEA]


def test_a_folder_that_kaggle_has_unpacked_is_compared_file_by_file(kaggle, folder):
    """An equal dataset is left alone; one that lacks a file is not equal.

    Kaggle lists 200 files at a time.
    """
    (folder / "train").mkdir()
    for number in range(450):
        (folder / "train" / f"{number}.tfrec").write_bytes(b"tea")
    create_dataset(folder)
    unpacked = kaggle.datasets[TEA]
    del unpacked["train.tar"]
    for number in range(450):
        unpacked[f"train/{number}.tfrec"] = b"tea"
    assert list(publish([folder]).state) == ["there already"]
    del unpacked["train/449.tfrec"]
    assert "exists with other files" in publish([folder]).problem[0]


def test_a_file_that_client_2_2_4_drops_is_noticed(kaggle, tmp_path, monkeypatch):
    """It drops a file whose upload fails, without an error."""
    own = upload.call

    def call(method, name, *arguments, **options):
        answer = own(method, name, *arguments, **options)
        if method == "dataset_create_new":
            del kaggle.datasets[TEA]["tea-1.tfrec"]
        return answer

    monkeypatch.setattr(upload, "call", call)
    (row,) = publish([make_part(tmp_path / "one")]).itertuples()
    assert row.state == "failed"
    assert row.problem.startswith(
        "tea-1.tfrec has 200 bytes here, no on Kaggle. Publish again"
    )


def test_what_passes_a_limit_is_refused_before_the_first_byte(kaggle, folder, capsys):
    """Kaggle takes 200 GB in a dataset, and 50 files at its top."""
    with open(folder / "hole.tfrec", "wb") as file:
        file.truncate(200 * 10**9)
    for number in range(58):
        (folder / f"{number}.tfrec").touch()
    assert main(["publish", str(folder)]) == 1
    message = capsys.readouterr().err
    assert "Kaggle accepts 200,000,000,000 in a dataset" in message
    assert re.search("63 files .* accepts 50.*MAX_PART_FILES", message)
    assert kaggle.received == {}


def test_a_quota_exceeded_without_a_word_is_an_error(kaggle, folder, monkeypatch):
    """Kaggle answers that it makes the dataset, and makes none."""
    monkeypatch.setattr(upload, "MAX_WAIT_SECONDS", 0)
    kaggle.quota_exceeded = True
    (row,) = publish([folder]).itertuples()
    assert row.state == "failed"
    assert "missing (quota exceeded?)" in row.problem


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (("deny", "GetDatasetStatus"), "Too many requests for ada/tea-404 Not Found-3"),
        (("refuse", "CreateDataset"), "You have exceeded your private dataset quota."),
    ],
)
def test_a_refusal_is_an_error(kaggle, folder, capsys, refusal, message):
    """The exit code is 1; an error that mentions 404 is not a missing dataset."""
    kind, method = refusal
    getattr(kaggle, kind)[method] = message
    assert main(["publish", str(folder)]) == 1
    assert message in capsys.readouterr().err
    assert kaggle.calls[-1] == method


def test_a_forbidden_status_means_that_the_dataset_is_not_there(kaggle, folder):
    """Kaggle answers 403 for a private dataset that does not exist: it is created."""
    kaggle.missing = 403
    create_dataset(folder)
    assert checksums(folder).items() <= kaggle.sha256(TEA).items()


def test_a_slug_in_use_is_not_overwritten(kaggle, folder):
    """A dataset with other names or checksums is not replaced without --notes."""
    names = ("tea-1.tfrec", "empty.csv", "shards.csv", "SHA256SUMS")
    same_sizes = {name: (folder / name).read_bytes() for name in names}
    same_sizes["SHA256SUMS"] = same_sizes["SHA256SUMS"].replace(b"tea", b"pea")
    for files in ({"other.csv": b"mine"}, same_sizes):
        kaggle.datasets[TEA] = files
        assert re.search("other files.*--notes", publish([folder]).problem[0])
        assert kaggle.datasets[TEA] == files


def test_a_damaged_part_is_not_sent(kaggle, tmp_path):
    """A shard that differs from SHA256SUMS stops everything before the first upload."""
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    (tmp_path / "part-2" / "tea-2.tfrec").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"tea-2\.tfrec"):
        publish(folders)
    assert kaggle.blobs == {}


@pytest.mark.parametrize("name", ["link", "train/link"])
@pytest.mark.parametrize("target", ["secret.txt", "."])
def test_a_link_out_of_the_part_is_not_sent(kaggle, folder, tmp_path, name, target):
    """A foreign part could link to any file of this machine; the link is named."""
    (tmp_path / "secret.txt").write_text("key")
    (folder / "train").mkdir()
    (folder / "train" / "inside").symlink_to("../empty.csv")
    (folder / name).symlink_to(tmp_path / target)
    with pytest.raises(
        ValueError, match=f"{name}: a link out of the part, to '{tmp_path}"
    ):
        publish([folder])
    assert kaggle.received == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "ada/tea"}, "'tea' has 3 characters; Kaggle requires 6 to 50"),
        ({"licenses": [5]}, r"licenses: \[5\]; Kaggle requires one of"),
        (
            {"licenses": []},
            "Kaggle requires one of.*Set LICENSE and run 04_write again",
        ),
    ],
)
def test_metadata_is_checked_before_anything_is_sent(tmp_path, changes, message):
    """What Kaggle would refuse, or silently change, is an error here."""
    with pytest.raises(ValueError, match=message):
        check_metadata(make_part(tmp_path / "part-1", **changes), DATASET_FILE)


def test_tensorflow_is_left_to_commands_that_work_on_records(kaggle, tmp_path):
    """It takes seconds and prints log lines."""
    plan_images(make_images(tmp_path / "in", 12), str(tmp_path))
    write_parts(str(tmp_path), license_name="CC-BY-4.0")
    left = kaggle.outputs[f"{USER}/sample-images-to-tfrecords"] = tmp_path / "left"
    left.mkdir()
    (left / "plan.json").write_text("{}")
    image = next((tmp_path / "in").iterdir()).read_bytes()
    kaggle.datasets["ada/tea"] = {"a/1.jpg": image, "b/2.jpg": image}

    done = call_python("-c", FRESH_PROCESS, cwd=tmp_path)

    codes, _, imported = (
        done.stderr.strip().splitlines()[-1].rpartition(", TensorFlow: ")
    )
    assert set(ast.literal_eval(codes).values()) == {0}, done.stdout + done.stderr
    assert imported == "False"
