"""report.html: what executed notebooks show, on one page of its own."""

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
        new_markdown_cell("## 2. Sizes & <shapes>"),
        new_code_cell("secret_code()", outputs=[printed, shown(image_png=png)]),
        new_code_cell("", outputs=[shown(text_html="<table><td>a cell</td></table>")]),
        new_code_cell("", outputs=[new_output("display_data", bar)]),
        new_code_cell("", outputs=[shown(text_html=f"<td>{tmp_path}/in/a.jpg</td>")]),
        new_code_cell(
            "", outputs=[shown(text_html=f"<td>{MORE}/b.jpg {MORE}-2/c.jpg</td>")]
        ),
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
    """Title, accounting, sections, figures, tables and lines, each once, in order."""
    order = ["roses &amp; co", "75.0%", "<h2", "Explore: what came in</h2>"]
    order += ["<code>labels</code> &amp; images", "<h3>Sizes &amp; &lt;shapes&gt;</h3>"]
    order += ["3 of &lt;4&gt;", "<img", "a cell", "INPUT_DIR/a.jpg"]
    order += ["<td>more/b.jpg more-2/c.jpg</td>"]
    assert [page.index(text) for text in order] == sorted(
        page.index(text) for text in order
    )
    assert page.count("<img") == 1


def test_it_hides_code_lessons_parameters_progress_and_folders(page, tmp_path):
    """What a colleague has no use for, and what is nobody's business."""
    hidden = [
        "secret_code",
        "lesson",
        "arameters",
        "progress",
        "Something",
        "Next",
        str(tmp_path),
        "somebody",
        "to go",
    ]
    assert [text for text in hidden if text in page] == []


def test_it_is_one_file_and_goes_with_the_part(page, tmp_path):
    """The page has no script and contains all its images; the part has a copy.

    A part of another plan has no copy.
    """
    sources = re.findall(r'(?:src|href)="([^"]{5})', page)
    assert set(sources) <= {"data:", "#01_e"}
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


def test_names_of_the_data_are_text(tmp_path):
    """Hostile names are displayed, and add no element or attribute."""
    harmless = Elements(
        write_page(tmp_path / "a", [f"name {n}" for n in range(len(HOSTILE))])
    )
    hostile = Elements(write_page(tmp_path / "b", list(HOSTILE)))
    assert hostile.found == harmless.found
    assert hostile.comments == []
    assert [name for name in HOSTILE if name not in hostile.texts] == []


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
        notebook.start({"WORK_DIR": str(tmp_path)})
        assert "tex2jax_ignore" in names._repr_html_()


@pytest.mark.parametrize("place", ["/", "/in", "/a", "i", "/i/m"])
def test_short_folders_change_paths_alone(tmp_path, place):
    """Elements, figures and words are as ever, however short INPUT_DIR is."""
    page = write_page(
        tmp_path, ["/in/a.jpg", "train/in/b", "a/b", "/inner", "a / b"], INPUT_DIR=place
    )
    elements = Elements(page)
    (figure,) = elements.images
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
