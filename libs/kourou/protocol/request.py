"""What every request is, and the integer widths that its fields keep on the wire.

A header class is named after its RocketMQ code in camel case (PULL_MESSAGE is `PullMessage`), its
fields are the snake case of the RocketMQ extension fields (`queueOffset` is `queue_offset`), and
the fields of Kourou's own are optional, so that a request without them is RocketMQ's request. A
field that RocketMQ may leave out is None when absent; one it always writes has RocketMQ's default.

Values are checked where bytes come in (decode), never where our own code builds a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, NamedTuple

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An integer that RocketMQ holds in a Java `int`."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that RocketMQ holds in a Java `long`."""


class Header(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Fields beside a body. Unknown fields are ignored when one is decoded."""


class Request(Header, kw_only=True, frozen=True):
    """A request: `code` says which, `kourou.protocol.table.REQUESTS[code]` says everything else."""

    code: ClassVar[int]


class Response(Header, kw_only=True, frozen=True):
    """The fields of a successful answer."""


class Body(StrEnum):
    """What the bytes beside a header are."""

    NONE = "none"
    MESSAGE = "message"  # one message's body, or an encoded batch where the header says so
    DRAFTS = "drafts"  # records without their place, back to back
    RECORDS = "records"  # stored records, back to back
    LOG = "log"  # bytes of the commit log as they lie: whole records and blanks
    JSON = "json"
    PROPERTIES = "properties"  # Java properties text, `key=value` lines
    SOURCE = "source"  # the text of a filter program


class Resource(StrEnum):
    """What a request touches, in the sense of the allow rules."""

    TOPIC = "topic"
    GROUP = "group"
    CLIENT = "client"
    BROKER = "broker"
    CLUSTER = "cluster"
    ACCESS = "access"


class Action(StrEnum):
    """What a request does to its resource."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"
    MANAGE = "manage"
    CONNECT = "connect"
    REPLICATE = "replicate"
    NOTIFY = "notify"


class Rule(NamedTuple):
    """Who may send a request: whoever is allowed `action` on `resource`."""

    resource: Resource
    action: Action


class Answerer(StrEnum):
    """The kinds of processes that answer requests."""

    NAMESRV = "namesrv"
    BROKER = "broker"
    CLIENT = "client"
    FILTER_SERVER = "filter-server"
    MEMBER = "member"  # a broker, on its listener for replication


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One row of the request table.

    `answers` are the response codes given on purpose beside SUCCESS and SYSTEM_ERROR, which any
    request may get. `letters` marks RocketMQ's V2 sends, whose extension fields are single letters.
    `remoting` is False for Kourou's own codes, which exist in ZeroMQ frames only. `oneway` is True
    where the sender never waits for an answer.
    """

    code: int
    name: str
    header: type[Request]
    response: type[Response] | None
    body: Body
    reply_body: Body
    answered_by: frozenset[Answerer]
    answers: frozenset[int]
    rule: Rule
    oneway: bool = False
    letters: bool = False
    remoting: bool = True
