"""The house: imports go down only, and the heavy libraries live where they belong."""

import ast
import subprocess
import sys

import pytest

FLOORS = [
    [
        "names",
        "images",
        "hashes",
        "progress",
        "plots",
        "mounts",
        "masks",
        "carrier",
        "kaggle_client",
        "arrival",
    ],
    [
        "table",
        "duplicates",
        "folds",
        "parts",
        "plan",
        "schema",
        "recipe",
        "storage",
        "kaggle_rules",
    ],
    ["gallery", "pictures", "bundle"],
    ["writer", "verify", "reader", "stats"],
    ["driver", "kernel", "session", "push", "publish", "sample"],
    ["__main__"],
]
TENSORFLOW_ALLOWED = {"schema", "storage", "writer", "verify", "reader", "stats"}
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
    placed = [name for floor in FLOORS for name in floor]

    assert len(placed) == len(set(placed))
    assert set(modules(root)) - {"__init__"} == set(placed)


def test_imports_go_down_only(root):
    """
    A module imports from floors below its own, so there can be no circle.
    """
    height = {name: level for level, floor in enumerate(FLOORS) for name in floor}
    for name, path in modules(root).items():
        for other in own_imports(path):
            assert height[other] < height[name], f"{name} imports {other}"


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
