"""The command line: `python -m kaggle_tfr {sample,run,verify,kernel,push,publish} --help`."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kaggle_tfr.parameters import TABLE, load_recipe, parse_value

if TYPE_CHECKING:
    import pandas as pd


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when all went well, 1 when the work failed, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        return options.function(options)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _sample(options: argparse.Namespace) -> int:
    from kaggle_tfr.explore.sample import write_sample

    write_sample(options.folder)
    print(f"The sample competition lies in {options.folder}; its answers are in truth.json.")
    return 0


def _run(options: argparse.Namespace) -> int:
    from kaggle_tfr.notebook import USUAL, run_recipe, summarize

    print(summarize(run_recipe(_read_values(options), options.only or USUAL)))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.write.verify import verify_parts

    use_backend(options.jobs)
    faults = verify_parts(options.folders).faults
    if faults.empty:
        print("No fault: every record was read, parsed, decoded and compared with its plan.")
        return 0
    print(faults.to_string(index=False))
    print(f"{len(faults)} faults.", file=sys.stderr)
    return 1


def _kernel(options: argparse.Namespace) -> int:
    from kaggle_tfr.kaggle.kernels import write_kernels

    names = ("parts", "owner", "sources", "internet", "accelerator")
    chosen = {name: getattr(options, name) for name in names}
    print(*write_kernels(_read_values(options), options.out, **chosen), sep="\n")
    print(f"Now: python -m kaggle_tfr push {options.out}")
    return 0


def _push(options: argparse.Namespace) -> int:
    from kaggle_tfr.kaggle.metadata import list_kernels
    from kaggle_tfr.kaggle.upload import push_kernels

    folders = [found for folder in options.folders for found in list_kernels(folder)]
    pace = {"at_once": options.at_once, "poll_seconds": options.poll_seconds}
    done = push_kernels(folders, options.out, **pace)
    return _report(done, done["state"] == "finished")


def _publish(options: argparse.Namespace) -> int:
    from kaggle_tfr.kaggle.upload import publish_parts

    names = ("notes", "public", "dir_mode", "poll_seconds")
    done = publish_parts(options.folders, **{name: getattr(options, name) for name in names})
    return _report(done, done["problem"] == "")


def _report(done: "pd.DataFrame", good: "pd.Series") -> int:
    print()
    print(done.drop(columns="problem").to_string(index=False))
    for row in done[~good].itertuples():
        print(f"error: {row.name}: {row.problem}", file=sys.stderr)
    return 0 if good.all() else 1


def _read_values(options: argparse.Namespace) -> dict[str, Any]:
    """The recipe's parameters, with those of the command line in place of its own."""
    values = load_recipe(options.recipe)
    return values | {name: parse_value(name, text) for name, text in options.parameters}


def _parser() -> argparse.ArgumentParser:
    what = "Labelled images to TFRecord shards: plan first, write second."
    parser = argparse.ArgumentParser("python -m kaggle_tfr", description=what)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable, help_: str, **options: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_, description=help_, **options)
        command.set_defaults(function=function)
        return command

    sample = add("sample", _sample, "write the bundled sample competition")
    sample.add_argument("folder", metavar="DIR")
    lines = ["parameters, their defaults, and the notebooks that take them:"]
    for one in TABLE:
        said = one.help or ", ".join(one.choices)
        lines.append(f"  {one.name:16} {one.default!r:28} {one.notebooks:18} {said}".rstrip())
    form = {"epilog": "\n".join(lines), "formatter_class": argparse.RawDescriptionHelpFormatter}
    run = add("run", _run, "run the notebooks with a recipe, keep executed copies", **form)
    _add_recipe(run)
    what = "some notebooks, such as 03 04, or 06 (default: 01 to 05)"
    run.add_argument("--only", nargs="+", metavar="NOTEBOOK", help=what)
    verify = add("verify", _verify, "read every record again and name every fault")
    verify.add_argument("folders", nargs="+", metavar="PART_DIR")
    verify.add_argument("--jobs", type=int, default=0, help="workers (default: one a core)")
    _add_kaggle_commands(add)
    return parser


def _add_kaggle_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    kernel = add("kernel", _kernel, "make folders for `kaggle kernels push -p`")
    _add_recipe(kernel)
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
    what = "how sub-folders are sent"
    publish.add_argument("--dir-mode", default="tar", choices=["tar", "zip"], help=what)
    publish.add_argument("--poll-seconds", type=float, default=20)


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML file of parameters")
    many: dict[str, Any] = {"action": "append", "nargs": 2, "default": []}
    what = "a parameter that overrides the recipe; may be given many times"
    parser.add_argument("-p", dest="parameters", metavar=("NAME", "VALUE"), help=what, **many)


if __name__ == "__main__":
    sys.exit(main())
