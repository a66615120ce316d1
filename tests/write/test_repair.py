"""Verify names the damage of a part, and 04 repairs it with equal bytes."""

import re
import shutil
from itertools import cycle
from pathlib import Path

import pandas as pd
import pytest
from support.plans import digests, make_images, plan_images, verify, write

from kaggle_tfr.plan.plan import read_plan, save_plan
from kaggle_tfr.write.stats import save_stats

FILES = [
    "plan.json",
    "shards.csv",
    "train.csv",
    "test.csv",
    "labels.json",
    "labels.txt",
    "schema.json",
    "stats.json",
    "folds.csv",
    "rejects.csv",
    "SHA256SUMS",
    "sample_submission.csv",
    "index/trees-f0-000-11.tfrec.idx",
    "trees-f0-000-11.tfrec",
    "test/trees-test-000-6.tfrec",
]


def run_04(work, **options):
    """Write and verify the part as 04 does, and return its faults."""
    part = str(work / "part-1")
    write(work, **options)
    verified = verify(part, work)
    if verified.faults.empty:
        save_stats(verified.stats.loc[part], part)
    return verified.faults


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A work folder with a part of labelled and test images, and one rejected image."""
    work = tmp_path_factory.mktemp("repair")
    table = make_images(work / "images", 42)
    table["split"] = ["train"] * 36 + ["test"] * 6
    table["fold"] = table["fold"].where(table["split"] == "train", -1)
    table["n_bytes"] = 0
    _, planned = plan_images(table, work, n_shards=3)
    (work / "sample_submission.csv").write_text("image_id,label\n0041,0\n")
    rejected = planned[(planned["split"] == "train") & (planned["fold"] == 0)].iloc[2]
    Path(rejected["path"]).write_bytes(b"not an image")
    assert run_04(work).empty
    return work


@pytest.fixture
def work(made, tmp_path):
    """A copy of the part and its plan, to be damaged."""
    return shutil.copytree(made, tmp_path / "work")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit(path):
    """Change the first digit of a file."""
    data = bytearray(path.read_bytes())
    data[re.search(rb"\d", data).start()] ^= 1
    path.write_bytes(data)


def repeat(path):
    """Write the last line of a file twice."""
    data = path.read_bytes()
    last_line = data.splitlines(keepends=True)[-1]
    path.write_bytes(data + last_line)


DAMAGES = [Path.unlink, edit, cut, repeat]


@pytest.mark.parametrize(("name", "damage"), zip(FILES, cycle(DAMAGES)))
def test_any_damaged_file_is_found_and_fixed_to_the_byte(work, made, name, damage):
    """A file is lost, edited, cut or has a line twice: verify names it, 04 fixes it.

    Without plan.json, 04 cannot know whether the shards are of the plan.
    """
    part = work / "part-1"
    whole = digests(made / "part-1")
    assert set(FILES) <= set(whole)
    damage(part / name)
    assert digests(part) != whole

    faults = verify(part).faults

    assert name in set(faults["file"])
    assert run_04(work, overwrite=name == "plan.json").empty
    assert digests(part) == whole
    assert verify(part).faults.empty


def use_copied_images(work):
    """Let the plan read the images in its work folder, and return its table."""
    table = pd.read_parquet(work / "plan.parquet")
    images = work / "images"
    table["path"] = [str(images / Path(path).name) for path in table["path"]]
    save_plan(read_plan(str(work)), table, str(work))
    return table


def test_no_shard_stays_when_a_rejected_image_is_back(work):
    """Its shard then has another name, since that contains the number of records."""
    part = work / "part-1"
    table = use_copied_images(work)
    rejected = pd.read_csv(part / "rejects.csv", dtype=str)["image_id"][0]
    path = Path(table.set_index("image_id").loc[rejected, "path"])
    path.write_bytes(Path(table["path"].iloc[0]).read_bytes())
    (part / "rejects.csv").unlink()

    assert run_04(work).empty

    indices = [path.name.removesuffix(".idx") for path in part.rglob("*.idx")]
    assert "trees-f0-000-12.tfrec" in indices
    assert sorted(indices) == sorted(path.name for path in part.rglob("*.tfrec"))
    assert "42 records in 4 TFRec" in (part / "dataset-metadata.json").read_text()


def test_a_torn_journal_costs_a_shard_written_again(work, made):
    """The shard of a row that cannot be read."""
    part = work / "part-1"
    (part / "shards.csv").unlink()
    (part / "journal").mkdir()
    (part / "journal" / "000001.json").write_text('{"file": "trees-f')
    assert "shards.csv" in set(verify(part).faults["file"])
    assert run_04(work).empty
    assert digests(part) == digests(made / "part-1")


@pytest.mark.parametrize("name", ["shards.csv", "train.csv", "trees-f0-000-11.tfrec"])
def test_a_folder_where_a_file_belongs_is_named(work, made, name):
    """04 stops and names it, and resumes without it; verify names it as well."""
    part = work / "part-1"
    (part / name).unlink()
    (part / name).mkdir()
    assert name in set(verify(part).faults["file"])

    with pytest.raises(IsADirectoryError, match=name):
        write(work)

    (part / name).rmdir()
    assert run_04(work).empty
    assert digests(part) == digests(made / "part-1")


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_sources_that_are_gone_are_not_compared(work, spoil):
    """A written part does not need its sources: they may be removed or emptied."""
    for path in use_copied_images(work)["path"].iloc[5:]:
        spoil(Path(path))

    verified = verify(work / "part-1", work)

    assert verified.faults.empty
    assert 0 < len(verified.sources) <= 5


def test_a_part_is_written_again_without_its_sources(work, made):
    """Nothing of a finished part is read again, not even its rejected image."""
    for path in use_copied_images(work)["path"]:
        Path(path).unlink()

    assert run_04(work).empty

    assert digests(work / "part-1") == digests(made / "part-1")


def test_a_part_without_its_plan_is_not_overwritten(work):
    """Only the user knows whether its shards are needed; nor is an unfinished part."""
    (work / "part-1/journal").mkdir()
    for name in ("plan.json", "shards.csv"):
        (work / "part-1" / name).unlink()
        with pytest.raises(ValueError, match=r"its plan.json is damaged.*OVERWRITE"):
            write(work)


NAMES = [("SHA256SUMS", "folds.csv"), ("shards.csv", "trees-f0-000-11.tfrec")]


@pytest.mark.parametrize(("table", "name"), NAMES)
def test_a_name_outside_the_part_is_an_error(work, table, name):
    """OVERWRITE on a part whose tables were tampered with removes no file elsewhere."""
    path = work / "part-1" / table
    path.write_text(path.read_text().replace(name, "../plan.parquet"))

    with pytest.raises(ValueError, match="plan.parquet' is outside its folder"):
        write(work, overwrite=True)
    assert (work / "plan.parquet").exists()
