"""Kernels carry the package and all steps, and Kaggle's session runs them."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from support.inputs import put
from support.kaggle_machine import make_environment, run_kernel, run_python
from support.kaggle_server import USER, digest_all, fixture_kaggle  # noqa: F401
from support.kernels import read_kernel
from support.plans import digests, make_images, plan_images, two_parts

from kaggle_tfr import __version__, run, session
from kaggle_tfr.find import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.kaggle import kernels
from kaggle_tfr.kaggle import session as kaggle_session
from kaggle_tfr.kaggle.carrier import MODULES, format_carrier
from kaggle_tfr.kaggle.kernels import write_kernels
from kaggle_tfr.kaggle.metadata import KERNEL_FILE
from kaggle_tfr.kaggle.upload import push_kernels
from kaggle_tfr.parameters import load_recipe
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr_sample import write_sample

PLANNER, WRITER = "tea-duplicates-leaks-folds", "tea-images-to-tfrecords-part"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As Kaggle's image."""
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    """An environment without the packages that make notebooks."""
    lacking = ["nbformat", "papermill"]
    return make_environment(tmp_path_factory.mktemp("poor"), lacking)


def list_sources(folder):
    """Return what Kaggle is asked to attach to a kernel, by its kind."""
    _, metadata = read_kernel(folder)
    return {k: v for k, v in metadata.items() if k.endswith("_sources") and v}


def carried(cells):
    """Return the modules in the cell that carries the package, and the other cells."""
    (cell,) = [cell for cell in cells if "b64decode" in cell["source"]]
    data = b64decode(re.search(r'"""\n(.*?)\n"""', cell["source"], re.DOTALL).group(1))
    with zipfile.ZipFile(BytesIO(data)) as archive:
        modules = {name: archive.read(name) for name in archive.namelist()}
    return modules, [other for other in cells if other is not cell]


