"""report.html: a decision, its reasons, and the clusters as a person inspects them."""

import csv
import html
import io
import json
import re
import shutil
import subprocess
from base64 import b64decode

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from support.chain import draw_pictures, save_picture
from support.pages import HOSTILE, Elements
from support.scenes import opened

from kaggle_tfr import build_dataset, notebook, plan, report
from kaggle_tfr.explore import load_images
from kaggle_tfr.notebook import Finding
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.report import decide, write_page, write_report
from kaggle_tfr.write.step import run as run_writing

VALUES = {"TEST_CSV": "test.csv", "IMAGE_SIZE": 64, "N_FOLDS": 2, "SECOND_LOOK": False}
DECISIONS = "image_id,action,value\na0,keep,\nb1,label,a\na3,same,a4\n"
# Ids that a careless writer of CSV would change.
HOSTILE_IDS = ['a,"b"', "=1+1", " padded ", "line\nbreak", "cr\r\nlf", "</script>", "é"]


def find(mark, subject, text=""):
    return Finding("04_write", subject, mark, text)


WRITTEN = find("✓", "parts")
UNFINISHED = "Train: not yet on records, 04_write has not finished all parts."


@pytest.mark.parametrize(
    ("findings", "headline"),
    [
        ([WRITTEN, find("✓", "license: part 1")], UNFINISHED),
        ([find("✗", "input", "Lost."), WRITTEN], "Train: no. Lost."),
        (
            [find("!", "copies"), WRITTEN, find("✓", "license")],
            "Train: yes, with 1 remark. Publish: yes.",
        ),
        (
            [find("·", "license", "None."), find("✓", "license"), WRITTEN],
            "Train: yes, with 0 remarks. Publish: not yet, None.",
        ),
    ],
)
def test_the_headline_decides(findings, headline):
    assert decide(findings) == headline


