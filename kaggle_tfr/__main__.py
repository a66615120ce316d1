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
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaggle_tfr import __version__
from kaggle_tfr.mounts import copy_notebook, output_dir
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    NOTEBOOKS,
    find_notebook,
    format_parameters,
    list_recipes,
    load_recipe,
    parse_value,
)

if TYPE_CHECKING:
    import pandas as pd

INPUT_HELP = "Folder with images, labels or shards, or the slug of a Kaggle input."


class WrongCallError(RuntimeError):
    """The command line or the recipe is wrong; nothing was done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    0: done. 1: the work failed. 2: the call is wrong, which argparse says by a
    SystemExit. 3: `audit` found something. 130: stopped by Ctrl-C.
    """
    # A file's name may contain bytes that are not text.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    words = sys.argv[1:] if arguments is None else arguments
    try:
        options = vars(make_parser().parse_args(join_parameters(words)))
        function = options.pop("function")
        return function(**options) or 0
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        # Errors of this package have a whole sentence in place of the system's words.
        text = re.sub(r"^\[Errno \d+\] ", "", str(error))
        print(f"error: {text}", file=sys.stderr)
        return 2 if isinstance(error, WrongCallError) else 1
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130


def join_parameters(words: Sequence[str]) -> list[str]:
    """Return the words of a call with each "-p NAME VALUE" as "-p NAME=VALUE".

    >>> join_parameters(["-p", "FOLD", "-1", "-p", "SEED=7", "sample"])
    ['-p', 'FOLD=-1', '-p', 'SEED=7', 'sample']
    """
    joined = list(words)
    for position, word in enumerate(joined, 1):
        pair = joined[position : position + 2]
        if word == "-p" and "=" not in "".join(pair[:1]):
            joined[position : position + 2] = ["=".join(pair)]
    return joined


def _parse(function: Callable[..., Any], *words: Any) -> Any:
    """Return what a function makes of words of the call; its errors are wrong calls."""
    try:
        return function(*words)
    except (ValueError, OSError) as error:
        raise WrongCallError(error) from None


def assignment(text: str) -> tuple[str, Any]:
    """Return the name and the value of a text such as "SEED=7"."""
    name, value = text.split("=", 1)
    return name, _parse(parse_value, name, value)


def _init(source: str, out: str | None) -> None:
    """Inspect a folder or Kaggle input and write a recipe for it.

    Examples:
      kaggle-tfr init photos/
      kaggle-tfr init cassava-leaf-disease-classification -o cassava.yaml
    """
    from kaggle_tfr.explore.layout import write_recipe

    path, comments = write_recipe(source, out)
    command = f"kaggle-tfr run {shlex.quote(path)}"
    print(*comments, f"Written: {path}. After a change: {command}", sep="\n")


def _run(
    source: str,
    parameters: Sequence[tuple[str, Any]],
    only: Sequence[str],
    first: str | None,
    last: str | None,
) -> None:
    """Run the notebooks, which write folds and TFRecord files, and write a report.

    Examples:
      kaggle-tfr run sample
      kaggle-tfr run photos/
      kaggle-tfr run photos.yaml --until plan
      kaggle-tfr run photos.yaml --from 03 -p N_FOLDS=3
    """
    from kaggle_tfr.driver import run_recipe

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    if only and (first or last):
        raise WrongCallError("--only lists all steps: leave out --from and --until.")
    start = first or NOTEBOOKS[0]
    end = last or max(start, DEFAULT_NOTEBOOKS[-1])
    notebooks = only or [name for name in NOTEBOOKS if start <= name <= end]
    if not notebooks:
        raise WrongCallError(f"{end} comes before {start}: no step is left to run.")
    run_recipe(_load_source(source) | dict(parameters), notebooks)


def _load_source(source: str) -> dict[str, Any]:
    """Return the parameters of a recipe; for a folder, make its recipe first."""
    # In a checkout, sample/ is the code that draws the sample.
    if not os.path.isdir(source) or source in list_recipes():
        return _parse(load_recipe, source)
    from kaggle_tfr.explore.layout import locate

    folder, name, _ = locate(source)
    path = f"{name}.yaml"
    if not os.path.lexists(path):
        _init(source, path)
        return load_recipe(path)
    print(f"{path} exists and is used; delete it to inspect the folder again.")
    values = _parse(load_recipe, path)
    if output_dir(values.get("INPUT_DIR", "")) != folder:
        raise WrongCallError(
            f"{path} exists, but its INPUT_DIR is not '{folder}'. Write a recipe with "
            "another name by `kaggle-tfr init`, and change its NAME."
        )
    return values


