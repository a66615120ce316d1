"""The verdict on a run, and its clusters as a person inspects them in a browser."""

import csv
import html
import io
import json
import re
import shutil
import subprocess
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.chain import draw_pictures, run_values, save_picture
from support.pages import Elements

from kaggle_tfr import gallery
from kaggle_tfr.explore import load_images
from kaggle_tfr.gallery import make_gallery, read_decisions
from kaggle_tfr.report import write_report
from kaggle_tfr.verdict import judge_run, load_run, summarize

VALUES = {
    "NAME": "small",
    "TEST_CSV": "test.csv",
    "IMAGE_SIZE": 64,
    "N_FOLDS": 2,
    "SECOND_LOOK": False,
}
# Ids that a careless writer of CSV would change.
HOSTILE_IDS = ['a,"b"', "=1+1", " padded ", "line\nbreak", "cr\r\nlf", "</script>", "é"]


def write_input(folder):
    """Write 17 images of classes a, b and c, and copies of some of them.

    a0 has two copies, a1 one in class b, b0 one in the test images; one file is empty.
    """
    pictures = dict(zip(list_names(), draw_pictures(20, 120, 160), strict=True))
    pictures["a0-small"] = pictures["a0"].resize((80, 60))
    pictures["a0-pale"] = pictures["a0"]
    pictures["b-of-a1"] = pictures["a1"]
    pictures["t0"] = pictures["b0"]
    for name, picture in pictures.items():
        split = "test" if name.startswith("t") else "train"
        save_picture(picture, folder / split / f"{name}.jpg", quality=90)
    (folder / "train" / "a-empty.jpg").touch()

    names = {"train": [], "test": []}
    for path in sorted(folder.glob("*/*.jpg")):
        names[path.parent.name].append(path.stem)
    for split, stems in names.items():
        table = pd.DataFrame({"image_id": stems, "label": [stem[0] for stem in stems]})
        table.to_csv(folder / f"{split}.csv", index=False)


