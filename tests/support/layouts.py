"""Small copies of the layouts that people have, and the table that each should give.

A layout is built in the current folder; its recipe is beside this folder.
The first cases are public reports and questions; the others are famous data sets.
"""

import re
import shutil
import zlib
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from support.readers import make_example, write_shard

Count = int | Container[int] | None  # any of these numbers, or any number
SIZE = (96, 80)
# Ten runs of a block, down the columns of 80 pixels.
BLOCK = " ".join(f"{80 * column + 11} 40" for column in range(5, 15))
PETS = ["cat", "dog"]
CASES = []
RECIPE = Path("../recipe.yaml")


@dataclass(frozen=True)
class Case:
    """A layout and the table of 01 that its owner wants.

    Numbers are of images without a problem.
    classes: their names, or how many. groups: of GROUP_COLUMN.
    labels: of files by the ends of their paths, several with "|", "" for none.
    recipe: lines that the owner adds to the proposed recipe.
    answer: lines that answer a question, or a function that changes the layout; by
        default the layout must not raise a question. must_ask: it must.
    asks: an expression in the question; default: a parameter in `answer`.
    tells: an expression in what is printed with the right table.
    """

    name: str
    build: Callable[[], None]
    train: Count
    classes: Count | list[str] = 2
    validation: Count = 0
    test: Count = 0
    rejected: Count = 0
    groups: Count = 0
    kind: str = "single"
    labels: dict[str, str] = field(default_factory=dict)
    recipe: str = ""
    answer: str | Callable[[], None] = ""
    must_ask: bool = False
    asks: str = ""
    tells: str = ""


def case(train, name="", **expected):
    """Register a layout that the decorated function builds: fields of a `Case`."""

    def register(build):
        CASES.append(Case(name or build.__name__, build, train, **expected))
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


def edit(lines):
    """Replace parameters of the recipe, as a person would."""
    old = RECIPE.read_text(encoding="utf-8") if RECIPE.exists() else ""
    for key in re.findall(r"(?m)^(\w+):", lines):
        old = re.sub(rf"(?m)^{key}:.*\n(?:[- ].*\n)*", "", old)
    RECIPE.write_text(f"{old}\n{lines}\n", encoding="utf-8")


DX = ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]


