"""The command line: `kaggle-tfr COMMAND --help`."""

import argparse
import errno
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kaggle_tfr import __version__
from kaggle_tfr.mounts import copy_notebook, output_dir
from kaggle_tfr.parameters import (
    DESCRIPTION_COLUMN,
    NOTEBOOKS,
    choose_notebooks,
    find_notebook,
    format_parameters,
    list_recipes,
    list_steps,
    load_recipe,
    parse_value,
)
from kaggle_tfr.storage import DENIED, FIXES, is_remote

if TYPE_CHECKING:
    import pandas as pd

# What to do when the system rejects a file or folder.
_FIXES = FIXES | {
    **dict.fromkeys(DENIED, "Choose another folder, or allow writing there."),
    errno.EEXIST: "Name a new folder, or remove that one.",
    errno.ENOENT: "Check the name.",
}


class WrongCallError(Exception):
    """The command line or the recipe is wrong; nothing was done."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and which takes "-p NAME VALUE"."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **options, add_help=False)
        self.add_argument("-h", "--help", action="help", help="Print this help.")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the words of a call, see `argparse.ArgumentParser`."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args(_join_parameters(words), namespace)

    def error(self, message: str) -> NoReturn:
        """Raise a WrongCallError."""
        # Our own messages are sentences that contain what to do.
        is_sentence = message.endswith((".", "?"))
        advice = "" if is_sentence else f". For help, run: {self.prog} --help"
        raise WrongCallError(message + advice)


def _join_parameters(words: Sequence[str]) -> list[str]:
    """Return the words with each "-p NAME VALUE" as "-p NAME=VALUE".

    >>> _join_parameters(["-p", "FOLD", "-1", "-p", "SEED=7", "sample"])
    ['-p', 'FOLD=-1', '-p', 'SEED=7', 'sample']
    """
    joined = list[str]()
    for word in words:
        is_value = (
            joined[-2:-1] == ["-p"]
            and "=" not in joined[-1]
            and not word.startswith("--")
        )
        if is_value:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    0: done. 1: the work failed. 2: the call is wrong. 3: `audit` found something.
    130: stopped by Ctrl-C.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name may contain bytes that are not text.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        parser = make_parser()
        options = vars(parser.parse_args(arguments))
        function = options.pop("function", None)
        if function is None:
            parser.print_help()
            return 0
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


def _init(source: str, out: str | None) -> None:
    """Inspect a folder or Kaggle input and write a recipe for it."""
    from kaggle_tfr.explore.layout import write_recipe

    path, comments = write_recipe(source, out)
    command = f"kaggle-tfr run {shlex.quote(path)}"
    print(*comments, f"Written: {path}. Check it, then: {command}", sep="\n")


def _run(
    source: str,
    parameters: Sequence[str],
    only: Sequence[str],
    first: str | None,
    last: str | None,
) -> None:
    """Run the notebooks, which write folds and TFRecord files, and write a report."""
    from kaggle_tfr.driver import run_recipe

    if only and (first or last):
        raise WrongCallError("--only lists all steps: leave out --from and --until.")
    notebooks = only or _parse(choose_notebooks, first, last)
    changes = _parse_parameters(parameters)
    values = _load_source(source) | changes
    run_recipe(values, notebooks)


def _load_source(source: str) -> dict[str, Any]:
    """Return the parameters of a recipe; for a folder, make its recipe first."""
    is_recipe = source in list_recipes()
    # In a checkout, sample/ is the code that draws the sample.
    is_code = is_recipe and os.path.exists(f"{source}/__init__.py")
    if is_code or not os.path.isdir(source):
        return _parse(load_recipe, source)
    if is_recipe:
        raise WrongCallError(
            f"'{source}' is a folder here and also a bundled recipe. Write {source}/ "
            f"for the folder, or recipes/{source}.yaml for the recipe."
        )
    from kaggle_tfr.explore import layout

    folder, name, _ = layout.locate(source)
    path = f"{name}.yaml"
    if os.path.lexists(path):
        values = _parse(load_recipe, path)
        input_dir = values.get("INPUT_DIR", "")
        if not input_dir or output_dir(input_dir) != folder:
            raise WrongCallError(
                f"{path} exists, but its INPUT_DIR is '{input_dir}', not "
                f"'{folder}'. Write a recipe with another name: kaggle-tfr init "
                f"{shlex.quote(source)} -o RECIPE, and change its NAME."
            )
        print(f"{path} exists and is used; delete it to inspect the folder again.")
        return values
    _, comments = layout.write_recipe(source, path)
    print(*comments, f"Written: {path}.", sep="\n", flush=True)
    return load_recipe(path)


def _audit(
    source: str,
    out: str | None,
    against: Sequence[str],
    parameters: Sequence[str],
) -> int:
    """Find copies, leaks and rejected files in the splits that a dataset has."""
    from kaggle_tfr.audit import audit_dataset

    audit = audit_dataset(source, out, against, **_parse_parameters(parameters))
    page = Path(audit.out_dir, "audit.html").as_uri()  # terminals open it on a click
    print(audit.headline, *audit.findings, page, sep="\n")
    return 3 if audit.found else 0


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


def _notebooks(folder: str) -> None:
    """Copy the notebooks to a new folder."""
    os.makedirs(folder)
    for name in NOTEBOOKS:
        copy_notebook(name, folder)
    print(f"Copied to {folder}.")


def _sample(folder: str) -> None:
    """Write the bundled sample competition."""
    from kaggle_tfr_sample import write_sample

    write_sample(folder)
    print(f"The sample competition is in {folder}; its answers are in truth.json.")


def _kernel(recipe: str, parameters: Sequence[str], out: str, **options: Any) -> None:
    """Write the folders of kernels to push."""
    from kaggle_tfr.kaggle.kernels import write_kernels

    values = _parse(load_recipe, recipe) | _parse_parameters(parameters)
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


def _parse(function: Callable[..., Any], *words: Any) -> Any:
    """Return what a function makes of words of the call; its errors are wrong calls."""
    try:
        return function(*words)
    except (ValueError, OSError) as error:
        raise WrongCallError(_explain(error)) from None


def _parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of texts such as "SEED=7"."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongCallError(
                f"-p {text}: it takes a name and a value. Write -p NAME=VALUE."
            )
        values[name] = _parse(parse_value, name, value)
    return values


def _step(text: str) -> str:
    """Return the notebook of a step."""
    try:
        return find_notebook(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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


def make_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        "kaggle-tfr",
        description="Turn labelled images into TFRecord files with folds that can be "
        "trusted: plan first, write second.",
        epilog="examples:\n"
        "  kaggle-tfr run sample      # try it: about two minutes\n"
        "  kaggle-tfr run photos/     # class folders, or a train.csv and images\n"
        "  kaggle-tfr run --help      # its options, and all parameters\n\n"
        "Exit codes: 0 done, 1 the work failed, 2 a wrong call, 3 audit found "
        "something,\n130 Ctrl-C.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"kaggle-tfr {__version__}",
        help="Print the version.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add_command in (
        _add_init,
        _add_run,
        _add_audit,
        _add_verify,
        _add_notebooks,
        _add_sample,
        _add_kernel,
        _add_push,
        _add_publish,
    ):
        add_command(commands)
    return parser


def _add_command(
    commands: Any, function: Callable, examples: Sequence[str], appendix: str = ""
) -> Parser:
    """Add the command that has the function's name and docstring."""
    name = function.__name__.removeprefix("_")
    description = inspect.getdoc(function)
    lines = [f"  kaggle-tfr {name} {example}" for example in examples]
    command = commands.add_parser(
        name,
        help=description,
        description=description,
        epilog="\n".join(["examples:", *lines, "", appendix]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(function=function)
    return command


def _fit_terminal(parameters: str) -> str:
    """Return the list of parameters in lines that are not wider than the terminal.

    A description that is too long continues below its beginning.
    """
    wrap = partial(
        textwrap.fill,
        width=shutil.get_terminal_size().columns,
        subsequent_indent=" " * DESCRIPTION_COLUMN,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(map(wrap, parameters.splitlines()))


def _add_init(commands: Any) -> None:
    examples = ["photos/", "cassava-leaf-disease-classification -o cassava.yaml"]
    command = _add_command(commands, _init, examples)
    command.add_argument(
        "source",
        metavar="FOLDER_OR_SLUG",
        help="Folder with images, labels or shards, or the slug of a Kaggle input.",
    )
    command.add_argument(
        "-o",
        "--out",
        type=_path,
        metavar="RECIPE",
        help="Write the recipe to this new file (default: NAME.yaml).",
    )


def _add_run(commands: Any) -> None:
    examples = [
        "sample",
        "photos/",
        "photos.yaml --until plan",
        "photos.yaml --from 03 -p N_FOLDS=3",
    ]
    parameters = _fit_terminal(format_parameters())
    command = _add_command(commands, _run, examples, parameters)
    command.add_argument(
        "source",
        type=_path,
        metavar="RECIPE_OR_FOLDER",
        help='YAML file of parameters, a bundled recipe such as "sample", or a folder '
        "of images, which `init` writes a recipe for.",
    )
    _add_parameters(command)
    command.add_argument(
        "--from",
        dest="first",
        type=_step,
        metavar="STEP",
        help="Start at this step; the steps before it have run already.",
    )
    command.add_argument(
        "--until",
        dest="last",
        type=_step,
        metavar="STEP",
        help="Stop after this step (default: 05).",
    )
    command.add_argument(
        "--only",
        action="extend",
        nargs="+",
        type=_step,
        default=[],
        metavar="STEP",
        help=f"Run these steps only, by number or name: {list_steps()}.",
    )


def _add_audit(commands: Any) -> None:
    examples = [
        "photos/",
        "owner/dataset --out audit -p MAX_BITS=20",
        "photos/ --against owner/leaves-part-1",
    ]
    appendix = "Exit codes: 0 nothing found, 3 copies, conflicts or rejected files."
    command = _add_command(commands, _audit, examples, appendix)
    command.add_argument(
        "source",
        metavar="FOLDER_OR_SLUG",
        help="Folder with images, labels or shards, or the slug of a Kaggle input.",
    )
    command.add_argument(
        "--out",
        type=_path,
        metavar="FOLDER",
        help="Write the page, its Markdown and JSON, and the list of copies to this "
        "folder (default: audit-NAME).",
    )
    command.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="PART",
        help="Find the images that are also in this published part: a folder or a "
        "slug, of which only the fingerprints are read. Repeatable.",
    )
    _add_parameters(command)


def _add_recipe(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "recipe",
        type=_path,
        metavar="RECIPE",
        help='YAML file of parameters, or a bundled recipe such as "sample".',
    )
    _add_parameters(command)


def _add_parameters(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-p",
        action="append",
        default=[],
        dest="parameters",
        metavar="NAME=VALUE",
        help="Replace a parameter of the recipe, or of the layout that was found. "
        '"-p NAME VALUE" works too.',
    )


def _add_verify(commands: Any) -> None:
    command = _add_command(commands, _verify, ["work/sample", "work/sample/part-1"])
    command.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="Part that 04_write has written, or a folder of parts.",
    )


def _add_notebooks(commands: Any) -> None:
    command = _add_command(commands, _notebooks, ["mine"])
    command.add_argument(
        "folder", type=_path, metavar="FOLDER", help="Create this folder."
    )


def _add_sample(commands: Any) -> None:
    command = _add_command(commands, _sample, ["competition"])
    command.add_argument(
        "folder",
        type=_path,
        metavar="FOLDER",
        help="Write 13 MB to this folder, which is created if it is missing.",
    )


def _add_kernel(commands: Any) -> None:
    examples = ["cassava --out work/kernels", "cassava --out work/kernels --parts 3"]
    command = _add_command(commands, _kernel, examples)
    _add_recipe(command)
    command.add_argument(
        "--out",
        type=_path,
        required=True,
        metavar="FOLDER",
        help="Write the folders of the kernels to this folder.",
    )
    command.add_argument(
        "--parts",
        type=_positive,
        default=1,
        metavar="N",
        help="Write one kernel that plans, and N that write (default: one for all).",
    )
    command.add_argument(
        "--accelerator",
        default="",
        metavar="NAME",
        help="Write a kernel of 05 and 06 on TpuV5E8, NvidiaTeslaT4 …",
    )
    command.add_argument(
        "--source",
        action="append",
        default=[],
        dest="sources",
        metavar="SLUG",
        help='Attach "competition" or "owner/dataset" in place of INPUT_DIR.',
    )
    command.add_argument(
        "--no-internet",
        action="store_false",
        dest="internet",
        help="Install missing packages from an attached dataset of wheels.",
    )


def _add_push(commands: Any) -> None:
    command = _add_command(commands, _push, ["work/kernels --out work/kaggle"])
    command.add_argument(
        "folders",
        type=_path,
        nargs="+",
        metavar="FOLDER",
        help="Folder that `kernel --out` has written.",
    )
    command.add_argument(
        "--out",
        type=_path,
        default="work/kaggle",
        metavar="FOLDER",
        help="Write their output to this folder (default: work/kaggle).",
    )
    command.add_argument(
        "--at-once",
        type=_positive,
        default=3,
        metavar="N",
        help="Run at most N sessions at a time (default: 3).",
    )


def _add_publish(commands: Any) -> None:
    examples = ["work/kaggle/cassava-images-to-tfrecords/part-1"]
    command = _add_command(commands, _publish, examples)
    command.add_argument(
        "folders",
        type=_path,
        nargs="+",
        metavar="FOLDER",
        help="Part that 04_write has written.",
    )
    command.add_argument(
        "--notes",
        default="",
        metavar="TEXT",
        help="Say what is new, which allows a new version of a dataset.",
    )
    command.add_argument(
        "--public",
        action="store_true",
        help="Make the dataset visible to everyone (default: only to you).",
    )


if __name__ == "__main__":
    sys.exit(main())
