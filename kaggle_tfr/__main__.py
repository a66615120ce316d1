"""The command line: `python -m kaggle_tfr {sample,run,verify,kernel,push,publish} --help`."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kaggle_tfr.parameters import TABLE, load_recipe, parse_value

if TYPE_CHECKING:
    import pandas as pd

Given = list[tuple[str, str]]  # parameters on the command line: name, text


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when all went well, 1 when the work failed, 2 for a wrong call."""
    options = vars(_parser().parse_args(arguments))
    try:
        return options.pop("function")(**options) or 0
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _sample(folder: str) -> None:
    from kaggle_tfr.explore.sample import write_sample

    write_sample(folder)
    print(f"The sample competition lies in {folder}; its answers are in truth.json.")


def _run(recipe: str, parameters: Given, only: list[str]) -> None:
    from kaggle_tfr.notebook import USUAL, run_recipe, summarize

    print(summarize(run_recipe(_read_values(recipe, parameters), only or USUAL)))


def _verify(folders: list[str], jobs: int) -> int:
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.write.verify import verify_parts

    use_backend(jobs)
    faults = verify_parts(folders).faults
    if faults.empty:
        print("No fault: every record was read, parsed, decoded and compared with its plan.")
        return 0
    print(faults.to_string(index=False))
    print(f"{len(faults)} faults.", file=sys.stderr)
    return 1


def _kernel(recipe: str, parameters: Given, out: str, **choices: Any) -> None:
    from kaggle_tfr.kaggle.kernels import write_kernels

    print(*write_kernels(_read_values(recipe, parameters), out, **choices), sep="\n")
    print(f"Now: python -m kaggle_tfr push {out}")


def _push(folders: list[str], out: str, **pace: Any) -> int:
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    kernels = [kernel for folder in folders for kernel in list_kernels(folder)]
    return _report(push_kernels(kernels, out, **pace))


def _publish(folders: list[str], **choices: Any) -> int:
    from kaggle_tfr.kaggle.upload import publish_parts

    return _report(publish_parts(folders, **choices))


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
    return load_recipe(recipe) | {name: parse_value(name, text) for name, text in parameters}


def _parser() -> argparse.ArgumentParser:
    what = "Labelled images to TFRecord shards: plan first, write second."
    parser = argparse.ArgumentParser("python -m kaggle_tfr", description=what)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable, help_: str, **options: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_, description=help_, **options)
        command.set_defaults(function=function)
        return command

    recipe = argparse.ArgumentParser(add_help=False)
    recipe.add_argument("recipe", metavar="RECIPE", help="a YAML file of parameters")
    many: dict[str, Any] = {"action": "append", "nargs": 2, "default": []}
    what = "a parameter that overrides the recipe; may be given many times"
    recipe.add_argument("-p", dest="parameters", metavar=("NAME", "VALUE"), help=what, **many)
    sample = add("sample", _sample, "write the bundled sample competition")
    sample.add_argument("folder", metavar="DIR")
    lines = ["parameters, their defaults, and the notebooks that take them:"]
    for one in TABLE:
        said = one.help or ", ".join(one.choices)
        lines.append(f"  {one.name:16} {one.default!r:28} {one.notebooks:18} {said}".rstrip())
    form = {"epilog": "\n".join(lines), "formatter_class": argparse.RawDescriptionHelpFormatter}
    what = "run the notebooks with a recipe, keep executed copies"
    run = add("run", _run, what, parents=[recipe], **form)
    what = "some notebooks, such as 03 04, or 06 (default: 01 to 05)"
    run.add_argument("--only", nargs="+", metavar="NOTEBOOK", help=what)
    verify = add("verify", _verify, "read every record again and name every fault")
    verify.add_argument("folders", nargs="+", metavar="PART_DIR")
    verify.add_argument("--jobs", type=int, default=0, help="workers (default: one a core)")
    _add_kaggle_commands(add, recipe)
    return parser


def _add_kaggle_commands(
    add: Callable[..., argparse.ArgumentParser], recipe: argparse.ArgumentParser
) -> None:
    kernel = add("kernel", _kernel, "make folders for `kaggle kernels push -p`", parents=[recipe])
    kernel.add_argument("--out", required=True, metavar="DIR")
    what = "kernels that write (default: as WORK_DIR's plan says)"
    kernel.add_argument("--parts", type=int, default=0, help=what)
    kernel.add_argument("--owner", default="", help="your Kaggle name (default: push fills it in)")
    what = "a kernel of 05 and 06 on that machine, such as TpuV5E8 or NvidiaTeslaT4"
    kernel.add_argument("--accelerator", default="", metavar="NAME", help=what)
    what = 'an input to attach, "competition" or "owner/dataset" (default: INPUT_DIR)'
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "SLUG"}
    kernel.add_argument("--source", dest="sources", help=what, **many)
    kernel.add_argument("--no-internet", dest="internet", action="store_false")
    push = add("push", _push, "push kernels, wait for them, fetch what they made")
    push.add_argument("folders", nargs="+", metavar="DIR", help="what `kernel --out` made")
    push.add_argument("--out", default="work/kaggle", metavar="DIR", help="for what they made")
    push.add_argument("--at-once", type=int, default=3, help="sessions at a time")
    push.add_argument("--poll-seconds", type=float, default=60)
    publish = add("publish", _publish, "send part folders to Kaggle, a dataset each")
    publish.add_argument("folders", nargs="+", metavar="PART_DIR")
    publish.add_argument("--notes", default="", help="allows a new version, and says what is new")
    publish.add_argument("--public", action="store_true")


if __name__ == "__main__":
    sys.exit(main())
