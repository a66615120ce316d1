"""The recipe that fits a folder, told by names of files and the first rows of CSVs: `init`."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any, NamedTuple

import pandas as pd

from kaggle_tfr.explore.records import LABEL_NAME
from kaggle_tfr.explore.rows import FLAGS, MISSING
from kaggle_tfr.parameters import DEFAULTS, PARAMETERS
from kaggle_tfr.paths import find_input, to_slug
from kaggle_tfr.schema import split_of
from kaggle_tfr.storage import PICTURE, is_remote

SHARD = re.compile(r"(?i)\.tfrec(ord)?s?(-\d+-of-\d+)?(\.gz)?$")
TABLE = re.compile(r"(?i)\.(csv|tsv)$")
RUNS = re.compile(r"\d+ \d+( \d+ \d+)*")
# Looked at: subfolders of the top and of each below, files of each; CSVs, their rows, ids of each.
TOP_FOLDERS, SUBFOLDERS, FILES, CSVS, ROWS, IDS = 60, 4, 12, 8, 500, 12
UNSURE = "not sure: "
Names = Sequence[Sequence[str]]  # of files, in folders and name
Told = tuple[dict[str, Any], list[str]]  # parameters; lines on what they were told by


class Csv(NamedTuple):
    """A CSV whose column `id` names pictures, those that `template` leads to."""

    name: str
    table: pd.DataFrame
    id: str
    template: str
    halved: bool  # ids are cut before their last "_", as of 0011165.jpg_Fish

    def is_test(self) -> bool:
        place = self.template.partition("/")[0]
        return "submission" in self.name.lower() or split_of(place) == "test"


def write_recipe(source: str, out: str) -> list[str]:
    """Lines to print, after a commented recipe for a folder or Kaggle slug was written to `out`.
    Raises: FileExistsError; FileNotFoundError, ValueError: as `tell_layout`.
    """
    folder = find_input(source)
    if is_remote(folder):
        raise ValueError(f"'{folder}' is a bucket; init looks at folders of this machine only.")
    while len(there := _list(folder)) == 1 and there[0].is_dir() and not split_of(there[0].name):
        folder = there[0].path  # what an archive was unpacked to
    told, said = tell_layout(folder)
    given = os.path.abspath(folder) if os.path.isdir(source) else source
    values = {"NAME": to_slug(os.path.basename(folder)) or "images", "INPUT_DIR": given, **told}
    values |= {name: DEFAULTS[name] for name in ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS")}
    with open(out, "x", encoding="utf-8") as file:
        print(f"# Made by kaggle-tfr init of {given}.", *said, sep="\n# ", file=file)
        for key, value in values.items():
            setting = f"{key}: {json.dumps(value, ensure_ascii=False)}"
            print(f"{setting:48} # {PARAMETERS[key].said or 'as in the data'}", file=file)
    return [*said, f"Written: {out}. Look at it, then: kaggle-tfr run {out}"]


def tell_layout(folder: str) -> Told:
    """What 01 needs to read a folder, of which some names and the first rows of CSVs are read.
    Raises: FileNotFoundError: no picture and no shard; ValueError: nothing labels the pictures.
    """
    files = [name.split("/") for name in _walk(folder)]
    pictures = [parts for parts in files if PICTURE.search(parts[-1])]
    tables = ["/".join(parts) for parts in files if TABLE.search(parts[-1])]
    tables.sort(key=lambda name: (name.count("/"), "train" not in name, name))
    csvs = list(filter(None, (_match_csv(folder, name, pictures) for name in tables[:CSVS])))
    if labelled := [csv for csv in csvs if not csv.is_test()]:
        labels, said = _tell_labels(*labelled)
        tests, more = _tell_tests(labelled[0], [csv for csv in csvs if csv.is_test()], pictures)
        return labels | tests, said + more
    if shards := [parts for parts in files if SHARD.search(parts[-1])]:
        said = [f"TFRecord shards such as {'/'.join(shards[0])}"]
        said.append(f"{UNSURE}which features are image, label and id: 01 tells by the records")
        deep = max(map(len, shards))  # "*/*" takes all up to two folders down
        return {"SOURCE": "tfrecords", "PATTERN": "/".join("*" * (deep if deep > 3 else 2))}, said
    if pictures:
        return _tell_folders(folder, pictures)
    endings = Counter(os.path.splitext(parts[-1])[1] or "no ending" for parts in files)
    there = ", ".join(f"{n} of {ending}" for ending, n in endings.most_common(5)) or "nothing"
    what = f"'{folder}' has no picture and no TFRecord shard. Of its files, seen were {there}."
    raise FileNotFoundError(f"{what} Give the folder that holds the images or their folders.")


def _list(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        shown = (entry for entry in entries if not entry.name.startswith((".", "__")))
        return sorted(islice(shown, 20_000), key=lambda entry: entry.name)


def _walk(folder: str, below: str = "", most: int = TOP_FOLDERS) -> Iterator[str]:
    """Names of files below a folder: some of each folder, of some subfolders of each."""
    there = _list(os.path.join(folder, below))
    files = [entry.name for entry in there if not entry.is_dir()]
    tables = [name for name in files if TABLE.search(name)]
    yield from (below + name for name in dict.fromkeys([*tables[:CSVS], *files[:FILES]]))
    folders = [entry.name for entry in there if entry.is_dir()]
    for name in folders[: most * (below.count("/") < 6)]:
        yield from _walk(folder, f"{below}{name}/", SUBFOLDERS)


def _templates(parts: Sequence[str]) -> Iterator[str]:
    """Templates that lead to a picture by its id: without its ending, with it, or a path."""
    folders, (stem, ending) = list(parts[:-1]), os.path.splitext(parts[-1])
    for n in range(len(folders), 0, -1):  # folders called after the id's first characters
        if folders[-n:] == list(stem[:n]):
            folders[-n:] = [f"{{image_id[{k}]}}" for k in range(n)]
            break
    yield from ("/".join([*folders, "{image_id}" + tail]) for tail in ("", ending))
    yield "{image_id}"


def _match_csv(folder: str, name: str, pictures: Names) -> Csv | None:
    """The CSV with the column and template that lead to most pictures; None if they lead to few."""
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8-sig") as file:
            sep = max(",;\t", key=file.readline().count)
            file.seek(0)
            table = pd.read_csv(file, sep=sep, dtype=str, keep_default_na=False, nrows=ROWS)
    except ValueError:  # no CSV
        return None

    def leads(template: str, image_id: str) -> bool:
        with suppress(IndexError, ValueError):  # shorter than the template's folders; NUL
            return os.path.isfile(os.path.join(folder, template.format(image_id=image_id)))
        return False

    best, most = None, 0
    templates = {template for parts in pictures for template in _templates(parts)}
    order = sorted(templates, key=lambda template: (template.count("/"), template))
    some = table.iloc[:: max(1, len(table) // IDS)]  # the first ids may be those of other folders
    for column in map(str, table):
        whole = [text for text in some[column] if text not in MISSING]
        halves = [text.rpartition("_")[0] for text in whole if "_" in text]
        for ids, template in product((whole, halves), order):
            if any(leads(template, text) for text in ids[:4]):
                hits = sum(leads(template, text) for text in ids)
                if hits > most and 2 * hits >= len(ids):
                    best, most = Csv(name, table, column, template, ids is halves), hits
    return best


def _tell_labels(csv: Csv, *others: Csv) -> Told:
    """Where the pictures are and what labels them: codes of masks, flags, a list, or a class."""
    values: dict[str, Any] = {"SOURCE": "csv", "LABELS_CSV": csv.name, "ID_COLUMN": csv.id}
    values |= {"PATH_TEMPLATE": csv.template}
    said = [f"{csv.name}: its column '{csv.id}' names the pictures {csv.template}"]
    rest = {n: csv.table[n][~csv.table[n].isin(MISSING)] for n in map(str, csv.table)}
    rest = {n: text.str.strip() for n, text in rest.items() if len(text) and n != csv.id}
    codes = [n for n, text in rest.items() if text.str.fullmatch(RUNS).mean() > 0.9]
    flags = [n for n, text in rest.items() if set(text.str.lower()) <= set(FLAGS)]
    order = sorted(rest, key=lambda n: (not LABEL_NAME.fullmatch(n), rest[n].nunique()))
    if codes:
        again = csv.table[csv.id].duplicated().any() and not csv.halved
        of = [n for n in order if n not in codes and not csv.table.duplicated([csv.id, n]).any()]
        label = [of[0], codes[0]] if again and of else codes[0]
        values |= {"SOURCE": "rle_csv", "LABEL_COLUMN": label, "KEEP": "all", "CONFLICTS": "keep"}
        said.append(f"'{codes[0]}': run-length codes of masks, which are drawn by hand: none agree")
    elif len(flags) > 1 and (order[0] in flags or not LABEL_NAME.fullmatch(order[0])):
        values["LABEL_COLUMN"] = flags
        said.append(f"{len(flags)} columns of 0 and 1: a picture can have several labels")
    elif order:
        values["LABEL_COLUMN"], different = order[0], set(rest[order[0]])
        said.append(f"'{order[0]}': {len(different)} values in {len(rest[order[0]])} rows")
        words = {word for text in different for word in text.split()}
        if len(words) < len(different) and any(" " in text for text in different):
            values["LABEL_SEPARATOR"] = " "
            said.append(f"{UNSURE}blanks part labels; if they are in names, drop LABEL_SEPARATOR")
        if order[1:]:
            said.append(f"{UNSURE}LABEL_COLUMN could also be one of {', '.join(order[1:])}")
    else:
        values["LABEL_COLUMN"] = []
        said.append(f"{UNSURE}no column labels the pictures: they are read without labels")
    what = f"{UNSURE}{{}} names pictures too ({{}}): other labels, or data for MORE_INPUTS?"
    return values, said + [what.format(other.name, other.template) for other in others]


def _tell_tests(csv: Csv, tests: Sequence[Csv], pictures: Names) -> Told:
    """Where the images to predict are, and which CSV names them."""
    for test in tests:
        if test.id == csv.id and test.template != csv.template:
            said = [f"{test.name} names the test images {test.template}"]
            return {"TEST_CSV": test.name, "TEST_PATH_TEMPLATE": test.template}, said
    for folder, *below in pictures:
        if split_of(folder) == "test" and below:
            said = [f"{UNSURE}{folder}/ has test images? No CSV names them by '{csv.id}'"]
            pattern = "/".join([folder, *"*" * len(below)])
            return {"TEST_CSV": "", "TEST_PATH_TEMPLATE": pattern}, said
    return {"TEST_PATH_TEMPLATE": ""}, [f"{UNSURE}no test images were seen"]


def _tell_folders(folder: str, pictures: Names) -> Told:
    """The pattern of class folders. Raises: ValueError: there are none."""
    depth = Counter(map(len, pictures)).most_common(1)[0][0]
    classes = {parts[-2] for parts in pictures if len(parts) == depth > 1}
    if not (classes := {name for name in classes if not split_of(name)}):
        what = f"'{folder}' has pictures, but neither class folders nor a CSV that names them."
        raise ValueError(f"{what} Put one beside them: image_id,label, and a row a picture.")
    said = [f"class folders such as {', '.join(sorted(classes)[:4])}"]
    if splits := sorted({parts[0] for parts in pictures if split_of(parts[0])}):
        said.append(f"folders of splits: {', '.join(splits)}")
    elif depth > 2:
        said.append(f"{UNSURE}of folders in folders the last is taken for the class")
    if any(len(parts) != depth for parts in pictures):
        said.append(f"{UNSURE}pictures at other depths are read only if they are test images")
    return {"SOURCE": "folders", "PATTERN": "/".join("*" * depth)}, said
