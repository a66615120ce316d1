"""Small copies of the layouts that people have, and the table that each should give.

The first cases are public reports and questions; the others are famous data sets.
"""

import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Container, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import cycle
from pathlib import Path
from unicodedata import normalize

import cv2
import numpy as np
import pandas as pd
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from kaggle_tfr import pipeline
from kaggle_tfr.explore import layout
from kaggle_tfr.parameters import DEFAULTS, load_recipe
from kaggle_tfr.storage import parse_json
from support.readers import make_example, write_shard

Count = int | Container[int] | None  # any of these numbers, or any number
SIZE = (96, 80)
# Ten runs of a block, down the columns of 80 pixels.
BLOCK = " ".join(f"{80 * column + 11} 40" for column in range(5, 15))
CASES = []


@dataclass(frozen=True)
class Case:
    """A layout and the table of 01 that its owner wants.

    Numbers are of images without a problem.
    classes: their names, or how many. groups: of GROUP_COLUMN. kept: by 02.
    labels: of files by the ends of their paths, several with "|", "" for none.
    cells: numbers in columns of images.parquet, within 3.
    recipe: lines that the owner adds to the proposed recipe.
    answer: lines that answer a question, or a function of the folder and the recipe; by
        default the layout must not raise a question. must_ask: it must.
    asks: an expression in the question; default: a parameter in `answer`.
    tells: an expression in what is printed with the right table.
    last: the step after which the result is right.
    """

    name: str
    build: Callable[[Path], None]
    train: Count
    classes: Count | list[str] = 2
    validation: Count = 0
    test: Count = 0
    rejected: Count = 0
    groups: Count = 0
    kept: Count = None
    kind: str = "single"
    labels: Mapping[str, str] = field(default_factory=dict)
    cells: Mapping[tuple[str, str], float] = field(default_factory=dict)
    recipe: str = ""
    answer: str | Callable[[Path, Path], None] = ""
    must_ask: bool = False
    asks: str = ""
    tells: str = ""
    last: str = "explore"


def case(name="", **expected):
    """Register a layout that the decorated function builds."""

    def register(build):
        CASES.append(Case(name or build.__name__, build, **expected))
        return build

    return register


