"""Shards are complete and equal in all runs, and a run that stops resumes."""

import errno
import hashlib
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
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

from kaggle_tfr import session, storage
from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr.plan.plan import read_plan, save_plan
from kaggle_tfr.shards import find_shards
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
    limit_bytes = read_plan(str(work)).settings.part_limit_gb * 1e9
    tables = []
    for part in sorted(whole[0].iterdir()):
        assert sum(path.stat().st_size for path in part.rglob("*")) < limit_bytes
        table = pd.read_csv(part / "train.csv", dtype={"image_id": str})
        tables.append(table)
        for file, rows in table.groupby("file"):
            records = read_plainly([part / file])
            image_ids = [record["image_id"].decode() for record in records]
            assert image_ids == rows["image_id"].tolist()
            assert [record["label"] for record in records] == rows["label"].tolist()
            assert rows["record"].tolist() == list(range(len(records)))
            assert all(min(r["height"], r["width"]) == 32 for r in records)
    listed = pd.concat(tables)[["image_id", "label", "fold"]]
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
    """It only removes the temporary files of killed runs."""
    paths = [path for path in copied.rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in paths}
    (copied / "part-1" / "index" / f"a.tfrec.idx.{'0a' * 16}.tmp").write_text("half")

    write(work, copied)

    paths = [path for path in copied.rglob("*") if path.is_file()]
    assert {path: path.stat().st_mtime_ns for path in paths} == before


def check_refusal(message, folder, *arguments, **options):
    """Check that a run is refused, and changes nothing in the folder."""
    before = digests(folder)
    with pytest.raises(ValueError, match=message):
        write(*arguments, **options)
    assert digests(folder) == before


def test_overwrite_replaces_our_files_and_leaves_those_of_others(
    table, copied, tmp_path
):
    """A part of another plan is an error; OVERWRITE writes it as into a new folder.

    A part that is only begun is not listed.
    """
    work = tmp_path / "work"
    two_parts(table, work, quality=50, shard_name="{name}-{i}.tfrec")
    message = "different plan: .*QUALITY was 90.*OVERWRITE = True"
    check_refusal(message, copied, work, copied)
    notes = copied / "part-1" / "notes.md"
    notes.write_text("mine")

    with (
        mock.patch.object(session, "hours_left", side_effect=[1, 0]),
        pytest.raises(SystemExit),
    ):
        write(work, copied, overwrite=True)
    assert not (copied / "part-1" / "shards.csv").exists()
    write(work, copied, overwrite=True)

    write(work, tmp_path / "fresh")
    notes.unlink()
    assert digests(copied) == digests(tmp_path / "fresh")


def test_only_settings_that_have_changed_are_named(table, tmp_path):
    """A list in plan.json is a tuple in the plan."""
    plan_images(table, tmp_path, size=[32, 40])
    write(tmp_path)
    plan_images(table, tmp_path, size=[32, 40], quality=50)

    check_refusal(r"plan: QUALITY was 90\. Set", tmp_path, tmp_path)


def test_parts_of_another_plan_are_named_and_stay(table, copied, tmp_path):
    """Readers would mix both; only the user knows whether they are needed."""
    assert plan_images(table, tmp_path, n_shards=3)[0].n_parts == 1
    message = "part-2' cannot be read as one dataset.*another OUT_DIR"
    check_refusal(message, copied, tmp_path, copied, overwrite=True)

    shutil.rmtree(copied / "part-2")
    write(tmp_path, copied, overwrite=True)
    assert find_shards(str(copied))["count"].sum() == len(table)


def test_the_other_parts_of_a_dataset_stay(table, work, copied, tmp_path):
    """OVERWRITE replaces the parts of the plan, not those that it continues."""
    earlier = read_plan(str(work))
    growth = {"dataset_id": earlier.dataset_id, "first_part": 3, "n_shards": 3}
    plan_images(table[:6], tmp_path, **growth)
    write(tmp_path, copied)
    before = digests(copied)
    plan_images(table[:6], tmp_path, **growth, quality=50)
    check_refusal("part-3' was written .* QUALITY was 90", copied, tmp_path, copied)

    assert write(tmp_path, copied, overwrite=True)["part"].unique() == [3]

    changed = digests(copied).items() ^ before.items()
    assert {name[:6] for name, _ in changed} == {"part-3"}
    assert verify(copied, tmp_path).faults.empty


def test_a_part_that_the_plan_reads_is_not_overwritten(work, copied, tmp_path):
    """With shards as input it may be the only place where the images are."""
    folder = shutil.copytree(work, tmp_path / "work")
    images = pd.read_parquet(folder / "plan.parquet")
    images["path"] = f"{copied}/part-1/a.tfrec#0"
    images.to_parquet(folder / "plan.parquet")

    message = "part-1' contains images that this plan reads.*OUT_DIR"
    check_refusal(message, copied, folder, copied, overwrite=True)


def test_a_plan_whose_folds_have_changed_is_not_written(work, tmp_path):
    """The first part gets folds.csv, so it would not agree with the shards."""
    folder = shutil.copytree(work, tmp_path / "work")
    (folder / "folds.csv").write_text("other")

    check_refusal("folds.csv' has changed since 03_plan", folder, folder)
    write(folder, part=2)


