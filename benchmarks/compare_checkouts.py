"""Compare what another revision and this checkout write for the same small inputs.

python -m benchmarks.compare_checkouts REVISION [--only NAME …] [--jobs N]
    [--backend NAME] [--folds-from-before] [--keep DIR] [--json]

Inputs are those of all recipes, the sample, and two datasets that grow twice. They are
drawn once. Each checkout runs its own recipes on them, in the same folder. All files of
a part and the tables of the work folder must have the same bytes, apart from those of
CONTENT, whose differing keys, columns or files are listed. A sign before a name means
that only the revision (-) or only this checkout (+) has it. In the table,
* is any number; --json prints all names. Exit code 1: bytes differ.

--folds-from-before: both checkouts take the folds that the revision draws, where they
draw folds differently. Images that come later to a dataset that grows are still drawn.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (
    "landmark-2021",
    "cassava",
    "imagenet",
    "clouds",
    "petals",
    "flowers",
    "petals-tfrecords",
)
GROWN = {"grown-csv": "sample", "grown-folders": "flowers"}  # with their recipes
DATASETS = (*SEEDS, "sample", *GROWN)
# LIMIT in the runs of a grown dataset. In the second, rows of the first are gone.
GROWTH = (75, 110, 0)
# What is compared, in the work folder of each run.
FILES = (
    "*/folds.csv",
    "*/duplicates.parquet",
    "*/leaks.csv",
    "*/labels.json",
    "*/plan.json",
    "*/hashes.parquet",
    "*/mean_rgb/*",
    "*/part-*/**/*",
)
CONTENT = (
    "plan.json",
    "stats.json",
    "hashes.parquet",
    "dataset-metadata.json",
    "SHA256SUMS",
)
# It is run at the top of a checkout, whose package and recipes it uses.
DRIVER = """
import json, sys
from kaggle_tfr import build_dataset
from kaggle_tfr.parameters import load_recipe
for recipe, changes in json.loads(sys.argv[1]):
    build_dataset(**load_recipe(f"recipes/{recipe}.yaml") | changes)
"""


def draw_input(name, folder):
    """Write the small input of a dataset."""
    sys.path.append(str(ROOT / "tests"))
    from support.chain import make_input, write_small_sample

    if name in SEEDS:
        make_input(name, folder)
        return
    write_small_sample(folder)
    if name == "grown-folders":
        sample = folder.rename(folder.with_name("sample-of-folders"))
        rows = pd.read_csv(sample / "train.csv", dtype=str).set_index("image_id")
        for photo in (sample / "train_images").iterdir():
            label = rows["label"].get(photo.name, "unknown")
            (folder / label).mkdir(parents=True, exist_ok=True)
            photo.rename(folder / label / photo.name)


def list_runs(name, scratch, values, folds_from=""):
    """Return the recipe of each run over a dataset, and the parameters to change.

    values: parameters of all runs. folds_from: FOLDS_FROM of the first run.
    """
    runs = []
    for number, limit in enumerate(GROWTH if name in GROWN else (0,), 1):
        changes = {
            "INPUT_DIR": f"{scratch}/inputs/{name}",
            "WORK_DIR": f"{scratch}/work/{name}/{number}",
            "LIMIT": limit,
            "FOLDS_FROM": folds_from,
            **values,
            # Those of the sample name images that LIMIT leaves out.
            "OVERRIDES": "",
            "COMPARE_WITH": [],
        }
        runs.append((GROWN.get(name, name), changes))
        folds_from = changes["WORK_DIR"]
    return runs


def run_checkout(checkout, runs):
    """Run a checkout's package. Raises: RuntimeError: it failed."""
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(runs)],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{checkout} failed:\n{run.stderr[-3000:]}")


def write_outputs(revision, names, scratch, values, *, folds_from_before):
    """Write the outputs of both checkouts to before/ and after/."""
    reference = scratch / "checkout"
    archive = f"{reference}.tar"
    git = ["git", "archive", f"--output={archive}", revision]
    subprocess.run(git, cwd=ROOT, check=True)
    shutil.unpack_archive(archive, reference, filter="data")

    runs = []
    for name in names:
        draw_input(name, scratch / "inputs" / name)
        runs += list_runs(name, scratch, values)

    if folds_from_before:
        run_checkout(reference, runs)
        work = (scratch / "work").rename(scratch / "drawn")
        runs = []
        for name in names:
            folds_csv = str(work / name / "1" / "folds.csv")
            runs += list_runs(name, scratch, values, folds_csv)

    # This checkout is first, since it is the one that may fail.
    for checkout, output in ((ROOT, "after"), (reference, "before")):
        run_checkout(checkout, runs)
        (scratch / "work").rename(scratch / output)


