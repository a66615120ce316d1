"""`init` infers the layout of a folder, and its recipe reads it without a change."""

import csv
import errno
import os
import re

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.chain import make_input, write_small_sample
from support.inputs import put_csv, put_image
from support.readers import make_example, write_shard

from kaggle_tfr import explore, mounts
from kaggle_tfr.__main__ import main
from kaggle_tfr.explore import layout, recipe
from kaggle_tfr.mounts import find_input
from kaggle_tfr.parameters import load_recipe, make_settings

FLOWERS = ["daisy/1.jpg", "daisy/2.jpg", "rose/3.png", "tulip/4.jpg"]
SPLITS = ["train", "valid", "test"]
RLE = "id,code\na,1 5 9 2\nb,\nc,3 3\n"
NESTED = "id,landmark\n00ab,7\n01cd,9\n"


def put(folder, files, **tables):
    """Pictures, and CSVs by their names, in which `;` ends a row."""
    for name in files:
        put_image(folder / name)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)


LAYOUTS = {
    "names with their ending": (
        lambda at: put_csv(
            at, "image_id,label\na.jpg,x\nb.jpg,y\n", ["a.jpg", "b.jpg"]
        ),
        {"PATH_TEMPLATE": "train_images/{image_id}", "LABEL_COLUMN": "label"},
        (2, 0, "single"),
    ),
    "names without it; tests in a CSV": (
        lambda at: put(
            at,
            ["images/a.png", "images/b.png", "test/c.png", "test/d.png"],
            train="id;species\na;x\nb;y\n",
            sample_submission="id;species\nc;x\nd;x\n",
        ),
        {"PATH_TEMPLATE": "images/{image_id}.png", "LABEL_COLUMN": "species"}
        | {
            "TEST_CSV": "sample_submission.csv",
            "TEST_PATH_TEMPLATE": "test/{image_id}.png",
        },
        (2, 2, "single"),
    ),
    "tests in no CSV": (
        lambda at: put(
            at,
            ["train/a.jpg", "train/b.jpg", "test_images/c.jpg"],
            labels="f,y\na.jpg,0\nb.jpg,1\n",
        ),
        {"TEST_CSV": "", "TEST_PATH_TEMPLATE": "test_images/*", "ID_COLUMN": "f"},
        (2, 1, "single"),
    ),
    "paths as ids": (
        lambda at: put(
            at, ["x/a.jpg", "y/b.jpg"], all="path,label\nx/a.jpg,u\ny/b.jpg,v\n"
        ),
        {"PATH_TEMPLATE": "{image_id}", "LABELS_CSV": "all.csv"},
        (2, 0, "single"),
    ),
    "paths as ids, below a folder": (
        lambda at: put(
            at,
            ["bilder/a/20/x.jpg", "bilder/b/21/y.jpg", "bilder/b/99/z.jpg"],
            liste="Datei;Art\na/20/x.jpg;u\nb/21/y.jpg;v\nb/99/z.jpg;v\n",
        ),
        {
            "PATH_TEMPLATE": "bilder/{image_id}",
            "LABELS_CSV": "liste.csv",
            "ID_COLUMN": "Datei",
        },
        (3, 0, "single"),
    ),
    "folders by the first digits": (
        lambda at: put(at, ["train/0/0/00ab.jpg", "train/0/1/01cd.jpg"], train=NESTED),
        {"PATH_TEMPLATE": "train/{image_id[0]}/{image_id[1]}/{image_id}.jpg"},
        (2, 0, "single"),
    ),
    "columns of 0 and 1": (
        lambda at: put(
            at, ["i/a.jpg", "i/b.jpg"], train="id,rust,scab,healthy\na,1,1,0\nb,0,0,1\n"
        ),
        {"LABEL_COLUMN": ["rust", "scab", "healthy"]},
        (2, 0, "multi"),
    ),
    "labels separated by blanks": (
        lambda at: put(
            at,
            [f"i/{name}.jpg" for name in "abcd"],
            train="image,labels\na.jpg,scab\nb.jpg,scab rust\nc.jpg,rust\nd.jpg,\n",
        ),
        {"LABEL_COLUMN": "labels", "LABEL_SEPARATOR": " "},
        (3, 0, "multi"),
    ),
    "one mask an image": (
        lambda at: put(at, ["i/a.png", "i/b.png", "i/c.png"], train=RLE),
        {"SOURCE": "rle_csv", "LABEL_COLUMN": "code"},
        (3, 0, "masks"),
    ),
    "masks with a column of labels": (
        lambda at: put(
            at,
            ["i/a.jpg", "i/b.jpg"],
            train="f,size,kind,rle\na.jpg,9,x,1 2\na.jpg,9,y,5 2\nb.jpg,9,x,\n",
        ),
        {"SOURCE": "rle_csv", "LABEL_COLUMN": ["kind", "rle"]},
        (2, 0, "masks"),
    ),
    "class folders": (
        lambda at: put(at, FLOWERS),
        {"SOURCE": "folders", "PATTERN": "*/*"},
        (4, 0, "single"),
    ),
    "class folders in an archive's folder": (
        lambda at: put(at, [f"flower_photos/{name}" for name in FLOWERS]),
        {"SOURCE": "folders", "PATTERN": "*/*", "NAME": "flower-photos"},
        (4, 0, "single"),
    ),
    "split folders": (
        lambda at: put(
            at, [*(f"train/{n}" for n in FLOWERS), "val/rose/5.jpg", "test/6.jpg"]
        ),
        {"SOURCE": "folders", "PATTERN": "*/*/*"},
        (5, 1, "single"),
    ),
}
OWN = ("cassava", "clouds", "flowers", "imagenet", "landmark-2021", "petals")


