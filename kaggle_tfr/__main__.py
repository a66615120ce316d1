"""The command line: `kaggle-tfr COMMAND --help`, or `python -m kaggle_tfr COMMAND --help`."""

import argparse
import errno
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from kaggle_tfr import __version__
from kaggle_tfr.mounts import bundled
from kaggle_tfr.naming import near_miss
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    check_address,
    format_parameters,
    load_recipe,
    parse_value,
)
from kaggle_tfr.storage import DENIED, explain_os_errors, is_remote
from kaggle_tfr.storage import FIXES as STORAGE_FIXES

if TYPE_CHECKING:
    import pandas as pd

Given = list[tuple[str, str]]  # parameters on the command line: name, text
# What to do where the system refuses a file or folder.
FIXES = STORAGE_FIXES | dict.fromkeys(
    DENIED, "Choose another folder, or allow to write there."
)
FIXES |= {
    errno.EEXIST: "Name a new folder, or remove that one.",
    errno.ENOENT: "Is the name right?",
}
FIXES |= {errno.ENOTDIR: "Choose another name: a file is in the place of a folder."}
FIXES |= {errno.EISDIR: "Choose another name: a folder is in the place of a file."}
EXIT_CODES = (
    "Exit codes: 0 done, 1 the work failed, 2 a wrong call, 130 stopped by Ctrl-C."
)