def test_two_runs_do_not_write_one_part(work, copied, whole):
    """The second run ends with an error, and the first one ends well."""
    with storage.lock(f"{copied}/part-2/.lock"):
        with pytest.raises(RuntimeError, match="part-2/.lock' is locked by another"):
            write(work, copied)
        assert len(write(work, copied, 1)) == 3
    assert len(write(work, copied)) == 6
    assert digests(copied) == whole[1]


def test_a_file_system_without_locks_is_not_locked(work, whole, tmp_path):
    """Some network file systems have none."""
    error = OSError(errno.ENOLCK, "No locks available")
    with mock.patch("fcntl.flock", side_effect=error):
        write(work, tmp_path)
    assert digests(tmp_path) == whole[1]


def test_a_missing_image_stops_the_run(work, whole, tmp_path):
    """Complete shards stay for the next run, which resumes."""
    image = Path(pd.read_parquet(work / "plan.parquet")["path"].iloc[-1])
    moved = image.rename(tmp_path / "moved")
    out = tmp_path / "out"
    use_backend(1)

    with pytest.raises(OSError, match=f"{image.name}.*again: it resumes"):
        write(work, out)
    assert len(list(out.glob("part-2/*.tfrec"))) == 2
    assert not (out / "part-2" / "shards.csv").exists()

    moved.rename(image)
    write(work, out)
    assert digests(out) == whole[1]


def test_images_that_have_changed_since_the_plan_are_rejected(tmp_path, capsys):
    """By their size or their digest; a note, rejects.csv and the tables show it."""
    part = tmp_path / "part-1"
    table = make_images(tmp_path / "images", 24)
    paths = [Path(path) for path in table["path"]]
    table["digest"] = [
        hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest() for path in paths
    ]
    table.loc[[1, 7, 9], "digest"] = ""  # unknown
    plan, _ = plan_images(table, tmp_path, n_shards=3)
    paths[1].write_bytes(b"not an image".ljust(table["n_bytes"][1]))
    paths[9].write_bytes(paths[9].read_bytes() + b"0")
    for number in (5, 7):
        data = bytearray(paths[number].read_bytes())
        data[15] ^= 1  # dots per inch
        paths[number].write_bytes(data)

    shards = write(tmp_path)

    rejects = pd.read_csv(part / "rejects.csv", dtype=str).set_index("image_id")
    changed = dict.fromkeys(["0005", "0009"], "changed since 01_explore")
    assert rejects["problem"].to_dict() == {"0001": "not an image"} | changed
    plan = replace(plan, outcomes={"labelled records": 24, "rejected": 2})
    counts = account_parts(plan, shards, str(tmp_path))
    assert counts == {
        "labelled records": 21,
        "rejected": 2,
        "unreadable when written": 3,
    }
    others = account_parts(plan, shards[:2], str(tmp_path))["in other parts"]
    assert others == 8
    assert "! Not written: 3 of 24 planned images." in capsys.readouterr().out
    for row in shards.itertuples():
        assert row.file.endswith(f"-{row.count}.tfrec")
        assert len(read_plainly([part / row.file])) == row.count == 8 - row.refused
    assert write(tmp_path).equals(shards)


@pytest.mark.parametrize(("jobs", "highest"), [(1, 0.22), (3, 0.3)])
def test_a_part_never_passes_its_limit(table, tmp_path, jobs, highest):
    """Images of the last shards are larger than planned, or the plan does not fit."""
    plan, rows = plan_images(table, tmp_path, n_shards=6)
    total = plan.forecast["bytes_per_image"] * len(rows)
    highs = [highest] * 3 + [0.01] * 3
    shards = [
        replace(shard, bytes_high=int(total * high))
        for shard, high in zip(plan.shards, highs, strict=True)
    ]
    limit_bytes = int(total * 0.8)
    plan = replace(plan, shards=shards, shard_limit_bytes=limit_bytes)
    save_plan(plan, rows, str(tmp_path))
    use_backend(jobs)

    with pytest.raises(OSError, match="part 1 would exceed its limit.*PART_LIMIT_GB"):
        write(tmp_path)

    sizes = [path.stat().st_size for path in tmp_path.glob("part-1/*.tfrec")]
    assert len(sizes) == 3
    assert sum(sizes) <= limit_bytes


def test_no_shard_begins_when_the_session_ends(work, whole, tmp_path, capsys):
    """A Kaggle batch session ends without an error, so that its output is kept."""
    use_backend(1)
    with (
        mock.patch.object(session, "hours_left", side_effect=[1, 1, 0]),
        pytest.raises(SystemExit, match="^0$"),
    ):
        write(work, tmp_path)
    assert "Stopped after 2 of 3 shards" in capsys.readouterr().out
    assert len(list(tmp_path.glob("part-1/*.tfrec"))) == 2

    write(work, tmp_path)
    assert digests(tmp_path) == whole[1]


def test_memory_does_not_grow_with_the_shard(tmp_path):
    """Writing and verifying a shard takes less than half of its size."""
    images = make_images(tmp_path / "images", 8, sizes=(790, 800))
    rows = repeat_images(images, 8).assign(fold=0)
    plan_images(rows, tmp_path, size=None, n_shards=1, n_folds=0)
    use_backend(1)

    tracemalloc.start()
    shards = write(tmp_path)
    assert verify(tmp_path / "part-1").faults.empty
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < shards["bytes"].sum() / 2
