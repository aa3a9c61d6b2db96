"""Headers of filter servers (fact sheet §2.8), and ours of the filters themselves.

A filter is a piece of Python that a consumer group uploads under a name; the broker keeps its
versions as control events, its filter servers run them. 301 and 302 are RocketMQ's.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class RegisterFilterServer(Request, kw_only=True, frozen=True):
    """REGISTER_FILTER_SERVER (301): a filter server tells its broker that it is there.

    Ours: `listeners` has one `host:port` for each `carrier:listener`, as brokers tell name servers.
    """

    code: ClassVar[int] = 301
    filter_server_addr: str
    listeners: dict[str, str] | None = None


class RegisterFilterServerResponse(Response, kw_only=True, frozen=True):
    """Which broker that is. Ours: `filters_version` grows with every change of a filter there."""

    broker_name: str
    broker_id: Int64
    filters_version: Int64 | None = None


class RegisterMessageFilterClass(Request, kw_only=True, frozen=True):
    """REGISTER_MESSAGE_FILTER_CLASS (302): a filter, whose source text is the body.

    `class_crc` is the body's CRC-32 without its top bit.
    """

    code: ClassVar[int] = 302
    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = msgspec.field(name="classCRC")


class UnregisterFilterServer(Request, kw_only=True, frozen=True):
    """UNREGISTER_FILTER_SERVER (30020): a filter server leaves its broker."""

    code: ClassVar[int] = 30020
    filter_server_addr: str


class PutFilter(Request, kw_only=True, frozen=True):
    """PUT_FILTER (30021): a version of a group's filter, whose source text (UTF-8) is the body.

    `sha256` is that of the body, in hexadecimal. A source that the filter has already keeps its
    version. `enable` asks for it to be the version that runs from now on.
    """

    code: ClassVar[int] = 30021
    consumer_group: str
    name: str
    sha256: str
    author: str = ""
    note: str = ""
    enable: bool = True


class ChangeFilter(Request, kw_only=True, frozen=True):
    """CHANGE_FILTER (30022): decide about a group's filter.

    `action`: enable (`version`, None for the newest), rollback (to the version enabled before),
    disable, policy (`policy`: hold, skip or pass), quarantine (`version`; filter servers ask for
    it), delete.
    """

    code: ClassVar[int] = 30022
    consumer_group: str
    name: str
    action: str
    version: Int32 | None = None
    policy: str | None = None
    reason: str = ""


class FilterResponse(Response, kw_only=True, frozen=True):
    """`version` is the one that the request was about, `active` the one that runs (None: none).

    `quarantined` says why `version` is in quarantine, None if it is not.
    """

    version: Int32
    active: Int32 | None = None
    created: bool = False
    filters_version: Int64
    quarantined: str | None = None


class GetFilters(Request, kw_only=True, frozen=True):
    """GET_FILTERS (30023): the filters of all groups, of one group, or one filter.

    `with_source` brings the source of `version`; of the active one, if that is None.
    """

    code: ClassVar[int] = 30023
    consumer_group: str = ""
    name: str = ""
    version: Int32 | None = None
    with_source: bool = False


class GetFiltersResponse(Response, kw_only=True, frozen=True):
    """The body is JSON (kourou.protocol.filter_bodies)."""

    filters_version: Int64


class NotifyFiltersChanged(Request, kw_only=True, frozen=True):
    """NOTIFY_FILTERS_CHANGED (30024): a broker tells its filter servers to ask for the filters."""

    code: ClassVar[int] = 30024
    filters_version: Int64


class RecordFilterSkip(Request, kw_only=True, frozen=True):
    """RECORD_FILTER_SKIP (30025): these messages are passed over, as the filter's policy says."""

    code: ClassVar[int] = 30025
    consumer_group: str
    name: str
    version: Int32
    topic: str
    queue_id: Int32
    offsets: list[Int64]
    reason: str


class TryFilter(Request, kw_only=True, frozen=True):
    """TRY_FILTER (30026): what a filter says of the last `count` messages of a topic, and its cost.

    The body is the source to try; if it is empty, the stored `version` is (None: the newest).
    """

    code: ClassVar[int] = 30026
    consumer_group: str
    name: str
    version: Int32 | None = None
    topic: str
    count: Int32 = 100


class GetFilterStatistics(Request, kw_only=True, frozen=True):
    """GET_FILTER_STATISTICS (30027): what the filters of one filter server have done."""

    code: ClassVar[int] = 30027
    consumer_group: str = ""
    name: str = ""
