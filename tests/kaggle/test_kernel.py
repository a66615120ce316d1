"""Kernels carry the package and all steps, and Kaggle's session runs them."""

import json
import lzma
import re
import subprocess
import time
from base64 import b64decode
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from slugify import slugify
from support.inputs import put
from support.kaggle_machine import make_environment, run_kernel
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401
from support.kernels import read_kernel
from support.plans import digests, make_images, two_parts, verify

from kaggle_tfr import build_dataset
from kaggle_tfr.find import OWNER_PLACEHOLDER
from kaggle_tfr.kaggle import session
from kaggle_tfr.kaggle.carrier import format_carrier
from kaggle_tfr.kaggle.kernels import write_kernels
from kaggle_tfr.kaggle.metadata import KERNEL_FILE
from kaggle_tfr.kaggle.upload import push_kernels
from kaggle_tfr.parameters import DEFAULTS, load_recipe, select_parameters
from kaggle_tfr.session import hours_left
from kaggle_tfr_sample import write_sample

PLANNER, WRITER = "tea-duplicates-leaks-folds", "tea-images-to-tfrecords-part"
FOLDED = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As Kaggle's image."""
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def make(tmp_path):
    """Write kernels; return the cells and the metadata of each."""

    def make(values, **settings):
        values = {"INPUT_DIR": "tea-leaves", **values}
        folders = write_kernels(values, str(tmp_path / "k"), **settings)
        return list(map(read_kernel, folders))

    return make


def list_sources(metadata):
    """Return what Kaggle is asked to attach to a kernel, by its type."""
    return {k: v for k, v in metadata.items() if k.endswith("_sources")}


def split_carrier(cells):
    """Return the files in the cell that carries the package, and the other cells."""
    [carrier] = [cell for cell in cells if "b64decode" in cell.source]
    text = carrier.source.split('"""')[1]
    return lzma.decompress(b64decode(text)), [cell for cell in cells if cell != carrier]


def test_the_headers_links_lead_to_headings(make):
    """In the page that nbconvert makes, as Kaggle does; each step has a link."""
    [(cells, _)] = make(load_recipe("cassava"))
    # Code has no heading, and takes time to be highlighted.
    texts = [cell for cell in cells if cell.cell_type == "markdown"]
    notebook = nbformat.v4.new_notebook(cells=texts)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    assert re.findall(r"\]\(#(\d)", cells[0].source) == [*"12345"]
    targets = set(re.findall(r'href="#(.*?)"', html))
    assert targets <= set(re.findall(r'id="(.*?)"', html))
    assert ".ipynb" not in html


def test_only_the_recipes_parameters_are_visible(make):
    """Run one after the other, the cells give every parameter the recipe's value."""
    recipe = load_recipe("sample")
    [((_, folded, visible, carrier, *others), _)] = make(recipe)

    assert folded.metadata == carrier.metadata == FOLDED
    assert FOLDED not in [cell.metadata for cell in others]
    assert visible.metadata == {"tags": ["parameters"]}
    found = {}
    exec(folded.source, found)
    assert found.keys().isdisjoint(recipe)
    exec(visible.source, found)
    names = {name for n in range(1, 6) for name in select_parameters(f"0{n}")}
    expected = DEFAULTS | recipe | {"WORK_DIR": "/kaggle/working"}
    assert {name: found[name] for name in names} == {n: expected[n] for n in names}


@pytest.mark.parametrize("name", ["日本", "Čaj & Käse", "long " * 30])
def test_every_name_makes_a_title_and_its_slug(make, monkeypatch, name):
    """Title and slug have at most 50 characters, and belong together.

    Kaggle's client makes the slug by python-slugify.
    """
    place = "kaggle_tfr.kaggle.cells.format_carrier"
    monkeypatch.setattr(place, str)  # it takes time
    kernels = []
    for settings in ({"parts": 12}, {"accelerator": "NvidiaRtxPro6000"}):
        kernels += make({"NAME": name}, **settings)
    for _, metadata in kernels:
        assert 6 <= len(metadata["title"]) <= 50
        assert metadata["id"] == f"{OWNER_PLACEHOLDER}/{slugify(metadata['title'])}"
    assert len({metadata["id"] for _, metadata in kernels}) == 14


def test_parts_are_a_planning_kernel_and_one_that_writes_for_each(make):
    """Three parts need four kernels; those that write have the plan as a source."""
    kernels = make({"NAME": "tea", "WORK_DIR": "/me"}, parts=3, internet=False)

    slugs = [PLANNER, *(f"{WRITER}-{number}-of-3" for number in (1, 2, 3))]
    assert [Path(metadata["id"]).name for _, metadata in kernels] == slugs
    planner = f"{OWNER_PLACEHOLDER}/{PLANNER}"
    cells, _ = kernels[0]
    assert re.findall(r"\]\(#(\d)", cells[0].source) == [*"123"]
    for number, (_, metadata) in enumerate(kernels):
        assert metadata.get("kernel_sources", []) == [planner][:number]
        assert metadata["competition_sources"] == ["tea-leaves"]
        assert metadata["is_private"]
        assert not metadata["enable_internet"]
    found = {}
    cells, _ = kernels[-1]
    exec(cells[2].source, found)
    assert found["WORK_DIR"] == "/kaggle/temp/work"
    assert found["OUT_DIR"] == "/kaggle/working"


