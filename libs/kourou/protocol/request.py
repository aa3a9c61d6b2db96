"""The base classes of all requests, and the integer widths of their fields on the wire.

A header class is named after its RocketMQ code in camel case (PULL_MESSAGE is `PullMessage`). Its
fields are the RocketMQ extension fields in snake case (`queueOffset` is `queue_offset`). Kourou's
own fields are optional, so that a request without them is a RocketMQ request. A field that RocketMQ
may omit is None if absent; one that it always writes has RocketMQ's default.

Values are checked when bytes are decoded, never when Kourou itself builds a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from kourou.access.requirements import REQUIREMENTS, Requirement

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An integer that RocketMQ stores in a Java `int`."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that RocketMQ stores in a Java `long`."""


class Header(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """The fields of a request or reply, without its body. Unknown fields are ignored."""


class Request(Header, kw_only=True, frozen=True):
    """A request; `kourou.protocol.table.REQUESTS[code]` has its specification."""

    code: ClassVar[int]


class Response(Header, kw_only=True, frozen=True):
    """The fields of a successful reply."""


class Body(StrEnum):
    """The kind of a body."""

    NONE = "none"
    MESSAGE = "message"  # one message's body, or an encoded batch if the header says so
    DRAFTS = "drafts"  # adjacent records without their positions
    RECORDS = "records"  # adjacent stored records
    LOG = "log"  # bytes of the commit log: whole records and fillers
    JSON = "json"
    PROPERTIES = "properties"  # Java properties text, `key=value` lines
    SOURCE = "source"  # the source text of a filter


class Answerer(StrEnum):
    """The kinds of processes that handle requests."""

    NAMESRV = "namesrv"
    BROKER = "broker"
    CLIENT = "client"
    FILTER_SERVER = "filter-server"
    MEMBER = "member"  # a broker, on its listener for replication


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One row of the request table.

    `answers` are the response codes in addition to SUCCESS, SYSTEM_ERROR and others that any
    request may get. `short_names` marks RocketMQ's V2 sends, whose extension fields have names of a
    single letter. `remoting` is False for Kourou's own codes, which exist in ZeroMQ frames only.
    `oneway` is True if the sender never waits for a reply.
    """

    code: int
    name: str
    header: type[Request]
    response: type[Response] | None
    body: Body
    reply_body: Body
    answered_by: frozenset[Answerer]
    answers: frozenset[int]
    oneway: bool = False
    short_names: bool = False
    remoting: bool = True

    @property
    def requirement(self) -> Requirement:
        """What a caller needs for it."""
        return REQUIREMENTS[self.name]