def flatten(value, key, leaves):
    """Add the lists of values in nested JSON to `leaves`, by keys such as "a.b"."""
    values = leaves.setdefault(key, [])
    if isinstance(value, dict):
        for name, item in value.items():
            flatten(item, f"{key}.{name}".lstrip("."), leaves)
    elif isinstance(value, list):
        for item in value:
            flatten(item, key, leaves)
    else:
        values.append(value)
    return leaves


def read_content(path):
    """Return the values of a file by their keys, columns, or files."""
    if path.suffix == ".json":
        return flatten(json.loads(path.read_text()), "", {})
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        return {name: f"{table[name].dtype} {table[name].tolist()}" for name in table}
    return dict(line.split(maxsplit=1)[::-1] for line in path.read_text().splitlines())


def read_files(folder):
    """Return the content or the sha256 of each file that is compared, by its name."""
    files = {}
    for pattern in FILES:
        for path in filter(Path.is_file, folder.glob(pattern)):
            name = path.relative_to(folder).as_posix()
            if path.name in CONTENT:
                files[name] = read_content(path)
            else:
                files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def list_differences(before, after):
    """Return the names whose values differ, with a sign if one side lacks it."""
    gone = [f"-{name}" for name in before if name not in after]
    new = [f"+{name}" for name in after if name not in before]
    common = before.keys() & after.keys()
    changed = [name for name in common if before[name] != after[name]]
    return sorted([*gone, *new, *changed])


def compare_outputs(before, after):
    """Return the count of files, those that differ, and the keys of CONTENT's."""
    before_files = read_files(before)
    after_files = read_files(after)
    different = []
    content = {}
    for name in list_differences(before_files, after_files):
        if isinstance(before_files.get(name), dict):
            content[name] = list_differences(before_files[name], after_files[name])
        else:
            different.append(name)
    n_files = len(before_files | after_files)
    return {"files": n_files, "different": different, "content": content}


def summarize(names):
    """Return the names with * for numbers, each once."""
    return " ".join(dict.fromkeys(re.sub(r"\d+", "*", name) for name in names))


def print_table(results):
    """Print the counts of each dataset, what differs, and the keys of CONTENT."""
    files_by_keys = {}
    print(f"{'dataset':18} {'files':>5} {'equal':>5}  different")
    for dataset, result in results.items():
        names = [*result["different"], *result["content"]]
        n_equal = result["files"] - len(names)
        print(f"{dataset:18} {result['files']:5} {n_equal:5}  {summarize(names)}")
        for file, keys in result["content"].items():
            group = files_by_keys.setdefault(summarize(keys), [])
            group.append(f"{dataset}/{file}")
    for keys, files in files_by_keys.items():
        print(f"\n{summarize(files)}:\n    {keys}")


def main():
    """Run both checkouts; print a table, or the results of each dataset as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="of git, such as HEAD~3")
    parser.add_argument("--only", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--jobs", type=int, default=0, help="N_JOBS of all runs")
    backends = ("threading", "loky", "dask")
    parser.add_argument("--backend", choices=backends, default="threading")
    parser.add_argument("--folds-from-before", action="store_true")
    parser.add_argument("--keep", help="an empty folder, which stays")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    values = {"N_JOBS": options.jobs, "BACKEND": options.backend}
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(options.keep or temporary).absolute()
        write_outputs(
            options.revision,
            options.only,
            scratch,
            values,
            folds_from_before=options.folds_from_before,
        )
        for name in options.only:
            before = scratch / "before" / name
            results[name] = compare_outputs(before, scratch / "after" / name)

    if options.json:
        print(json.dumps(results))
    else:
        print_table(results)
    sys.exit(any(result["different"] for result in results.values()))


if __name__ == "__main__":
    main()