class WrongCallError(Exception):
    """The command line or the recipe is wrong; nothing was done."""


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 all went well, 1 the work failed, 2 a wrong call, 130 Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # a name may have bytes that are no text
    try:
        options = _read_call(sys.argv[1:] if arguments is None else arguments)
        return options.pop("function")(**options) or 0
    except WrongCallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {_explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the same command to go on", file=sys.stderr)
        return 130


def _explain(error: Exception) -> str:
    """The error's text; for one of the system its file and, where it is known, what to do."""
    if not isinstance(error, OSError) or error.filename is None:
        # What we raise has a whole text in place of the system's few words.
        return re.sub(r"^\[Errno \d+\] ", "", str(error))
    mend = FIXES.get(error.errno or 0, "")
    return f"{error.strerror}: '{error.filename2 or error.filename}'. {mend}".strip()


def _sample(folder: str) -> None:
    from kaggle_tfr.explore.sample import write_sample

    write_sample(folder)
    print(f"The sample competition lies in {folder}; its answers are in truth.json.")


def _init(source: str, out: str) -> None:
    from kaggle_tfr.explore.layout import write_recipe

    print(*write_recipe(source, out), sep="\n")


def _notebooks(folder: str) -> None:
    os.makedirs(folder)
    try:
        for path in sorted(bundled("notebooks").glob("0*.ipynb")):
            copy = os.path.join(folder, path.name)
            with explain_os_errors(copy):
                shutil.copyfile(path, copy)
    except BaseException:
        shutil.rmtree(folder)  # half of them would be in the next call's way
        raise
    print(f"Copied to {folder}.")


def _run(recipe: str, parameters: Given, only: list[str], *, dry_run: bool) -> None:
    from kaggle_tfr.driver import describe_run, find_notebooks, run_recipe, summarize

    notebooks = only or DEFAULT_NOTEBOOKS
    values = _read_values(recipe, parameters)
    with _wrong_call():
        find_notebooks(notebooks)
    if dry_run:
        print(describe_run(values, notebooks))
    else:
        print(summarize(run_recipe(values, notebooks), values.get("OUT_DIR", "")))


def _verify(folders: list[str]) -> int:
    _check_folders(folders)
    from kaggle_tfr.session import prepare
    from kaggle_tfr.write.verify import verify_parts

    prepare()  # TensorFlow starts without messages

    faults = verify_parts(folders).faults
    if faults.empty:
        print(
            "No fault: every record was read, parsed, decoded and compared with the plan."
        )
        return 0
    print(faults.to_string(index=False))
    print(f"{len(faults)} faults.", file=sys.stderr)
    return 1


def _kernel(recipe: str, parameters: Given, out: str, **choices: Any) -> None:
    from kaggle_tfr.kaggle.kernels import write_kernels

    print(*write_kernels(_read_values(recipe, parameters), out, **choices), sep="\n")
    print(f"Now: kaggle-tfr push {out}")


def _push(folders: list[str], out: str, at_once: int) -> int:
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    _check_folders(folders)
    kernels = [kernel for folder in folders for kernel in list_kernels(folder)]
    return _report(push_kernels(kernels, out, at_once=at_once))


def _publish(folders: list[str], **choices: Any) -> int:
    from kaggle_tfr.kaggle.upload import publish_parts

    _check_folders(folders)
    return _report(publish_parts(folders, **choices))


def _check_folders(folders: Sequence[str]) -> None:
    """Raises an OSError that names the first of these that is not a folder, here or in a bucket."""
    for folder in folders:
        check_address("PART_DIR", folder)
        if not is_remote(folder) and not os.path.isdir(folder):
            is_file = os.path.exists(folder)
            what = (
                f"'{folder}' is not a folder"
                if is_file
                else f"there is no folder '{folder}'"
            )
            raise FileNotFoundError(f"{what}. Is the name right?")


def _report(done: "pd.DataFrame") -> int:
    """The exit code, after the table and each problem in it were printed."""
    print()
    print(done.drop(columns="problem").to_string(index=False))
    wrong = done[done["problem"] != ""]
    for row in wrong.itertuples():
        print(f"error: {row.name}: {row.problem}", file=sys.stderr)
    return 0 if wrong.empty else 1


def _read_values(recipe: str, parameters: Given) -> dict[str, Any]:
    """The recipe's parameters, with those of the command line in place of its own."""
    with _wrong_call():
        if is_remote(recipe):
            scheme, _, path = recipe.partition("://")
            mend = (
                f"Write the plain path, '{path}'"
                if scheme == "file"
                else "Download the recipe"
            )
            raise ValueError(f"'{recipe}' is an address. {mend}.")
        if os.path.isdir(recipe):
            mend = f"Make one: kaggle-tfr init {shlex.quote(recipe)} -o recipe.yaml"
            raise ValueError(f"'{recipe}' is a folder, not a recipe. {mend}")
        values = load_recipe(recipe)
        for name, text in parameters:
            values[name] = parse_value(name, text)
    return values


@contextmanager
def _wrong_call() -> Iterator[None]:
    """Turns the errors of reading the call into a `WrongCallError`, which ends with exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise WrongCallError(_explain(error)) from None


def _read_call(words: Sequence[str]) -> dict[str, Any]:
    """The function of the command and its arguments, by their names."""
    return vars(_parser().parse_args(_join_parameters(words)))


def _join_parameters(words: Sequence[str]) -> list[str]:
    """The command line with each "-p NAME VALUE" written as "-p NAME=VALUE".

    >>> _join_parameters(["run", "sample", "-p", "N_FOLDS", "3", "-p", "FOLD=-1"])
    ['run', 'sample', '-p', 'N_FOLDS=3', '-p', 'FOLD=-1']
    """
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        joined.append(word)
        if word == "--":
            return joined + rest
        has_value = len(rest) > 1 and not re.match(r"--?[A-Za-z]", rest[1])
        if word == "-p" and has_value and "=" not in rest[0]:
            joined.append(f"{rest.pop(0)}={rest.pop(0)}")
    return joined


def _split_parameter(text: str) -> tuple[str, str]:
    """Name and value of "NAME=VALUE"."""
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(
            f"'{text}' has no value; write -p {text} VALUE"
        )
    return name, value


def _name(text: str) -> str:
    """The name of a file or folder, which is not empty: that would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def _local(text: str) -> str:
    """The name of a file or folder of this machine."""
    if is_remote(text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is an address; name a folder of this machine"
        )
    return _name(text)


def _positive(text: str) -> int:
    """The whole number, which is 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the near miss of a command."""

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += near_miss(found[1], re.findall(r"[\w-]+", found[2]))
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    what = "Labelled images to TFRecord shards: plan first, write second."
    parser = _Parser("kaggle-tfr", description=what, epilog=EXIT_CODES)
    parser.add_argument(
        "--version", action="version", version=f"kaggle-tfr {__version__}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str,
        function: Callable,
        help_: str,
        example: str,
        more: str = "",
        **options: Any,
    ) -> argparse.ArgumentParser:
        options |= {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "help": help_,
        }
        options["epilog"] = f"example:\n  kaggle-tfr {name} {example}\n\n{more}"
        command = commands.add_parser(name, description=help_, **options)
        command.set_defaults(function=function)
        return command

    sample = add(
        "sample", _sample, "write the bundled sample competition", "competition"
    )
    sample.add_argument(
        "folder", type=_local, metavar="DIR", help="made if missing; 18 MB"
    )
    what = "look at a folder, and write the recipe that fits it, with what is not sure"
    init = add(
        "init", _init, what, "cassava-leaf-disease-classification -o cassava.yaml"
    )
    what = "images, labels or shards: a folder, or an attached Kaggle input"
    init.add_argument("source", type=_name, metavar="FOLDER_OR_SLUG", help=what)
    what = "the recipe (default: recipe.yaml); none is overwritten"
    init.add_argument(
        "-o", "--out", type=_local, default="recipe.yaml", metavar="RECIPE", help=what
    )
    notebooks = add(
        "notebooks", _notebooks, "copy the notebooks out, to work with", "notebooks"
    )
    notebooks.add_argument("folder", type=_local, metavar="DIR", help="a new folder")
    what, recipe = (
        "run the notebooks with a recipe, keep executed copies",
        _recipe_options(),
    )
    run = add(
        "run", _run, what, "sample -p N_FOLDS 3", format_parameters(), parents=[recipe]
    )
    what = "some notebooks, such as 03 04, or 06 (default: 01 to 05)"
    run.add_argument("--only", nargs="+", metavar="NOTEBOOK", help=what)
    run.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and end"
    )
    verify = add(
        "verify", _verify, "read every record again, name every fault", "work/part-1"
    )
    help_ = "a part that 04_write wrote, or a folder of parts"
    verify.add_argument(
        "folders", type=_name, nargs="+", metavar="PART_DIR", help=help_
    )
    _add_kaggle_commands(add)
    return parser