@case(
    60,
    classes=DX,
    groups=30,
    labels={"ISIC_0000003.jpg": "bcc"},
    answer="LABEL_COLUMN: dx",
)
def ham10000():
    ids = many("ISIC_{:07}", 60)
    put([f"HAM10000_images_part_{1 + n // 30}/{ids[n]}.jpg" for n in range(60)])
    csv(
        "HAM10000_metadata.csv",
        "lesion_id,image_id,dx,dx_type,age,sex,localization",
        [f"HAM_{n // 2:07}" for n in range(60)],
        ids,
        [DX[n // 2 % 7] for n in range(60)],
        ["histo", "follow_up", "consensus"],
        ["80.0", ""],
        ["male", "female"],
        ["scalp", "ear", "back"],
    )


@case(
    59,
    groups=None,
    rejected=(1, 2),
    labels={"0002/01.png": "b"},
    answer='PATH_TEMPLATE: "images/{patient}/{slice}.png"',
    tells="no value[^.]*slice",
)
def slices():
    """The number of a slice is missing."""
    ids = [f"{p:04}_{s:02}" for p in range(1, 13) for s in range(1, 6)]
    put([f"images/{name.replace('_', '/')}.png" for name in ids])
    patients, numbers = zip(*(name.split("_") for name in ids), strict=True)
    numbers = ["", *numbers[1:]]
    csv("slices.csv", "image_id,patient,slice,label", ids, patients, numbers, "ab")


@case(
    40,
    test=10,
    classes=PETS,
    labels={"dog.7.jpg": "dog"},
)
def dogs_vs_cats():
    put(each(PETS, "train/{}.{}.jpg", 20))
    ids = range(1, 11)
    put_with_csv("sampleSubmission.csv", "id,label", "test1/{}.jpg", ids, [0])


@case(24, test=2, labels={"b/3.jpg": "b"})
def labels_of_a_test_image():
    """Class folders precede a CSV that names few images."""
    put(each("ab", "{}/{}.jpg", 12))
    put_with_csv("notes.csv", "id,label", "test/{}.jpg", [100, 101], "x")


@case(24, kind="multi", classes=list("abcdef"), labels={"train/7.jpg": "b|c"})
def combinations():
    """There are twelve combinations of six words."""
    pairs = "a b,b c,c d,d e,e f,f a"
    cells = [*"abcdef", *pairs.split(",")]
    put_with_csv("train.csv", "image,labels", "train/{}", many("{}.jpg", 24), cells)


@case(
    20,
    test=3,
    kind="masks",
    classes=list("1234"),
    labels={"0001.jpg": "2", "0013.jpg": ""},
    tells="without a (row|mask)|empty mask|no mask",
)
def severstal():
    names = many("{:04x}.jpg", 20)
    put(many("train_images/{}", names))
    put(many("test_images/t{}.jpg", 3))
    header = "ImageId,ClassId,EncodedPixels"
    csv("train.csv", header, names[:11], range(1, 5), [BLOCK])


@case(
    48,
    classes=["benign", "malignant"],
    groups=16,
    labels={"patient09/2.png": "malignant"},
)
def patient_folders():
    put(each(many("benign/patient{:02}", range(1, 9)), "{}/{}.png", 3))
    put(each(many("malignant/patient{:02}", range(9, 17)), "{}/{}.png", 3))


def add_header():
    path = Path("labels.csv")
    path.write_text(f"image,label\n{path.read_text()}")


@case(20, classes=PETS, labels={"img_00.jpg": "dog"}, answer=add_header, asks="header")
def no_header():
    names = many("img_{:02}.jpg", 20)
    put(names)
    csv("labels.csv", "img_00.jpg,dog", names[1:], PETS)


@case(40, groups=None)
def sites():
    names = many("{}.jpg", 40)
    places = ["EU", "US", "APAC", "NA", ""]
    put_with_csv("train.csv", "image,label,site", "train/{}", names, PETS, places)


@case(
    20,
    classes=1,
    kind="masks",
    labels={"train/0.png": "EncodedPixels", "train/3.png": ""},
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
    labels={"train/05.jpg": "cat|dog", "train/50.jpg": "newt"},
    answer="LABEL_KIND: multi",
)
def row_for_each_label():
    names = many("{:02}.jpg", 60)
    put(many("train/{}", names))
    rows = [f"{name},{label}" for name in names[:40] for label in ("cat", "dog")]
    csv("train.csv", "image,label", rows + many("{},newt", names[40:]))


BUSI = ["benign", "malignant", "normal"]


@case(36, classes=BUSI, rejected=None, tells="36.*mask|mask.*36")
def busi():
    for ending in ("", "_mask"):
        put(each(BUSI, f"{{0}}/{{0}} ({{1}}){ending}.png", 12))


@case(
    24,
    validation=6,
    classes=["daisy", "rose"],
    groups=None,
    answer="INPUT_SCHEMA: auto",
)
def tensorflow_shards():
    for shard, numbers in {
        "train-00000-of-00002": range(12),
        "train-00001-of-00002": range(12, 24),
        "validation-00000-of-00001": range(24, 30),
    }.items():
        records = [
            make_example(
                image__encoded=cv2.imencode(".jpg", np.array(draw(n)))[1].tobytes(),
                image__class__label=n % 2 + 1,
                image__class__text=[b"daisy", b"rose"][n % 2],
            )
            for n in numbers
        ]
        write_shard(shard, records)


LAST_NUMBER = {"01191.jpg": "b"}


@case(
    120,
    "numbers_unquoted",
    labels=LAST_NUMBER,
    recipe="PATH_TEMPLATE: {image_id}.jpg",
    answer='PATH_TEMPLATE: "{image_id}.jpg"',
    must_ask=True,
    asks="braces.*in quotes",
)
@case(
    120,
    "numbers_padded",
    labels=LAST_NUMBER,
    recipe='PATH_TEMPLATE: "{image_id:05d}.jpg"',
    answer='PATH_TEMPLATE: "{image_id:0>5}.jpg"',
)
@case(120, labels=LAST_NUMBER)
def numbers():
    ids = range(1, 1201, 10)
    put(many("images/{:05}.jpg", ids))
    csv("labels.csv", "image_id,label", ids, "ab")


@case(
    200,
    rejected=10,
    kind="number",
    classes=None,
    labels={"3.png": "15.0"},
    answer="LABEL_KIND: number\nLABEL_COLUMN: age_months",
)
def months():
    ages = [*range(12, 201), *range(30, 41), *[""] * 10]
    put_with_csv("train.csv", "image_id,age_months", "{}.png", range(210), ages)


@case(
    24,
    validation=6,
    groups=18,
    kind="multi",
    classes=["No Finding", "Cardiomegaly", "Edema"],
    labels={"patient00002/study1/view1_frontal.jpg": "Cardiomegaly|Edema"},
    answer="""LABELS_CSV: [train.csv, valid.csv]
LABEL_COLUMN: [No Finding, Cardiomegaly, Edema]
LABEL_MAP: {"": 0, "-1": 1}""",
)
def chexpert():
    """The archive's folder in all paths, two CSVs, -1 and blanks among 0 and 1."""
    header = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly,Edema"
    facts = [["Male", "Female"], range(50, 77), ["Frontal"], ["AP"]]
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
    classes=["cat", "frog"],
    labels={"train/4.png": "frog", "test/4.png": ""},
)
def cifar10():
    """The same names in train and in test."""
    header = "id,label"
    labels = ["cat", "frog"]
    put_with_csv("trainLabels.csv", header, "train/{}.png", range(1, 41), labels)
    put_with_csv("sampleSubmission.csv", header, "test/{}.png", range(1, 11), ["cat"])


@case(
    30,
    test=10,
    classes=["Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri"],
    labels={"images/2.jpg": "Quercus_Rubra", "images/31.jpg": ""},
)
def leaf_classification():
    """Test images beside the others, columns of numbers, probabilities to submit."""
    train = range(1, 31)
    tests = range(31, 41)
    margins = [np.arange(1, 41) / 1024, np.arange(40) ** 2 / 4096]
    names = ["Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri"]
    header = "id,species,margin1,margin2"
    put_with_csv("train.csv", header, "images/{}.jpg", train, names, *margins)
    put_with_csv("test.csv", "id,margin1,margin2", "images/{}.jpg", tests, *margins)
    csv("sample_submission.csv", ",".join(["id", *names]), tests, *[["0.33"]] * 3)


FRUITS = ["Apple Braeburn 1", "Pear 2", "Pear 3"]


@case(
    24,
    test=9,
    classes=FRUITS,
    rejected=None,
    labels={"Training/Pear 2/r_0_100.jpg": "Pear 2"},
    answer='LABEL_COLUMN: folder\nPATTERN: ["Training/*", "Test/*"]',
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
    classes=["bug", "hole", "rust"],
    labels={"train/5_jpg.rf.aa5.jpg": "hole|rust"},
)
def roboflow_several_labels():
    numbers_of = {"train": range(24), "valid": range(24, 32), "test": range(32, 36)}
    for split, numbers in numbers_of.items():
        put_with_csv(
            f"{split}/_classes.csv",
            "filename, bug, hole, rust",
            f"{split}/{{}}",
            many("{0}_jpg.rf.aa{0}.jpg", numbers),
            [" 1", " 0"],
            [" 0", " 0", " 1"],
            [" 0", " 1", " 1", " 1"],
        )


@case(
    12,
    validation=4,
    kind="single",
    classes=0,
    answer="LABEL_COLUMN: []",
    tells="no labels|without labels",
)
def yolo():
    for split, numbers in ("train", range(12)), ("val", range(12, 16)):
        put(many(f"images/{split}/{{}}.jpg", numbers))
        for path in many(f"labels/{split}/{{}}.txt", numbers):
            make(path).write_text("0 0.5 0.5 0.2 0.2\n")
    lines = "train: images/train\nval: images/val\nnames: [car]\n"
    make("data.yaml").write_text(lines)


SHEET = ["gut", "schlecht"]


def save_as_utf8():
    path = Path("Tabelle1.csv")
    path.write_text(path.read_text(encoding="cp1252"), encoding="utf-8")


@case(
    24,
    classes=SHEET,
    labels={"Prüfung_1.jpg": "schlecht"},
    answer=save_as_utf8,
    asks="UTF-8",
)
def excel():
    files = each(["Prüfung", "Größe"], "{}_{}.jpg", 12)
    put(many("Bilder/{}", files))
    areas = ["1,5", "2,25", "3"]
    header = "Datei;Fläche m²;Label"
    csv("Tabelle1.csv", header, files, areas, SHEET, encoding="cp1252")


ODD = ["#1 & more", "50% {new}", "R&D: 'a'"]


@case(36, classes=ODD, labels={"50% {new}/b 3.JPG": ODD[1]})
def odd_names():
    """Names that shells and YAML read otherwise, and files of operating systems."""
    put(each(ODD, "My data & more/{}/b {}.JPG", 12))
    for name in (".DS_Store", "Thumbs.db", "#1 & more/._b 1.JPG", "__MACOSX/a/._b.JPG"):
        make(f"My data & more/{name}").write_bytes(b"\0")


def unpack():
    shutil.unpack_archive("train.zip")


@case(
    24,
    classes=PETS,
    answer=unpack,
    must_ask=True,
    asks="(?i)(unzip|unpack|extract).*train.zip",
)
def zipped():
    put(each(PETS, "train/{}/{}.jpg", 12))
    shutil.make_archive("train", "zip", ".", "train")
    shutil.rmtree("train")


@case(
    30,
    test=10,
    rejected=10,
    labels={"a/0003.jpg": "y", "test/0003.jpg": ""},
    tells="missing",
)
def half_downloaded():
    """A folder is missing whose names another folder has, too."""
    names = many("a/{:04}.jpg", 30)
    put(names + many("test/{:04}.jpg", 10))
    missing = many("b/{:04}.jpg", 10)
    csv("train.csv", "file,label", names + missing, "xy")


XRAYS = {"train": 12, "val": 2, "test": 4}


@case(
    48,
    validation=8,
    test=16,
    groups=None,
    classes=["NORMAL", "PNEUMONIA"],
    labels={"train/NORMAL/3.jpeg": "NORMAL"},
)
def nested_copy():
    for split, count in XRAYS.items():
        put(each(["NORMAL", "PNEUMONIA"], f"{split}/{{}}/{{}}.jpeg", count))
        shutil.copytree(split, f"chest_xray/{split}")


def write_metadata():
    names = many("train/{}.jpg", 24)
    csv("labels.csv", "image_id,label", names, PETS)
    edit("LABELS_CSV: labels.csv\nLABEL_COLUMN: label")


@case(24, classes=PETS, answer=write_metadata, asks="LABELS_CSV")
def json_lines():
    put(many("train/{}.jpg", 24))
    lines = [
        f'{{"file_name": "{n}.jpg", "label": "{PETS[n % 2]}"}}\n' for n in range(24)
    ]
    make("train/metadata.jsonl").write_text("".join(lines))


@case(
    20,
    kind="multi",
    classes=["0", "2", "16"],
    rejected=None,
    labels={"id03_green.png": "0|16"},
    answer="""PATTERN: "*_green.png"
PATH_TEMPLATE: "{Id}_green"
LABEL_COLUMN: Target
LABEL_SEPARATOR: ' '""",
)
def protein_atlas():
    """Four files for each row."""
    ids = many("id{:02}", 20)
    for colour in ("red", "green", "blue", "yellow"):
        put(many(f"train/{{}}_{colour}.png", ids))
    csv("train.csv", "Id,Target", ids, ["16", "0", "2", "16 0"])


VEHICLES = ["bus", "car", "plane", "train"]


@case(
    48,
    classes=VEHICLES,
    labels={"train/3.jpg": "train"},
    answer="LABEL_COLUMN: 'names: ([^/]+)/'\nSPLIT_COLUMN: none",
)
def vehicles():
    """A class that is called like a split."""
    put(each(VEHICLES, "{}/{}.jpg", 12))


def replace_link():
    photos = Path("photos")
    source = photos.resolve()
    photos.unlink()
    shutil.copytree(source, photos)


@case(24, classes=PETS, answer=replace_link, asks="(?i)link.*(copy|move|INPUT_DIR to)")
def other_disk():
    """The folder of images is a link to another disk."""
    put(each(PETS, "../disk/{}/{}.jpg", 12))
    Path("photos").symlink_to(Path("../disk").resolve())
