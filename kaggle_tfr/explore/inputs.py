"""Read all inputs as one table; stop at tables that cannot be right, note doubts."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.columns import find_labels
from kaggle_tfr.explore.files import Files, is_generic, list_files, list_texts
from kaggle_tfr.explore.groups import add_groups
from kaggle_tfr.explore.labels import LEFT_OUT, Table, label_rows, number_labels
from kaggle_tfr.explore.masks import note_combs
from kaggle_tfr.explore.records import read_records
from kaggle_tfr.explore.rows import (
    FILE,
    FOLDER,
    NO_ROW,
    OF_CSV,
    PROBLEM,
    SEVERAL_FILES,
    SPLIT,
    TAIL,
    list_rows,
    read_rule,
)
from kaggle_tfr.find import find_folder, find_input, output_dir
from kaggle_tfr.images.masks import EMPTY_CODES
from kaggle_tfr.naming import SPLIT_NAMES, is_shard_name
from kaggle_tfr.notebook import note
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.schema import Labels

# What to do if labels are probably wrong, and if most images cannot be used.
LABEL_ADVICE = (
    "Set LABELS_CSV to a CSV with the columns image_id,label, or LABEL_COLUMN to a "
    "column, to 'folder' or to 'names: REGEX'; [] reads images without labels. "
    "LABEL_KIND: multi allows several labels of an image, and masks reads run-length "
    "codes; LABEL_MAP renames labels."
)
ADVICE = (
    "If files are missing or several, set INPUT_DIR, PATTERN, ID_COLUMN or "
    "PATH_TEMPLATE; set INPUT_DIR to the folder that links lead to, or copy it. If "
    f"labels are missing or odd: {LABEL_ADVICE}"
)


def read_table(
    input_dir: str,
    values: Values,
    excluded: Sequence[str] = (),
    files: Files | None = None,
) -> Table:
    """Return one row per image of all inputs, and their labels. No image is opened.

    values: the parameters of 01 by name; others have their defaults.
    excluded: WORK_DIR and OUT_DIR, whose files are not input where they are in
    INPUT_DIR. files: those of INPUT_DIR, if they are listed already.

    Columns: image_id; path (absolute or gs://, "" for a missing file); split; label
    (int64, -1 for none); label_name; problem ("" for a good row); source (0 for the
    main input, else the number in MORE_INPUTS); input_dir (the folder of its source, a
    category); for several labels (int8, 0 or 1), masks (run-length codes, "" for none)
    and quantities (float) one column per label, and `label` numbers the combinations,
    or the bins of the quantity; the other columns of a CSV as text; the groups under
    the text of GROUP_COLUMN. An id that an earlier input has gets the number of its
    input in front.
    Raises: FileNotFoundError: a folder, CSV or all images are missing; ValueError: a
    setting does not fit.
    """
    settings = {
        **DEFAULTS,
        **values,
        "INPUT_DIR": output_dir(input_dir),
        "EXCLUDED": list(map(output_dir, filter(None, excluded))),
    }
    images, labels = number_labels(*_read_inputs(settings, files))
    # Validation images of folders "val" and "dev" become one split, called like that
    # of the first one: the names of output files have it.
    is_validation = images["split"].map(SPLIT_NAMES) == "validation"
    images.loc[is_validation, "split"] = next(iter(images["split"][is_validation]), "")
    limit = settings["LIMIT"]
    if 0 < limit < len(images):
        # The first rows of class folders would all be of one class.
        chosen = np.arange(limit) * len(images) // limit
        images = images.iloc[chosen].reset_index(drop=True)
    images = add_groups(images, settings["GROUP_COLUMN"])
    labels = replace(labels, name=settings["NAME"], bit_depth=settings["BIT_DEPTH"])
    return images, labels


def _read_inputs(settings: Values, files: Files | None) -> Table:
    """Return the rows of the main input and of the further ones, and the labels.

    A further input has the settings of the main one except LABEL_MAP, SPLIT_COLUMN and
    TEST_CSV, and then its own in MORE_INPUTS. Its labels are of the same kind.
    """
    further = [
        _find_further(more["INPUT_DIR"], settings["INPUT_DIR"])
        for more in settings["MORE_INPUTS"]
    ]
    # Also folders of further inputs, which may be in that of the main one.
    main = {**settings, "EXCLUDED": [*settings["EXCLUDED"], *further]}
    images, labels = _read_input(main, files=files)
    of_further = {
        **settings,
        "LABEL_KIND": labels.kind,
        "LABEL_MAP": "",
        "SPLIT_COLUMN": "",
        "TEST_CSV": "",
    }
    for number, folder in enumerate(further, 1):
        changes = settings["MORE_INPUTS"][number - 1]
        more, _ = _read_input({**of_further, **changes, "INPUT_DIR": folder}, labels)
        images = _add_further(images, more, number)
    return images.astype({"input_dir": "category"}), labels


def _find_further(folder: str, input_dir: str) -> str:
    """Return the folder of a further input: below INPUT_DIR, else as `find_input`.

    folder: a path, an address or a Kaggle slug.
    Raises: FileNotFoundError: it names the place below INPUT_DIR if the first folder of
    the path is there.
    """
    below = os.path.join(input_dir, folder)
    top = os.path.join(input_dir, folder.partition("/")[0])
    # If only `top` exists, the rest of the path is misspelt: the error names `below`.
    if storage.exists(below) or (storage.exists(top) and not find_folder(folder)):
        return find_input(below)
    return find_input(folder)


def _add_further(
    images: pd.DataFrame,
    more: pd.DataFrame,
    number: int,
) -> pd.DataFrame:
    """Return the rows with those of a further input, whose test images are not used.

    A file that both inputs have keeps only the row of the first one whose CSV lists it.
    images: of the inputs before. more: of the further one, changed in place. number: of
    the further input, from 1, for its column `source`, and in front of its ids that an
    earlier input has.
    """
    is_test = (more["split"] == "test") & (more["problem"] == "")
    more.loc[is_test, "problem"] = "test image of a further input"
    more["source"] = number
    ids = more["image_id"]
    more["image_id"] = ids.mask(ids.isin(images["image_id"]), f"{number}/" + ids)

    images = pd.concat([images, more], ignore_index=True)
    is_unlisted = images["problem"].str.startswith(NO_ROW)
    # NO_ROW begins the problem of files that no CSV lists. These rows are sorted to the
    # end, so that `duplicated` finds them if another row has the same file.
    paths = images["path"][is_unlisted.sort_values(kind="stable").index]
    is_again = paths.duplicated() & (paths != "")
    return images.drop(paths.index[is_again]).reset_index(drop=True)


def _read_input(
    settings: Values,
    known: Labels | None = None,
    files: Files | None = None,
) -> Table:
    """Return a row for each image of one input, and its labels.

    known: the labels of the main input, for a further one. files: those of INPUT_DIR,
    if they are listed already. `source` is 0, which the caller changes for a further
    input. Raises: as `read_table`, also if most images cannot be used.
    """
    input_dir = settings["INPUT_DIR"]
    files = files or list_files(
        input_dir, list_texts(settings["PATTERN"]), settings["EXCLUDED"]
    )
    if settings["INPUT_SCHEMA"] or are_shards(files):
        images, labels = read_records(settings, known)
    else:
        images, labels = _read_files(files, settings, known)
    if known and labels.kind != known.kind:
        raise ValueError(
            f"'{input_dir}' has labels of the kind '{labels.kind}', the main input of "
            f"the kind '{known.kind}'."
        )
    check_table(images)
    return images.assign(source=0, input_dir=input_dir), labels


def are_shards(files: Files) -> bool:
    """Return whether INPUT_DIR has shards, and no file that is called like an image.

    Raises: FileNotFoundError: it has neither.
    """
    if files.images:
        return False
    if any(map(is_shard_name, files.others)):
        return True
    raise FileNotFoundError(
        f"{files.folder!r} has no image that can be used. Set INPUT_DIR to a folder of "
        f"images, or unpack archives. Other files: {files.others[:5] or 'none'}."
    )


def _read_files(
    files: Files,
    settings: Values,
    known: Labels | None,
) -> Table:
    """Return a row for each image that is a file or in a CSV, and the labels.

    known: the labels of the main input, for a further one. Raises: as `read_table`.
    """
    rows = list_rows(files, settings)
    text = _read_text(rows, files, settings)
    # The last column of `text` has the run-length codes. Images without a row may be
    # those without a mask: then their problem is removed from `rows`.
    if settings["LABEL_KIND"] == "masks" and not text.empty:
        _accept_unlisted(rows, text.iloc[:, -1])
    return label_rows(rows, text, settings, known)


def _read_text(
    rows: pd.DataFrame,
    files: Files,
    settings: Values,
) -> pd.DataFrame:
    """Return the text of the columns or rules in LABEL_COLUMN, one column for each.

    If it is "": that of the columns by `find_labels`, or of class folders if there is
    no CSV. For masks, labels after the files' names ("Fish" of "1.jpg_Fish") are the
    first column, `TAIL`.
    rows: of `list_rows`.
    Raises: ValueError: there is no such column, or LABEL_COLUMN is needed.
    """
    label_column = settings["LABEL_COLUMN"]
    columns = list_texts(label_column)
    cells = rows.filter(regex=OF_CSV)  # without the columns of `list_rows`
    if label_column == "":
        columns = [FOLDER] if cells.columns.empty else find_labels(cells)
    if columns and TAIL in rows:
        columns = [TAIL, *columns]
    text = {
        name: read_rule(
            name,
            rows,
            rows[FILE],
            folder_of=files.class_of,
            parameter="LABEL_COLUMN",
        )
        for name in columns
    }
    return pd.DataFrame(text, rows.index)


def _accept_unlisted(rows: pd.DataFrame, codes: pd.Series) -> None:
    """Remove the problem of images without a row if no code in the CSV is empty.

    Then they are images without a mask. This is so if, apart from test images, exactly
    the images without a row have an empty code.
    rows: of `list_rows`, changed in place. codes: the run-length code of each row.
    """
    has_no_row = rows[PROBLEM].str.startswith(NO_ROW)
    is_empty = codes.str.strip().isin(EMPTY_CODES) & (rows[SPLIT] != "test")
    if any(is_empty) and is_empty.equals(has_no_row):
        rows.loc[has_no_row, PROBLEM] = ""
        print(
            f"{has_no_row.sum():,} images have no row in LABELS_CSV, which contains no "
            "empty mask: they are read as images without a mask."
        )


def check_table(images: pd.DataFrame) -> None:
    """Raise a ValueError if most images are unusable for one reason, or none is left.

    For the reason that several files have the name, 1 % are too many. Test images,
    files that no CSV lists and what LABEL_MAP leaves out do not count.
    """
    is_left_out = images["problem"].str.startswith((NO_ROW, LEFT_OUT))
    counted = images[(images["split"] != "test") & ~is_left_out]
    reasons = counted["problem"].str.split(":").str[0]  # without the details
    for reason, count in reasons[reasons != ""].value_counts().items():
        share = count / len(counted)
        if share > (0.01 if reason == SEVERAL_FILES else 0.5):
            example = counted[reasons == reason].iloc[0]
            raise ValueError(
                f"{count:,} of the images, {share:.0%}, cannot be used, such as "
                f"'{example['image_id']}': {example['problem']}. {ADVICE}"
            )
    if not (reasons == "").any():
        raise ValueError(
            f"none of the {len(images):,} images is left to train on: all are in test "
            "folders, or have no row in a CSV. Set SPLIT_COLUMN: none to train on the "
            'images of all folders, or LABELS_CSV: "" to leave the CSV out.'
        )


def note_rejects(images: pd.DataFrame) -> None:
    """Note how many images are rejected, and why; "!" if more than 5 % are."""
    problem = images["problem"]
    counts = problem[problem != ""].str.split(":").str[0].value_counts()
    if counts.empty:
        note("✓", f"All {len(images):,} images can be used.", "input")
        return
    n_rejects = counts.sum()
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    note(
        "!" if n_rejects > 0.05 * len(images) else "·",
        f"{n_rejects:,} of {len(images):,} images are rejected: {reasons}.",
        "input",
        "rejects.csv lists them.",
    )


def note_doubts(
    images: pd.DataFrame,
    labels: Labels,
    label_column: str | Sequence[str],
) -> None:
    """Note why the labels are probably wrong, for one of three reasons.

    All images are of one class, there are more classes than half of the images, or a
    class is called like a split or a folder of images. `note_combs` checks masks.
    label_column: LABEL_COLUMN; if the user has set it, no class's name is a doubt.
    """
    if labels.kind == "masks":
        note_combs(images, labels)
    names = list(map(str, labels.classes))
    generic = list(filter(is_generic, names)) if label_column == "" else []
    n_good = ((images["problem"] == "") & (images["label"] >= 0)).sum()
    doubt = ""
    if labels.kind == "single" and len(names) == 1:
        doubt = f"All images are of one class, {names[0]!r}."
    elif n_good > 20 and len(names) > n_good / 2:
        doubt = f"{n_good:,} images are of {len(names):,} classes: most have few."
    elif generic:
        doubt = f"A class is called {generic[0]!r}, like a split or a folder of images."
    if doubt:
        note("✗", doubt, "labels: classes", LABEL_ADVICE)
