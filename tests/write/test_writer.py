"""Shards are whole, equal however they were made, and a run that stops goes on where it was."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support.plans import digests, make_images, plan_images, read_plainly, two_parts

from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr.plan.plan import number_shards, read_plan, save_plan
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import verify_parts


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
    plan, _ = two_parts(table, folder)
    assert plan.n_parts == 2
    return folder


@pytest.fixture(scope="module")
def whole(work, tmp_path_factory):
    """Both parts as one undisturbed run with one worker writes them, and their digests."""
    out = tmp_path_factory.mktemp("whole")
    use_backend(1)
    write_parts(str(work), str(out))
    return out, digests(out)


def test_records_hold_the_plan_s_images_in_the_plan_s_order(work, whole, table):
    """
    TensorFlow alone reads every planned image once, with its label and the size it was given.
    """
    out, _ = whole
    plan = pd.read_parquet(work / "plan.parquet")
    shards = pd.concat(pd.read_csv(path) for path in sorted(out.glob("*/shards.csv")))
    files = [out / f"part-{row.part}" / row.file for row in shards.itertuples()]

    records = read_plainly(files)

    assert [r["image_id"].decode() for r in records] == plan["image_id"].tolist()
    assert [r["label"] for r in records] == plan["label"].tolist()
    assert all(min(r["height"], r["width"]) == 32 for r in records)
    assert shards["count"].sum() == len(table)


def test_a_part_holds_what_the_contract_lists(whole):
    """
    Every sidecar is there, and nothing of the work in progress.
    """
    out, _ = whole
    names = {path.name for path in (out / "part-1").iterdir() if ".tfrec" not in path.name}

    assert names == {
        *("schema.json", "labels.json", "labels.txt", "shards.csv", "plan.json", "index"),
        *("dataset-metadata.json", "train.csv"),
    }
    assert (out / "part-1" / "labels.txt").read_text() == "0:ash\n1:birch\n2:Čedar, red\n"


def test_the_table_of_a_split_finds_each_record(whole):
    """
    train.csv names file and record of each image, with its label, as competitions do.
    """
    out, _ = whole
    rows = pd.read_csv(out / "part-2" / "train.csv", dtype={"image_id": str})
    for file, own in rows.groupby("file"):
        records = read_plainly([out / "part-2" / file])
        found = [records[i]["image_id"].decode() for i in own["record"]]
        assert found == own["image_id"].tolist()
        assert [records[i]["label"] for i in own["record"]] == own["label"].tolist()


def test_parts_written_alone_equal_parts_written_together(work, whole, tmp_path):
    """
    PART = 1, then PART = 2, anywhere: byte for byte what PART = 0 writes.
    """
    for part in (1, 2):
        write_parts(str(work), str(tmp_path), part)

    assert digests(tmp_path) == whole[1]


@pytest.mark.parametrize(("jobs", "backend"), [(2, "threading"), (4, "threading"), (2, "loky")])
def test_bytes_do_not_depend_on_the_workers(work, whole, tmp_path, jobs, backend):
    """
    One worker, two or four; threads or processes: the same files.
    """
    use_backend(jobs, backend)
    write_parts(str(work), str(tmp_path))

    assert digests(tmp_path) == whole[1]


def test_gzip_shards_are_deterministic_and_have_no_index(table, tmp_path):
    """
    A packed file has no offsets to list; two runs agree all the same.
    """
    plan_images(table, tmp_path / "work", compression="GZIP", shard_name="{split}/{i}.tfrec")
    for name in ("a", "b"):
        write_parts(str(tmp_path / "work"), str(tmp_path / name))

    files = sorted((tmp_path / "a" / "part-1" / "train").iterdir())
    assert len(read_plainly(files, "GZIP")) == len(table)
    assert not (tmp_path / "a" / "part-1" / "index").exists()
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_a_second_run_checks_and_writes_nothing(work, whole, tmp_path):
    """
    Finished parts keep every file, to the nanosecond of its last change.
    """
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}

    write_parts(str(work), str(out))

    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before


def test_damaged_and_missing_shards_are_written_again(work, whole, tmp_path):
    """
    A rerun trusts no file whose sha256 is not that of shards.csv, and mends it.
    """
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    first, second = sorted((out / "part-1").glob("*.tfrec"))[:2]
    first.unlink()
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)

    write_parts(str(work), str(out))

    assert digests(out) == whole[1]


def replan(work, folder, **changes):
    """A copy of the work folder under a plan with other settings."""
    shutil.copytree(work, folder)
    plan = read_plan(str(folder))
    table = pd.read_parquet(folder / "plan.parquet")
    save_plan(replace(plan, fingerprint="other", **changes), table, str(folder))


def test_a_stale_part_is_refused_with_the_difference_named(work, whole, tmp_path):
    """
    Another QUALITY makes other bytes: nothing is touched, and the message says what differs.
    """
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    image = replace(read_plan(str(work)).image, quality=50)
    replan(work, tmp_path / "work", image=image)

    with pytest.raises(ValueError, match=r"QUALITY: 90 there, 50 now.*OVERWRITE = True"):
        write_parts(str(tmp_path / "work"), str(out))

    assert digests(out) == whole[1]


def test_overwrite_replaces_our_files_and_leaves_those_of_others(work, whole, tmp_path):
    """
    OVERWRITE = True gives what a fresh folder would have got; a stranger's file stays.
    """
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / "part-1" / "notes.md").write_text("mine")
    image = replace(read_plan(str(work)).image, quality=50)
    name = "{name}-{i}.tfrec"
    shards = number_shards(read_plan(str(work)).shards, name)
    replan(work, tmp_path / "work", image=image, shard_name=name, shards=shards)

    write_parts(str(tmp_path / "work"), str(out), overwrite=True)
    write_parts(str(tmp_path / "work"), str(tmp_path / "fresh"))

    found = digests(out)
    assert found.pop("part-1/notes.md")
    assert found == digests(tmp_path / "fresh")


def test_an_image_that_went_bad_since_the_plan_is_set_aside(tmp_path):
    """
    It is named in rejects.csv, its shard is shorter by one, in name and count, and says so.
    """
    table = make_images(tmp_path / "images", 24)
    plan_images(table, tmp_path, n_shards=3)
    Path(table["path"][5]).write_bytes(b"no picture")

    shards = write_parts(str(tmp_path))

    part = tmp_path / "part-1"
    rejects = pd.read_csv(part / "rejects.csv", dtype=str)
    assert rejects["image_id"].tolist() == ["0005"]
    assert rejects["problem"].tolist() == ["not an image"]
    short = shards[shards["refused"] == 1].iloc[0]
    assert short["count"] == 7
    assert short["file"].endswith("-7.tfrec")
    assert len(read_plainly([part / short["file"]])) == 7
    assert "0005" not in pd.read_csv(part / "train.csv", dtype=str)["image_id"].tolist()
    before = digests(part)
    assert write_parts(str(tmp_path)).equals(shards)
    assert digests(part) == before


def test_a_vanished_input_stops_the_run_resumably(tmp_path):
    """
    Finished shards stay, no half-written file is left under a name, and the rerun completes.
    """
    table = make_images(tmp_path / "images", 24)
    plan_images(table, tmp_path, n_shards=6)
    use_backend(1)
    write_parts(str(tmp_path), str(tmp_path / "whole"))
    gone = Path(pd.read_parquet(tmp_path / "plan.parquet")["path"].iloc[-1])
    kept = gone.read_bytes()
    gone.unlink()

    with pytest.raises(OSError, match=rf"Stopped after 5 of 6 shards.*{gone.name}.*again"):
        write_parts(str(tmp_path))

    assert len(list((tmp_path / "part-1").glob("*.tfrec"))) == 5
    assert not (tmp_path / "part-1" / "shards.csv").exists()
    gone.write_bytes(kept)
    write_parts(str(tmp_path))
    assert digests(tmp_path / "part-1") == digests(tmp_path / "whole" / "part-1")


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_part_never_passes_its_limit_even_when_the_forecast_was_wrong(table, tmp_path, jobs):
    """
    With images that turn out heavier than planned, the run stops below the limit and says why.
    """
    plan, rows = plan_images(table, tmp_path, n_shards=6)
    total = plan.forecast["bytes_per_image"] * len(rows)
    light = [replace(shard, bytes_high=int(total / 12)) for shard in plan.shards]
    save_plan(replace(plan, shards=light, shard_limit_bytes=int(total * 0.6)), rows, str(tmp_path))
    use_backend(jobs)

    with pytest.raises(OSError, match=r"the part would pass its limit.*PART_LIMIT_GB"):
        write_parts(str(tmp_path))

    files = list((tmp_path / "part-1").glob("*.tfrec"))
    assert sum(path.stat().st_size for path in files) <= total * 0.6


@pytest.mark.parametrize("jobs", [1, 3])
def test_shards_are_written_while_the_limit_has_room(table, tmp_path, jobs):
    """
    Under a limit for half of the shards, those that fit are whole and stay.
    """
    plan, rows = plan_images(table, tmp_path, n_shards=6)
    high = sum(shard.bytes_high for shard in plan.shards)
    save_plan(replace(plan, shard_limit_bytes=high // 2), rows, str(tmp_path))
    use_backend(jobs)

    with pytest.raises(OSError, match=r"part 1 would pass its limit: its shards may take"):
        write_parts(str(tmp_path))

    files = list((tmp_path / "part-1").glob("*.tfrec"))
    assert 1 <= len(files) <= 3
    assert sum(path.stat().st_size for path in files) <= high // 2
    assert all(len(read_plainly([path])) == 8 for path in files)


def test_no_shard_begins_after_the_time_is_over(table, tmp_path):
    """
    A session's end is met by stopping early, not by being killed.
    """
    plan_images(table, tmp_path)

    with pytest.raises(OSError, match=r"Stopped after 0 of 6 shards.*stop_after_hours"):
        write_parts(str(tmp_path), stop_after_hours=1e-12)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 9 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    call = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(folder)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_full_disk_stops_the_run_resumably(tmp_path, tiny_disk, foreseen, monkeypatch):
    """
    Foreseen by the free space or met as ENOSPC: whole shards stay, and room lets the run go on.
    """
    table = make_images(tmp_path / "images", 24, sizes=(300, 420))
    plan_images(table, tmp_path, size=None, n_shards=6, quality=100)
    write_parts(str(tmp_path), str(tmp_path / "whole"))
    if not foreseen:
        monkeypatch.setattr("kaggle_tfr.write.shard.SPARE_DISK_BYTES", -(1 << 40))
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"\0" * (8 << 20))
    use_backend(2)

    with pytest.raises(OSError, match=r"Stopped after \d of 6 shards.*MB are free for .*Make room"):
        write_parts(str(tmp_path), str(tiny_disk))

    files = list((tiny_disk / "part-1").glob("*.tfrec"))
    assert len(files) < 6
    assert all(len(read_plainly([path])) == 4 for path in files)
    assert not list((tiny_disk / "part-1" / "journal").glob("*.tmp"))
    ballast.unlink()
    monkeypatch.setattr("kaggle_tfr.write.shard.SPARE_DISK_BYTES", 0)
    write_parts(str(tmp_path), str(tiny_disk))
    assert digests(tiny_disk / "part-1") == digests(tmp_path / "whole" / "part-1")


def test_wrong_choices_are_refused_before_anything_is_written(work, tmp_path):
    """
    An unknown part or kind of metadata is an error that names what there is.
    """
    with pytest.raises(ValueError, match="PART is 3, but the plan has 2 parts"):
        write_parts(str(work), str(tmp_path), 3)
    with pytest.raises(ValueError, match=r"METADATA has \['tfrs'\].*'tfds'"):
        write_parts(str(work), str(tmp_path), metadata_for=["tfrs"])
    assert not list(tmp_path.iterdir())


def test_a_part_in_a_bucket_equals_a_part_on_disk(work, whole, tmp_path):
    """
    Through TensorFlow's file systems, here the one in memory: equal bytes, resumed and verified.
    """
    import tensorflow as tf

    out = f"ram://bucket{tmp_path.name}"
    for part in (1, 2):  # unlike a bucket, it wants its folders made
        tf.io.gfile.makedirs(f"{out}/part-{part}/index")
        tf.io.gfile.makedirs(f"{out}/part-{part}/journal")
    write_parts(str(work), out, 1)
    write_parts(str(work), out)
    found = {}
    for name in whole[1]:
        with tf.io.gfile.GFile(f"{out}/{name}", "rb") as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    assert found == whole[1]
    assert not tf.io.gfile.glob(f"{out}/part-1/journal/*")

    folders = [f"{out}/part-1", f"{out}/part-2"]
    assert verify_parts(folders).empty
    shard = next(name for name in found if name.endswith(".tfrec"))
    tf.io.gfile.remove(f"{out}/{shard}")
    assert verify_parts(folders)["problem"].tolist() == ["the file is missing"]


PEAK = """
import resource, sys
from kaggle_tfr.parallel import use_backend
from kaggle_tfr.write.parts import write_parts
use_backend(1)
write_parts(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_shard(tmp_path):
    """
    A shard of 150 MB takes hardly more memory than one of 15 MB.
    """
    few = make_images(tmp_path / "images", 30, sizes=(790, 800))
    peaks = []
    for times in (2, 60):
        rows = pd.concat([few.assign(image_id=few["image_id"] + f"-{i}") for i in range(times)])
        rows.attrs = few.attrs
        rows = rows.assign(fold=0).reset_index(drop=True)
        work = tmp_path / str(times)
        plan_images(rows, work, size=None, n_shards=1, n_folds=0)
        call = [sys.executable, "-c", PEAK, str(work)]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)  # MB
        size = sum(path.stat().st_size for path in (work / "part-1").glob("*.tfrec"))
    assert size > 150e6
    assert peaks[1] - peaks[0] < 30, peaks
