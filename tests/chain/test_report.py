"""report.html: a verdict, the clusters, and what the notebooks found, on one page."""

import base64
import io
import json
import re

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image
from support.pages import HOSTILE, Elements

from kaggle_tfr import notebook
from kaggle_tfr.records import RECORDS_FOLDER
from kaggle_tfr.report import write_report
from kaggle_tfr.tables import ELEMENTS, clean_table, show_table

MORE = "/home/somebody/more"  # further inputs, elsewhere
TABLE = (
    "<table><thead><tr><th></th><th>bits</th></tr></thead>"
    "<tr><td>a cell</td></tr></table>"
)


def shown(**data):
    return new_output(
        "execute_result", {name.replace("_", "/"): v for name, v in data.items()}
    )


def make_png():
    picture = io.BytesIO()
    Image.new("RGB", (30, 20), (200, 30, 30)).save(picture, "PNG")
    return base64.b64encode(picture.getvalue()).decode()


@pytest.fixture
def page(tmp_path):
    """Return the report of a notebook with all kinds of sections, and of a part."""
    png = make_png()
    bar = {"text/html": "<progress>", "text/markdown": "<progress>"}
    lesson, printed = (
        {"metadata": {"tags": ["lesson"]}},
        new_output("stream", text="3 of <4>\n"),
    )
    cells = [
        new_markdown_cell("# 1 · Explore: what came in\n\nReads `labels` & images."),
        new_markdown_cell("## Parameters"),
        new_code_cell("hidden = 1", outputs=[new_output("stream", text="parameters")]),
        new_markdown_cell("## 1. What a lesson shows", **lesson),
        new_code_cell(
            "lesson", outputs=[printed, shown(text_plain="lesson")], **lesson
        ),
        new_markdown_cell(
            "## 2. Sizes & <shapes>\n\nIf not, **move** [`MAX_BITS`](a.md). More text."
            "\n\nA second paragraph."
        ),
        new_code_cell("", outputs=[new_output("stream", text="kaggle-tfr 0.2.0\n")]),
        new_code_cell("secret_code()", outputs=[printed, shown(image_png=png)]),
        new_code_cell("", outputs=[shown(text_html=TABLE)]),
        new_code_cell("", outputs=[shown(text_html=TABLE.replace("bits", "path"))]),
        new_code_cell("", outputs=[new_output("display_data", bar)]),
        new_code_cell("", outputs=[shown(text_html=f"<td>{tmp_path}/in/a.jpg</td>")]),
        new_code_cell(
            "", outputs=[shown(text_html=f"<td>{MORE}/b.jpg {MORE}-2/c.jpg</td>")]
        ),
        new_markdown_cell("## 3. Nothing to see"),
        new_markdown_cell("## Next"),
        new_markdown_cell("Something else."),
    ]
    for name in ("notebooks", "part-1", "part-2", "in"):
        (tmp_path / name).mkdir()
    nbformat.write(
        new_notebook(cells=cells), tmp_path / "notebooks" / "01_explore.ipynb"
    )
    (tmp_path / "accounting.csv").write_text("outcome,images,share\nwritten,3,0.75\n")
    for name, fingerprint in ((".", "a1"), ("part-1", "a1"), ("part-2", "b2")):
        (tmp_path / name / "shards.csv").write_text("file\n")
        (tmp_path / name / "plan.json").write_text(
            json.dumps({"fingerprint": fingerprint})
        )
    values = {
        "WORK_DIR": str(tmp_path),
        "INPUT_DIR": f"{tmp_path}/in",
        "NAME": "roses & co",
    }
    values["MORE_INPUTS"] = [
        {"INPUT_DIR": "below"},
        {"INPUT_DIR": MORE},
        {"INPUT_DIR": f"{MORE}-2/"},
    ]
    write_report(values, tmp_path / "notebooks")
    return (tmp_path / "report.html").read_text()


