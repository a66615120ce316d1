"""Shards are whole, equal however they were made, and a run that stops goes on where it was."""

import errno
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
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
)

from kaggle_tfr import notebook
from kaggle_tfr.deduplicate.outcomes import (
    LEAK_COLUMNS,
    DuplicateSettings,
    save_clusters,
)
from kaggle_tfr.explore.table import save_rejects
from kaggle_tfr.parallel import close_backend, use_backend
from kaggle_tfr.plan.plan import number_shards, read_plan, save_plan
from kaggle_tfr.records import RECORDS_FOLDER
from kaggle_tfr.shards import find_shards
from kaggle_tfr.storage import sha256_of
from kaggle_tfr.write import journal, shard
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
    assert two_parts(table, folder)[0].n_parts == 2
    return folder


@pytest.fixture(scope="module")
def whole(work, tmp_path_factory):
    """Both parts as one undisturbed run with one worker writes them, and their digests."""
    out = tmp_path_factory.mktemp("whole")
    use_backend(1)
    write_parts(str(work), str(out))
    return out, digests(out)


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of the parts, to be changed."""
    return shutil.copytree(whole[0], tmp_path / "out")


def test_records_hold_the_plan_s_images_in_the_plan_s_order(work, whole, table):
    """TensorFlow alone reads every planned image once; train.csv names its file and record."""
    plan = pd.read_parquet(work / "plan.parquet")
    records, rows = [], []
    for part in sorted(whole[0].iterdir()):
        own = pd.read_csv(part / "shards.csv")["file"]
        each = {file: read_plainly([part / file]) for file in own}
        records += [record for file in own for record in each[file]]
        of_split = pd.read_csv(part / "train.csv", dtype={"image_id": str})
        rows += [
            (each[r.file][r.record], r.image_id, r.label) for r in of_split.itertuples()
        ]
    assert len(records) == len(rows) == len(table)
    assert [r["image_id"].decode() for r in records] == plan["image_id"].tolist()
    assert [r["label"] for r in records] == plan["label"].tolist()
    assert all(min(r["height"], r["width"]) == 32 for r in records)
    assert all(
        r["image_id"].decode() == name and r["label"] == label
        for r, name, label in rows
    )
    assert {path.name for path in part.iterdir() if ".tfrec" not in path.name} == {
        *(
            "schema.json",
            "labels.json",
            "labels.txt",
            "shards.csv",
            "plan.json",
            "index",
        ),
        *("dataset-metadata.json", "train.csv", "SHA256SUMS"),
    }
    assert (part / "labels.txt").read_text() == "0:ash\n1:birch\n2:Čedar, red\n"


LOKY = pytest.param(
    2, "loky", [0], marks=pytest.mark.heavy
)  # test_dask.py has processes too


@pytest.mark.parametrize(
    ("jobs", "backend", "parts"),
    [(2, "threading", [1, 2]), (4, "threading", [0]), LOKY],
)
def test_bytes_do_not_depend_on_the_workers(  # noqa: PLR0917
    work, whole, tmp_path, jobs, backend, parts
):
    """One worker, two or four; threads or processes; part by part or together: the same files."""
    use_backend(jobs, backend)
    for part in parts:
        write_parts(str(work), str(tmp_path), part)
    assert digests(tmp_path) == whole[1]


def test_a_second_run_writes_only_what_is_damaged_or_missing(work, copied, whole):
    """It trusts a shard by its sha256, touches no other file, and clears what a kill left."""
    before = {
        path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()
    }
    write_parts(str(work), str(copied))
    assert {p: p.stat().st_mtime_ns for p in copied.rglob("*") if p.is_file()} == before

    first, second = sorted((copied / "part-1").glob("*.tfrec"))[:2]
    first.unlink()
    data = second.read_bytes()
    second.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    (copied / "part-1" / f"labels.json.{'0a' * 16}.tmp").write_text("{")
    write_parts(str(work), str(copied))
    assert digests(copied) == whole[1]


CLEANING = {
    "a notebook's start": lambda work: notebook.start({"WORK_DIR": work}),
    "save_rejects": lambda work: save_rejects(
        pd.DataFrame([["a", "a.jpg", ""]], columns=["image_id", "path", "problem"]),
        work,
    ),
    "save_clusters": lambda work: save_clusters(
        pd.DataFrame({"row": [0]}),
        pd.DataFrame(columns=LEAK_COLUMNS),
        DuplicateSettings(),
        work,
    ),
    "save_plan": lambda work: save_plan(
        read_plan(work), pd.read_parquet(f"{work}/plan.parquet"), work
    ),
    "write_parts": lambda work: write_parts(work, f"{work}/../out"),
    "open_part": lambda work: journal.open_part(work, read_plan(work), "run"),
    "remove_journal": journal.remove_journal,
}


@pytest.mark.parametrize("step", CLEANING)
def test_each_step_removes_what_killed_runs_left(work, tmp_path, monkeypatch, step):
    """By itself: whoever calls one step only is left no temporary file of an earlier run.

    What is below a folder of a part is found at any depth.
    """
    monkeypatch.setenv(RECORDS_FOLDER, "")
    folder = shutil.copytree(work, tmp_path / "work")
    places = ["plan.json", "records/a.tfrec-1.frames"]
    places += ["index/train/a/b.idx"] if step in ("open_part", "remove_journal") else []
    for place in places:
        path = folder / f"{place}.{'0a' * 16}.tmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    CLEANING[step](str(folder))
    assert list(folder.rglob("*.tmp")) == []


def replan(work, folder, *, labels=(), **changes):
    """A copy of the work folder under a plan with other settings."""
    shutil.copytree(work, folder)
    plan, table = read_plan(str(folder)), pd.read_parquet(folder / "plan.parquet")
    settings = replace(plan.settings, **changes)
    shards = number_shards(plan.shards, settings.shard_name)
    plan = replace(plan, settings=settings, image=settings.image, shards=shards)
    plan = replace(
        plan, labels=replace(plan.labels, **dict(labels)), fingerprint="other"
    )
    save_plan(plan, table, str(folder))


def test_overwrite_replaces_our_files_and_leaves_those_of_others(
    work, copied, whole, tmp_path
):
    """A stale part is refused, its difference named; OVERWRITE writes it as into a fresh folder."""
    replan(work, tmp_path / "work", quality=50, shard_name="{name}-{i}.tfrec")
    with pytest.raises(
        ValueError, match=r"QUALITY: 90 before, 50 now.*OVERWRITE = True"
    ):
        write_parts(str(tmp_path / "work"), str(copied))
    assert digests(copied) == whole[1]
    (copied / "part-1" / "notes.md").write_text("mine")
    write_parts(str(tmp_path / "work"), str(copied), overwrite=True)
    write_parts(str(tmp_path / "work"), str(tmp_path / "fresh"))

    (copied / "part-1" / "notes.md").unlink()
    assert digests(copied) == digests(tmp_path / "fresh")


@pytest.fixture
def replanned(table, tmp_path):
    """A work folder in which two parts were written, and one part was planned after that."""
    two_parts(table, tmp_path, n_shards=12)
    write_parts(str(tmp_path))
    assert plan_images(table, tmp_path, n_shards=3)[0].n_parts == 1
    return tmp_path


def test_parts_of_an_earlier_plan_are_not_read_with_the_present_ones(
    replanned, table, capsys
):
    """Without OVERWRITE the run stops and names them; with it, their files go, others' stay."""
    work = replanned
    (work / "part-2" / "notes.md").write_text("mine")
    (work / "part-2" / "report.html").write_text("of the run before")
    (work / "part-02").mkdir()
    (work / "part-02" / "shards.csv").write_text("mine")
    (work / "part-9").mkdir()
    (work / "part-9" / "plan.json").write_text("a plan of somebody else")
    (work / "part-2" / "index" / f"a.idx.{'0a' * 16}.tmp").write_text(
        "0 1"
    )  # of a killed run
    before = digests(work)
    with pytest.raises(
        ValueError, match=r"part-2': left over .* 1 part.*OVERWRITE = True"
    ):
        write_parts(str(work))
    assert digests(work) == before
    write_parts(str(work), overwrite=True)

    assert [path.name for path in (work / "part-2").iterdir()] == ["notes.md"]
    assert "part-2', left over from another plan, were rem" in capsys.readouterr().out
    shutil.rmtree(work / "part-02")
    assert find_shards(str(work))["count"].sum() == len(table)
    assert digests(work / "part-1") == digests(write_fresh(work))

    (work / "part-9" / "shards.csv").write_text("file\na.tfrec\n")
    (work / "part-9" / "SHA256SUMS").write_text(f"{'0' * 64}  plan.json\n")
    before = digests(work)
    for is_there in (True, False):
        with pytest.raises(
            ValueError, match=r"part-9' has shards, but no plan\.json.*Move it"
        ):
            write_parts(str(work), overwrite=True)
        assert digests(work) == before
        if is_there:
            (work / "part-9" / "plan.json").unlink()
            before = digests(work)


