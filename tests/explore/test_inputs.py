"""Test images and further inputs: every layout of a competition, or a helpful error."""

import pandas as pd
import pytest
from support.inputs import put_csv, put_image, read

from kaggle_tfr.explore.inputs import save_submission
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.table import count_rows, measure
from kaggle_tfr.parameters import make_settings

ROWS = "image_id,label\na.jpg,x\nb.jpg,y\n"


@pytest.fixture
def competition(tmp_path):
    """A competition with two labelled and two test images, of which one is damaged."""
    put_csv(tmp_path, ROWS, ["a.jpg", "b.jpg"])
    (tmp_path / "sample_submission.csv").write_text(
        "image_id,label\nt2.jpg,x\nt1.jpg,x\n"
    )
    put_image(tmp_path / "test_images" / "t1.jpg")
    (tmp_path / "test_images" / "t2.jpg").write_bytes(b"\xff\xd8\xff")
    return tmp_path


def of_test(images):
    return images[images["split"] == "test"]


def test_a_competitions_test_images_are_rows_without_a_label(competition, tmp_path):
    """They are found by default, in the CSV's order, and counted apart."""
    images = measure(*read(competition))

    found = of_test(images)
    assert found["image_id"].tolist() == ["t2.jpg", "t1.jpg"]
    assert found["problem"].tolist() == ["truncated", ""]
    assert (set(found["label"]), set(found["label_name"])) == ({-1}, {""})
    counts = {"good": 2, "rejected": 0, "test images": 1, "test images rejected": 1}
    assert count_rows(images) == counts
    work = tmp_path / "work"
    work.mkdir()
    save_submission(
        images, str(competition), make_settings(InputSettings, {}), str(work)
    )
    original = (competition / "sample_submission.csv").read_bytes()
    assert (work / "sample_submission.csv").read_bytes() == original
    save_submission(
        images[:2], str(competition), make_settings(InputSettings, {}), str(work)
    )
    assert not (work / "sample_submission.csv").exists()


def test_test_images_without_a_csv_are_those_that_the_template_matches(competition):
    """Their ids have an ending if the ids of the labelled images have one."""
    images, _ = read(competition, test_csv="", test_path_template="test_images/*")
    assert of_test(images)["image_id"].tolist() == ["t1.jpg", "t2.jpg"]
    (competition / "train.csv").write_text("image_id,label\na,x\nb,y\n")
    images, _ = read(
        competition, test_csv="", path_template="train_images/{image_id}.jpg"
    )
    assert of_test(images)["image_id"].tolist() == ["t1", "t2"]
    assert of_test(images)["path"].iloc[0] == f"{competition}/test_images/t1.jpg"


def test_test_images_of_masks_and_of_several_labels(tmp_path):
    """A test image may be listed once per label; its label columns are blank."""
    put_csv(tmp_path, "Image_Label,code\na.jpg_Fish,1 1\na.jpg_Sugar,\n", ["a.jpg"])
    lines = [f"t.jpg_{label},1 1" for label in ("Fish", "Sugar")]
    (tmp_path / "sub.csv").write_text("\n".join(["Image_Label,code", *lines, ""]))
    put_image(tmp_path / "test_images" / "t.jpg")
    names = {"id_column": "Image_Label", "label_column": "code", "test_csv": "sub.csv"}
    images, _ = read(tmp_path, source="rle_csv", **names)
    assert of_test(images)[["image_id", "Fish", "Sugar"]].to_numpy().tolist() == [
        ["t.jpg", "", ""]
    ]

    put_csv(tmp_path, "image_id,x,y\na.jpg,0,1\n", ["a.jpg"])
    images, _ = read(tmp_path, label_column=["x", "y"], label_kind="multi", test_csv="")
    assert of_test(images)[["label", "x", "y"]].to_numpy().tolist() == [[-1, 0, 0]]
    assert images["x"].dtype == "int8"


