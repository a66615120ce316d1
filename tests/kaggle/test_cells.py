"""A kernel's first cells say what it does; what a reader does not need is folded."""

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from support.kernels import read_kernel

from kaggle_tfr.find import to_slug
from kaggle_tfr.kaggle.kernels import write_kernels
from kaggle_tfr.parameters import DEFAULTS, load_recipe, select_parameters

FOLDED = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, ["12345"]),
        ({"parts": 2}, ["123", "4", "4"]),
        ({"accelerator": "TpuV5E8", "sources": ["ada/tea-1"]}, ["56"]),
    ],
)
def test_the_headers_links_lead_to_headings(tmp_path, settings, steps):
    """In the page that nbconvert makes, as Kaggle does; each step has a link."""
    exporter = HTMLExporter()
    kernels = write_kernels(load_recipe("cassava"), str(tmp_path), **settings)
    for folder, numbers in zip(kernels, steps, strict=True):
        notebook = nbformat.read(Path(folder) / "kernel.ipynb", as_version=4)
        # Code has no heading, and takes time to be highlighted.
        notebook.cells = [c for c in notebook.cells if c.cell_type == "markdown"]
        header = notebook.cells[0]
        html, _ = exporter.from_notebook_node(notebook)
        linked = re.findall(r"\]\(#(\d)", header.source)
        assert "".join(linked) == numbers
        targets = set(re.findall(r'href="#(.*?)"', html))
        assert targets <= set(re.findall(r'id="(.*?)"', html))


def test_only_the_recipes_parameters_are_visible(tmp_path):
    """Run one after the other, the cells give every parameter the recipe's value."""
    recipe = load_recipe("sample")
    [folder] = write_kernels(recipe, str(tmp_path))
    (_, folded, visible, *others), _ = read_kernel(folder)

    assert folded.metadata == FOLDED
    assert visible.metadata == {"tags": ["parameters"]}
    names = re.findall(r"^(\w+) = ", visible.source, re.MULTILINE)
    assert {*names} == {*recipe}
    found = {}
    exec(folded.source, found)
    assert found.keys().isdisjoint(recipe)
    exec(visible.source, found)
    known = {name for n in range(1, 6) for name in select_parameters(f"0{n}")}
    expected = DEFAULTS | recipe
    assert {name: found[name] for name in known} == {n: expected[n] for n in known}
    for cell in others:
        is_folded = "source_hidden" in str(cell.metadata)
        assert is_folded == ("b64decode" in cell.source)


@pytest.mark.parametrize("name", ["日本", "Čaj & Käse", "2021", "long " * 30, "a"])
def test_every_name_makes_a_title_and_its_slug(tmp_path, name):
    """Title and slug have at most 50 characters, and belong together."""
    values = {"NAME": name, "INPUT_DIR": "tea-leaves"}
    kernels = []
    for settings in ({"parts": 12}, {}, {"accelerator": "NvidiaRtxPro6000"}):
        kernels += write_kernels(values, str(tmp_path), **settings)
    for kernel in kernels:
        _, metadata = read_kernel(kernel)
        assert to_slug(metadata["title"]) == metadata["id"].split("/")[1]
    assert len(set(kernels)) == 15
