"""The JSON bodies of Kourou's own requests to brokers: settings, events, replicas, batches.

GET_BROKER_CONFIG with `described`, a broker's settings with descriptions:

{"settings":[{"name":"maxMessageSize","value":"4194304","configured":"4194304","kind":"integer",
              "about":"…","changeable":true,"whyNot":"","minimum":1,"maximum":…,"choices":[]}]}

GET_HISTORY, control events as their readers see them:

[{"offset":7,"atMs":1795228849207,"actor":"zmq:10.0.0.7:41234#3","reason":"four are too few",
  "traceId":"","aggregate":"topic/orders","event":{"type":"TopicPut",…},"undoes":5}, …]

GET_REPLICAS, one broker's view of the replicas of a log:

{"cluster":"DefaultCluster","brokerName":"broker-a","brokerId":0,"brokerRole":"SYNC_MASTER",
 "leads":true,"epoch":64,"leader":"broker-a/0","first":0,"end":4096,"flushed":4096,
 "confirmed":4096,"inSync":[1],"epochs":[[64,1024]],
 "followers":[{"brokerId":1,"address":"127.0.0.1:40212","state":"REPLICATE","written":4096,
               "flushed":4096,"lagBytes":0,"lagMs":0,"inSync":true}]}

Batch transactions:

PREPARE_BATCH   {"attempts":{"0":["a7.1",120],"1":["a7.2",98]}}
winners         {"winners":{"0":"a7.1","1":"a7.2"},"counts":{"broker-a":218}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from kourou.model.limits import BATCH_ATTEMPT_LENGTH_MAX, BATCH_PARTITIONS_MAX, BROKERS_MAX
from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, decoded

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Attempt = Annotated[str, msgspec.Meta(min_length=1, max_length=BATCH_ATTEMPT_LENGTH_MAX)]
_Partitions = msgspec.Meta(max_length=BATCH_PARTITIONS_MAX)

_encode = msgspec.json.Encoder().encode


# -- settings -------------------------------------------------------------------------------------


class SettingView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One setting of a broker.

    `value` is the effective value, `configured` that of the file, or the default: they differ if an
    operator changed it. `kind` is boolean, integer or text. `changeable`: while the broker runs;
    `why_not` is the reason if it is not. `minimum` and `maximum` are None if there is no limit.
    """

    name: str
    value: str
    configured: str
    kind: str
    about: str = ""
    changeable: bool = False
    why_not: str = ""
    minimum: Int64 | None = None
    maximum: Int64 | None = None
    choices: tuple[str, ...] = ()


class _SettingsShape(msgspec.Struct, frozen=True):
    settings: list[SettingView]


_settings = msgspec.json.Decoder(_SettingsShape)


def encode_setting_views(settings: Iterable[SettingView]) -> bytes:
    """The body of a reply."""
    return _encode(_SettingsShape(list(settings)))


def decode_setting_views(body: Buffer) -> list[SettingView]:
    """The settings in such a body. Raises DecodeError."""
    return decoded(body, _settings, "description of settings").settings


# -- control events and states --------------------------------------------------------------------


_EVENTS = "list of control events"
_STATE = "state of the control plane"