def list_names():
    """Return a0 to a7, b0 to b7, c0 and t1 to t3."""
    classes = [f"{letter}{number}" for letter in "ab" for number in range(8)]
    return [*classes, "c0", "t1", "t2", "t3"]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A finished run: 25 images, of which 20 are written."""
    folder = tmp_path_factory.mktemp("gallery")
    write_input(folder / "input")
    values = {**VALUES, "INPUT_DIR": str(folder / "input")}
    run_values(values, str(folder / "work"))
    return folder / "work"


@pytest.fixture
def run(work):
    return load_run(str(work), [str(work / "part-1")])


def describe(run, **options):
    """Return the findings as lines."""
    return [f"{finding.mark} {finding.text}" for finding in judge_run(run, **options)]


def test_the_verdict_counts_what_was_planted(run):
    """One sentence on each subject, the most serious first."""
    leaks, conflicts, classes, unverified, *others = describe(run)
    rejected, licence, written, folds = others
    assert licence.startswith("· LICENSE is empty")
    assert re.fullmatch(
        r"✓ This run wrote 20 of 25 listed images: 3 shards, [\d.]+ kB, 1 part\.",
        written,
    )
    assert folds == (
        "✓ 2 folds of 8, 8 images. None of 2 clusters with a written image is in two "
        "folds or splits."
    )
    assert leaks == (
        "! 1 of 4 test images has a copy in train: the copy is kept (LEAKS = report)."
    )
    assert conflicts == (
        "! Labels disagree in 1 of 3 clusters of near-duplicates; all 2 images are "
        "dropped."
    )
    fold_of_c = run.plan.set_index("image_id")["fold"]["c0"]
    missing = f"lass c (1 image) is missing from fold {1 - fold_of_c}"
    assert classes == f"! C{missing}."
    assert unverified.startswith("! 20 of 20 records were not read again")
    assert rejected == "· This run rejected 1 of 25 listed images: 1 empty file."

    headline = summarize(judge_run(run))
    assert headline.text == (
        "Usable, with 4 remarks: 1 test image has a copy in train; labels disagree in "
        f"1 cluster; c{missing}; and 1 more. To publish, set LICENSE."
    )


def test_the_verdict_names_faults(run):
    """Images that are lost, parts that are missing, and a cluster in two folds."""
    plan, shards = run.plan, run.shards
    (lost, *_) = describe(replace(run, shards=shards.assign(count=6)))
    assert lost.startswith("✗ This run wrote 18 of 25")
    assert "The plan has 20 images" in lost

    (partial, *_) = describe(replace(run, plan=plan.assign(part=plan["fold"])))
    assert partial.startswith("! This run wrote 20")
    assert partial.endswith("The plan has 3 parts.")

    (unwritten, *_) = describe(replace(run, shards=shards[:0]))
    assert unwritten == "! Nothing is written yet; the plan has 20 of 25 listed images."
    (unplanned, *_) = describe(replace(run, shards=shards[:0], plan=None))
    assert unplanned == "! Nothing is planned or written yet of 25 listed images."

    split = describe(replace(run, plan=plan.assign(cluster=0)))[0]
    assert split.startswith("✗ 2 folds of 8, 8 images. The folds leak")
    assert "clusters_across_folds 1" in split

    absent = describe(replace(run, plan=plan[plan["image_id"] != "c0"]))
    assert "! Class c has no image." in absent

    groups = plan.assign(patient=plan["image_id"])
    apart = " ".join(describe(replace(run, plan=groups), group_column="patient"))
    assert "and of 20 values of 'patient' is in two folds or splits" in apart
    groups = plan.assign(patient="x")
    assert describe(replace(run, plan=groups), group_column="patient")[0][0] == "✗"


def test_images_that_train_in_every_fold_are_named(run):
    """They come from MORE_INPUTS, or share a group with an image that does."""
    is_extra = run.plan["image_id"].isin(["a2", "a3"])
    plan = run.plan.assign(fold=run.plan["fold"].mask(is_extra, -1))
    of_more = plan.assign(source=is_extra.astype(int))
    folds = " ".join(describe(replace(run, plan=of_more)))
    assert "2 images of MORE_INPUTS train in every fold." in folds
    folds = " ".join(describe(replace(run, plan=plan)))
    assert "2 images of MORE_INPUTS and of their groups train in every fold." in folds


def test_results_of_the_notebooks_are_in_the_verdict(run, root):
    """Records read again, giveaways, and the score of 06 beside the largest class."""
    in_folds = run.plan[run.plan["fold"] >= 0]
    oof = in_folds[["image_id", "fold"]].astype(str)
    oof = oof.assign(label=["a"] * 9 + ["b"] * 7, predicted="b")
    giveaway = (
        "Warning: without its pixels, a file predicts the label (format: 90% right, by "
        "chance 50%, at most 60%)."
    )
    success = "None of 10 facts of the files separates test from train."
    printed = {
        "04_write": "0 faults in 20 records",
        "01_explore": f"{giveaway}\n{success}",
    }
    lines = describe(replace(run, oof=oof, printed=printed))
    assert f"! {giveaway}" in lines
    assert f"✓ {success}" in lines
    assert "✓ 0 faults in 20 records, all of which were read again." in lines
    assert (
        "! The models of 06 are right on 43.8% of 16 images that they had not seen; "
        "always predicting the largest class (a) is right on 56.2%." in lines
    )
    better = replace(run, oof=oof.assign(predicted=oof["label"]))
    assert any(line.startswith("✓ The models of 06") for line in describe(better))
    older = replace(run, oof=oof.assign(fold="0"))
    assert any(
        "oof.csv has the predictions of other" in text for text in describe(older)
    )
    partial = replace(run, printed={"04_write": "0 faults in 8 records"})
    assert any("! 12 of 20 records were not" in line for line in describe(partial))
    # The verdict reads the line that 04 prints.
    source = (root / "notebooks" / "04_write.ipynb").read_text()
    assert "0 faults in {" in source


def test_images_of_bad_quality_are_in_the_verdict(run):
    """They are those that 01 warned of; a few of them are not a remark."""
    printed = (
        "Warning: 1,100 of 1,200 images: dark (brightness below 25).\n"
        "Warning: 1 of 1,200 images: blurred (sharpness below 3)."
    )
    lines = describe(replace(run, printed={"01_explore": printed}))
    assert "! 1,100 of 1,200 images are dark (brightness below 25)." in lines
    assert "· 1 of 1,200 images is blurred (sharpness below 3)." in lines


def test_a_license_of_each_part_is_needed(run, work):
    """It is read from dataset-metadata.json, where the user may have changed it."""
    file = work / "part-1" / "dataset-metadata.json"
    before = file.read_text()
    licensed = json.loads(before) | {"licenses": [{"name": "CC0-1.0"}]}
    try:
        file.write_text(json.dumps(licensed))
        run = load_run(str(work), [str(work / "part-1")])
    finally:
        file.write_text(before)
    assert run.licenses == ["CC0-1.0"]
    assert "✓ License: CC0-1.0." in describe(run)
    unknown = replace(run, licenses=["my own"])
    assert describe(unknown)[0].startswith("✗ Kaggle has no license 'my own'")
    other = replace(run, licenses=["CC0-1.0", ""])
    assert any(line.startswith("· LICENSE is empty") for line in describe(other))


def test_a_table_that_cannot_be_right_is_a_fault(run):
    """One class is ✗, with the setting that answers it, before all other findings."""
    doubtful = replace(run, labels=replace(run.labels, classes=("a",)))

    first = describe(doubtful)[0]

    assert first.startswith("✗ All images are of one class, 'a'. Set LABEL_COLUMN")
    headline = summarize(judge_run(doubtful)).text
    assert headline.startswith("Not yet: All images are of one class, 'a'.")


def test_a_clean_run_has_no_warning(run):
    """Each success contains the number of what was checked."""
    images, plan = run.images, run.plan
    clean = replace(
        run,
        images=images[(images["problem"] == "") & (images["split"] == "train")],
        clusters=run.clusters[:0],
        leaks=run.leaks[:0],
        labels=replace(run.labels, classes=("a", "b")),
        plan=plan[plan["image_id"] != "c0"],
        shards=run.shards.assign(count=[8, 8, 3]),
        licenses=["CC0-1.0"],
        printed={"04_write": "0 faults in 19 records."},
    )
    assert summarize(judge_run(clean)).text == "Ready to publish."
    unlicensed = summarize(judge_run(replace(clean, licenses=[""])))
    assert unlicensed.text == "Ready to train. To publish, set LICENSE."
    assert unlicensed.mark == "✓"
    marks = {line[0] for line in describe(clean)}
    assert marks == {"✓"}
    assert all(re.search(r"\d", line) for line in describe(clean))


def test_clusters_of_other_images_are_an_error(work, tmp_path):
    """01 ran again since 02: the report says so, and shows no cluster."""
    tables = ("duplicates.parquet", "duplicates.json", "labels.json", "leaks.csv")
    for name in tables:
        shutil.copy(work / name, tmp_path)
    images, _ = load_images(str(work))
    images[images["image_id"] != "a0"].to_parquet(tmp_path / "images.parquet")
    (tmp_path / "notebooks").mkdir()
    write_report({"WORK_DIR": str(tmp_path)}, tmp_path / "notebooks")
    page = (tmp_path / "report.html").read_text()
    assert "✗" in page
    assert "Run 02_deduplicate again." in page
    assert 'class="cluster' not in page


@pytest.fixture(scope="module")
def report(work):
    """Return the page of the run, in which 02 has applied two decisions."""
    rows = "image_id,action,value,effect\na0,keep,,\nb1,label,a,\n"
    (work / "decisions.csv").write_text(rows)
    (work / "notebooks").mkdir()
    write_report({**VALUES, "WORK_DIR": str(work)}, work / "notebooks")
    return (work / "report.html").read_text()


def test_the_gallery_has_each_clustered_image(run, report):
    """Conflicts and leaks are first, then the largest; kept images are first."""
    elements = Elements(report)
    data = read_data(report)
    ids = [row["name"] for row in data["rows"]]
    assert sorted(ids) == sorted(run.clusters["image_id"])
    assert {*ids[:4]} == {"a1", "b-of-a1", "b0", "t0"}
    assert ids[4] == "a0"
    assert [row["keep"] for row in data["rows"][4:]] == [True, False, False]
    test_row = data["rows"][ids.index("t0")]
    assert test_row == {"name": "t0", "keep": None, "label": None}
    assert data["classes"] == ["a", "b", "c"]
    assert (
        "3 clusters with 7 images, of which 4 are dropped. Clusters that keep an "
        "image: 2; clusters of two or more labelled images: 2." in elements.texts
    )
    element_ids = re.findall(r' id="(\w+)"', report)
    assert len(set(element_ids)) == len(element_ids) > 5


def read_data(page):
    (data,) = re.findall(r'(?s)<script type="application/json".*?>(.*?)</script>', page)
    return json.loads(data)


def test_an_id_of_two_splits_is_named_with_its_split(run):
    """The names in the file of decisions are those of OVERRIDES."""
    images = run.images.replace({"image_id": {"t0": "b0"}})
    clusters = run.clusters.replace({"image_id": {"t0": "b0"}})
    made = make_gallery(images, clusters, run.labels)
    names = {row["name"] for row in made.data["rows"]}
    assert {"train/b0", "test/b0", "a0", "a1"} < names


def test_each_copy_names_how_it_was_found(run):
    """Beyond the radius it was the second look, unless the user joined the pair."""
    distance = {"a0-small": 33, "a0-pale": 4, "t0": 33}
    clusters = run.clusters.assign(
        distance=run.clusters["image_id"].map(distance).fillna(0).astype(int)
    )
    decisions = [["t0", "same", "b0"]]
    made = make_gallery(run.images, clusters, run.labels, decisions, 25)
    matches = {
        image["name"]: image["match"]
        for cluster in made.clusters
        for image in cluster.images
    }
    assert matches["a0-small"] == "33 of 256 bits, confirmed by geometry"
    assert matches["a0-pale"] == "4 of 256 bits"
    assert matches["t0"] == "33 of 256 bits"
    assert matches["a0"] == ""
    subjects = [(cluster.subjects, cluster.splits) for cluster in made.clusters]
    assert sorted(subjects) == [
        (["conflict"], ["train"]),
        (["leak"], ["test", "train"]),
        (["second"], ["train"]),
    ]


def test_thumbnails_show_their_images(run):
    """Small WebP with the image's colours, and the same bytes in each run."""
    first = make_gallery(run.images, run.clusters, run.labels)
    again = make_gallery(run.images, run.clusters, run.labels)
    assert first == again
    for image in [image for cluster in first.clusters for image in cluster.images]:
        webp = b64decode(image["thumbnail"])
        thumbnail = Image.open(io.BytesIO(webp)).convert("RGB")
        assert max(thumbnail.size) <= 160
        assert len(webp) < 10_000
        source = Image.open(image["path"]).convert("RGB").resize(thumbnail.size)
        difference = np.asarray(source, int) - np.asarray(thumbnail, int)
        assert np.abs(difference).mean() < 12