@pytest.mark.parametrize("part", ["part-1", "part-2"])
def test_an_older_part_that_the_plan_reads_is_not_removed(replanned, part):
    """With shards as input it may be the only place where the images are, left over or not."""
    path = replanned / "plan.parquet"
    images = pd.read_parquet(path)
    images["path"] = [
        f"{replanned}/{part}/a.tfrec#{number}" for number in range(len(images))
    ]
    images.to_parquet(path)
    before = digests(replanned)
    with pytest.raises(
        ValueError, match=f"{part}' contains images that this plan reads.*OUT_DIR"
    ):
        write_parts(str(replanned), overwrite=True)
    assert digests(replanned) == before


def test_05_and_06_read_the_parts_that_04_wrote_to_out_dir(
    replanned, table, root, monkeypatch
):
    """The first cells of both notebooks, with OUT_DIR set: the earlier part is not shown."""
    monkeypatch.setenv(
        "KAGGLE_TFR_RECORDS", ""
    )  # notebooks set it, and add to the path
    monkeypatch.setattr(sys, "path", [*sys.path])
    out = f"{replanned}/out"
    write_parts(str(replanned), out)
    for name in ("05_read_and_visualize", "06_train"):
        path = root / "notebooks" / f"{name}.ipynb"
        code = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
        values = {"__name__": name}
        set_up, parameters, start = code[:3]
        exec(set_up, values)
        exec(parameters, values)
        values |= {"WORK_DIR": str(replanned), "OUT_DIR": out}
        exec(start, values)
        assert values["shards"]["count"].sum() == len(table)
        assert values["shards"]["folder"].unique().tolist() == [f"{out}/part-1"]


