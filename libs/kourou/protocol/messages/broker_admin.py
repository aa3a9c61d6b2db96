"""Headers of running a broker: settings, figures, cleaning (fact sheet §2.5)."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Request, Response


class UpdateBrokerConfig(Request, kw_only=True, frozen=True):
    """UPDATE_BROKER_CONFIG (25): give dynamic settings other values, while the broker runs."""

    code: ClassVar[int] = 25
    reason: str = ""  # ours: why, for the history


class GetBrokerConfig(Request, kw_only=True, frozen=True):
    """GET_BROKER_CONFIG (26): every setting, as it is now.

    Ours: `described` asks for JSON (kourou.protocol.settings_body) in place of properties text.
    """

    code: ClassVar[int] = 26
    described: bool = False


class GetBrokerConfigResponse(Response, kw_only=True, frozen=True):
    """The settings' data version, as JSON. `described`: the body is what was asked for so."""

    version: str | None = None
    described: bool = False


class GetBrokerRuntimeInfo(Request, kw_only=True, frozen=True):
    """GET_BROKER_RUNTIME_INFO (28): rates, bounds and sizes as a table of texts."""

    code: ClassVar[int] = 28


class CleanExpiredConsumeQueue(Request, kw_only=True, frozen=True):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queue files that name only deleted messages."""

    code: ClassVar[int] = 306


class CleanUnusedTopic(Request, kw_only=True, frozen=True):
    """CLEAN_UNUSED_TOPIC (316): delete the queues of topics that are no more."""

    code: ClassVar[int] = 316


class DeleteExpiredCommitLog(Request, kw_only=True, frozen=True):
    """DELETE_EXPIRED_COMMITLOG (329): delete expired log segments now, at whatever hour."""

    code: ClassVar[int] = 329


class ViewBrokerStatsData(Request, kw_only=True, frozen=True):
    """VIEW_BROKER_STATS_DATA (315): sums and rates of one counter."""

    code: ClassVar[int] = 315
    stats_name: str
    stats_key: str
