"""Where we run and where things lie: signs of a TPU, Kaggle's mounts, templates of file names."""

import difflib
import glob
import os
import re
import string
import sys
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from kaggle_tfr.storage import check_inside, is_remote

KAGGLE_INPUT = "/kaggle/input"
KAGGLE_WORKING = "/kaggle/working"  # becomes output
KAGGLE_TEMP = "/kaggle/temp"  # does not
SUBMISSION = (
    "sample_submission.csv"  # as Kaggle calls it, and as work and part folders keep it
)
NO_INPUT = (
    "is neither a folder here nor a Kaggle input"  # which `push` looks for in a log
)
OWNER = "INSERT_USERNAME_HERE"  # as the client's own `init` commands write it
TEST_FOLDER = (
    "test/"  # of a part, so that the shards at its top all hold labelled records
)

ROOT = "/"  # of the folders sys and dev
GOOGLE = (
    "0x1ae0"  # PCI vendor, of network cards (class 0x02…) and disks (0x01…) as well
)

# Since 2026 Kaggle mounts by kind and owner as well: competitions/<slug>, datasets/<owner>/<slug>.
KINDS = ("competitions", "datasets", "datasets/*", "notebooks/*")

# What a shard's name can tell. Numbers count from 0, `part` from 1; `n` is how many files share
# the other fields, `count` how many records the file holds.
SHARD_FIELDS = ("name", "split", "fold", "part", "i", "n", "count")


