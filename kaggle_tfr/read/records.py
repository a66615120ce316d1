"""Read records by number, for PyTorch, grain and NumPy: TensorFlow is not needed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from kaggle_tfr.images.header import read_upright
from kaggle_tfr.images.masks import decode_mask
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.read.batches import choose_fold, list_folds, one_schema
from kaggle_tfr.records import ShardIndex, read_index
from kaggle_tfr.schema import read_values
from kaggle_tfr.shards import find_shards

if TYPE_CHECKING:
    from typing import SupportsIndex

    from kaggle_tfr.shards import Folders

Split = Literal["train", "validation", "test"]


class Records(Sequence[tuple[Any, Any]]):
    """The records of shards as a sequence: `image, label = records[number]`.

    It is a dataset for torch's `DataLoader` and a source for grain's `MapDataset`. It
    can be pickled. Each record that is read is verified by its checksum.

    image: uint8 (height, width, 3), red first. Images may differ in size.
    label: int, the class; float, a quantity; float32 (classes,) for several labels;
        uint8 (height, width, classes) for masks. Images of the test split usually have
        no label: the second value is then their id, str (an int if SCHEMA has made it
        one), or −1 if the records have no id either.
    classes: the names of the classes; their positions are the labels. () of quantities.
    """

    def __init__(
        self,
        parts: Folders | pd.DataFrame,
        *,
        split: Split | None = None,
        fold: int | None = None,
        decode: bool = True,
    ) -> None:
        """Find the shards, and read their indexes.

        parts: the folders that `find_shards` takes, or the table that it returns.
        split: None reads all shards, which then must have the same features.
        fold: where there are folds, the training and validation shards are those of
            `choose_fold`; None is fold 0. Test shards are not of any fold.
        decode: False returns the image as the bytes of its file, and masks as a tuple
            of their run-length codes, also bytes.
        Raises: ValueError: no shard has this split or fold, schemas differ, a shard is
        in GZIP or has no index; FileNotFoundError.
        """
        shards = parts if isinstance(parts, pd.DataFrame) else find_shards(parts)
        shards = _choose_shards(shards, split, fold)
        self.schema = one_schema(shards)
        self.classes = shards["labels"].iloc[0].classes
        self.decode = decode
        self.indexes = [_open_index(row) for row in shards.itertuples()]
        # The number of the first record of each shard, then the number of records.
        self.starts = list(accumulate(map(len, self.indexes), initial=0))

        # Without labels, as in the test split, the id takes their place: a submission
        # needs it. It is "" if there is none, which is not the name of a field.
        id_key = self.schema.key_of("image_id")
        label_keys = self.schema.label_keys or (id_key,)
        names = (self.schema.image_key, *label_keys)
        self._fields = [
            field
            for name in names
            for field in self.schema.fields
            if field.name == name
        ]

    def __len__(self) -> int:
        """Return the number of records in all shards."""
        return self.starts[-1]  # the last item is the total

    def __getitem__(self, number: SupportsIndex) -> tuple[Any, Any]:  # type: ignore[override]  # no slices
        """Return image and label of a record.

        The image is uint8 RGB (height, width, 3), or its file's bytes if `decode` is
        off. The label is a class, a quantity, flags or masks; the id without labels.
        number: from 0, or negative to count from the end.
        Raises: DamagedRecord (a ValueError): it names the shard and the byte;
        IndexError.
        """
        position = range(len(self))[number]  # 0 or more, or an IndexError
        shard = bisect(self.starts, position) - 1
        # An image that cannot be decoded raises an error in this block, which then
        # names the shard.
        with self.indexes[shard].open_record(position - self.starts[shard]) as features:
            values = read_values(features, self._fields)
            image = values.pop(self.schema.image_key)
            label = _join_labels(list(values.values()), self.schema.kind)
            if not self.decode:
                return image, label
            # A copy, because PyTorch warns about arrays that cannot be changed.
            pixels = read_upright(image).copy()
            if self.schema.kind == "masks":
                label = _decode_masks(label, pixels)
            return pixels, label


def _choose_shards(
    shards: pd.DataFrame, split: Split | None, fold: int | None
) -> pd.DataFrame:
    """Return the shards of a split, by `choose_fold` where there are folds.

    split: None for all shards. fold: None is fold 0; it does not matter for "test".
    Raises: ValueError: there is no such fold, or `fold` is given without `split`.
    """
    if split is None:
        if fold is not None:
            raise ValueError(f"fold is {fold}, but split is None, which has no folds.")
        return shards

    # Without folds there may be training shards alone, which `choose_fold` refuses.
    if split == "validation" or (split == "train" and len(list_folds(shards)) > 1):
        training, validation = choose_fold(shards, fold or 0)
        return training if split == "train" else validation

    return shards[shards["split"].map(SPLIT_NAMES) == split]


def _join_labels(labels: list[Any], kind: str) -> Any:
    """Return the label of an image from the values of its label fields.

    A class or a quantity is returned as it is; several labels as float32 (classes,);
    masks as a tuple of their run-length codes, bytes.
    labels: the values. [] gives −1. A single value in bytes is the id of an image
    without label, which becomes text.
    kind: "single", "multi", "masks" or "number".
    """
    if kind == "masks":
        return tuple(labels)
    if kind == "multi":
        return np.hstack(labels).astype(np.float32)
    label = labels[0] if labels else -1
    return label.decode(errors="replace") if isinstance(label, bytes) else label


def _decode_masks(codes: tuple[bytes, ...], pixels: np.ndarray) -> np.ndarray:
    """Return masks of 0 and 1, uint8 (height, width, classes), of the size of an image.

    codes: run-length codes, one for each class. pixels: of the image.
    """
    height, width, _ = pixels.shape
    masks = [decode_mask(code.decode(), height, width) for code in codes]
    return np.stack(masks, -1)


def _open_index(row: Any) -> ShardIndex:
    """Return the index of a shard, which finds its records, from its `.idx` file.

    row: of `find_shards`. Raises: ValueError: there is no index that fits the shard.
    """
    # The offset of each record, then the end of the last; [0] without a file.
    bounds = read_index(row.folder, row.file.removeprefix(f"{row.folder}/"))
    if len(bounds) != row.count + 1:
        raise ValueError(
            f"'{row.file}' has no index of its {row.count:,} records in index/. Copy "
            "the part's folder index/ as well, or read it with read_batches. A shard "
            "in GZIP has no index: write it with COMPRESSION = ''."
        )
    return ShardIndex(row.file, row.file, bounds)
