"""Sends that arrive twice: found, and answered with the original's place.

Lives here: which repeats are looked for, and how the original is recognised.
May not live here: storing (engine.appends), the answer's shape (engine.sending).

State: soft (the window of retried keys); the originals themselves are found in the log by its key
index, so a restart loses nothing.

A producer that heard no answer sends the same message again with the same unique key and says that
this is its second attempt. Only such attempts are looked up, so a first attempt costs nothing. One
case is left: the first attempt can be delayed in the network until after the second was stored. The
keys of stored second attempts are therefore remembered for as long as a request may live, and while
any are remembered, first attempts are compared with them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from kourou.engine.ports import StoreView
from kourou.model.limits import DEADLINE_MS_MAX, RETRIED_KEYS_MAX
from kourou.model.message import Property
from kourou.protocol.record import decode_record


@dataclass(frozen=True, slots=True)
class Original:
    """Where a repeated message already lies."""

    queue_id: int
    offset: int
    position: int
    size: int


class Repeats:
    """Recognises repeated sends by (topic, unique key, body checksum)."""

    __slots__ = ("_remembered", "_view")

    def __init__(self, view: StoreView) -> None:
        self._view = view
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
        begin_ms = wall_ms - 2 * DEADLINE_MS_MAX
        for record in self._view.find_by_key(
            topic, key, max_count=8, begin_ms=begin_ms, end_ms=2**62
        ):
            stored = decode_record(record, decompress=False)
            if (
                stored.message_id == key
                and stored.body_crc == body_crc
                and stored.topic == topic
                and stored.reconsume_times == 0
                and Property.RETRY_TOPIC not in stored.properties
            ):
                return Original(stored.queue_id, stored.offset, stored.position, stored.size)
        return None

    def remember(self, now_ms: int, topic: str, key: str, body_crc: int, at: Original) -> None:
        """A retried send was stored as new; its first attempt may still be on the way."""
        if not key:
            return
        self._remembered[topic, key] = (now_ms + DEADLINE_MS_MAX, body_crc, at)
        while len(self._remembered) > RETRIED_KEYS_MAX:
            self._remembered.popitem(last=False)

    def expire(self, now_ms: int) -> None:
        """Forget keys whose requests cannot arrive any more."""
        while self._remembered:
            key = next(iter(self._remembered))
            if self._remembered[key][0] > now_ms:
                return
            del self._remembered[key]
