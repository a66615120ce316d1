"""Small copies of the layouts that people have, and the table that each should give.

A layout is built in the current folder.
The first cases are public reports and questions; the others are famous data sets.
"""

import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
from PIL import Image

from support.readers import make_example, write_shard
from support.scenes import saved

SIZE = (96, 80)
# Ten runs of a block, down the columns of 80 pixels.
BLOCK = " ".join(f"{80 * column + 11} 40" for column in range(5, 15))
AB = ["a", "b"]
PETS = ["cat", "dog"]
CASES = []


@dataclass(frozen=True)
class Case:
    """A layout and the table of 01 that its owner wants.

    train, validation, test: numbers of images without a problem.
    groups: number of GROUP_COLUMN's.
    label_names: of files by the ends of their paths, "" for none.
    asks: an expression in the question that the proposed recipe leads to; by default
        its table is right. repair: changes the layout as the question says.
    answer: lines that the owner changes in the recipe.
    """

    build: Callable[[], None]
    train: int
    validation: int = 0
    test: int = 0
    rejected: int = 0
    kind: str = "single"
    classes: list[str] = field(default_factory=AB.copy)
    groups: int = 0
    label_names: dict[str, str] = field(default_factory=dict)
    asks: str = ""
    repair: Callable[[], None] | None = None
    answer: str = "{}"


def case(train, **expected):
    """Register a layout that the decorated function builds: fields of a `Case`."""

    def register(build):
        CASES.append(Case(build, train, **expected))
        return build

    return register