@pytest.mark.parametrize(
    ("machine", "processor"), [("TpuV5E8", "tpu"), ("NvidiaTeslaT4", "gpu")]
)
def test_an_accelerator_s_kernel_reads_the_output_of_others(make, machine, processor):
    """Kaggle may replace the machine without a word: 06 requires the device.

    TFREC_DIRS replaces the output, a bucket or what Kaggle mounts; --source replaces
    both. WEIGHTS of Kaggle are attached; of a model, the first version.
    """
    values = {"NAME": "tea", "WEIGHTS": "imagenet"}
    [(cells, metadata)] = make(values, parts=2, accelerator=machine)

    assert metadata["machine_shape"] == machine
    assert metadata[f"enable_{processor}"]
    writers = [f"{WRITER}-1-of-2", f"{WRITER}-2-of-2"]
    outputs = [f"{OWNER_PLACEHOLDER}/{writer}" for writer in writers]
    assert list_sources(metadata) == {"kernel_sources": outputs}
    found = {}
    exec(cells[2].source, found)
    assert (found["TFREC_DIRS"], found["DEVICE"]) == (writers, processor)

    values = {"TFREC_DIRS": ["gs://tea/1", "/kaggle/input/notebooks/bob/tea"]}
    values["WEIGHTS"] = "models/ada/nets/keras/b0"
    [(_, metadata)] = make(values, accelerator=machine)
    sources = {"kernel_sources": ["bob/tea"], "model_sources": ["ada/nets/keras/b0/1"]}
    assert list_sources(metadata) == sources
    values["WEIGHTS"] = "ada/nets/b0.h5"
    [(_, metadata)] = make(values, sources=["bob/tea-1"], accelerator=machine)
    assert list_sources(metadata) == {"dataset_sources": ["ada/nets", "bob/tea-1"]}


def test_what_the_steps_read_is_attached(make):
    """A part may be a folder of a dataset, or its mount; a bucket needs no dataset.

    A plain name in MORE_INPUTS is a folder of the input. --source replaces the input.
    The error of a path of this machine says how to upload it.
    """
    parts = ["bob/parts/part-2", "/kaggle/input/datasets/bob/more/part-1", "gs://b/1"]
    values = {
        "INPUT_DIR": "/kaggle/input/competitions/tea-leaves/train",
        "MORE_INPUTS": [{"INPUT_DIR": "leaves"}, {"INPUT_DIR": "ada/more"}],
        "OVERRIDES": "ada/decisions/mine.csv",
        "FOLDS_FROM": "ada/folds",
        "COMPARE_WITH": parts,
    }
    others = ["ada/decisions", "ada/folds", "bob/more", "bob/parts"]

    [(_, metadata)] = make(values)
    assert list_sources(metadata) == {
        "competition_sources": ["tea-leaves"],
        "dataset_sources": sorted(["ada/more", *others]),
    }
    [(_, metadata)] = make(values, sources=["ada/tea"])
    assert list_sources(metadata) == {"dataset_sources": sorted(["ada/tea", *others])}
    for local in ({"INPUT_DIR": "/photos"}, {"OVERRIDES": "mine.csv"}):
        with pytest.raises(ValueError, match=r"not the name.*Upload it.*kaggle datas"):
            make({**values, **local})


