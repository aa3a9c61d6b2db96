"""The hashes under which a batch of records goes into the key index.

Lives here: the hash of `topic#key` for every key of every record.
May not live here: finding the keys in a record (kourou.protocol.record_keys), the index itself.

State: soft, a cache of topics' hashes.

Java's string hash of a concatenation is hash(prefix) * 31^length + hash(rest) modulo 2^32, so each
topic is hashed once, and the keys of a batch in a few array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.protocol.hashing import index_hash_of, index_hashes_of, java_hash, java_hashes

SCALAR_KEYS_MAX = 3
"""So few keys are quicker hashed one by one than with arrays."""

_TOPICS_KNOWN_MAX = 65_536
_WRAP = 2**32

Int32s = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]


def _powers_of_31(count: int) -> UInt32s:
    powers = np.full(count, 31, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


_POWERS = _powers_of_31(PROPERTIES_SIZE_BYTES_MAX + 1)


class KeyHashes:
    """Computes hashes as the index stores them: not negative, 32 bits."""

    def __init__(self) -> None:
        self._prefixes: dict[bytes, int] = {}

    def of(
        self, topics: list[bytes], topic_ids: Longs | None, keys: list[list[bytes]]
    ) -> tuple[Int32s, Longs]:
        """For each key of the batch, in order: its hash, and the row of its record.

        `topic_ids` says for each record which of `topics` is its own; None if there is only one.
        """
        flat = list(chain.from_iterable(keys))
        counts = np.fromiter(map(len, keys), np.int64, len(keys))
        rows = np.arange(len(keys)).repeat(counts)
        if len(flat) <= SCALAR_KEYS_MAX:
            owners = [0] * len(flat) if topic_ids is None else topic_ids[rows].tolist()
            few = [self.one(topics[own], key) for own, key in zip(owners, flat, strict=True)]
            return np.asarray(few, np.int32), rows
        prefixes = np.asarray([self._prefix(topic) for topic in topics], np.uint32)
        own = prefixes[0] if topic_ids is None else prefixes[topic_ids][rows]
        values = java_hashes(flat).view(np.uint32) + own * _POWERS[_lengths(flat)]
        return index_hashes_of(values.view(np.int32)), rows

    def one(self, topic: bytes, key: bytes) -> int:
        """The same for one key."""
        text = key.decode("utf-8", "replace")
        length = len(key) if key.isascii() else _lengths([key])[0].item()
        value = (self._prefix(topic) * pow(31, length, _WRAP) + java_hash(text)) % _WRAP
        return index_hash_of(value - _WRAP if value >= _WRAP // 2 else value)

    def _prefix(self, topic: bytes) -> int:
        """The hash of `topic#`, without a sign."""
        value = self._prefixes.get(topic)
        if value is None:
            if len(self._prefixes) >= _TOPICS_KNOWN_MAX:
                self._prefixes.clear()
            value = java_hash(topic.decode("utf-8", "replace") + "#") % _WRAP
            self._prefixes[topic] = value
        return value


def _lengths(texts: Sequence[bytes]) -> Longs:
    """Lengths in UTF-16 code units, which is what Java counts."""
    if b"".join(texts).isascii():
        return np.fromiter(map(len, texts), np.int64, len(texts))
    units = [len(text.decode("utf-8", "replace").encode("utf-16-le")) // 2 for text in texts]
    return np.asarray(units, np.int64)
