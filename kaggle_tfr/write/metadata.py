"""dataset-metadata.json: a part's title, page and license for Kaggle."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from kaggle_tfr.find import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.plan.plan import Plan
from kaggle_tfr.write.journal import DATASET_FILE, ShardRow, read_json, write_json

# The characters that begin something in Markdown, in a formula or in HTML.
MARKUP = re.compile(r"[\\`*_\[\]<>&|$~@]")
PAGE = jinja2.Template(
    Path(__file__).with_name("page.md").read_text(), trim_blocks=True
)


def escape_markdown(text: str) -> str:
    r"""Return a text as one line of Markdown that shows it as it is.

    >>> escape_markdown("`a`\n<img>")
    '\\`a\\` \\<img\\>'
    """
    return MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def renew_metadata(
    part_dir: str, plan: Plan, rows: Sequence[ShardRow], license_name: str
) -> None:
    """Write a part's dataset-metadata.json; keep what is in it but the description.

    The user may have changed the title, id and license that an earlier run wrote. rows:
    of the part's shards.
    license_name: Kaggle's name of a license; "" for the one in the file.
    """
    path = f"{part_dir}/{DATASET_FILE}"
    present = read_json(path)
    present.pop("description", None)
    if license_name:
        present["licenses"] = [{"name": license_name}]
    slug = Path(present.get("id", "")).name  # of "owner/slug"
    write_json(path, describe_dataset(plan, rows, slug) | present)


def describe_dataset(
    plan: Plan, rows: Sequence[ShardRow], slug: str = ""
) -> dict[str, Any]:
    """Return the content of a part's dataset-metadata.json, without a license.

    title, id (with a placeholder for the owner), description (Markdown), licenses ([]).
    rows: of its shards. slug: chosen by the user, "" for the default.
    Kaggle's titles and slugs have at most 50 characters.
    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md
    """
    shards = pd.DataFrame(rows)
    part = rows[0].part
    name = " ".join(plan.labels.name.split()) or "images"
    ending = "TFRecords"
    # Without a total: a dataset may grow, and its earlier parts are published. The
    # numbers of parts stop at 2 if there is only part 1.
    if plan.part_numbers.stop > 2:
        ending += f" part {part}"
    slug = slug or to_slug(name, ending.lower().replace(" ", "-"))
    page = PAGE.render(
        plan=plan,
        part=part,
        shards=shards,
        slug=slug,
        escape=escape_markdown,
    )
    return {
        "title": f"{name[: 49 - len(ending)]} {ending}",
        "id": f"{OWNER_PLACEHOLDER}/{slug}",
        "description": page,
        "licenses": [],
    }
