"""The command line: `kaggle-tfr COMMAND --help`."""

import argparse
import errno
import inspect
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kaggle_tfr import __version__
from kaggle_tfr.mounts import bundled
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    NOTEBOOK_NAMES,
    format_parameters,
    load_recipe,
    parse_value,
)
from kaggle_tfr.storage import DENIED, FIXES, is_remote

if TYPE_CHECKING:
    import pandas as pd

Parameters = Sequence[Sequence[str]]  # words of each -p

# What to do when the system rejects a file or folder.
_FIXES = FIXES | {
    **dict.fromkeys(DENIED, "Choose another folder, or allow writing there."),
    errno.EEXIST: "Name a new folder, or remove that one.",
    errno.ENOENT: "Check the name.",
}


class WrongCallError(Exception):
    """The command line or the recipe is wrong; nothing was done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    0: done. 1: the work failed. 2: the call is wrong. 130: stopped by Ctrl-C.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name may contain bytes that are not text.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = vars(make_parser().parse_args(arguments))
        function = options.pop("function")
        return function(**options) or 0
    except WrongCallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {_explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130


def _explain(error: Exception) -> str:
    """Return the error's text; for one of the system also its file and what to do."""
    if not isinstance(error, OSError) or error.filename is None:
        # Errors of this package have a whole sentence in place of the system's words.
        return re.sub(r"^\[Errno \d+\] ", "", str(error))
    file = error.filename2 or error.filename
    fix = _FIXES.get(error.errno or 0, "")
    return f"{error.strerror}: '{file}'. {fix}".strip()


def _sample(folder: str) -> None:
    """Write the bundled sample competition."""
    from kaggle_tfr.explore.sample import write_sample

    write_sample(folder)
    print(f"The sample competition is in {folder}; its answers are in truth.json.")


def _init(source: str, out: str) -> None:
    """Inspect a folder and write a recipe for it."""
    from kaggle_tfr.explore.layout import write_recipe

    print(*write_recipe(source, out), sep="\n")


def _notebooks(folder: str) -> None:
    """Copy the notebooks to a new folder."""
    os.makedirs(folder)
    for path in sorted(bundled("notebooks").glob("0*.ipynb")):
        shutil.copyfile(path, os.path.join(folder, path.name))
    print(f"Copied to {folder}.")


def _run(
    recipe: str, parameters: Parameters, only: Sequence[str], *, dry_run: bool
) -> None:
    """Run the notebooks with a recipe and keep the executed copies."""
    from kaggle_tfr.driver import describe_run, run_recipe, summarize

    values = _read_values(recipe, parameters)
    if dry_run:
        print(describe_run(values, only))
        return
    work_dir = run_recipe(values, only)
    print(summarize(work_dir, values.get("OUT_DIR", "")))


def _verify(folders: Sequence[str]) -> int:
    """Read every record again and name every fault."""
    from kaggle_tfr.write.verify import verify_parts

    faults = verify_parts(folders).faults
    if faults.empty:
        print(
            "No fault: every record was read, parsed, decoded and compared with the "
            "plan."
        )
        return 0
    print(faults.to_string(index=False))
    print(f"{len(faults)} faults.", file=sys.stderr)
    return 1


def _kernel(recipe: str, parameters: Parameters, out: str, **options: Any) -> None:
    """Write the folders of kernels to push."""
    from kaggle_tfr.kaggle.kernels import write_kernels

    values = _read_values(recipe, parameters)
    print(*write_kernels(values, out, **options), sep="\n")
    print(f"Next: kaggle-tfr push {out}")


def _push(folders: Sequence[str], out: str, at_once: int) -> int:
    """Push kernels, wait for them, and fetch their output."""
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    kernels = [kernel for folder in folders for kernel in list_kernels(folder)]
    return _report(push_kernels(kernels, out, at_once=at_once))


def _publish(folders: Sequence[str], **options: Any) -> int:
    """Upload part folders to Kaggle, one dataset each."""
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


def _read_values(recipe: str, parameters: Parameters) -> dict[str, Any]:
    """Return the parameters of a recipe, updated by those of the command line."""
    try:
        values = load_recipe(recipe)
        for words in parameters:
            name, text = _split_parameter(words)
            values[name] = parse_value(name, text)
    except (ValueError, OSError) as error:
        raise WrongCallError(_explain(error)) from None
    return values


def _split_parameter(words: Sequence[str]) -> Sequence[str]:
    """Return name and value of "-p NAME VALUE" or "-p NAME=VALUE".

    >>> _split_parameter(["SEED", "7"]), _split_parameter(["NAME=a=b"])
    (['SEED', '7'], ['NAME', 'a=b'])
    """
    pair = words if len(words) > 1 else words[0].split("=", 1)
    if len(pair) != 2:
        raise ValueError(
            f"-p {' '.join(words)}: it takes a name and a value. Write -p NAME VALUE "
            "or -p NAME=VALUE, after RECIPE."
        )
    return pair


