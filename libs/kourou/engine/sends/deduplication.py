"""Deduplication: finds sends that arrive twice; the reply has the original's offset.

State: soft (the window of retried keys). The originals are found in the log by its key index, so a
restart loses nothing. Records that the index does not have yet are searched one by one: after a
stall both attempts may be in one batch, and after a full disk the index lags until it has read the
log again. Without an index, the broker finds only repeats among those records.

A producer that got no reply sends the same message again with the same unique key, and marks it as
its second attempt. Only such attempts are looked up, so a first attempt costs nothing. One case
remains: the network can delay the first attempt until after the second one was stored. So the keys
of stored second attempts are remembered as long as a request may live, and while there are any,
first attempts are compared with them.

A sender that does not know whether the message was sent before (a gateway whose caller retries)
numbers its first attempt 0. It is looked up as well, but not remembered, because no earlier attempt
of this sender can be under way.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from kourou.engine.ports import StoreView
from kourou.engine.sends.appends import Appends, Target
from kourou.errors import Rejected
from kourou.model.limits import DEADLINE_MS_MAX, RETRIED_KEYS_MAX, UNPROJECTED_KEYS_MAX
from kourou.model.message import Property, StoredMessage
from kourou.protocol import kernel
from kourou.protocol.record.columns import RecordColumns
from kourou.protocol.record.message_record import decode_record
from kourou.runtime import Buffer

_UNIQUE_KEY = Property.UNIQ_KEY.encode()
_KEY_LENGTH_KEPT = 64


class Original(NamedTuple):
    """Where the original of a repeated message is stored."""

    queue_id: int
    offset: int
    position: int


class MessageIdentity(NamedTuple):
    """What identifies a repeat; `key` is the unique key, "" if there is none."""

    topic: str
    key: str
    body_crc: int


class DuplicateRows(NamedTuple):
    """The repeats among the rows of a frame."""

    originals: Mapping[int, Original]
    in_same_frame: Mapping[int, int]
    """Rows that repeat another row of the same frame, and that row."""

    @property
    def rows(self) -> Set[int]:
        """All rows that need not be stored."""
        return self.originals.keys() | self.in_same_frame.keys()


def identities_of(
    drafts: RecordColumns, targets: Sequence[Target], moved: Mapping[int, tuple[Buffer, Target]]
) -> list[MessageIdentity]:
    """Return the identity of each of these drafts.

    Draft i is stored in `targets[i]`, unless `moved` has its stored form and queue.
    """
    keys = kernel.values(drafts.records(), (_UNIQUE_KEY,))
    places = [moved[row][1] if row in moved else target for row, target in enumerate(targets)]
    return [
        MessageIdentity(topic, (key or b"").decode("ascii", "replace"), body_crc)
        for (topic, _), (key,), body_crc in zip(
            places, keys, drafts.body_crcs.tolist(), strict=True
        )
    ]


class Deduplication:
    """Finds repeated sends by (topic, unique key, body checksum)."""

    __slots__ = ("_appends", "_lately", "_looked_to", "_remembered", "_view")

    def __init__(self, view: StoreView, appends: Appends) -> None:
        self._view = view
        self._appends = appends
        self._lately: dict[MessageIdentity, Original] = {}
        self._looked_to = 0
        self._remembered: OrderedDict[tuple[str, str], tuple[int, int, Original]] = OrderedDict()

    @property
    def watching(self) -> bool:
        """Whether first attempts must be compared, too."""
        return bool(self._remembered)

    def remembers(self, identities: Iterable[MessageIdentity]) -> bool:
        """Return whether one of these is a retried send that was stored lately."""
        return any(self._lookup(who) is not None for who in identities)

    def duplicate_rows(
        self,
        identities: Sequence[MessageIdentity],
        rows: Iterable[int],
        wall_ms: int,
        *,
        retried: bool,
    ) -> DuplicateRows:
        """Return which rows of a frame are stored already, or are twice in the frame.

        `retried`: the sender says that this is an attempt after the first.
        """
        originals: dict[int, Original] = {}
        in_same_frame: dict[int, int] = {}
        firsts: dict[MessageIdentity, int] = {}
        for row in rows:
            who = identities[row]
            original = self.find(who, wall_ms, retried=retried)
            if original is not None:
                originals[row] = original
            elif retried and who.key and firsts.setdefault(who, row) != row:
                in_same_frame[row] = firsts[who]
        return DuplicateRows(originals, in_same_frame)

    def find(self, who: MessageIdentity, wall_ms: int, *, retried: bool) -> Original | None:
        """Return the original of this message if it is stored already.

        `retried` as in `duplicate_rows`.
        """
        known = self._lookup(who)
        if known is not None or not retried or not who.key:
            return known
        for record in self._indexed(who.topic, who.key, wall_ms - 2 * DEADLINE_MS_MAX):
            stored = _sent(record)
            if stored is not None and _identity(stored) == who:
                return _original(stored)
        return self._find_lately(who)

    def _lookup(self, who: MessageIdentity) -> Original | None:
        known = self._remembered.get((who.topic, _short(who.key))) if self._remembered else None
        return known[2] if known is not None and known[1] == who.body_crc else None

    def _indexed(self, topic: str, key: str, begin_ms: int) -> list[memoryview]:
        try:
            return self._view.find_by_key(topic, key, max_count=8, begin_ms=begin_ms, end_ms=2**62)
        except Rejected:  # messageIndexEnable=false
            return []

    def _find_lately(self, who: MessageIdentity) -> Original | None:
        """Search the records that the key index does not have yet; each is decoded once."""
        for number, record in self._appends.unprojected(self._looked_to):
            self._looked_to = number
            stored = _sent(record)
            if stored is not None:
                self._lately.setdefault(_identity(stored), _original(stored))
        return self._lately.get(who)

    def remember(self, now_ms: int, who: MessageIdentity, at: Original) -> None:
        """Remember a retried send that was stored as new; its first attempt may still arrive."""
        if not who.key:
            return
        self._remembered[who.topic, _short(who.key)] = (now_ms + DEADLINE_MS_MAX, who.body_crc, at)
        while len(self._remembered) > RETRIED_KEYS_MAX:
            self._remembered.popitem(last=False)

    def expire(self, now_ms: int) -> None:
        """Forget keys whose requests cannot arrive any more, and records that the index has."""
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


def _short(key: str) -> str:
    """Return a key that takes little memory: clients' own have 32 characters, others any length."""
    if len(key) <= _KEY_LENGTH_KEPT:
        return key
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _sent(record: memoryview) -> StoredMessage | None:
    """Return the message if a producer sent it; None if it came back for another attempt."""
    stored = decode_record(record, decompress=False)
    again = stored.reconsume_times > 0 or Property.RETRY_TOPIC in stored.properties
    return None if again else stored


def _identity(stored: StoredMessage) -> MessageIdentity:
    return MessageIdentity(stored.topic, stored.message_id, stored.body_crc)


def _original(stored: StoredMessage) -> Original:
    return Original(stored.queue_id, stored.offset, stored.position)
