"""COMPARE_WITH: my images that are also in published datasets."""

import shutil

import pandas as pd
import pytest
from support.chain import draw_pictures, save_picture
from support.fingerprints import make_fingerprints, publish_images, write_fingerprints
from support.kaggle_server import fixture_kaggle  # noqa: F401
from support.splits import make_images, make_pairs

from kaggle_tfr import deduplicate, mounts
from kaggle_tfr import explore as explore_step
from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.compare import (
    compare_datasets,
    list_overlap,
    name_copies,
    name_datasets,
    read_datasets,
)
from kaggle_tfr.deduplicate.leaks import find_leaks
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    choose_rows,
    count_outcomes,
    load_clusters,
    save_clusters,
)
from kaggle_tfr.explore.table import load_hashes, load_images
from kaggle_tfr.notebook import read_findings
from kaggle_tfr.parameters import DEFAULTS

RADIUS = DuplicateSettings(max_bits=25)
THREE_IMAGES = pd.DataFrame(index=range(3))  # with equal hashes


def make_copies(*rows):
    """Return pairs of `compare_datasets`; a row has a, distance, test_id, dataset."""
    columns = ["a", "distance", "test_id", "dataset"]
    copies = pd.DataFrame(rows, columns=columns)
    known = {"orientation": 1, "match": "hash", "test_split": "train"}
    return copies.assign(**known, test_label="rose")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return the work folder of 01 for drawn images and altered copies of them."""
    folder = tmp_path_factory.mktemp("photos")
    for number, picture in enumerate(draw_pictures(24, 120, 160)):
        name = f"{'ab'[number % 2]}/{number:02d}"
        save_picture(picture, folder / f"in/{name}.jpg")
        save_picture(picture.resize((80, 60)), folder / f"in/{name}-small.jpg")
        mirrored = picture.transpose(0)
        save_picture(mirrored, folder / f"in/{name}-mirrored.jpg")
    blank = draw_pictures(1, 120, 160)[0].point(lambda _: 9)
    save_picture(blank, folder / "in/a/blank.jpg")
    shutil.copy(folder / "in/a/blank.jpg", folder / "in/b/blank.jpg")
    save_picture(blank.resize((80, 60)), folder / "in/b/other-blank.jpg")
    return explore(folder / "in", folder / "work")


def explore(folder, work):
    """Run 01 on class folders; return the work folder."""
    paths = {"INPUT_DIR": str(folder), "WORK_DIR": str(work)}
    explore_step.run({**DEFAULTS, **paths, "N_JOBS": 2})
    return work


@pytest.mark.parametrize("mirrored", [False, True])
def test_copies_in_a_published_part_are_found(photos, tmp_path, mirrored):
    """Smaller ones, mirrored ones with MIRRORED, and of blank images an equal file."""
    images, _ = load_images(str(photos))
    is_theirs = images["image_id"].str.contains("-|b/blank")
    mine = images[~is_theirs].reset_index(drop=True)
    part = publish_images(tmp_path / "part-1", images[is_theirs], photos)
    chosen = DuplicateSettings(mirrored=mirrored)

    others = read_datasets([str(part)])
    copies = compare_datasets(load_hashes(mine, str(photos)), others, chosen)

    expected = [("a/blank.jpg", "b/blank.jpg", "file")]
    for number in range(24):
        name = f"{'ab'[number % 2]}/{number:02d}"
        expected.append((f"{name}.jpg", f"{name}-small.jpg", "hash"))
        if mirrored:
            expected.append((f"{name}.jpg", f"{name}-mirrored.jpg", "mirrored"))
    image_ids = mine["image_id"].iloc[copies["a"]]
    found = zip(image_ids, copies["test_id"], copies["match"], strict=True)
    assert sorted(found) == sorted(expected)
    assert copies["a"].is_monotonic_increasing


def test_names_of_parts_are_those_given(tmp_path):
    """The path of a folder here is private; a part is read once."""
    fingerprints = make_fingerprints(THREE_IMAGES)
    for number in (1, 2, 10):
        part = write_fingerprints(tmp_path / f"work/part-{number}", fingerprints)
        (part / "shards.csv").touch()
    alone = write_fingerprints(tmp_path / "alone", fingerprints)
    work = tmp_path / "work"

    others = read_datasets([f"{work}/part-2/", str(work), str(alone)])

    names = ["work/part-2", "work/part-1", "work/part-10", "alone"]
    assert others["dataset"].unique().tolist() == names
    assert len(others) == 12
    assert read_datasets([]).empty
    with pytest.raises(FileNotFoundError, match="'nowhere' is neither a folder"):
        read_datasets(["nowhere"])
    (alone / "hashes.parquet").unlink()
    with pytest.raises(FileNotFoundError, match="PUBLISH_HASHES = True"):
        read_datasets([str(alone)])
    (work / "part-2/hashes.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="part-2/hashes.parquet' is not a Parquet"):
        read_datasets([str(work)])


def test_names_are_distinct():
    """Slugs, addresses and relative folders are what they are in COMPARE_WITH."""
    sources = [
        "ada/leaves/",
        "ada/leaves",
        "gs://bucket/leaves/part-1",
        "work/leaves/part-1",
        "/home/ada/leaves/part-1",
        "/home/bob/leaves/part-1",
        "~/trees",
        "/trees/",
    ]
    assert list(name_datasets(sources).values()) == [
        "ada/leaves",
        "gs://bucket/leaves/part-1",
        "work/leaves/part-1",
        "leaves/part-1",
        "leaves/part-1 (2)",
        "trees",
        "trees (2)",
    ]


def test_only_the_fingerprints_of_a_slug_are_downloaded(kaggle, tmp_path, monkeypatch):
    """Its shards may be 19 GB."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "no"))
    fingerprints = make_fingerprints(THREE_IMAGES, split="test")
    part = write_fingerprints(tmp_path / "part", fingerprints)
    data = (part / "hashes.parquet").read_bytes()
    kaggle.datasets["ada/leaves"] = {"hashes.parquet": data, "a-1.tfrec": b"1"}

    others = read_datasets(["ada/leaves"])

    assert others["dataset"].tolist() == ["ada/leaves"] * 3
    assert set(others["split"]) == {"test"}
    assert kaggle.downloaded == ["hashes.parquet"]