def draw(seed, size=SIZE):
    """Return an image that is unlike any other."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize(size, Image.Resampling.BICUBIC)


def make(name):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def put(names, size=SIZE):
    """Write an image for each path."""
    for name in names:
        draw(zlib.crc32(name.encode()), size).save(make(name))


def csv(name, header, *columns, encoding="utf-8"):
    """Write a row for each cell of the first column; the others are repeated."""
    separator = re.search("[,;\t]", header)[0]
    rows = zip(columns[0], *map(cycle, columns[1:]), strict=False)
    lines = [separator.join(map(str, row)) for row in rows]
    text = "\n".join([header, *lines, ""])
    make(name).write_text(text, encoding=encoding)


def put_with_csv(name, header, template, ids, *columns):
    """Write an image for each id, and a CSV with the ids in the first column."""
    put(many(template, ids))
    csv(name, header, ids, *columns)


def many(template, numbers):
    numbers = range(numbers) if isinstance(numbers, int) else numbers
    return [template.format(number) for number in numbers]


def each(words, template, count):
    """Return paths by a template of a word and a number."""
    return [template.format(word, n) for word in words for n in range(count)]


DX = ["akiec", "bcc", "mel"]


@case(
    60,
    classes=DX,
    groups=30,
    label_names={"ISIC_0000003.jpg": "bcc"},
)
def ham10000():
    ids = many("ISIC_{:07}", 60)
    put([f"HAM10000_images_part_{1 + n // 30}/{ids[n]}.jpg" for n in range(60)])
    csv(
        "HAM10000_metadata.csv",
        "lesion_id,image_id,dx,dx_type,age",
        [f"HAM_{n // 2:07}" for n in range(60)],
        ids,
        [DX[n // 2 % 3] for n in range(60)],
        ["histo", "consensus"],
        ["80.0", ""],
    )


@case(
    59,
    rejected=2,
    label_names={"0002/01.png": "b"},
    asks="PATH_TEMPLATE",
    answer='PATH_TEMPLATE: "images/{patient}/{slice}.png"',
)
def slices():
    """The number of a slice is missing."""
    ids = [f"{p:04}_{s:02}" for p in range(1, 13) for s in range(1, 6)]
    put([f"images/{name.replace('_', '/')}.png" for name in ids])
    patients, numbers = zip(*(name.split("_") for name in ids), strict=True)
    numbers = ["", *numbers[1:]]
    csv("slices.csv", "image_id,patient,slice,label", ids, patients, numbers, AB)


@case(
    40,
    test=10,
    classes=PETS,
    label_names={"dog.7.jpg": "dog"},
)
def dogs_vs_cats():
    put(each(PETS, "train/{}.{}.jpg", 20))
    ids = range(1, 11)
    put_with_csv("sampleSubmission.csv", "id,label", "test1/{}.jpg", ids, [0])


@case(24, test=2, label_names={"b/3.jpg": "b"})
def labels_of_a_test_image():
    """Class folders precede a CSV that names few images."""
    put(each(AB, "{}/{}.jpg", 12))
    put_with_csv("notes.csv", "id,label", "test/{}.jpg", [100, 101], "x")


@case(
    16,
    validation=8,
    kind="multi",
    classes=list("abcd"),
    label_names={"images/5.jpg": "b|c"},
)
def combinations():
    """There are eight combinations of four words."""
    cells = [*"abcd", "a b", "b c", "c d", "d a"]
    sets = ["train", "train", "valid"]
    names = many("{}.jpg", 24)
    put_with_csv("train.csv", "image,labels,set", "images/{}", names, cells, sets)


@case(
    20,
    test=3,
    kind="masks",
    classes=list("1234"),
    label_names={"0001.jpg": "2", "0013.jpg": ""},
)
def severstal():
    names = many("{:04x}.jpg", 20)
    put(many("train_images/{}", names))
    put(many("test_images/t{}.jpg", 3))
    header = "ImageId,ClassId,EncodedPixels"
    csv("train.csv", header, names[:11], range(1, 5), [BLOCK])
    rows = each(["t1.jpg", "t2.jpg"], "{}_{}", 4)
    csv("sample_submission.csv", "ImageId_ClassId,EncodedPixels", rows, ["1 1"])


@case(
    48,
    classes=["benign", "malignant"],
    groups=16,
    label_names={"patient09/2.png": "malignant"},
)
def patient_folders():
    put(each(many("benign/patient{:02}", range(1, 9)), "{}/{}.png", 3))
    put(each(many("malignant/patient{:02}", range(9, 17)), "{}/{}.png", 3))


def add_header():
    path = Path("labels.csv")
    path.write_text(f"image,label\n{path.read_text()}")


@case(
    20,
    classes=PETS,
    label_names={"img_00.jpg": "dog"},
    asks="header",
    repair=add_header,
)
def no_header():
    names = many("img_{:02}.jpg", 20)
    put(names)
    csv("labels.csv", "img_00.jpg,dog", names[1:], PETS)


@case(40, classes=PETS, groups=4)
def sites():
    names = many("{}.jpg", 40)
    places = ["EU", "US", "APAC", "NA", ""]
    put_with_csv("all.tsv", "image\tlabel\tsite", "train/{}", names, PETS, places)


@case(
    20,
    classes=["EncodedPixels"],
    kind="masks",
    label_names={"train/0.png": "EncodedPixels", "train/3.png": ""},
)
def blank_masks():
    header = "ImageId, EncodedPixels"
    codes = [BLOCK, "", "-1", " -1"]
    put_with_csv("train.csv", header, "train/{}", many("{}.png", 20), codes)


@case(72, groups=24)
def roboflow_versions():
    for n in range(24):
        digests = [f"{zlib.crc32(bytes([n, version])):032x}" for version in range(3)]
        put(many(f"{'ab'[n % 2]}/leaf_{n:03}_jpg.rf.{{}}.jpg", digests))


@case(
    60,
    kind="multi",
    classes=["cat", "dog", "newt"],
    label_names={"train/05.jpg": "cat|dog", "train/50.jpg": "newt"},
    asks="LABEL_KIND: multi",
    answer="LABEL_KIND: multi",
)
def row_for_each_label():
    names = many("{:02}.jpg", 60)
    put(many("train/{}", names))
    rows = [f"{name},{label}" for name in names[:40] for label in PETS]
    csv("train.csv", "image,label", rows + many("{},newt", names[40:]))


@case(24, validation=12, classes=["daisy", "rose"])
def tensorflow_shards():
    """Their names have no ending."""
    for shard, split in enumerate(["train", "train", "validation"]):
        records = []
        for number in range(12):
            features = {
                "image__encoded": saved(draw(number)),
                "image__class__label": number % 2 + 1,
                "image__class__text": [b"daisy", b"rose"][number % 2],
            }
            records.append(make_example(**features))
        write_shard(f"{split}-0000{shard}-of-00003", records)


@case(
    180,
    rejected=10,
    kind="number",
    classes=[],
)
def months():
    ages = [*range(20, 200), *[""] * 10]
    put_with_csv("train.csv", "image_id,age_months", "{}.png", range(190), ages)


@case(
    24,
    validation=6,
    groups=18,
    kind="multi",
    classes=["No Finding", "Cardiomegaly", "Edema"],
    label_names={"patient00002/study1/view1_frontal.jpg": "Cardiomegaly|Edema"},
    asks="LABEL_COLUMN",
    answer="""LABELS_CSV: [train.csv, valid.csv]