def draw(seed, size=SIZE):
    """Return an image that is unlike any other."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize(size, Image.Resampling.BICUBIC)


def make(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def put(folder, names, size=SIZE):
    """Write an image for each path."""
    for name in names:
        draw(zlib.crc32(name.encode()), size).save(make(folder, name))


def csv(folder, name, header, *columns, encoding="utf-8"):
    """Write a row for each cell of the first column; the others are repeated."""
    separator = re.search("[,;\t]", header)[0]
    rows = zip(columns[0], *map(cycle, columns[1:]), strict=False)
    lines = [separator.join(map(str, row)) for row in rows]
    text = "\n".join([header, *lines, ""])
    make(folder, name).write_text(text, encoding=encoding)


def many(template, numbers):
    numbers = range(numbers) if isinstance(numbers, int) else numbers
    return [template.format(number) for number in numbers]


def each(words, template, count):
    """Return paths by a template of a word and a number."""
    return [template.format(word, n) for word in words for n in range(count)]


def edit(recipe, lines):
    """Replace parameters of a recipe, as a person would."""
    old = recipe.read_text(encoding="utf-8") if recipe.exists() else ""
    for key in re.findall(r"(?m)^(\w+):", lines):
        old = re.sub(rf"(?m)^{key}:.*\n(?:[- ].*\n)*", "", old)
    recipe.write_text(f"{old}\n{lines}\n", encoding="utf-8")


def run_steps(case, folder, recipe, work):
    """Run the steps of a folder by its recipe; return what they print.

    Raises: the errors with which they stop.
    """
    output = StringIO()
    with redirect_stdout(output):
        if not recipe.exists():
            layout.write_recipe(str(folder), str(recipe))
            edit(recipe, case.recipe)
        print(recipe.read_text(encoding="utf-8"))
        values = {**DEFAULTS, **load_recipe(str(recipe)), "N_JOBS": 1}
        pipeline.explore_images(values, str(work))
        if case.last != "explore":
            pipeline.deduplicate_images(values, str(work))
        if case.last == "plan":
            pipeline.plan_dataset(values, str(work))
    return output.getvalue()


def find_question_faults(case, question):
    """Return what is wrong with the sentence of a stop, as texts."""
    keys = [] if callable(case.answer) else re.findall(r"(?m)^(\w+):", case.answer)
    expression = case.asks or "|".join(keys)
    if not case.answer:
        return [f"an unexpected question: {question}"]
    if "\n" in question or not re.search(expression, question):
        return [f"not one sentence with the way out: {question}"]
    return []


def find_faults(case, recipe, work, output):
    """Return how the table in WORK_DIR differs from what is expected, as texts."""
    images = pd.read_parquet(work / "images.parquet")
    labels = parse_json((work / "labels.json").read_bytes(), "labels.json", "")
    group_column = load_recipe(str(recipe)).get("GROUP_COLUMN")
    good = images[images["problem"] == ""]
    found = count(good, labels, group_column)
    found["rejected"] = len(images) - len(good)
    if case.kept is not None:
        dropped = ~pd.read_parquet(work / "duplicates.parquet")["keep"]
        found["kept"] = len(good) - dropped.sum()
    if not isinstance(case.classes, list):
        found["classes"] = len(found["classes"])

    faults = []
    for name, value in found.items():
        expected = getattr(case, name)
        choices = expected if isinstance(expected, tuple | range) else (expected,)
        if expected is not None and value not in choices:
            faults.append(f"{name}: {value}, not {expected}")
    texts = " ".join([output, *images["problem"].unique()])
    if not re.search(f"(?i){case.tells}", texts):
        faults.append(f"nothing told of '{case.tells}'")
    return faults + compare_files(case, images, labels)


def compare_files(case, images, labels):
    """Return how the rows of named files differ from what is expected, as texts."""
    faults = []
    for name, expected in case.labels.items():
        value = read_label(find_row(images, name), labels)
        if value != expected:
            faults.append(f"{name} is '{value}', not '{expected}'")
    for (name, column), expected in case.cells.items():
        row = find_row(images, name)
        if not row["problem"] and abs(row[column] - expected) > 3:
            faults.append(f"{column} of {name}: {row[column]}, not {expected}")
    return faults


def count(good, labels, group_column):
    """Return the numbers of good images and groups, and what the labels are."""
    split = good["split"].str[:3]
    train = good[split == "tra"]
    classes = [str(name) for name in labels["classes"]]
    if labels["kind"] != "single":
        classes = sorted(classes)
    elif classes:
        train = train[train["label"] >= 0]
    groups = good.get(group_column, pd.Series(dtype=str)).replace("", None)
    return {
        "kind": labels["kind"],
        "classes": classes,
        "train": len(train),
        "validation": (split == "val").sum(),
        "test": (split == "tes").sum(),
        "groups": groups.nunique(),
    }


def find_row(images, name):
    """Return the row of a file, an empty one if there is none."""
    paths = images["path"].map(partial(normalize, "NFC"))
    rows = images[paths.str.endswith(f"/{name}")]
    return rows.iloc[0] if len(rows) else pd.Series(dtype=object)


def read_label(row, labels):
    """Return the names of the labels of a row."""
    if row.empty or row["problem"]:
        return None
    if labels["kind"] == "number":
        return str(row[labels["label_columns"][0]])
    if labels["label_columns"]:
        names = [name for name in labels["label_columns"] if row[name]]
        return "|".join(sorted(names))
    return str(labels["classes"][row["label"]]) if row["label"] >= 0 else ""


DX = ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]


@case(
    train=60,
    classes=DX,
    groups=30,
    labels={"ISIC_0000003.jpg": "bcc"},
    answer="LABEL_COLUMN: dx",
)
def ham10000(folder):
    ids = many("ISIC_{:07}", 60)
    put(folder, [f"HAM10000_images_part_{1 + n // 30}/{ids[n]}.jpg" for n in range(60)])
    header = "lesion_id,image_id,dx,dx_type,age,sex,localization"
    lesions = [f"HAM_{n // 2:07}" for n in range(60)]
    names = [DX[n // 2 % 7] for n in range(60)]
    types = ["histo", "follow_up", "consensus"]
    csv(
        folder,
        "HAM10000_metadata.csv",
        header,
        lesions,
        ids,
        names,
        types,
        ["80.0", ""],
        ["male", "female"],
        ["scalp", "ear", "back"],
    )


def slices(folder, first="01"):
    pairs = [(f"{p:04}", f"{s:02}") for p in range(1, 13) for s in range(1, 6)]
    put(folder, ["images/{}/{}.png".format(*pair) for pair in pairs])
    patients, numbers = map(list, zip(*pairs, strict=True))
    numbers[0] = first
    csv(
        folder,
        "slices.csv",
        "image_id,patient,slice,label",
        map("_".join, pairs),
        patients,
        numbers,
        ["a", "b"],
    )


SLICES = 'PATH_TEMPLATE: "images/{patient}/{slice}.png"'
case(train=60, groups=None, labels={"0002/01.png": "b"}, answer=SLICES)(slices)
case(
    "slices_empty_cell",
    train=59,
    groups=None,
    rejected=(1, 2),
    answer=SLICES,
    tells="no value[^.]*slice",
)(partial(slices, first=""))


@case(
    train=40,
    test=10,
    classes=["cat", "dog"],
    labels={"dog.7.jpg": "dog"},
    answer=r"LABEL_COLUMN: 'names: ([a-z]+)\.\d+$'",
)
def dogs_vs_cats(folder):
    put(folder, each(["cat", "dog"], "train/{}.{}.jpg", 20))
    put(folder, many("test1/{}.jpg", range(1, 11)))
    csv(folder, "sampleSubmission.csv", "id,label", range(1, 11), [0])


@case(train=15, cells={("exif.png", "height"): 80, ("exif.webp", "width"): 96})
def broken_exif(folder):
    put(folder, each("ab", "{}/{}.png", 6))
    junk = b"Exif\0\0junkjunk"
    draw(1).save(folder / "a" / "exif.png", exif=junk)
    draw(2).save(folder / "b" / "exif.webp", exif=junk)
    text = PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n 8\nnot hexadecimal\n")
    draw(3).save(folder / "b" / "text.png", pnginfo=text)


def separators(folder, separator):
    put(folder, many("train/{}.jpg", 30))
    cells = [
        separator.join(names)
        for names in (["Class A", "Class B"], ["Class C"], ["Class B", "Class C"])
    ]
    csv(folder, "train.csv", "image,labels", many("{}.jpg", 30), cells)


for separator in (" | ", "||"):
    case(
        f"separator {separator}",
        train=30,
        kind="multi",
        classes=["Class A", "Class B", "Class C"],
        labels={"train/3.jpg": "Class A|Class B"},
        answer=f'LABEL_SEPARATOR: "{separator}"',
    )(partial(separators, separator=separator))


@case(
    train=20,
    kind="masks",
    classes=list("1234"),
    labels={"0001.jpg": "2", "0013.jpg": ""},
    tells="without a (row|mask)|empty mask|no mask",
)
def severstal(folder):
    names = many("{:04x}.jpg", 20)
    put(folder, [f"train_images/{name}" for name in names])
    csv(
        folder,
        "train.csv",
        "ImageId,ClassId,EncodedPixels",
        names[:11],
        range(1, 5),
        [BLOCK],
    )


@case(
    train=48,
    classes=["benign", "malignant"],
    groups=16,
    labels={"patient09/2.png": "malignant"},
)
def patient_folders(folder):
    put(folder, each(many("benign/patient{:02}", range(1, 9)), "{}/{}.png", 3))
    put(folder, each(many("malignant/patient{:02}", range(9, 17)), "{}/{}.png", 3))


def add_header(folder, recipe):
    path = folder / "labels.csv"
    path.write_text(f"image,label\n{path.read_text()}")


@case(
    train=20,
    classes=["cat", "dog"],
    labels={"img_00.jpg": "dog"},
    answer=add_header,
    asks="header",
)
def no_header(folder):
    names = many("img_{:02}.jpg", 20)
    put(folder, names)
    csv(folder, "labels.csv", "img_00.jpg,dog", names[1:], ["cat", "dog"])


@case(
    "sites_as_groups",
    train=40,
    groups=4,
    recipe="GROUP_COLUMN: site",
)
@case(train=40, groups=None)
def sites(folder):
    names = many("{}.jpg", 40)
    put(folder, [f"train/{name}" for name in names])
    csv(
        folder,
        "train.csv",
        "image,label,site",
        names,
        ["cat", "dog"],
        ["EU", "US", "APAC", "NA", ""],
    )


@case(train=(12, 13), rejected=(0, 1), cells={("b/nir.tif", "brightness"): 184})
def four_bands(folder):
    put(folder, each("ab", "{}/{}.png", 6))
    bands = np.zeros((80, 96, 4), np.uint16)
    bands[..., :3] = np.arange(96)[:, None] * 100 + 42_500
    path = folder / "b" / "nir.tif"
    cv2.imwrite(str(path), bands)
    # OpenCV writes no ExtraSamples: its last tag becomes one, "unspecified".
    last = struct.pack("<HHI", 339, 3, 4)
    extra = struct.pack("<HHII", 338, 3, 1, 0)
    path.write_bytes(
        re.sub(re.escape(last) + b".{4}", extra, path.read_bytes(), flags=re.DOTALL)
    )


@case(train=14)
def large_profile(folder):
    put(folder, each("ab", "{}/{}.png", 6))
    draw(1).save(folder / "a" / "profile.png", icc_profile=bytes(2 << 20))
    text = PngInfo()
    text.add_text("comment", "x" * (2 << 20), zip=True)
    draw(2).save(folder / "b" / "text.png", pnginfo=text)


def run_lengths(folder, size, codes):
    put(folder, many("train/{}.png", 20), size)
    csv(folder, "train.csv", "ImageId, EncodedPixels", many("{}.png", 20), codes)


@case(train=20, classes=1, kind="masks", tells="RLE_ORDER: rows")
def masks_by_rows(folder):
    run_lengths(folder, (64, 40), [" ".join(many("{} 40", range(331, 971, 64)))])


@case(
    train=20,
    classes=1,
    kind="masks",
    labels={"train/0.png": "EncodedPixels", "train/3.png": ""},
)
def blank_masks(folder):
    run_lengths(folder, SIZE, [BLOCK, "", "-1", " -1"])


@case(train=range(12, 15), rejected=range(3), tells="transparent")
def see_through(folder):
    put(folder, each("ab", "{}/{}.png", 6))
    Image.new("RGBA", SIZE, "#aabbcc00").save(folder / "a" / "clear.png")
    white = Image.new("RGBA", SIZE, "#ffffff00")
    white.paste("white", (20, 20, 60, 50))
    white.save(folder / "b" / "white.png")


@case(
    train=72,
    kept=range(13, 73),
    last="deduplicate",
)
def sixty_frames(folder):
    put(folder, many("other/{}.png", 12))
    first, last = draw(1), draw(2)
    for n in range(60):
        Image.blend(first, last, n / 59).save(make(folder, f"fade/{n:02}.png"))


@case(train=40, classes=["0", "1", "2", "10"], labels={"train/7.jpg": "10"})
def float_labels(folder):
    put(folder, many("train/{}.jpg", 40))
    csv(
        folder,
        "train.csv",
        "image,label",
        many("{}.jpg", 40),
        ["0.0", "1.0", "2.0", "10.0"],
    )


@case(train=72, groups=24)
def roboflow_versions(folder):
    for n in range(24):
        digests = [f"{zlib.crc32(bytes([n, version])):032x}" for version in range(3)]
        put(folder, many(f"{'ab'[n % 2]}/leaf_{n:03}_jpg.rf.{{}}.jpg", digests))


@case(
    train=60,
    kind="multi",
    classes=["cat", "dog", "newt"],
    labels={"train/05.jpg": "cat|dog", "train/50.jpg": "newt"},
    answer="LABEL_KIND: multi",
)
def row_for_each_label(folder):
    names = many("{:02}.jpg", 60)
    put(folder, [f"train/{name}" for name in names])
    rows = [f"{name},{label}" for name in names[:40] for label in ("cat", "dog")]
    csv(
        folder,
        "train.csv",
        "image,label",
        [*rows, *(f"{name},newt" for name in names[40:])],
    )


@case(train=45, labels={"32_g.JPG": "b", "45_g.png": "a"})
def endings(folder):
    ids = many("{:02}_g", range(1, 46))
    put(
        folder,
        [
            f"images/{name}.{'jpg' if n < 30 else 'JPG' if n < 40 else 'png'}"
            for n, name in enumerate(ids)
        ],
    )
    csv(folder, "labels.csv", "id,label", ids, ["a", "b"])


BUSI = ["benign", "malignant", "normal"]


@case(train=36, classes=BUSI, rejected=None, tells="36.*mask|mask.*36")
def busi(folder):
    for ending in ("", "_mask"):
        put(folder, each(BUSI, f"{{0}}/{{0}} ({{1}}){ending}.png", 12))


def spellings(folder, spell_file, spell_id):
    names = each(["Büro", "b"], "{}/Löwe {}.jpg", 12)
    put(folder, map(spell_file, names))
    csv(
        folder,
        "labels.csv",
        "image,label",
        map(spell_id, names),
        ["cat", "dog", "newt"],
    )


SPELLED = {"train": 24, "classes": 3, "labels": {"b/Löwe 3.jpg": "cat"}}
case("decomposed_letters", **SPELLED)(
    partial(
        spellings,
        spell_file=partial(normalize, "NFD"),
        spell_id=partial(normalize, "NFC"),
    )
)
case("backslashes", **SPELLED)(
    partial(spellings, spell_file=str, spell_id=lambda name: name.replace("/", "\\"))
)


@case(
    train=24,
    validation=6,
    classes=["daisy", "rose"],
    groups=None,
    answer="INPUT_SCHEMA: auto",
)
def tensorflow_shards(folder):
    for shard, numbers in {
        "train-00000-of-00002": range(12),
        "train-00001-of-00002": range(12, 24),
        "validation-00000-of-00001": range(24, 30),
    }.items():
        records = []
        for n in numbers:
            image = cv2.imencode(".jpg", np.array(draw(n)))[1].tobytes()
            label = n % 2
            records.append(
                make_example(
                    **{
                        "image/encoded": [image],
                        "image/class/label": [label + 1],
                        "image/class/text": [[b"daisy", b"rose"][label]],
                    }
                )
            )
        write_shard(make(folder, shard), records)


@case(
    train=24,
    recipe='NAME: "leaf@384"',
    answer="NAME: leaf-384",
    must_ask=True,
    asks="NAME.*@|@.*NAME",
    last="plan",
)
def refused_name(folder):
    put(folder, each("ab", "{}/{}.jpg", 12))


NUMBERS = {"train": 120, "labels": {"01191.jpg": "b"}}


@case(
    "numbers_unquoted",
    **NUMBERS,
    recipe="PATH_TEMPLATE: {image_id}.jpg",
    answer='PATH_TEMPLATE: "{image_id}.jpg"',
    must_ask=True,
    asks="PATH_TEMPLATE.*quot",
)
@case(
    "numbers_padded",
    **NUMBERS,
    recipe='PATH_TEMPLATE: "{image_id:05d}.jpg"',
    answer='PATH_TEMPLATE: "{image_id:0>5}.jpg"',
)
@case(**NUMBERS)
def numbers(folder):
    ids = range(1, 1201, 10)
    put(folder, many("images/{:05}.jpg", ids))
    csv(folder, "labels.csv", "image_id,label", ids, ["a", "b"])


@case(
    train=200,
    rejected=10,
    kind="number",
    classes=None,
    labels={"3.png": "15.0"},
    answer="LABEL_KIND: number\nLABEL_COLUMN: age_months",
)
def months(folder):
    put(folder, many("{}.png", 210))
    csv(
        folder,
        "train.csv",
        "image_id,age_months",
        range(210),
        [*range(12, 201), *range(30, 41), *[""] * 10],
    )


@case(train=36, groups=12)
def long_ids(folder):
    put(folder, many("{}.png", 36))
    patients = [100_000_000_000_000_000 + n // 3 for n in range(36)]
    csv(
        folder,
        "train.csv",
        "image,label,patient_id",
        range(36),
        ["a", "b"],
        [*patients[:35], ""],
    )


@case(
    train=40,
    classes=(8, 9),
    labels={"ISIC_0000003.jpg": "AK"},
    answer="""LABELS_CSV: ISIC_2019_Training_GroundTruth.csv
