"""The JSON bodies of filters: GET_FILTERS, TRY_FILTER and GET_FILTER_STATISTICS.

    {"filters":[{"group":"till","name":"late","active":2,"beforeActive":1,"policy":"hold",
                 "quarantined":{"1":"its worker died"},"skipped":0,"nextVersion":3,
                 "versions":[{"version":1,"sha256":"…","author":"ann","note":"","uploadedMs":…,
                              "sizeBytes":91,"source":"def match(…"}, …]}, …],
     "servers":["10.0.0.7:20915", …]}

`source` is there only if it was requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from kourou.model.filter import FilterPolicy, FilterState
from kourou.protocol.request import Int32, Int64
from kourou.protocol.wire.json_bodies import Buffer, decoded, same_fields

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]

_encode = msgspec.json.Encoder().encode


class _Shape(msgspec.Struct, rename="camel", kw_only=True, frozen=True, omit_defaults=True):
    """A JSON object of Kourou's own; unknown members are ignored."""


# -- the filters of a broker ----------------------------------------------------------------------


class _VersionShape(_Shape, kw_only=True, frozen=True):
    version: Number
    sha256: str
    author: str = ""
    note: str = ""
    uploaded_ms: Count = 0
    size_bytes: Count = 0
    source: str | None = None
    enabled_ms: Count | None = None


class _FilterShape(_Shape, kw_only=True, frozen=True):
    group: str
    name: str
    versions: list[_VersionShape] = []
    active: Number | None = None
    before_active: Number | None = None
    policy: FilterPolicy = FilterPolicy.HOLD
    quarantined: dict[Number, str] = {}
    skipped: Count = 0
    next_version: Number = 1


class _FiltersShape(_Shape, kw_only=True, frozen=True):
    filters: list[_FilterShape]
    servers: list[str] = []


_FILTERS = "list of filters"
_filters = msgspec.json.Decoder(_FiltersShape)


def encode_filters(filters: Iterable[FilterState], servers: Iterable[str] = ()) -> bytes:
    """The reply body of GET_FILTERS; it has the sources of versions that contain them.

    `servers` are the addresses of the broker's filter servers that the client can reach.
    """
    shapes = [same_fields(one, _FilterShape) for one in filters]
    return _encode(_FiltersShape(filters=shapes, servers=list(servers)))


def decode_filters(body: Buffer) -> list[FilterState]:
    """The filters of such a body. Raises DecodeError."""
    shapes = decoded(body, _filters, _FILTERS).filters
    return [same_fields(shape, FilterState) for shape in shapes]


def decode_filter_servers(body: Buffer) -> list[str]:
    """The filter servers of such a body. Raises DecodeError."""
    return decoded(body, _filters, _FILTERS).servers


# -- a dry run ------------------------------------------------------------------------------------


class TriedMessage(_Shape, kw_only=True, frozen=True):
    """One message and the result of the filter; `passed` None: the filter failed.

    `micros` is the time spent in the filter for it.
    """

    queue_id: Int32
    offset: Int64
    message_id: str = ""
    tag: str = ""
    keys: str = ""
    passed: bool | None = None
    reason: str = ""
    micros: Count = 0


class FilterTrial(_Shape, kw_only=True, frozen=True):
    """The result of TRY_FILTER. `version` is None if the source was in the request.

    `messages` are oldest first. `micros` is the time spent in the filter, `start_micros` the time
    to start its worker. `failure` is the kind of failure that ended the run early, in one word.
    """

    topic: str
    version: Number | None = None
    messages: list[TriedMessage] = []
    seen: Count = 0
    passed: Count = 0
    failed: Count = 0
    micros: Count = 0
    start_micros: Count = 0
    failure: str = ""
    reason: str = ""


_trial = msgspec.json.Decoder(FilterTrial)


def encode_filter_trial(trial: FilterTrial) -> bytes:
    """The reply body of TRY_FILTER."""
    return _encode(trial)


def decode_filter_trial(body: Buffer) -> FilterTrial:
    """The result in such a body. Raises DecodeError."""
    return decoded(body, _trial, "trial of a filter")


# -- statistics -----------------------------------------------------------------------------------


class FilterFigures(_Shape, kw_only=True, frozen=True):
    """The statistics of one version of a filter in one filter server since that started.

    Counts of messages: `seen`, `passed`, `errors` (the filter raised, died or timed out), `skipped`
    and `unfiltered` (by policies skip and pass). `micros` is the time spent in the filter for them.
    `bytes_in` came from the broker, `bytes_out` went to consumers. `starts` counts worker starts,
    `strikes` is the current number of strikes. `failure` and `reason` are those of the last
    failure.
    """

    group: str
    name: str
    version: Number
    seen: Count = 0
    passed: Count = 0
    errors: Count = 0
    skipped: Count = 0
    unfiltered: Count = 0
    batches: Count = 0
    micros: Count = 0
    bytes_in: Count = 0
    bytes_out: Count = 0
    starts: Count = 0
    failures: Count = msgspec.field(name="strikes", default=0)
    running: bool = False
    quarantined: bool = False
    failure: str = ""
    reason: str = ""
    failed_at_ms: Count | None = None


class _StatisticsShape(_Shape, kw_only=True, frozen=True):
    filters: list[FilterFigures]


_STATISTICS = "list of figures of filters"
_statistics = msgspec.json.Decoder(_StatisticsShape)


def encode_filter_statistics(figures: Sequence[FilterFigures]) -> bytes:
    """The reply body of GET_FILTER_STATISTICS."""
    return _encode(_StatisticsShape(filters=list(figures)))


def decode_filter_statistics(body: Buffer) -> list[FilterFigures]:
    """The statistics of such a body. Raises DecodeError."""
    return decoded(body, _statistics, _STATISTICS).filters
