"""Shards are complete and equal in all runs, and a run that stops resumes."""

import errno
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import tensorflow as tf
from support.plans import (
    digests,
    make_images,
    plan_images,
    read_plainly,
    repeat_images,
    two_parts,
    verify,
    write,
)

from kaggle_tfr import storage
from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr.plan.plan import number_shards, read_plan, save_plan
from kaggle_tfr.shards import find_shards
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.writer import account_parts


@pytest.fixture(autouse=True)
def _default_backend():
    yield
    close_backend()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("writer") / "images")


@pytest.fixture(scope="module")
def work(table, tmp_path_factory):
    """A planned work folder in two parts."""
    folder = tmp_path_factory.mktemp("two")
    assert two_parts(table, folder)[0].n_parts == 2
    return folder


@pytest.fixture(scope="module")
def whole(work, tmp_path_factory):
    """Both parts, written by one worker without a stop, and their digests."""
    out = tmp_path_factory.mktemp("whole")
    use_backend(1)
    write(work, out)
    return out, digests(out)


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of the parts, to be changed."""
    return shutil.copytree(whole[0], tmp_path / "out")


def test_records_are_in_the_plan_s_order_and_listed_with_their_places(work, whole):
    """TensorFlow alone reads every planned image once, where train.csv has it."""
    plan = pd.read_parquet(work / "plan.parquet")
    tables = []
    for part in sorted(whole[0].iterdir()):
        table = pd.read_csv(part / "train.csv", dtype={"image_id": str})
        tables.append(table)
        for file, rows in table.groupby("file"):
            records = read_plainly([part / file])
            image_ids = [record["image_id"].decode() for record in records]
            assert image_ids == rows["image_id"].tolist()
            assert [record["label"] for record in records] == rows["label"].tolist()
            assert rows["record"].tolist() == list(range(len(records)))
            assert all(min(r["height"], r["width"]) == 32 for r in records)
    listed = pd.concat(tables)[["image_id", "label"]]
    assert listed.to_numpy().tolist() == plan[[*listed]].to_numpy().tolist()


# test_dask.py has processes.
@pytest.mark.parametrize(("jobs", "parts"), [(2, [1, 2]), (4, [0])])
def test_bytes_do_not_depend_on_the_workers(work, whole, tmp_path, jobs, parts):
    """Threads write the same files, part by part or together."""
    use_backend(jobs)
    for part in parts:
        write(work, tmp_path, part)
    assert digests(tmp_path) == whole[1]


def test_a_second_run_changes_no_file(work, copied):
    """A shard with the right sha256 stays, and so do the files beside the shards."""
    paths = [path for path in copied.rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in paths]

    write(work, copied)

    assert [path.stat().st_mtime_ns for path in paths] == before


def test_a_second_run_writes_what_is_damaged_or_missing(work, copied, whole):
    """Temporary files of killed runs are removed."""
    first, second = sorted((copied / "part-1").glob("*.tfrec"))[:2]
    first.unlink()
    data = bytearray(second.read_bytes())
    data[99] ^= 1
    second.write_bytes(data)
    (copied / "part-1" / f"labels.json.{'0a' * 16}.tmp").write_text("{")

    write(work, copied)

    assert digests(copied) == whole[1]


def replan(work, folder, *, name="trees", **changes):
    """Copy a work folder, with a plan of other settings; return its path."""
    shutil.copytree(work, folder)
    plan = read_plan(str(folder))
    settings = replace(plan.settings, **changes)
    plan = replace(
        plan,
        settings=settings,
        image=settings.image,
        shards=number_shards(pd.DataFrame(plan.shards), settings.shard_name, "trees"),
        labels=replace(plan.labels, name=name),
        fingerprint="other",
    )
    save_plan(plan, pd.read_parquet(folder / "plan.parquet"), str(folder))
    return str(folder)


def test_overwrite_replaces_our_files_and_leaves_those_of_others(
    work, copied, tmp_path, monkeypatch
):
    """A part of another plan is an error; OVERWRITE writes it as into a new folder.

    A part that is only begun is not listed.
    """
    other_work = replan(
        work, tmp_path / "work", quality=50, shard_name="{name}-{i}.tfrec"
    )
    message = "different plan: .*QUALITY was 90.*OVERWRITE = True"
    check_refusal(message, copied, other_work, copied)
    (copied / "part-1" / "notes.md").write_text("mine")

    hours = iter([1])
    monkeypatch.setattr("kaggle_tfr.session.hours_left", lambda: next(hours, 0))
    with pytest.raises(SystemExit):
        write(other_work, copied, overwrite=True)
    assert not (copied / "part-1" / "shards.csv").exists()
    monkeypatch.undo()
    write(other_work, copied, overwrite=True)

    write(other_work, tmp_path / "fresh")
    (copied / "part-1" / "notes.md").unlink()
    assert digests(copied) == digests(tmp_path / "fresh")


def check_refusal(message, folder, *arguments, **options):
    """Check that a run is refused, and changes nothing in the folder."""
    before = digests(folder)
    with pytest.raises(ValueError, match=message):
        write(*arguments, **options)
    assert digests(folder) == before


ONE_DATASET = "part-2' cannot be read as one dataset.*another OUT_DIR"


@pytest.mark.parametrize("overwrite", [False, True])
def test_parts_of_another_plan_are_named_and_stay(table, tmp_path, overwrite):
    """Readers would mix both; only the user knows whether they are needed."""
    two_parts(table, tmp_path, n_shards=12)
    write(tmp_path)
    assert plan_images(table, tmp_path, n_shards=3)[0].n_parts == 1
    check_refusal(ONE_DATASET, tmp_path, tmp_path, overwrite=overwrite)

    shutil.rmtree(tmp_path / "part-2")
    write(tmp_path, overwrite=True)
    assert find_shards(str(tmp_path))["count"].sum() == len(table)


def test_the_other_parts_of_a_dataset_stay(table, tmp_path):
    """Earlier and later parts are not left over, but a part of another dataset is."""
    old, new, out = (tmp_path / name for name in ("old", "new", "out"))
    plan, _ = two_parts(table[:36], old)
    write(old, out)
    growth = {"n_shards": 3, "dataset_id": plan.dataset_id, "first_part": 3}
    plan_images(table[36:], new, **growth)
    assert write(new, out)["part"].unique() == [3]
    assert verify_parts([str(out)], str(new)).faults.empty
    before = digests(out)

    plan_images(table[36:], new, **growth, quality=50)
    check_refusal("part-3' was written .* QUALITY was 90", out, new, out)
    write(new, out, overwrite=True)
    changed = {name for name, _ in digests(out).items() ^ before.items()}
    assert {name[:6] for name in changed} == {"part-3"}

    path = out / "part-2" / "plan.json"
    path.write_text(path.read_text().replace(plan.dataset_id, "other"))
    check_refusal(ONE_DATASET, out, new, out)


def test_a_part_that_the_plan_reads_is_not_overwritten(work, copied):
    """With shards as input it may be the only place where the images are."""
    path = copied / "plan.parquet"
    images = pd.read_parquet(work / "plan.parquet")
    shard = f"{copied}/part-1/a.tfrec"
    images["path"] = [f"{shard}#{number}" for number in range(len(images))]
    images.to_parquet(path)
    for name in ("plan.json", "folds.csv"):
        shutil.copy(work / name, copied)

    message = "part-1' contains images that this plan reads.*OUT_DIR"
    check_refusal(message, copied, copied, overwrite=True)


def test_two_runs_do_not_write_one_part(work, copied, tmp_path):
    """The second run ends with an error, and the first one ends well."""
    with storage.lock(f"{copied}/part-2/.lock"):
        with pytest.raises(RuntimeError, match="part-2/.lock' is locked by another"):
            write(work, copied)
        assert len(write(work, copied, 1)) == 3
    assert len(write(work, copied)) == 6
    assert not list(copied.rglob(".lock"))


def test_a_file_system_without_locks_is_not_locked(work, whole, tmp_path):
    """Some network file systems have none."""
    error = OSError(errno.ENOLCK, "No locks available")
    with mock.patch("fcntl.flock", side_effect=error):
        write(work, tmp_path)
    assert digests(tmp_path) == whole[1]


def test_a_row_that_names_a_file_outside_the_part_is_an_error(work, copied, tmp_path):
    """OVERWRITE on a tampered shards.csv removes no file anywhere."""
    (tmp_path / "mine.csv").write_text("mine")
    table = copied / "part-1" / "shards.csv"
    rows = pd.read_csv(table)
    rows.loc[1, "file"] = "../../mine.csv"
    rows.to_csv(table, index=False)

    assert "shards.csv" in set(verify(copied / "part-1").faults["file"])
    with pytest.raises(ValueError, match=r"mine\.csv' is outside its folder"):
        write(work, copied, overwrite=True)
    assert (tmp_path / "mine.csv").exists()


def test_a_missing_image_stops_the_run(tmp_path):
    """Complete shards stay for the next run, which resumes."""
    part = tmp_path / "part-1"
    _, planned = plan_images(make_images(tmp_path / "images", 24), tmp_path, n_shards=3)
    image = Path(planned["path"].iloc[-1])
    image.rename(tmp_path / "moved")
    use_backend(1)

    with pytest.raises(OSError, match=f"{image.name}.*again: it resumes"):
        write(tmp_path)
    assert len(list(part.glob("*.tfrec"))) == 2
    assert not (part / "shards.csv").exists()

    (tmp_path / "moved").rename(image)
    assert write(tmp_path)["count"].sum() == 24


def test_images_that_have_changed_since_the_plan_are_rejected(tmp_path, capsys):
    """By their size or their digest; a note, rejects.csv and the tables show it."""
    part = tmp_path / "part-1"
    table = make_images(tmp_path / "images", 24)
    paths = [Path(path) for path in table["path"]]
    table["digest"] = [storage.digest(path.read_bytes()) for path in paths]
    table.loc[[1, 7, 9], "digest"] = ""  # unknown
    plan, _ = plan_images(table, tmp_path, n_shards=3)
    paths[1].write_bytes(b"not an image".ljust(table["n_bytes"][1]))
    paths[3].write_bytes(paths[4].read_bytes())
    paths[9].write_bytes(paths[9].read_bytes() + b"0")
    for number in (5, 7):
        data = bytearray(paths[number].read_bytes())
        data[15] ^= 1  # dots per inch
        paths[number].write_bytes(data)

    shards = write(tmp_path)

    rejects = pd.read_csv(part / "rejects.csv", dtype=str)
    problems = dict(zip(rejects["image_id"], rejects["problem"], strict=True))
    changed = dict.fromkeys(["0003", "0005", "0009"], "changed since 01_explore")
    assert problems == {"0001": "not an image"} | changed
    plan = replace(plan, outcomes={"labelled records": 24, "rejected": 2})
    counts = account_parts(plan, shards, str(tmp_path))
    assert counts == {
        "labelled records": 20,
        "rejected": 2,
        "unreadable when written": 4,
    }
    assert "! Not written: 4 of 24 planned images." in capsys.readouterr().out
    for row in shards.itertuples():
        assert row.file.endswith(f"-{row.count}.tfrec")
        assert len(read_plainly([part / row.file])) == row.count == 8 - row.refused
    assert write(tmp_path).equals(shards)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(("high", "limit"), [(1 / 12, 0.6), (1 / 4, 0.75)])
def test_a_part_never_passes_its_limit(table, tmp_path, jobs, high, limit):
    """Images are larger than planned, or the forecast of all shards does not fit."""
    plan, rows = plan_images(table, tmp_path, n_shards=6)
    total = plan.forecast["bytes_per_image"] * len(rows)
    shards = [replace(shard, bytes_high=int(total * high)) for shard in plan.shards]
    plan = replace(plan, shards=shards, shard_limit_bytes=int(total * limit))
    save_plan(plan, rows, str(tmp_path))
    use_backend(jobs)

    message = "part 1 would exceed its limit.*PART_LIMIT_GB"
    with pytest.raises(OSError, match=message):
        write(tmp_path)

    files = list((tmp_path / "part-1").glob("*.tfrec"))
    assert sum(path.stat().st_size for path in files) <= total * limit
    assert all(len(read_plainly([path])) == 8 for path in files)


def test_no_shard_begins_when_the_session_ends(table, tmp_path, monkeypatch, capsys):
    """A Kaggle batch session ends without an error, so that its output is kept."""
    plan_images(table, tmp_path)
    hours = iter([1, 1, 0])
    monkeypatch.setattr("kaggle_tfr.session.hours_left", lambda: next(hours, 0))
    use_backend(1)
    with pytest.raises(SystemExit, match="^0$"):
        write(tmp_path)
    text = capsys.readouterr().out
    assert re.search("Stopped after 2 of 6 shards .* session is nearly over", text)
    assert len(list((tmp_path / "part-1").glob("*.tfrec"))) == 2
    monkeypatch.undo()
    assert len(write(tmp_path)) == 6


def test_a_part_in_a_bucket_is_verified(work, tmp_path):
    """TensorFlow's file systems, here in memory."""
    out = f"ram://bucket{tmp_path.name}"
    folders = [f"{out}/part-1", f"{out}/part-2"]
    for folder in folders:  # unlike a bucket, memory needs folders
        tf.io.gfile.makedirs(f"{folder}/index")
        tf.io.gfile.makedirs(f"{folder}/journal")
    shards = write(work, out)
    assert verify_parts(folders).faults.empty

    tf.io.gfile.remove(f"{out}/part-1/{shards['file'][0]}")
    assert set(verify_parts(folders).faults["file"]) == {shards["file"][0]}


PEAK = """
import resource, sys
from kaggle_tfr.parallel import use_backend
from kaggle_tfr.write.writer import write_parts
use_backend(1)
write_parts(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_shard(tmp_path):
    """A shard of 150 MB takes hardly more memory than one of 15 MB."""
    few = make_images(tmp_path / "images", 30, sizes=(790, 800))
    peaks = []
    for times in (2, 60):
        rows = repeat_images(few, times).assign(fold=0)
        work = tmp_path / str(times)
        plan_images(rows, work, size=None, n_shards=1, n_folds=0)
        call = [sys.executable, "-c", PEAK, str(work)]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)  # MB
        size = sum(path.stat().st_size for path in (work / "part-1").glob("*.tfrec"))
    assert size > 150e6
    assert peaks[1] - peaks[0] < 30, peaks