LABEL_COLUMN: [MEL, NV, BCC, AK, BKL, DF, VASC, SCC]""",
)
def isic2019(folder):
    """One 1.0 a row, a column of zeros, and a second CSV of the same images."""
    ids = many("ISIC_{:07}", 40)
    put(folder, [f"ISIC_2019_Training_Input/{name}.jpg" for name in ids])
    header = "image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK"
    columns = [[float(n == column) for n in range(8)] for column in range(9)]
    csv(folder, "ISIC_2019_Training_GroundTruth.csv", header, ids, *columns)
    header = "image,age_approx,anatom_site_general,sex"
    csv(
        folder,
        "ISIC_2019_Training_Metadata.csv",
        header,
        ids,
        [55.0, ""],
        ["anterior torso", "head/neck"],
        ["male", "female"],
    )


@case(
    train=24,
    validation=6,
    groups=18,
    kind="multi",
    classes=["Cardiomegaly", "Edema", "No Finding"],
    labels={"patient00002/study1/view1_frontal.jpg": "Cardiomegaly|Edema"},
    answer="""LABELS_CSV: [train.csv, valid.csv]
LABEL_COLUMN: [No Finding, Cardiomegaly, Edema]
LABEL_MAP: {"": 0, "-1": 1}""",
)
def chexpert(folder):
    """The archive's folder in all paths, two CSVs, -1 and blanks among 0 and 1."""
    header = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly,Edema"
    facts = [["Male", "Female"], range(50, 77), ["Frontal"], ["AP"]]
    train = [
        f"train/patient{1 + n // 2:05}/study{1 + n % 2}/view1_frontal.jpg"
        for n in range(24)
    ]
    valid = many("valid/patient{}/study1/view1_frontal.jpg", range(64541, 64547))
    put(folder, train + valid)
    csv(
        folder,
        "train.csv",
        header,
        many("CheXpert-v1.0-small/{}", train),
        *facts,
        ["1.0", "", ""],
        ["", "", "-1.0"],
        ["", "0.0", "1.0"],
    )
    csv(
        folder,
        "valid.csv",
        header,
        many("CheXpert-v1.0-small/{}", valid),
        *facts,
        ["1.0", "0.0"],
        ["0.0", "1.0"],
        ["0.0"],
    )


