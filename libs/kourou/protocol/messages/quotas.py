"""Requests about quotas (Kourou's own), and the reply to a request that is over one."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int64, Request, Response


class SetQuota(Request, kw_only=True, frozen=True):
    """SET_QUOTA (30064): limit a user, topic or group; what has no value is not limited.

    `kind` is user, topic or group; `name` `*` is for all that have no quota of their own. It
    replaces the quota of that name. Limits are per second, at each broker;
    `connections` are those that a user may have open, `topics` and `groups` those that it may have
    created, `stored_bytes` the size of what a topic, or a user's topics, have in the log.
    """

    code: ClassVar[int] = 30064
    kind: str
    name: str
    publish_bytes: Int64 | None = None
    publish_messages: Int64 | None = None
    fetch_bytes: Int64 | None = None
    fetch_messages: Int64 | None = None
    requests: Int64 | None = None
    connections: Int64 | None = None
    topics: Int64 | None = None
    groups: Int64 | None = None
    stored_bytes: Int64 | None = None
    reason: str = ""


class RemoveQuota(Request, kw_only=True, frozen=True):
    """REMOVE_QUOTA (30065): remove a quota; that of `*` applies from then on."""

    code: ClassVar[int] = 30065
    kind: str
    name: str
    reason: str = ""


class ListQuotas(Request, kw_only=True, frozen=True):
    """LIST_QUOTAS (30066): get all quotas."""

    code: ClassVar[int] = 30066


class FlowControlled(Response, kw_only=True, frozen=True):
    """The fields of a reply with code 215; the request may be repeated after that time."""

    retry_after_ms: Int64 = 0