def write_fresh(work):
    write_parts(str(work), f"{work}-fresh")
    return Path(f"{work}-fresh", "part-1")


def test_one_part_of_a_plan_leaves_the_others_to_their_runs(
    work, copied, tmp_path, capsys
):
    """With PART, parts of the same plan beside it are right, and of another plan are an error.

    Another run may be writing them: OVERWRITE removes only what no run of the plan writes.
    """
    write_parts(str(work), str(copied), 2, overwrite=True)
    write_parts(str(work), str(copied), 1)
    replan(work, tmp_path / "work", quality=50)
    shutil.copytree(copied / "part-1", copied / "part-3")
    before = digests(copied / "part-2")
    with pytest.raises(
        ValueError, match=r"part-2', '.*part-3': left over from another plan"
    ):
        write_parts(str(tmp_path / "work"), str(copied), 1)
    write_parts(str(tmp_path / "work"), str(copied), 1, overwrite=True)

    assert "part-2' is of another plan. Write it too" in capsys.readouterr().out
    assert digests(copied / "part-2") == before
    assert sorted(path.name for path in copied.iterdir()) == ["part-1", "part-2"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_left_over_part_that_is_elsewhere_keeps_its_files(
    replanned, tmp_path_factory, inside
):
    """Links to a folder outside OUT_DIR, in a part's place or inside a part, are named."""
    work, elsewhere = replanned, tmp_path_factory.mktemp("elsewhere") / "own"
    linked = work / "part-2" / "index" if inside else work / "part-2"
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    before = digests(elsewhere), digests(work)
    with pytest.raises(ValueError, match=r"part-2.*Remove that link"):
        write_parts(str(work), overwrite=True)
    assert (digests(elsewhere), digests(work)) == before


@pytest.mark.parametrize("column", ["file", "split"])
@pytest.mark.parametrize("where", ["above", "absolute"])
def test_a_row_that_leads_out_of_the_part_is_refused(
    work, copied, tmp_path, column, where
):
    """OVERWRITE = True on a tampered shards.csv: the row is named, no file is removed anywhere."""
    (tmp_path / "mine.csv").write_text("mine")
    name = {"above": "../../mine", "absolute": str(tmp_path / "mine")}[where]
    rows = pd.read_csv(copied / "part-1" / "shards.csv")
    rows.loc[1, column] = f"{name}.csv" if column == "file" else name
    rows.to_csv(copied / "part-1" / "shards.csv", index=False)
    replan(work, tmp_path / "work", quality=50)
    before = digests(tmp_path)
    with pytest.raises(
        ValueError, match=r"shards\.csv.*mine\.csv' is outside its folder"
    ):
        write_parts(str(tmp_path / "work"), str(copied), overwrite=True)
    assert digests(tmp_path) == before
    assert (
        "is outside" in verify_parts(str(copied / "part-1")).faults["problem"].iloc[0]
    )


def test_images_that_vanish_stop_the_run_and_those_that_went_bad_are_refused(
    tmp_path, capsys
):
    """Whole shards stay for the rerun; rejects.csv, count and name tell of the image left out."""
    part, table = tmp_path / "part-1", make_images(tmp_path / "images", 24)
    _, planned = plan_images(table, tmp_path, n_shards=3)
    Path(table["path"][5]).write_bytes(b"no picture".ljust(table["n_bytes"][5]))
    gone = Path(planned["path"].iloc[-1])
    use_backend(1)
    gone.rename(tmp_path / "moved")
    with pytest.raises(
        OSError, match=rf"Stopped after 2 of 3 shards.*{gone.name}.*again"
    ):
        write_parts(str(tmp_path))
    assert re.search(r"Writing images: .*16/24", capsys.readouterr().err)
    assert len(list(part.glob("*.tfrec"))) == 2
    assert not (part / "shards.csv").exists()
    (tmp_path / "moved").rename(gone)
    shards = write_parts(str(tmp_path))
    rejects = pd.read_csv(part / "rejects.csv", dtype=str)
    assert rejects[["image_id", "problem"]].to_numpy().tolist() == [
        ["0005", "not an image"]
    ]
    short = shards[shards["refused"] == 1].iloc[0]
    assert short["count"] == 7
    assert short["file"].endswith("-7.tfrec")
    assert len(read_plainly([part / short["file"]])) == 7
    assert "0005" not in pd.read_csv(part / "train.csv", dtype=str)["image_id"].tolist()
    before = digests(part)
    assert write_parts(str(tmp_path)).equals(shards)
    assert digests(part) == before


def test_pictures_that_others_replaced_since_the_plan_are_refused(tmp_path):
    """Another valid picture under the same name, of another size or of the same: both are named."""
    table = make_images(tmp_path / "images", 24)
    paths = [Path(path) for path in table["path"]]
    table["digest"] = [
        hashlib.blake2b(p.read_bytes(), digest_size=8).hexdigest() for p in paths
    ]
    table.loc[7, "digest"] = ""  # unknown
    plan_images(table, tmp_path, n_shards=3)
    paths[3].write_bytes(paths[4].read_bytes())
    for number in (5, 7):
        data = bytearray(paths[number].read_bytes())
        data[15] ^= 1  # dots an inch
        paths[number].write_bytes(data)
    sizes = f"{table['n_bytes'][3]:,} bytes before, {table['n_bytes'][4]:,} now"
    assert write_parts(str(tmp_path))["count"].sum() == 22
    rejects = pd.read_csv(tmp_path / "part-1" / "rejects.csv", dtype=str)
    told = dict(zip(rejects["image_id"], rejects["problem"], strict=True))
    assert told == {
        "0003": f"changed since 01_explore: {sizes}",
        "0005": f"changed since 01_explore: other {table['n_bytes'][5]:,} bytes",
    }


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(("high", "limit"), [(1 / 12, 0.6), (1 / 4, 3 / 4)])
def test_a_part_never_passes_its_limit(table, tmp_path, jobs, high, limit):
    """Images heavier than planned, or room for half of the shards: those that fit stay."""
    plan, rows = plan_images(table, tmp_path, n_shards=6)
    total = plan.forecast["bytes_per_image"] * len(rows)
    shards = [replace(shard, bytes_high=int(total * high)) for shard in plan.shards]
    plan = replace(plan, shards=shards, shard_limit_bytes=int(total * limit))
    save_plan(plan, rows, str(tmp_path))
    use_backend(jobs)

    said = {
        0.6: r"the part would .* limit.*PART_LIMIT_GB",
        0.75: "part 1 would pass its limit: ",
    }
    with pytest.raises(OSError, match=said[limit]):
        write_parts(str(tmp_path))
    files = list((tmp_path / "part-1").glob("*.tfrec"))
    assert sum(path.stat().st_size for path in files) <= total * limit
    assert all(len(read_plainly([path])) == 8 for path in files)
    assert high * 6 < 1 or 1 <= len(files) <= 4


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file", "in/a.jpg"),
            "Put that file back.",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), shard.MAKE_ROOM),
        (
            OSError(errno.EIO, "Input/output error"),
            "Fix the cause that the error names.",
        ),
        (tf.errors.ResourceExhaustedError(None, None, "full"), shard.MAKE_ROOM),
    ],
)
def test_room_is_asked_for_only_where_there_is_none(tmp_path, error, advice):
    """The problem of a shard ends with what helps against that one."""
    (tmp_path / "journal").mkdir()
    assert shard._explain_error(error, str(tmp_path)).endswith(f" {advice}")


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_run_that_loses_its_part_is_not_told_to_make_room(
    table, tmp_path, monkeypatch, is_removed
):
    """Another run takes the part over: the advice is about that run, not about disks or limits.

    Nor is it about this run's temporary file, which the other one may have removed.
    """
    plan_images(table, tmp_path)
    write_records = shard._write_records

    def write_taken(task, temporary):
        Path(task.part_dir, journal.RUN).write_text("another run")
        written = write_records(task, temporary)
        if is_removed:
            Path(temporary).unlink()
        return written

    monkeypatch.setattr(shard, "_write_records", write_taken)
    use_backend(1)
    with pytest.raises(
        OSError, match=r"another run has begun.*Wait until no other run"
    ) as stop:
        write_parts(str(tmp_path))
    assert "room" not in str(stop.value)
    assert "PART_LIMIT_GB" not in str(stop.value)


