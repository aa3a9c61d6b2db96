"""Headers of filter servers and of Kourou's own filter requests.

A filter is Python code that a consumer group uploads under a name; the broker keeps its versions as
control events, and its filter servers run them. 301 and 302 are RocketMQ's.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class RegisterFilterServer(Request, kw_only=True, frozen=True):
    """REGISTER_FILTER_SERVER (301): register a filter server at its broker.

    Kourou's own: `listeners` has one `host:port` for each `carrier:listener`, as in registrations
    of brokers.
    """

    code: ClassVar[int] = 301
    filter_server_addr: str
    listeners: dict[str, str] | None = None


class RegisterFilterServerResponse(Response, kw_only=True, frozen=True):
    """The broker's name. Kourou's own: `filters_version` grows with every change of a filter.

    `decides`: the broker has users, and refuses what they have no right to, by every protocol.
    """

    broker_name: str
    broker_id: Int64
    filters_version: Int64 | None = None
    decides: bool = False


class RegisterMessageFilterClass(Request, kw_only=True, frozen=True):
    """REGISTER_MESSAGE_FILTER_CLASS (302): upload a filter; the body is its source text.

    `class_crc` is the body's CRC-32 without its top bit.
    """

    code: ClassVar[int] = 302
    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = msgspec.field(name="classCRC")


class UnregisterFilterServer(Request, kw_only=True, frozen=True):
    """UNREGISTER_FILTER_SERVER (30020): unregister a filter server from its broker."""

    code: ClassVar[int] = 30020
    filter_server_addr: str


class PutFilter(Request, kw_only=True, frozen=True):
    """PUT_FILTER (30021): upload a version of a group's filter; the body is its source (UTF-8).

    `sha256` is that of the body, in hexadecimal. A source that the filter already has keeps its
    version. `enable` activates the version.
    """

    code: ClassVar[int] = 30021
    consumer_group: str
    name: str
    sha256: str
    author: str = ""
    note: str = ""
    enable: bool = True


class ChangeFilter(Request, kw_only=True, frozen=True):
    """CHANGE_FILTER (30022): change a group's filter.

    `action`: enable (`version`, None for the newest), rollback (to the version enabled before),
    disable, policy (`policy`: hold, skip or pass), quarantine (`version`; requested by filter
    servers), delete.
    """

    code: ClassVar[int] = 30022
    consumer_group: str
    name: str
    action: str
    version: Int32 | None = None
    policy: str | None = None
    reason: str = ""


class FilterResponse(Response, kw_only=True, frozen=True):
    """`version` is the version of the request, `active` the active one (None: none).

    `quarantined` is the reason of the quarantine of `version`, None if it is not in quarantine.
    """

    version: Int32
    active: Int32 | None = None
    created: bool = False
    filters_version: Int64
    quarantined: str | None = None


class GetFilters(Request, kw_only=True, frozen=True):
    """GET_FILTERS (30023): get the filters of all groups, of one group, or one filter.

    `with_source` requests the source of `version`, or of the active one if that is None.
    """

    code: ClassVar[int] = 30023
    consumer_group: str = ""
    name: str = ""
    version: Int32 | None = None
    with_source: bool = False


class GetFiltersResponse(Response, kw_only=True, frozen=True):
    """The body is JSON (kourou.protocol.bodies.filter_bodies)."""

    filters_version: Int64


class NotifyFiltersChanged(Request, kw_only=True, frozen=True):
    """NOTIFY_FILTERS_CHANGED (30024): notify filter servers to get the filters again.

    With `rights_changed`: what clients were allowed does not count any more.
    """

    code: ClassVar[int] = 30024
    filters_version: Int64
    rights_changed: bool = False


class RecordFilterSkip(Request, kw_only=True, frozen=True):
    """RECORD_FILTER_SKIP (30025): record messages that are skipped by the filter's policy."""

    code: ClassVar[int] = 30025
    consumer_group: str
    name: str
    version: Int32
    topic: str
    queue_id: Int32
    offsets: list[Int64]
    reason: str


class TryFilter(Request, kw_only=True, frozen=True):
    """TRY_FILTER (30026): run a filter on the last `count` messages of a topic, as a dry run.

    The reply has its results and its cost. The body is the source; if it is empty, the stored
    `version` runs (None: the newest).
    """

    code: ClassVar[int] = 30026
    consumer_group: str
    name: str
    version: Int32 | None = None
    topic: str
    count: Int32 = 100


class GetFilterStatistics(Request, kw_only=True, frozen=True):
    """GET_FILTER_STATISTICS (30027): get the statistics of the filters of one filter server."""

    code: ClassVar[int] = 30027
    consumer_group: str = ""
    name: str = ""


class CheckAccess(Request, kw_only=True, frozen=True):
    """CHECK_ACCESS (30073): a filter server asks whether a client may send it a request.

    The client's request has the code `request_code`, the fields `header` (msgpack, as in a frame),
    and the same body. It came by `protocol` (tcp or zmq) from the IP address `address`. `key` is
    the CURVE key that the client has proved, `subject` that of its certificate, `on_behalf_of` the
    user that its frame names; `signed` are the fields of a request with an access key, and
    `version` is the remoting version of the client. `fetched_bytes` and `fetched_messages` are what
    pulls of this client for the same group and topic returned since the last such request: its
    quotas are charged with them.
    """

    code: ClassVar[int] = 30073
    request_code: Int32
    header: bytes
    protocol: str
    address: str
    version: Int32
    key: str = ""
    subject: str = ""
    on_behalf_of: str = ""
    signed: dict[str, str | None] | None = None
    fetched_bytes: Int64 = 0
    fetched_messages: Int64 = 0


class CheckAccessResponse(Response, kw_only=True, frozen=True):
    """`refusal` is the code of the reply to the client, and `text` its text; 0 if it may send it.

    `undecided`: the broker has no users, or decides no requests that come that way.
    """

    refusal: Int32 = 0
    text: str = ""
    undecided: bool = False