def write_input(folder):
    """Write 17 images of classes a, b and c, and copies of some of them.

    a0 has two copies, a1 one in class b, b0 one in the test images.
    """
    names = [f"{letter}{number}" for letter in "ab" for number in range(8)]
    names += ["c0", "t1", "t2", "t3"]
    pictures = dict(zip(names, draw_pictures(20, 180, 240), strict=True))
    pictures["a0-small"] = pictures["a0"].resize((80, 60))
    pictures["a0-pale"] = pictures["a0"]
    pictures["b-of-a1"] = pictures["a1"]
    pictures["t0"] = pictures["b0"]
    rows = dict.fromkeys(["train", "test"], "image_id,label\n")
    for name, picture in pictures.items():
        split = "test" if name.startswith("t") else "train"
        rows[split] += f"{name},{name[0]}\n"
        save_picture(picture, folder / split / f"{name}.jpg", quality=90)
    for split, text in rows.items():
        (folder / f"{split}.csv").write_text(text)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A finished run with findings, in which 02 has applied three decisions."""
    folder = tmp_path_factory.mktemp("report")
    write_input(folder / "input")
    decisions = folder / "overrides.csv"
    decisions.write_text(DECISIONS)
    paths = {"INPUT_DIR": f"{folder}/input", "WORK_DIR": f"{folder}/work"}
    build_dataset(**VALUES, **paths, OVERRIDES=str(decisions))
    return folder / "work"


def write(work):
    write_report({**VALUES, "NAME": "roses", "WORK_DIR": str(work)})
    return (work / "report.html").read_text()


@pytest.fixture(scope="module")
def page(work):
    return write(work)


def test_the_page_has_reasons_advice_links_and_numbers(page):
    """The most serious finding is first, and opens the clusters that it is about."""
    texts = Elements(page).texts
    order = ["Train: yes, with 3 remarks.", "Labels disagree in 1 of 4"]
    order += ["9 of 24 images", "To publish, set LICENSE", "All 24 images can be used"]
    order += ["labelled records", "duplicates dropped"]
    places = [texts.index(text, 200) for text in order]
    assert places == sorted(places)
    assert re.findall(r'<a href="#(.*?)"', page) == ["conflicts", "leaks", "copies"]


def test_the_snippet_reads_the_records(page):
    """The batches are those of the recipe's size, without the images to validate on.

    It runs as it is on the page, up to the reader's own model.
    """
    [snippet] = re.findall(r"(?s)<pre>(.*?)</pre>", page)
    names = {}
    exec(html.unescape(snippet).partition("model.fit")[0], names)
    images, _ = next(iter(names["batches"]))
    assert images.shape == (32, 64, 64, 3)
    assert len(names["training"]) + len(names["validation"]) < len(names["shards"])


def test_each_part_of_the_plan_must_be_written(work, tmp_path):
    """One after the other; a license is set by the run that writes the part."""
    folder = str(shutil.copytree(work, tmp_path / "work"))
    values = {**DEFAULTS, **VALUES, "WORK_DIR": folder, "OUT_DIR": f"{folder}/out"}
    plan.run({**values, "N_SHARDS": 4, "MAX_PART_FILES": 18})
    ends = []
    for part, license_name in ((1, ""), (2, "other"), (1, "other")):
        run_writing({**values, "PART": part, "LICENSE": license_name})
        ends.append(decide(notebook.read_findings(folder)).partition("remark")[2])
    assert ends == ["", "s. Publish: not yet, LICENSE is empty.", "s. Publish: yes."]


def read_data(page):
    [data] = re.findall(r'(?s)<script type="application/json".*?>(.*?)</script>', page)
    return json.loads(data)


def test_conflicts_are_first_then_leaks_then_the_farthest(page, work):
    """Kept images are first in a cluster. Test images cannot be changed.

    An id of two splits is named with its split, as in OVERRIDES.
    """
    data = read_data(page)
    rows = data["rows"]
    ids = [row["name"] for row in rows]
    clusters = [{*ids[start : start + 2]} for start in (0, 2, 4)]
    assert clusters == [{"a1", "b-of-a1"}, {"b0", "t0"}, {"a3", "a4"}]
    assert ids[6] == "a0"
    assert [row["keep"] for row in rows[6:]] == [True, False, False]
    assert {"name": "t0", "keep": None, "label": None} in rows
    assert data["classes"] == ["a", "b", "c"]
    assert data["decisions"] == [row.split(",") for row in DECISIONS.split()[1:]]
    thumbnails = re.findall(r'base64,(.*?)"', page)
    sizes = {opened(b64decode(data)).size for data in thumbnails}
    assert sizes == {(160, 120), (80, 60)}
    images, _ = load_images(str(work))
    named = report._name_images(images.replace({"image_id": {"t0": "b0"}}))
    assert {"train/b0", "test/b0", "a0", "a1"} < {*named["name"]}


def test_what_does_not_fit_is_reported(work, monkeypatch):
    """The first images of a large cluster, and the first clusters."""
    monkeypatch.setattr(report, "MAX_IMAGES", 4)
    assert "2 of 4\nclusters" in write(work)
    monkeypatch.setattr(report, "MAX_OF_CLUSTER", 1)
    assert "(1 of them here)" in write(work)


def write_named(work, folder, name):
    """Write a page on which the data, its folders and findings have this name."""
    gallery = report.load_gallery(str(work))
    texts = dict.fromkeys(["name", "label_name", "reason"], name)
    image = {**gallery["clusters"][0][0], **texts, "keep": False}
    write_page(
        f"{folder}/report.html",
        title=name,
        headline=f"Train: yes. {name}",
        findings=[find("!", "conflicts", name), find("·", name, f"{name}."), WRITTEN],
        gallery={**gallery, "clusters": [[image]], "classes": [name]},
        values={},
        parts=[name],
        accounting=[{"outcome": name, "images": 1, "share": 1}],
        chapters=["04_write"],
    )
    return (folder / "report.html").read_text()


def test_names_of_the_data_are_text(work, tmp_path):
    """Hostile names add no element or attribute; the script gets them exactly."""
    name = "\n".join([*HOSTILE, *HOSTILE_IDS, "{{ 7*7 }}"])
    page = write_named(work, tmp_path, name)
    elements = Elements(page)
    assert elements.found == Elements(write_named(work, tmp_path, "harmless")).found
    assert elements.comments == []
    assert elements.texts.count("{{ 7*7 }}") > 5
    assert read_data(page)["rows"] == [{"name": name, "keep": False, "label": name}]
    assert read_data(page)["classes"] == [name]


def test_a_stopped_run_has_a_page_with_chapters(work, tmp_path):
    """Code is folded; a chapter runs and loads nothing, also from other chapters.

    Clusters, and a copy of a step without findings, are of an earlier run.
    """
    work = shutil.copytree(work, tmp_path / "work")
    printed = new_output("stream", text=HOSTILE[0])
    table = new_output("display_data", {"text/html": "<td>$a$</td>" + HOSTILE[0]})
    cells = [
        new_markdown_cell("# 1\n\n[2](02_deduplicate.ipynb)"),
        new_code_cell("secret = 1", outputs=[printed, table]),
    ]
    copies = work / "notebooks"
    copies.mkdir()
    for name in ("02_deduplicate", "03_plan"):
        nbformat.write(new_notebook(cells=cells), copies / f"{name}.ipynb")
    notebook.begin("02_deduplicate", {"WORK_DIR": str(work)})
    notebook.note("✗", "Stopped in 02.", "stop")
    notebook.end()

    page = write(work)

    assert page.count("Stopped in 02.") == 3  # title, headline, findings
    assert {*re.findall('href="notebooks/(.*)"', page)} == {"02_deduplicate.html"}
    assert 'class="cluster' not in page
    chapter = (copies / "02_deduplicate.html").read_text()
    assert re.search(r"(?s)<details>.*secret.*</details>", chapter)
    assert "default-src 'none'; img-src data:" in chapter
    assert "://" not in chapter
    assert "<script" not in chapter


# What a person does with the page; the file is sent to the page around it instead of
# being downloaded.
CLICKS = """
const figures = [...document.querySelectorAll("#clusters figure")];
const find = (id, part) => figures[ids.indexOf(id)].querySelector(part);
find("a0-small", "button.action").click();
find("b0", "button.action").click();
find("b0", "button.action").click();
find("a0", "button.action").click();
find("a0", "button.action").click();
const input = find("a0-pale", "input.label");
input.value = 'b, "or" c';
input.dispatchEvent(new Event("change"));
for (const id of ["a0", "b0", "t0"]) find(id, ".thumbnail").click();
document.querySelector("#different").click();
let file;
URL.createObjectURL = (blob) => { file = blob; return "#"; };
document.querySelector("#download").click();
const list = () => [...document.querySelectorAll(".cluster:not([hidden]) code")]
  .map((name) => name.textContent);