@pytest.mark.parametrize(
    ("files", "pattern", "expected"),
    [
        (["cat/1.jpg", "dog/2.jpg", "test/3.jpg"], "*/*", {"test/3.jpg": ("test", -1)}),
        (
            ["cat/1.jpg", "dog/2.jpg", "Test/any/3.jpg"],
            "*/*",
            {"Test/any/3.jpg": ("test", -1)},
        ),
        (
            ["cat/1.jpg", "test_images/3.jpg"],
            "*/*",
            {"test_images/3.jpg": ("test", -1)},
        ),
        (["train/cat/1.jpg", "test/3.jpg"], "*/*/*", {"test/3.jpg": ("test", -1)}),
        (["train/cat/1.jpg", "test/x/3.jpg"], "*/*/*", {"test/x/3.jpg": ("test", -1)}),
        (
            ["train/cat/1.jpg", "test/cat/3.jpg"],
            "*/*/*",
            {"test/cat/3.jpg": ("test", 0)},
        ),
        (["in/cat/1.jpg", "in/test/3.jpg"], "in/*/*", {"in/test/3.jpg": ("test", -1)}),
        (["train/cat/1.jpg", "val/cat/3.jpg"], "*/*/*", {"val/cat/3.jpg": ("val", 0)}),
    ],
)
def test_a_folder_called_like_a_split_is_never_a_class(
    tmp_path, files, pattern, expected
):
    """Test images have labels only if all are in folders of known classes."""
    for name in files:
        put_image(tmp_path / name)
    images, labels = read(tmp_path, source="folders", pattern=pattern)

    found = (
        images.set_index("image_id")[["split", "label"]].apply(tuple, axis=1).to_dict()
    )
    assert found.items() >= expected.items()
    assert len(images) == len(files)
    assert not {"test", "Test", "test_images", "any", "x"} & set(labels.classes)
    assert set(images["problem"]) == {""}


def test_images_right_in_a_train_folder_have_no_class(tmp_path):
    """They are rejected with a reason, unless LABEL_MAP has the folder as a class."""
    for name in ("cat/1.jpg", "train/2.jpg"):
        put_image(tmp_path / name)
    images, labels = read(tmp_path, source="folders")
    assert images["problem"].tolist() == ["", "no class folder"]
    assert labels.classes == ("cat",)
    images, _ = read(tmp_path, source="folders", label_map={"cat": 0, "train": 1})
    assert images["label"].tolist() == [0, 1]


def test_further_inputs_join_by_the_names_of_their_classes(tmp_path):
    """Folders, columns and names may differ; a repeated id gets the input's number."""
    put_csv(tmp_path / "main", ROWS, ["a.jpg", "b.jpg"])
    more = put_csv(tmp_path / "main" / "more", "id,kind\na.jpg,why\nc.jpg,x\nd.jpg,z\n")
    for name in ("more/img/a.jpg", "more/img/c.jpg", "more/img/d.jpg", "old/x/9.jpg"):
        put_image(tmp_path / "main" / name)
    more_csv = {"INPUT_DIR": "more", "ID_COLUMN": "id", "LABEL_COLUMN": "kind"}
    more_csv |= {"PATH_TEMPLATE": "img/{id}", "LABEL_MAP": {"why": "y", "z": ""}}
    folders = {"INPUT_DIR": str(tmp_path / "main" / "old"), "SOURCE": "folders"}

    images, labels = read(tmp_path / "main", more_inputs=[more_csv, folders])

    assert labels.classes == ("x", "y")
    assert images[["image_id", "source", "label"]].to_numpy().tolist() == [
        *(
            ["a.jpg", 0, 0],
            ["b.jpg", 0, 1],
            ["1/a.jpg", 1, 1],
            ["c.jpg", 1, 0],
            ["d.jpg", 1, -1],
        ),
        ["x/9.jpg", 2, 0],
    ]
    assert images["problem"].tolist() == [
        "",
        "",
        "",
        "",
        "left out by LABEL_MAP: z",
        "",
    ]
    assert images["path"].iloc[2] == f"{more}/img/a.jpg"


def test_further_inputs_of_several_labels_line_up_their_columns(tmp_path):
    """A label that the second input lacks is 0; LABEL_MAP may leave out several."""
    put_csv(tmp_path, "image_id,x,y\na.jpg,0,1\n", ["a.jpg"])
    text = "image_id,z,y,v,w\nm.jpg,1,0,1,0\nn.jpg,0,1,0,1\n"
    put_csv(tmp_path / "more", text, ["m.jpg", "n.jpg"])
    more = {
        "INPUT_DIR": "more",
        "LABEL_COLUMN": ["z", "y", "v", "w"],
        "LABEL_MAP": {"z": "x", "v": "", "w": ""},
    }
    changes = {"label_column": ["x", "y"], "label_kind": "multi"}

    images, _ = read(tmp_path, **changes, more_inputs=[more])

    rows = images[["x", "y", "label_name"]].to_numpy().tolist()
    assert rows == [[0, 1, "y"], [1, 0, "x"], [0, 1, "y"]]
    assert images["label"].tolist() == [1, 0, 1]


