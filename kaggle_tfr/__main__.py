"""Turn labelled images into TFRecord files with folds that can be trusted.

Examples:
  kaggle-tfr run sample      # try it: about two minutes
  kaggle-tfr run photos/     # class folders, or a train.csv and images
  kaggle-tfr run --help      # its options, and all parameters

Exit codes: 0 done, 1 the work failed, 2 a wrong call, 3 audit found something,
130 Ctrl-C.
"""

import argparse
import inspect
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kaggle_tfr.find import bundled
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    NOTEBOOKS,
    WrongCallError,
    find_notebook,
    find_recipe,
    format_parameters,
    load_recipe,
    parse_assignment,
)
from kaggle_tfr.storage import ERRNO
from kaggle_tfr.version import __version__

REPEATABLE: Any = {"action": "append", "default": []}
ASSIGNMENTS: Any = {
    **REPEATABLE,
    "type": parse_assignment,
    "help": "NAME=VALUE, in place of the recipe's or the detected value",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code.

    0: done. 1: the work failed. 2: the call is wrong. 3: `audit` found something. 130:
    stopped by Ctrl-C.
    arguments: None for those of this process.
    Raises: SystemExit: by argparse: with 2 for a wrong call, with 0 after --help.
    """
    try:
        options = vars(make_parser().parse_args(arguments))
        # The other options have the names of the function's parameters.
        function = options.pop("function")
        return function(**options) or 0  # most functions return None
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        # Without "[Errno 2] " at the start of the text.
        print("error:", re.sub(ERRNO, "", str(error)), file=sys.stderr)
        return 2 if isinstance(error, WrongCallError) else 1
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130


def _init(source: str, out: str | None) -> None:
    """Inspect a folder or Kaggle input and write a recipe for it.

    Examples:
      kaggle-tfr init photos/
      kaggle-tfr init cassava-leaf-disease-classification -o cassava.yaml
    """
    from kaggle_tfr.explore.layout import write_recipe

    path, comments = write_recipe(source, out)
    print(*comments, f"Written: {path}. Next: kaggle-tfr run {path}", sep="\n")


def _run(
    source: str, p: list[Any], only: list[str] | None, first: str, until: str
) -> None:
    """Run the notebooks, which write folds and TFRecord files, and write a report.

    Examples:
      kaggle-tfr run sample
      kaggle-tfr run photos/
      kaggle-tfr run photos.yaml --until plan
      kaggle-tfr run photos.yaml --from 03 -p N_FOLDS=3
    """
    # SIGTERM ends the run as Ctrl-C does: its kernels end, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start = find_notebook(first)
    # The numbers in front of the names give the order. `--from 06` alone runs 06, too,
    # although `until` is 05 by default.
    end = max(start, find_notebook(until))
    notebooks = only or [name for name in NOTEBOOKS if start <= name <= end]
    values = load_source(source) | dict(p)  # p: pairs of name and value

    from kaggle_tfr.run import run_recipe  # which imports much

    run_recipe(values, notebooks)


def load_source(source: str) -> dict[str, Any]:
    """Return the parameters of a recipe, or of the recipe for a folder of images.

    The recipe for a folder is NAME.yaml in the current folder. An existing one is used
    as it is, but INPUT_DIR is always this folder; without one, it is written first.
    source: a YAML file, the name of a bundled recipe, or a folder.
    Raises: WrongCallError: the recipe cannot be used; OSError, ValueError: the folder
    has no images, or its layout is not clear.
    """
    # A bundled recipe comes before a folder of its name: "sample" is the recipe even in
    # a checkout, where sample/ is the code that draws the images.
    if not find_recipe(source).is_dir():
        return load_recipe(source)
    from kaggle_tfr.explore.layout import locate

    _, name, input_dir = locate(source)
    path = f"{name}.yaml"
    try:
        _init(source, path)
    except FileExistsError:
        print(f"{path} exists and is used; delete it to inspect the folder again.")
    # An existing recipe may have been written for another folder with the same name.
    return {**load_recipe(path), "INPUT_DIR": input_dir}


def _audit(source: str, out: str | None, against: list[str], p: list[Any]) -> int:
    """Find copies, leaks and rejected files in the splits that a dataset has.

    Examples:
      kaggle-tfr audit photos/
      kaggle-tfr audit owner/dataset --out audit -p MAX_BITS=20
      kaggle-tfr audit photos/ --against owner/leaves-part-1

    Exit codes: 0 nothing found, 3 copies, conflicts or rejected files.
    """
    from kaggle_tfr.audit import audit_dataset

    audit = audit_dataset(source, out, against, **dict(p))
    print(
        audit.headline,
        *audit.findings,
        Path(audit.out_dir, "audit.html").as_uri(),  # terminals open it on a click
        sep="\n",
    )
    return 3 if len(audit.copies) or audit.counts["rejected"] else 0


def _verify(folders: list[str]) -> int:
    """Read every record again and name every fault.

    Examples:
      kaggle-tfr verify work/sample
      kaggle-tfr verify work/sample/part-1
    """
    from kaggle_tfr.write.verify import verify_parts

    faults = verify_parts(folders).faults
    print(f"Every record was read and compared with the plan. Faults: {len(faults):,}.")
    if faults.empty:
        return 0
    print(faults.head(100).to_string(index=False))
    print("Run 04_write again. If a fault stays, remove the part and write it again.")
    return 1


def _notebooks(folder: str) -> None:
    """Copy the notebooks to a new folder.

    Examples:
      kaggle-tfr notebooks mine
    """
    generated = shutil.ignore_patterns("kernel.ipynb")
    shutil.copytree(bundled("notebooks"), folder, ignore=generated)
    print(f"Copied to {folder}.")


def _sample(folder: str) -> None:
    """Write the bundled sample competition.

    Examples:
      kaggle-tfr sample competition
    """
    from kaggle_tfr_sample import write_sample

    write_sample(folder)
    print(f"The sample competition is in {folder}; its answers are in truth.json.")


def _kernel(recipe: str, p: list[Any], out: str, **options: Any) -> None:
    """Write the folders of kernels to push.

    Examples:
      kaggle-tfr kernel cassava --out work/kernels
      kaggle-tfr kernel cassava --out work/kernels --parts 3
    """
    from kaggle_tfr.kaggle.kernels import write_kernels

    print(*write_kernels(load_recipe(recipe) | dict(p), out, **options), sep="\n")
    print(f"Next: kaggle-tfr push {out}")


def _push(folders: list[str], out: str, at_once: int) -> int:
    """Push kernels, wait for them, and fetch their output.

    Examples:
      kaggle-tfr push work/kernels --out work/kaggle
    """
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    kernels = [kernel for folder in folders for kernel in list_kernels(folder)]
    return _report(push_kernels(kernels, out, at_once=at_once))


def _publish(folders: list[str], **options: Any) -> int:
    """Upload part folders to Kaggle, one dataset each.

    Examples:
      kaggle-tfr publish work/kaggle/cassava-images-to-tfrecords/part-1
    """
    from kaggle_tfr.kaggle.upload import publish_parts

    return _report(publish_parts(folders, **options))


def _report(table: Any) -> int:
    """Print the problems of kernels or datasets; return the exit code, 1 for any.

    table: one row each, with the column `problem`: "" for none.
    """
    problems = list(filter(None, table["problem"]))
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with all commands.

    Its result has the function of the command as `function`, and its arguments.
    """
    parser = argparse.ArgumentParser(
        "kaggle-tfr",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=__version__)
    parser.set_defaults(function=parser.print_help)  # without a command
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_local_commands(commands)
    _add_kaggle_commands(commands)
    return parser


def _add_command(commands: Any, function: Callable, epilog: str = "") -> Any:
    """Add the command that has the function's name and docstring.

    Return the function that adds an argument to it. An argument is given to `function`
    by its name.
    commands: the object of argparse. epilog: text below the arguments in --help.
    """
    text = str(inspect.getdoc(function))
    command = commands.add_parser(
        function.__name__.strip("_"),
        help=text.partition("\n")[0],
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(function=function)
    return command.add_argument


def _add_local_commands(commands: Any) -> None:
    """Add the commands that work on this machine, in the order of use."""
    source = "folder with images, labels or shards, or the slug of a Kaggle input"

    add = _add_command(commands, _init)
    add("source", help=source)
    add("-o", "--out", help="the new recipe (default: NAME.yaml)")

    add = _add_command(commands, _run, format_parameters())
    add("source", help="a YAML file, a bundled recipe, or a folder of images")
    add("-p", **ASSIGNMENTS)  # any number of NAME=VALUE
    add("--from", dest="first", metavar="STEP", default=NOTEBOOKS[0])
    add("--until", metavar="STEP", default=DEFAULT_NOTEBOOKS[-1])
    add("--only", nargs="+", help=f"steps: {', '.join(NOTEBOOKS)}")

    add = _add_command(commands, _audit)
    add("source", help=source)
    add("--out", help="folder for the page and the tables (default: audit-NAME)")
    # REPEATABLE: the option can be given several times, each with one value.
    add("--against", **REPEATABLE, help="a published part; its fingerprints are read")
    add("-p", **ASSIGNMENTS)

    add = _add_command(commands, _verify)
    add("folders", nargs="+", help="parts that 04_write has written, or their folder")
    add = _add_command(commands, _notebooks)
    add("folder")
    add = _add_command(commands, _sample)
    add("folder", help="gets 13 MB")


def _add_kaggle_commands(commands: Any) -> None:
    """Add the commands that make kernels and datasets, in the order of use."""
    add = _add_command(commands, _kernel)
    add("recipe", help="a YAML file, or a bundled recipe")
    add("-p", **ASSIGNMENTS)  # any number of NAME=VALUE
    add("--out", required=True)
    add("--parts", type=int, default=1, help="kernels that write (default: one)")
    add("--accelerator", help="train by 05 and 06, on TpuV5E8 …")
    add("--source", **REPEATABLE, dest="sources", help="a slug, for INPUT_DIR")
    no_internet = "switch the internet off; attach all inputs"
    add("--no-internet", action="store_false", dest="internet", help=no_internet)

    add = _add_command(commands, _push)
    add("folders", nargs="+", help="folders that `kernel --out` has written")
    add("--out", default="work/kaggle", help="for their output (%(default)s)")
    add("--at-once", type=int, default=3, help="sessions at a time (%(default)s)")

    add = _add_command(commands, _publish)
    add("folders", nargs="+", help="parts that 04_write has written")
    add("--notes", default="", help="what is new, which allows a new version")
    add("--public", action="store_true")


if __name__ == "__main__":
    sys.exit(main())
