"""Headers of replication: log replication, leader election, and administration of replicas.

Messages between replicas are sent on the replication listener only, never on those for clients. All
are one-way, and a reply is a message of its own. `FetchLog` and `GetLogBeginning` are ordinary
requests, which only read: every broker also serves them on its ordinary listener, for backups.
Requests of administrators arrive on the listeners for clients.

Terms: an *epoch* is a period with at most one leader (Raft's term); only that leader appends its
bytes. A *position* counts bytes of the commit log and is the same at every replica. The epoch *at*
a position is that of the byte before it, 0 if no epoch was ever opened. Epochs are sent as (epoch,
start position) pairs, ascending in both (kourou.replication.epochs). A replica is named as in its
group's settings; a static follower is named by its broker ID.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from kourou.model.limits import (
    DAMAGE_LENGTH_MAX,
    EPOCHS_SENT_MAX,
    MEMBER_NAME_LENGTH_MAX,
)
from kourou.protocol.request import Int64, Request, Response

Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MemberName = Annotated[str, msgspec.Meta(max_length=MEMBER_NAME_LENGTH_MAX)]
Pairs = Annotated[tuple[tuple[Epoch, Position], ...], msgspec.Meta(max_length=EPOCHS_SENT_MAX)]


class LogChunk(Request, kw_only=True, frozen=True):
    """LOG_CHUNK (30040): log bytes of one epoch from the leader, or a heartbeat (empty body).

    The body covers the log from `position` up to `end`, which is after its last byte if a filler
    closes the segment. `previous_epoch` is the epoch at `position`; a follower refuses the chunk if
    its log ends below `position` or has another epoch there. `data_epoch` is the epoch of the body;
    if it differs from the previous one, it begins at `position`. Positions below `confirmed` are
    committed and may be read. `leader_end` and `first_position` are the bounds of the leader's log.
    `round` never decreases within an epoch; the acknowledgement returns it, so that the leader
    knows when it was heard. `flush`: senders wait until these bytes are on the follower's disk.
    `catch_up`: the follower has a large lag and fetches the committed log from any replica; the log
    below `first_position` is deleted. `address`: the leader's address for clients; "" if they get
    it elsewhere. `joining`: the start of a follower without a vote, which gets one when it has all
    below `joining_at`; 0 for none.
    """

    code: ClassVar[int] = 30040
    group: str
    epoch: Epoch
    leader: MemberName
    position: Position
    end: Position
    previous_epoch: Epoch
    data_epoch: Epoch
    confirmed: Position
    leader_end: Position
    first_position: Position
    round: Int64 = 0
    flush: bool = False
    catch_up: bool = False
    damage: Annotated[str, msgspec.Meta(max_length=DAMAGE_LENGTH_MAX)] = ""
    address: str = ""
    joining: Int64 = 0
    joining_at: Position = 0


class ChunkAck(Request, kw_only=True, frozen=True):
    """CHUNK_ACK (30041): a follower's acknowledgement of its leader's log.

    Accepted: its log equals the leader's up to `written` and is on disk up to `flushed`; neither
    exceeds what the leader sent in this epoch. Refused: `epochs` are its newest ones below the
    refused position, `end` is where they end; all other fields are ignored, except `epoch` if it is
    above the leader's. `joining`: the start of a replica without a vote, which counts for no
    majority; 0 for a voter.
    """

    code: ClassVar[int] = 30041
    group: str
    epoch: Epoch
    member: MemberName
    accepted: bool
    written: Position = 0
    flushed: Position = 0
    round: Int64 = 0
    epochs: Pairs = ()
    end: Position = 0
    joining: Int64 = 0


class AskVote(Request, kw_only=True, frozen=True):
    """ASK_VOTE (30042): a vote request for `epoch`; the log ends at `end`, in `last_epoch`.

    `pre`: a pre-vote, which changes no epoch. `transfer` is the round of the StandNow that started
    this candidacy, 0 for none: a replica that did not hear the old leader in a later round votes
    even if that leader is alive. `joining`, if not 0, is the start of a replica without a vote: it
    is not a candidate, and only asks whether the receiver counts for a majority.
    """

    code: ClassVar[int] = 30042
    group: str
    epoch: Epoch
    candidate: MemberName
    last_epoch: Epoch
    end: Position
    pre: bool = False
    transfer: Int64 = 0
    joining: Int64 = 0


class Vote(Request, kw_only=True, frozen=True):
    """VOTE (30043): the reply to AskVote, of the same kind (`pre`).

    Granted: `epoch` is the requested one. Refused: it is the replica's own. `joining` is that of
    the request; if it is not 0, `lived` says whether other replicas may count on this one's log.
    """

    code: ClassVar[int] = 30043
    group: str
    epoch: Epoch
    member: MemberName
    granted: bool
    pre: bool = False
    joining: Int64 = 0
    lived: bool = False


class StandNow(Request, kw_only=True, frozen=True):
    """STAND_NOW (30044): the leader of `epoch` steps down; the receiver starts an election at once.

    From `round` on the leader acknowledges nothing until it was heard in a later one.
    """

    code: ClassVar[int] = 30044
    group: str
    epoch: Epoch
    leader: MemberName
    round: Int64


class Attach(Request, kw_only=True, frozen=True):
    """ATTACH (30045): a static follower requests the log from its leader.

    `epochs` (the newest), `end` and `first_position` describe the follower's log.
    """

    code: ClassVar[int] = 30045
    cluster: str
    broker_name: str
    broker_id: Int64
    epochs: Pairs = ()
    end: Position = 0
    first_position: Position = 0


class Attached(Request, kw_only=True, frozen=True):
    """ATTACHED (30046): the reply to Attach.

    The follower's log equals the leader's up to `common`; the follower truncates the rest.
    `refusal` is the reason of a refusal, "" if there is none. `begin_at`, if not 0: the leader's
    log begins there, above `common`; the follower must first start a new log there
    (GetLogBeginning).
    """

    code: ClassVar[int] = 30046
    broker_name: str
    broker_id: Int64
    epoch: Epoch
    common: Position = 0
    refusal: str = ""
    begin_at: Position = 0


class FetchLog(Request, kw_only=True, frozen=True):
    """FETCH_LOG (30047): get committed log bytes from `position` on, from any replica.

    At most `max_bytes`, whole records and fillers of one epoch and one segment. `damaged` also
    returns the bytes of a damaged region, marked as such; otherwise they get MESSAGE_CORRUPT.
    """

    code: ClassVar[int] = 30047
    group: str
    position: Position
    max_bytes: Position
    damaged: bool = False


class FetchLogResponse(Response, kw_only=True, frozen=True):
    """The body has the bytes; see LogChunk for the fields. All of them are below `confirmed`.

    `position` is above the requested one if the replica's log begins later; then there is no body,
    and none if its log ends at or below the requested one. `damage`: why the bytes are not readable
    records.
    """

    position: Position
    end: Position
    previous_epoch: Epoch
    data_epoch: Epoch
    confirmed: Position
    first_position: Position
    damage: Annotated[str, msgspec.Meta(max_length=DAMAGE_LENGTH_MAX)] = ""


class GetLogBeginning(Request, kw_only=True, frozen=True):
    """GET_LOG_BEGINNING (30048): get the state needed to start a log where this broker's begins.

    Events and messages before that position are no longer in the log. The state is sent in pieces:
    `from_byte` is where the next one begins.
    """

    code: ClassVar[int] = 30048
    group: str
    from_byte: Position = 0


class GetLogBeginningResponse(Response, kw_only=True, frozen=True):
    """The body is a piece of `size` bytes whose CRC-32 is `crc` (engine.admin.log_bootstrap).

    It belongs to a log that begins at `position`. A piece with another `crc` than the one before
    belongs to another state; start again with the first piece.
    """

    position: Position
    size: Position
    crc: Int64


# -- administration: status of replicas, promotion, leadership transfer ---------------------------


class GetReplicas(Request, kw_only=True, frozen=True):
    """GET_REPLICAS (30050): get leader, epoch and replication progress; the body has them.

    Every broker replies with what it knows: a leader about all its followers, a follower about
    itself and its leader.
    """

    code: ClassVar[int] = 30050


class PromoteReplica(Request, kw_only=True, frozen=True):
    """PROMOTE_REPLICA (30051): make the follower that receives the request the leader.

    `force`: even if the old leader is alive, or another follower may have more of the log.
    """

    code: ClassVar[int] = 30051
    broker_name: str
    force: bool = False


class PromoteReplicaResponse(Response, kw_only=True, frozen=True):
    """It opens `epoch` at `position`, the end of its log; the old leader had `behind` more."""

    epoch: Epoch
    position: Position
    behind: Position


class TransferLeader(Request, kw_only=True, frozen=True):
    """TRANSFER_LEADER (30052): transfer leadership of a Raft group to another replica.

    `target`: name or brokerId of that replica, "" for the most up-to-date one.
    """

    code: ClassVar[int] = 30052
    broker_name: str
    target: MemberName = ""


class TransferLeaderResponse(Response, kw_only=True, frozen=True):
    """The transfer from `leader` of `epoch` to `target` ("": the most up-to-date) has begun."""

    leader: MemberName
    epoch: Epoch
    target: MemberName = ""