const conflicts = list();
const filter = document.querySelector("#topic");
filter.value = "leaks";
filter.dispatchEvent(new Event("change"));
const made = document.querySelector("#count").textContent;
const overflow = document.documentElement.scrollWidth - window.innerWidth;
const found = { overflow, conflicts, leaks: list(), made };
file.text().then((text) => parent.postMessage({ text, ...found }, "*"));
"""

# Chromium has no window of 390 pixels, as a telephone has, but a frame may have them.
FRAME = """
<iframe src="report.html#conflicts" width="390" height="800"></iframe>
<pre id="found"></pre>
<script>
onmessage = ({ data }) => {
  document.querySelector("#found").textContent = JSON.stringify(data);
};
</script>
"""


def test_decisions_become_a_file(page, tmp_path):
    """In Chromium: two clicks undo each other, earlier decisions stay.

    A link of a finding, and the filter, show only what they name. On a telephone, 390
    pixels wide, nothing is wider than the screen.
    """
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("there is no chromium on this machine")
    ids = [row["name"] for row in read_data(page)["rows"]]
    script = f"<script>const ids = {json.dumps(ids)};{CLICKS}</script></html>"
    (tmp_path / "report.html").write_text(page.replace("</html>", script))
    (tmp_path / "frame.html").write_text(FRAME)
    call = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    call += [f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000"]
    call += [(tmp_path / "frame.html").as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=120)

    [found] = re.findall('<pre id="found">(.*?)</pre>', done.stdout)
    found = json.loads(html.unescape(found))
    assert found["overflow"] <= 0
    assert sorted(found["conflicts"]) == ["a1", "b-of-a1"]
    assert sorted(found["leaks"]) == ["b0", "t0"]
    assert found["made"] == "6 decisions"
    assert list(csv.reader(io.StringIO(found["text"], newline=""))) == [
        *csv.reader(DECISIONS.splitlines()),
        ["a0-small", "keep", ""],
        ["a0-pale", "label", 'b, "or" c'],
        ["b0", "different", "t0"],
    ]
