"""Parts of new images beside earlier parts, which stay as they were written."""

import json
import shutil
from dataclasses import replace

import pytest
from support.plans import (
    digests,
    list_plans,
    make_images,
    plan_images,
    two_parts,
    verify,
    write,
)

from kaggle_tfr.plan.plan import read_plan, save_plan
from kaggle_tfr.storage import read_parquet
from kaggle_tfr.write.earlier_parts import check_earlier_parts
from kaggle_tfr.write.metadata import DATASET_FILE


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("growth") / "images", 60)


@pytest.fixture(scope="module")
def works(table, tmp_path_factory):
    """Return the work folders of 36 images in two parts, and of 24 new ones in one."""
    folder = tmp_path_factory.mktemp("works")
    old, new = folder / "old", folder / "new"
    plan, _ = two_parts(table[:36], old)
    plan_images(table[36:], new, n_shards=3, earlier=list_plans(plan))
    return old, new


@pytest.fixture(scope="module")
def plan(works):
    """Return the plan of the growth."""
    return read_plan(str(works[1]))


@pytest.fixture(scope="module")
def grown(works, tmp_path_factory):
    """Return the folder of both parts of the first plan, and the growth's part."""
    out = tmp_path_factory.mktemp("grown")
    for work in works:
        write(work, out)
    return out


@pytest.fixture
def out(grown, tmp_path):
    """Return a copy of the parts, to be changed."""
    return shutil.copytree(grown, tmp_path / "out")


def digest_earlier(folder):
    sums = digests(folder)
    return {name: sums[name] for name in sums if not name.startswith("part-3/")}


def test_only_images_of_the_growth_are_compared_with_their_sources(works, grown):
    """The plan of the growth lacks the others; the records of all parts are checked."""
    checked = verify(grown, works[1])

    assert list(checked.stats) == [f"{grown}/part-{part}" for part in (1, 2, 3)]
    assert checked.faults.empty
    assert set(checked.sources["part"]) == {f"{grown}/part-3"}


def test_overwrite_replaces_the_growth_only(works, out, plan):
    """The earlier parts are not left over from another plan."""
    before = digest_earlier(out)
    work = shutil.copytree(works[1], out.parent / "work")
    rows = read_parquet(f"{work}/plan.parquet")
    save_plan(replace(plan, fingerprint="other"), rows, str(work))
    with pytest.raises(ValueError, match=r"part-3' was written from a different plan"):
        write(work, out)

    write(work, out, overwrite=True)

    assert digest_earlier(out) == before
    assert read_plan(str(out / "part-3")).fingerprint == "other"


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_first_plan_leaves_the_parts_that_continue_it(works, out, overwrite):
    """Its run may be repeated, for example because a shard was lost."""
    before = digests(out)
    next((out / "part-2").glob("*.tfrec")).unlink()

    write(works[0], out, overwrite=overwrite)

    assert digests(out) == before


def test_a_part_with_an_earlier_number_but_of_another_plan_is_left_over(works, out):
    """Readers would mix it with the growth: it is an error, or OVERWRITE removes it."""
    path = out / "part-2" / "plan.json"
    plan = read_plan(str(out / "part-2"))
    path.write_text(replace(plan, fingerprint="other").to_json())

    with pytest.raises(ValueError, match=r"part-2': left over .* has part 3, .*OVERW"):
        write(works[1], out)
    write(works[1], out, overwrite=True)

    assert sorted(path.name for path in out.iterdir()) == ["part-1", "part-3"]


def test_part_is_a_number_of_the_growth(works, tmp_path):
    """The earlier parts are not in its plan."""
    with pytest.raises(ValueError, match="PART is 1, but the plan has part 3"):
        write(works[1], tmp_path, 1)
    assert write(works[1], tmp_path, 3)["part"].unique() == [3]


def test_the_page_of_a_grown_part_does_not_contradict_earlier_pages(grown):
    """They are published as parts 1 and 2 of 2, and the dataset may grow again."""
    pages = [
        json.loads((grown / f"part-{part}" / DATASET_FILE).read_text())
        for part in (1, 2, 3)
    ]
    assert [page["title"] for page in pages] == [
        "trees TFRecords part 1 of 2",
        "trees TFRecords part 2 of 2",
        "trees TFRecords part 3",
    ]
    assert pages[2]["id"].endswith("/trees-tfrecords-part-3")
    text = "a dataset that grows: new parts add images, and earlier parts stay as they"
    assert text in pages[2]["description"]


def test_earlier_parts_are_compared_with_their_sums(plan, grown):
    """Each folder is listed with the number of files that were compared."""
    folders = [str(grown / f"part-{part}") for part in (1, 2)]

    checked = check_earlier_parts(plan, folders)

    assert checked["folder"].tolist() == folders
    assert set(checked["state"]) == {"unchanged"}
    sums = [(grown / f"part-{part}" / "SHA256SUMS").read_text() for part in (1, 2)]
    assert checked["files"].tolist() == [text.count("\n") for text in sums]


def test_an_earlier_part_without_sums_is_compared_by_its_plan(plan, grown, tmp_path):
    """Only plan.json of a published part may be here, under the dataset's name."""
    folder = tmp_path / "trees-tfrecords-2-of-2"
    folder.mkdir()
    shutil.copy(grown / "part-2" / "plan.json", folder)

    (row,) = check_earlier_parts(plan, [str(folder)]).itertuples()

    assert (row.files, row.state) == (1, "plan.json only: there is no SHA256SUMS")


def break_shard(part):
    path = next(part.glob("*.tfrec"))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    return rf"part-1/{path.name}' is not as it was written: it has changed"


def remove_table(part):
    (part / "train.csv").unlink()
    return r"part-1/train\.csv' is not as it was written: the file is missing"


def break_sums(part):
    (part / "SHA256SUMS").write_text("half a line")
    return r"part-1/SHA256SUMS' is damaged"


def name_other_plan(part):
    path = part / "plan.json"
    path.write_text(path.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    return r"part-1' is not an earlier part .* continues parts 1 to 2"


def name_other_part(part):
    path = part / "shards.csv"
    table = path.read_text().splitlines()
    rows = [line.replace(",1,", ",3,") for line in table[1:]]
    path.write_text("\n".join([table[0], *rows]) + "\n")
    return r"part-1' is not an earlier part"


def remove_plan(part):
    (part / "plan.json").unlink()
    return r"part-1' has no plan\.json"


@pytest.mark.parametrize(
    "change",
    [
        break_shard,
        remove_table,
        break_sums,
        name_other_plan,
        name_other_part,
        remove_plan,
    ],
)
def test_an_earlier_part_that_has_changed_is_named(plan, out, change):
    """Its file is named, with what to do."""
    message = change(out / "part-1")
    with pytest.raises(ValueError, match=rf"{message}.*(again|FOLDS_FROM)"):
        check_earlier_parts(plan, [str(out / "part-2"), str(out / "part-1")])