def test_it_shows_what_the_notebooks_show(page):
    """Title, links, accounting, sections, figures, tables and lines, in order."""
    order = ["roses &amp; co", ">Explore</a>", "75.0%", "Explore: what came in</h2>"]
    order += ["Reads labels &amp; images.", "<h3>Sizes &amp; &lt;shapes&gt;</h3>"]
    order += ["If not, move MAX_BITS.", "3 of &lt;4&gt;", "<img"]
    order += ["<summary>Table: Sizes &amp; &lt;shapes&gt;</summary>", "a cell"]
    order += ["INPUT_DIR/a.jpg"]
    order += ["<td>more/b.jpg more-2/c.jpg</td>"]
    assert [page.index(text) for text in order] == sorted(
        page.index(text) for text in order
    )
    assert page.count("<img") == 1
    assert page.count("a cell") == 1


def test_it_has_findings_only(page, tmp_path):
    """Code, all but first sentences, lists of files and empty sections are left out.

    So are the folders of this machine: the page may be published.
    """
    hidden = [
        "secret_code",
        "lesson",
        "arameters",
        "More text",
        "A second paragraph",
        "<p>kaggle-tfr",
        "<pre>kaggle-tfr",
        ">path<",
        "Nothing to see",
        "progress",
        "Something",
        "Next",
        str(tmp_path),
        "somebody",
        "to go",
    ]
    assert [text for text in hidden if text in page] == []


def test_it_is_one_file_and_goes_with_the_part(page, tmp_path):
    """The page contains all its images; the part has a copy.

    Without clusters it has no script. A part of another plan has no copy.
    """
    sources = re.findall(r'(?:src|href)="([^"]{5})', page)
    assert set(sources) <= {"data:", "#01_e", "#over", "#top"}
    assert "<script" not in page
    assert "@import" not in page
    assert (tmp_path / "part-1" / "report.html").read_text() == page
    assert not (tmp_path / "part-2" / "report.html").exists()


def test_its_copies_go_with_the_parts_in_out_dir(tmp_path):
    """A part in WORK_DIR from a run without OUT_DIR is not part of the report."""
    for place in ("work", "out"):
        (tmp_path / place / "part-1").mkdir(parents=True)
        (tmp_path / place / "part-1" / "shards.csv").write_text("file\n")
    page = write_page(tmp_path / "work", ["a"], OUT_DIR=f"{tmp_path}/out")
    assert (tmp_path / "out" / "part-1" / "report.html").read_text() == page
    assert not (tmp_path / "work" / "part-1" / "report.html").exists()


def write_page(folder, names, **values):
    """Return the report of a run whose ids, classes and columns are these names."""
    (folder / "notebooks").mkdir(parents=True)
    table = pd.DataFrame(
        dict.fromkeys(names, names), index=pd.Index(names, name=names[0])
    )
    accounting = pd.DataFrame({"outcome": names, "images": 1, "share": 0.1})
    accounting.to_csv(folder / "accounting.csv", index=False)
    lines = "\n".join(names) + f"\n{folder}/in/a.jpg"
    cells = [
        new_markdown_cell("# 1 · Explore"),
        new_code_cell("", outputs=[shown(text_html=table._repr_html_())]),
        new_code_cell(
            "", outputs=[shown(text_html=show_table(table, index=True)._repr_html_())]
        ),
        new_code_cell("", outputs=[shown(text_html=show_table(table)._repr_html_())]),
        new_code_cell("", outputs=[new_output("stream", text=lines)]),
        new_code_cell("", outputs=[shown(image_png=make_png())]),
        new_code_cell("", outputs=[shown(text_markdown=names[0], text_html=names[0])]),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "notebooks" / "01_explore.ipynb")
    given = {"WORK_DIR": str(folder), "NAME": names[0], **values}
    write_report(given, folder / "notebooks")
    return (folder / "report.html").read_text()


def write_clusters(folder, names):
    """Write the tables of 01 and 02: one cluster, whose files do not exist."""
    folder.mkdir()
    images = pd.DataFrame({"image_id": names, "split": "train", "problem": ""})
    images = images.assign(label_name=names, reason=names, path=names)
    images = images.assign(height=3, width=4, label=0, cluster=0)
    clusters = images.drop(columns=["height", "width", "label", "problem"])
    clusters = clusters.assign(distance=1, steps=1, keep=False, conflict=True)
    images.to_parquet(folder / "images.parquet")
    clusters.to_parquet(folder / "duplicates.parquet")
    (folder / "labels.json").write_text(json.dumps({"classes": names}))
    (folder / "duplicates.json").write_text("{}")
    (folder / "leaks.csv").write_text("test_split,test_id,split,image_id,keep\n")