def test_no_shard_begins_when_the_session_ends(table, tmp_path, monkeypatch, capsys):
    """In a Kaggle batch session the notebook ends well, so that its output is kept and taken up."""
    plan_images(table, tmp_path)
    hours = iter([1, 1, 0])
    monkeypatch.setattr("kaggle_tfr.session.hours_left", lambda: next(hours, 0))
    use_backend(1)
    with pytest.raises(SystemExit, match="^0$"):
        write_parts(str(tmp_path))
    text = capsys.readouterr().out
    assert "Stopped after 2 of 6 shards, which are whole and stay" in text
    assert "session's 12 hours are nearly over" in text
    assert len(list((tmp_path / "part-1").glob("*.tfrec"))) == 2
    monkeypatch.undo()
    assert len(write_parts(str(tmp_path))) == 6


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 9 MB."""
    call = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(tmp_path / "disk")]
    (tmp_path / "disk").mkdir()
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            f"a small file system cannot be mounted here: {done.stderr.strip()}"
        )
    yield tmp_path / "disk"
    subprocess.run(["umount", call[-1]], check=True)


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_full_disk_stops_the_run_resumably(
    tmp_path, tiny_disk, foreseen, monkeypatch
):
    """Foreseen by the free space or met as ENOSPC: whole shards stay, with room it goes on."""
    table = repeat_images(make_images(tmp_path / "images", 6, sizes=(300, 420)), 4)
    plan_images(table, tmp_path, size=None, n_shards=6, quality=100)
    write_parts(str(tmp_path), str(tmp_path / "whole"))
    if not foreseen:
        monkeypatch.setattr("kaggle_tfr.write.shard.SPARE_DISK_BYTES", -(1 << 40))
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"\0" * (8 << 20))
    use_backend(2)
    stopped = r"Stopped after \d of 6 shards.*MB are free for .*Make room"
    with pytest.raises(OSError, match=stopped) as stop:
        write_parts(str(tmp_path), str(tiny_disk))
    separately = "may take 0.4 MB and 8.4 MB are kept for the files beside the shards"
    assert (separately in str(stop.value)) == foreseen

    sizes = [
        len(read_plainly([path])) for path in (tiny_disk / "part-1").glob("*.tfrec")
    ]
    assert len(sizes) < 6
    assert set(sizes) <= {4}
    assert not list((tiny_disk / "part-1" / "journal").glob("*.tmp"))
    ballast.unlink()
    monkeypatch.setattr("kaggle_tfr.write.shard.SPARE_DISK_BYTES", 0)
    write_parts(str(tmp_path), str(tiny_disk))
    assert digests(tiny_disk / "part-1") == digests(tmp_path / "whole" / "part-1")


def test_wrong_choices_are_refused_before_anything_is_written(work, tmp_path):
    """An unknown part, or a NAME outside the part, is an error that says so."""
    bad, out = tmp_path / "work", tmp_path / "a" / "b"
    replan(work, bad, labels={"name": "../../x"})
    before = digests(tmp_path)
    with pytest.raises(ValueError, match="PART is 3, but the plan has 2 parts"):
        write_parts(str(work), str(out), 3)
    with pytest.raises(ValueError, match="is outside its folder"):
        write_parts(str(bad), str(out))
    assert digests(tmp_path) == before
    assert not out.parent.exists()


def test_a_part_in_a_bucket_equals_a_part_on_disk(work, whole, tmp_path):
    """Through TensorFlow's file systems, here in memory: equal bytes, resumed and verified."""
    out = f"ram://bucket{tmp_path.name}"
    for part in (1, 2):  # unlike a bucket, it wants its folders made
        tf.io.gfile.makedirs(f"{out}/part-{part}/index")
        tf.io.gfile.makedirs(f"{out}/part-{part}/journal")
    write_parts(str(work), out, 1)
    write_parts(str(work), out)
    assert {name: sha256_of(f"{out}/{name}") for name in whole[1]} == whole[1]
    assert not tf.io.gfile.glob(f"{out}/part-1/journal/*")

    folders = [f"{out}/part-1", f"{out}/part-2"]
    assert verify_parts(folders).faults.empty
    shard = next(name for name in whole[1] if name.endswith(".tfrec"))
    tf.io.gfile.remove(f"{out}/{shard}")
    assert verify_parts(folders).faults["problem"].tolist() == ["the file is missing"]


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