def read(folder, recipe):
    """(images, labels) by the recipe as it was written."""
    values = load_recipe(str(recipe))
    chosen = make_settings(explore.InputSettings, values)
    images, labels = explore.read_table(values["INPUT_DIR"], chosen)
    return explore.measure(images, labels), labels, values


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_detected_and_read(tmp_path, name):
    """The parameters are those that 01 needs: every image is read, none is rejected."""
    make, wanted, (n_labelled, n_test, kind) = LAYOUTS[name]
    folder, recipe = tmp_path / "in", tmp_path / "recipe.yaml"
    make(folder)

    assert main(["init", str(folder), "-o", str(recipe)]) == 0
    images, labels, values = read(folder, recipe)
    assert wanted.items() <= values.items()
    good = images["problem"].isin(["", "no label"])
    assert images["problem"][~good].tolist() == []
    test = images["split"] == "test"
    assert (test.sum(), labels.kind) == (n_test, kind)
    assert (images["problem"] == "")[~test].sum() == n_labelled


@pytest.mark.parametrize("recipe", OWN)
def test_the_recipes_own_layouts_are_detected(tmp_path, recipe, root):
    """In the layout of a bundled recipe, init writes one that reads the same table."""
    make_input(recipe, tmp_path / "in")
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, labels, _ = read(tmp_path / "in", tmp_path / "r.yaml")

    values = load_recipe(recipe) | {"INPUT_DIR": str(tmp_path / "in")}
    expected, expected_labels = explore.read_table(
        values["INPUT_DIR"], make_settings(explore.InputSettings, values)
    )
    columns = ["image_id", "path", "split", "label", "label_name"]
    assert images[columns].equals(expected[columns])
    assert labels.classes == expected_labels.classes
    assert (images["problem"] == "").all()


def test_ids_that_another_folder_has_too_are_of_the_nearest_that_has_all(tmp_path):
    """The second source of the sample numbers its images from 0 as well."""
    write_small_sample(tmp_path / "in")
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, _, values = read(tmp_path / "in", tmp_path / "r.yaml")
    assert values["PATH_TEMPLATE"] == "train_images/{image_id}"
    assert values["TEST_PATH_TEMPLATE"] == "test_images/{image_id}"
    assert (images["problem"] == "").mean() > 0.9


