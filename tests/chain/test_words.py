"""What a run has found has the same words and numbers wherever it is shown."""

import pytest
from support.chain import draw_pictures, save_picture
from support.words import collect_numbers

from kaggle_tfr import deduplicate, explore, notebook, plan, write
from kaggle_tfr.driver import summarize
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.report import write_report


def write_images(folder):
    """Write 24 images of two classes, six test images, a copy and a damaged file."""
    pictures = draw_pictures(30, 120, 160)
    for number, picture in enumerate(pictures):
        place = "test" if number >= 24 else f"train/{'ab'[number % 2]}"
        save_picture(picture, folder / place / f"{number:02d}.jpg")
    save_picture(pictures[0], folder / "train/a/copy.jpg", quality=50)
    (folder / "train/b/empty.jpg").touch()


def run(values, fault, folder):
    """Run 01 to 04 with a fault, as far as possible, and write the report."""
    for step in (explore, deduplicate, plan):
        step.run(values)
    if fault == "a damaged image":
        (folder / "train/a/02.jpg").write_bytes(b"\xff\xd8")
    if fault == "a stop":
        text = "Stopped in 04: the disk is full."
        notebook.note_stop("04_write", values["WORK_DIR"], 0, text)
    else:
        write.run(values)
    notebook.end()
    write_report(values)


@pytest.mark.parametrize("fault", ["a damaged image", "a part is missing", "a stop"])
def test_a_word_has_one_number(tmp_path, fault):
    """In the findings, the report, the accounting and the last lines of a run."""
    write_images(tmp_path / "in")
    values = {"INPUT_DIR": str(tmp_path / "in"), "WORK_DIR": str(tmp_path / "work")}
    values |= {"IMAGE_SIZE": 64, "N_FOLDS": 2, "N_SHARDS": 4, "N_JOBS": 2}
    values = DEFAULTS | values
    if fault == "a part is missing":
        values |= {"MAX_PART_FILES": 16, "PART": 1}

    run(values, fault, tmp_path / "in")

    numbers = collect_numbers(tmp_path / "work", summarize(values))
    assert all(len(found) == 1 for found in numbers.values()), numbers
    assert numbers["rejected"] == {1}
