"""Sends that arrive twice: found, and answered with the original's place.

Lives here: which repeats are looked for, and how the original is recognised.
May not live here: storing (engine.appends), the answer's shape (engine.sending).

State: soft (the window of retried keys); the originals themselves are found in the log by its key
index, so a restart loses nothing. What the index does not have yet is looked through record by
record: after a stall both attempts may lie in one turn's inbox, and after a full disk the index is
behind until it has read the log again. A broker without an index knows no others.

A producer that heard no answer sends the same message again with the same unique key and says that
this is its second attempt. Only such attempts are looked up, so a first attempt costs nothing. One
case is left: the first attempt can be delayed in the network until after the second was stored. The
keys of stored second attempts are therefore remembered for as long as a request may live, and while
any are remembered, first attempts are compared with them.

A sender that does not know whether somebody sent the message before (a gateway whose caller asks
again) numbers its first attempt 0: that is looked up as well, and not remembered, since no earlier
attempt of its own can be on the way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kourou.engine.ports import StoreView
from kourou.errors import Rejected
from kourou.model.limits import DEADLINE_MS_MAX, RETRIED_KEYS_MAX, UNPROJECTED_KEYS_MAX
from kourou.model.message import Property, StoredMessage
from kourou.protocol.record import decode_record


@dataclass(frozen=True, slots=True)
class Original:
    """Where a repeated message already lies."""

    queue_id: int
    offset: int
    position: int
    size: int


class Unprojected(Protocol):
    """Appends, as far as it is needed here."""

    @property
    def oldest_unprojected(self) -> int:
        """The number of the oldest append that is given."""
        ...

    def unprojected(self, after: int) -> Iterable[tuple[int, memoryview]]:
        """Records that the key index may not have yet, of appends numbered above `after`."""
        ...


class Repeats:
    """Recognises repeated sends by (topic, unique key, body checksum)."""

    __slots__ = ("_appends", "_lately", "_looked_to", "_remembered", "_view")

    def __init__(self, view: StoreView, appends: Unprojected) -> None:
        self._view = view
        self._appends = appends
        self._lately: dict[tuple[str, str, int], Original] = {}
        self._looked_to = 0
        self._remembered: OrderedDict[tuple[str, str], tuple[int, int, Original]] = OrderedDict()

    @property
    def watching(self) -> bool:
        """True while first attempts must be compared too."""
        return bool(self._remembered)

    def find(
        self, topic: str, key: str, body_crc: int, wall_ms: int, *, retried: bool
    ) -> Original | None:
        """The original of this message, if it is stored already.

        `retried` says that the sender calls this an attempt after the first.
        """
        known = self._remembered.get((topic, key))
        if known is not None and known[1] == body_crc:
            return known[2]
        if not retried or not key:
            return None
        for record in self._indexed(topic, key, wall_ms - 2 * DEADLINE_MS_MAX):
            stored = _sent(record)
            if stored is not None and _identity(stored) == (topic, key, body_crc):
                return _original(stored)
        return self._find_lately(topic, key, body_crc)

    def _indexed(self, topic: str, key: str, begin_ms: int) -> list[memoryview]:
        try:
            return self._view.find_by_key(topic, key, max_count=8, begin_ms=begin_ms, end_ms=2**62)
        except Rejected:  # messageIndexEnable=false
            return []

    def _find_lately(self, topic: str, key: str, body_crc: int) -> Original | None:
        """Look where the key index has not come yet; each record is decoded once."""
        for number, record in self._appends.unprojected(self._looked_to):
            self._looked_to = number
            stored = _sent(record)
            if stored is not None:
                self._lately.setdefault(_identity(stored), _original(stored))
        return self._lately.get((topic, key, body_crc))

    def remember(self, now_ms: int, topic: str, key: str, body_crc: int, at: Original) -> None:
        """A retried send was stored as new; its first attempt may still be on the way."""
        if not key:
            return
        self._remembered[topic, key] = (now_ms + DEADLINE_MS_MAX, body_crc, at)
        while len(self._remembered) > RETRIED_KEYS_MAX:
            self._remembered.popitem(last=False)

    def expire(self, now_ms: int) -> None:
        """Forget keys whose requests cannot arrive any more, and what the index has by now."""
        if (
            self._appends.oldest_unprojected > self._looked_to
            or len(self._lately) > UNPROJECTED_KEYS_MAX
        ):
            self._lately.clear()
            self._looked_to = 0
        while self._remembered:
            key = next(iter(self._remembered))
            if self._remembered[key][0] > now_ms:
                return
            del self._remembered[key]


def _sent(record: memoryview) -> StoredMessage | None:
    """The message, if a producer sent it: one that came back for another attempt is no send."""
    stored = decode_record(record, decompress=False)
    again = stored.reconsume_times > 0 or Property.RETRY_TOPIC in stored.properties
    return None if again else stored


def _identity(stored: StoredMessage) -> tuple[str, str, int]:
    return stored.topic, stored.message_id, stored.body_crc


def _original(stored: StoredMessage) -> Original:
    return Original(stored.queue_id, stored.offset, stored.position, stored.size)