def near_miss(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """' Did you mean "SEED"?' when a known word is close to `word`, else ''.

    >>> near_miss("sede", ["SEED", "QUALITY"]), near_miss("xyzzy", ["SEED", "QUALITY"])
    (' Did you mean "SEED"?', '')
    """
    upper = {str(name).upper(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=cutoff)
    return f' Did you mean "{upper[close[0]]}"?' if close else ""


def template_fields(template: str) -> list[str]:
    """The names of a template's fields, in their order."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(
            f"the template '{template}' cannot be read: {error}."
        ) from None
    return [field for _, field, *_ in parts if field is not None]


def check_template(template: str) -> None:
    """Raises a ValueError unless the template can name every shard of a plan, in its folder."""
    used = template_fields(template)
    if (
        unknown := next((field for field in used if field not in SHARD_FIELDS), None)
    ) is not None:
        known = f"{near_miss(unknown, SHARD_FIELDS)} It can use {{{'}, {'.join(SHARD_FIELDS)}}}."
        raise ValueError(
            f"SHARD_NAME '{template}' has the field '{{{unknown}}}'.{known}"
        )
    if "i" not in used:
        raise ValueError(
            f"SHARD_NAME '{template}' has no {{i}}, so names could repeat. Add {{i}}."
        )
    check_inside(template, f"SHARD_NAME '{template}'", f"with '{template}'")


def split_template(template: str, split: str, fold: int) -> str:
    """The template for a shard of that split and fold, which tells a test image's file by its name.

    Outside the folds a template without {split} has the split's name in place of its fold.

    >>> split_template("{name}-f{fold}-{i:03d}.tfrec", "test", -1)
    '{name}-test-{i:03d}.tfrec'
    >>> split_template("Id_df{i:02d}-{count}.tfrec", "test", -1)
    'test-Id_df{i:02d}-{count}.tfrec'
    """
    if fold >= 0 or "{split" in template:
        return template
    folder, slash, name = template.rpartition("/")
    told = re.sub(r"f?\{fold[^{}]*\}", split, template)
    return (
        f"{folder}{slash}test-{name}" if told == template and split == "test" else told
    )


def format_name(template: str, **fields: str | int) -> str:
    """The file name that a shard gets. Raises: ValueError: it leads out, as `name` may.

    >>> format_name("Id_df{i:02d}-{count}.tfrec", i=3, count=1427)
    'Id_df03-1427.tfrec'
    """
    path = template.format(**fields)
    setting = f"SHARD_NAME '{template}' with NAME '{fields.get('name', '')}'"
    check_inside(path, setting, f"with '{path}'")
    return path


def to_slug(text: str, tail: str = "") -> str:
    """The slug that Kaggle makes of a title; before a `tail` it is cut to 50 characters in all.

    >>> to_slug("Čassava leaves, part 1"), to_slug("Tea leaves", "tfrecords-plan")
    ('cassava-leaves-part-1', 'tea-leaves-tfrecords-plan')
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")
    return f"{slug[: 49 - len(tail)].strip('-')}-{tail}".strip("-") if tail else slug


def bundled(kind: str) -> Path:
    """The folder of our own "notebooks" or "recipes": in a wheel's package, beside a checkout's."""
    package = Path(__file__).resolve().parent
    inside = package / kind
    return inside if inside.is_dir() else package.parent / kind


def project_dir() -> Path:
    """The checkout's top folder when we run there or in its notebooks/, else the current folder."""
    here = Path.cwd()
    is_notebooks = here.name == "notebooks" and (here.parent / "kaggle_tfr").is_dir()
    return here.parent if is_notebooks else here


def work_dir(folder: str = "") -> str:
    """The folder for everything we make, absolute; a `gs://` address stays as it is.

    folder: "" is /kaggle/working on Kaggle, else work/; relative paths count from the project's.
    """
    if is_remote(folder):
        return folder.rstrip("/")
    if not folder and os.path.isdir(KAGGLE_WORKING):
        return KAGGLE_WORKING
    return os.path.abspath(project_dir() / Path(folder or "work").expanduser())


def find_input(source: str | os.PathLike[str]) -> str:
    """The existing folder that a path or a Kaggle slug stands for; `gs://` addresses stay as given.

    source: a path, a slug ("flowers"), or owner and slug ("me/flowers"); folders may follow.
    Raises: FileNotFoundError: with every path looked at; ValueError: an empty source.
    """
    source = os.fspath(source)
    if not source:
        raise ValueError(
            "The input is an empty name. Give a folder, a gs:// address or a slug."
        )
    if is_remote(source):
        return source.rstrip("/")
    path, slug = Path(source).expanduser(), source.strip("/")
    candidates = [str(path.absolute()), str((project_dir() / path).absolute())]
    if not path.is_absolute():  # likeliest first; the oldest mounts leave the owner out
        mounted = [slug, *(f"{kind}/{slug}" for kind in KINDS), slug.partition("/")[2]]
        candidates += [f"{KAGGLE_INPUT}/{name}" for name in mounted if name]
    candidates = list(dict.fromkeys(candidates))
    for candidate in candidates:
        # A folder may have "[1]" in its name, so only our own star, an owner's, is a pattern.
        matches = sorted(glob.glob(glob.escape(candidate).replace("/[*]/", "/*/")))
        # A mount that is not ready yet is an empty folder.
        if matches and not (
            candidate.startswith(KAGGLE_INPUT) and not os.listdir(matches[0])
        ):
            return matches[0]
    address, answer = _ask_kaggle(slug)
    if address:
        return address
    looked_in = "\n  ".join(["Looked in:", *candidates, answer])
    mend = "Attach the dataset to the notebook, or give an absolute path or a gs:// address."
    raise FileNotFoundError(f"'{source}' {NO_INPUT}. {looked_in}\n{mend}")


def _ask_kaggle(slug: str) -> tuple[str, str]:
    """(address or "", why there is none): Kaggle's own client, which its TPU machines have."""
    answer = f"KaggleDatasets().get_gcs_path('{slug}'): "
    try:
        from kaggle_datasets import KaggleDatasets
    except ImportError:
        return "", answer + "no kaggle_datasets here, so this is not a Kaggle session"
    names, reason = slug.split("/"), "no answer"
    for first, name in enumerate(
        names[:2]
    ):  # Kaggle wants the slug alone: also try without owner
        try:
            root = KaggleDatasets().get_gcs_path(name)
            address = "/".join([root.rstrip("/"), *names[first + 1 :]])
            # On a TPU machine it names a mount, without looking whether that is there.
            if is_remote(address) or os.path.isdir(address):
                return address, ""
            reason = f"'{address}', which does not exist"
        except Exception as error:  # noqa: BLE001  # Kaggle's client raises unrelated classes
            reason = f"{type(error).__name__}: {error}"
    return "", answer + reason


def count_cores() -> int:
    """The cores that this process may use: a container's quota and the affinity count.

    joblib.cpu_count() does the same; reading has to do without joblib.
    Source: Linux's documentation of control groups, versions 2 and 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    groups = Path(ROOT, "sys/fs/cgroup")
    files = ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]
    for names in files:
        with suppress(OSError, ValueError):  # "max": there is no quota
            texts = " ".join((groups / name).read_text() for name in names)
            quota, period = map(int, texts.split())
            if quota > 0 and period > 0:
                cores = min(cores, -(-quota // period))
    return max(cores, 1)


def find_tpu_signs() -> list[str]:
    """What tells of a TPU, by looking at files alone: the chip serves one process at a time.

    Source: JAX's `hardware_utils.py`, and Kaggle's TPU image, which sets ISTPUVM.
    """
    signs = ["ISTPUVM=1"] if os.environ.get("ISTPUVM") == "1" else []
    for vendor in sorted(Path(ROOT).glob("sys/bus/pci/devices/*/vendor")):
        kind = vendor.with_name("class")
        is_other = kind.is_file() and kind.read_text().startswith(("0x01", "0x02"))
        if vendor.read_text().strip() == GOOGLE and not is_other:
            signs.append(f"{vendor}: {GOOGLE}")
    for pattern in ("dev/accel[0-9]*", "dev/vfio/[0-9]*"):
        signs += sorted(map(str, Path(ROOT).glob(pattern)))
    return signs


def choose_backend() -> None:
    """Sets KERAS_BACKEND where it is unset: jax on a machine with a TPU, else tensorflow."""
    if "keras" not in sys.modules:  # which reads it once, on its import
        chosen = "jax" if find_spec("jax") and find_tpu_signs() else "tensorflow"
        if os.environ.setdefault("KERAS_BACKEND", chosen) == "jax":
            # TensorFlow only reads then, and would take all memory of a GPU.
            os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
