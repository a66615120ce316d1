"""Parts published through the real client to a stub of Kaggle's API on loopback."""

import ast
import io
import json
import re
import tarfile

import pytest
from support.kaggle_server import USER, fixture_kaggle, write_part  # noqa: F401
from support.plans import digests, make_images, plan_images
from support.processes import call_python

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle import upload
from kaggle_tfr.kaggle.metadata import DATASET_FILE
from kaggle_tfr.kaggle.upload import publish_parts
from kaggle_tfr.write.writer import write_parts

TEA = f"{USER}/tea-tfrecords-1"
FRESH_PROCESS = """
import sys
from kaggle import KaggleApi
from kaggle_tfr.__main__ import main
from kaggle_tfr_sample import write_sample

KaggleApi.args, KaggleApi.config_dir = ["--local"], "."
write_sample("s", scale=1 / 20)
lines = "notebooks n|init s -o r.yaml|init part-1 -o p.yaml"
lines += "|init ada/tea -o t.yaml"
lines += "|kernel sample --out k|push k --out got|publish part-1|kernel t.yaml --out k"
codes = {line: main(line.split()) for line in lines.split("|")}
sys.exit(f"{codes}, TensorFlow: {'tensorflow' in sys.modules}")
"""


def make_part(folder, part=1, **changes):
    shard = {f"tea-{part}.tfrec": bytes(range(200)) * part}
    write_part(folder, {**shard, "empty.csv": b"", "index/train/a.idx": b"0 16"})
    metadata = {
        "id": f"INSERT_USERNAME_HERE/tea-tfrecords-{part}",
        "title": f"Tea TFRecords part {part}",
        "licenses": [{"name": "CC0-1.0"}],
    }
    (folder / DATASET_FILE).write_text(json.dumps(metadata | changes))
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    make_part(tmp_path / "part-1")
    return tmp_path / "part-1"


def test_each_part_arrives_byte_for_byte(kaggle, tmp_path):
    """Every file arrives with its sha256; the second call sends nothing.

    A folder is sent as an archive. Kaggle answers 403 for a private dataset that does
    not exist.
    """
    kaggle.missing = 403
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]

    assert list(publish_parts(folders).state) == ["uploaded", "uploaded"]

    for part in (1, 2):
        sums = digests(tmp_path / f"part-{part}")
        del sums[DATASET_FILE], sums["index/train/a.idx"]
        found = kaggle.sha256(f"{USER}/tea-tfrecords-{part}")
        del found["index.tar"]
        assert found == sums
    archive = io.BytesIO(kaggle.datasets[TEA]["index.tar"])
    with tarfile.open(fileobj=archive) as files:
        assert files.extractfile("train/a.idx").read() == b"0 16"
    sent = len(kaggle.blobs)
    assert list(publish_parts(folders).state) == ["there already", "there already"]
    assert len(kaggle.blobs) == sent


def test_a_folder_that_kaggle_has_unpacked_is_there(kaggle, folder):
    """Kaggle lists 200 files at a time."""
    publish_parts([folder])
    del kaggle.datasets[TEA]["index.tar"]
    unpacked = {f"index/train/{number}.idx": b"0 16" for number in range(450)}
    kaggle.datasets[TEA] = unpacked | kaggle.datasets[TEA]

    assert list(publish_parts([folder]).state) == ["there already"]


@pytest.mark.parametrize("lost", ["tea-1.tfrec", "index.tar", ""])
def test_an_upload_that_lost_a_file_is_noticed(kaggle, folder, monkeypatch, lost):
    """Client 2.2.4 drops a file whose upload fails, without an error.

    Beyond a quota Kaggle answers that it makes the dataset, and makes none.
    """
    monkeypatch.setattr(upload, "MAX_POLLS", 1)
    kaggle.lost_upload = lost
    name = lost.removesuffix(".tar") or "SHA256SUMS, empty.csv"
    with pytest.raises(RuntimeError, match=f"{TEA} on Kaggle lacks {name}, .*quota"):
        publish_parts([folder])


@pytest.mark.parametrize(
    ("answers", "method", "message"),
    [
        ("deny", "ListDatasetFiles", "Too many requests for ada/tea-404 Not Found-3"),
        ("refuse", "CreateDataset", "You have exceeded your private dataset quota."),
    ],
)
def test_a_refusal_is_an_error(  # noqa: PLR0917
    kaggle, folder, capsys, answers, method, message
):
    """The exit code is 1; an error that mentions 404 is not a missing dataset."""
    getattr(kaggle, answers)[method] = message
    assert main(["publish", str(folder)]) == 1
    assert message in capsys.readouterr().err
    assert kaggle.calls[-1] == method


def test_a_dataset_is_replaced_only_with_notes(kaggle, folder):
    """Also one whose files differ by their checksums only."""
    publish_parts([folder])
    files = kaggle.datasets[TEA]
    files["SHA256SUMS"] = files["SHA256SUMS"].replace(b"tea", b"pea")
    with pytest.raises(RuntimeError, match="already in use by a dataset"):
        publish_parts([folder])
    assert kaggle.datasets[TEA] is files

    assert list(publish_parts([folder], notes="tea").state) == ["uploaded"]

    sums = (folder / "SHA256SUMS").read_bytes()
    assert kaggle.datasets[TEA]["SHA256SUMS"] == sums


@pytest.mark.parametrize("fault", ["changed", "added", "link", "linked folder"])
def test_what_differs_from_the_checksums_is_not_sent(kaggle, tmp_path, fault):
    """Everything stops before the first upload.

    A killed run may leave temporary files. A foreign part could link to any file.
    """
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    (tmp_path / "secret.txt").write_text("key")
    name = "tea-2.tfrec" if fault == "changed" else "index/b"
    path = tmp_path / "part-2" / name
    if fault == "link":
        path.symlink_to(tmp_path / "secret.txt")
    elif fault == "linked folder":
        path.symlink_to(tmp_path)
    else:
        path.write_bytes(b"torn")

    with pytest.raises(ValueError, match=f"part-2': {name} and SHA256SUMS do not"):
        publish_parts(folders)

    assert kaggle.blobs == {}


def test_a_part_needs_a_license(kaggle, tmp_path):
    """The error says how to set it; nothing is sent."""
    folder = make_part(tmp_path / "part-1", licenses=[])
    with pytest.raises(ValueError, match="no license.*Set LICENSE and run 04_write"):
        publish_parts([folder])
    assert kaggle.blobs == {}


def test_tensorflow_is_left_to_commands_that_work_on_records(kaggle, tmp_path):
    """It takes seconds and prints log lines."""
    plan_images(make_images(tmp_path / "in", 12), str(tmp_path))
    write_parts(str(tmp_path), license_name="CC-BY-4.0")
    kaggle.outputs[f"{USER}/sample-images-to-tfrecords"] = tmp_path / "in"
    image = next((tmp_path / "in").iterdir()).read_bytes()
    kaggle.datasets["ada/tea"] = {"a/1.jpg": image, "b/2.jpg": image}

    done = call_python("-c", FRESH_PROCESS, cwd=tmp_path)

    codes, imported = re.findall(r"({.*}), TensorFlow: (\w+)", done.stderr)[-1]
    assert set(ast.literal_eval(codes).values()) == {0}, done.stdout + done.stderr
    assert imported == "False"