def test_shards_are_detected(tmp_path):
    """TFRecords in folders of splits are read through their first records."""
    put_image(tmp_path / "a.jpg")
    data = (tmp_path / "a.jpg").read_bytes()
    for split in ("train", "val"):
        records = [
            make_example(image=data, label=k % 2, id=f"{split}{k}".encode())
            for k in range(4)
        ]
        write_shard(tmp_path / "in" / split / "00-4.tfrec", records)
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, _, values = read(tmp_path / "in", tmp_path / "r.yaml")
    assert values["SOURCE"] == "tfrecords"
    assert (len(images), set(images["problem"])) == (8, {""})


def test_what_is_no_layout_is_an_error(tmp_path, capsys):
    """So are an empty folder, videos, and images beside a CSV that names others."""
    call = ["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]
    (tmp_path / "in").mkdir()
    assert main(call) == 1
    assert "Files found: none." in capsys.readouterr().err
    (tmp_path / "in" / "a.mp4").touch()
    (tmp_path / "in" / "b.mp4").touch()
    assert main(call) == 1
    assert "Files found: a.mp4, b.mp4." in capsys.readouterr().err
    put_image(tmp_path / "in" / "c.jpg")
    (tmp_path / "in" / "train.csv").write_text("image_id,label\nz,x\n")
    assert main(call) == 1
    message = capsys.readouterr().err
    assert "neither class folders nor a CSV that names them" in message
    assert "LABEL_COLUMN: []" in message
    (tmp_path / "in" / "train.csv").write_text("image_id,label\nc,x\n")
    assert [main(call), main(call)] == [0, 1]
    assert (
        "r.yaml' exists, and init replaces nothing. Name another"
        in capsys.readouterr().err
    )


def test_what_is_not_sure_is_said(tmp_path, capsys):
    """In the recipe and on the screen: other columns and CSVs, and the next command."""
    put(
        tmp_path / "in",
        ["i/a.jpg", "i/b.jpg"],
        train="id,site,label\na,1,x\nb,2,y\n",
        more="id\nb\n",
    )
    recipe = tmp_path / "r.yaml"
    assert main(["init", str(tmp_path / "in"), "-o", str(recipe)]) == 0
    printed = capsys.readouterr().out
    for text in (
        "not sure: LABEL_COLUMN could also be one of site",
        "more.csv names images too",
    ):
        assert text in printed
        assert f"# not sure: {text.removeprefix('not sure: ')}" in recipe.read_text()
    assert f"kaggle-tfr run {recipe}" in printed


def test_few_files_are_looked_at_in_a_large_tree(tmp_path, monkeypatch):
    """Of 300 class folders some are listed, and no image is opened."""
    put_image(tmp_path / "in" / "c000" / "a.jpg")
    for number in range(1, 300):
        (tmp_path / "in" / f"c{number:03d}").mkdir()
        for name in "abcdefghijklmnopqrstuvwxyz":
            (tmp_path / "in" / f"c{number:03d}" / f"{name}.jpg").touch()
    assert len(layout.list_tree(str(tmp_path / "in")).files) < 1000
    recipe = layout.detect_layout(str(tmp_path / "in"))
    assert recipe.parameters == {"SOURCE": "folders", "PATTERN": "*/*"}


def test_all_classes_are_named_if_they_are_few(tmp_path):
    """Six are a list; of more, and of those below other folders, some are examples."""
    few = [f"{letter}/1.jpg" for letter in "abcdef"]
    put(tmp_path / "few", few)
    put(tmp_path / "many", [*few, "g/1.jpg"])
    put(tmp_path / "split", [f"train/{name}" for name in few])

    comments = {
        folder: layout.detect_layout(str(tmp_path / folder)).comments[0]
        for folder in ("few", "many", "split")
    }

    assert comments["few"] == "class folders: a, b, c, d, e, f"
    assert comments["many"] == "class folders such as a, b, c, d"
    assert comments["split"] == "class folders such as a, b, c, d"


ODD_FLAGS = "id,patient_id,rust,scab\n" + "".join(
    f"{k:02d},p{k % 7},{k % 2 if k != 4 else 2},{k // 2 % 2}\n" for k in range(40)
)
ROBOFLOW = "filename, cat, dog\n{}1.jpg,1,0\n{}2.jpg,0,1\n"
HUGGINGFACE = {
    f"{split}/metadata.csv": "file_name,label\n1.png,a\n2.png,b\n" for split in SPLITS
}
# name: (images, texts of CSVs, what is in the recipe, what the comments contain)
DETECTED = {
    "odd flag": (
        [f"i/{k:02d}.jpg" for k in range(40)],
        {"train.csv": ODD_FLAGS},
        {"LABEL_COLUMN": ["rust", "scab"], "GROUP_COLUMN": "patient_id"},
        [
            "'patient_id' repeats its values (7 values in 40 rows)",
            "2 columns of 0 and 1",
        ],
    ),
    "one 1 in each row": (
        ["i/a.jpg", "i/b.jpg"],
        {"train.csv": "id,rust,healthy\na,1,0\nb,0,1\n"},
        {"LABEL_COLUMN": ["rust", "healthy"]},
        ["2 columns of 0 and 1"],
    ),
    "a column with one value": (
        ["i/a.jpg", "i/b.jpg", "i/c.jpg"],
        {"train.csv": "id,source,kind,note\na,web,x,\nb,web,y,\nc,web,x,\n"},
        {"LABEL_COLUMN": "kind"},
        ["'kind': 2 values in 3 rows"],
    ),
    "names with commas in a CSV with semicolons": (
        ["i/a.jpg", "i/b.jpg", "i/c.jpg"],
        {"train.csv": "id;kind\na;leaf\nb;leaf, wet, old\nc;leaf\n"},
        {"LABELS_CSV": "train.csv", "ID_COLUMN": "id", "LABEL_COLUMN": "kind"},
        [],
    ),
    "few groups": (
        [f"i/{k}.jpg" for k in range(8)],
        {
            "train.csv": "id,site,kind\n"
            + "".join(f"{k},s{k % 2},{k % 3}\n" for k in range(8))
        },
        {"LABEL_COLUMN": "kind"},
        ["not sure: GROUP_COLUMN could be 'site' (2 values in 8 rows)"],
    ),
    "groups within classes": (
        [f"i/{k}.jpg" for k in range(24)],
        {
            "train.csv": "id,group,kind\n"
            + "".join(f"{k},g{k % 6},k{k % 6}\n" for k in range(24))
        },
        {"LABEL_COLUMN": "kind"},
        ["not sure: GROUP_COLUMN could be 'group' (6 values in 24 rows)"],
    ),
    "splits": (
        [f"i/{k}.jpg" for k in range(3)],
        {"all.csv": "id,split,kind\n0,train,x\n1,Valid,y\n2,test,x\n"},
        {"LABEL_COLUMN": "kind", "SPLIT_COLUMN": "split", "N_FOLDS": 0},
        ["'split': given splits (test, train, validation)", "N_FOLDS is 0"],
    ),
    "groups across splits": (
        [f"i/{k}.jpg" for k in range(20)],
        {
            "train.csv": "id,split,patient,kind\n"
            + "".join(
                f"{k},{['train', 'val'][k % 2]},p{k % 7},{k % 3}\n" for k in range(20)
            )
        },
        {"SPLIT_COLUMN": "split", "N_FOLDS": 0, "LABEL_COLUMN": "kind"},
        [],
    ),
    "Roboflow": (
        [f"{split}/{split[0]}{k}.jpg" for split in SPLITS for k in (1, 2)],
        {
            f"{split}/_classes.csv": ROBOFLOW.format(split[0], split[0])
            for split in SPLITS
        },
        {"LABELS_CSV": "*/_classes.csv", "PATH_TEMPLATE": "{csv_folder}/{image_id}"}
        | {
            "SPLIT_COLUMN": "csv_folder",
            "LABEL_COLUMN": ["cat", "dog"],
            "TEST_PATH_TEMPLATE": "",
        }
        | {"ID_COLUMN": "filename", "N_FOLDS": 0},
        ["'csv_folder': given splits (test, train, validation)", "2 columns of 0"],
    ),
    "a CSV of a split whose images are missing": (
        [f"{split}/{split[:2]}{k}.jpg" for split in SPLITS[:2] for k in (1, 2)],
        {
            f"{split}/_classes.csv": ROBOFLOW.format(split[:2], split[:2])
            for split in SPLITS
        },
        {"LABELS_CSV": "train/_classes.csv", "PATH_TEMPLATE": "train/{image_id}"},
        ["because no column names existing images: test/_classes.csv"],
    ),
    "HuggingFace, a CSV in each split": (
        [f"{split}/{k}.png" for split in SPLITS for k in (1, 2)],
        HUGGINGFACE,
        {"LABELS_CSV": "*/metadata.csv", "PATH_TEMPLATE": "{csv_folder}/{image_id}"}
        | {"SPLIT_COLUMN": "csv_folder", "LABEL_COLUMN": "label"},
        [],
    ),
    "HuggingFace, one CSV": (
        ["1.png", "sub/2.gif"],
        {"metadata.csv": "file_name,label\n1.png,a\nsub/2.gif,b\n"},
        {
            "LABELS_CSV": "metadata.csv",
            "PATH_TEMPLATE": "{image_id}",
            "LABEL_COLUMN": "label",
        },
        [],
    ),
    "HuggingFace, one CSV whose paths begin with a split": (
        ["train/1.png", "train/sub/2.gif", "test/3.png"],
        {
            "metadata.csv": "file_name,label\n"
            "train/1.png,a\ntrain/sub/2.gif,b\ntest/3.png,b\n"
        },
        {
            "PATH_TEMPLATE": "{image_id}",
            "SPLIT_COLUMN": "file_name",
            "TEST_PATH_TEMPLATE": "",
        },
        ["'file_name': given splits (test, train)"],
    ),
    "test images among the labelled ones": (
        ["i/a.jpg", "i/b.jpg", "i/c.jpg"],
        {"train.csv": "id,kind\na,x\nb,y\n", "sample_submission.csv": "id,kind\nc,x\n"},
        {"TEST_PATH_TEMPLATE": ""},
        ["not sure: sample_submission.csv names images among the labelled ones"],
    ),
    "another column of test ids": (
        ["train/a.jpg", "train/b.jpg", "test/c.jpg"],
        {
            "train.csv": "id,kind\na,x\nb,y\n",
            "sample_submission.csv": "Image,x,y\nc,0,0\n",
        },
        {
            "TEST_CSV": "sample_submission.csv",
            "TEST_ID_COLUMN": "Image",
            "ID_COLUMN": "id",
        }
        | {"TEST_PATH_TEMPLATE": "test/{image_id}.jpg"},
        ["sample_submission.csv names the test images test/{image_id}.jpg"],
    ),
    "a CSV that names nothing": (
        FLOWERS,
        {"list.csv": "id,label\nq,x\n", "broken.csv": "id\n\0\xff\n"},
        {"SOURCE": "folders", "PATTERN": "*/*"},
        [
            "not sure: not used, because they are not in UTF-8",
            "images: broken.csv, list.csv",
        ],
    ),
    "a submission beside class folders": (
        [*FLOWERS, "test/9.jpg"],
        {"sample_submission.csv": "id,label\n9,x\n"},
        {"SOURCE": "folders", "PATTERN": "*/*"},
        ["not sure: sample_submission.csv names test images (test/{image_id}.jpg)"],
    ),
    "empty and system folders": (
        [
            *FLOWERS,
            "__MACOSX/daisy/1.jpg",
            ".ipynb_checkpoints/1.jpg",
            "@eaDir/a/1.jpg",
        ],
        {
            "work/plan.json": "{}",
            "work/figures/a.png": "",
            "empty/note.txt": "",
            "recipe.yaml": "",
        },
        {"SOURCE": "folders", "PATTERN": "*/*"},
        [
            "class folders: daisy, rose, tulip",
        ],
    ),
}


@pytest.mark.parametrize("name", DETECTED)
def test_what_names_and_first_rows_contain_is_in_the_recipe(tmp_path, name):
    """Splits, groups, odd cells and ids of tests are found; doubts are comments."""
    images, texts, wanted, contained = DETECTED[name]
    put(tmp_path, images)
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(text.encode("latin-1"))

    recipe = layout.detect_layout(str(tmp_path))

    assert {key: recipe.parameters.get(key) for key in wanted} == wanted
    assert "GROUP_COLUMN" in wanted or "GROUP_COLUMN" not in recipe.parameters
    for text in contained:
        assert any(text in comment for comment in recipe.comments), text


def test_the_folder_in_a_slug_is_part_of_the_input(tmp_path, monkeypatch):
    """The slug is the INPUT_DIR with that folder, the type and the owner if needed."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "input"))
    monkeypatch.chdir(tmp_path)
    slugs = {
        "tf-flowers": ("tf-flowers", "competitions/tf-flowers"),
        "ada/tea": ("ada/tea", "ada/tea"),
        "petals": ("datasets/ada/petals", "ada/petals"),
    }
    for number, (source, (mount, slug)) in enumerate(slugs.items()):
        image_dir = tmp_path / "input" / mount / "flower_photos"
        put(image_dir, FLOWERS)
        assert main(["init", source, "-o", f"{number}.yaml"]) == 0
        values = load_recipe(f"{number}.yaml")
        assert values["INPUT_DIR"] == f"{slug}/flower_photos"
        assert find_input(values["INPUT_DIR"]) == str(image_dir)
        chosen = make_settings(explore.InputSettings, values)
        images, _ = explore.read_table(str(image_dir), chosen)
        assert len(images) == len(FLOWERS)


def test_a_slug_without_a_top_folder_stays(tmp_path, monkeypatch):
    """The slug is the INPUT_DIR, so that `kernel` knows the owner of the dataset."""
    monkeypatch.setattr(mounts, "KAGGLE_INPUT", str(tmp_path / "input"))
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "input" / "datasets" / "ada" / "tea", FLOWERS)
    assert main(["init", "ada/tea", "-o", "r.yaml"]) == 0
    assert load_recipe("r.yaml")["INPUT_DIR"] == "ada/tea"


def test_init_in_the_folder_itself_is_not_disturbed_by_its_products(
    tmp_path, monkeypatch
):
    """After a run has left work/ and a recipe, `init .` writes the same recipe."""
    put(tmp_path / "photos" / "all", FLOWERS)
    monkeypatch.chdir(tmp_path / "photos")
    for out in ("recipe.yaml", "again.yaml"):
        assert main(["init", ".", "-o", out]) == 0
        work = tmp_path / "photos" / "work" / "all"
        work.mkdir(parents=True, exist_ok=True)
        (work / "images.parquet").touch()
    first, again = load_recipe("recipe.yaml"), load_recipe("again.yaml")
    assert first == again
    assert first["INPUT_DIR"] == str(tmp_path / "photos" / "all")


def test_parts_alone_are_shards(tmp_path):
    """A data set of parts that kaggle-tfr wrote is an input of TFRecords."""
    for part in ("part-1", "part-2"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "plan.json").touch()
        (tmp_path / part / "x-f0-000-1.tfrec").touch()
    assert layout.detect_layout(str(tmp_path)).parameters == {
        "SOURCE": "tfrecords",
        "PATTERN": "*/*",
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("missing -o r.yaml", "'missing' is neither a folder here nor a Kaggle input"),
        (
            "in/train.csv -o r.yaml",
            "'in/train.csv' is not a folder of this machine. Give the folder of",
        ),
        (
            "file:///x -o r.yaml",
            "'file:///x' is not a folder of this machine. Give the folder of images",
        ),
        (
            "gs://a/b -o r.yaml",
            "'gs://a/b' is not a folder of this machine. Give the folder of images",
        ),
        (
            "in -o old.yaml",
            "'old.yaml' exists, and init replaces nothing. Name",
        ),
        ("in -o in", "'in' exists, and init replaces nothing. Name another file"),
    ],
)
def test_a_wrong_call_is_explained(tmp_path, monkeypatch, capsys, call, message):
    """The error says what happened, where, and what to do; nothing is written."""
    monkeypatch.chdir(tmp_path)
    put_csv(tmp_path / "in", "image_id,label\na.jpg,x\n", ["a.jpg"])
    (tmp_path / "old.yaml").write_text("SEED: 1")
    before = sorted(tmp_path.rglob("*"))

    assert main(["init", *call.split()]) != 0

    error = capsys.readouterr().err
    assert message in error
    assert "Errno" not in error
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "old.yaml").read_text() == "SEED: 1"


def test_a_full_disk_leaves_no_recipe_behind(tmp_path, monkeypatch, capsys):
    """The error names the recipe; once there is room, the same call works."""
    put(tmp_path / "in", FLOWERS)
    call = ["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]

    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        assert main(call) == 1
    error = capsys.readouterr().err
    assert f"No space left on device: '{tmp_path}/r.yaml'. Free disk space" in error
    assert os.listdir(tmp_path) == ["in"]
    assert main(call) == 0
    assert sorted(os.listdir(tmp_path)) == ["in", "r.yaml"]


def test_a_recipe_that_would_be_read_differently_gets_no_name(tmp_path, monkeypatch):
    """If a value were not escaped, there would be no recipe with other values."""
    monkeypatch.setattr(recipe, "_to_yaml", str)
    with pytest.raises(
        ValueError, match="would be read with another NAME, OVERWRITE than"
    ):
        recipe.save_recipe({"NAME": "a\nOVERWRITE: true"}, [], str(tmp_path / "r.yaml"))
    assert os.listdir(tmp_path) == []


INJECTION = "x\nOVERWRITE: true\nBACKEND: dask"
HOSTILE = [
    INJECTION,
    *(
        "a: b # c",
        "'\"",
        "{image_id.__class__}",
        "{",
        "%s",
        "!!python/object/apply:os.system",
    ),
    *(
        "&a",
        "*a",
        "<<",
        "- x",
        "? x",
        "\t",
        "a\rSEED: 1",
        "a\x85SEED: 1",
        "a\u2028SEED: 1",
    ),
    *(
        "\ufeff",
        "\u202e",
        "\x1b[2J",
        "\\n",
        "\U0001f600",
        "\udce9",
        "z" * 2000,
        "~",
        "null",
        "",
    ),
]
CHARACTERS = st.one_of(
    st.characters(),
    st.sampled_from("\0\n\r\t\x85\u2028\u2029\ud83d\ude00#:{}[]'\"&*!%@`\\,-? "),
)
NO_TEXT = re.compile(r"[\0\ud800-\udfff]")  # which a recipe refuses, see `check_value`
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(CHARACTERS, max_size=40))


@hypothesis_settings(max_examples=200)
@given(st.lists(NAMES, min_size=4, max_size=4))
def test_names_from_the_data_stay_values(tmp_path_factory, names):
    """The recipe is read as the values that were written, whatever columns are called.

    A name with NUL or with bytes that are no UTF-8 is refused.
    """
    folder, table, column, other = names
    values = {
        "INPUT_DIR": folder,
        "LABELS_CSV": table,
        "ID_COLUMN": column,
        "QUALITY": 90,
    }
    values |= {
        "LABEL_COLUMN": [column, other],
        "PATH_TEMPLATE": f"{folder}/{{image_id}}",
    }
    path = tmp_path_factory.getbasetemp() / "hostile.yaml"

    text = recipe.format_recipe(values, names)
    path.write_text(text, encoding="utf-8")

    if NO_TEXT.search("".join(names)):
        with pytest.raises(ValueError, match="has NUL or bytes that are not UTF-8"):
            load_recipe(str(path))
    else:
        assert load_recipe(str(path)) == values
    lines = text.splitlines()  # at all that Unicode takes for the end of a line
    assert [line[:2] for line in lines[: len(names)]] == ["# "] * len(names)
    assert len(lines) == len(names) + len(values)
    assert set(text) <= {"\n", *filter(str.isprintable, text)}


IN_FILE_NAMES = st.text(
    st.characters(exclude_characters="./\0", exclude_categories=["Cs"])
    | st.sampled_from("\n\x85\u2028#:{}[]'\"&*! "),
    min_size=1,
    max_size=20,
)


@hypothesis_settings(max_examples=10)
@example("{image_id.__class__}")
@example(INJECTION)
@given(IN_FILE_NAMES)
def test_a_folder_of_odd_names_gets_a_recipe(tmp_path_factory, name):
    """The folder, the folder of images, the CSV and its columns have that name."""
    name = f"name{name}"  # neither hidden nor a drive
    top = tmp_path_factory.mktemp("odd")
    folder = top / name
    put(folder, [f"{name}/1.jpg", f"{name}/2.jpg"])
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([[f"{name} id", name], ["1.jpg", "x"], ["2.jpg", "y"]])

    _, printed = layout.write_recipe(str(folder), str(top / "r.yaml"))

    values = load_recipe(str(top / "r.yaml"))
    assert values["INPUT_DIR"] == str(folder)
    assert values["LABELS_CSV"] == f"{name}.csv"
    assert values["PATH_TEMPLATE"].format(image_id="1.jpg") == f"{name}/1.jpg"
    assert (values["ID_COLUMN"], values["LABEL_COLUMN"]) == (f"{name} id", name.strip())
    expected = {
        "NAME",
        "INPUT_DIR",
        "SOURCE",
        "LABELS_CSV",
        "ID_COLUMN",
        "LABEL_COLUMN",
    }
    expected |= {
        "PATH_TEMPLATE",
        "TEST_PATH_TEMPLATE",
        "IMAGE_SIZE",
        "RESIZE",
        "QUALITY",
    }
    assert set(values) == expected | {"N_FOLDS"}
    assert all(line.isprintable() for line in printed)


@pytest.mark.parametrize("files", [["a.jpg", "b.csv"], ["b.\x1b[2J"]])
def test_an_error_shows_names_as_one_line(tmp_path, files):
    """A terminal would obey the control characters in the name of a folder or file."""
    folder = tmp_path / "a\x1b[2J\nb"
    folder.mkdir()
    for file in files:
        (folder / file).touch()
    with pytest.raises(
        (FileNotFoundError, ValueError), match=r"a\\x1b\[2J\\nb' has"
    ) as error:
        layout.detect_layout(str(folder))
    assert str(error.value).isprintable()


def test_a_folder_whose_name_is_no_text_gets_no_recipe(tmp_path):
    """Notebooks could not be given such a parameter."""
    folder = tmp_path / "name\udce9"
    put(folder, FLOWERS)
    with pytest.raises(ValueError, match=r"INPUT_DIR is .* not UTF-8"):
        layout.write_recipe(str(folder), str(tmp_path / "r.yaml"))
    assert os.listdir(tmp_path) == [folder.name]