@case(
    train=60,
    groups=20,
    kind="multi",
    classes=["Cardiomegaly", "Effusion", "Mass", "No Finding"],
    labels={"00000002_001.png": "Cardiomegaly|Effusion"},
    answer="""LABELS_CSV: Data_Entry_2017.csv
LABEL_COLUMN: Finding Labels
LABEL_SEPARATOR: '|'""",
)
def chest_xray14(folder):
    """Images in numbered folders, lists in cells, another CSV that is first by name."""
    names = [f"{1 + n // 3:08}_{n % 3:03}.png" for n in range(60)]
    put(
        folder,
        [f"images_{1 + n // 30:03}/images/{name}" for n, name in enumerate(names)],
    )
    findings = [
        "No Finding",
        "Mass",
        "Effusion",
        "Mass|Effusion",
        "Cardiomegaly|Effusion",
    ]
    header = (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender"
    )
    csv(
        folder,
        "Data_Entry_2017.csv",
        header,
        names,
        findings,
        range(3),
        [1 + n // 3 for n in range(60)],
        range(40, 70),
        "MF",
    )
    csv(
        folder,
        "BBox_List_2017.csv",
        "Image Index,Finding Label,Bbox [x,y,w,h],,,",
        names[:8],
        ["Mass", "Effusion"],
        ["224.1,315.2,10,12"],
    )
    (folder / "train_val_list.txt").write_text("\n".join(names[:50]))


@case(
    train=40,
    test=5,
    kind="multi",
    classes=["complex", "frog_eye_leaf_spot", "healthy", "scab"],
    labels={"3.jpg": "complex|frog_eye_leaf_spot|scab"},
    answer="LABEL_SEPARATOR: ' '",
)
def plant_pathology(folder):
    put(folder, many("train_images/{}.jpg", 40))
    put(folder, many("test_images/t{}.jpg", 5))
    cells = ["healthy", "scab", "frog_eye_leaf_spot", "scab frog_eye_leaf_spot complex"]
    csv(folder, "train.csv", "image,labels", many("{}.jpg", 40), cells)
    csv(
        folder, "sample_submission.csv", "image,labels", many("t{}.jpg", 5), ["healthy"]
    )


@case(
    train=40,
    test=10,
    classes=["cat", "frog"],
    labels={"train/4.png": "frog", "test/4.png": ""},
)
def cifar10(folder):
    """The same names in train and in test."""
    put(folder, many("train/{}.png", range(1, 41)))
    put(folder, many("test/{}.png", range(1, 11)))
    csv(folder, "trainLabels.csv", "id,label", range(1, 41), ["cat", "frog"])
    csv(folder, "sampleSubmission.csv", "id,label", range(1, 11), ["cat"])


@case(
    train=30,
    test=10,
    classes=["Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri"],
    labels={"images/2.jpg": "Quercus_Rubra", "images/31.jpg": ""},
)
def leaf_classification(folder):
    """Test images beside the others, columns of numbers, probabilities to submit."""
    put(folder, many("images/{}.jpg", range(1, 41)))
    margins = [np.arange(1, 41) / 1024, np.arange(40) ** 2 / 4096]
    names = ["Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri"]
    csv(
        folder, "train.csv", "id,species,margin1,margin2", range(1, 31), names, *margins
    )
    csv(folder, "test.csv", "id,margin1,margin2", range(31, 41), *margins)
    csv(
        folder,
        "sample_submission.csv",
        f"id,{','.join(names)}",
        range(31, 41),
        ["0.33"],
        ["0.33"],
        ["0.33"],
    )


BIRDS = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]


