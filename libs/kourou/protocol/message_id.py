"""The two names of a message (fact sheet §4.6).

The *unique key* is made by the producer and stays with a message through retries. The *offset id*
is the place of one stored copy: store host and log position.
"""

from __future__ import annotations

from datetime import datetime

from kourou.errors import BadRequest
from kourou.protocol.record import Host, decode_host, encode_host

_COUNTER_MASK = 0xFFFF


def month_start_ms(now_ms: int) -> int:
    """Epoch ms at which the local-time month of `now_ms` began."""
    now = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - the format counts local time
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp() * 1000)


class UniqKeyGenerator:
    """Makes RocketMQ's unique keys: ip, process, a discriminator, ms in the month, a counter.

    `ip` has 4 or 16 bytes. Not thread-safe; ids are unique for 65,536 messages a millisecond.
    """

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix")

    def __init__(self, ip: bytes, pid: int, discriminator: int) -> None:
        self._prefix = (
            (
                ip
                + (pid & 0xFFFF).to_bytes(2, "big")
                + (discriminator & 0xFFFFFFFF).to_bytes(4, "big")
            )
            .hex()
            .upper()
        )
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        """One key; `now_ms` is wall time."""
        return self.next_many(1, now_ms)[0]

    def next_many(self, count: int, now_ms: int) -> list[str]:
        """`count` different keys."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms = month_start_ms(now_ms)
            self._month_end_ms = month_start_ms(self._month_start_ms + 32 * 86_400_000)
        head = f"{self._prefix}{(now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}"
        first = self._counter
        self._counter = (first + count) & _COUNTER_MASK
        return [f"{head}{(first + i) & _COUNTER_MASK:04X}" for i in range(count)]


def encode_offset_id(host: Host, position: int) -> str:
    """The id of the copy that `host` stores at `position`: 32 hex digits (IPv4) or 56 (IPv6)."""
    return (encode_host(host) + position.to_bytes(8, "big")).hex().upper()


def decode_offset_id(text: str) -> tuple[Host, int]:
    """The inverse; raises BadRequest for a text that is no offset id."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(text) not in (32, 56) or len(raw) * 2 != len(text):
        raise BadRequest(f"{text!r} is no offset message id", hint="it has 32 or 56 hex digits")
    return decode_host(raw[:-8]), int.from_bytes(raw[-8:], "big")
