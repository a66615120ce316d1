"""01 in one call: list, read and measure the images, and save their table."""

import re

from kaggle_tfr import notebook, storage
from kaggle_tfr.earlier import save_earlier
from kaggle_tfr.explore.bundled import input_or_sample
from kaggle_tfr.explore.growth import join_records, read_records
from kaggle_tfr.explore.inputs import check_table, note_doubts, read_table
from kaggle_tfr.explore.labels import Table
from kaggle_tfr.explore.table import measure, save_images, save_rejects
from kaggle_tfr.naming import SUBMISSION
from kaggle_tfr.parameters import Values


def run(values: Values) -> Table:
    """Read and measure all images of the input, and save the files for 02.

    Return one row per image, with the columns of `read_table` and of `measure`, and the
    labels. `problem` is the reason why an image is rejected, "" for a good one. If the
    dataset grows, only the saved table has the earlier records of FOLDS_FROM.

    values: the parameters of 01 by name, for example a notebook's `globals()`.
    Raises: FileNotFoundError: the input, a CSV or all images are missing; ValueError:
    a parameter does not fit, or most images are unusable.
    """
    work = notebook.begin("01_explore", values)
    input_dir = input_or_sample(values["INPUT_DIR"], work)
    print(f"input folder: {input_dir}")
    records = read_records(values["FOLDS_FROM"], work)
    listed, labels = read_table(input_dir, values, [work, values["OUT_DIR"]])
    images = measure(listed, labels, work, values["RLE_ORDER"])
    save_rejects(images, work)
    check_table(images)  # again, since images that cannot be read are known now
    note_doubts(images, labels, values["LABEL_COLUMN"])
    save_template(input_dir, values["TEST_CSV"], work)
    save_earlier(records, work)
    if records.empty:
        save_images(images, labels, work)
    else:
        save_images(*join_records(images, labels, records), work)
    return images, labels


def save_template(
    input_dir: str,
    test_csv: str,
    work_dir: str,
) -> None:
    """Copy TEST_CSV to WORK_DIR, for the order and the columns of submission.csv.

    The copy goes into parts, which are published. A link that leads outside is not
    copied, and neither is a TEST_CSV that is not called a submission: it may contain
    the labels of the test images. An earlier copy is removed in any case.
    test_csv: a path below input_dir or an absolute one.
    """
    path = f"{work_dir}/{SUBMISSION}"
    storage.remove(path)
    source = storage.resolve(input_dir, test_csv)
    if (
        re.search("(?i)submission[^/]*$", test_csv)
        and storage.exists(source)
        and storage.is_inside(source, input_dir)
    ):
        storage.write_atomically(path, storage.read_bytes(source))
