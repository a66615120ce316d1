"""A damaged or foreign part: what verify says of it, and what 04 run again makes of it."""

import shutil
from pathlib import Path

import pytest
from support.plans import digests, make_images, plan_images

from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import save_stats, verify_parts

FILES = ["plan.json", "shards.csv", "train.csv", "test.csv", "labels.json", "labels.txt"]
FILES += ["schema.json", "stats.json", "rejects.csv", "dataset-metadata.json", "SHA256SUMS"]
FILES += ["sample_submission.csv", "index/trees-f0-000-11.tfrec.idx", "trees-f0-000-11.tfrec"]


def run_04(work):
    """The faults of the part as 04 leaves it."""
    write_parts(str(work))
    found = verify_parts(str(work / "part-1"), str(work))
    if found.faults.empty:
        save_stats(found.stats[str(work / "part-1")], str(work / "part-1" / "stats.json"))
    return found.faults


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A work folder with a part of labelled and test images, one of which is refused."""
    work = tmp_path_factory.mktemp("repair")
    table = make_images(work / "images", 42)
    table["split"] = ["train"] * 36 + ["test"] * 6
    table["fold"] = table["fold"].where(table["split"] == "train", -1)
    table["n_bytes"] = 0
    planned = plan_images(table, work, n_shards=3)[1]
    (work / "sample_submission.csv").write_text("image_id,label\n0041,0\n")
    refused = planned[(planned["split"] == "train") & (planned["fold"] == 0)].iloc[2]
    Path(refused["path"]).write_bytes(b"no picture")
    assert run_04(work).empty
    return work


@pytest.fixture
def work(made, tmp_path):
    """A copy of the part and its plan, to be damaged."""
    return shutil.copytree(made, tmp_path / "work")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit(path):
    """Another digit in place of the last one."""
    data = path.read_bytes()
    at = max(data.rfind(b"%d" % digit) for digit in range(10))
    path.write_bytes(data[:at] + b"%d" % ((data[at] - 47) % 10) + data[at + 1 :])


def repeat(path):
    """The last line twice."""
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])


DAMAGES = [Path.unlink, edit, cut, repeat]
CASES = [
    pytest.param(name, damage, marks=[pytest.mark.heavy] * (damage != DAMAGES[number % 4]))
    for number, name in enumerate(FILES)
    for damage in DAMAGES
]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_any_damaged_file_is_found_and_mended_to_the_byte(work, made, name, damage):
    """Each file of a part, lost, cut, edited or with a line twice: verify names it, 04 mends it."""
    part, whole = work / "part-1", digests(made / "part-1")
    assert set(FILES) <= set(whole)
    damage(part / name)
    assert digests(part) != whole
    faults = verify_parts(str(part)).faults
    assert Path(name).name.removesuffix(".idx") in " ".join(faults["file"])
    assert run_04(work).empty
    assert digests(part) == whole
    assert verify_parts(str(part)).faults.empty