LABEL_COLUMN: [No Finding, Cardiomegaly, Edema]
LABEL_MAP: {"": 0, "-1": 1}""",
)
def chexpert():
    """The archive's folder in all paths, two CSVs, -1 and blanks among 0 and 1."""
    header = "Path,Sex,Age,No Finding,Cardiomegaly,Edema"
    facts = [["Male", "Female"], range(50, 77)]
    train = [
        f"train/patient{1 + n // 2:05}/study{1 + n % 2}/view1_frontal.jpg"
        for n in range(24)
    ]
    valid = many("valid/patient{}/study1/view1_frontal.jpg", range(64541, 64547))
    labels = [["1.0", "", ""], ["", "", "-1.0"], ["", "0.0", "1.0"]]
    other_labels = [["1.0", "0.0"], ["0.0", "1.0"], ["0.0"]]
    put(train + valid)
    archive = "CheXpert-v1.0-small/{}"
    csv("train.csv", header, many(archive, train), *facts, *labels)
    csv("valid.csv", header, many(archive, valid), *facts, *other_labels)


@case(
    40,
    test=10,
    classes=PETS,
    label_names={"train/4.png": "dog", "test/4.png": ""},
)
def cifar10():
    """The same names in train and in test."""
    put_with_csv("trainLabels.csv", "id,label", "train/{}.png", range(1, 41), PETS)
    tests = range(1, 11)
    put_with_csv("sampleSubmission.csv", "id,label", "test/{}.png", tests, ["cat"])


@case(
    30,
    test=10,
    classes=["Acer_Opalus", "Quercus_Rubra"],
    label_names={"images/2.jpg": "Quercus_Rubra", "images/31.jpg": ""},
)
def leaf_classification():
    """Test images beside the others, a column of numbers, probabilities to submit."""
    train = range(1, 31)
    tests = range(31, 41)
    margin = np.arange(40) ** 2 / 4096
    names = ["Acer_Opalus", "Quercus_Rubra"]
    header = "id,species,margin"
    put_with_csv("train.csv", header, "images/{}.jpg", train, names, margin)
    put_with_csv("test.csv", "id,margin", "images/{}.jpg", tests, margin)
    csv("sample_submission.csv", ",".join(["id", *names]), tests, ["0.5"], ["0.5"])


FRUITS = ["Apple Braeburn 1", "Pear 2", "Pear 3"]


@case(
    24,
    test=9,
    rejected=3,
    classes=FRUITS,
    label_names={"Training/Pear 2/r_0_100.jpg": "Pear 2"},
)
def fruits360():
    """Equal names in all folders, classes that end in numbers, a folder of neither."""
    put(each(FRUITS, "Training/{}/r_{}_100.jpg", 8))
    put(each(FRUITS, "Test/{}/r_{}_100.jpg", 3))
    put(many("test-multiple_fruits/{}.jpg", 3))


@case(
    24,
    validation=8,
    test=4,
    kind="multi",
    classes=["bug", "rust"],
    label_names={"train6_jpg.rf.aa6.jpg": "bug|rust"},
)
def roboflow_several_labels():
    for split, count in {"train": 24, "valid": 8, "test": 4}.items():
        put_with_csv(
            f"{split}/_classes.csv",
            "filename, bug, rust",
            f"{split}/{{}}",
            many(f"{split}{{0}}_jpg.rf.aa{{0}}.jpg", count),
            [" 1", " 0"],
            [" 0", " 1", " 1", " 1"],
        )


@case(12, validation=4, classes=[])
def yolo():
    put(many("images/train/{}.jpg", 12))
    put(many("images/val/{}.jpg", 4))
    make("labels/train/0.txt").write_text("0 0.5 0.5 0.2 0.2\n")