def test_the_package_arrives_where_it_is_not_installed(environment, tmp_path):
    """It is in a private folder, and worker processes import it too."""
    worker = "import kaggle_tfr.kaggle as k; print(k.__file__)"
    script = f"{format_carrier()}\nimport subprocess\n"
    script += f"subprocess.run([sys.executable, '-c', '{worker}'])"
    printed = subprocess.check_output(
        [environment, "-"],
        input=script,
        env={"TMPDIR": str(tmp_path)},
        cwd="/",
        text=True,
    )
    (folder,) = tmp_path.glob("kaggle_tfr-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(folder / "kaggle_tfr/kaggle/__init__.py") in printed
    templates = {"header.md", "chapter.html", "report.js"}
    assert templates <= {path.name for path in folder.rglob("*.*")}


def test_the_checkouts_own_kernel_follows_its_sources(make, root):
    """`make kernel` has copied it; the metadata differ in the place of the notebook."""
    [(made, metadata)] = make(load_recipe("sample"))
    metadata["code_file"] = "notebooks/kernel.ipynb"
    assert json.loads((root / KERNEL_FILE).read_text()) == metadata
    path = root / "notebooks" / "kernel.ipynb"
    assert path.stat().st_size < 400_000
    kept = nbformat.read(path, as_version=4).cells
    is_current = split_carrier(made) == split_carrier(kept)
    assert is_current, "run: make kernel"


def test_kernels_write_the_parts_of_a_growth_by_their_numbers(
    make, tmp_path, monkeypatch
):
    """The kernels are made before the plan: the second of two writes part 4 of 3, 4.

    It begins with the output of its earlier session, and with the plan.
    """
    *_, (cells, _) = make({"NAME": "tea"}, parts=2)
    work = str(tmp_path / "plan")
    settings = {"n_shards": 12, "dataset_id": "a1", "first_part": 3}
    two_parts(make_images(tmp_path / "in", 24), work, **settings)
    copied = []
    monkeypatch.setattr(session, "copy_output", lambda *call: copied.append(call))

    names = {"WORK_DIR": work}
    exec(cells[4].source, names)

    assert copied == [(f"{WRITER}-2-of-2", "/kaggle/working"), (PLANNER, work)]
    assert names["PART"] == 4
    with pytest.raises(ValueError, match="--parts 2"):
        session.choose_part(work, 1, 3)


def test_hours_count_from_the_first_cell(monkeypatch):
    """A session has twelve hours, and no end outside Kaggle."""
    assert hours_left() == float("inf")
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    monkeypatch.setenv("KAGGLE_TFR_STARTED", str(time.time() - 3 * 3600))
    assert hours_left() == pytest.approx(12 - 0.75 - 3, abs=0.01)


def test_the_output_of_another_session_is_copied(tmp_path, monkeypatch):
    """Newer files stay; nothing happens where no output is attached."""
    monkeypatch.chdir(tmp_path)
    put("tea", [], dict.fromkeys(["part-1/a.tfrec", "hashes.parquet"], "older"))
    put("out", [], {"hashes.parquet": "newer"})
    session.copy_output("pea", "out")
    session.copy_output("tea", "out")
    assert digests("out").keys() == {"part-1/a.tfrec", "hashes.parquet"}
    assert Path("out/hashes.parquet").read_text() == "newer"


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_the_checkout_is_pushed_and_runs(kaggle, root, environment, tmp_path):
    """One file is pushed, which runs to its end, offline.

    It leaves shards that `verify` accepts.
    """
    push_kernels([str(root)], str(tmp_path / "got"))
    ((request,),) = kaggle.kernels.values()

    done = run_kernel(environment, request["text"], tmp_path / "working", {})

    assert done.returncode == 0, done.stderr[-3000:]
    assert verify(tmp_path / "working").faults.empty


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_three_parts_are_planned_written_and_fetched(kaggle, environment, tmp_path):
    """Byte for byte as a local run, though one kernel runs out of time.

    Then a kernel with an accelerator trains on their output.
    """
    write_sample(str(tmp_path / "leaves"))
    values = {"NAME": "tea", "PART_LIMIT_GB": 0.0045, "LICENSE": "CC0-1.0"}
    local = tmp_path / "local"
    folders = {"INPUT_DIR": str(tmp_path / "leaves"), "WORK_DIR": str(local)}
    build_dataset(**values, **folders)
    late = {f"{USER}/{WRITER}-2-of-3": {"KAGGLE_TFR_STARTED": "0"}}

    def run_session(request):
        slug = request["slug"]
        working = tmp_path / f"{slug}-{len(kaggle.kernels[slug])}"
        sources = request.get("kernelDataSources", [])
        inputs = {f"notebooks/{source}": kaggle.outputs[source] for source in sources}
        inputs["competitions/tea-leaves"] = tmp_path / "leaves"
        extra = late.pop(slug, {})
        done = run_kernel(environment, request["text"], working, inputs, **extra)
        kaggle.outputs[slug] = working
        kaggle.statuses[slug] = ["ERROR" if done.returncode else "COMPLETE"]

    kaggle.on_save = run_session
    values |= {"INPUT_DIR": "tea-leaves", "EPOCHS": 1, "DEVICE": "cpu"}
    kernels = str(tmp_path / "k")
    folders = write_kernels(values, kernels, parts=3)
    folders += write_kernels(values, kernels, parts=3, accelerator="NvidiaTeslaT4")
    for third, others in (("unfinished", 1), ("finished", 2)):
        done = push_kernels(folders, str(tmp_path / "got"), at_once=1)
        assert [*done.state] == ["finished", "finished", third, *["finished"] * others]
    assert [len(versions) for versions in kaggle.kernels.values()] == [1, 1, 2, 1, 1]

    for n in (1, 2, 3):
        arrived = tmp_path / "got" / f"{WRITER}-{n}-of-3" / f"part-{n}"
        assert digests(arrived) == digests(local / f"part-{n}")
    assert list(tmp_path.glob("got/tea-training-*/oof.npy"))