class EventView(msgspec.Struct, rename="camel", kw_only=True, frozen=True, omit_defaults=True):
    """One control event with its offset in the stream.

    `event` is its JSON object, with its type. `undoes` is the offset of the event that it undoes,
    or None. `at_ms` is wall time.
    """

    offset: Int64
    at_ms: Int64
    actor: str
    reason: str
    trace_id: str
    aggregate: str
    event: msgspec.Raw
    undoes: Int64 | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The event itself as plain values. Raises DecodeError."""
        return decoded(self.event, _fields, _EVENTS)


_events = msgspec.json.Decoder(list[EventView])
_fields = msgspec.json.Decoder(dict[str, Any])
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def encode_event_views(events: Sequence[EventView]) -> bytes:
    """The body of a page of events."""
    return _encode(events)


def decode_event_views(body: Buffer) -> list[EventView]:
    """The events of a page. Raises DecodeError."""
    return decoded(body, _events, _EVENTS)


def decode_state_view(body: Buffer) -> Any:
    """A state as plain values. Raises DecodeError."""
    return decoded(body, _any, _STATE)


# -- replicas -------------------------------------------------------------------------------------


class FollowerView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One follower, as its leader sees it. Positions and lags in bytes.

    `lag_ms`: time since it had everything the leader had; None if never since it attached. `member`
    is its name in a Raft group, "" outside of one; `in_sync` is False in a Raft group, where
    majorities count.
    """

    broker_id: Int64
    address: str
    state: str
    written: Int64
    flushed: Int64
    lag_bytes: Int64
    lag_ms: Int64 | None
    in_sync: bool
    member: str = ""


class ReplicasView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One broker's view. `broker_role` is that of the leader.

    `leads` with `epoch` 0: the log never had a follower. `fenced`: the epoch of another leader,
    because of which this broker stores nothing more; 0 if there is none. `state`, `reason`,
    `lag_bytes` and `lag_ms` describe a follower's own replica; a leader's are empty. `member` is
    this broker's name in a Raft group, "" outside of one; there `state` is its role, and `leader`
    is "" while no leader is known.
    """

    cluster: str
    broker_name: str
    broker_id: Int64
    broker_role: str
    leads: bool
    epoch: Int64
    leader: str
    first: Int64
    end: Int64
    flushed: Int64
    confirmed: Int64
    in_sync: tuple[Int64, ...] = ()
    epochs: tuple[tuple[Int64, Int64], ...] = ()
    followers: tuple[FollowerView, ...] = ()
    fenced: Int64 = 0
    leader_address: str = ""
    state: str = ""
    reason: str = ""
    lag_bytes: Int64 | None = None
    lag_ms: Int64 | None = None
    member: str = ""


_replicas = msgspec.json.Decoder(ReplicasView)


def encode_replicas(view: ReplicasView) -> bytes:
    """The body of a reply."""
    return _encode(view)


def decode_replicas(body: Buffer) -> ReplicasView:
    """A broker's reply. Raises DecodeError."""
    return decoded(body, _replicas, "view of a log's members")


# -- batch transactions ---------------------------------------------------------------------------


class _AttemptsShape(msgspec.Struct, frozen=True):
    attempts: Annotated[dict[Count, tuple[Attempt, Count]], _Partitions]


class BatchDecision(msgspec.Struct, frozen=True):
    """The winners of a batch: partition -> attempt, and the numbers of their messages by broker."""

    winners: Annotated[dict[Count, Attempt], _Partitions] = {}
    counts: Annotated[dict[str, Count], msgspec.Meta(max_length=BROKERS_MAX)] = {}


_attempts = msgspec.json.Decoder(_AttemptsShape)
_decision = msgspec.json.Decoder(BatchDecision)


def encode_attempts(attempts: Mapping[int, tuple[str, int]]) -> bytes:
    """The body of PREPARE_BATCH: partition -> (attempt, messages)."""
    return _encode(_AttemptsShape(dict(attempts)))


def decode_attempts(body: Buffer) -> dict[int, tuple[str, int]]:
    """The attempts of such a body. Raises DecodeError."""
    return decoded(body, _attempts, "list of attempts").attempts


def encode_decision(winners: Mapping[int, str], counts: Mapping[str, int]) -> bytes:
    """The body of DECIDE_BATCH, of RESOLVE_BATCH and of replies with a decision."""
    return _encode(BatchDecision(dict(winners), dict(counts)))


def decode_decision(body: Buffer) -> BatchDecision:
    """The decision in such a body; an empty body has no winners. Raises DecodeError."""
    return decoded(body, _decision, "decision about a batch") if len(body) else BatchDecision()