def _audit(
    source: str,
    out: str | None,
    against: Sequence[str],
    parameters: Sequence[tuple[str, Any]],
) -> int:
    """Find copies, leaks and rejected files in the splits that a dataset has.

    Examples:
      kaggle-tfr audit photos/
      kaggle-tfr audit owner/dataset --out audit -p MAX_BITS=20
      kaggle-tfr audit photos/ --against owner/leaves-part-1

    Exit codes: 0 nothing found, 3 copies, conflicts or rejected files.
    """
    from kaggle_tfr.audit import audit_dataset

    audit = audit_dataset(source, out, against, **dict(parameters))
    page = Path(audit.out_dir, "audit.html").as_uri()  # terminals open it on a click
    print(audit.headline, *audit.findings, page, sep="\n")
    return 3 if audit.found else 0


def _verify(folders: Sequence[str]) -> int:
    """Read every record again and name every fault.

    Examples:
      kaggle-tfr verify work/sample
      kaggle-tfr verify work/sample/part-1
    """
    from kaggle_tfr.write.verify import verify_parts

    faults = verify_parts(folders).faults
    if faults.empty:
        print("No fault: every record was read and compared with the plan.")
        return 0
    print(faults.head(100).to_string(index=False))
    print(f"Faults: {len(faults):,}, of which at most 100 are listed.")
    return 1


def _notebooks(folder: str) -> None:
    """Copy the notebooks to a new folder.

    Examples:
      kaggle-tfr notebooks mine
    """
    os.makedirs(folder)
    for name in NOTEBOOKS:
        copy_notebook(name, folder)
    print(f"Copied to {folder}.")


def _sample(folder: str) -> None:
    """Write the bundled sample competition.

    Examples:
      kaggle-tfr sample competition
    """
    from kaggle_tfr_sample import write_sample

    write_sample(folder)
    print(f"The sample competition is in {folder}; its answers are in truth.json.")


def _kernel(
    recipe: str, parameters: Sequence[tuple[str, Any]], out: str, **options: Any
) -> None:
    """Write the folders of kernels to push.

    Examples:
      kaggle-tfr kernel cassava --out work/kernels
      kaggle-tfr kernel cassava --out work/kernels --parts 3
    """
    from kaggle_tfr.kaggle.kernels import write_kernels

    values = _parse(load_recipe, recipe) | dict(parameters)
    print(*write_kernels(values, out, **options), sep="\n")
    print(f"Next: kaggle-tfr push {out}")


def _push(folders: Sequence[str], out: str, at_once: int) -> int:
    """Push kernels, wait for them, and fetch their output.

    Examples:
      kaggle-tfr push work/kernels --out work/kaggle
    """
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    kernels = [kernel for folder in folders for kernel in list_kernels(folder)]
    return _report(push_kernels(kernels, out, at_once=at_once))


def _publish(folders: Sequence[str], **options: Any) -> int:
    """Upload part folders to Kaggle, one dataset each.

    Examples:
      kaggle-tfr publish work/kaggle/cassava-images-to-tfrecords/part-1
    """
    from kaggle_tfr.kaggle.upload import publish_parts

    return _report(publish_parts(folders, **options))


def _report(table: "pd.DataFrame") -> int:
    """Print a table of kernels or datasets and their problems; return the exit code."""
    print()
    print(table.drop(columns="problem").to_string(index=False))
    problems = table[table["problem"] != ""]
    for row in problems.itertuples():
        print(f"error: {row.name}: {row.problem}", file=sys.stderr)
    return 0 if problems.empty else 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "kaggle-tfr",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"kaggle-tfr {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    parser.set_defaults(function=parser.print_help)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_local_commands(commands)
    _add_kaggle_commands(commands)
    return parser