MORE = {
    "INPUT_DIR": "more",
    "LABELS_CSV": "../train.csv",
    "PATH_TEMPLATE": "../train_images/{image_id}",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels_csv": "sample_submission.csv"},
            r"LABELS_CSV and TEST_CSV are both 'sample_sub",
        ),
        ({"test_csv": "no.csv"}, r"no file '.*no.csv'. Set TEST_CSV"),
        (
            {"test_csv": "odd.csv"},
            r"TEST_CSV '.*odd.csv' has no.*It has name. Set TEST_ID_C",
        ),
        (
            {"test_path_template": "t/*.png", "test_csv": ""},
            r"TEMPLATE 't/\*.png' matches",
        ),
        (
            {"test_path_template": "t/{image_id}"},
            r"none of the 2 .*or set TEST_PATH_TEMPLATE",
        ),
        (
            {"more_inputs": [{"INPUT_DIR": "more"}]},
            r"has 1 classes .* 'z'.*LABEL_MAP: {\"z\":",
        ),
        (
            {"more_inputs": [{"INPUT_DIR": "more", "LABEL_SEPARATOR": " "}]},
            r"input 1 \('.*more'\) has labels of the kind 'multi', the main input 'si",
        ),
        (
            {"more_inputs": [{"LABELS_CSV": "x"}]},
            "MORE_INPUTS, input 1: it must be a mapping with",
        ),
        (
            {"more_inputs": [{"INPUT_DIR": "a", "LABEL_MOP": ""}]},
            'Did you mean "LABEL_MAP"',
        ),
    ],
)
def test_what_does_not_fit_is_an_error_that_helps(competition, changes, message):
    put_csv(competition / "more", "image_id,label\nm.jpg,z\n", ["m.jpg"])
    (competition / "odd.csv").write_text("name\nt1.jpg\n")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read(competition, **changes)


def test_half_of_a_test_set_is_an_error(tmp_path):
    """Without both a CSV and a folder there are no test images."""
    put_csv(tmp_path, ROWS, ["a.jpg", "b.jpg"])
    images, _ = read(tmp_path)
    assert len(images) == 2
    pd.DataFrame({"image_id": ["t1.jpg"]}).to_csv(
        tmp_path / "sample_submission.csv", index=False
    )
    with pytest.raises(FileNotFoundError, match=r"has 'sample_sub.*', but no 'test_im"):
        read(tmp_path)


def test_the_ids_of_a_submission_may_have_another_column(competition, tmp_path):
    """TEST_ID_COLUMN names it; the template may use either column's name."""
    (competition / "sample_submission.csv").write_text(
        "label,file\nx,t2.jpg\nx,t1.jpg\n"
    )
    with pytest.raises(
        ValueError, match=r"has no column 'image_id'.*Set TEST_ID_COLUMN to one"
    ):
        read(competition)

    images, _ = read(competition, test_id_column="file")

    assert of_test(images)["image_id"].tolist() == ["t2.jpg", "t1.jpg"]
    (competition / "train.csv").write_text(ROWS.replace("image_id", "name"))
    columns = {
        "id_column": "name",
        "path_template": "train_images/{name}",
        "test_id_column": "file",
    }
    for template in ("test_images/{name}", "test_images/{file}"):
        images, _ = read(competition, **columns, test_path_template=template)
        assert of_test(images)["image_id"].tolist() == ["t2.jpg", "t1.jpg"]


@pytest.mark.parametrize("template", ["{image_id}", "bilder/{image_id}"])
def test_ids_may_be_paths_of_any_depth(tmp_path, template):
    """The header may have blanks; unlisted files are named unless they are texts."""
    folder = tmp_path / "bilder" if template != "{image_id}" else tmp_path
    put_csv(
        tmp_path, " image_id ;\tlabel\na/20/Foto.jpg;x\nb/1.jpg;y\nmissing.jpg;x\n;x\n"
    )
    for name in ("a/20/Foto.jpg", "b/1.jpg", "b/forgotten.heic"):
        put_image((folder / name).with_suffix(".jpg"))
    (folder / "b" / "forgotten.jpg").rename(folder / "b" / "forgotten.heic")
    for name in ("b/notes.txt", "a/20/Foto.json", "extra.csv"):
        (folder / name).write_text("")

    images, labels = read(tmp_path, path_template=template)

    names = ["a/20/Foto.jpg", "b/1.jpg", "missing.jpg", "", "b/forgotten.heic"]
    assert images["image_id"].tolist() == names
    assert images["problem"].tolist() == ["", "", "", "no id", "no row in train.csv"]
    assert labels.classes == ("x", "y")