def test_names_of_the_data_are_text(tmp_path):
    """Hostile names are displayed, and add no element or attribute.

    The script gets them exactly.
    """
    harmless_names = [f"name {n}" for n in range(len(HOSTILE))]
    write_clusters(tmp_path / "a", harmless_names)
    harmless = Elements(write_page(tmp_path / "a", harmless_names))
    write_clusters(tmp_path / "b", list(HOSTILE))
    page = write_page(tmp_path / "b", list(HOSTILE))
    hostile = Elements(page)
    assert hostile.found == harmless.found
    assert hostile.comments == []
    assert [name for name in HOSTILE if name not in hostile.texts] == []
    (data,) = re.findall(r'(?s)<script type="application/json".*?>(.*?)</script>', page)
    data = json.loads(data)
    assert [row["name"] for row in data["rows"]] == list(HOSTILE)
    assert data["classes"] == list(HOSTILE)


def test_tables_that_do_not_escape_are_cleaned(tmp_path):
    """Pandas' `style` writes names as HTML; only the elements of tables stay."""
    table = pd.DataFrame(dict.fromkeys(HOSTILE, HOSTILE), index=list(HOSTILE))
    folder = tmp_path / "notebooks"
    folder.mkdir()
    cell = new_code_cell("", outputs=[shown(text_html=table.style.to_html())])
    nbformat.write(new_notebook(cells=[cell]), folder / "02_deduplicate.ipynb")
    write_report({"WORK_DIR": str(tmp_path)}, folder)
    found = Elements((tmp_path / "report.html").read_text()).found
    own = {"html", "meta", "title", "style", "h1", "p", "nav", "a", "h2", "div"}
    own |= {"section", "details", "summary"}
    assert {tag for tag, _ in found} <= own | ELEMENTS
    assert {name for tag, names in found if tag in ELEMENTS for name in names} == set()


def test_a_cleaned_table_keeps_spans_and_shown_text_alone():
    """A span is a number; what a browser would run or draw by is no text to show."""
    rows = (
        "<tr><th colspan=2 rowspan='x'>a<script>b</script><style>c</style>d</th></tr>"
    )
    assert clean_table(f"<table>{rows}</table>") == (
        '<table><tr><th colspan="2">ad</th></tr></table>'
    )


def test_a_dollar_in_a_name_is_no_formula(tmp_path, monkeypatch):
    """MathJax ignores all tables of the notebooks, ours and those of pandas."""
    monkeypatch.setenv(RECORDS_FOLDER, "")  # which the first call of a notebook sets
    names = pd.DataFrame({"class": ["$a$"]})
    with pd.option_context("display.html.use_mathjax", True):
        assert "tex2jax_ignore" not in names._repr_html_()
        assert "tex2jax_ignore" in show_table(names)._repr_html_()
        notebook.start("01_explore", {"WORK_DIR": str(tmp_path)})
        assert "tex2jax_ignore" in names._repr_html_()


@pytest.mark.parametrize("place", ["/", "/in", "/a", "i", "/i/m"])
def test_short_folders_change_paths_alone(tmp_path, place):
    """Elements, figures and words are as ever, however short INPUT_DIR is."""
    page = write_page(
        tmp_path, ["/in/a.jpg", "train/in/b", "a/b", "/inner", "a / b"], INPUT_DIR=place
    )
    elements = Elements(page)
    figure = elements.images[-1]
    Image.open(io.BytesIO(base64.b64decode(figure.partition("base64,")[2]))).load()
    assert figure.startswith("data:image/webp;base64,")
    first = "INPUT_DIR/a.jpg" if place == "/in" else "/in/a.jpg"
    for text in (first, "train/in/b", "a/b", "/inner", "a / b", "WORK_DIR/in/a.jpg"):
        assert text in elements.texts


def test_a_path_that_pandas_has_cut_is_hidden(tmp_path):
    """Pandas ends a long text in "..."; the cut folder is private too."""
    folder = "/home/somebody/" + "photographs/" * 5
    page = write_page(tmp_path, [f"{folder}a.jpg"] * 2, INPUT_DIR=folder, NAME="")
    assert "somebody" not in page
