"""Headers of broker administration: settings, statistics, cleaning."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Request, Response


class UpdateBrokerConfig(Request, kw_only=True, frozen=True):
    """UPDATE_BROKER_CONFIG (25): change dynamic settings while the broker runs."""

    code: ClassVar[int] = 25
    reason: str = ""  # the reason, for the history


class GetBrokerConfig(Request, kw_only=True, frozen=True):
    """GET_BROKER_CONFIG (26): get the current value of every setting.

    Kourou's own: `described` requests JSON (kourou.protocol.bodies.settings_body) instead of
    properties text.
    """

    code: ClassVar[int] = 26
    described: bool = False


class GetBrokerConfigResponse(Response, kw_only=True, frozen=True):
    """The settings' data version, as JSON. `described`: the body is JSON as requested."""

    version: str | None = None
    described: bool = False


class GetBrokerRuntimeInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_RUNTIME_INFO (28): get rates, bounds and sizes, as a table of texts."""

    code: ClassVar[int] = 28


class CleanExpiredConsumeQueue(Request, kw_only=True, frozen=True):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queue files that only point to deleted messages."""

    code: ClassVar[int] = 306


class CleanUnusedTopic(Request, kw_only=True, frozen=True):
    """CLEAN_UNUSED_TOPIC (316): delete the queues of deleted topics."""

    code: ClassVar[int] = 316


class DeleteExpiredCommitLog(Request, kw_only=True, frozen=True):
    """DELETE_EXPIRED_COMMITLOG (329): delete expired log segments now, at any hour."""

    code: ClassVar[int] = 329


class ViewBrokerStatsData(Request, kw_only=True, frozen=True):
    """VIEW_BROKER_STATS_DATA (315): get sums and rates of one counter."""

    code: ClassVar[int] = 315
    stats_name: str
    stats_key: str