@case(
    train=24,
    classes=BIRDS,
    rejected=(0, 24),
    labels={"Bird_2_796111.jpg": BIRDS[0]},
    answer='PATTERN: "images/*"\nLABEL_COLUMN: folder',
)
def cub200(folder):
    """Segmentations in class folders of their own, lists without an ending of CSVs."""
    names = [
        f"{name}/Bird_{n}_79611{k}" for k, name in enumerate(BIRDS, 1) for n in range(8)
    ]
    put(folder, many("images/{}.jpg", names))
    put(folder, many("segmentations/{}.png", names))
    (folder / "train_test_split.txt").write_text(
        "".join(f"{n} {n % 2}\n" for n in range(24))
    )


PETS = ["Abyssinian", "american_bulldog", "Bombay"]


@case(
    train=36,
    classes=sorted(PETS),
    rejected=(0, 36),
    labels={"american_bulldog_7.jpg": "american_bulldog"},
    answer=r"""PATTERN: "images/*"
LABEL_COLUMN: 'names: ([^/]+)_\d+$'""",
)
def oxford_pets(folder):
    put(folder, each(PETS, "images/{}_{}.jpg", 12))
    put(folder, each(PETS, "annotations/trimaps/{}_{}.png", 12))
    (folder / "annotations" / "list.txt").write_text(
        "#Image CLASS-ID\nAbyssinian_1 1\n"
    )