FLAGS = "image_id,rust,scab\na.jpg,1,0\nb.jpg,0,1\n"
SEVERAL = "several labels where one is expected: rust, scab"
NONE = "no label"


@pytest.mark.parametrize(
    ("text", "kind", "problems"),
    [
        (FLAGS, "auto", ["", ""]),
        (
            FLAGS + "c.jpg,2,0\n",
            "auto",
            ["", "", "label column 'rust' contains '2', not 0 or 1"],
        ),
        (FLAGS + "c.jpg,1,1\nd.jpg,0,0\n", "single", ["", "", SEVERAL, NONE]),
    ],
)
def test_columns_with_one_1_a_row_are_one_class(tmp_path, capsys, text, kind, problems):
    """They are recognised by "auto"; with "single" other rows are rejected."""
    folder = put_csv(
        tmp_path, text, [f"{name}.jpg" for name in "abcd"[: len(problems)]]
    )
    changes = {"label_column": ["rust", "scab"], "label_kind": kind}

    images, labels = read(folder, **changes)

    assert (labels.kind, labels.classes) == ("single", ("rust", "scab"))
    assert images["problem"].tolist() == problems
    assert images["label"].tolist()[:2] == [0, 1]
    assert ("exactly one 1 in 2 label columns" in capsys.readouterr().out) == (
        kind == "auto"
    )
    images, labels = read(folder, **changes, label_map={"scab": 0, "rust": 1})
    assert (images["label"].tolist()[:2], labels.classes) == ([1, 0], ("scab", "rust"))


@pytest.mark.parametrize(("row", "kind"), [("c.jpg,1,1\n", "auto"), ("", "multi")])
def test_columns_of_0_and_1_stay_several_labels(tmp_path, row, kind):
    """So it is if a row has several labels, or with LABEL_KIND: multi."""
    folder = put_csv(tmp_path, FLAGS + row, ["a.jpg", "b.jpg", "c.jpg"])
    _, labels = read(folder, label_column=["rust", "scab"], label_kind=kind)
    assert (labels.kind, labels.label_columns) == ("multi", ("rust", "scab"))


def test_rows_of_a_given_test_split_do_not_tell_the_kind_of_label(tmp_path):
    """A test set without answers has 0 in every column."""
    text = (
        "image_id,rust,scab,split\na.jpg,1,0,train\nb.jpg,0,1,train\nc.jpg,0,0,test\n"
    )
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg", "c.jpg"])

    images, labels = read(folder, label_column=["rust", "scab"], split_column="split")

    assert (labels.kind, labels.classes) == ("single", ("rust", "scab"))
    assert images[["split", "label", "problem"]].to_numpy().tolist() == [
        *(["train", 0, ""], ["train", 1, ""], ["test", -1, ""])
    ]


@pytest.mark.parametrize(("row", "kind"), [("c.jpg,1,1\n", "multi"), ("", "single")])
def test_the_main_input_tells_the_kind_of_label_of_further_ones(tmp_path, row, kind):
    """The few rows of a further input could look like another kind."""
    names = ["a.jpg", "b.jpg", "c.jpg"]
    folder = put_csv(tmp_path, FLAGS + row, names)
    other = {"multi": "m.jpg,0,1\n", "single": "m.jpg,0,1\nn.jpg,1,1\n"}[kind]
    put_csv(tmp_path / "more", "image_id,rust,scab\n" + other, ["m.jpg", "n.jpg"])
    changes = {"label_column": ["rust", "scab"], "more_inputs": [{"INPUT_DIR": "more"}]}

    images, labels = read(folder, **changes)

    assert labels.kind == kind
    added = images.set_index("image_id")["problem"].loc[["m.jpg", "n.jpg"]].tolist()
    assert added == ["", "no row in train.csv" if kind == "multi" else SEVERAL]
