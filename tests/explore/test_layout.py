"""`init`: what is told of a folder, and that its recipe reads it without a change."""

import pytest
from support.chain import make_input, write_small_sample
from support.inputs import put_csv, put_image
from support.readers import make_example, write_shard

from kaggle_tfr import explore
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import load_recipe, settings

FLOWERS = ["daisy/1.jpg", "daisy/2.jpg", "rose/3.png", "tulip/4.jpg"]
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
        lambda at: put_csv(at, "image_id,label\na.jpg,x\nb.jpg,y\n", ["a.jpg", "b.jpg"]),
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
        | {"TEST_CSV": "sample_submission.csv", "TEST_PATH_TEMPLATE": "test/{image_id}.png"},
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
        lambda at: put(at, ["x/a.jpg", "y/b.jpg"], all="path,label\nx/a.jpg,u\ny/b.jpg,v\n"),
        {"PATH_TEMPLATE": "{image_id}", "LABELS_CSV": "all.csv"},
        (2, 0, "single"),
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
        lambda at: put(at, [*(f"train/{n}" for n in FLOWERS), "val/rose/5.jpg", "test/6.jpg"]),
        {"SOURCE": "folders", "PATTERN": "*/*/*"},
        (5, 1, "single"),
    ),
}
OWN = ("cassava", "clouds", "flowers", "imagenet", "landmark-2021", "petals")


def read(folder, recipe):
    """(images, labels) by the recipe as it was written."""
    values = load_recipe(str(recipe))
    chosen = settings(explore.InputSettings, values)
    images, labels = explore.read_table(values["INPUT_DIR"], chosen)
    return explore.measure(images, labels), labels, values


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_told_and_read(tmp_path, name):
    """The parameters are those that 01 needs: every picture is read, none is refused."""
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
def test_the_recipes_own_layouts_are_told(tmp_path, recipe, root):
    """A folder in the layout of a bundled recipe gets a recipe that reads the same table."""
    make_input(recipe, tmp_path / "in")
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, labels, _ = read(tmp_path / "in", tmp_path / "r.yaml")

    given = load_recipe(recipe) | {"INPUT_DIR": str(tmp_path / "in")}
    expected, its = explore.read_table(given["INPUT_DIR"], settings(explore.InputSettings, given))
    columns = ["image_id", "path", "split", "label", "label_name"]
    assert images[columns].equals(expected[columns])
    assert labels.classes == its.classes
    assert (images["problem"] == "").all()


def test_ids_that_another_folder_has_too_are_of_the_nearest_that_has_all(tmp_path):
    """The sample's second source numbers its pictures from 0 as well."""
    write_small_sample(tmp_path / "in")
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, _, values = read(tmp_path / "in", tmp_path / "r.yaml")
    assert values["PATH_TEMPLATE"] == "train_images/{image_id}"
    assert values["TEST_PATH_TEMPLATE"] == "test_images/{image_id}"
    assert (images["problem"] == "").mean() > 0.9


def test_shards_are_told(tmp_path):
    """TFRecords in folders of splits are read through their first records."""
    put_image(tmp_path / "a.jpg")
    data = (tmp_path / "a.jpg").read_bytes()
    for split in ("train", "val"):
        records = [
            make_example(image=data, label=k % 2, id=f"{split}{k}".encode()) for k in range(4)
        ]
        write_shard(tmp_path / "in" / split / "00-4.tfrec", records)
    assert main(["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]) == 0
    images, _, values = read(tmp_path / "in", tmp_path / "r.yaml")
    assert values["SOURCE"] == "tfrecords"
    assert (len(images), set(images["problem"])) == (8, {""})


def test_what_is_no_layout_is_an_error(tmp_path, capsys):
    """An empty folder, videos, and pictures that nothing labels; a recipe is not overwritten."""
    call = ["init", str(tmp_path / "in"), "-o", str(tmp_path / "r.yaml")]
    (tmp_path / "in").mkdir()
    assert main(call) == 1
    assert "seen were nothing" in capsys.readouterr().err
    (tmp_path / "in" / "a.mp4").touch()
    (tmp_path / "in" / "b.mp4").touch()
    assert main(call) == 1
    assert "seen were 2 of .mp4" in capsys.readouterr().err
    put_image(tmp_path / "in" / "c.jpg")
    assert main(call) == 1
    assert "neither class folders nor a CSV" in capsys.readouterr().err
    (tmp_path / "in" / "train.csv").write_text("image_id,label\nc,x\n")
    assert [main(call), main(call)] == [0, 1]
    assert "File exists" in capsys.readouterr().err


def test_what_is_not_sure_is_said(tmp_path, capsys):
    """In the recipe and on the screen: other columns, other CSVs; and the next command."""
    put(
        tmp_path / "in",
        ["i/a.jpg", "i/b.jpg"],
        train="id,site,label\na,1,x\nb,2,y\n",
        more="id\nb\n",
    )
    recipe = tmp_path / "r.yaml"
    assert main(["init", str(tmp_path / "in"), "-o", str(recipe)]) == 0
    said = capsys.readouterr().out
    for text in ("not sure: LABEL_COLUMN could also be one of site", "more.csv names pictures too"):
        assert text in said
        assert f"# not sure: {text.removeprefix('not sure: ')}" in recipe.read_text()
    assert f"kaggle-tfr run {recipe}" in said


def test_few_files_are_looked_at_in_a_large_tree(tmp_path, monkeypatch):
    """Of 300 class folders with pictures some are listed, and no picture is opened."""
    put_image(tmp_path / "in" / "c000" / "a.jpg")
    for number in range(1, 300):
        (tmp_path / "in" / f"c{number:03d}").mkdir()
        for name in "abcdefghijklmnopqrstuvwxyz":
            (tmp_path / "in" / f"c{number:03d}" / f"{name}.jpg").touch()
    from kaggle_tfr.explore import layout

    assert len(list(layout._walk(str(tmp_path / "in")))) < 1000
    values, _ = layout.tell_layout(str(tmp_path / "in"))
    assert values == {"SOURCE": "folders", "PATTERN": "*/*"}