@case(
    train=18,
    validation=9,
    test=9,
    classes=3,
    answer="LABELS_CSV: [train.csv, validation.csv, test.csv]\nLABEL_COLUMN: ClassName",
)
def eurosat(folder):
    """A CSV for each split of the same folders, whose first column has no name."""
    names = each(["AnnualCrop", "Forest", "River"], "{0}/{0}_{1}.jpg", 12)
    put(folder, names)
    for split, start, step in ("train", 0, 2), ("validation", 1, 4), ("test", 3, 4):
        chosen = names[start::step]
        labels = [name.split("/")[0] for name in chosen]
        csv(
            folder,
            f"{split}.csv",
            ",Filename,Label,ClassName",
            range(len(chosen)),
            chosen,
            map(sorted({*labels}).index, labels),
            labels,
        )


@case(
    train=30,
    classes=["0", "1"],
    labels={"25_1_2_7.jpg.chip.jpg": "1"},
    recipe=r"LABEL_COLUMN: 'names: (?:^|/)\d+_(\d)_'",
)
def utkface(folder):
    """Age, gender, race and date in the name."""
    put(
        folder,
        [f"{18 + n}_{n % 2}_{n % 3 + n % 2}_{n}.jpg.chip.jpg" for n in range(30)],
    )


FRUITS = ["Apple Braeburn 1", "Pear 2", "Pear 3"]


@case(
    train=24,
    test=9,
    classes=FRUITS,
    rejected=None,
    labels={"Training/Pear 2/r_0_100.jpg": "Pear 2"},
    answer='LABEL_COLUMN: folder\nPATTERN: ["Training/*", "Test/*"]',
)
def fruits360(folder):
    """Equal names in all folders, classes that end in numbers, a folder of neither."""
    put(folder, each(FRUITS, "Training/{}/r_{}_100.jpg", 8))
    put(folder, each(FRUITS, "Test/{}/r_{}_100.jpg", 3))
    put(folder, many("test-multiple_fruits/{}.jpg", 3))


@case(
    train=20,
    test=(0, 8, 12),
    classes=["forest", "sea"],
    rejected=None,
    answer='PATTERN: "seg_train/*"',
)
def intel_scenes(folder):
    put(folder, each(["forest", "sea"], "seg_train/seg_train/{}/{}.jpg", 10))
    put(folder, each(["forest", "sea"], "seg_test/seg_test/{}/2{}.jpg", 4))
    put(folder, many("seg_pred/seg_pred/{}.jpg", 4))


@case(
    train=30,
    test=4,
    classes=["0", "1"],
    rejected=None,
    labels={"p02.png": "0", "p03.png": "1"},
    answer="LABELS_CSV: stage_2_train_labels.csv\nLABEL_COLUMN: Target",
)
def rsna_pneumonia(folder):
    """A row for each box, so some images have two."""
    rows = [
        f"p{n:02},1.5,{9 + box}.0,30.0,40.0,1" if n % 2 else f"p{n:02},,,,,0"
        for n in range(30)
        for box in range(1 + n % 2)
    ]
    csv(folder, "stage_2_train_labels.csv", "patientId,x,y,width,height,Target", rows)
    ids = many("p{:02}", 30)
    csv(
        folder,
        "stage_2_detailed_class_info.csv",
        "patientId,class",
        ids,
        ["Normal", "Lung Opacity"],
    )
    csv(
        folder,
        "stage_2_sample_submission.csv",
        "patientId,PredictionString",
        many("q{}", 4),
        ["0.5 0 0 9 9"],
    )
    put(folder, many("stage_2_train_images/{}.png", ids))
    put(folder, many("stage_2_test_images/q{}.png", 4))


@case(
    train=20,
    test=4,
    kind="masks",
    classes=1,
    rejected=(0, 20),
    groups=None,
    tells="RLE_ORDER: rows",
)
def carvana(folder):
    """Masks as files and, by rows, as codes; facts on cars in a second CSV."""
    names = [f"{n // 4:04x}_{1 + n % 4:02}" for n in range(20)]
    tests = many("{}_01.jpg", range(7000, 7004))
    put(folder, many("train/{}.jpg", names), (96, 64))
    put(folder, many("test/{}", tests), (96, 64))
    for name in names:
        mask = make(folder, f"train_masks/{name}_mask.gif")
        Image.new("L", (96, 64)).save(mask)
    code = " ".join(many("{} 40", range(491, 1451, 96)))
    csv(folder, "train_masks.csv", "img,rle_mask", many("{}.jpg", names), [code])
    csv(folder, "metadata.csv", "id,make", many("{:04x}", 5), ["Acura", "BMW"])
    csv(folder, "sample_submission.csv", "img,rle_mask", tests, ["1 1"])


@case(
    train=24,
    validation=8,
    test=4,
    kind="multi",
    classes=["bug", "hole", "rust"],
    labels={"train/5_jpg.rf.aa5.jpg": "hole|rust"},
)
def roboflow_several_labels(folder):
    for split, numbers in (
        ("train", range(24)),
        ("valid", range(24, 32)),
        ("test", range(32, 36)),
    ):
        names = many("{0}_jpg.rf.aa{0}.jpg", numbers)
        put(folder, many(f"{split}/{{}}", names))
        csv(
            folder,
            f"{split}/_classes.csv",
            "filename, bug, hole, rust",
            names,
            [" 1", " 0"],
            [" 0", " 0", " 1"],
            [" 0", " 1", " 1", " 1"],
        )


