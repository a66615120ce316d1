"""The command line: `python -m kaggle_tfr {sample,run,verify,kernel} --help`."""

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when all went well, 1 when the work failed, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        return options.function(options)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _sample(options: argparse.Namespace) -> int:
    from kaggle_tfr.sample import write_sample

    write_sample(options.folder)
    print(f"The sample competition lies in {options.folder}; its answers are in truth.json.")
    return 0


def _run(options: argparse.Namespace) -> int:
    from kaggle_tfr.driver import run_recipe, summarize
    from kaggle_tfr.recipe import load_recipe, parse_value

    values = load_recipe(options.recipe)
    values |= {name: parse_value(name, text) for name, text in options.parameters}
    folder = run_recipe(values, options.only) if options.only else run_recipe(values)
    print(summarize(folder))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from kaggle_tfr.progress import use_backend
    from kaggle_tfr.verify import verify_parts

    use_backend(options.jobs)
    faults = verify_parts(options.folders)
    if len(faults):
        print(faults.to_string(index=False))
        print(f"{len(faults)} faults.", file=sys.stderr)
        return 1
    print("No fault: every record was read, parsed, decoded and compared with its plan.")
    return 0


def _kernel(options: argparse.Namespace) -> int:
    from kaggle_tfr.kernel import write_kernels
    from kaggle_tfr.recipe import load_recipe, parse_value

    values = load_recipe(options.recipe)
    values |= {name: parse_value(name, text) for name, text in options.parameters}
    for folder in write_kernels(values, options.out):
        print(f"kaggle kernels push -p {folder}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kaggle_tfr",
        description="Labelled images to TFRecord shards: plan first, write second.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sample = commands.add_parser("sample", help="write the bundled sample competition")
    sample.add_argument("folder", metavar="DIR")
    sample.set_defaults(function=_sample)

    run = commands.add_parser("run", help="run the notebooks with a recipe, keep executed copies")
    _add_recipe(run)
    run.add_argument(
        "--only", nargs="+", metavar="NOTEBOOK", help="some notebooks, such as 03 04 (default: all)"
    )
    run.set_defaults(function=_run)

    verify = commands.add_parser("verify", help="read every record again and name every fault")
    verify.add_argument("folders", nargs="+", metavar="PART_DIR")
    verify.add_argument("--jobs", type=int, default=0, help="workers (default: one a core)")
    verify.set_defaults(function=_verify)

    kernel = commands.add_parser("kernel", help="make folders for `kaggle kernels push -p`")
    _add_recipe(kernel)
    kernel.add_argument("--out", required=True, metavar="DIR")
    kernel.set_defaults(function=_kernel)
    return parser


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML file of parameters")
    parser.add_argument(
        "-p",
        dest="parameters",
        action="append",
        nargs=2,
        default=[],
        metavar=("NAME", "VALUE"),
        help="a parameter that overrides the recipe; may be given many times",
    )


if __name__ == "__main__":
    sys.exit(main())
