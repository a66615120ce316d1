"""The house: imports go down only, and the heavy libraries live where they belong."""

import ast
import subprocess
import sys

import pytest

# Each floor in the order of its imports: a module imports only what stands before it.
FLOORS = {
    "ground": """names mounts cluster progress pixels headers images masks hashes neighbours
        stratify sampling plots plan_plots gallery kaggle_folders carrier
        kaggle_client""",
    "first": """recipe buckets storage values fields labels sources listing schema table
        shards hashing duplicates secondlook clusters folds proof outcomes
        pictures parts plan journal ledger overview metadata tfds_metadata""",
    "second": """quiet decoding inventory reader training showcase stats likeness shard_files
        records planner frames writer verify""",
    "top": "sample session kaggle_rules bundle kernel push publish driver __main__",
}
TENSORFLOW_ALLOWED = {"schema", "storage", "buckets", *FLOORS["second"].split()}
TPU_MODULES = ["reader", "schema", "names", "mounts", "plots", "storage", "gallery", "recipe"]
LACKING_ON_TPU = ["fastprogress", "imagehash", "cv2", "sklearn", "faiss", "papermill", "dask"]


def imports(path):
    """Full names of all that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def modules(root):
    return {path.stem: path for path in sorted((root / "kaggle_tfr").glob("*.py"))}


def own_imports(path):
    for name in imports(path):
        if name.startswith("kaggle_tfr."):
            yield name.split(".")[1]


def test_every_module_has_a_floor(root):
    """
    No module stands outside the house, and none of the plan is missing.
    """
    placed = " ".join(FLOORS.values()).split()

    assert len(placed) == len(set(placed))
    assert set(modules(root)) - {"__init__"} == set(placed)


def test_imports_go_down_only(root):
    """
    A module imports only what stands before it, so there can be no circle.
    """
    order = " ".join(FLOORS.values()).split()
    for name, path in modules(root).items():
        for other in own_imports(path):
            assert order.index(other) < order.index(name), f"{name} imports {other}"


def test_the_ground_floor_stands_alone(root):
    """
    What lies on the ground needs neither TensorFlow nor any floor above.
    """
    ground = FLOORS["ground"].split()
    for name in ground:
        path = root / "kaggle_tfr" / f"{name}.py"
        assert set(own_imports(path)) <= set(ground), name
        assert not {full.split(".")[0] for full in imports(path)} & {"tensorflow", "keras"}, name


def test_tensorflow_lives_on_the_second_floor(root):
    """
    Nothing else imports TensorFlow, not even inside a function.
    """
    for name, path in modules(root).items():
        heavy = {full.split(".")[0] for full in imports(path)} & {"tensorflow", "keras"}
        assert not heavy or name in TENSORFLOW_ALLOWED, name


def test_the_package_itself_imports_nothing(root):
    """
    `import kaggle_tfr` costs nothing.
    """
    assert list(imports(root / "kaggle_tfr" / "__init__.py")) == []


@pytest.mark.parametrize("limit", [250])
def test_modules_stay_short(root, limit):
    """
    A newcomer reads any module in one sitting.
    """
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules(root).items()}

    assert {name: length for name, length in lengths.items() if length > limit} == {}


def test_functions_stay_short(root):
    """
    No function passes 40 lines, its docstring not counted.
    """
    long = []
    for name, path in modules(root).items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and body[-1].end_lineno - body[0].lineno >= 40:
                    long.append(f"{name}.{node.name}")
    assert long == []


def test_reading_needs_no_library_that_the_tpu_image_lacks(root):
    """
    With these libraries blocked, everything that notebook 05 uses can still be imported.
    """
    block = f"import sys\nfor name in {LACKING_ON_TPU}: sys.modules[name] = None\n"
    load = "\n".join(f"import kaggle_tfr.{name}" for name in TPU_MODULES)

    done = subprocess.run(
        [sys.executable, "-c", block + load], cwd=root, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