@case(
    train=12,
    validation=4,
    kind="single",
    classes=0,
    answer="LABEL_COLUMN: []",
    tells="no labels|without labels",
)
def yolo(folder):
    for split, numbers in ("train", range(12)), ("val", range(12, 16)):
        put(folder, many(f"images/{split}/{{}}.jpg", numbers))
        for n in numbers:
            make(folder, f"labels/{split}/{n}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (folder / "data.yaml").write_text(
        "train: images/train\nval: images/val\nnames: [car]\n"
    )


def excel(folder, encoding="utf-8", separator=";", names=("Prüfung", "Größe")):
    files = each(names, "{}_{}.jpg", 12)
    put(folder, many("Bilder/{}", files))
    header = separator.join(["Datei", "Fläche m²", "Label"])
    csv(
        folder,
        "Tabelle1.csv",
        header,
        files,
        ["1,5", "2,25", "3"],
        ["gut", "schlecht"],
        encoding=encoding,
    )


def save_as_utf8(folder, recipe, encoding):
    path = folder / "Tabelle1.csv"
    path.write_text(path.read_text(encoding=encoding), encoding="utf-8")


SHEET = {"train": 24, "classes": ["gut", "schlecht"]}
SCRIPTS = ["사진", "画像", "صورة"]
case(
    "excel_cp1252",
    **SHEET,
    labels={"Prüfung_1.jpg": "schlecht"},
    answer=partial(save_as_utf8, encoding="cp1252"),
    asks="UTF-8",
)(partial(excel, encoding="cp1252"))
case(
    "excel_utf16",
    **SHEET | {"train": 36},
    labels={"画像_1.jpg": "schlecht"},
    answer=partial(save_as_utf8, encoding="utf-16"),
    asks="UTF-8",
)(partial(excel, encoding="utf-16", separator="\t", names=SCRIPTS))


ODD = ["#1 & more", "50% {new}", "R&D: 'a'"]


@case(train=36, classes=ODD, labels={"50% {new}/b 3.JPG": ODD[1]})
def odd_names(folder):
    """Names that shells and YAML read otherwise, and files of operating systems."""
    put(folder, each(ODD, "My data & more/{}/b {}.JPG", 12))
    for name in (".DS_Store", "Thumbs.db", "#1 & more/._b 1.JPG", "__MACOSX/a/._b.JPG"):
        make(folder, f"My data & more/{name}").write_bytes(b"\0")


def unpack(folder, recipe):
    with zipfile.ZipFile(folder / "train.zip") as archive:
        archive.extractall(folder)


@case(
    train=24,
    classes=["cat", "dog"],
    answer=unpack,
    must_ask=True,
    asks="(?i)(unzip|unpack|extract).*train.zip",
)
def zipped(folder):
    put(folder, each(["cat", "dog"], "train/{}/{}.jpg", 12))
    shutil.make_archive(str(folder / "train"), "zip", folder, "train")
    shutil.rmtree(folder / "train")


@case(
    train=30,
    test=10,
    rejected=10,
    labels={"a/0003.jpg": "y", "test/0003.jpg": ""},
    tells="missing",
)
def half_downloaded(folder):
    """A folder is missing whose names another folder has, too."""
    put(folder, [*many("a/{:04}.jpg", 30), *many("test/{:04}.jpg", 10)])
    names = [*many("a/{:04}.jpg", 30), *many("b/{:04}.jpg", 10)]
    csv(folder, "train.csv", "file,label", names, ["x", "y"])


def other_machine(folder, form):
    names = each(["site1", "site2"], "{}/{}.jpg", 12)
    put(folder, names)
    csv(folder, "annotations.csv", "path,label", map(form, names), ["x", "y", "z"])


PATHS = {"train": 24, "classes": ["x", "y", "z"], "labels": {"site2/2.jpg": "z"}}
for style, form in {
    "linux": "/home/bob/data/{}",
    "windows": "C:\\data\\{}",
    "relative": "../images/{}",
}.items():
    case(f"paths_{style}", **PATHS)(
        partial(
            other_machine,
            form=lambda name, form=form: form.format(
                name.replace("/", "\\" if ":" in form else "/")
            ),
        )
    )


@case(
    train=24,
    classes=["cat", "dog"],
    labels={"dog/3.jpg": "dog"},
    answer='PATH_TEMPLATE: "{label}/{file}"',
)
def folder_in_column(folder):
    """The same names in two folders, which another column tells apart."""
    names = each(["cat", "dog"], "{}/{}.jpg", 12)
    put(folder, names)
    csv(
        folder,
        "labels.csv",
        "file,label",
        [name[4:] for name in names],
        ["cat"] * 12 + ["dog"] * 12,
    )


XRAYS = {"train": 12, "val": 2, "test": 4}


@case(
    train=(24, 48),
    validation=(4, 8),
    test=(8, 16),
    groups=None,
    classes=["NORMAL", "PNEUMONIA"],
    rejected=None,
    kept=(36, 44),  # 02 drops no test image
    last="deduplicate",
    labels={"train/NORMAL/3.jpeg": "NORMAL"},
)
def nested_copy(folder):
    for split, count in XRAYS.items():
        put(folder, each(["NORMAL", "PNEUMONIA"], f"{split}/{{}}/{{}}.jpeg", count))
    for split in XRAYS:
        shutil.copytree(folder / split, folder / "chest_xray" / split)