def _recipe_options() -> argparse.ArgumentParser:
    recipe = argparse.ArgumentParser(add_help=False)
    what = 'a YAML file of parameters, or the name of a bundled one, such as "sample"'
    recipe.add_argument("recipe", type=_name, metavar="RECIPE", help=what)
    many: dict[str, Any] = {"action": "append", "default": [], "type": _split_parameter}
    what = 'a parameter that overrides the recipe, also as "-p NAME=VALUE"; may be given many times'
    recipe.add_argument(
        "-p", dest="parameters", metavar="NAME VALUE", help=what, **many
    )
    return recipe


def _add_kaggle_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    what, example = "make the folders of kernels to push", "cassava --out work/kernels"
    kernel = add("kernel", _kernel, what, example, parents=[_recipe_options()])
    kernel.add_argument(
        "--out",
        type=_local,
        required=True,
        metavar="DIR",
        help="a folder a kernel is made in",
    )
    what = "kernels that write, beside one that plans (default: one for all steps)"
    kernel.add_argument("--parts", type=_positive, default=1, help=what)
    what = "a kernel of 05 and 06 on that machine, such as TpuV5E8 or NvidiaTeslaT4"
    kernel.add_argument("--accelerator", default="", metavar="NAME", help=what)
    what = 'an input to attach, "competition" or "owner/dataset" (default: INPUT_DIR)'
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "SLUG"}
    kernel.add_argument("--source", dest="sources", help=what, **many)
    what = "for competitions that forbid it: what the image lacks comes in an attached dataset"
    kernel.add_argument(
        "--no-internet", dest="internet", action="store_false", help=what
    )
    what = "push kernels, wait for them, fetch what they made"
    push = add("push", _push, what, "work/kernels --out work/kaggle")
    push.add_argument(
        "folders",
        type=_local,
        nargs="+",
        metavar="DIR",
        help="what `kernel --out` made",
    )
    push.add_argument(
        "--out",
        type=_local,
        default="work/kaggle",
        metavar="DIR",
        help="for what they made",
    )
    push.add_argument(
        "--at-once", type=_positive, default=3, help="sessions at a time (default: 3)"
    )
    what = "send part folders to Kaggle, a dataset each"
    example = "work/kaggle/cassava-tfrecords/part-1"
    publish = add("publish", _publish, what, example)
    publish.add_argument(
        "folders",
        type=_local,
        nargs="+",
        metavar="PART_DIR",
        help="as 04_write makes them",
    )
    publish.add_argument(
        "--notes", default="", help="allows a new version, and says what is new"
    )
    what = "for everyone to see (default: for you alone)"
    publish.add_argument("--public", action="store_true", help=what)


if __name__ == "__main__":
    sys.exit(main())
