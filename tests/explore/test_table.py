"""The table has one row per image, and names each fault; it comes back from disk."""

import json
from pathlib import Path

import pandas as pd
import pytest
from support.inputs import put_csv, read, rows_of

from kaggle_tfr.explore.table import load_images, measure, save_images, save_rejects


def test_the_table_and_its_labels_come_back_from_disk():
    """Ids stay text, whole numbers stay labels, and rejected images are listed."""
    text = "image_id,label\n007,10\n010,9\nNA,10\n"
    table, labels = read(put_csv(".", text, ["007.jpg", "10.jpg"]), name="n")
    images = measure(table, labels)

    with pytest.raises(FileNotFoundError, match=r"no '.*parquet'. Run 01_explore"):
        load_images("work")
    save_rejects(images, "work")
    save_images(images, labels, "work")
    again, labels_again = load_images("work")
    pd.testing.assert_frame_equal(again, images)
    assert labels_again == labels
    assert rows_of(again, "label") == {"007": 1, "010": 0, "NA": 1}
    assert json.loads(Path("work/labels.json").read_text()) == {
        "kind": "single",
        "classes": [9, 10],
        "label_columns": [],
        "name": "n",
        "bit_depth": "scale",
    }
    rejects = Path("work/rejects.csv").read_text().splitlines()
    assert rejects == ["image_id,path,problem", "NA,,missing file"]


def test_bad_rows_are_named_and_stay_in_the_table():
    """Each row has its reason; other columns stay, with a prefix where names clash."""
    listed_twice = ["a.jpg,x", "a.jpg,x", "b.jpg,x", "b.jpg,y"]
    rows = [*listed_twice, "c.jpg,", ",x", "d.jpg,y", "../../etc/passwd,x"]
    lines = [*(f"{row},030,640,7" for row in rows), "f.jpg,y" + ",1" * 20]
    text = "\n".join(["image_id,label,age,width,record", *lines, ""])
    names = [f"{name}.jpg" for name in "abcdef"]

    images = measure(*read(put_csv(".", text, names)))

    clash = "listed with different labels"
    assert images["problem"].tolist() == [
        "",
        "listed twice: the first row counts",
        clash,
        clash,
        "no label",
        "no value for 'image_id'",
        "",
        "missing file",
        "more cells than the header",
        "no row in train.csv",
    ]
    assert images["label"].tolist() == [0, 0, 0, 1, -1, 0, 1, 0, 1, -1]
    columns = ["age", "csv_width", "width", "csv_record"]
    assert images.loc[0, columns].tolist() == ["030", "640", 32, "7"]
    assert "record" not in images  # which the tables of a part have
    assert images["path"].iloc[7] == ""