def run_cell(source, python=sys.executable, cwd="/"):
    return subprocess.run(
        [python, "-"],
        input=source,
        check=False,
        env=os.environ | {"TMPDIR": str(cwd), "PIP_NO_INDEX": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_parts_are_a_planning_kernel_and_one_that_writes_for_each(tmp_path):
    """Three parts need four kernels; those that write have the plan as a source."""
    values = {"NAME": "tea", "INPUT_DIR": "tea-leaves", "WORK_DIR": "/home/me"}
    folders = write_kernels(values, str(tmp_path), parts=3, internet=False)

    planner = f"{OWNER_PLACEHOLDER}/{PLANNER}"
    ids = [planner, *(f"{OWNER_PLACEHOLDER}/{WRITER}-{n}-of-3" for n in (1, 2, 3))]
    for number, folder in enumerate(folders):
        cells, metadata = read_kernel(folder)
        text = "".join(cell.source for cell in cells)
        assert metadata["id"] == ids[number]
        assert metadata.get("kernel_sources", []) == [planner][:number]
        assert metadata["competition_sources"] == ["tea-leaves"]
        assert not metadata["enable_internet"]
        assert (f"PART = {number}" in text) == (number > 0)
        assert "/home/me" not in text


def test_every_recipe_makes_a_kernel(root, tmp_path):
    """The recipes' own settings are such that Kaggle takes the kernel."""
    for path in sorted((root / "recipes").glob("*.yaml")):
        assert len(write_kernels(load_recipe(str(path)), str(tmp_path), parts=1)) == 1


@pytest.mark.parametrize(
    ("values", "settings", "sources", "dirs"),
    [
        (
            {"INPUT_DIR": "leaves"},
            {"parts": 2},
            {
                "kernel_sources": [
                    f"{OWNER_PLACEHOLDER}/{WRITER}-1-of-2",
                    f"{OWNER_PLACEHOLDER}/{WRITER}-2-of-2",
                ]
            },
            [f"{WRITER}-1-of-2", f"{WRITER}-2-of-2"],
        ),
        (
            {},
            {"sources": ["bob/tea-1"]},
            {"dataset_sources": ["bob/tea-1"]},
            ["bob/tea-1"],
        ),
        (
            {"TFREC_DIRS": ["gs://tea/1", "/kaggle/input/notebooks/bob/tea"]},
            {},
            {"kernel_sources": ["bob/tea"]},
            ["gs://tea/1", "/kaggle/input/notebooks/bob/tea"],
        ),
    ],
)
@pytest.mark.parametrize("machine", ["TpuV5E8", "NvidiaTeslaT4"])
def test_an_accelerator_s_kernel_reads_and_trains(  # noqa: PLR0917
    tmp_path, machine, values, settings, sources, dirs
):
    """05 and 06 read a dataset, a bucket, or the output of the kernels that write."""
    settings = settings | {"accelerator": machine}
    (folder,) = write_kernels({"NAME": "tea", **values}, str(tmp_path), **settings)
    cells, metadata = read_kernel(folder)

    assert metadata["id"] == f"{OWNER_PLACEHOLDER}/tea-training-on-{machine.lower()}"
    assert metadata["machine_shape"] == machine
    enabled = {name for name in ("enable_tpu", "enable_gpu") if metadata.get(name)}
    assert enabled == {"enable_tpu" if machine == "TpuV5E8" else "enable_gpu"}
    assert list_sources(folder) == sources
    assert any(f"TFREC_DIRS = {json.dumps(dirs)}" in cell.source for cell in cells)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        ({"INPUT_DIR": "/data/tea"}, {}, '"competition" or "owner/dataset"'),
        ({"INPUT_DIR": "gs://tea/leaves"}, {"internet": False}, "internet off"),
        ({}, {"parts": 2}, "bundled sample"),
        ({"OVERRIDES": "mine.csv"}, {}, "'mine.csv' is a file of this machine. Upl"),
        (
            {"LABEL_MAP": {f"class number {n}": n for n in range(60_000)}},
            {},
            "900,000.*dataset",
        ),
        (
            {"COMPARE_WITH": ["work/leaves/part-1"]},
            {},
            "is on this machine.*kaggle-tfr publish",
        ),
    ],
)
def test_what_a_kernel_could_not_use_is_refused(
    tmp_path, monkeypatch, values, settings, message
):
    """What is neither a folder here nor on Kaggle: the error asks for its name.

    It says how to publish a part that is on this machine.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work/leaves/part-1").mkdir(parents=True)
    with pytest.raises(ValueError, match=message):
        write_kernels(values, str(tmp_path / "k"), **settings)


@pytest.mark.parametrize(
    ("folder", "key", "attached"),
    [
        ("ada/tea/train", "dataset_sources", ["ada/tea"]),
        ("/kaggle/input/tea-leaves/train", "competition_sources", ["tea-leaves"]),
        ("/kaggle/input/competitions/tea", "competition_sources", ["tea"]),
    ],
)
def test_the_input_is_attached(tmp_path, folder, key, attached):
    """A slug, or what Kaggle mounts in a folder."""
    (made,) = write_kernels({"INPUT_DIR": folder}, str(tmp_path), parts=1)
    assert list_sources(made) == {key: attached}


def test_what_the_steps_read_beside_the_input_is_attached(tmp_path):
    """A part may be a folder of a dataset, or its mount; a bucket needs no dataset.

    Also where --source replaces the input. FOLDS_FROM is one name or several.
    """
    parts = [
        "ada/leaves",
        "bob/parts/part-2",
        "/kaggle/input/datasets/bob/more/part-1",
        "gs://bucket/part-1",
    ]
    values = {
        "INPUT_DIR": "tea-leaves",
        "OVERRIDES": "ada/decisions/mine.csv",
        "FOLDS_FROM": "ada/folds",
        "COMPARE_WITH": parts,
    }

    (made,) = write_kernels(values, str(tmp_path), sources=["ada/tea"])

    attached = "ada/decisions ada/folds ada/leaves ada/tea bob/more bob/parts"
    assert list_sources(made)["dataset_sources"] == attached.split()


def test_a_slug_is_what_kaggle_makes_of_a_title():
    """The same as python-slugify, which Kaggle's client compares with."""
    slugify = pytest.importorskip("slugify").slugify
    for title in ["Green tea, part 1", "Čaj & Käse", "a  b--c", "2021 Landmarks!"]:
        assert to_slug(title) == slugify(title)