SHEET = ["gut", "schlecht"]


def save_as_utf8():
    path = Path("Tabelle1.csv")
    path.write_text(path.read_text(encoding="cp1252"), encoding="utf-8-sig")


@case(
    24,
    classes=SHEET,
    label_names={"Prüfung_1.jpg": "schlecht"},
    asks="UTF-8",
    repair=save_as_utf8,
)
def excel():
    files = each(["Prüfung", "Größe"], "{}_{}.jpg", 12)
    put(many("Bilder/{}", files))
    header = "Datei;Fläche m²;Label"
    csv("Tabelle1.csv", header, files, ["1,5", "3"], SHEET, encoding="cp1252")


ODD = ["#1 & more", "50% {new}", "R&D: 'a'"]


@case(36, classes=ODD, label_names={"50% {new}/b 3.JPG": ODD[1]})
def odd_names():
    """Names that shells and YAML read otherwise, and files of operating systems."""
    put(each(ODD, "My data & more/{}/b {}.JPG", 12))
    for name in (".DS_Store", "Thumbs.db", "#1 & more/._b 1.JPG", "__MACOSX/a/._b.JPG"):
        make(f"My data & more/{name}").write_bytes(b"\0")


def unpack():
    shutil.unpack_archive("train.zip")


@case(24, classes=PETS, asks="unpack.*train.zip", repair=unpack)
def zipped():
    put(each(PETS, "train/{}/{}.jpg", 12))
    shutil.make_archive("train", "zip", ".", "train")
    shutil.rmtree("train")


@case(
    30,
    test=10,
    rejected=10,
    label_names={"a/0003.jpg": "b", "test/0003.jpg": ""},
)
def half_downloaded():
    """A folder is missing whose names another folder has, too."""
    names = many("a/{:04}.jpg", 30)
    put(names + many("test/{:04}.jpg", 10))
    missing = many("b/{:04}.jpg", 10)
    csv("train.csv", "file,label", names + missing, AB)


SYNSETS = ["n01", "n02"]


@case(48, validation=8, test=16, classes=SYNSETS)
def nested_copy():
    """Classes have numbers, like folders of subjects in a class."""
    for split, count in {"train": 12, "val": 2, "test": 4}.items():
        put(each(SYNSETS, f"{split}/{{}}/{{}}.jpeg", count))
        shutil.copytree(split, f"chest_xray/{split}")


def write_csv():
    csv("labels.csv", "image_id,label", many("train/{}.jpg", 24), PETS)


@case(24, classes=PETS, asks="LABELS_CSV", repair=write_csv)
def json_lines():
    put(many("train/{}.jpg", 24))
    lines = many('{{"file_name": "{}.jpg", "label": "cat"}}\n', 24)
    make("train/metadata.jsonl").write_text("".join(lines))


@case(
    20,
    kind="multi",
    classes=["0", "2", "16"],
    label_names={"id03_green.png": "0|16"},
    asks="PATH_TEMPLATE",
    answer="""PATTERN: "*_green.png"
PATH_TEMPLATE: "{Id}_green"
LABEL_COLUMN: Target
LABEL_SEPARATOR: '|'""",
)
def protein_atlas():
    """Four files for each row."""
    ids = many("id{:02}", 20)
    for colour in ("red", "green", "blue", "yellow"):
        put(many(f"train/{{}}_{colour}.png", ids))
    csv("train.csv", "Id,Target", ids, ["16", "0", "2", "16|0"])


VEHICLES = ["bus", "car", "train"]


@case(
    36,
    classes=VEHICLES,
    label_names={"train/3.jpg": "train"},
)
def vehicles():
    """A class that is called like a split."""
    put(each(VEHICLES, "{}/{}.jpg", 12))


def replace_link():
    photos = Path("photos")
    source = photos.resolve()
    photos.unlink()
    shutil.copytree(source, photos)


@case(24, classes=PETS, asks="links lead to, or copy it", repair=replace_link)
def other_disk():
    """The folder of images is a link to another disk."""
    put(each(PETS, "../disk/{}/{}.jpg", 12))
    Path("photos").symlink_to(Path("../disk").resolve())
