"""The two IDs of a message.

The producer creates the *unique key*, which the message keeps through retries. The *offset ID*
identifies one stored copy: store host and log position.
"""

from __future__ import annotations

from datetime import datetime

from kourou.errors import BadRequest
from kourou.model.units import DAY_MS
from kourou.protocol.record.layout import Host, decode_host, encode_host

_COUNTER_MASK = 0xFFFF
_KEYS_PER_MS = 65_536


def month_start_ms(now_ms: int) -> int:
    """Epoch ms at which the local-time month of `now_ms` began."""
    now = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - the format counts local time
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp() * 1000)


class UniqKeyGenerator:
    """Generates RocketMQ's unique keys: IP, process, a discriminator, ms in the month, a counter.

    `ip` has 4 or 16 bytes; `discriminator` distinguishes two generators of one process (RocketMQ
    uses the hash of its class loader). Not thread-safe.

    Within a month every key is different, whatever the clock does: the time in the keys never goes
    back, and after 65,536 keys in one millisecond the next millisecond is used.
    """

    __slots__ = (
        "_counter",
        "_head",
        "_month_end_ms",
        "_month_start_ms",
        "_prefix",
        "_time_ms",
        "_used",
    )

    def __init__(self, ip: bytes, pid: int, discriminator: int) -> None:
        assert len(ip) in (4, 16), "an IPv4 or IPv6 address"
        own = (pid & 0xFFFF).to_bytes(2, "big") + (discriminator & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = (ip + own).hex().upper()
        self._head = ""
        self._counter = 0
        self._time_ms = -1
        self._used = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        """One key; `now_ms` is wall time."""
        if now_ms > self._time_ms or self._used == _KEYS_PER_MS:
            self._begin(now_ms)
        self._used += 1
        counter = self._counter
        self._counter = (counter + 1) & _COUNTER_MASK
        return f"{self._head}{counter:04X}"

    def next_many(self, count: int, now_ms: int) -> list[str]:
        """`count` different keys."""
        keys: list[str] = []
        while len(keys) < count:
            if now_ms > self._time_ms or self._used == _KEYS_PER_MS:
                self._begin(now_ms)
            some = min(_KEYS_PER_MS - self._used, count - len(keys))
            head, first = self._head, self._counter
            keys += [f"{head}{(first + index) & _COUNTER_MASK:04X}" for index in range(some)]
            self._counter = (first + some) & _COUNTER_MASK
            self._used += some
        return keys

    def _begin(self, now_ms: int) -> None:
        """Start a new time for keys: the current one, or the next after those already used."""
        time_ms = self._time_ms = max(now_ms, self._time_ms + 1)
        self._used = 0
        if not self._month_start_ms <= time_ms < self._month_end_ms:
            self._month_start_ms = month_start_ms(time_ms)
            self._month_end_ms = month_start_ms(self._month_start_ms + 32 * DAY_MS)
        self._head = f"{self._prefix}{time_ms - self._month_start_ms:08X}"


def uniq_key_time_ms(key: str, now_ms: int) -> int | None:
    """When a unique key was created, in epoch ms; None for a text that is not such a key.

    The key counts from the start of its month, so the month is inferred: the latest one that does
    not put the key after `now_ms`.
    """
    if len(key) not in (32, 56):
        return None
    try:
        span_ms = int.from_bytes(bytes.fromhex(key[-12:-4]), "big")
    except ValueError:
        return None
    start_ms = month_start_ms(now_ms)
    if start_ms + span_ms >= now_ms:
        start_ms = month_start_ms(start_ms - 1)
    return start_ms + span_ms


def encode_offset_id(host: Host, position: int) -> str:
    """The ID of the copy that `host` stores at `position`: 32 hex digits (IPv4) or 56 (IPv6)."""
    return (encode_host(host) + position.to_bytes(8, "big")).hex().upper()


def decode_offset_id(text: str) -> tuple[Host, int]:
    """The inverse of `encode_offset_id`. Raises BadRequest for a text that is not an offset ID."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(text) not in (32, 56) or len(raw) * 2 != len(text):
        raise BadRequest(
            f"{text!r} is not an offset message ID", hint="it must have 32 or 56 hex digits"
        )
    position = int.from_bytes(raw[-8:], "big")
    if position >= 2**63:
        raise BadRequest(f"{text!r} names no position in a log")
    return decode_host(raw[:-8]), position