def test_the_first_cell_knows_every_requirement(root):
    """The table is that of requirements.txt and of what the package imports."""
    text = (root / "requirements.txt").read_text()
    names = {*re.findall(r"^([\w-]+)", text, re.MULTILINE)}
    assert MODULES.keys() <= names

    sources = [path.read_text() for path in (root / "kaggle_tfr").rglob("*.py")]
    lines = re.compile(r"^ *(?:import|from) (\w+)", re.MULTILINE)
    imported = {name for source in sources for name in lines.findall(source)}
    others = (
        "cloudpickle dask distributed jupyter_client kaggle kagglehub nbconvert "
        "nbformat papermill traitlets kaggle_tfr kaggle_tfr_sample"
    )
    unknown = (
        imported - set(MODULES.values()) - sys.stdlib_module_names - set(others.split())
    )
    assert unknown == {"google", "keras", "jax"}  # these come with TensorFlow


def test_the_package_arrives_where_it_is_not_installed(poor, tmp_path):
    """It is in a private folder, and worker processes import it too.

    Its sha256 stands beside it.
    """
    cell = format_carrier({})
    worker = "import kaggle_tfr.kaggle as k; print(k)"
    damaged = run_cell(re.sub(r"\nUEs", "\nUFs", cell), poor, tmp_path)
    assert "The package in this cell is damaged" in damaged.stderr
    after = f"import subprocess\nsubprocess.run([sys.executable, '-c', '{worker}'])\n"
    after += "import kaggle_tfr.kaggle.session as s\nprint(s.__file__)"
    done = run_cell(f"{cell}\n{after}", poor, tmp_path)
    (folder,) = tmp_path.glob("kaggle_tfr-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert done.stdout.split()[-1] == str(folder / "kaggle_tfr/kaggle/session.py"), (
        done.stderr
    )
    assert str(folder / "kaggle_tfr/kaggle/__init__.py") in done.stdout


