"""Parts published through the real client to a stub of Kaggle's API on loopback."""

import io
import json
import tarfile

import pytest
from support.inputs import put
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.plans import digests
from support.processes import call_python

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle import upload
from kaggle_tfr.kaggle.metadata import DATASET_FILE
from kaggle_tfr.kaggle.upload import publish_parts

TEA = f"{USER}/tea-tfrecords-1"
FRESH_PROCESS = """
import sys
from kaggle import KaggleApi
from kaggle_tfr.__main__ import main

KaggleApi.args, KaggleApi.config_dir = ["--local"], "."
lines = "notebooks n|init s -o r.yaml|kernel sample --out k|push k --out got"
codes = [main(line.split()) for line in f"{lines}|publish part-1".split("|")]
sys.exit(f"{codes}, TensorFlow: {'tensorflow' in sys.modules}")
"""


def make_part(folder, part=1, **changes):
    """Write what `publish` reads of a part."""
    files = {f"tea-{part}.tfrec": bytes(range(200)), "empty.csv": b""}
    for name, data in {**files, "index/train/a.idx": b"0 16"}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sums = [f"{digest}  {name}\n" for name, digest in sorted(digests(folder).items())]
    (folder / "SHA256SUMS").write_text("".join(sums))
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

    A folder is sent as an archive, which Kaggle unpacks later. It lists 200 files at a
    time, and answers 403 for a private dataset that does not exist.
    """
    kaggle.missing = 403
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]

    assert list(publish_parts(folders).state) == ["uploaded", "uploaded"]

    for part in (1, 2):
        found = dict(kaggle.datasets[f"{USER}/tea-tfrecords-{part}"])
        with tarfile.open(fileobj=io.BytesIO(found.pop("index.tar"))) as files:
            assert files.extractfile("train/a.idx").read() == b"0 16"
        names = (f"tea-{part}.tfrec", "empty.csv", "SHA256SUMS")
        folder = tmp_path / f"part-{part}"
        assert found == {name: (folder / name).read_bytes() for name in names}
    assert kaggle.created["isPrivate"]
    del kaggle.datasets[TEA]["index.tar"]
    unpacked = {f"index/train/{number}.idx": b"0 16" for number in range(450)}
    kaggle.datasets[TEA] = unpacked | kaggle.datasets[TEA]
    sent = len(kaggle.blobs)
    assert list(publish_parts(folders).state) == ["there already", "there already"]
    assert len(kaggle.blobs) == sent


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


def test_a_refusal_is_an_error(kaggle, folder, capsys):
    """The exit code is 1; an error that mentions 404 is not a missing dataset."""
    message = "Too many requests for ada/tea-404 Not Found-3"
    kaggle.errors["ListDatasetFiles"] = 400, message
    assert main(["publish", str(folder)]) == 1
    assert message in capsys.readouterr().err
    assert kaggle.blobs == {}


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


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("tea-2.tfrec", ""),
        ("index/b", ""),
        ("index/b", "secret.txt"),
        ("index/b", "."),
    ],
)
def test_what_differs_from_the_checksums_is_not_sent(kaggle, tmp_path, name, target):
    """Everything stops before the first upload.

    A killed run may leave temporary files. A foreign part could link to any file.
    """
    folders = [make_part(tmp_path / f"part-{part}", part) for part in (1, 2)]
    (tmp_path / "secret.txt").write_text("key")
    path = tmp_path / "part-2" / name
    if target:
        path.symlink_to(tmp_path / target)
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


def test_tensorflow_is_left_to_commands_that_work_on_records(kaggle, folder, tmp_path):
    """It takes seconds and prints log lines."""
    kaggle.outputs[f"{USER}/sample-images-to-tfrecords"] = folder
    put(tmp_path / "s", ["rose/1.jpg", "tulip/1.jpg"])

    done = call_python("-c", FRESH_PROCESS, cwd=tmp_path)

    assert done.stderr.endswith(f"{[0] * 5}, TensorFlow: False\n")
