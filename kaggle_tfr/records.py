"""The records of shards by number, through the index files beside them, without TensorFlow."""

import operator
from typing import SupportsIndex

import numpy as np
import pandas as pd

from kaggle_tfr import storage


class Records:
    """Random access to serialized records: `len(records)`, `records[number]`, from 0.

    What grain's `MapDataset.source` and torch's `DataLoader` ask for. It can be pickled; a process
    that only reads from it needs no TensorFlow.
    """

    def __init__(self, shards: pd.DataFrame) -> None:
        """shards: of `find_shards`. Raises: ValueError: one is in GZIP, or lacks its index."""
        from kaggle_tfr.shards import read_index

        frames: list[tuple[int, int]] = []
        columns = shards[["file", "folder", "compression", "count"]]
        for file, folder, compression, count in columns.itertuples(index=False, name=None):
            if compression:
                mend = "Write it with COMPRESSION = '', or read it with read_batches."
                raise ValueError(f"'{file}' is in GZIP: no record can be found in it. {mend}")
            path = storage.join(folder, "index", f"{file[len(folder) :].lstrip('/')}.idx")
            index = read_index(path)
            if len(index) != count or -1 in index:
                mend = "Copy the part's folder index/ as well, or read it with read_batches."
                what = f"'{file}' has no index of its {count:,} records in '{path}'"
                raise ValueError(f"{what}. {mend}")
            frames += index.items()
        self.files = shards["file"].tolist()
        self.ends = np.cumsum(shards["count"].to_numpy(np.int64))  # the number behind each shard
        self.frames = np.array(frames, np.int64).reshape(-1, 2)  # offset and length, in bytes

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, number: SupportsIndex) -> bytes:
        """The serialized record. Raises: ValueError: its checksum does not fit; IndexError."""
        position = range(len(self))[operator.index(number)]
        shard = int(np.searchsorted(self.ends, position, side="right"))
        return storage.read_frame(self.files[shard], *self.frames[position].tolist())
