"""What becomes of each image: written, dropped as a duplicate or a conflict, or refused."""

from collections.abc import Mapping

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.table import account


def save_clusters(clusters: pd.DataFrame, work_dir: str) -> None:
    """Writes duplicates.parquet, which `find_clusters` gave."""
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> pd.DataFrame:
    """The table of duplicates.parquet, one row per image that has a twin.

    Raises:
        FileNotFoundError: 02_deduplicate has not run with this WORK_DIR.
    """
    path = storage.join(work_dir, "duplicates.parquet")
    if not storage.exists(path):
        raise FileNotFoundError(
            f"there is no '{path}'. Run 02_deduplicate with this WORK_DIR first."
        )
    return storage.read_parquet(path)


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The rows of `images` to write: good ones that no cluster drops.

    Gains `cluster` (int64), -1 for an image on its own; rows that share one must share a fold.
    """
    placed = images["image_id"].map(clusters.set_index("image_id")["cluster"])
    dropped = images["image_id"].isin(clusters.loc[~clusters["keep"], "image_id"])
    table = images.assign(cluster=placed.fillna(-1).astype("int64"))
    table = table[(images["problem"] == "") & ~dropped].reset_index(drop=True)
    table.attrs = dict(images.attrs)
    return table


def count_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; each is counted once: a refused one is in no cluster."""
    refused = int((images["problem"] != "").sum())
    dropped = clusters[~clusters["keep"]]
    conflicts = int(dropped["reason"].str.startswith("conflict").sum())
    return {
        "written": len(images) - refused - len(dropped),
        "duplicates dropped": len(dropped) - conflicts,
        "conflicts dropped": conflicts,
        "refused": refused,
    }


def close_accounts(planned: Mapping[str, int], shards: pd.DataFrame, n_planned: int, work_dir: str):
    """The table that a run ends with, also written to accounting.csv.

    planned: of `count_outcomes`, as plan.json keeps it. shards: columns count and refused.
    n_planned: images of the plan that belong to these shards.

    Raises:
        RuntimeError: images in are not images written, dropped or refused.
    """
    written, late = int(shards["count"].sum()), int(shards["refused"].sum())
    elsewhere = planned["written"] - int(n_planned)
    counts = {**planned, "written": written, "refused": planned["refused"] + late}
    counts |= {"in other parts": elsewhere} if elsewhere else {}
    table = account(counts, sum(planned.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table