def test_what_does_not_fit_is_reported(run, work, monkeypatch):
    """Whole clusters, as many as fit, and the first images of a large one."""
    monkeypatch.setattr(gallery, "MAX_IMAGES", 4)
    made = make_gallery(run.images, run.clusters, run.labels)
    assert [cluster.is_conflict or cluster.is_leak for cluster in made.clusters] == [
        True,
        True,
    ]
    (work / "no-notebooks").mkdir()
    write_report({**VALUES, "WORK_DIR": str(work)}, work / "no-notebooks")
    page = (work / "report.html").read_text()
    assert "This page shows 2 of 3 clusters: those with two labels or in two" in page

    monkeypatch.setattr(gallery, "MAX_OF_CLUSTER", 1)
    made = make_gallery(run.images, run.clusters, run.labels)
    assert [len(cluster.images) for cluster in made.clusters] == [1, 1, 1]
    assert [cluster.n_images for cluster in made.clusters] == [2, 2, 3]


def test_ids_are_written_exactly(root, tmp_path):
    """The script's CSV gives Python's reader the same texts."""
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no Node.js on this machine")
    rows = [[one, "different", other] for one in HOSTILE_IDS for other in HOSTILE_IDS]
    rows = [["image_id", "action", "value"], *rows]
    script = (root / "kaggle_tfr" / "report.js").read_text()
    script += f"process.stdout.write(formatCsv({json.dumps(rows)}));"
    done = subprocess.run([node, "-e", script], capture_output=True, check=True)
    text = done.stdout.decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows
    (tmp_path / "decisions.csv").write_bytes(done.stdout)
    assert read_decisions(str(tmp_path)) == rows[1:]


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
const filter = document.querySelector("#subject");
filter.value = "leak";
filter.dispatchEvent(new Event("change"));
const leaks = [...document.querySelectorAll(".cluster:not([hidden]) code")];
const shown = leaks.map((name) => name.textContent);
const made = document.querySelector("#made").textContent;
const overflow = document.documentElement.scrollWidth - window.innerWidth;
file.text().then((text) => parent.postMessage({ text, overflow, shown, made }, "*"));
"""

# Chromium has no window of 390 pixels, as a telephone has, but a frame may have them.
FRAME = """
<iframe src="report.html" width="390" height="800"></iframe><pre id="found"></pre>
<script>
onmessage = ({ data }) => {
  document.querySelector("#found").textContent = JSON.stringify(data);
};
</script>
"""


@pytest.mark.heavy
def test_decisions_become_a_file(report, tmp_path):
    """In Chromium: two clicks undo each other, earlier decisions stay.

    The filter shows the leaks alone. On a telephone nothing is wider than the screen.
    """
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("there is no chromium on this machine")
    ids = [row["name"] for row in read_data(report)["rows"]]
    script = f"const ids = {json.dumps(ids)};{CLICKS}"
    page = report.replace("</html>", f"<script>{script}</script></html>")
    (tmp_path / "report.html").write_text(page)
    (tmp_path / "frame.html").write_text(FRAME)
    call = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    call += [f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000"]
    call += [(tmp_path / "frame.html").as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=120)

    found = done.stdout.partition('<pre id="found">')[2].partition("</pre>")[0]
    found = json.loads(html.unescape(found))
    assert found["overflow"] <= 0
    assert sorted(found["shown"]) == ["b0", "t0"]
    assert found["made"] == "5 decisions made"
    assert list(csv.reader(io.StringIO(found["text"], newline=""))) == [
        ["image_id", "action", "value"],
        ["a0", "keep", ""],
        ["b1", "label", "a"],
        ["a0-small", "keep", ""],
        ["a0-pale", "label", 'b, "or" c'],
        ["b0", "different", "t0"],
    ]