def _add_command(commands: Any, function: Callable) -> argparse.ArgumentParser:
    """Add the command that has the function's name and docstring."""
    description, _, examples = str(inspect.getdoc(function)).partition("\n\n")
    command = commands.add_parser(
        function.__name__.removeprefix("_"),
        help=description,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(function=function)
    return command


def _add_parameters(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-p",
        action="append",
        default=[],
        dest="parameters",
        type=assignment,
        metavar="NAME=VALUE",
        help="Replace a parameter of the recipe, or of the layout that was found. "
        '"-p NAME VALUE" works too.',
    )


def _add_local_commands(commands: Any) -> None:
    """Add the commands that work on this machine, in the order of use."""
    init = _add_command(commands, _init)
    init.add_argument("source", metavar="FOLDER_OR_SLUG", help=INPUT_HELP)
    init.add_argument(
        "-o",
        "--out",
        metavar="RECIPE",
        help="Write the recipe to this new file (default: NAME.yaml).",
    )

    run = _add_command(commands, _run)
    run.epilog = f"{run.epilog}\n\n{format_parameters()}"
    run.add_argument(
        "source",
        metavar="RECIPE_OR_FOLDER",
        help='YAML file of parameters, a bundled recipe such as "sample", or a folder '
        "of images, which `init` writes a recipe for.",
    )
    _add_parameters(run)
    run.add_argument(
        "--from",
        dest="first",
        type=partial(_parse, find_notebook),
        metavar="STEP",
        help="Start at this step; the steps before it have run already.",
    )
    run.add_argument(
        "--until",
        dest="last",
        type=partial(_parse, find_notebook),
        metavar="STEP",
        help="Stop after this step (default: 05).",
    )
    run.add_argument(
        "--only",
        action="extend",
        nargs="+",
        type=partial(_parse, find_notebook),
        default=[],
        metavar="STEP",
        help=f"Run these steps only, by number or name: {', '.join(NOTEBOOKS)}.",
    )

    audit = _add_command(commands, _audit)
    audit.add_argument("source", metavar="FOLDER_OR_SLUG", help=INPUT_HELP)
    audit.add_argument(
        "--out",
        help="Write the page, its Markdown and JSON, and the list of copies to this "
        "folder (default: audit-NAME).",
    )
    audit.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="PART",
        help="Find the images that are also in this published part: a folder or a "
        "slug, of which only the fingerprints are read. Repeatable.",
    )
    _add_parameters(audit)

    verify = _add_command(commands, _verify)
    verify.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Part that 04_write has written, or a folder of parts.",
    )
    notebooks = _add_command(commands, _notebooks)
    notebooks.add_argument("folder", help="Create this folder.")
    sample = _add_command(commands, _sample)
    sample.add_argument(
        "folder",
        help="Write 13 MB to this folder, which is created if it is missing.",
    )


def _add_kaggle_commands(commands: Any) -> None:
    """Add the commands that make kernels and datasets, in the order of use."""
    kernel = _add_command(commands, _kernel)
    kernel.add_argument(
        "recipe", help='YAML file of parameters, or a bundled recipe such as "sample".'
    )
    _add_parameters(kernel)
    kernel.add_argument(
        "--out", required=True, help="Write the folders of the kernels to this folder."
    )
    kernel.add_argument(
        "--parts",
        type=int,
        default=1,
        help="Write one kernel that plans, and so many that write (default: one for "
        "all).",
    )
    kernel.add_argument(
        "--accelerator",
        default="",
        help="Write a kernel of 05 and 06 on TpuV5E8, NvidiaTeslaT4 …",
    )
    kernel.add_argument(
        "--source",
        action="append",
        default=[],
        dest="sources",
        metavar="SLUG",
        help='Attach "competition" or "owner/dataset" in place of INPUT_DIR.',
    )
    kernel.add_argument(
        "--no-internet",
        action="store_false",
        dest="internet",
        help="Install missing packages from an attached dataset of wheels.",
    )

    push = _add_command(commands, _push)
    push.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Folder that `kernel --out` has written.",
    )
    push.add_argument(
        "--out",
        default="work/kaggle",
        help="Write their output to this folder (default: work/kaggle).",
    )
    push.add_argument(
        "--at-once",
        type=int,
        choices=range(1, 11),
        default=3,
        metavar="N",
        help="Run at most N sessions at a time (default: 3).",
    )

    publish = _add_command(commands, _publish)
    publish.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Part that 04_write has written.",
    )
    publish.add_argument(
        "--notes",
        default="",
        help="Say what is new, which allows a new version of a dataset.",
    )
    publish.add_argument(
        "--public",
        action="store_true",
        help="Make the dataset visible to everyone (default: only to you).",
    )


if __name__ == "__main__":
    sys.exit(main())
