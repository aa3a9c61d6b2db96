"""The filters that a broker in memory keeps (see kourou_rigs.wire_broker).

State: soft.
"""

from __future__ import annotations

from kourou.protocol.messages.filter_server import FilterResponse, PutFilter


class WireFilters:
    """Sources by group and name, the first version in front; `active` is changed by a test.

    Without `enable_at_once` an upload waits for an operator.
    """

    def __init__(self) -> None:
        self.sources: dict[tuple[str, str], list[bytes]] = {}
        self.active: dict[tuple[str, str], int | None] = {}
        self.enable_at_once = True

    def put(self, request: PutFilter, body: bytes) -> FilterResponse:
        """Keep an upload; one that is there already keeps its version, and nothing changes."""
        key = request.consumer_group, request.name
        versions = self.sources.setdefault(key, [])
        created = body not in versions
        if created:
            versions.append(body)
            if request.enable and self.enable_at_once:
                self.active[key] = len(versions)
        return FilterResponse(
            version=versions.index(body) + 1,
            active=self.active.get(key),
            created=created,
            filters_version=sum(map(len, self.sources.values())),
        )
