"""The filters that a broker in memory stores (see kourou_rigs.wire_broker).

State: soft.
"""

from __future__ import annotations

from kourou.protocol.messages.filter_server import FilterResponse, PutFilter


class WireFilters:
    """Sources by group and name, in order of versions; a test sets `active`.

    Without `enable_at_once` an uploaded version is not enabled.
    """

    def __init__(self) -> None:
        self.sources: dict[tuple[str, str], list[bytes]] = {}
        self.active: dict[tuple[str, str], int | None] = {}
        self.enable_at_once = True

    def put(self, request: PutFilter, body: bytes) -> FilterResponse:
        """Store an uploaded source; an identical source keeps its version."""
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
