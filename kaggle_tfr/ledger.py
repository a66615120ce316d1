"""The running total of a part against its limit."""

import threading

from kaggle_tfr.plan import Shard


class Ledger:
    """What a part's shards may weigh: written + set aside for those under way ≤ limit, always."""

    def __init__(self, limit: int, written: int, coming: int) -> None:
        self.limit, self.written, self.coming = limit, written, coming
        self.set_aside, self.lock = 0, threading.Lock()

    def reserve(self, shard: Shard) -> int:
        """Bytes that the shard may grow to; 0 when it does not fit any more."""
        with self.lock:
            free = self.limit - self.written - self.set_aside
            spare = max(0, free - self.coming)
            self.coming -= shard.bytes_high
            if shard.bytes_high > free:
                return 0
            self.set_aside += shard.bytes_high + spare // 2
            return shard.bytes_high + spare // 2

    def settle(self, allowance: int, written: int) -> None:
        """Notes what a shard has become."""
        with self.lock:
            self.set_aside -= allowance
            self.written += written

    def explain(self, shard: Shard) -> str:
        """Why a shard does not fit any more."""
        return (
            f"part {shard.part} would pass its limit: its shards may take {self.limit:,} bytes, "
            f"those written take {self.written:,}, and shard {shard.number} may take "
            f"{shard.bytes_high:,}"
        )