@case(
    train=24,
    validation=6,
    test=6,
    classes=["ABBOTTS BABBLER", "WREN"],
    labels={"train/WREN/003.jpg": "WREN"},
    answer="LABEL_COLUMN: labels",
)
def birds525(folder):
    """Folders of splits and classes, and all of it again in columns."""
    names = [
        name
        for split, count in (("train", 12), ("valid", 3), ("test", 3))
        for name in each(
            ["ABBOTTS BABBLER", "WREN"], f"{split}/{{}}/{{:03}}.jpg", count
        )
    ]
    put(folder, names)
    splits, labels, _ = zip(*(name.split("/") for name in names), strict=True)
    numbers = [float(label == "WREN") for label in labels]
    csv(
        folder,
        "birds.csv",
        "class id,filepaths,labels,data set,scientific name",
        numbers,
        names,
        labels,
        splits,
        map(str.title, labels),
    )


def write_metadata(folder, recipe):
    names = many("train/{}.jpg", 24)
    csv(folder, "labels.csv", "image_id,label", names, ["cat", "dog"])
    edit(recipe, "LABELS_CSV: labels.csv\nLABEL_COLUMN: label")


@case(train=24, classes=["cat", "dog"], answer=write_metadata, asks="LABELS_CSV")
def json_lines(folder):
    put(folder, many("train/{}.jpg", 24))
    lines = [
        f'{{"file_name": "{n}.jpg", "label": "{["cat", "dog"][n % 2]}"}}\n'
        for n in range(24)
    ]
    (folder / "train" / "metadata.jsonl").write_text("".join(lines))


@case(
    train=40,
    test=6,
    classes=20,
    labels={"train/0003.jpg": "new_whale", "train/0006.jpg": "w_6"},
    answer="LABEL_COLUMN: Id",
)
def humpback_whale(folder):
    """The label is called Id; most classes have one image."""
    names = many("{:04x}.jpg", 40)
    put(folder, many("train/{}", names))
    put(folder, many("test/f{}.jpg", 6))
    labels = ["new_whale" if n % 2 else f"w_{max(n, 2)}" for n in range(40)]
    csv(folder, "train.csv", "Image,Id", names, labels)
    csv(
        folder,
        "sample_submission.csv",
        "Image,Id",
        many("f{}.jpg", 6),
        ["new_whale w_1 w_2"],
    )


@case(
    train=20,
    kind="multi",
    classes=["0", "16", "2"],
    rejected=None,
    labels={"id03_green.png": "0|16"},
    answer="""PATTERN: "*_green.png"
PATH_TEMPLATE: "{Id}_green"
LABEL_COLUMN: Target
LABEL_SEPARATOR: ' '""",
)
def protein_atlas(folder):
    """Four files for each row."""
    ids = many("id{:02}", 20)
    for colour in ("red", "green", "blue", "yellow"):
        put(folder, many(f"train/{{}}_{colour}.png", ids))
    csv(folder, "train.csv", "Id,Target", ids, ["16", "0", "2", "16 0"])


VEHICLES = ["bus", "car", "plane", "train"]


@case(
    train=48,
    classes=VEHICLES,
    labels={"train/3.jpg": "train"},
    answer="LABEL_COLUMN: 'names: ([^/]+)/'\nSPLIT_COLUMN: none",
)
def vehicles(folder):
    """A class that is called like a split."""
    put(folder, each(VEHICLES, "{}/{}.jpg", 12))


@case(
    train=100,
    kind="number",
    test=4,
    classes=None,
    labels={"000003.jpg": "4.0"},
    answer="LABEL_COLUMN: Pawpularity\nLABEL_KIND: number",
)
def pawpularity(folder):
    """Columns of 0 and 1 that are not labels, and a whole number to predict."""
    ids = many("{:06x}", 100)
    put(folder, many("train/{}.jpg", ids))
    put(folder, many("test/f{}.jpg", 4))
    csv(
        folder,
        "train.csv",
        "Id,Subject Focus,Eyes,Face,Pawpularity",
        ids,
        "0010",
        "11011",
        "110",
        range(1, 100),
    )
    csv(
        folder,
        "test.csv",
        "Id,Subject Focus,Eyes,Face",
        many("f{}", 4),
        "01",
        "10",
        "1",
    )
    csv(folder, "sample_submission.csv", "Id,Pawpularity", many("f{}", 4), [50.0])


def replace_link(folder, recipe):
    source = (folder / "photos").resolve()
    (folder / "photos").unlink()
    shutil.copytree(source, folder / "photos")


@case(
    train=24,
    classes=["cat", "dog"],
    answer=replace_link,
    asks="(?i)link.*(copy|move|INPUT_DIR to)",
)
def other_disk(folder):
    """The folder of images is a link to another disk."""
    disk = folder.parent / "disk"
    put(disk, each(["cat", "dog"], "{}/{}.jpg", 12))
    (folder / "photos").symlink_to(disk)


@case(
    train=40,
    kind="multi",
    classes=["Bald", "Male", "Smiling"],
    labels={"000003.jpg": "Male|Smiling"},
    answer='LABEL_MAP: {"-1": 0}',
)
def celeba(folder):
    """Labels of 1 and -1."""
    names = many("{:06}.jpg", range(1, 41))
    put(folder, many("img_align_celeba/img_align_celeba/{}", names))
    csv(
        folder,
        "list_attr_celeba.csv",
        "image_id,Bald,Male,Smiling",
        names,
        [1, -1, -1],
        [-1, 1, 1],
        [-1, -1, 1, 1],
    )


@case(train=60, test=20, classes=list("0123456789"), labels={"training/7/1.png": "7"})
def mnist_png(folder):
    put(folder, each(range(10), "training/{}/{}.png", 6))
    put(folder, each(range(10), "testing/{}/9{}.png", 2))
