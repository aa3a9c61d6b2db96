"""What passed through this broker, in plain integers (a metrics page reads them; nothing waits on
it).

State: soft. Counters start at 0 with the process, as every scraper expects.
"""

from __future__ import annotations

from collections import defaultdict


class Traffic:
    """Counts by topic, and by topic and group."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
        "refused",
        "repeats_removed",
    )

    def __init__(self) -> None:
        self.messages_in: defaultdict[str, int] = defaultdict(int)
        self.bytes_in: defaultdict[str, int] = defaultdict(int)
        self.messages_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.bytes_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.refused: defaultdict[int, int] = defaultdict(int)
        self.repeats_removed = 0

    def taken(self, topic: str, messages: int, size_bytes: int) -> None:
        """Messages were stored."""
        self.messages_in[topic] += messages
        self.bytes_in[topic] += size_bytes

    def out(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """Messages went to a consumer group."""
        self.messages_out[topic, group] += messages
        self.bytes_out[topic, group] += size_bytes

    def refuse(self, code: int) -> None:
        """A request was refused with this code."""
        self.refused[code] += 1