def test_a_leak_drops_the_cluster_and_names_the_image():
    """Test images stay; an image without a near-duplicate is dropped as well."""
    images = make_images("train", "train", "test", "train", "validation", "train")
    pairs = make_pairs((0, 1, 4))
    copies = make_copies(
        (1, 3, "x.jpg", "owner/leaves"),
        (2, 0, "y.jpg", "owner/leaves"),
        (3, 2, "z.jpg", "owner/leaves"),
        (3, 9, "w.jpg", "owner/more"),
        (4, 1, "v.jpg", "owner/more"),
    )

    names = name_copies(copies)
    clusters = find_clusters(images, pairs, leaks="drop", copies=names)

    reasons = clusters.set_index("image_id")["reason"].to_dict()
    text = "leak: image {} shows the same"
    assert reasons == {
        "tr0": text.format("x.jpg of owner/leaves"),
        "tr1": text.format("x.jpg of owner/leaves"),
        "tr3": text.format("z.jpg of owner/leaves"),
        "va4": text.format("v.jpg of owner/more"),
    }
    counts = count_outcomes(images, clusters)
    assert counts["leaks dropped"] == 4
    assert counts["labelled records"] == counts["test records"] == 1
    assert sum(counts.values()) == len(images)
    assert choose_rows(images, clusters)["image_id"].tolist() == ["te2", "tr5"]


def test_the_image_that_the_user_keeps_stays():
    """So does a test image of mine, and its cluster is dropped because of it."""
    images = make_images("train", "train", "test")
    names = {0: "image x of y", 2: "image x of y"}
    pairs = make_pairs((1, 2, 4))

    clusters = find_clusters(
        images, pairs, leaks="drop", copies=names, kept_rows=[0]
    ).set_index("image_id")

    assert clusters["keep"].to_dict() == {"tr0": True, "tr1": False, "te2": True}
    assert clusters["reason"]["tr0"] == "override: kept"
    assert clusters["reason"]["tr1"] == "leak: test image te2 shows the same"


def test_a_report_changes_no_cluster():
    """The clusters are those without COMPARE_WITH."""
    names = {0: "image x of y", 3: "image z of y"}
    images = make_images("train", "train", "test", "train")
    pairs = make_pairs((0, 1, 4), (1, 2, 5))

    clusters = find_clusters(images, pairs, copies=names)

    pd.testing.assert_frame_equal(clusters, find_clusters(images, pairs))


def test_leaks_csv_has_the_pairs_of_other_datasets_last(tmp_path):
    """test_id is the other dataset's image; split, class and outcome are mine."""
    images = make_images("train", "test", "train")
    pairs = make_pairs((0, 1, 5))
    copies = make_copies((2, 3, "x\r\n.jpg", "owner/leaves"), (1, 0, "y.jpg", "b/c"))
    clusters = find_clusters(images, pairs, leaks="drop", copies=name_copies(copies))
    leaks = find_leaks(images, pairs, clusters)

    overlap = list_overlap(images, copies, clusters)
    save_clusters(clusters, leaks, RADIUS, str(tmp_path), overlap)

    assert (tmp_path / "leaks.csv").read_bytes().decode() == (
        "test_id,image_id,label_name,distance,test_split,split,keep,dataset\n"
        "te1,tr0,rose,5,test,train,False,\n"
        '"x\\r\n.jpg",tr2,rose,3,train,train,False,owner/leaves\n'
        "y.jpg,te1,,0,train,test,True,b/c\n"
    )


@pytest.mark.parametrize("leaks", ["report", "drop"])
def test_a_run_finds_what_another_dataset_contains(photos, tmp_path, leaks):
    """The steps of 02, its files and its finding."""
    work = tmp_path / "work"
    shutil.copytree(photos, work)
    images, _ = load_images(str(work))
    is_small = images["image_id"].str.contains("small")
    part = publish_images(
        tmp_path / "leaves", images[is_small].head(6), photos, split="test"
    )
    values = {**DEFAULTS, "COMPARE_WITH": [str(part)], "LEAKS": leaks, "N_JOBS": 2}

    deduplicate.run({**values, "WORK_DIR": str(work), "SECOND_LOOK": False})

    clusters, _ = load_clusters(str(work))
    rows = pd.read_csv(work / "leaks.csv")
    assert rows["image_id"].nunique() == 12
    assert set(rows["dataset"]) == {"leaves"}
    assert set(rows["test_split"]) == {"test"}
    assert set(rows["test_id"]) == set(images["image_id"][is_small].head(6))
    dropped = count_outcomes(images, clusters).get("leaks dropped", 0)
    assert dropped == (12 if leaks == "drop" else 0)
    findings = {finding.subject: finding for finding in read_findings(str(work))}
    finding = findings["leaks: leaves"]
    assert finding.text == "12 of 75 images are also in leaves (6 images)."
    assert finding.mark == ("·" if leaks == "drop" else "!")
