"""02 in one call: its tables."""

from pathlib import Path

import pandas as pd
import pytest
from support.scenes import scene

from kaggle_tfr import deduplicate, explore, notebook
from kaggle_tfr.deduplicate import load_clusters
from kaggle_tfr.parameters import DEFAULTS

PATHS = ("path_a", "path_b")


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Parameters after 01: two labels of a scene, two crops, and other scenes.

    One crop is a training image and one, of another scene, is a test image.
    """
    folder = tmp_path_factory.mktemp("photos")
    scenes = [scene(240, 320, seed=seed) for seed in range(6)]
    files = {
        "train/rose/a.jpg": scenes[0],
        "train/tulip/small.jpg": scenes[0].resize((160, 120)),
        "train/rose/b.jpg": scenes[1],
        "train/rose/crop.jpg": scenes[1].crop((40, 30, 320, 240)),
        "train/tulip/c.jpg": scenes[2],
        "test/part.jpg": scenes[2].crop((0, 30, 280, 240)),
        "train/rose/d.jpg": scenes[3],
        "train/tulip/e.jpg": scenes[4],
    }
    for name, image in files.items():
        path = folder / "input" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=95)
    work = str(folder / "work")
    values = {**DEFAULTS, "INPUT_DIR": str(folder / "input"), "WORK_DIR": work}
    explore.run({**values, "WORK_DIR": work})
    yield {**values, "SECOND_LOOK": True}
    notebook.end()


@pytest.fixture(scope="module")
def found(values):
    return deduplicate.run(values)


def list_ids(pairs):
    """Return texts such as "a small", of the names of both files."""
    names = [pairs[column].map(lambda path: Path(path).stem) for column in PATHS]
    return (names[0] + " " + names[1]).tolist()


def test_each_pair_has_its_verdict(found):
    """Geometry is also a witness of the pair within MAX_BITS."""
    pairs = found.pairs
    accepted = list_ids(pairs[pairs["accepted"]])
    assert accepted[0] == "a small"
    assert sorted(accepted) == ["a small", "b crop", "part c"]
    by_verdict = pairs.groupby("verdict", observed=True)["matches"]
    assert by_verdict.size()[["hash", "geometry"]].tolist() == [1, 2]
    assert by_verdict.min()[["hash", "geometry"]].min() >= 12
    assert by_verdict.max()["rejected"] < 12
    assert pairs["bits"].is_monotonic_increasing


def test_the_transform_of_a_pair_moves_its_second_image_onto_the_first(found):
    """The original is moved up by 30 of 240 pixels, in units of the crop's 210."""
    pairs = found.pairs
    (pair,) = pairs[pairs["image_id_a"] == "test/part.jpg"].to_dict("records")[:1]
    assert (pair["split_a"], pair["label_name_a"]) == ("test", "")
    (x_x, _, _), (_, _, y_0) = deduplicate.align(pair["path_a"], pair["path_b"])
    assert x_x == pytest.approx(240 / 210, abs=0.01)
    assert y_0 == pytest.approx(-30 / 210, abs=0.02)
    rows = found.images.iloc[[pair["a"], pair["b"]]]
    assert rows["image_id"].tolist() == [pair["image_id_a"], pair["image_id_b"]]


def test_tables_and_files_agree(found, values):
    """The counts are of all images."""
    assert sum(found.counts.values()) == len(found.images) == 8
    assert found.counts["conflicts dropped"] == 2
    clusters, _ = load_clusters(values["WORK_DIR"])
    assert clusters.to_dict("records") == found.clusters.to_dict("records")
    leaks = pd.read_csv(Path(values["WORK_DIR"], "leaks.csv"))
    assert (
        leaks["test_id"].tolist()
        == found.leaks["image_id_a"].tolist()
        == ["test/part.jpg"]
    )


def test_pairs_that_the_user_adds_or_cuts_are_marked(values, tmp_path):
    """The added pair is accepted, the cut one is not."""
    file = tmp_path / "overrides.csv"
    file.write_text(
        "image_id,action,value\n"
        "train/rose/a.jpg,different,train/tulip/small.jpg\n"
        "train/rose/d.jpg,same,train/tulip/e.jpg\n"
    )
    found = deduplicate.run({**values, "OVERRIDES": str(file)})

    pairs = found.pairs[found.pairs["verdict"] == "user"]
    assert dict(zip(list_ids(pairs), pairs["accepted"], strict=True)) == {
        "a small": False,
        "d e": True,
    }
    assert found.decisions["action"].tolist() == ["different", "same"]


def test_without_a_second_look_nothing_is_compared(values):
    """All pairs are within MAX_BITS, and have no matches."""
    found = deduplicate.run({**values, "SECOND_LOOK": False})

    assert found.pairs["verdict"].tolist() == ["hash"]
    assert found.pairs["matches"].tolist() == [-1]
