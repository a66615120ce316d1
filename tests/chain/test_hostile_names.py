"""A dataset whose names are attacks, from `init` to the report, by the command line."""

import csv
import os
import random
import subprocess
import sys

import pytest
from support.pages import HOSTILE, Elements
from support.scenes import saved, scene

from kaggle_tfr.parameters import load_recipe

N_NAMES = 200
# Every second one is special in HTML, Markdown, YAML, CSV or a pattern.
SPECIAL = "<>&\"'$#:{}[]!*%@`\\\n\x85\u2028 "
CHARACTERS = SPECIAL * 500 + "".join(map(chr, range(1, 0x3000))).replace("/", "")


def draw_names():
    """Return N_NAMES different names, half of them with markup in the middle."""
    rng = random.Random(0)
    markup = [text.replace("/", "\u2215") for text in HOSTILE]
    names = []
    for number in range(N_NAMES):
        name = "".join(rng.choices(CHARACTERS, k=rng.randint(1, 20)))
        attack = markup[number % len(markup)] if number % 2 else ""
        names.append(f"n{number}{attack}{name}")
    return names


def write_input(folder, names):
    """Write an image for each name; its row has a hostile class, group and columns."""
    (folder / "images").mkdir(parents=True)
    classes, groups = names[:5], names[5:45]
    with open(folder / "train.csv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerow(
            ["image_id", f"label {HOSTILE[0]}", f"patient_id {HOSTILE[1]}", names[-1]]
        )
        for number, name in enumerate(names):
            image_id = f"{name}.jpg"
            rows.writerow(
                [image_id, classes[number % 5], groups[number % 40], str(number)]
            )
            data = saved(scene(40, 48, number)) if number % 20 else b"no image"
            (folder / "images" / image_id).write_bytes(data)


@pytest.mark.heavy
def test_hostile_names_go_from_init_to_the_report_as_text(tmp_path, root):
    """The report has no element that its template does not contain.

    Each image is in the accounting: 190 written, ten rejected.
    """
    names = draw_names()
    write_input(tmp_path / "input", names)
    environment = os.environ | {"PYTHONPATH": str(root)}
    call = [sys.executable, "-m", "kaggle_tfr"]
    options = {
        "cwd": tmp_path,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    subprocess.run([*call, "init", "input", "-o", "recipe.yaml"], check=True, **options)
    values = load_recipe(str(tmp_path / "recipe.yaml"))
    assert values["ID_COLUMN"] == "image_id"
    assert not values.keys() & {
        "OUT_DIR",
        "WORK_DIR",
        "OVERWRITE",
        "BACKEND",
        "SCHEDULER",
    }

    changes = {
        "LABEL_COLUMN": f"label {HOSTILE[0]}",
        "GROUP_COLUMN": f"patient_id {HOSTILE[1]}",
        "IMAGE_SIZE": "32",
        "WORK_DIR": "work",
    }
    words = [word for pair in changes.items() for word in ("-p", *pair)]
    run = [*call, "run", "recipe.yaml", *words]
    done = subprocess.run(run, check=False, **options)

    assert done.returncode == 0, done.stderr
    page = Elements((tmp_path / "work" / "report.html").read_text(encoding="utf-8"))
    assert "script" not in dict(page.found)  # there are no clusters
    attributes = {name for _, names_of_tag in page.found for name in names_of_tag}
    assert not [name for name in attributes if name.startswith("on")]
    assert page.comments == []
    assert all(source.startswith("data:image/webp;base64,") for source in page.images)
    with open(tmp_path / "work" / "accounting.csv", encoding="utf-8") as file:
        counts = {row["outcome"]: int(row["images"]) for row in csv.DictReader(file)}
    assert counts["total"] == N_NAMES
    assert counts["labelled records"] == N_NAMES - N_NAMES // 20