def write_wheel(folder, name, version, source):
    """Write a wheel of one module; `pip` does not need more."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in files)
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)


@pytest.mark.parametrize("version", [__version__, "0.0.1"])
def test_attached_wheels_bring_what_the_image_lacks(poor, tmp_path, version):
    """With the internet off, a dataset of wheels below /kaggle/input is enough.

    One of this version replaces the copy in the cell; another one is left alone.
    """
    source = "session = type('', (), {'prepare': print})\nsize = 'tiny'\n"
    write_wheel(tmp_path / "wheels", "kaggle_tfr", version, source)
    write_wheel(tmp_path / "wheels", "tinyleaf", "1.0", "colour = 'green'\n")
    script = format_carrier({"tinyleaf": "tinyleaf"})
    script += "\nimport tinyleaf\nsize = getattr(sys.modules['kaggle_tfr'], 'size', 0)"
    script += "\nprint(tinyleaf.colour, size)"
    attached = {"datasets/ada/w": tmp_path / "wheels"}
    done = run_python(poor, script, tmp_path / "out", attached)
    expected = ["green", "tiny" if version == __version__ else "0"]
    assert done.stdout.split()[-2:] == expected, done.stderr[-3000:]


def test_the_checkouts_own_kernel_follows_its_sources(root, tmp_path):
    """`make kernel` has written it from the notebooks and the package as they are."""
    kernels.write_own_kernel(str(tmp_path))
    assert (root / KERNEL_FILE).read_text() == (tmp_path / KERNEL_FILE).read_text()
    paths = [folder / "notebooks" / "kernel.ipynb" for folder in (tmp_path, root)]
    made, kept = (nbformat.read(path, as_version=4).cells for path in paths)
    (new, made), (old, kept) = carried(made), carried(kept)
    assert [n for n in new | old if new.get(n) != old.get(n)] == [], "run: make kernel"
    assert kept == made, "run: make kernel"


def test_kernels_write_the_parts_of_a_growth_by_their_numbers(tmp_path):
    """The kernels are made before the plan: the second of two writes part 4 of 3, 4."""
    values = {"NAME": "tea", "INPUT_DIR": "tea-leaves"}
    cells, _ = read_kernel(write_kernels(values, str(tmp_path / "k"), parts=2)[2])
    (opening,) = [cell for cell in cells if "copy_plan" in cell.source]
    work = str(tmp_path / "plan")
    settings = {"n_shards": 12, "dataset_id": "a1", "first_part": 3}
    two_parts(make_images(tmp_path / "in", 24), work, **settings)

    *_, line = opening.source.splitlines()
    names = {"session": kaggle_session, "WORK_DIR": work}
    exec(line, names)

    assert names["PART"] == 4
    with pytest.raises(ValueError, match="--parts 2"):
        kaggle_session.choose_part(work, 1, 3)


def test_hours_count_from_the_first_cell(monkeypatch):
    """A session has twelve hours, nine with a TPU, and no end outside Kaggle."""
    assert session.hours_left() == float("inf")
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    monkeypatch.setenv("KAGGLE_TFR_STARTED", str(time.time() - 3 * 3600))
    assert session.hours_left() == pytest.approx(12 - 0.75 - 3, abs=0.01)
    monkeypatch.setenv("ISTPUVM", "1")
    assert session.hours_left() == pytest.approx(9 - 0.75 - 3, abs=0.01)


def test_other_output_is_taken_up(tmp_path, monkeypatch):
    """The plan, and the output of this kernel's previous version, are copied.

    Kaggle's files are not, nor locks, and newer files stay. A kernel without a plan is
    an error.
    """
    monkeypatch.chdir(tmp_path)
    plan_images(make_images(tmp_path / "in", 24), tmp_path / "tea-plan")
    (tmp_path / "empty").mkdir()
    kaggle_session.copy_plan("tea-plan", "work")
    assert sorted(os.listdir("work")) == sorted(os.listdir("tea-plan"))
    with pytest.raises(FileNotFoundError, match=r"has no plan\.json"):
        kaggle_session.copy_plan("empty", "work")

    names = ["part-1/a.tfrec", "hashes.parquet", "custom.css", "run.lock"]
    put("tea", [], dict.fromkeys(names, "older"))
    put("out", [], {"hashes.parquet": "newer"})
    for name in ("tea", "pea"):
        kaggle_session.restore_previous_output(name, "out")
    assert digests("out").keys() == {"part-1/a.tfrec", "hashes.parquet"}
    assert Path("out/hashes.parquet").read_text() == "newer"


@pytest.fixture
def pushed(root, kaggle, tmp_path):
    """The notebook that Kaggle receives when the client pushes a fresh clone."""
    clone = tmp_path / "clone"
    if (root / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", str(root), str(clone)], check=True)
    else:
        shutil.copytree(root, clone, ignore=shutil.ignore_patterns(".venv*", "work"))
    text = (clone / KERNEL_FILE).read_text().replace("INSERT_USERNAME_HERE", USER)
    (clone / KERNEL_FILE).write_text(text)
    command = [sys.executable, "-m", "kaggle", "kernels", "push", "-p", str(clone)]
    assert "successfully pushed" in subprocess.check_output(command, text=True)
    ((request,),) = kaggle.kernels.values()
    assert len(request["text"].encode()) < 900_000
    return request["text"]


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_fresh_clone_is_pushed_and_runs(pushed, environment, tmp_path):
    """It runs to its end, and leaves shards that `verify` accepts."""
    done = run_kernel(environment, pushed, tmp_path / "working", {})
    assert done.returncode == 0, done.stderr[-3000:]
    part = tmp_path / "working" / "part-1"
    assert verify_parts(str(part)).faults.empty
    counts = write_sample(str(tmp_path / "sample"))["counts"]
    assert (
        pd.read_csv(part / "shards.csv")["count"].sum()
        == counts["written"] + counts["test"]
    )


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_an_accelerator_s_kernel_runs_on_an_attached_dataset(environment, tmp_path):
    """05 and 06 read the published part by its slug."""
    values = {"INPUT_DIR": "", "WORK_DIR": str(tmp_path / "local")}
    local = Path(run.run_recipe(values, ["01", "02", "03", "04"]))
    given = {"sources": ["ada/tea-1"], "accelerator": "TpuV5E8"}
    (folder,) = write_kernels({"EPOCHS": 1}, str(tmp_path / "k"), **given)
    text = (Path(folder) / "kernel.ipynb").read_text()
    attached = {"datasets/ada/tea-1": local / "part-1"}

    done = run_kernel(environment, text, tmp_path / "working", attached)

    assert done.returncode == 0, done.stderr[-3000:]
    made = {path.name for path in (tmp_path / "working").rglob("*") if path.is_file()}
    assert {"model-fold0.keras", "oof.npy"} <= made


@pytest.fixture
def sessions(kaggle, environment, tmp_path):
    """Let pushed kernels run as Kaggle would, with their output in the stub.

    Returns the variables of a kernel's first session, by slug.
    """
    variables = {}

    def run(request):
        slug = request["slug"]
        working = tmp_path / f"{slug}-{len(kaggle.kernels[slug])}"
        sources = request.get("kernelDataSources", [])
        inputs = {f"notebooks/{source}": kaggle.outputs[source] for source in sources}
        inputs["competitions/tea-leaves"] = tmp_path / "leaves"
        extra = variables.pop(slug, {})
        done = run_kernel(environment, request["text"], working, inputs, **extra)
        kaggle.outputs[slug] = working
        print(done.stderr[-3000:])
        kaggle.statuses[slug] = ["ERROR" if done.returncode else "COMPLETE"]

    def start(request):
        kaggle.statuses[request["slug"]] = ["RUNNING"]
        threading.Thread(target=run, args=[request]).start()

    kaggle.on_save = start
    return variables


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_three_parts_are_planned_written_and_fetched(kaggle, sessions, tmp_path):
    """Byte for byte as a local run, though one kernel runs out of time."""
    write_sample(str(tmp_path / "leaves"))
    values = {"NAME": "tea", "PART_LIMIT_GB": 0.0045, "LICENSE": "CC0-1.0"}
    values["INPUT_DIR"] = str(tmp_path / "leaves")
    work = {"WORK_DIR": str(tmp_path / "local")}
    local = Path(run.run_recipe(values | work, ["01", "02", "03", "04"]))
    assert len(list(local.glob("part-*"))) == 3

    values["INPUT_DIR"] = "tea-leaves"
    folders = write_kernels(values, str(tmp_path / "k"), parts=3)
    sessions[f"{USER}/{WRITER}-2-of-3"] = {"KAGGLE_TFR_STARTED": "0"}
    for third in ("unfinished", "finished"):
        done = push_kernels(folders, str(tmp_path / "got"), at_once=1)
        assert list(done.state) == ["finished", "finished", third, "finished"]
    assert [len(versions) for versions in kaggle.kernels.values()] == [1, 1, 2, 1]

    for n in (1, 2, 3):
        arrived = tmp_path / "got" / f"{WRITER}-{n}-of-3" / f"part-{n}"
        assert digests(arrived) == digests(local / f"part-{n}")