def _path(text: str) -> str:
    """Check that a name is a path on this machine."""
    if not text or is_remote(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a path on this machine")
    return text


def _positive(text: str) -> int:
    """Return the integer, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "kaggle-tfr",
        description="Labelled images to TFRecord shards: plan first, write second.",
        epilog="Exit codes: 0 done, 1 the work failed, 2 a wrong call, 130 Ctrl-C.",
    )
    parser.add_argument(
        "--version", action="version", version=f"kaggle-tfr {__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add_command in (
        _add_sample,
        _add_init,
        _add_notebooks,
        _add_run,
        _add_verify,
        _add_kernel,
        _add_push,
        _add_publish,
    ):
        add_command(commands)
    return parser


def _add_command(
    commands: Any, function: Callable, example: str
) -> argparse.ArgumentParser:
    """Add the command that has the function's name and docstring."""
    name = function.__name__.removeprefix("_")
    description = inspect.getdoc(function)
    command = commands.add_parser(
        name,
        help=description,
        description=description,
        epilog=f"example:\n  kaggle-tfr {name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(function=function)
    return command


def _add_sample(commands: Any) -> None:
    command = _add_command(commands, _sample, "competition")
    command.add_argument("folder", type=_path, help="created if missing; 18 MB")


def _add_init(commands: Any) -> None:
    command = _add_command(
        commands, _init, "cassava-leaf-disease-classification -o cassava.yaml"
    )
    command.add_argument(
        "source",
        help="images, labels or shards: a folder, or an attached Kaggle input",
    )
    command.add_argument(
        "-o",
        "--out",
        type=_path,
        default="recipe.yaml",
        help="a new file (default: recipe.yaml)",
    )


def _add_notebooks(commands: Any) -> None:
    command = _add_command(commands, _notebooks, "notebooks")
    command.add_argument("folder", type=_path, help="a new folder")


def _add_run(commands: Any) -> None:
    example = f"sample -p N_FOLDS 3\n\n{format_parameters()}"
    command = _add_command(commands, _run, example)
    _add_recipe(command)
    command.add_argument(
        "--only",
        nargs="+",
        choices=NOTEBOOK_NAMES,
        default=DEFAULT_NOTEBOOKS,
        metavar="NOTEBOOK",
        help="for example 03 04, or 06 (default: 01 to 05)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="print what would be done"
    )


def _add_recipe(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "recipe",
        type=_path,
        help='a YAML file of parameters, or a bundled recipe such as "sample"',
    )
    command.add_argument(
        "-p",
        action="append",
        nargs="+",
        default=[],
        dest="parameters",
        metavar=("NAME", "VALUE"),
        help='replaces a parameter of the recipe, also as "-p NAME=VALUE"; repeatable',
    )


def _add_verify(commands: Any) -> None:
    command = _add_command(commands, _verify, "work/part-1")
    command.add_argument(
        "folders",
        nargs="+",
        help="a part that 04_write has written, or a folder of parts",
    )


def _add_kernel(commands: Any) -> None:
    command = _add_command(commands, _kernel, "cassava --out work/kernels")
    _add_recipe(command)
    command.add_argument("--out", type=_path, required=True, help="for the folders")
    command.add_argument(
        "--parts",
        type=_positive,
        default=1,
        help="kernels that write, beside one that plans (default: one for all steps)",
    )
    command.add_argument(
        "--accelerator",
        default="",
        help="a kernel of 05 and 06 on TpuV5E8, NvidiaTeslaT4 …",
    )
    command.add_argument(
        "--source",
        action="append",
        default=[],
        dest="sources",
        help='to attach: "competition" or "owner/dataset" (default: INPUT_DIR)',
    )
    command.add_argument(
        "--no-internet",
        action="store_false",
        dest="internet",
        help="missing packages come from an attached dataset of wheels",
    )


def _add_push(commands: Any) -> None:
    command = _add_command(commands, _push, "work/kernels --out work/kaggle")
    command.add_argument(
        "folders",
        type=_path,
        nargs="+",
        help="as `kernel --out` writes them",
    )
    command.add_argument(
        "--out",
        type=_path,
        default="work/kaggle",
        help="for their output (default: work/kaggle)",
    )
    command.add_argument(
        "--at-once", type=_positive, default=3, help="sessions at a time (default: 3)"
    )


def _add_publish(commands: Any) -> None:
    command = _add_command(commands, _publish, "work/kaggle/cassava-tfrecords/part-1")
    command.add_argument(
        "folders",
        type=_path,
        nargs="+",
        help="a part that 04_write has written",
    )
    command.add_argument(
        "--notes", default="", help="what is new: allows a new version of a dataset"
    )
    command.add_argument(
        "--public", action="store_true", help="visible to everyone (default: only you)"
    )


if __name__ == "__main__":
    sys.exit(main())
