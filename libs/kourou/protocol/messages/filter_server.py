"""Headers of filter servers (fact sheet §2.8)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class RegisterFilterServer(Request, kw_only=True, frozen=True):
    """REGISTER_FILTER_SERVER (301): a filter server tells its broker that it is there."""

    code: ClassVar[int] = 301
    filter_server_addr: str


class RegisterFilterServerResponse(Response, kw_only=True, frozen=True):
    """Which broker that is."""

    broker_name: str
    broker_id: Int64


class RegisterMessageFilterClass(Request, kw_only=True, frozen=True):
    """REGISTER_MESSAGE_FILTER_CLASS (302): a filter, whose source text is the body.

    `class_crc` is the body's CRC-32 without its top bit.
    """

    code: ClassVar[int] = 302
    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = msgspec.field(name="classCRC")
